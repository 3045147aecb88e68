"""The forms of stored documents. Each document has the number of its form, and a newer one is refused by name."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from tidefold.domain.paths import FIRST_FORMAT, STORED_FORMAT
from tidefold.errors import CorruptError
from tidefold.typed_json import decode_json

T = TypeVar("T")
# What a whole document of the same format has, but not for this program.
_NEWER = re.compile("unknown field|Invalid (enum )?value")


class _Formatted(msgspec.Struct, frozen=True):
    """The part of a document that says which form it has."""

    format: int = 0


def encode_form(value: Any) -> bytes:
    """Returns a value, which has fields, as a document with the number of its form."""
    return b'{"format":%d,%b' % (STORED_FORMAT, msgspec.json.encode(value)[1:])


def decode_form(path: str, data: bytes, kind: type[T], damaged: str = "UNREADABLE") -> T:
    """Decodes a document that has the number of its form. Raises CorruptError.

    damaged: the code of its error if the bytes are not such a document.
    """
    require_form(path, decode(path, data, _Formatted, damaged).format)
    return decode(path, data, kind, damaged)


def decode(path: str, data: bytes, kind: type[T], damaged: str = "UNREADABLE") -> T:
    """Decodes a document whose form another one says. Raises CorruptError."""
    try:
        return decode_json(data, kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if isinstance(error, msgspec.ValidationError) and _NEWER.search(str(error)):
            raise CorruptError("STORE_NEWER", f"`{path}` was written by a newer tidefold: {error}.") from error
        raise CorruptError(damaged, f"`{path}` cannot be read: {error}.") from error


def require_form(path: str, number: int, first: int = FIRST_FORMAT, newest: int = STORED_FORMAT) -> None:
    """Raises CorruptError unless this version reads the form of this number."""
    if number > newest:
        message = f"`{path}` was written by a newer tidefold: its format is {number}, this one reads {newest}."
        raise CorruptError("STORE_NEWER", message)
    if number < first:
        message = f"`{path}` cannot be read: no released version wrote its format {number}."
        raise CorruptError("UNREADABLE", message, hint="Land the files again, for a new store." if number else None)
