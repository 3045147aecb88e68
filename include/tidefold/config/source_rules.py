"""What a log must fulfil so that its source can feed it: an option without effect, or a result that luck decides, is a
mistake.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidefold.config.described import shape_of
from tidefold.config.schema import LogEntry
from tidefold.config.source_entries import (
    CsvEntry,
    CustomEntry,
    DeltaFeedEntry,
    JsonEntry,
    ParquetEntry,
    StateJsonEntry,
)
from tidefold.lifecycle.shape import COLUMNS, Engine
from tidefold.lifecycle.shape_rules import Mistake
from tidefold.lifecycle.types import parse_type
from tidefold.sources.formats import custom_sources

_NO_TEXT = ("binary", "array")


def source_mistakes(entry: LogEntry) -> Iterator[Mistake]:
    """The mistakes of a log and its source, each right by itself."""
    source = entry.source
    if source is None:
        yield from _encodings(entry, "for a log that a program writes")
    if isinstance(source, ParquetEntry):
        yield from _places(entry, source)
        yield from _types(entry, source)
    if isinstance(source, CustomEntry) and source.name not in custom_sources():
        hint = f"Install the package that brings it; there are: {', '.join(custom_sources()) or 'none'}."
        yield "SOURCE_UNKNOWN", ("source", "name"), f"names `{source.name}`, which no installed package has.", hint
    if isinstance(source, StateJsonEntry):
        yield from _state(entry, source)
    if isinstance(source, DeltaFeedEntry):
        yield from _encodings(entry, f"with format {source.format}")
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


def _encodings(entry: LogEntry, where: str) -> Iterator[Mistake]:
    for name, column in entry.columns.items():
        if column.encoding:
            message = f"has an encoding, which has no effect {where}."
            yield "ENCODING_WITHOUT_EFFECT", ("columns", name), message, "Remove it."


def _types(entry: LogEntry, source: ParquetEntry) -> Iterator[Mistake]:
    yield from _encodings(entry, f"with format {source.format}")
    for name, column in entry.columns.items():
        if isinstance(source, CsvEntry) and parse_type(column.type).name in _NO_TEXT:
            message = f"cannot be {column.type} with format csv."
            yield "SOURCE_TYPE", ("columns", name), message, "Land it as Parquet or JSON."


def _state(entry: LogEntry, source: StateJsonEntry) -> Iterator[Mistake]:
    """Each kind of state has its key, and its way in which changes are merged."""
    parts, whole, kind = source.state_key, list(entry.key), source.kind
    kept = {"map": 0 < len(parts) < len(whole), "queue": len(parts) < len(whole)}.get(kind, parts == whole)
    if not kept or parts != whole[: len(parts)]:
        wanted = {"map": "the first columns of `key`, not all", "queue": "the first columns of `key`, not all, or none"}
        message = f"must be {wanted.get(kind, 'the columns of `key`')} for a {kind} state."
        yield "STATE_KEY", ("source", "state_key"), message, "What follows in `key` tells entries or elements apart."
    engine = Engine.AGGREGATE if kind in ("list", "reducing") else Engine.LAST
    if entry.merge.engine is not engine:
        yield "STATE_MERGE", ("merge",), f"must be `{engine}` for a {kind} state.", f"Set `engine: {engine}`."
    values = [name for name in entry.columns if name not in whole]
    if kind == "list" and entry.merge.aggregates != dict.fromkeys(values[:1], "list"):
        hint = "As an example `columns: {id: long, items: array<string>}` and `aggregates: {items: list}`."
        yield "STATE_MERGE", ("merge", "aggregates"), "must be `list` for the one column of a list state.", hint
