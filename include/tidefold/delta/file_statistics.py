"""Delta statistics of a data file, gathered while its rows go by: what readers skip files by.

A bound that is wrong hides rows, and so does a missing one: deltalake 1.6.6 takes it for null (decision 0006). So every
column that has a value gets both bounds, but for floating point columns of a file with a NaN or an infinity.
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
    """Adds up tables of one schema; `document` is what the file's `add` action says of them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = {field.name: _Column() for field in schema}
        self._rows = 0

    def add(self, table: pa.Table) -> None:
        """Takes some rows of the file into account."""
        self._rows += table.num_rows
        for name, column in self._columns.items():
            _add(column, table.column(name))

    def document(self) -> str:
        """The statistics as the JSON text that a Delta log holds."""
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
    """As `json.dumps` writes it, which has no way to write the digits of a decimal as a number."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_json(name)}: {_json(one)}" for name, one in value.items()) + "}"
    if isinstance(value, Decimal):
        return format(value, "f")
    # deltalake 1.6.6 reads the escaped pair of U+10FFFF as another, lower character.
    return json.dumps(value, ensure_ascii=False)


def _add(column: _Column, values: pa.ChunkedArray) -> None:
    column.nulls += values.null_count
    if _is_unbounded(values.type):
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


def _is_unbounded(type_: pa.DataType) -> bool:
    """Kinds of which Delta has no bounds."""
    return bool(pa.types.is_nested(type_) or pa.types.is_binary(type_))


def _lower(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_TEXT]
    return _millis(value) if isinstance(value, datetime) else _plain(value)


def _upper(value: Any) -> Any:
    if isinstance(value, str):
        return _text_above(value)
    return _millis_above(value) if isinstance(value, datetime) else _plain(value)


def _text_above(value: str) -> str:
    """The beginning of a long text, and the last of all characters: no text that begins so sorts above it."""
    shortened = len(value) > _TEXT and value[_TEXT] != _LAST_CHARACTER
    return value[:_TEXT] + _LAST_CHARACTER if shortened else value


def _millis_above(value: datetime) -> str:
    """Delta keeps milliseconds: rounded up where there is room; readers allow for one millisecond more."""
    if value.replace(tzinfo=None) > _END_OF_TIME:
        return _millis(value)
    return _millis(value + timedelta(microseconds=-value.microsecond % 1000))


def _millis(value: datetime) -> str:
    # strftime does not pad years below 1000, and a bound that is not a timestamp hides rows.
    return f"{value.year:04d}-{value:%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value
