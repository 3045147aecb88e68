"""Reads refused records from a log's quarantine, and parses them again with today's rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby

import msgspec
import pyarrow as pa

from tidefold.changelog.schema import CLEAR, number_of
from tidefold.domain.log_state import LandedFileRecord, LogState, TableSpec
from tidefold.domain.source_progress import NameReading
from tidefold.errors import CorruptError
from tidefold.sources.api import RecordReader, Source, UnfitFileError
from tidefold.sources.feed import PLACEHOLDER, Feed
from tidefold.sources.landing import streams
from tidefold.sources.landing.completeness import read_completed
from tidefold.sources.landing.folders import folder_at
from tidefold.sources.landing.listing import LandedFile
from tidefold.sources.landing.name_times import find_time
from tidefold.sources.landing.plan import FileTask
from tidefold.sources.quarantine.writer import KEPT_TEXT, Quarantined, QuarantineWriter, sha256_of
from tidefold.sources.records.accounting import Batch, FilePosition, ReaderPosition
from tidefold.sources.records.change_batches import TableBuilder
from tidefold.sources.records.errors import KEY_CHANGE, RefusedRecordError
from tidefold.storage import Store, compute_sha256
from tidefold.typed_json import decode_json

# Refused for their position in the file, which does not change.
OF_THEIR_PLACE = frozenset(("OFFSET_ORDER", "OFFSET_TWICE", "LINE_TOO_LONG"))
RoomOf = Callable[[LandedFileRecord], tuple[int, int | None]]


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused record, and the record of its landed file."""

    landed: LandedFileRecord
    entry: Quarantined

    @property
    def landed_line(self) -> tuple[str, int]:
        """The name of its landed file, and its line there: no other refused record of the file has it."""
        return self.entry.file, self.entry.line


def require_intact(store: Store, path: str) -> None:
    """Raises CorruptError if the bytes of a quarantine file are not those that were written."""
    with store.open(path) as stream:
        if sha256_of(path) != compute_sha256(stream):
            raise CorruptError("QUARANTINE_CORRUPT", f"`{path}` was altered: its checksum differs.")


def read_refused(store: Store, state: LogState, path: str, *, proved: bool = True) -> Iterator[Refused]:
    """The valid records of one quarantine file, in its order.

    If an ingest read a file twice, only the last reading is valid. Raises CorruptError, NotFoundError.

    proved: whether the bytes must be those that were written.
    """
    if proved:
        require_intact(store, path)
    files = {e.name: e for e in state.landed if e.quarantine == path and e.quarantined}
    with store.open(path) as stream:
        for line in stream:
            try:
                entry = decode_json(line, Quarantined)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                message = f"`{path}` cannot be read: {error}."
                raise CorruptError("QUARANTINE_CORRUPT", message) from error
            if entry.file in files:
                yield Refused(files[entry.file], entry)


@dataclass(slots=True)
class SecondLook:
    """The result of a second parse of the refused records of one partition, or of one file that has a number.

    partition: the partition, or the number of the file.
    table, changes: the records that are changes now, and their rows.
    others: records that are readable but not changes, with the name of their count.
    refused: the rest, with today's reason.
    is_gone: their landed file is no longer as it was ingested.
    moved, moved_table, former_table: rows whose key was changed and that lack values, and their old keys (null: not
    known).
    """

    topic: str
    partition: int
    table: pa.Table | None = None
    changes: list[Refused] = field(default_factory=list)
    others: list[tuple[Refused, str]] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    is_gone: bool = False
    moved: list[Refused] = field(default_factory=list)
    moved_table: pa.Table | None = None
    former_table: pa.Table | None = None


# The complete text of a record, or None; and the offsets between which it must be.
TextOf = Callable[[Refused], bytes | None]


class _Refusals(QuarantineWriter):
    """The refused rows of a file, by number. Nothing is stored."""

    def __init__(self) -> None:
        super().__init__()
        self.by_line: dict[int, RefusedRecordError] = {}

    def add(self, file: str, line: int, offset: int | None, refused: RefusedRecordError, record: bytes) -> None:
        self.by_line[line] = refused


def look_again(
    source: Source | None,
    shape: TableSpec,
    records: Iterable[Refused],
    text_of: TextOf,
    room_of: RoomOf,
    horizon: int | None = None,
    placeholder: str = PLACEHOLDER,
    names: NameReading | None = None,
    zone: str | None = None,
    files: Sequence[LandedFile] | None = None,
) -> list[SecondLook]:
    """Reads refused records as ingest would read them now. Returns one result for each partition or file.

    Records that `source` cannot read alone are read with their file, one of `files`. `source` None: the log has no
    source any more.
    names, zone: how the log reads the names of files, and the time zone of the times in them.
    """
    is_numbered = names is not None and not names.has_offsets

    def partition(one: Refused) -> tuple[str, int]:
        return one.landed.topic, one.landed.number if is_numbered else one.landed.partition

    grouped = groupby(sorted(records, key=partition), key=partition)
    looks = []
    for (topic, number), group in grouped:
        members = list(group)
        name = members[0].landed.name
        time = find_time(name, zone) if is_numbered else None
        place = FilePosition(
            topic, number, horizon=horizon, alone=is_numbered, time=time, placeholder=placeholder, name=name
        )
        reader = source.reader(shape) if source else None
        look = SecondLook(topic, number, refused=[] if reader else members)
        if reader:
            at = ReaderPosition(place, shape)
            look = _look(reader, at, shape, look, members, text_of, room_of)
        elif source and files is not None:
            file = next((file for file in files if file.name == name), None)
            look = _look_at_file(source, shape, look, file, horizon)
        looks.append(look)
    return looks


def _look_at_file(
    source: Source, shape: TableSpec, look: SecondLook, file: LandedFile | None, horizon: int | None
) -> SecondLook:
    """Reads the rows again with their file, if it still begins with the bytes that were ingested."""
    landed, of_line = look.refused[0].landed, {one.entry.line: one for one in look.refused}
    task = FileTask(file, landed.length, horizon=horizon, lines=frozenset(of_line)) if file else None
    again = read_file_again(source, shape, task, landed)
    if again is None:
        return replace(look, is_gone=True)
    look.table, refusals = again
    numbers = []
    if look.table is not None:
        place = look.table.schema.get_field_index("_partition")
        partition = pa.repeat(pa.scalar(look.partition, pa.int32()), look.table.num_rows)
        look.table = look.table.set_column(place, "_partition", partition)
        numbers = [number_of(number) for number in look.table.column("_offset").to_pylist()]
    look.changes = [of_line[number] for number in numbers]
    look.refused = [renew_reason(of_line[number], refused) for number, refused in refusals.items()]
    look.others = [(one, "ignored") for line, one in of_line.items() if line not in {*numbers, *refusals}]
    return look


def read_file_again(
    source: Source, shape: TableSpec, task: FileTask | None, landed: LandedFileRecord
) -> tuple[pa.Table | None, Mapping[int, RefusedRecordError]] | None:
    """The changes of a file, and its refused records by line; None: it no longer has the bytes that were ingested."""
    with suppress(UnfitFileError), _Refusals() as again:
        parsed = source.parse(task, shape, again) if task else None
        if parsed and parsed.checksum == landed.checksum:
            return parsed.table, again.by_line
    return None


def _look(
    reader: RecordReader,
    at: ReaderPosition,
    shape: TableSpec,
    look: SecondLook,
    records: Sequence[Refused],
    text_of: TextOf,
    room_of: RoomOf,
) -> SecondLook:
    taken, former, moved = Batch(), Batch(), Batch()
    for one in records:
        text = None if one.entry.reason in OF_THEIR_PLACE else text_of(one)
        count = _count_of(reader, at, text, one, room_of(one.landed)) if text is not None else None
        batch = at.drain_batch()
        if isinstance(count, RefusedRecordError):
            look.refused.append(renew_reason(one, count))
        elif count is None or CLEAR in batch.ops:
            look.refused.append(one)
        elif count == "changes" and len(batch.ops) == 2 and batch.absent[1] and shape.replaces_rows:
            for to, one_change in zip((former, moved), batch.each(), strict=True):
                to.extend(one_change)
            look.moved.append(one)
        elif count == "changes":
            taken.extend(batch)
            look.changes += [one] * len(batch.ops)
        else:
            look.others.append((one, count))
    look.table, look.former_table, look.moved_table = (
        _table_of(batch, shape, look.partition) for batch in (taken, former, moved)
    )
    return look


def _table_of(batch: Batch, shape: TableSpec, partition: int) -> pa.Table | None:
    builder = TableBuilder(shape, partition)
    builder.add(batch)
    return builder.to_table()


def renew_reason(one: Refused, refused: RefusedRecordError) -> Refused:
    """The record with today's reason. Only its file showed that its value is under another key."""
    told = {"reason": refused.reason, "detail": refused.detail, "since": refused.since or one.entry.since}
    keeps = one.entry.reason == KEY_CHANGE and refused.reason == "UNAVAILABLE_VALUE"
    return one if keeps else Refused(one.landed, msgspec.structs.replace(one.entry, **told))


def _count_of(
    reader: RecordReader, at: ReaderPosition, text: bytes, one: Refused, room: tuple[int, int | None]
) -> str | RefusedRecordError | None:
    """The count to which the record belongs now, or why it is still refused; None: other records have its offset."""
    at.begin_single_record(text, one.entry.line, one.entry.offset, one.entry.order or one.entry.early)
    try:
        reader(at, text)
    except RefusedRecordError as refused:
        return refused
    first, end = room
    offset, account = at.offset, at.account
    if offset is not None and (offset < first or (end is not None and offset >= end)):
        return None
    return next((name for name in ("changes", "tombstones", "ignored") if getattr(account, name)), "repeated")


def whole_text(entry: Quarantined) -> bytes | None:
    """The text of a record if the quarantine has all of it, byte for byte."""
    text = entry.record.encode()
    return None if len(text) >= KEPT_TEXT or b"\\x" in text else text


def read_torn_line(feed: Feed, landed: LandedFileRecord) -> bytes | None:
    """Returns the last line of a landed file, which was torn when it was ingested; None: it is not completed."""
    with suppress(OSError, streams.ShrunkError), folder_at(feed.path).open(landed.name) as stream:
        content = streams.Fingerprint(stream, landed.length)
        if content.prefix(landed.length)[0] == landed.checksum:
            return read_completed(stream, landed.length)
    return None


def read_landed_lines(feed: Feed, landed: LandedFileRecord, lines: Collection[int]) -> Mapping[int, bytes]:
    """Returns these lines of a landed file; empty if it is no longer the file that was ingested."""
    try:
        with folder_at(feed.path).open(landed.name) as stream:
            content = streams.Fingerprint(stream, landed.length)
            texts, number, path = dict[int, bytes](), 0, feed.options.get("record_path")
            for chunk in streams.file_chunks(
                content.blocks(), packed=streams.is_packed_name(landed.name), record_path=path
            ):
                for line in chunk.lines:
                    number += 1
                    if number in lines and not chunk.too_long:
                        texts[number] = line
            return texts if content.sha256 == landed.checksum else {}
    except (OSError, streams.CutShortError, streams.DamagedError, streams.ShrunkError):
        return {}
