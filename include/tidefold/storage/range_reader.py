"""A stream over an object whose reads are requests for parts of it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, BinaryIO, cast

# The bytes of one request.
READ = 8 << 20


def open_ranges(load: Callable[[int, int], bytes], size: int) -> BinaryIO:
    """Opens a seekable stream that asks for large ranges.

    load: returns the bytes from a start, at most so many.
    """
    return cast(BinaryIO, io.BufferedReader(RangeReader(load, size), READ))


class RangeReader(io.RawIOBase):
    """Reads ranges of an object. A buffer above it asks for large ones.

    load: returns the bytes from a start, at most so many.
    """

    def __init__(self, load: Callable[[int, int], bytes], size: int) -> None:
        super().__init__()
        self._load, self._size, self._at = load, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        data = self._load(self._at, length)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
