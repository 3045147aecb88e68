"""What was taken of the source: an account of each landed file, and how far each partition has come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple


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
    """How far the source's own order has come in one partition.

    max_order: the highest order seen; empty where it was not recorded.
    records_at_max: how many records had that order. Counted only where equal records must stay apart.
    replayed_at_max: how many of them came again since the source went back; None: it did not go back.
    max_commit_time: the latest commit time seen, in microseconds.
    """

    max_order: tuple[int, ...] = ()
    records_at_max: int = 0
    replayed_at_max: int | None = None
    max_commit_time: int | None = None


NO_POSITION = StreamPosition()


@dataclass(frozen=True, slots=True)
class LandedFileRecord:
    """What was taken from one landed file. One that grows has a record for each part.

    The counts add up: records = changes + tombstones + repeated + resent + unproved + quarantined + ignored.

    length, checksum: the bytes that were read, and their sha256.
    first_offset, next_offset: the offsets [first, next).
    repeated: the same bytes came before at the same offset. In older versions also what is now resent and unproved.
    resent: the source's own order shows that it sent the record before.
    unproved: the offset was taken, and nothing shows any more what was there.
    changed: the file's time of change in seconds. Another one is a reason to look at its bytes again.
    high, count, again, time: the stream position of the partition after the file.
    run, instant: which ingest took the file, and when (ISO 8601), for people.
    complete: false if a record after the last counted one stopped the log. That record and what follows wait.
    truncates: how often the source emptied the whole table.
    key_changes: how many of the quarantined records wait for values of the row under their old key.
    settled: how many records a person settled by hand, who and why. These records count as ignored.
    etag: what the object store called the bytes; empty for a file on a disk.
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
    settled: tuple[str, ...] = ()
    etag: str = ""

    def with_stream(self, stream: StreamPosition) -> LandedFileRecord:
        high, count, again, time = stream
        return replace(self, high=high, count=count, again=again, time=time)

    @property
    def stream(self) -> StreamPosition:
        return StreamPosition(self.high, self.count, self.again, self.time)


@dataclass(frozen=True, slots=True)
class Position:
    """How far one partition of the source has been taken. `high`, `count`, `again`, `time`: the stream position."""

    topic: str
    partition: int
    next_offset: int
    high: tuple[int, ...]
    count: int = 0
    again: int | None = None
    time: int | None = None

    def advance(self, next_offset: int, stream: StreamPosition) -> Position:
        return Position(self.topic, self.partition, next_offset, *stream)

    @property
    def stream(self) -> StreamPosition:
        return StreamPosition(self.high, self.count, self.again, self.time)
