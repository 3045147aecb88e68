"""Reads the metadata of one Arrow message, a flatbuffer: whether its body is compressed."""

from __future__ import annotations

import struct

_RECORD_BATCH = 3  # In the header union of an Arrow message.


def is_compressed(message: bytes) -> bool:
    """Whether an Arrow message is a record batch with a compressed body, as its metadata (a flatbuffer) says."""
    root = 8 + _number("<I", message, 8)
    header = _find_field(message, root, 2)
    if _number("<B", message, _find_field(message, root, 1)) != _RECORD_BATCH:
        return False
    return _find_field(message, header + _number("<I", message, header), 3) > 0


def _find_field(message: bytes, table: int, field: int) -> int:
    """Returns the position of a field of a flatbuffer's table; 0: the table does not have it."""
    offsets = table - _number("<i", message, table)
    slot = 4 + 2 * field
    offset = _number("<H", message, offsets + slot) if slot < _number("<H", message, offsets) else 0
    return table + offset if offset else 0


def _number(form: str, message: bytes, position: int) -> int:
    number: int = struct.unpack_from(form, message, position)[0]
    return number
