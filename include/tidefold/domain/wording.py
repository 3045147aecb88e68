"""How texts for people count things."""

from __future__ import annotations


def count_noun(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun: `1 file`, `1,200 files`. `plural`: if it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
