"""Formats values and keys of bad rows as text for people: of limited length, without control characters."""

from __future__ import annotations

from collections.abc import Mapping

from tidefold.quality.report.result import clip_text
from tidefold.quality.suite.check import canonical


def as_text(value: object) -> str:
    """Returns a value of a row, or of Great Expectations, as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={as_text(v)}" for name, v in value.items())
    if isinstance(value, str):
        return value
    try:
        return canonical(value)
    except (TypeError, ValueError):
        return str(value)


def key_text(key: Mapping[str, object]) -> str:
    """Returns the key of a row, such as `aid=7`."""
    return clip_text(as_text(key))
