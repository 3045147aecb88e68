"""Reads a landed file as lines in bounded memory: blocks, gzip, line ends, and the checksum."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
from typing_extensions import Buffer

from tidefold.typed_json import decode_json

BLOCK = 1 << 20
MAX_LINE = 64 << 20
_KEPT_OF_LONG_LINE = 8 << 10
_BOM = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_PACKED = (".gz", ".zst")
_BETWEEN_OBJECTS = re.compile(rb"\}\s*\n\s*\{")


def is_packed_name(name: str) -> bool:
    """Whether the name is that of a compressed file."""
    return name.lower().endswith(_PACKED)


def is_packed(begin: bytes) -> bool:
    """Whether the first bytes are those of a compressed file."""
    return begin.startswith((GZIP_MAGIC, _ZSTD_MAGIC))


class CutShortError(Exception):
    """The input ends before it is complete."""


class ShrunkError(Exception):
    """A file has become shorter than it was when it was planned."""


class DamagedError(Exception):
    """The input is complete but cannot be read."""


class TooLargeError(DamagedError):
    """The input would need more memory than a task has."""


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

    def blocks(self, until: int | None = None) -> Iterator[bytes]:
        """The rest up to `until`; None: that of the file. Raises ShrunkError if the file has become shorter."""
        return self._read(self._until if until is None else until)

    def _read(self, until: int) -> Iterator[bytes]:
        for block in read_blocks(self._stream, until):
            self._hash.update(block)
            yield block

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


def unzip(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The content of a gzip or zstandard file of any number of members, at most BLOCK bytes at a time.

    Raises CutShortError or DamagedError.
    """
    source = io.BufferedReader(Blocks(blocks), BLOCK)
    if not source.peek(1):
        raise CutShortError
    if source.peek(1)[:1] == _ZSTD_MAGIC[:1]:
        yield from _unzip_zstd(source)
        return
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


def _unzip_zstd(source: Any) -> Iterator[bytes]:
    try:
        with pa.CompressedInputStream(source, "zstd") as stream:
            while data := stream.read(BLOCK):
                yield data
    except OSError as error:
        if "Truncated" in str(error):
            raise CutShortError from error
        raise DamagedError(str(error)) from error


def split_document(data: bytes, path: str) -> Iterator[bytes]:
    """Yields the records of JSON documents, each on one line. Raises CutShortError or DamagedError.

    data: an array, an object, or objects one after the other.
    path: of the field with the records, such as `.result.items`; `.`: the documents are the records.
    """
    text = data.removeprefix(_BOM).strip()
    try:
        documents = decode_json(text, list[msgspec.Raw]) if text.startswith(b"[") else list(_split_objects(text))
        for name in path.split(".")[1:]:
            documents = [part for one in documents for part in _list_raws(_find_field(one, name) if name else one)]
    except KeyError as error:
        raise DamagedError(f"its document has no field {error} on the path `{path}` of `record_path`") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        if "truncated" in str(error):
            raise CutShortError from error
        raise DamagedError(f"its JSON cannot be read: {error}") from error
    # A line end within a document is a blank: texts have none.
    return (bytes(one).replace(b"\n", b" ").replace(b"\r", b" ") for one in documents)


def _split_objects(text: bytes) -> Iterator[msgspec.Raw]:
    """Yields objects that stand one after the other, with or without line ends between them."""
    try:
        # No text has a line end, so this is the end of an object.
        yield from decode_json(b"[%s]" % _BETWEEN_OBJECTS.sub(b"},{", text), list[msgspec.Raw])
    except msgspec.DecodeError as error:
        if "truncated" in str(error):
            raise
        scanner, rest = json.JSONDecoder(), text.decode()
        while rest:
            _, end = scanner.raw_decode(rest)
            yield msgspec.Raw(rest[:end].encode())
            rest = rest[end:].lstrip()


def _list_raws(part: msgspec.Raw) -> list[msgspec.Raw]:
    return decode_json(part, list[msgspec.Raw]) if bytes(part).startswith(b"[") else [part]


def _find_field(document: msgspec.Raw, name: str) -> msgspec.Raw:
    return decode_json(document, dict[str, msgspec.Raw])[name]


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


def file_chunks(
    blocks: Iterable[bytes], *, packed: bool, begins: bool = True, record_path: str | None = None
) -> Iterator[Chunk]:
    """The lines of a landed file, without a byte order mark. `begins`: the blocks begin with the file.

    record_path: see `split_document`; None: the file has lines.
    Raises CutShortError or DamagedError for a compressed file or a document that is not complete.
    """
    blocks = unzip(blocks) if packed else blocks
    if record_path:
        yield from chunks(record + b"\n" for record in split_document(_read_document(blocks), record_path))
        return
    for chunk in chunks(blocks):
        yield replace(chunk, data=chunk.data.removeprefix(_BOM)) if begins else chunk
        begins = False


def _read_document(blocks: Iterable[bytes]) -> bytes:
    data = bytearray()
    for block in blocks:
        data += block
        if len(data) > MAX_LINE:
            raise DamagedError(f"its document is longer than {MAX_LINE >> 20} MiB: land its records as lines")
    return bytes(data)


def number_lines(chunks: Iterable[Chunk], number: int = 0) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, each with its number. `number`: of the lines before."""
    for chunk in chunks:
        for line in chunk.lines:
            number += 1
            if line and not line.isspace():
                yield number, line


class Blocks(io.RawIOBase):
    """Blocks of bytes as a stream, for libraries."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._rest = b""

    def line(self, most: int) -> bytes:
        """The next line, with its end. Raises DamagedError when it is longer than `most`."""
        line = self._rest
        while (end := line.find(b"\n")) < 0 and (block := next(self._blocks, b"")):
            line += block
            if len(line) > most:
                raise DamagedError(f"its first line is longer than {most >> 20} MiB")
        end = end + 1 if end >= 0 else len(line)
        self._rest = line[end:]
        return line[:end]

    def peek_line(self, most: int) -> bytes:
        """The next line, which stays. Raises DamagedError when it is longer than `most`."""
        line = self.line(most)
        self._rest = line + self._rest
        return line

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
