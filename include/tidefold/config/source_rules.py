"""What a log must fulfil so that its source can feed it: an option without effect, or a result that luck decides, is a
mistake.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidefold.config.described import shape_of
from tidefold.config.schema import LogEntry
from tidefold.config.source_entries import CsvEntry, DeltaFeedEntry, JsonEntry, ParquetEntry
from tidefold.lifecycle.shape import COLUMNS, Engine
from tidefold.lifecycle.shape_rules import Mistake
from tidefold.lifecycle.types import parse_type

_NO_TEXT = ("binary", "array")


def source_mistakes(entry: LogEntry) -> Iterator[Mistake]:
    """The mistakes of a log and its source, each right by itself."""
    source = entry.source
    if isinstance(source, ParquetEntry):
        yield from _places(entry, source)
        yield from _types(entry, source)
    if isinstance(source, DeltaFeedEntry):
        yield from _encodings(entry)
        if shape_of(entry).merge.engine is Engine.AGGREGATE:
            hint = "The table itself can be added up by whoever reads it."
            yield "SOURCE_ENGINE", ("merge",), "cannot be `aggregate`: an update brings the whole row once more.", hint
    if isinstance(source, ParquetEntry | JsonEntry) and source.op:
        for i, said in enumerate(source.op.delete):
            if said in source.op.upsert:
                at = ("source", "op", "delete", i)
                yield "OP_TWICE", at, f"is `{said}`, which `upsert` has too.", "Say what it means once."


def _places(entry: LogEntry, source: ParquetEntry) -> Iterator[Mistake]:
    """Rows without offsets are told apart, and put in order, by their content alone."""
    shape = shape_of(entry)
    if source.offset is not None:
        return
    if shape.merge.engine in (Engine.AGGREGATE, Engine.APPEND):
        message = f"cannot be `{shape.merge.engine}`: equal rows count once, as the same row that came twice."
        hint = "Name the column that numbers the rows: `source: {offset: COLUMN}`."
        yield "SOURCE_OFFSET", ("merge",), message, hint
    elif shape.order == COLUMNS and not shape.order_by:
        hint = "Name the columns that order the rows of a key: `order: [updated_at]`; or `source: {offset: COLUMN}`."
        yield "SOURCE_ORDER", ("order",), "is missing: the files do not say which row is the newer one.", hint


def _types(entry: LogEntry, source: ParquetEntry) -> Iterator[Mistake]:
    yield from _encodings(entry)
    for name, column in entry.columns.items():
        if isinstance(source, CsvEntry) and parse_type(column.type).name in _NO_TEXT:
            message = f"cannot be {column.type} with format csv."
            yield "SOURCE_TYPE", ("columns", name), message, "Land it as Parquet or JSON."


def _encodings(entry: LogEntry) -> Iterator[Mistake]:
    for name, column in entry.columns.items():
        if column.encoding and entry.source:
            message = f"has an encoding, which has no effect with format {entry.source.format}."
            yield "ENCODING_WITHOUT_EFFECT", ("columns", name), message, "Remove it."
