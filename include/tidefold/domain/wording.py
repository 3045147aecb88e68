"""How texts for people count, measure and name things and write times; how long a person's text may be."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from tidefold.domain.table.table_spec import EXPERIMENTAL

_SPANS = ((86_400, "d"), (3600, "h"), (60, "min"))
# The ledger keeps names and reasons for ever, and every command reads them.
LONGEST_REASON = 1_000
_LONGEST_SAMPLE = 200


def count_noun(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun: `1 file`, `1,200 files`. `plural`: if it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def describe_ties(ties: int) -> str:
    """Describes keys that have different changes of one order."""
    return f"ties: {ties:,} {'key has' if ties == 1 else 'keys have'} different changes of one order, the later counts"


def explain_experimental(order: str) -> str:
    """Returns what a person should know of a connector that follows a documentation alone; empty: nothing."""
    why = "tidefold follows Debezium's documentation, and was never run with such a server"
    return f"connector {order} is experimental: {why}" if order in EXPERIMENTAL else ""


def shorten_reason(text: str) -> str:
    """The text as the ledger keeps it: a longer one ends after LONGEST_REASON characters, with an ellipsis."""
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 1]}…"


def clip_text(text: str) -> str:
    """Returns text of limited length: a sample is a hint, not a copy of the data.

    Characters that do not print are escaped, so that no value can control a terminal or reverse the text around it.
    """
    shown = _to_line(text[:_LONGEST_SAMPLE])
    return shown if len(text) <= _LONGEST_SAMPLE else f"{shown}\u2026"


def list_values(values: Mapping[str, Any]) -> str:
    """Returns columns and their values in one line."""
    return ", ".join(f"{name}={format_cell(value)}" for name, value in values.items())


def format_cell(value: Any) -> str:
    """Returns a value of a row as it is shown in a line: `null`, `true`, `[a, null]`, bytes as base64."""
    if isinstance(value, list):
        return f"[{', '.join(map(format_cell, value))}]"
    return json.dumps(value) if value is None or isinstance(value, bool) else _to_line(plain(value))


def plain(value: Any) -> str:
    """Returns the text of a value that JSON has no type for: bytes as base64."""
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _to_line(text: str) -> str:
    return escape_control_characters(text).replace("\n", "\\n")


def escape_control_characters(text: str) -> str:
    """Escapes the characters that do not print, and those that change the direction of a line."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def in_units(size: int) -> str:
    """`1.5 MB`; units of 1000."""
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.95:
            break
        value, unit = value / 1000, larger
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def format_age(seconds: float) -> str:
    """`3 d`, `5 h` or `12 min`: the largest unit of which there are at least two."""
    for size, unit in _SPANS:
        if seconds >= 2 * size:
            return f"{seconds // size:,.0f} {unit}"
    return f"{seconds:,.0f} s"


def format_minute(instant: str) -> str:
    """Returns an ISO instant without its seconds and its zone, which is always UTC."""
    return instant[:16].replace("T", " ")


def choose_record_noun(file: str) -> str:
    """Returns what the records of a file are called. Rows of CSV are numbered from 1 behind the header."""
    plain = file.lower().removesuffix(".gz")
    if plain.endswith((".csv", ".tsv", ".parquet")):
        return "row"
    return "record" if plain.endswith(".avro") else "line"


class EngineName(StrEnum):
    """The word for an engine in outcomes, task logs, verdicts and on the page."""

    SPARK = "spark"
    IN_PROCESS = "in process"
