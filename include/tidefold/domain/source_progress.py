"""What was ingested from the source: a record of each landed file, and the position of each partition."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

# The suffix of a record that stands for all files of a partition before an import or a rebuild.
IMPORTED = "+imported"


class NameReading(StrEnum):
    """How a log reads the names of its landed files.

    KAFKA: only `topic+partition+offset`.
    KAFKA_DASH: also `topic-partition-offset`.
    ANY: names have no meaning, and each file is ingested separately.
    """

    KAFKA = "kafka"
    KAFKA_DASH = "kafka-dash"
    ANY = "any"


class StreamPosition(NamedTuple):
    """The highest order of the source seen in one partition.

    max_order: the highest order seen; empty: it was not recorded.
    records_at_max: how many records had that order. Counted only if equal records are different changes.
    replayed_at_max: how many of them the source has sent again since it went back; None: it did not go back.
    max_commit_time: the latest commit time seen, in microseconds.
    connector_run: which start of the connector sent the last record, where records say so. Kept only where equal
        records must stay apart.
    """

    max_order: tuple[int, ...] = ()
    records_at_max: int = 0
    replayed_at_max: int | None = None
    max_commit_time: int | None = None
    connector_run: str = ""


NO_POSITION = StreamPosition()


@dataclass(frozen=True, slots=True)
class LandedFileRecord:
    """The record of one landed file. A file that grows has a record for each part.

    The counts add up: records = changes + tombstones + repeated + resent + unproved + quarantined + ignored.

    length, checksum: how many bytes were read, and their sha256.
    first_offset, next_offset: the offsets [first, next).
    repeated: the same bytes came before at the same offset. Older versions counted resent and unproved records here.
    resent: the source's own order shows that it sent the record before.
    unproved: the offset was ingested before, and the earlier record is no longer there to compare with.
    forgotten: how many of the unproved records lie below the position at which the log was imported, or its ledger
        was rebuilt: the log knows the offset, but not the file.
    changed: the file's modification time in seconds. If it differs, the next ingest reads the file's bytes again.
    high, count, again, time, connector_run: the stream position of the partition after the file.
    run, instant: which run ingested the file, and when (ISO 8601), for people.
    complete: false if a record stopped the partition. That record and all later ones wait.
    truncates: how often the source emptied the whole table.
    key_changes: how many of the quarantined records wait for values of the row under their old key.
    settled: how many records a person settled by hand, with name and reason. These records count as ignored.
    etag: the object store's ETag of the file; empty for a file on a disk.
    """

    number: int
    name: str
    length: int
    checksum: str
    topic: str
    partition: int
    first_offset: int
    next_offset: int
    records: int
    changes: int
    tombstones: int
    repeated: int
    quarantined: int
    ignored: int
    sqn: int | None
    quarantine: str | None = None
    changed: float = 0.0
    high: tuple[int, ...] = ()
    run: str = ""
    instant: str = ""
    count: int = 0
    again: int | None = None
    time: int | None = None
    complete: bool = True
    truncates: int = 0
    key_changes: int = 0
    resent: int = 0
    unproved: int = 0
    forgotten: int = 0
    settled: tuple[str, ...] = ()
    etag: str = ""
    connector_run: str = ""

    def with_stream(self, stream: StreamPosition) -> LandedFileRecord:
        high, count, again, time, connector_run = stream
        return replace(self, high=high, count=count, again=again, time=time, connector_run=connector_run)

    @property
    def stream(self) -> StreamPosition:
        return StreamPosition(self.high, self.count, self.again, self.time, self.connector_run)


@dataclass(frozen=True, slots=True)
class Position:
    """How far one partition of the source is ingested. The other fields: the stream position."""

    topic: str
    partition: int
    next_offset: int
    high: tuple[int, ...]
    count: int = 0
    again: int | None = None
    time: int | None = None
    connector_run: str = ""

    def advance(self, next_offset: int, stream: StreamPosition) -> Position:
        return Position(self.topic, self.partition, next_offset, *stream)

    @property
    def stream(self) -> StreamPosition:
        return StreamPosition(self.high, self.count, self.again, self.time, self.connector_run)
