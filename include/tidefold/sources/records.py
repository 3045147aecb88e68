"""The types that a line of a log decodes into: strict, made from the log's shape, with no coercion anywhere.

A column of an unknown name, of another type or out of range makes the decoder refuse the line; `refusal` then says why.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tidefold.lifecycle.values import Shape

INT64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# Debezium writes what JSON has no number for as a text.
_NO_NUMBER = Literal["NaN", "Infinity", "-Infinity"]
_FLOAT32_MAX = 3.4028234663852886e38

# Dates (days) and timestamps (microseconds) since 1970, of the years 1 to 9999: what every reader can show. Values in
# another unit mostly lie outside.
COLUMN_TYPES: dict[str, Any] = {
    "boolean": bool,
    "int": Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)],
    "long": INT64,
    "float": Annotated[float, Meta(ge=-_FLOAT32_MAX, le=_FLOAT32_MAX)] | _NO_NUMBER,
    "double": float | _NO_NUMBER,
    "string": str,
    "date": Annotated[int, Meta(ge=-719_162, le=2_932_896)],
    "timestamp": Annotated[int, Meta(ge=-62_135_596_800_000_000, le=253_402_300_799_999_999)],
}


class Source(msgspec.Struct, gc=False):
    """What is used of Debezium's `source` block."""

    sequence: str | None = None
    snapshot: str | bool | None = None
    ts_us: INT64 | None = None
    ts_ms: Annotated[int, Meta(ge=-(2**53), le=2**53)] | None = None

    @property
    def committed(self) -> int | None:
        """Commit time in microseconds since 1970, as far as the source says it."""
        if self.ts_us is not None:
            return self.ts_us
        return None if self.ts_ms is None else self.ts_ms * 1000


class Head(msgspec.Struct):
    """The part of a record that says which one it is; read when the rest cannot be."""

    topic: str
    partition: int
    offset: Annotated[int, Meta(ge=0, le=2**63 - 2)]
    value: msgspec.Raw
    key: msgspec.Raw = msgspec.Raw(b"null")


def field(index: int) -> str:
    """The attribute that holds column `index`: a column's own name may be no Python name."""
    return f"c{index}"


def row_type(shape: Shape) -> type[Any]:
    """A row as `after` has it: every column, no other, key columns not null."""
    fields = [
        (field(i), COLUMN_TYPES[c.type] if c.name in shape.key else COLUMN_TYPES[c.type] | None)
        for i, c in enumerate(shape.columns)
    ]
    names = {field(i): c.name for i, c in enumerate(shape.columns)}
    return msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=True, gc=False)


def key_type(shape: Shape) -> type[Any]:
    """The configured key columns, as far as a record's key (or its `before`) has them."""
    columns = [(i, c) for i, c in enumerate(shape.columns) if c.name in shape.key]
    fields = [
        (field(i), COLUMN_TYPES[c.type] | msgspec.UnsetType | None, msgspec.field(default=msgspec.UNSET))
        for i, c in columns
    ]
    return msgspec.defstruct("Key", fields, rename={field(i): c.name for i, c in columns}, gc=False)


def record_type(shape: Shape) -> type[Any]:
    """One line: a Kafka record whose value is a Debezium envelope without schema."""
    row, key = row_type(shape), key_type(shape)
    envelope = msgspec.defstruct(
        "Envelope",
        [("op", str), ("source", Source), ("after", row | None, None), ("before", key | None, None)],
        gc=False,
    )
    return msgspec.defstruct(
        "Record",
        [
            ("topic", str),
            ("partition", int),
            ("offset", Annotated[int, Meta(ge=0, le=2**63 - 2)]),
            ("value", envelope | None),
            ("key", key | None, None),
        ],
        gc=False,
    )
