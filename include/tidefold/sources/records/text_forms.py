"""Brings texts of values to the one form that Arrow reads: times without a zone or in another order, and booleans."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

# Ways to write a time that are no ISO 8601; the first two differ where the day is 12 at most.
FORMATS = (
    "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d/%m/%Y", "%m/%d/%Y",
    "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%d.%m.%Y", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d",
    "%d-%m-%Y %H:%M:%S", "%d-%m-%Y", "%Y%m%d%H%M%S", "%d-%b-%Y %H:%M:%S", "%d-%b-%Y",
    "%d/%m/%Y %I:%M:%S %p", "%m/%d/%Y %I:%M:%S %p", "%d/%m/%Y %I:%M %p", "%m/%d/%Y %I:%M %p", "%Y/%m/%d %H:%M:%S.%f",
    "%d-%b-%y %I.%M.%S.%f %p", "%d-%b-%y %H:%M:%S", "%d-%b-%y", "%b %d, %Y, %I:%M:%S %p", "%b %d, %Y",
    "%d/%b/%y %I:%M %p", "%d/%b/%Y %H:%M:%S",
)  # fmt: skip
_BOOLEANS = pa.array(["true", "false", "True", "False", "TRUE", "FALSE", "t", "f"])
_NORMAL_BOOLEANS = pa.array(["true", "false"] * 4)
_NAIVE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+$"
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
# What warehouses write behind an instant: `UTC` or a blank before the zone, and zeros behind the microsecond.
_SPELLED = r"( UTC| GMT| Z| [+-][0-9:]+|\.[0-9]{6}0+.*)$"
_PLAINER = ((r" ?(UTC|GMT|Z)$", "Z"), (r" ([+-][0-9]{2}(:?[0-9]{2})?)$", r"\1"), (r"(\.[0-9]{6})0+", r"\1"))


def in_normal_form(texts: pa.Array, type_: str, formats: Sequence[str]) -> pa.Array:
    """The same values as texts that are read.

    texts: what the file has.
    formats: how times are written that are not ISO 8601, as Python's strptime has it.
    A text in no known form stays as it is, and is refused later.
    """
    if type_ == "boolean":
        found = _NORMAL_BOOLEANS.take(pc.index_in(texts, _BOOLEANS))
        return pc.if_else(pc.is_valid(found), found, texts)
    if type_ not in ("date", "timestamp"):
        return texts
    texts = _parse_formats(texts, type_, formats)
    if type_ == "date":
        return texts
    texts = _with_suffix(texts, _DAY, "T00:00:00Z")
    return _with_suffix(_without_words(texts), _NAIVE, "Z")


def _without_words(texts: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(texts, _SPELLED)).as_py():
        return texts
    for pattern, plain in _PLAINER:
        texts = pc.replace_substring_regex(texts, pattern, plain)
    return texts


def _with_suffix(texts: pa.Array, pattern: str, suffix: str) -> pa.Array:
    longer = pc.binary_join_element_wise(texts, pa.scalar(suffix), pa.scalar(""))
    return pc.if_else(pc.match_substring_regex(texts, pattern), longer, texts)


def _parse_formats(texts: pa.Array, type_: str, formats: Sequence[str]) -> pa.Array:
    """Texts in one of the formats, as ISO 8601. Python reads them: Arrow takes the 31st of February for a day."""
    if not formats:
        return texts
    once = texts.dictionary_encode()
    known = [_iso(text, type_, formats) for text in once.dictionary.to_pylist()]
    return pa.array(known, pa.string()).take(once.indices)


def _iso(text: str, type_: str, formats: Sequence[str]) -> str:
    for format_ in formats:
        try:
            at = datetime.strptime(text, format_)
        except ValueError:
            continue
        if type_ == "timestamp":
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()
        if (at.hour, at.minute, at.second, at.microsecond) == (0, 0, 0, 0):
            return at.date().isoformat()
    return text


def find_format(text: str, type_: str) -> str:
    """The first format that makes a date or a timestamp of a text; empty: none does."""
    formats = [f for f in FORMATS if type_ == "timestamp" or (type_ == "date" and "%H" not in f and "%I" not in f)]
    return next((format_ for format_ in formats if is_as(text, format_)), "")


def is_as(text: str, format_: str) -> bool:
    """Whether a text is a time in this format."""
    if not text[:1].isalnum():
        return False
    try:
        datetime.strptime(text, format_)
    except ValueError:
        return False
    return True
