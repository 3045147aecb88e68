"""Parses a landed file of lines, or the part of it that is new, record by record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from tidefold.lifecycle.values import Shape
from tidefold.sources.batches import TableBuilder
from tidefold.sources.parse_file import check_prefix
from tidefold.sources.plan import FileTask
from tidefold.sources.problems import wrong_content
from tidefold.sources.quarantine import QuarantineWriter
from tidefold.sources.reading import GZIP_MAGIC, MAX_LINE, Chunk, Fingerprint, chunks, unzipped, without_bom
from tidefold.sources.refusal import RefusedRecordError
from tidefold.sources.source import ParsedFile, Reader, UnfitFileError

_BATCH_ROWS = 16_384


def parse_lines(
    stream: BinaryIO, task: FileTask, shape: Shape, reader: Reader, quarantine: QuarantineWriter
) -> ParsedFile:
    """Gives every new line to the reader. Raises what `parse_file` makes an UnfitFileError of."""
    file = task.file
    if (stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC) != file.gzip:
        raise UnfitFileError(wrong_content(file.name))
    stream.seek(0)
    content = Fingerprint(stream, task.until)
    lines_before = check_prefix(content, task)
    if task.begin and file.gzip:  # It is read again from its beginning.
        content.rewind()
        lines_before = 0
    taker = _LineTaker(task, reader, quarantine, lines_before)
    builder = TableBuilder(shape, file.partition)
    for chunk in _chunks(content, task):
        taker.take(chunk)
        if len(reader.batch.ops) >= _BATCH_ROWS:
            builder.add(reader.taken_batch())
    builder.add(reader.taken_batch())
    return ParsedFile(reader.account, builder.table(), content.sha256)


def _chunks(content: Fingerprint, task: FileTask) -> Iterator[Chunk]:
    blocks = unzipped(content.blocks()) if task.file.gzip else content.blocks()
    first = task.file.gzip or not task.begin
    for chunk in chunks(blocks):
        yield without_bom(chunk) if first else chunk
        first = False


class _LineTaker:
    """Gives lines to the reader and what it refuses to the quarantine."""

    def __init__(self, task: FileTask, reader: Reader, quarantine: QuarantineWriter, lines_before: int) -> None:
        self.reader = reader
        self._file = task.file.name
        self._skip = task.records if task.file.gzip else 0
        self._line = lines_before
        self._quarantine = quarantine

    def take(self, chunk: Chunk) -> None:
        self.reader.near(chunk.data)
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
                self.reader.take(line)
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
