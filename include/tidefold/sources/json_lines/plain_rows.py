"""Decodes the rows of plain JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from tidefold.domain.log_state import Column, TableSpec
from tidefold.domain.table.table_spec import Engine
from tidefold.domain.table.types import parse_type
from tidefold.sources.records.encodings import Conversion, Form, form_of, json_type, or_null, or_unset
from tidefold.sources.records.errors import (
    UNDECODABLE,
    RefusedRecordError,
    decode_plain,
    infer_type,
    misread,
    missing_column,
    unknown_column,
)
from tidefold.sources.records.operation_names import explain_operation
from tidefold.sources.records.record_types import field
from tidefold.sources.records.row_decoder import conversions, convert_row, take_unsent
from tidefold.sources.records.stream_order import OrderPoint
from tidefold.sources.records.text_forms import localize
from tidefold.sources.records.unavailable_values import Placeholder
from tidefold.typed_json import make_decoder


class PlainRows:
    """Decodes the rows of one log. `beside`: fields of a row that are not columns."""

    def __init__(
        self,
        shape: TableSpec,
        beside: Sequence[str] = (),
        configured: TableSpec | None = None,
        time_zone: str | None = None,
        *,
        fills: bool = False,
        has_op: bool = False,
    ) -> None:
        """`configured`: the configured table definition; `shape` has the column names of the source.

        fills: whether a field that a row lacks is null.
        has_op: whether something says what a row does.
        """
        self._shape = shape
        self._own = {c.name: own.name for c, own in zip(shape.columns, (configured or shape).columns, strict=True)}
        skipped = dict.fromkeys((*beside, *shape.ignored))
        self._beside = [name for name in skipped if name not in {c.name for c in shape.columns}]
        self._has_op, self._fills, self._partial = has_op, fills, shape.merge.engine is Engine.PARTIAL
        by = shape.column_order
        self._fields = {c.name: field(i) for i, c in enumerate(shape.columns)}
        self._order = [(name, self._fields[name]) for name in by]
        self._needed = {*shape.key, *by}
        forms = [_form(column) for column in shape.columns]
        self._types = {c.name: json_type(parse_type(c.type), f) for c, f in zip(shape.columns, forms, strict=True)}
        self._conversions = conversions(shape, forms)
        if time_zone:
            local = {self._fields[c.name] for c in shape.columns if (c.type, c.encoding) == ("timestamp", "iso")}
            self._conversions = [
                (f, name, partial(_convert_local, convert, time_zone) if f in local else convert)
                for f, name, convert in self._conversions
            ]
        self._decode_row = self._decoder(shape.columns, whole=True)
        self._decode_key = self._decoder([c for c in shape.columns if c.name in self._needed], whole=False)
        self._decode_place = self._decoder([c for c in shape.columns if c.name in by], whole=False)
        self._unsent = [(self._fields[c.name], c.name, "") for c in shape.columns]
        self._row = msgspec.defstruct("Row", [(f, Any, None) for f in self._fields.values()], gc=False)

    def row(self, data: msgspec.Raw, placeholder: Placeholder | None) -> tuple[Any, list[str] | None]:
        """Returns a row with every column, and the columns that it lacks or that were not sent.

        placeholder: of values that were not sent; None: all were sent. Raises RefusedRecordError.
        """
        try:
            row = self._decode_row(data)
        except UNDECODABLE as error:
            raise self._refusal(data, str(error), [c.name for c in self._shape.columns]) from error
        absent = take_unsent(row, self._unsent, self._shape, placeholder) if placeholder else []
        row = convert_row(row, self._conversions)
        if self._partial:
            lacking = [name for name, attribute in self._fields.items() if getattr(row, attribute) is msgspec.UNSET]
            for name in lacking:
                setattr(row, self._fields[name], None)
            absent += lacking
        return row, [self._own[name] for name in absent] or None

    def key(self, data: msgspec.Raw) -> Any:
        """Returns a row with only its key and its order, for a delete. Raises RefusedRecordError."""
        return self._only(self._decode_key, data)

    def place(self, data: msgspec.Raw) -> Any:
        """Returns a row with only its order, for a clear. Raises RefusedRecordError."""
        return self._only(self._decode_place, data)

    def _only(self, decode: Callable[[msgspec.Raw], Any], data: msgspec.Raw) -> Any:
        try:
            key = decode(data)
        except UNDECODABLE as error:
            raise self._refusal(data, str(error), []) from error
        key = convert_row(key, self._conversions)
        return self._row(**{name: getattr(key, name) for name in self._fields.values() if hasattr(key, name)})

    def nothing(self) -> Any:
        """Returns a row without any value, for a clear of everything."""
        return self._row()

    def key_of(self, row: Any) -> tuple[Any, ...]:
        """Returns the key of a row."""
        return tuple(getattr(row, self._fields[name]) for name in self._shape.key)

    def order(self, row: Any) -> OrderPoint:
        """Returns the order of a row, from its order columns."""
        return tuple(getattr(row, attribute) for _, attribute in self._order)

    def _decoder(self, columns: Sequence[Column], *, whole: bool) -> Callable[[bytes | msgspec.Raw], Any]:
        """Returns a decoder of these columns. With `whole`, it refuses rows with other fields."""
        fields: list[Any] = []
        for column in columns:
            attribute, type_ = self._fields[column.name], self._types[column.name]
            if column.name in self._needed:
                fields.append((attribute, type_))
            elif self._fills:
                fields.append((attribute, or_null(type_), None))
            elif self._partial or column.may_lack:
                fields.append((attribute, or_unset(type_), msgspec.UNSET))
            else:
                fields.append((attribute, or_null(type_)))
        names = {self._fields[column.name]: column.name for column in columns}
        # Known fields beside the columns are read elsewhere.
        fields += [(f"beside{i}", msgspec.Raw, msgspec.Raw(b"")) for i in range(len(self._beside))]
        names |= {f"beside{i}": name for i, name in enumerate(self._beside)}
        type_ = msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=whole, gc=False, kw_only=True)
        return make_decoder(type_).decode

    def _refusal(self, data: msgspec.Raw, why: str, columns: Sequence[str]) -> RefusedRecordError:
        row = decode_plain(data)
        if not isinstance(row, dict):
            return RefusedRecordError("NOT_A_RECORD", "The row is not an object.")
        return self._missing(row, columns) or misread(why, row, self._shape)

    def _missing(self, row: Mapping[str, Any], columns: Sequence[str]) -> RefusedRecordError | None:
        expected = {*self._fields, *self._beside}
        unknown = {name: infer_type(value) for name, value in row.items() if columns and name not in expected}
        if unknown and any(name not in row for name in (*self._shape.key, *(name for name, _ in self._order))):
            return self._refuse_unknown(unknown)  # A missing column may have a new name.
        if null := [name for name in self._shape.key if row.get(name) is None]:
            return RefusedRecordError("KEY_NULL", f"Key column {', '.join(null)} is null or missing.")
        if null := [name for name, _ in self._order if row.get(name) is None]:
            return RefusedRecordError("ORDER_MISSING", f"Order column {', '.join(null)} is null or missing.")
        if unknown:
            return self._refuse_unknown(unknown)
        needed = [c.name for c in self._shape.columns if not c.may_lack and c.name in columns]
        if not self._partial and (missing := [name for name in needed if name not in row]):
            types = {c.name: c.type for c in self._shape.columns}
            return missing_column("The row", {name: types[name] for name in missing})
        return None

    def _refuse_unknown(self, types: Mapping[str, str]) -> RefusedRecordError:
        if self._has_op or not (advice := explain_operation(types)):
            return unknown_column("The row", types)
        detail = f"The row has {', '.join(types)[:200]}, which is not configured.{advice}"
        return RefusedRecordError("UNKNOWN_COLUMN", detail)


def _convert_local(convert: Conversion, time_zone: str, text: str) -> Any:
    return convert(localize(text, time_zone))


def _form(column: Column) -> Form:
    """Returns the form of a column: as configured, else decimals as numbers or text, and the rest as Debezium's."""
    type_ = parse_type(column.type)
    usual = "number" if (type_.element or type_).name == "decimal" else ""
    return form_of(type_, column.encoding or usual)
