"""Decodes rows and keys that are written in given forms, and converts their values to the columns' types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.types import parse_type
from tidefold.sources.records import record_types
from tidefold.sources.records.encodings import Conversion, Form, ScaleError, conversion
from tidefold.sources.records.errors import RefusedRecordError, not_kept
from tidefold.sources.records.unavailable_values import Placeholder
from tidefold.typed_json import make_decoder


class Rows:
    """The decoder of rows of one table definition in given forms."""

    def __init__(self, shape: TableSpec, forms: Sequence[Form], configured: TableSpec | None = None) -> None:
        """`shape`: with the source's column names. `configured`: with the log's own names."""
        self._own = {c.name: own.name for c, own in zip(shape.columns, (configured or shape).columns, strict=True)}
        self.record: Callable[[bytes], Any] = make_decoder(record_types.record_type(shape, forms)).decode
        self.envelope: Callable[[Any], Any] = make_decoder(record_types.envelope_type(shape, forms) | None).decode
        self.key: Callable[[Any], Any] = make_decoder(record_types.key_type(shape, forms) | None).decode
        self._row = record_types.row_type(shape, forms)
        self._before: Callable[[Any], Any] = make_decoder(self._row | None).decode
        self._columns = [(record_types.field(i), c.name) for i, c in enumerate(shape.columns)]
        self._keys = [(field, name) for field, name in self._columns if name in shape.key]
        self._of: Callable[[Any], Any] = attrgetter(*(f for f, _ in self._keys)) if self._keys else lambda row: None
        self.key_of, self.values = self._of, [field for field, name in self._columns if name not in shape.key]
        self._nothing: Mapping[str, None] = dict.fromkeys(field for field, _ in self._columns)
        self._conversions = conversions(shape, forms)
        self._shape = shape
        self._unsent = [(field, name, form.unsent) for (field, name), form in zip(self._columns, forms, strict=True)]
        # Columns that a record may lack: attribute, the log's own name.
        self.optional = [
            (field, self._own[c.name]) for (field, _), c in zip(self._columns, shape.columns, strict=True) if c.may_lack
        ]
        # Whether the schema declares placeholders of its own.
        self.declares = any(form.unsent for form in forms)

    def check_key(self, row: Any, key: Any) -> None:
        """Refuses a row whose key differs from the given one. Parts that are missing or null are not compared."""
        if key is None or self._of(key) == self._of(row):
            return
        for field, _ in self._keys:
            value = getattr(key, field)
            if value is not None and value is not msgspec.UNSET and value != getattr(row, field):
                raise RefusedRecordError("KEY_MISMATCH", "The key of the record differs from the key in `after`.")

    def convert(self, row: Any) -> Any:
        """The row with values of its columns' types."""
        return convert_row(row, self._conversions) if self._conversions else row

    def take_unsent(self, row: Any, placeholder: Placeholder) -> list[str] | None:
        """Sets columns that were not sent to null, and returns their names; None: all were sent."""
        return [self._own[name] for name in take_unsent(row, self._unsent, self._shape, placeholder)] or None

    def of_key(self, key: Any, before: Any) -> Any:
        """A row that has only its key: from the record's key, else from `before`."""
        values = {}
        for field, _ in self._keys:
            fields = [
                v for v in (getattr(key, field, None), getattr(before, field, None)) if v not in (None, msgspec.UNSET)
            ]
            if not fields:
                raise RefusedRecordError("KEY_NULL", "Neither the key of the record nor `before` has the key columns.")
            values[field] = fields[0]
        return self.convert(self._row(**{**self._nothing, **values}))

    def image(self, before: msgspec.Raw) -> Any:
        """The row in a complete `before`."""
        return self.convert(self._before(before))

    def nothing(self) -> Any:
        """A row without any value."""
        return self._row(**self._nothing)


@lru_cache(maxsize=64)
def rows_of(shape: TableSpec, forms: tuple[Form, ...], configured: TableSpec | None = None) -> Rows:
    """A cached decoder: to make one costs as much as to read a hundred records, and small files have few."""
    return Rows(shape, forms, configured)


def take_unsent(
    row: Any, columns: Sequence[tuple[str, str, str]], shape: TableSpec, placeholder: Placeholder
) -> list[str]:
    """Sets columns that were not sent to null, and returns their names.

    columns: attribute, name, and the placeholder that the schema of the column declares.
    Raises RefusedRecordError if the log needs the value, or cannot keep the one that the row had.
    """
    unsent = {name: field for field, name, declared in columns if placeholder.is_in(getattr(row, field), declared)}
    if unsent and (refused := not_kept(list(unsent), shape)):
        raise refused
    for field in unsent.values():
        setattr(row, field, None)
    return list(unsent)


def convert_row(row: Any, by: Sequence[tuple[str, str, Conversion]]) -> Any:
    """Converts the values of a row to the columns' types. Raises RefusedRecordError."""
    for field, name, convert in by:
        value = getattr(row, field, None)
        if value is not None and value is not msgspec.UNSET:
            try:
                setattr(row, field, convert(value))
            except ValueError as error:
                reason = "DECIMAL_SCALE" if isinstance(error, ScaleError) else "VALUE_INVALID"
                raise RefusedRecordError(reason, f"Column `{name}` {error}.") from error
    return row


def conversions(shape: TableSpec, forms: Sequence[Form]) -> list[tuple[str, str, Conversion]]:
    """The conversions of decoded values: attribute, name of the column, conversion."""
    pairs = []
    for index, (column, form) in enumerate(zip(shape.columns, forms, strict=True)):
        convert = conversion(parse_type(column.type), form)
        if convert is not None:
            pairs.append((record_types.field(index), column.name, convert))
    return pairs
