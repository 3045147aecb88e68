"""A stream to an object that appears, whole, when the stream is complete."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Protocol

# Objects up to this size are one request. The parts of larger ones have this size.
PART = 16 << 20


class PartUpload(Protocol):
    """An upload in parts. The object is invisible until the upload is completed."""

    def add(self, data: bytes) -> None:
        """Sends the next part."""
        ...

    def complete(self) -> None:
        """Makes the object visible if its name is free."""
        ...

    def abort(self) -> None:
        """Deletes the parts, if the store can."""
        ...


class UploadStream(io.BufferedIOBase):
    """A file that is written front to back: one request if it is small, else parts during the write.

    put: stores all bytes with one conditional request.
    begin: begins an upload in parts.
    """

    def __init__(self, put: Callable[[bytes], None], begin: Callable[[], PartUpload]) -> None:
        super().__init__()
        self._put, self._begin = put, begin
        self._buffer = bytearray()
        self._sent = 0
        self._upload: PartUpload | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._sent + len(self._buffer)

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        self._buffer += view
        while len(self._buffer) >= PART:
            self._send(bytes(self._buffer[:PART]))
        return view.nbytes

    def _send(self, part: bytes) -> None:
        if self._upload is None:
            self._upload = self._begin()
        self._upload.add(part)
        del self._buffer[: len(part)]
        self._sent += len(part)

    def complete(self) -> None:
        """Makes the file visible if its name is free, after everything was written."""
        if self._upload is None:
            self._put(bytes(self._buffer))
            return
        if self._buffer:
            self._send(bytes(self._buffer))
        self._upload.complete()

    def abort(self) -> None:
        """Deletes everything that was written."""
        if self._upload is not None:
            self._upload.abort()
