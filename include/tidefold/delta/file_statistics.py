"""Collects the Delta statistics of a data file while its rows are written. Readers skip files by them.

A wrong bound hides rows. So does a missing one: deltalake 1.6.6 reads it as null (decision 0006). So every column with
a value gets both bounds, except floating point columns of a file with NaN or an infinity.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_TEXT = 32
_LAST_CHARACTER = "\U0010ffff"
_END_OF_TIME = datetime(9999, 12, 31, 23, 59, 59, 999000)


@dataclass(slots=True)
class _Column:
    lower: Any = None
    upper: Any = None
    nulls: int = 0
    unbounded: bool = False


class FileStatistics:
    """Adds up tables of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = {field.name: _Column() for field in schema}
        self._rows = 0

    def add(self, table: pa.Table) -> None:
        """Adds some rows of the file."""
        self._rows += table.num_rows
        for name, column in self._columns.items():
            _add(column, table.column(name))

    def document(self) -> str:
        """Returns the statistics as the JSON text of the file's `add` action."""
        bounded = {n: c for n, c in self._columns.items() if c.lower is not None and not c.unbounded}
        return _json(
            {
                "numRecords": self._rows,
                "minValues": {name: _lower(column.lower) for name, column in bounded.items()},
                "maxValues": {name: _upper(column.upper) for name, column in bounded.items()},
                "nullCount": {name: column.nulls for name, column in self._columns.items()},
            }
        )


def _json(value: Any) -> str:
    """Returns a value as `json.dumps` writes it, but decimals as numbers with all their digits."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_json(name)}: {_json(one)}" for name, one in value.items()) + "}"
    if isinstance(value, Decimal):
        return format(value, "f")
    # deltalake 1.6.6 reads the escaped pair of U+10FFFF as another, lower character.
    return json.dumps(value, ensure_ascii=False)


def _add(column: _Column, values: pa.ChunkedArray) -> None:
    column.nulls += values.null_count
    if pa.types.is_nested(values.type) or pa.types.is_binary(values.type):
        return
    found = pc.min_max(values)
    lower, upper = found["min"].as_py(), found["max"].as_py()
    if lower is None:
        return
    if pa.types.is_floating(values.type):
        # NaN sorts above every number to Spark and into no bound to Arrow; JSON has no word for the infinities.
        whole = math.isfinite(lower) and math.isfinite(upper)
        column.unbounded |= not whole or bool(pc.any(pc.is_nan(values)).as_py())
    column.lower = lower if column.lower is None else min(column.lower, lower)
    column.upper = upper if column.upper is None else max(column.upper, upper)


def _lower(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_TEXT]
    return _millis(value) if isinstance(value, datetime) else _plain(value)


def _upper(value: Any) -> Any:
    if isinstance(value, str):
        # No text with the same start sorts above the start followed by the highest character.
        shortened = len(value) > _TEXT and value[_TEXT] != _LAST_CHARACTER
        return value[:_TEXT] + _LAST_CHARACTER if shortened else value
    return _millis_above(value) if isinstance(value, datetime) else _plain(value)


def _millis_above(value: datetime) -> str:
    """Rounds up to milliseconds, which Delta stores. Readers allow for one millisecond more."""
    if value.replace(tzinfo=None) > _END_OF_TIME:
        return _millis(value)
    return _millis(value + timedelta(microseconds=-value.microsecond % 1000))


def _millis(value: datetime) -> str:
    # strftime does not pad years below 1000, and a bound that is not a timestamp hides rows.
    return f"{value.year:04d}-{value:%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value
