"""Opens one landed file exactly as it was planned (I6), and parses the new lines of a file of lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.domain.log_state import TableSpec
from tidefold.sources.api import ParsedFile, RecordReader, SchemaStopError, UnfitFileError
from tidefold.sources.landing import problems, streams
from tidefold.sources.landing.completeness import begins_as_named, skip_torn
from tidefold.sources.landing.folders import folder_at
from tidefold.sources.landing.landing_place import Stamp, UnpinnedPlace
from tidefold.sources.landing.listing import open_landed
from tidefold.sources.landing.plan import FileTask
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.accounting import LateOffsetError, ReaderPosition
from tidefold.sources.records.change_batches import TableBuilder
from tidefold.sources.records.errors import RefusedRecordError, is_awaiting

_MAGIC = 4
# The records that become one batch: their number, and the bytes of their text.
_BATCH_ROWS, BATCH_BYTES = 16_384, 64 << 20
# A part begins with one of so many lines; so many bytes show whether a record begins with it.
_TRIES, _NEAR = 64, 64 << 10
# A record of a file: its number, its text, why it is refused unread, and whether the file ends within it.
RecordText = tuple[int, bytes, RefusedRecordError | None, bool]


def parse_file(task: FileTask, parse: Callable[[BinaryIO], ParsedFile]) -> ParsedFile:
    """The result of `parse` for the file. Raises UnfitFileError if the file as a whole cannot be taken."""
    file = task.file
    place = folder_at(file.root)
    unpinned = None if place.pins else cast(UnpinnedPlace, place)
    try:
        with open_landed(file) as stream:
            if unpinned:
                _check_stamp(task, unpinned.find_stamp(file.name, stream))
            parsed = parse(stream)
        if unpinned:
            _check_stamp(task, unpinned.find_stamp(file.name))
    except OSError as error:
        raise UnfitFileError(problems.report_unopened(file.name, error)) from error
    except streams.ShrunkError as error:
        raise UnfitFileError(problems.report_changed(file.name, "became shorter while it was taken")) from error
    except streams.CutShortError as error:
        raise UnfitFileError(problems.report_truncated(file.name)) from error
    except streams.DamagedError as error:
        report = problems.report_too_large if isinstance(error, streams.TooLargeError) else problems.report_damaged
        raise UnfitFileError(report(file.name, str(error))) from error
    except LateOffsetError as error:
        raise UnfitFileError(problems.report_late(file.name, file.partition, error.offset, task.next_offset)) from error
    account, bytes_and_place = parsed.account, (parsed.checksum, task.until, file.start)
    if account.unproved and any((f.checksum, f.length, f.start) == bytes_and_place for f in task.earlier):
        # A file with exactly these bytes was taken and is gone: the records are the same ones.
        account.repeated, account.unproved, account.forgotten = account.repeated + account.unproved, 0, 0
    return parsed


def _check_stamp(task: FileTask, now: Stamp) -> None:
    planned = task.file.stamp
    if not planned.holds(now):
        raise UnfitFileError(problems.report_changed(task.file.name, "was replaced while it was taken"))
    if planned != now and not (task.newest and task.parts == 1 and planned.inode):
        # It was planned as complete without reading its end, and was not complete; or its parts would differ. Without
        # an inode, a file that grew looks like a longer one in its place.
        raise UnfitFileError(problems.report_growing(task.file.name))


def read_whole(stream: BinaryIO, task: FileTask, magic: bytes = b"") -> str:
    """The sha256 of a file that can only be taken as a whole and begins with `magic`. Rewinds the stream.

    Raises UnfitFileError.
    """
    content = streams.Fingerprint(stream, task.until)
    check_prefix(content, task)
    for _ in content.blocks():
        pass
    stream.seek(0)
    if stream.read(len(magic)) != magic:
        raise UnfitFileError(problems.report_wrong_content(task.file.name))
    stream.seek(0)
    return content.sha256


def check_prefix(content: streams.Fingerprint, task: FileTask) -> int:
    """Reads the part that was taken before and counts its line ends. Raises UnfitFileError if it changed."""
    if not task.begin:
        return 0
    checksum, lines = content.prefix(task.begin)
    if checksum != task.begin_checksum:
        raise UnfitFileError(
            problems.report_changed(
                task.file.name, f"has other content in the first {task.begin} bytes, which were already ingested"
            )
        )
    return lines


def find_lines(
    stream: BinaryIO, task: FileTask, begins: Callable[[bytes], bool] = lambda text: True
) -> tuple[int, int]:
    """Returns where the lines of the task's part begin and end. The stream is then where its reading begins.

    begins: whether a record seems to begin with this text.
    """
    first, end = (_find_line(stream, task, part, begins) for part in (task.part, task.part + 1))
    stream.seek(first if task.part else 0)
    return first, end


def _find_line(stream: BinaryIO, task: FileTask, part: int, begins: Callable[[bytes], bool]) -> int:
    cut, tries = task.find_cut(part), _TRIES
    if 0 < part < task.parts:
        stream.seek(cut - 1)
        for block in streams.read_blocks(stream, task.until):
            end = block.find(b"\n")
            while end >= 0 and tries and not begins(block[end + 1 : end + 1 + _NEAR]):
                end, tries = block.find(b"\n", end + 1), tries - 1
            if end >= 0:
                return cut + end
            cut += len(block)
        return task.until
    return cut


def parse_lines(
    stream: BinaryIO,
    task: FileTask,
    shape: TableSpec,
    at: ReaderPosition,
    reader: RecordReader,
    quarantine: QuarantineWriter,
) -> ParsedFile:
    """Gives every new line to the reader. Raises errors that `parse_file` turns into UnfitFileError."""
    file = task.file
    if not begins_as_named(stream, file):
        raise UnfitFileError(problems.report_wrong_content(file.name, stream.read(_MAGIC)))
    content = streams.Fingerprint(stream, task.until)
    # Only the first part of a file begins behind what was taken before.
    first_new = 0 if task.from_beginning or task.part else min(skip_torn(stream, task.begin), task.until)
    first, end = find_lines(stream, task)
    number = 0 if task.part else check_prefix(content, task)
    if first_new > task.begin:
        number += sum(block.count(b"\n") for block in content.blocks(first_new))
    if task.from_beginning:
        content.rewind()
        number = 0
    begins = first == 0 or task.from_beginning
    blocks = streams.read_blocks(stream, end) if task.part else content.blocks(end)
    chunks = streams.file_chunks(blocks, packed=file.packed, begins=begins, record_path=file.record_path)
    lines = _number_lines(chunks, at, number)
    table = take_records(lines, task, shape, at, reader, quarantine, skip=task.records if task.from_beginning else 0)
    for _ in chain(lines, () if task.part else content.blocks()):  # The checksum is that of all bytes.
        pass
    return ParsedFile(at.account, table, "" if task.part else content.sha256, at.number)


def take_records(
    records: Iterable[RecordText],
    task: FileTask,
    shape: TableSpec,
    at: ReaderPosition,
    reader: RecordReader,
    quarantine: QuarantineWriter,
    skip: int,
    stored: Callable[[bytes], bytes] | None = None,
) -> pa.Table | None:
    """Gives records to the reader, and those that it refuses to the quarantine. Returns the changes; None: none.

    skip: how many records come before the first new one.
    stored: makes the text that the quarantine stores.
    """
    builder, size = TableBuilder(shape, task.file.partition), 0
    for number, line, fault, is_torn in islice(records, skip, None if task.most is None else skip + task.most):
        at.begin(line, number)
        try:
            if fault:
                raise fault
            reader(at, line)
        except RefusedRecordError as error:
            refused = _mark_torn(error) if is_torn else error
            if refused.reason in task.stops:
                raise SchemaStopError(at.account.records - 1, number, refused) from error
            at.refuse(refused.reason)
            at.account.awaiting += is_awaiting(refused)
            refused.early = at.stream.early
            quarantine.add(task.file.name, number, at.offset, refused, stored(line) if stored else line)
        size += len(line)
        if len(at.batch.ops) >= _BATCH_ROWS or size >= BATCH_BYTES:
            builder.add(at.drain_batch())
            size = 0
    builder.add(at.drain_batch())
    at.account.stream = at.stream.position
    table = builder.to_table()
    if at.undone and table is not None:
        table = table.filter(~pc.field("_offset").isin(at.undone))
    return table if table is not None and table.num_rows else None


def _number_lines(chunks: Iterable[streams.Chunk], at: ReaderPosition, number: int) -> Iterator[RecordText]:
    """The lines that are not blank. `number`: of the lines before."""
    for chunk in chunks:
        at.preview(chunk.data)
        # The decoder skips unused fields unread; they must be valid text too.
        is_text = _is_text(chunk.data)
        for line in chunk.lines:
            number += 1
            if not line or line.isspace():
                continue
            fault = None
            if chunk.too_long:
                fault = RefusedRecordError("LINE_TOO_LONG", f"The line is longer than {streams.MAX_LINE >> 20} MiB.")
            elif not is_text and not _is_text(line):
                fault = RefusedRecordError("NOT_UTF8", "The line is not UTF-8.")
            yield number, line, fault, chunk.unterminated
    at.number = number  # Also of blank lines at the end.


def _mark_torn(refused: RefusedRecordError) -> RefusedRecordError:
    if refused.reason not in ("BROKEN_JSON", "NOT_UTF8"):
        return refused
    detail = f"The file ends in the middle of this line, and newer files exist: {refused.detail}"
    return RefusedRecordError("TORN_LINE", detail)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
