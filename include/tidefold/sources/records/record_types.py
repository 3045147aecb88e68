"""The strict types that a line of a log decodes into, with the names that records use for its columns.

The decoder refuses a line with an unknown column, another type or a value out of range. `refusal` then finds the
reason.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.table_spec import Column, rename_columns
from tidefold.domain.table.types import parse_type
from tidefold.sources.records.encodings import COLUMN_TYPES as COLUMN_TYPES
from tidefold.sources.records.encodings import INT64, Form, form_of, json_type, or_null, or_unset

NOTHING = Raw(b"")
# A Raw equals no bytes.
NULL = Raw(b"null")
_OFFSET = Annotated[int, Meta(ge=0, le=2**63 - 2)]


class SourceBlock(msgspec.Struct, gc=False):
    """What is used of Debezium's `source` block."""

    sequence: str | None = None
    snapshot: str | bool | None = None
    ts_us: INT64 | None = None
    ts_ms: Annotated[int, Meta(ge=-(2**53), le=2**53)] | None = None
    file: str | None = None
    pos: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    row: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    commit_lsn: str | None = None
    change_lsn: str | None = None
    event_serial_no: int | str | None = None
    scn: int | str | None = None
    commit_scn: int | str | None = None
    ord: int | None = None
    transaction: int | str | None = msgspec.field(default=None, name="txId")

    @property
    def committed(self) -> int | None:
        """Returns the commit time in microseconds since 1970, if the source records it."""
        if self.ts_us is not None:
            return self.ts_us
        return None if self.ts_ms is None else self.ts_ms * 1000


class RecordHead(msgspec.Struct):
    """The part of a record that identifies it, which is read if the rest cannot be."""

    topic: str
    partition: int
    offset: _OFFSET
    value: Raw
    key: Raw = NULL


class AnyHead(msgspec.Struct):
    """The same of a record that may leave its place to the file, or be a value alone."""

    topic: str | None = None
    partition: int | None = None
    offset: _OFFSET | None = None
    value: Raw = NOTHING


def field(index: int) -> str:
    """The attribute that holds column `index`: a column's own name may be no Python name."""
    return f"c{index}"


def usual_forms(shape: TableSpec) -> tuple[Form, ...]:
    """Returns how values are written if no schema defines it."""
    return tuple(form_of(parse_type(c.type), c.encoding) for c in shape.columns)


def row_type(shape: TableSpec, forms: Sequence[Form]) -> type[Any]:
    """A row as `after` has it: every column that has no value of before, no other, key columns not null."""
    columns = zip(shape.columns, _types(shape, forms), strict=True)
    fields: list[Any] = []
    for i, (c, type_) in enumerate(columns):
        if c.may_lack:
            # Records that were written before the column lack it.
            fields.append((field(i), or_unset(type_), msgspec.field(default=UNSET)))
        else:
            fields.append((field(i), type_ if c.name in shape.key else or_null(type_)))
    names = {field(i): c.name for i, c in enumerate(shape.columns)}
    # What is ignored is skipped by the decoder.
    fields += [(f"ignored{i}", Raw, NOTHING) for i in range(len(shape.ignored))]
    names |= {f"ignored{i}": name for i, name in enumerate(shape.ignored)}
    return msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=True, gc=False, kw_only=True)


def _types(shape: TableSpec, forms: Sequence[Form]) -> list[Any]:
    return [json_type(parse_type(c.type), form) for c, form in zip(shape.columns, forms, strict=True)]


def key_type(shape: TableSpec, forms: Sequence[Form]) -> type[Any]:
    """The configured key columns, as far as a record's key (or its `before`) has them, or a schema beside them."""
    columns = [(i, c, t) for i, (c, t) in enumerate(zip(shape.columns, _types(shape, forms), strict=True))]
    keys = [(i, c, t) for i, c, t in columns if c.name in shape.key]
    fields = [(field(i), or_unset(t), msgspec.field(default=UNSET)) for i, _, t in keys]
    names = {field(i): c.name for i, c, _ in keys}
    wrapper: list[Any] = []
    if "payload" not in names.values():
        wrapper = [("payload", Raw, NOTHING)]
    return msgspec.defstruct("Key", [*fields, *wrapper], rename=names, gc=False)


def envelope_type(shape: TableSpec, forms: Sequence[Form]) -> type[Any]:
    """A Debezium envelope, or the schema and the payload in which one is wrapped."""
    return msgspec.defstruct("Envelope", _envelope(shape, forms), gc=False)


def _envelope(shape: TableSpec, forms: Sequence[Form]) -> list[Any]:
    row, key = row_type(shape, forms), key_type(shape, forms)
    return [
        ("op", str | None, None),
        ("source", SourceBlock | None, None),
        ("after", row | None, None),
        ("before", key | None, None),
        ("schema", Raw, NOTHING),
        ("payload", Raw, NOTHING),
    ]


def record_type(shape: TableSpec, forms: Sequence[Form]) -> type[Any]:
    """One line: a Kafka record with its value, or the value alone."""
    fields = [
        ("topic", str | None, None),
        ("partition", int | None, None),
        ("offset", _OFFSET | None, None),
        ("value", envelope_type(shape, forms) | UnsetType | None, UNSET),
        ("key", key_type(shape, forms) | None, None),
        ("headers", Raw, NOTHING),
        *_envelope(shape, forms),
    ]
    return msgspec.defstruct("Record", fields, gc=False)


def has_aliases(shape: TableSpec, *, of_key: bool = False) -> bool:
    """Whether any column (of the key) has aliases."""
    return any(c.aliases and (c.name in shape.key or not of_key) for c in shape.columns)


def resolve_aliases(shape: TableSpec, names: Collection[str]) -> TableSpec:
    """The table definition with the column names that a record uses. A column's own name wins over its aliases."""
    if not has_aliases(shape):
        return shape
    called = {column.name: _name_among(column, names) for column in shape.columns}
    columns = tuple(replace(column, name=called[column.name]) for column in shape.columns)
    return rename_columns(shape, columns, called)


def own_names(shape: TableSpec, names: Sequence[str]) -> list[str]:
    """The same names, with aliases replaced by the columns' own names."""
    own = {_name_among(column, names): column.name for column in shape.columns}
    return [own.get(name, name) for name in names]


def _name_among(column: Column, names: Collection[str]) -> str:
    name = next((alias for alias in column.aliases if alias in names), column.name)
    return column.name if column.name in names else name
