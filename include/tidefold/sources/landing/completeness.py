"""Finds how much of the newest file of a partition is complete; the rest may still be written.

A CSV file is complete up to the last line end outside quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from tidefold.sources.landing import problems, streams
from tidefold.sources.landing.listing import LandedFile, open_landed
from tidefold.sources.landing.problems import FileProblem

_FEW = 64
_PARQUET = b"PAR1"
_END = b"\n"


@dataclass(frozen=True, slots=True)
class Ending:
    """How much of a file can be taken.

    complete: the first bytes that can be taken.
    torn: the file has more, which is not complete yet.
    problem: why the file cannot be read.
    quote: the first line from which on a quote may be that nothing closes; 0: every quote is closed.
    """

    complete: int
    torn: bool = False
    problem: FileProblem | None = None
    quote: int = 0


def ending_of(file: LandedFile, taken: int = 0) -> Ending:
    """The ending of a file of lines. `taken`: bytes that were taken before."""
    if file.packed or file.record_path:
        return inspect_file(file, lambda stream: _whole_ending(stream, file))
    return inspect_file(file, lambda stream: _plain_ending(stream, file.size, taken))


def inspect_file(file: LandedFile, look: Callable[[BinaryIO], Ending]) -> Ending:
    """The result of `look` for the open file; a problem if it is gone or cannot be read."""
    try:
        with open_landed(file) as stream:
            return look(stream)
    except OSError as error:
        return Ending(0, problem=problems.report_unopened(file.name, error))


def _plain_ending(stream: BinaryIO, size: int, taken: int) -> Ending:
    line = _last_line_start(stream, size, taken)
    if size - line > streams.MAX_LINE:
        return Ending(line, torn=True)
    stream.seek(line)
    rest = stream.read(size - line)
    if not rest.strip():
        return Ending(taken if _is_blank(stream, taken, line) else line)
    # A record is an object, so its last brace shows that it is complete, with or without a line end.
    return Ending(size) if _is_object(rest) else Ending(line, torn=True)


def _is_blank(stream: BinaryIO, begin: int, end: int) -> bool:
    """Whether only line ends follow: those of a line that was taken before it had one."""
    if end - begin > _FEW:
        return False
    stream.seek(begin)
    return not stream.read(end - begin).strip()


def _last_line_start(stream: BinaryIO, size: int, taken: int) -> int:
    position = size
    while position > taken:
        begin = max(taken, position - streams.BLOCK)
        stream.seek(begin)
        index = stream.read(position - begin).rfind(b"\n")
        if index >= 0:
            return begin + index + 1
        position = begin
    return taken


def find_torn(stream: BinaryIO, length: int) -> int | None:
    """Where the last line of the first `length` bytes begins if it was refused as torn; None: it is whole."""
    stream.seek(length - 1)
    if stream.read(1) == _END:
        return None
    begin = _last_line_start(stream, length, 0)
    stream.seek(begin)
    text = stream.read(min(length - begin, streams.MAX_LINE))
    return begin if text.strip() and not _is_object(text) else None


def read_completed(stream: BinaryIO, length: int) -> bytes | None:
    """Returns the line that was torn after `length` bytes; None: it is no whole record yet."""
    if (begin := find_torn(stream, length)) is None:
        return None
    stream.seek(begin)
    text = stream.readline(streams.MAX_LINE).rstrip(b"\r\n")
    return text if _is_object(text) else None


def skip_torn(stream: BinaryIO, length: int) -> int:
    """Where the first record behind `length` taken bytes begins. The rest of a torn line is none. Rewinds the stream.

    `quarantine retry` reads the completed line.
    """
    if length and find_torn(stream, length) is not None:
        stream.seek(length)
        length += len(stream.readline())
    stream.seek(0)
    return length


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except msgspec.ValidationError:
        return True  # Well formed, but with a number that fits no type: the parser reports it.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _whole_ending(stream: BinaryIO, file: LandedFile) -> Ending:
    if not begins_as_named(stream, file):
        return Ending(0, problem=problems.report_wrong_content(file.name))
    blocks = streams.Fingerprint(stream, file.size).blocks()
    try:
        # Of compressed lines only the compression is checked.
        document = (
            streams.file_chunks(blocks, packed=file.packed, record_path=file.record_path) if file.record_path else None
        )
        for _ in document or streams.unzip(blocks):
            pass
    except (streams.CutShortError, streams.ShrunkError):
        return Ending(0, torn=True)
    except streams.DamagedError as error:
        return Ending(0, problem=problems.report_damaged(file.name, str(error)))
    return Ending(file.size)


def csv_ending(file: LandedFile, quote: bytes = b'"', escape: bytes = b"") -> Ending:
    """The ending of a CSV file. A last line without its end is still being written. A packed file is complete or not.

    quote: the character around values with line ends; empty: there are none.
    escape: the character before a quote or line end that belongs to a value; empty: none.
    """

    def look(stream: BinaryIO) -> Ending:
        if file.size and not begins_as_named(stream, file):
            return Ending(0, problem=problems.report_wrong_content(file.name, stream.read(len(_PARQUET))))
        return _whole_ending(stream, file) if file.packed else _ending(stream, file.size, quote, escape)

    return inspect_file(file, look)


def begins_as_named(stream: BinaryIO, file: LandedFile) -> bool:
    """Whether the first bytes match the name: packed only with such a name, and not Parquet. Rewinds the stream."""
    begin = stream.read(len(_PARQUET))
    stream.seek(0)
    if file.packed and len(begin) < len(streams.GZIP_MAGIC):
        return True
    return streams.is_packed(begin) == file.packed and begin != _PARQUET and not problems.explain_foreign(begin)


def _ending(stream: BinaryIO, size: int, quote: bytes, escape: bytes) -> Ending:
    complete, within, rest, position, escaped = 0, False, False, 0, False
    while position < size and (block := stream.read(min(streams.BLOCK, size - position))):
        if escape:
            block = _mask_escaped(block, escape, escaped)
            escaped = block.endswith(escape)
        end = _last_end(block, within, quote)
        rest = bool(block[end + 1 :].strip()) or (rest and end < 0)
        complete = position + end + 1 if end >= 0 else complete
        within ^= _count(block, quote) % 2 == 1
        position += len(block)
    return Ending(complete, torn=rest, quote=_count_lines(stream, complete) + 1 if within else 0)


def _count_lines(stream: BinaryIO, size: int) -> int:
    stream.seek(0)
    return sum(stream.read(min(streams.BLOCK, size - begin)).count(_END) for begin in range(0, size, streams.BLOCK))


def _mask_escaped(block: bytes, escape: bytes, first: bool) -> bytes:
    """The block with escaped characters masked. `first`: the character before the block escapes its first one."""
    block = b"." + block[1:] if first else block
    return re.sub(re.escape(escape) + b".", b"..", block, flags=re.DOTALL)


def _last_end(block: bytes, within: bool, quote: bytes) -> int:
    """The last line end of a block outside quotes. `within`: the block begins within quotes."""
    end, quoted = len(block), (within + _count(block, quote)) % 2 == 1
    while True:
        begin = block.rfind(quote, 0, end) if quote else -1
        if not quoted and (index := block.rfind(_END, begin + 1, end)) >= 0:
            return index
        if begin < 0:
            return -1
        end, quoted = begin, not quoted


def _count(block: bytes, quote: bytes) -> int:
    return block.count(quote) if quote else 0
