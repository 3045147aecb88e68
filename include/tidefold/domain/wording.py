"""How texts for people count and measure things, and how long a person's text may be."""

from __future__ import annotations


def count_noun(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun: `1 file`, `1,200 files`. `plural`: if it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


# The ledger keeps names and reasons for ever, and every command reads them.
LONGEST_REASON = 1_000


def shorten_reason(text: str) -> str:
    """The text as the ledger keeps it: a longer one ends after LONGEST_REASON characters, with an ellipsis."""
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 1]}…"


def in_units(size: int) -> str:
    """`1.5 MB`; units of 1000."""
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.95:
            break
        value, unit = value / 1000, larger
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
