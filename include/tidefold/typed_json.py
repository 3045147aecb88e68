"""The one door to typed JSON, and a pause of Python's search for garbage while many values are made.

msgspec 0.22 describes a class on first use, and publishes the description before it is complete. A second thread that
uses the class meanwhile ends the process with SIGSEGV. So one lock guards each first use.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")
_LOCK = Lock()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


@overload
def make_decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def make_decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def make_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Returns a new decoder, which any thread may use."""
    with _LOCK:
        return msgspec.json.Decoder(kind)


@overload
def decode_json(data: bytes | str | msgspec.Raw, kind: type[T]) -> T: ...
@overload
def decode_json(data: bytes | str | msgspec.Raw, kind: Any) -> Any: ...
def decode_json(data: bytes | str | msgspec.Raw, kind: Any) -> Any:
    """Returns the value of a JSON document.

    kind: a type of the program. Its decoder is kept.
    Raises msgspec.DecodeError, of which msgspec.ValidationError is one.
    """
    return _decoder(kind).decode(data)


@overload
def convert_value(value: Any, kind: type[T]) -> T: ...
@overload
def convert_value(value: Any, kind: Any) -> Any: ...
def convert_value(value: Any, kind: Any) -> Any:
    """Returns plain values as a value of a type. Raises msgspec.ValidationError."""
    _decoder(kind)  # Afterwards the description of the type is complete.
    return msgspec.convert(value, kind)


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = make_decoder(kind)
    return decoder


@contextmanager
def pause_collection() -> Iterator[None]:
    """Without it Python searches again and again: half of the time of a large import or of a long list."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
