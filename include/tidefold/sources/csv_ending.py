"""How far a CSV file is complete: up to the last line end that is not within quotes."""

from __future__ import annotations

from typing import BinaryIO

from tidefold.sources.ending import Ending, ending_of, looked_at
from tidefold.sources.landed import LandedFile
from tidefold.sources.problems import wrong_content
from tidefold.sources.reading import BLOCK, GZIP_MAGIC

_PARQUET = b"PAR1"
_QUOTE, _END = b'"', b"\n"


def csv_ending(file: LandedFile) -> Ending:
    """A last line without a line end is still being written; of a gzip file all is complete, or nothing."""

    def look(stream: BinaryIO) -> Ending:
        if file.size and not begins_as_named(stream, file):
            return Ending(0, problem=wrong_content(file.name))
        return ending_of(file) if file.gzip else _ending(stream, file.size)

    return looked_at(file, look)


def begins_as_named(stream: BinaryIO, file: LandedFile) -> bool:
    """Whether a file is zipped if it is called so, and no Parquet file; the stream stands at its beginning then."""
    begin = stream.read(len(_PARQUET))
    stream.seek(0)
    if file.gzip and len(begin) < len(GZIP_MAGIC):
        return True
    return begin.startswith(GZIP_MAGIC) == file.gzip and begin != _PARQUET


def _ending(stream: BinaryIO, size: int) -> Ending:
    complete, within, rest, position = 0, False, False, 0
    while position < size and (block := stream.read(min(BLOCK, size - position))):
        end = _last_end(block, within)
        rest = bool(block[end + 1 :].strip()) or (rest and end < 0)
        complete = position + end + 1 if end >= 0 else complete
        within ^= block.count(_QUOTE) % 2 == 1
        position += len(block)
    return Ending(complete, torn=rest)


def _last_end(block: bytes, within: bool) -> int:
    """The last line end of a block that is not within quotes; `within`: it begins within them."""
    end = len(block)
    while (end := block.rfind(_END, 0, end)) >= 0:
        if (within + block.count(_QUOTE, 0, end)) % 2 == 0:
            return end
    return -1
