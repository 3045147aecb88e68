"""Work that tests give to Spark's workers, which load it by this module's name."""

from __future__ import annotations

from tidefold.errors import CorruptError


def double(text: str) -> str:
    if text == "bad":
        raise CorruptError("SEGMENT_CORRUPT", "It is damaged.", hint="Restore it.")
    return text * 2


def breaks(text: str) -> str:
    raise ZeroDivisionError(text)
