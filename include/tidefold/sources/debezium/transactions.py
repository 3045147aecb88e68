"""Reads what Debezium's records say about transactions: in the transaction topic, and in the records of tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Annotated, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidefold.domain.sets.point import SetPoint
from tidefold.domain.sets.progress import NEVER, SourceRecord, TransactionEnd
from tidefold.domain.source_progress import NO_POSITION, NameReading
from tidefold.errors import RefusedError, StorageError, TidefoldError
from tidefold.sources.api import source_of
from tidefold.sources.debezium.json_source import DebeziumJson, offset_in
from tidefold.sources.debezium.ordering import ChangeHead, RecordPlaces, TransactionId, parse_end_id
from tidefold.sources.feed import Feed
from tidefold.sources.landing.completeness import skip_torn
from tidefold.sources.landing.listing import LandedFile, list_landed, open_landed
from tidefold.sources.landing.plan import FileTask, TakenFile
from tidefold.sources.landing.streams import CutShortError, DamagedError, ShrunkError, file_chunks, read_blocks
from tidefold.sources.records.errors import UNDECODABLE
from tidefold.typed_json import make_decoder

_TOPIC = ".transaction"
_TAIL_BYTES = 64 << 10
_UNKNOWN = 2**63
# So many records show what a file has.
_LOOKED_AT = 10
_JSON = "debezium-json"
_OFFSET = Annotated[int, Meta(ge=0, le=2**63 - 2)]


class _Value(ChangeHead):
    payload: ChangeHead | None = None


class _Record(_Value):
    """A record, or a value alone."""

    offset: _OFFSET | None = None
    value: _Value | UnsetType | None = UNSET


class _TableCount(msgspec.Struct):
    data_collection: str
    event_count: int


class _Marker(msgspec.Struct):
    status: str | None = None
    id: str = ""
    event_count: int | None = None
    data_collections: list[_TableCount] | None = None


class _MarkerValue(_Marker):
    payload: _Marker | None = None


class _MarkerRecord(_MarkerValue):
    """A record of the transaction topic, or its value alone."""

    offset: _OFFSET | None = None
    value: _MarkerValue | UnsetType | None = UNSET


_records = make_decoder(_Record)
_markers = make_decoder(_MarkerRecord)


def read_records(feed: Feed, tasks: Sequence[FileTask], connector: str) -> Iterator[tuple[str, SourceRecord]]:
    """Yields the name of the file and the place of each new record of a log, in offset order. Raises StorageError."""
    places = RecordPlaces(connector, tasks[0].stream if tasks else NO_POSITION)
    for task in tasks:
        begin = 0 if task.from_beginning else task.begin
        for offset, text in _read_texts(feed, task.file, task.until, begin, task.records):
            yield task.file.name, _place_record(places, text, offset)


def _read_texts(feed: Feed, file: LandedFile, until: int, begin: int = 0, skip: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yields the records of a file as texts, with the offset that each has if it says none.

    begin: the byte where reading of lines begins. skip: how many records lie before the first one to yield.
    Raises StorageError if the file cannot be read.
    """
    try:
        if feed.format == _JSON:
            yield from _read_lines(file, until, begin, skip)
            return
        taken = TakenFile(file.name, "", file.path, file.packed, until, "", file.start, ())
        with open_landed(file) as stream:
            for number, text in enumerate(_source_of(feed).texts(stream, taken)):
                if number >= skip:
                    yield file.start + number, text
    except (OSError, ValueError, CutShortError, DamagedError, ShrunkError) as error:
        if isinstance(error, TidefoldError):
            raise
        raise StorageError(
            "LANDING_UNREADABLE",
            f"`{file.path}` cannot be read: {error or 'it is cut short'}.",
            hint="Its set ingests nothing, because the file may have records before the point. Repair it, run again.",
        ) from error


def _source_of(feed: Feed) -> DebeziumJson:
    return cast("DebeziumJson", source_of(feed))


def _read_lines(file: LandedFile, until: int, begin: int, skip: int) -> Iterator[tuple[int, bytes]]:
    number = skip if begin else 0
    with open_landed(file) as stream:
        stream.seek(skip_torn(stream, begin))
        for chunk in file_chunks(read_blocks(stream, until), packed=file.packed, begins=not begin):
            for line in filter(bytes.strip, chunk.lines):
                number += 1
                if number > skip:
                    yield file.start + number - 1, line


def _place_record(places: RecordPlaces, text: bytes, offset: int) -> SourceRecord:
    try:
        record = _records.decode(text)
    except UNDECODABLE:
        return SourceRecord(offset)
    offset = offset if record.offset is None else record.offset
    value = record if record.value is UNSET else record.value
    return places.find(value.payload if value and value.payload else value, offset)


@dataclass(frozen=True, slots=True)
class LandedEnds:
    """The ENDs of a landed transaction topic.

    prefix: of the names of the connector's topics; empty: nothing has landed.
    gap: the first and the last offset of the records that are missing before the next landed one; None: no gap.
    begin: the offset of the first one, of a topic that has no longer those before; 0: it has all.
    """

    prefix: str
    ends: tuple[TransactionEnd, ...]
    gap: tuple[int, int] | None = None
    begin: int = 0


def read_ends(feed: Feed, connector: str, before: SetPoint | None, whole_from: int = NEVER) -> LandedEnds:
    """Returns the ENDs of a landed transaction topic behind a point, up to the first gap between its offsets.

    feed: the folder of the topic, with the format of the logs. before: None: from the beginning of the topic.
    whole_from: the offset from which on a missing one had no record; NEVER: none.
    Raises NotFoundError or StorageError if the folder cannot be read, RefusedError if it is not such a topic.
    """
    source = _source_of(feed)
    reading = NameReading(feed.options.get("names") or NameReading.KAFKA)
    files, problems = list_landed(feed.path, source.extensions, reading)
    blocked = [problem for problem in problems if problem.blocking]
    if blocked:
        raise _build_foreign_error(feed.path, blocked[0].message)
    topics = {(file.topic, file.partition) for file in files}
    if not topics:
        return LandedEnds("", ())
    topic = files[0].topic
    if len(topics) > 1 or not topic.endswith(_TOPIC):
        raise _build_foreign_error(feed.path, f"it has files of {', '.join(sorted({name for name, _ in topics}))}")
    ends = _EndReader(feed.path, connector, before)
    expected, gap = before.read_to + 1 if before else 0, None
    begin = whole_from if whole_from < NEVER and not expected else 0
    is_whole = whole_from <= max(expected, begin)
    for offset, marker in _read_topic(feed, source, files, expected):
        if offset > expected and not is_whole:
            gap = expected, offset - 1
            break
        if offset >= expected:
            ends.add(offset, marker)
            expected = offset + 1
    return LandedEnds(topic.removesuffix(_TOPIC), tuple(ends.found), gap, begin)


def _read_topic(
    feed: Feed, source: DebeziumJson, files: Sequence[LandedFile], expected: int
) -> Iterator[tuple[int, _Marker]]:
    """Yields the records from an offset on. Of files that land again, it may yield earlier ones, too."""
    for i, file in enumerate(files):
        if i + 1 < len(files) and files[i + 1].start <= expected:
            continue
        until = source.ending(file, 0).complete if file is files[-1] else file.size
        if not until or (feed.format == _JSON and not file.packed and _find_last_offset(file, until) < expected):
            continue
        for here, text in _read_texts(feed, file, until):
            yield _read_marker(feed.path, text, here)


def _find_last_offset(file: LandedFile, until: int) -> int:
    """Returns the offset in the last record, so that a file without news is not read; a huge one if it says none."""
    begin = max(0, until - _TAIL_BYTES)
    try:
        with open_landed(file) as stream:
            stream.seek(begin)
            lines = stream.read(until - begin).rstrip().splitlines()
    except OSError:
        return _UNKNOWN  # Reading the file reports it.
    offset = offset_in(lines[-1]) if len(lines) > 1 else None
    return _UNKNOWN if offset is None else offset


def _read_marker(folder: str, text: bytes, offset: int) -> tuple[int, _Marker]:
    try:
        record = _markers.decode(text)
    except UNDECODABLE as error:
        raise _build_foreign_error(folder, f"the record at offset {offset} cannot be read ({error})") from error
    offset = offset if record.offset is None else record.offset
    value = record if record.value is UNSET else record.value
    marker = value.payload if value and value.payload else value
    if marker is None or marker.status not in ("BEGIN", "END"):
        raise _build_foreign_error(folder, f"the record at offset {offset} is no BEGIN and no END")
    return offset, marker


@dataclass(slots=True)
class _EndReader:
    """Collects the ENDs of a transaction topic."""

    folder: str
    connector: str
    before: SetPoint | None
    found: list[TransactionEnd] = field(default_factory=list)
    # The transaction of the record before, if that is a BEGIN; and those that began in the middle.
    _begun: str = ""
    _partial: set[str] = field(default_factory=set)
    _ended: dict[str, int] = field(default_factory=dict)
    _origin: str = ""

    def __post_init__(self) -> None:
        marker = parse_end_id(self.before.transaction, self.connector) if self.before else None
        self._origin = marker.origin if marker else ""

    def add(self, offset: int, marker: _Marker) -> None:
        """Adds a BEGIN or an END. Raises RefusedError if its transaction has no order among the others."""
        id = self._parse(offset, marker)
        if marker.status == "BEGIN":
            # A connector that starts before the transaction sends the END of the one before it again.
            if id.id == self._begun:
                self._partial.add(id.id)
            else:
                self._partial.discard(id.id)
            self._begun = id.id
            at = self._ended.get(id.id)
            if at is not None:
                self.found[at] = replace(self.found[at], is_restarted=True)
            return
        self._begun = ""
        counts = {one.data_collection: one.event_count for one in marker.data_collections or ()}
        if id.origin != self._origin and not counts:
            return  # It has nothing of any table, so its order does not matter.
        if id.origin != self._origin and self._origin:
            raise RefusedError(
                "SET_ORIGINS",
                f"The transaction topic in `{self.folder}` has transactions of {self._origin} and, at offset {offset}, "
                f"of {id.origin}. Their ids have no common order.",
            )
        self._origin = id.origin
        self._ended.setdefault(id.id, len(self.found))
        self.found.append(TransactionEnd(id.id, id.position, offset, counts, id.rank, id.id in self._partial))

    def _parse(self, offset: int, marker: _Marker) -> TransactionId:
        parsed = parse_end_id(marker.id, self.connector)
        if parsed is None:
            raise RefusedError(
                "SET_POSITION_UNKNOWN",
                f"The {marker.status} at offset {offset} has the id `{marker.id[:80]}`, which is not the id of a "
                f"transaction as the connector for {self.connector} writes it.",
            )
        return parsed


def has_markers(feed: Feed, file: LandedFile) -> bool:
    """Whether the first records of a landed file are BEGINs and ENDs of transactions."""
    try:
        until = _source_of(feed).ending(file, 0).complete
        first = list(islice(_read_texts(feed, file, until), _LOOKED_AT)) if until else []
        for offset, text in first:
            _read_marker(feed.path, text, offset)
    except (TidefoldError, OSError):
        return False  # Then it is proposed as any other file.
    return bool(first)


def _build_foreign_error(folder: str, why: str) -> RefusedError:
    return RefusedError("SET_TRANSACTIONS_FOREIGN", f"`{folder}` is not a landed transaction topic: {why}.")
