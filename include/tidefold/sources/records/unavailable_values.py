"""Recognises the placeholders that Debezium writes for values that did not change and were not sent."""

from __future__ import annotations

import base64
import hashlib
import uuid
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.types import parse_type
from tidefold.sources.records.lossless_text import VariableScale

# The parameter of a column's schema in which a connector declares its placeholder.
DECLARED = "__debezium.unavailable.value.placeholder"
_NOTHING = Decimal("NaN")
_EPOCH = datetime(1970, 1, 1)


class Placeholder:
    """One placeholder in all forms that a connector gives it: texts, bytes, maps, arrays with one element or many."""

    def __init__(self, text: str) -> None:
        data = text.encode()
        self._text = text
        self._base64 = {base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()}
        self._hex = {data.hex(), data.hex().upper()}
        # Computed as Java makes a UUID from bytes.
        self._uuid = str(uuid.UUID(bytes=hashlib.md5(data, usedforsecurity=False).digest(), version=3))
        texts = {text, *self._base64, *(one.rstrip("=") for one in self._base64), *self._hex}
        texts.add(f'{{"{text}":"{text}"}}')
        self._scalars: set[str | bytes] = {*texts, *(one.encode() for one in texts)}
        # Arrays of numbers have one element for each byte, which has a sign in Java.
        self._codes = [byte - 256 if byte > 127 else byte for byte in data]

    def is_in(self, value: Any, declared: str = "") -> bool:
        """Whether a value, as decoded from JSON or Arrow, is the placeholder. `declared`: as its schema declares it."""
        value = value.value if isinstance(value, VariableScale) else _decode(value)
        if declared and value is not None and _write(value) == declared:
            return True
        if isinstance(value, str | bytes):
            return value in self._scalars
        if isinstance(value, dict):
            return any(isinstance(one, str) and one in self._scalars for one in value.values())
        return isinstance(value, list) and self._is_array(value)

    def _is_array(self, values: list[Any]) -> bool:
        if len(values) == 1 and isinstance(one := _decode(values[0]), str | bytes):
            return one in self._scalars or one == self._uuid
        if len(values) != len(self._codes):
            return False
        # The digits of a decimal depend on its scale, so all numbers are the same multiple of the bytes.
        numbers = [_number(_decode(value)) for value in values]
        factor = numbers[0] / self._codes[0]
        return bool(factor) and all(n == factor * code for n, code in zip(numbers, self._codes, strict=True))

    def find_rows(self, values: pa.Array) -> list[int]:
        """Returns the numbers of the rows that have the placeholder."""
        type_ = values.type
        if pa.types.is_list(type_) or pa.types.is_large_list(type_):
            lengths = pc.list_value_length(values)
            maybe = pc.is_in(lengths, pa.array([1, len(self._codes)], lengths.type))
            return [row for row in pc.indices_nonzero(maybe).to_pylist() if self.is_in(values[row].as_py())]
        kind = str if pa.types.is_string(type_) or pa.types.is_large_string(type_) else bytes
        if kind is bytes and not (pa.types.is_binary(type_) or pa.types.is_large_binary(type_)):
            return []
        scalars = pa.array([one for one in self._scalars if isinstance(one, kind)], type_)
        rows: list[int] = pc.indices_nonzero(pc.is_in(values, scalars)).to_pylist()
        return rows

    def marks(self, shape: TableSpec) -> tuple[bytes, ...]:
        """Byte patterns: every line with the placeholder contains at least one of them."""
        types = [parse_type(column.type) for column in shape.columns]
        kinds = {(type_.element or type_).name for type_ in types}
        arrays = {type_.element.name for type_ in types if type_.element}
        escaped = not self._text.isascii() or msgspec.json.encode(self._text) != f'"{self._text}"'.encode()
        if escaped or "decimal" in arrays:
            return (b"",)  # It can be written in many ways.
        marks = {self._text, DECLARED}
        if kinds & {"string", "binary", "decimal"}:
            marks |= {one.rstrip("=") for one in self._base64}
        if kinds & {"string", "binary"}:
            marks |= self._hex
        if "string" in arrays:
            marks.add(self._uuid)
        if arrays - {"string", "binary"} or any(column.encoding == "json" for column in shape.columns):
            codes = self._codes[:6]
            marks |= {between.join(f"{code}{end}" for code in codes) for between in (",", ", ") for end in ("", ".0")}
        return tuple(sorted(one.encode() for one in marks))


@lru_cache(maxsize=16)
def placeholder_of(text: str) -> Placeholder:
    """The forms of a configured placeholder."""
    return Placeholder(text)


def _decode(value: Any) -> Any:
    """A raw value, if it can be a placeholder."""
    if not isinstance(value, msgspec.Raw):
        return value
    return msgspec.json.decode(value) if bytes(value)[:1] in (b'"', b"[", b"{") else None


def _number(value: Any) -> Decimal:
    """A number in any of its forms: an unscaled one is a multiple of it."""
    if isinstance(value, VariableScale):
        return _number(value.value).scaleb(-value.scale)
    if isinstance(value, bytes):
        return Decimal(int.from_bytes(value, "big", signed=True))
    if isinstance(value, datetime):
        value = (value.replace(tzinfo=None) - _EPOCH).total_seconds()
    elif isinstance(value, date):
        value = value.toordinal() - _EPOCH.toordinal()
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return _NOTHING
    return number if number.is_finite() else _NOTHING


def _write(value: Any) -> str:
    """A value as a schema declares it: a text as it is, bytes in base64, and JSON of anything else."""
    text = msgspec.json.encode(value).decode()
    return text[1:-1] if isinstance(value, bytes) else value if isinstance(value, str) else text
