"""Reads what Debezium's records say about transactions: in the transaction topic, and in the records of tables.

Facts (PostgreSQL, connector 3.6): the id of a record's transaction is `txid:lsn` with the position of the record, the
id of an END is `txid:lsn` with the position of the commit. The first number of `source.sequence` is the position of
the commit before. The numbers of a transaction's records count in each table from 1, also after a kill.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from tidefold.domain.sets.point import TransactionEnd
from tidefold.domain.sets.progress import SourceRecord
from tidefold.domain.source_progress import NameReading
from tidefold.errors import RefusedError, StorageError, TidefoldError
from tidefold.sources.debezium.ordering import postgresql_order
from tidefold.sources.ingest.plan import FileTask
from tidefold.sources.landing.completeness import ending_of
from tidefold.sources.landing.listing import LandedFile, list_landed, open_landed
from tidefold.sources.landing.names import LINES
from tidefold.sources.landing.streams import CutShortError, DamagedError, Fingerprint, ShrunkError, file_chunks
from tidefold.sources.records.errors import RefusedRecordError
from tidefold.typed_json import make_decoder

_TOPIC = ".transaction"
_STREAMED = (None, "false", False)
_INITIAL = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last", True)
_FIRST = ("first", "first_in_data_collection")
_LAST = ("last", "last_in_data_collection")
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_OFFSET = Annotated[int, Meta(ge=0, le=2**63 - 2)]


class _Transaction(msgspec.Struct):
    id: str = ""
    data_collection_order: int = 0


class _Source(msgspec.Struct):
    sequence: str | None = None
    snapshot: str | bool | None = None


class _Change(msgspec.Struct):
    op: str | None = None
    source: _Source | None = None
    transaction: _Transaction | None = None


class _Value(_Change):
    payload: _Change | None = None


class _Record(msgspec.Struct):
    offset: _OFFSET | None = None
    value: _Value | None = None


class _TableCount(msgspec.Struct):
    data_collection: str
    event_count: int


class _Marker(msgspec.Struct):
    status: str | None = None
    id: str = ""
    data_collections: list[_TableCount] | None = None


class _MarkerValue(_Marker):
    payload: _Marker | None = None


class _MarkerRecord(msgspec.Struct):
    offset: _OFFSET | None = None
    value: _MarkerValue | None = None


_records = make_decoder(_Record)
_markers = make_decoder(_MarkerRecord)


def read_records(tasks: tuple[FileTask, ...]) -> Iterator[tuple[str, SourceRecord]]:
    """Yields the name of the file and the place of each new record of a log, in offset order. Raises StorageError."""
    for task in tasks:
        begin = 0 if task.from_beginning else task.begin
        for offset, line in _read_lines(task.file, task.until, begin, task.records):
            yield task.file.name, _place_record(line, offset)


def _read_lines(file: LandedFile, until: int, begin: int = 0, skip: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yields the lines that are not blank, with the offset that each has if it says none.

    begin: the byte where reading begins. skip: how many records lie before the first one to yield.
    Raises StorageError if the file cannot be read.
    """
    number = skip if begin else 0
    try:
        with open_landed(file) as stream:
            stream.seek(begin)
            for chunk in file_chunks(Fingerprint(stream, until).blocks(), gzip=file.gzip, begins=not begin):
                for line in filter(bytes.strip, chunk.lines):
                    number += 1
                    if number > skip:
                        yield file.start + number - 1, line
    except (OSError, CutShortError, DamagedError, ShrunkError) as error:
        if isinstance(error, TidefoldError):
            raise
        raise StorageError(
            "LANDING_UNREADABLE",
            f"`{file.path}` cannot be read: {error or 'it is cut short'}.",
            hint="Its set ingests nothing, because the file may have records before the point. Repair it, run again.",
        ) from error


def _place_record(line: bytes, offset: int) -> SourceRecord:
    """Returns the place of a record. One that cannot be read has none: the count of its transaction stays short."""
    try:
        record = _records.decode(line)
    except _UNDECODABLE:
        return SourceRecord(offset)
    offset = offset if record.offset is None else record.offset
    value = record.value
    change = value.payload if value and value.payload else value
    if change is None or change.source is None:
        return SourceRecord(offset)
    after = _find_commit_before(change.source.sequence)
    if after is None:
        return SourceRecord(offset)
    mark = change.source.snapshot
    if change.transaction and change.transaction.id:
        return SourceRecord(offset, _short_id(change.transaction.id), change.transaction.data_collection_order, after)
    if mark in _INITIAL:
        return SourceRecord(offset, None, 0, after, is_snapshot=True, begins=mark in _FIRST, ends=mark in _LAST)
    return SourceRecord(offset, is_untracked=mark in _STREAMED and change.op is not None)


def _find_commit_before(sequence: str | None) -> int | None:
    try:
        return postgresql_order(sequence)[0]
    except RefusedRecordError:
        return None


def _short_id(text: str) -> str:
    """Returns the number of the transaction: the position beside it differs from record to record."""
    return text.partition(":")[0]


@dataclass(frozen=True, slots=True)
class LandedEnds:
    """The ENDs of a landed transaction topic.

    prefix: of the names of the connector's topics; empty: nothing has landed.
    """

    prefix: str
    ends: tuple[TransactionEnd, ...]


def read_ends(folder: str, after: int) -> LandedEnds:
    """Returns the ENDs of a landed transaction topic behind an offset, up to the first gap between its offsets.

    after: the offset of the last END that is known; -1: none.
    Raises NotFoundError or StorageError if the folder cannot be read, RefusedError if it is not such a topic.
    """
    files, problems = list_landed(folder, LINES, NameReading.KAFKA)
    blocked = [problem for problem in problems if problem.blocking]
    if blocked:
        raise _build_foreign_error(folder, blocked[0].message)
    topics = {(file.topic, file.partition) for file in files}
    if not topics:
        return LandedEnds("", ())
    topic = files[0].topic
    if len(topics) > 1 or not topic.endswith(_TOPIC):
        raise _build_foreign_error(folder, f"it has files of {', '.join(sorted({name for name, _ in topics}))}")
    return LandedEnds(topic.removesuffix(_TOPIC), tuple(_find_ends(folder, files, after)))


def _find_ends(folder: str, files: Sequence[LandedFile], after: int) -> Iterator[TransactionEnd]:
    expected = after + 1
    for i, file in enumerate(files):
        if i + 1 < len(files) and files[i + 1].start <= expected:
            continue
        until = ending_of(file).complete if file is files[-1] else file.size
        if not until:
            continue
        for here, line in _read_lines(file, until):
            offset, marker = _read_marker(folder, line, here)
            if offset > expected:
                return
            if offset == expected:
                expected += 1
                if end := _make_end(marker, offset):
                    yield end


def _read_marker(folder: str, line: bytes, offset: int) -> tuple[int, _Marker]:
    try:
        record = _markers.decode(line)
    except _UNDECODABLE as error:
        raise _build_foreign_error(folder, f"the record at offset {offset} cannot be read ({error})") from error
    offset = offset if record.offset is None else record.offset
    value = record.value
    marker = value.payload if value and value.payload else value
    if marker is None or marker.status not in ("BEGIN", "END"):
        raise _build_foreign_error(folder, f"the record at offset {offset} is no BEGIN and no END")
    return offset, marker


def _make_end(marker: _Marker, offset: int) -> TransactionEnd | None:
    if marker.status != "END":
        return None
    number, _, position = marker.id.partition(":")
    if not position.isdecimal():
        raise RefusedError(
            "SET_POSITION_UNKNOWN",
            f"The END at offset {offset} has the id `{marker.id[:80]}`, not the number and position of a transaction.",
            hint="A set needs the transaction topic of Debezium's PostgreSQL connector, version 2 or later.",
        )
    counts = {one.data_collection: one.event_count for one in marker.data_collections or ()}
    return TransactionEnd(number, int(position), offset, counts)


def _build_foreign_error(folder: str, why: str) -> RefusedError:
    return RefusedError(
        "SET_TRANSACTIONS_FOREIGN",
        f"`{folder}` is not a landed transaction topic: {why}.",
        hint="Set `transactions` to the folder in which the topic `PREFIX.transaction` lands. The connector writes it "
        "with `provide.transaction.metadata=true`.",
    )
