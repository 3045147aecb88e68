"""Recognises the placeholders that Debezium writes for values that did not change and were not sent."""

from __future__ import annotations

import base64
import hashlib
import uuid
from typing import Any

import msgspec

from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.types import parse_type

PLACEHOLDER = "__debezium_unavailable_value"
_BYTES = PLACEHOLDER.encode()
_BASE64, _HEX = base64.b64encode(_BYTES).decode(), _BYTES.hex()
# Computed as Java makes a UUID from bytes.
_UUID = str(uuid.UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3))
_CODES = list(_BYTES)
_HSTORE = f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}'

_TEXTS = frozenset((PLACEHOLDER, _BASE64, _BASE64.rstrip("="), _HEX, _HEX.upper(), _HSTORE, _BYTES))
_LISTS = ([PLACEHOLDER], [_UUID], [_BASE64], [_HEX], [_BYTES], _CODES)


def is_unavailable(value: Any) -> bool:
    """Whether a value, as decoded from JSON, is a placeholder."""
    if isinstance(value, list) and value and isinstance(value[0], msgspec.Raw):
        value = [_decode(one) for one in value[:2]]
    value = _decode(value) if isinstance(value, msgspec.Raw) else value
    if isinstance(value, dict):
        return any(isinstance(one, str) and one in _TEXTS for one in value.values())
    return value in _LISTS if isinstance(value, list) else isinstance(value, str | bytes) and value in _TEXTS


def _decode(value: msgspec.Raw) -> Any:
    """A raw value, if it can be a placeholder."""
    return msgspec.json.decode(value) if bytes(value)[:1] in (b'"', b"[", b"{") else None


def marks(shape: TableSpec) -> tuple[bytes, ...]:
    """Byte patterns: every line with a placeholder contains at least one of them."""
    types = [parse_type(column.type) for column in shape.columns]
    kinds = {type_.element.name if type_.element else type_.name for type_ in types}
    kinds |= {f"array<{type_.element.name}>" for type_ in types if type_.element}
    found = {_BYTES}
    if kinds & {"string", "binary", "decimal"}:
        found.add(_BASE64.rstrip("=").encode())
    if "binary" in kinds:
        found |= {_HEX.encode(), _HEX.upper().encode()}
    if "array<string>" in kinds:
        found.add(_UUID.encode())
    if kinds & {"array<int>", "array<long>"}:
        found |= {b",".join(b"%d" % code for code in _CODES[:6]), b", ".join(b"%d" % code for code in _CODES[:6])}
    return tuple(sorted(found))
