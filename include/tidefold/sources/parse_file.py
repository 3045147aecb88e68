"""Parses one landed file, or the part of it that is new, exactly as it was planned (I6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from tidefold.lifecycle.values import Shape
from tidefold.sources.batches import TableBuilder
from tidefold.sources.debezium import Account, LateOffsetError, Place, RecordReader
from tidefold.sources.landed import stamp_of
from tidefold.sources.plan import FileTask
from tidefold.sources.problems import (
    Problem,
    changed,
    damaged,
    gone,
    growing,
    late,
    truncated,
    unreadable,
    wrong_content,
)
from tidefold.sources.quarantine import QuarantineWriter
from tidefold.sources.reading import (
    GZIP_MAGIC,
    MAX_LINE,
    Chunk,
    CutShortError,
    DamagedError,
    Fingerprint,
    ShrunkError,
    chunks,
    unzipped,
    without_bom,
)
from tidefold.sources.refusal import PLACEHOLDER, RefusedRecordError

_BATCH_ROWS = 16_384


class UnfitFileError(Exception):
    """Nothing is taken of this file."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """What a file holds: its account, its changes (None: it has none), the sha256 of its bytes up to `until`."""

    account: Account
    table: pa.Table | None
    checksum: str


def parse_file(task: FileTask, shape: Shape, quarantine: QuarantineWriter) -> ParsedFile:
    """Raises UnfitFileError when the file is not the one that was planned, or cannot be taken as a whole."""
    file = task.file
    try:
        _check_stamp(task)
        with open(file.path, "rb") as stream:
            parsed = _parse(stream, task, shape, quarantine)
        _check_stamp(task)
    except FileNotFoundError as error:
        raise UnfitFileError(gone(file.name)) from error
    except OSError as error:
        raise UnfitFileError(unreadable(file.name, str(error.strerror or error))) from error
    except ShrunkError as error:
        raise UnfitFileError(changed(file.name, "became shorter while it was taken")) from error
    except CutShortError as error:
        raise UnfitFileError(truncated(file.name)) from error
    except DamagedError as error:
        raise UnfitFileError(damaged(file.name, str(error))) from error
    except LateOffsetError as error:
        raise UnfitFileError(late(file.name, error.offset, task.next_offset)) from error
    return parsed


def _check_stamp(task: FileTask) -> None:
    planned, now = task.file.stamp, stamp_of(task.file.path)
    if not planned.holds(now):
        raise UnfitFileError(changed(task.file.name, "was replaced while it was taken"))
    if planned != now and not task.newest:
        # Its end was not looked at: it was planned as complete, and was not.
        raise UnfitFileError(growing(task.file.name))


def _parse(stream: BinaryIO, task: FileTask, shape: Shape, quarantine: QuarantineWriter) -> ParsedFile:
    file = task.file
    if (stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC) != file.gzip:
        raise UnfitFileError(wrong_content(file.name))
    stream.seek(0)
    content = Fingerprint(stream, task.until)
    lines_before = _check_prefix(content, task)
    place = Place(file.topic, file.partition, file.start, task.next_offset, task.taken, task.high)
    taker = _LineTaker(task, RecordReader(shape, place), quarantine, lines_before)
    builder = TableBuilder(shape, file.partition)
    for chunk in _chunks(content, task):
        taker.take(chunk)
        if len(taker.reader.batch.ops) >= _BATCH_ROWS:
            builder.add(taker.reader.taken_batch())
    builder.add(taker.reader.taken_batch())
    return ParsedFile(taker.reader.account, builder.table(), content.sha256)


def _check_prefix(content: Fingerprint, task: FileTask) -> int:
    """Answers how many lines come before the new part; a gzip file is read again from its beginning."""
    if not task.begin:
        return 0
    checksum, lines = content.prefix(task.begin)
    if checksum != task.begin_checksum:
        raise UnfitFileError(changed(task.file.name, f"has other bytes than the {task.begin} that were taken of it"))
    if task.file.gzip:
        content.rewind()
        return 0
    return lines


def _chunks(content: Fingerprint, task: FileTask) -> Iterator[Chunk]:
    blocks = unzipped(content.blocks()) if task.file.gzip else content.blocks()
    first = task.file.gzip or not task.begin
    for chunk in chunks(blocks):
        yield without_bom(chunk) if first else chunk
        first = False


class _LineTaker:
    """Gives lines to the reader and what it refuses to the quarantine."""

    def __init__(self, task: FileTask, reader: RecordReader, quarantine: QuarantineWriter, lines_before: int) -> None:
        self.reader = reader
        self._file = task.file.name
        self._skip = task.skip
        self._line = lines_before
        self._quarantine = quarantine

    def take(self, chunk: Chunk) -> None:
        placeholder = PLACEHOLDER.encode() in chunk.data
        # Fields that are not used are skipped unread; the text must be text all the same.
        is_text = _is_text(chunk.data)
        for line in chunk.lines:
            self._line += 1
            if not line or line.isspace():
                continue
            if self._skip:
                self._skip -= 1
                continue
            self.reader.begin()
            try:
                if chunk.too_long:
                    raise RefusedRecordError("LINE_TOO_LONG", f"The line is longer than {MAX_LINE >> 20} MiB.")
                if not is_text and not _is_text(line):
                    raise RefusedRecordError("BROKEN_JSON", "The line is not UTF-8.")
                self.reader.take(line, placeholder=placeholder)
            except RefusedRecordError as refused:
                self._refuse(line, _torn(refused) if chunk.unterminated else refused)

    def _refuse(self, line: bytes, refused: RefusedRecordError) -> None:
        self.reader.refuse(refused.reason)
        self._quarantine.add(self._file, self._line, self.reader.offset, refused, line)


def _torn(refused: RefusedRecordError) -> RefusedRecordError:
    if refused.reason != "BROKEN_JSON":
        return refused
    return RefusedRecordError(
        "TORN_LINE", f"The file ends within this line, and newer files are there: {refused.detail}"
    )


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
