"""Reads a landed file as lines in bounded memory: blocks, gzip, line ends, and the checksum."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

from typing_extensions import Buffer

BLOCK = 1 << 20
MAX_LINE = 64 << 20
_KEPT_OF_LONG_LINE = 8 << 10
_BOM = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"


class CutShortError(Exception):
    """The input ends before it is complete."""


class ShrunkError(Exception):
    """A file has become shorter than it was when it was planned."""


class DamagedError(Exception):
    """The input is complete but cannot be read."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some whole lines without their line ends.

    unterminated: the last line is the end of the file and has no line end.
    too_long: the chunk has only the beginning of one line that is longer than MAX_LINE.
    """

    data: bytes
    unterminated: bool = False
    too_long: bool = False

    @property
    def lines(self) -> list[bytes]:
        return self.data.split(b"\n")


def read_blocks(stream: BinaryIO, until: int) -> Iterator[bytes]:
    """Yields the rest of a stream up to byte `until`. Raises ShrunkError if the file has become shorter."""
    position = stream.tell()
    while position < until:
        block = stream.read(min(BLOCK, until - position))
        if not block:
            raise ShrunkError
        position += len(block)
        yield block


class Fingerprint:
    """Reads a stream up to byte `until` and computes the sha256 of what it read."""

    def __init__(self, stream: BinaryIO, until: int) -> None:
        self._stream = stream
        self._until = until
        self._hash = hashlib.sha256()

    def prefix(self, length: int) -> tuple[str, int]:
        """Reads `length` bytes and returns their sha256 and number of line ends."""
        line_ends = sum(block.count(b"\n") for block in self._read(length))
        return self._hash.hexdigest(), line_ends

    def rewind(self) -> None:
        self._stream.seek(0)
        self._hash = hashlib.sha256()

    def blocks(self) -> Iterator[bytes]:
        """The rest up to `until`. Raises ShrunkError if the file has become shorter."""
        return self._read(self._until)

    def _read(self, until: int) -> Iterator[bytes]:
        for block in read_blocks(self._stream, until):
            self._hash.update(block)
            yield block

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


def unzip(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The content of a gzip file of any number of members, at most BLOCK bytes at a time.

    Raises CutShortError or DamagedError.
    """
    source = io.BufferedReader(Blocks(blocks), BLOCK)
    if not source.peek(1):
        raise CutShortError
    try:
        with gzip.GzipFile(fileobj=source) as stream:
            while data := stream.read1(BLOCK):  # Also what comes before a damaged byte.
                yield data
    except EOFError as error:
        raise CutShortError from error
    except (gzip.BadGzipFile, zlib.error) as error:
        # The library says the same of a member whose first byte is the file's last one.
        if str(error) == f"Not a gzipped file ({GZIP_MAGIC[:1]!r})":
            raise CutShortError from error
        raise DamagedError(str(error)) from error


def chunks(blocks: Iterable[bytes], max_line: int = MAX_LINE) -> Iterator[Chunk]:
    """Yields whole lines from blocks, none longer than `max_line`."""
    held = _Held(max_line)
    for block in blocks:
        first, last = block.find(b"\n"), block.rfind(b"\n")
        if first < 0:
            held.add(block)
            continue
        if held.size + first > max_line:
            held.add(block[:first])
            yield Chunk(held.take(), too_long=True)
            if last > first:
                yield Chunk(block[first + 1 : last])
        else:
            yield Chunk(held.take() + block[:last])
        held.add(block[last + 1 :])
    if held.size:
        too_long = held.size > max_line
        yield Chunk(held.take(), unterminated=True, too_long=too_long)


class _Held:
    """The beginning of a line whose end is not read yet; only a sample of a line that is too long."""

    def __init__(self, max_line: int) -> None:
        self.size = 0
        self._max_line = max_line
        self._parts: list[bytes] = []

    def add(self, part: bytes) -> None:
        self.size += len(part)
        if self.size <= self._max_line:
            self._parts.append(part)
        else:
            self._parts = [b"".join([*self._parts, part])[:_KEPT_OF_LONG_LINE]]

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self.size, self._parts = 0, []
        return data


def file_chunks(blocks: Iterable[bytes], *, gzip: bool, begins: bool = True) -> Iterator[Chunk]:
    """The lines of a landed file, without a byte order mark. `begins`: the blocks begin with the file.

    Raises CutShortError or DamagedError for a gzip file that is not complete.
    """
    for chunk in chunks(unzip(blocks) if gzip else blocks):
        yield replace(chunk, data=chunk.data.removeprefix(_BOM)) if begins else chunk
        begins = False


class Blocks(io.RawIOBase):
    """Blocks of bytes as a stream, for libraries."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._rest = b""

    def line(self, most: int) -> bytes:
        """The next line, with its end. Raises DamagedError when it is longer than `most`."""
        found = self._rest
        while (end := found.find(b"\n")) < 0 and (block := next(self._blocks, b"")):
            found += block
            if len(found) > most:
                raise DamagedError(f"its first line is longer than {most >> 20} MiB")
        end = end + 1 if end >= 0 else len(found)
        self._rest = found[end:]
        return found[:end]

    @property
    def has_more(self) -> bool:
        """Whether anything is left."""
        self._rest = self._rest or next(self._blocks, b"")
        return bool(self._rest)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        if not self._rest:
            self._rest = next(self._blocks, b"")
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
