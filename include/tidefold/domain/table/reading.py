"""Which edits of a configuration read values of a source in another way than those that a log has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tidefold.domain.table.table_spec import Column, TableSpec
from tidefold.domain.table.types import encodings_of, parse_type

# Encodings that can read one text, or one number, as different values; and pairs of them that read both alike.
_ALIKE = ({"days", "micros", "millis", "seconds", "nanos", "any"}, {"base64", "base64url", "hex", "string", "any"})
_SAME = ({"days", "any"}, {"micros", "any"}, {"string", "any"})
_WORDS = tuple(f"{at}.{name}" for at in ("op", "profile") for name in ("upsert", "delete", "clear", "ignore"))


def find_other_readings(before: TableSpec, after: TableSpec) -> Iterator[tuple[str, str, str]]:
    """Yields each option and column that would read values in another way, as it was and is now.

    What was refused may be read.
    """
    if before.reading is None or after.reading is None:
        return
    has_text = any(column.type == "string" for column in before.columns)
    old, new = dict(before.reading), dict(after.reading)
    for name in {**old, **new}:
        was, now = old.get(name, ""), new.get(name, "")
        is_other = _moves_a_word(name, old, new) if name in _WORDS else not _reads_more(name, was, now, has_text)
        if was != now and is_other:
            yield name, was or "the default", now or "the default"
    columns = {column.name: column for column in before.columns}
    for column in after.columns:
        (former, one), (kind, other) = map(_encoding_of, (columns.get(column.name, column), column))
        if former == kind and _reads_otherwise(one, other):
            yield column.name, f"encoding {one}", f"encoding {other}"


def _moves_a_word(name: str, old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Whether a word of this list has another meaning now. A word without a meaning is refused."""
    before, after, *others = (
        json.loads(listed) for listed in (old.get(name, "[]"), *(new.get(n, "[]") for n in (name, *_WORDS)))
    )
    if "any" in (before, after, *others):
        return True
    return any(word in other for word in before if word not in after for other in others)


def _reads_more(name: str, before: str, after: str, has_text: bool) -> bool:
    """Whether an option reads every value as before: it only names what was refused before.

    A text that means null was a value of a text column. A format with the year in front may read what ISO 8601 reads.
    What was read as UTF-8 was UTF-8.
    """
    match name:
        case "thousands" | "encoding" | "op.missing":
            return not before
        case "null" | "quoted_null":
            return not has_text and before[:-1] in after
    is_longer = name == "timestamp_formats" and after.startswith(before[:-1])
    return is_longer and bool(after) and "%Y-" not in after[len(before) :]


def _encoding_of(column: Column) -> tuple[str, str]:
    """Returns the name of the type of a column, and its encoding: the usual one if none is configured."""
    type_ = parse_type(column.type)
    return type_.name, column.encoding or next(iter(encodings_of(type_)), "")


def _reads_otherwise(one: str, other: str) -> bool:
    """Whether one encoding can read what another one has written, as another value. Without a scale it reads none."""
    plain = {encoding.partition("(")[0] for encoding in (one, other)}
    if one == other or plain in _SAME or (plain == {"base64"} and "base64" in (one, other)):
        return False
    return any(plain <= alike for alike in _ALIKE)
