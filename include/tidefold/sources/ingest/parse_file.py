"""Opens one landed file exactly as it was planned (I6), and parses the new lines of a file of lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import BinaryIO

from tidefold.domain.log_state import TableSpec
from tidefold.sources.api import ParsedFile, RecordReader, SchemaStopError, UnfitFileError
from tidefold.sources.ingest.accounting import LateOffsetError
from tidefold.sources.ingest.change_batches import TableBuilder
from tidefold.sources.ingest.plan import FileTask
from tidefold.sources.landing.folders import Stamp, folder_at, stamp_from, stamp_of
from tidefold.sources.landing.listing import open_landed
from tidefold.sources.landing.problems import (
    report_changed,
    report_damaged,
    report_growing,
    report_late,
    report_truncated,
    report_unopened,
    report_wrong_content,
)
from tidefold.sources.landing.streams import (
    GZIP_MAGIC,
    MAX_LINE,
    Chunk,
    CutShortError,
    DamagedError,
    Fingerprint,
    ShrunkError,
    file_chunks,
)
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.errors import RefusedRecordError


def parse_file(task: FileTask, parse: Callable[[BinaryIO], ParsedFile]) -> ParsedFile:
    """The result of `parse` for the file. Raises UnfitFileError if the file as a whole cannot be taken."""
    file = task.file
    pins = folder_at(file.root).pins
    try:
        with open_landed(file) as stream:
            if not pins:
                _check_stamp(task, stamp_from(os.fstat(stream.fileno())))
            parsed = parse(stream)
        if not pins:
            _check_stamp(task, stamp_of(file.root, file.name))
    except OSError as error:
        raise UnfitFileError(report_unopened(file.name, error)) from error
    except ShrunkError as error:
        raise UnfitFileError(report_changed(file.name, "became shorter while it was taken")) from error
    except CutShortError as error:
        raise UnfitFileError(report_truncated(file.name)) from error
    except DamagedError as error:
        raise UnfitFileError(report_damaged(file.name, str(error))) from error
    except LateOffsetError as error:
        raise UnfitFileError(report_late(file.name, file.partition, error.offset, task.next_offset)) from error
    account, bytes_and_place = parsed.account, (parsed.checksum, task.until, file.start)
    if account.unproved and any((f.checksum, f.length, f.start) == bytes_and_place for f in task.earlier):
        # A file with exactly these bytes was taken and is gone: the records are the same ones.
        account.repeated, account.unproved, account.forgotten = account.repeated + account.unproved, 0, 0
    return parsed


def _check_stamp(task: FileTask, now: Stamp) -> None:
    planned = task.file.stamp
    if not planned.holds(now):
        raise UnfitFileError(report_changed(task.file.name, "was replaced while it was taken"))
    if planned != now and not task.newest:
        # It was planned as complete without reading its end, and was not complete.
        raise UnfitFileError(report_growing(task.file.name))


def read_whole(stream: BinaryIO, task: FileTask, magic: bytes = b"") -> str:
    """The sha256 of a file that can only be taken as a whole and begins with `magic`. Rewinds the stream.

    Raises UnfitFileError.
    """
    content = Fingerprint(stream, task.until)
    check_prefix(content, task)
    for _ in content.blocks():
        pass
    stream.seek(0)
    if stream.read(len(magic)) != magic:
        raise UnfitFileError(report_wrong_content(task.file.name))
    stream.seek(0)
    return content.sha256


def check_prefix(content: Fingerprint, task: FileTask) -> int:
    """Reads the part that was taken before and counts its line ends. Raises UnfitFileError if it changed."""
    if not task.begin:
        return 0
    checksum, lines = content.prefix(task.begin)
    if checksum != task.begin_checksum:
        raise UnfitFileError(
            report_changed(
                task.file.name, f"has other content in the first {task.begin} bytes, which were already ingested"
            )
        )
    return lines


_BATCH_ROWS = 16_384


def parse_lines(
    stream: BinaryIO, task: FileTask, shape: TableSpec, reader: RecordReader, quarantine: QuarantineWriter
) -> ParsedFile:
    """Gives every new line to the reader. Raises errors that `parse_file` turns into UnfitFileError."""
    file = task.file
    if (stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC) != file.gzip:
        raise UnfitFileError(report_wrong_content(file.name))
    stream.seek(0)
    content = Fingerprint(stream, task.until)
    lines_before = check_prefix(content, task)
    if task.from_beginning:
        content.rewind()
        lines_before = 0
    taker = _LineTaker(task, reader, quarantine, lines_before)
    builder = TableBuilder(shape, file.partition)
    begins = task.from_beginning or not task.begin
    for chunk in file_chunks(content.blocks(), gzip=file.gzip, begins=begins):
        taker.take(chunk)
        if len(reader.batch.ops) >= _BATCH_ROWS:
            builder.add(reader.drain_batch())
    builder.add(reader.drain_batch())
    return ParsedFile(reader.account, builder.to_table(), content.sha256)


def read_lines(stream: BinaryIO, until: int, *, gzip: bool) -> Iterator[bytes]:
    """The lines of a file up to a byte, without blank ones."""
    for chunk in file_chunks(Fingerprint(stream, until).blocks(), gzip=gzip):
        yield from (line for line in chunk.lines if line and not line.isspace())


class _LineTaker:
    """Gives lines to the reader, and refused ones to the quarantine."""

    def __init__(self, task: FileTask, reader: RecordReader, quarantine: QuarantineWriter, lines_before: int) -> None:
        self.reader = reader
        self._file = task.file.name
        self._skip = task.records if task.from_beginning else 0
        self._stops = task.stops
        self._left = task.most
        self._line = lines_before
        self._quarantine = quarantine

    def take(self, chunk: Chunk) -> None:
        self.reader.preview_chunk(chunk.data)
        # The decoder skips unused fields unread; they must be valid text too.
        is_text = _is_text(chunk.data)
        for line in chunk.lines:
            self._line += 1
            if not line or line.isspace():
                continue
            if self._skip:
                self._skip -= 1
                continue
            if self._left is not None:
                if not self._left:
                    return
                self._left -= 1
            self.reader.begin()
            self.reader.line = line
            try:
                if chunk.too_long:
                    raise RefusedRecordError("LINE_TOO_LONG", f"The line is longer than {MAX_LINE >> 20} MiB.")
                if not is_text and not _is_text(line):
                    raise RefusedRecordError("BROKEN_JSON", "The line is not UTF-8.")
                self.reader.take(line)
            except RefusedRecordError as refused:
                self._refuse(line, _mark_torn(refused) if chunk.unterminated else refused)

    def _refuse(self, line: bytes, refused: RefusedRecordError) -> None:
        if refused.reason in self._stops:
            raise SchemaStopError(self.reader.account.records - 1, self._line, refused)
        self.reader.refuse(refused.reason)
        self._quarantine.add(self._file, self._line, self.reader.offset, refused, line)


def _mark_torn(refused: RefusedRecordError) -> RefusedRecordError:
    if refused.reason != "BROKEN_JSON":
        return refused
    detail = f"The file ends in the middle of this line, and newer files exist: {refused.detail}"
    return RefusedRecordError("TORN_LINE", detail)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
