"""What was ingested from the source: a record of each landed file, and the position of each partition."""

from __future__ import annotations

import json
import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

# The suffix of a record that stands for all files of a partition before an import or a rebuild.
IMPORTED = "+imported"
# The partition of rows that were loaded from the database itself: no topic has it (decision 0096).
LOADED = -1
# In the order of a record of PostgreSQL: the connector had seen no commit.
NO_COMMIT = -1
# A position names so many snapshots by signal.
SIGNALLED = 8
# The name of the time to live among what metadata brings to a log. No column can have it.
TTL_DAYS = "ttl.days"


class NameReading(StrEnum):
    """How a log reads the names of its landed files.

    KAFKA: only `topic+partition+offset`.
    KAFKA_DASH: also `topic-partition-offset`.
    ANY: names have no meaning, and each file is ingested separately.
    DATED: the same, but each name has a time, which orders the rows of the file.
    """

    KAFKA = "kafka"
    KAFKA_DASH = "kafka-dash"
    ANY = "any"
    DATED = "dated"

    @property
    def has_offsets(self) -> bool:
        """Whether names place the records of a file. If not, the number of the file and the row do."""
        return self in (NameReading.KAFKA, NameReading.KAFKA_DASH)


def parse_lsn(text: str) -> int:
    """Returns a position as PostgreSQL writes it as a number."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def is_no_commit(commit: int, early: tuple[int, ...], high: tuple[int, ...]) -> bool:
    """Whether what a record says of the last commit is none. A commit is behind all events that were sent before.

    A connector that starts again before it has seen a commit says what it processed last: the snapshot, or an event.
    early, high: as `early` and `max_order` of a position.
    """
    if commit == NO_COMMIT or not high:
        return commit == NO_COMMIT
    return commit < max(high[0] + 1, high[1]) if high[0] in early[:2] else high[0] < commit < high[1]


class StreamPosition(NamedTuple):
    """The highest order of the source seen in one partition. It is stored as a list, in this order of its fields.

    max_order: the highest order seen; empty: it was not recorded.
    records_at_max: how many records had that order. Counted only if equal records are different changes.
    replayed_at_max: how many of them the source has sent again since it went back; None: it did not go back.
    max_commit_time: the latest commit time seen, in microseconds.
    connector_run: which start of the connector sent the last record, where records say so. Kept only where equal
        records must stay apart.
    columns: columns that a record may lack by the configuration, and that a record of the partition has brought: a
        later one that lacks them shows that the source dropped them.
    signalled: the last snapshots that a signal asked for: the order of their rows, then the time at which they were
        read. They may show changes that follow them in the stream.
    begun: the newest snapshot of the source that began: the order of its rows, then 1 for its first row alone, else 2.
    ended: the order of the newest one whose last row came, in whichever partition of the topic.
    early: what the connector sent last before it had seen a commit (decision 0068): the position of the snapshot before
        it (else that of its first event, and 0 at the end), of its last event, then of the first commit behind it.
    replaced: the position of the newest snapshot that replaced the rows.
    since: below which the slot of the newest load has no event.
    """

    max_order: tuple[int, ...] = ()
    records_at_max: int = 0
    replayed_at_max: int | None = None
    max_commit_time: int | None = None
    connector_run: str = ""
    columns: tuple[str, ...] = ()
    signalled: tuple[tuple[int, ...], ...] = ()
    begun: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    early: tuple[int, ...] = ()
    replaced: int = 0
    since: int = 0

    def after(self, former: StreamPosition) -> StreamPosition:
        """Returns this position of a file's reader, which may not have known what the partition had reached."""
        highest = ("max_order", "begun", "ended", "replaced", "since")
        early = max(former.early, self.early)
        if former.early[2:] == (0,) and early[2:3] == (0,):  # One transaction, whose first event the file did not know.
            early = (former.early[0], *early[1:])
        return self._replace(
            **{name: max(getattr(former, name), getattr(self, name)) for name in highest},
            early=early,
            max_commit_time=latest_commit_time((former, self)),
            columns=tuple(sorted({*former.columns, *self.columns})),
            signalled=tuple(sorted({*former.signalled, *self.signalled})[-SIGNALLED:]),
        )

    @property
    def counted(self) -> tuple[object, ...]:
        """What decides which of equal records came again."""
        return self.max_order, self.records_at_max, self.replayed_at_max, self.connector_run


NO_POSITION = StreamPosition()


def latest_commit_time(streams: Iterable[StreamPosition]) -> int | None:
    """Returns the latest commit time of these positions; None: none has one."""
    return max((one.max_commit_time for one in streams if one.max_commit_time is not None), default=None)


@dataclass(frozen=True, slots=True)
class LandedFileRecord:
    """The record of one landed file. A file that grows has a record for each part.

    The counts add up: records = changes + tombstones + repeated + resent + unproved + quarantined + ignored.

    length, checksum: how many bytes were read, and their sha256.
    first_offset, next_offset: the offsets [first, next).
    repeated: the same bytes came before at the same offset.
    resent: the source's own order shows that it sent the record before.
    unproved: the offset was ingested before, and the earlier record is no longer there to compare with.
    forgotten: how many of the unproved records lie below the position at which the log was imported, or its ledger
        was rebuilt: the log knows the offset, but not the file.
    changed: the file's modification time in seconds. If it differs, the next ingest reads the file's bytes again.
    stream: the stream position of the partition after the file.
    run, instant: which run ingested the file, and when (ISO 8601), for people.
    complete: false if a record stopped the partition. That record and all later ones wait.
    truncates: how often the source emptied the whole table.
    key_changes: how many of the quarantined records wait for what the log had under a key: see `is_awaiting`.
    settled: how many records a person settled by hand, with name and reason; or how many were refused before an import
        or a rebuild. These records count as ignored.
    etag: the object store's ETag of the file; empty for a file on a disk.
    retried: how many refused records each retry took, after its last change set (sqn): before that they were refused.
    change_sets: how many change sets its changes are in; `sqn` is the last one.
    """

    number: int
    name: str
    length: int
    checksum: str
    topic: str
    partition: int = 0
    first_offset: int = 0
    next_offset: int = 0
    records: int = 0
    changes: int = 0
    tombstones: int = 0
    repeated: int = 0
    quarantined: int = 0
    ignored: int = 0
    sqn: int | None = None
    quarantine: str | None = None
    changed: float = 0.0
    stream: StreamPosition = NO_POSITION
    run: str = ""
    instant: str = ""
    complete: bool = True
    truncates: int = 0
    key_changes: int = 0
    resent: int = 0
    unproved: int = 0
    forgotten: int = 0
    settled: tuple[str, ...] = ()
    etag: str = ""
    retried: tuple[tuple[int, int], ...] = ()
    change_sets: int = 1

    @property
    def sqns(self) -> range:
        """The numbers of its change sets."""
        return range(0) if self.sqn is None else range(self.sqn - self.change_sets + 1, self.sqn + 1)

    @property
    def refused(self) -> int:
        """How many records were refused, and did not become changes later."""
        return self.quarantined + (self.ignored if self.settled else 0)

    def count_retried(self, sqn: int) -> int:
        """Returns how many refused records a retry took after this change set."""
        return sum(taken for last, taken in self.retried if last > sqn)

    def count_refused(self, sqn: int) -> int:
        """Returns `refused` as it was when the log ended with this change set."""
        return self.refused + self.count_retried(sqn)

    @property
    def brought(self) -> int:
        """How many of its records counted, as far as the log knows."""
        return self.changes + self.tombstones + self.unproved

    @property
    def is_copy(self) -> bool:
        """Whether nothing of a file without offsets was taken, because another file had its bytes."""
        return not self.next_offset and self.records > 0 and self.repeated == self.records


@dataclass(frozen=True, slots=True)
class Position:
    """How far one partition of the source is ingested."""

    topic: str
    partition: int
    next_offset: int
    stream: StreamPosition = NO_POSITION


def name_partition(partition: int) -> str:
    """Returns a partition as people see it: rows that were loaded have one that no topic has."""
    return "loaded" if partition == LOADED else str(partition)


def list_streamed(positions: Iterable[Position]) -> list[Position]:
    """Returns the positions of what the source streams, without that of loaded rows."""
    return [one for one in positions if one.partition != LOADED]


def stream_at(positions: Iterable[Position], partition: int) -> StreamPosition:
    """Returns where a partition goes on. Loaded rows are a snapshot that came before, in every partition."""
    streams = {one.partition: one.stream for one in positions if one.partition in (partition, LOADED)}
    stream = streams.get(partition, NO_POSITION)
    return stream.after(streams[LOADED]) if LOADED in streams and any(streams[LOADED].max_order) else stream


@dataclass(frozen=True, slots=True)
class FollowedTtl:
    """The time to live that a trusted metadata set. It counts as long as the configuration has `configured` days."""

    days: int
    configured: int


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """All that a log must know of its source to continue: what a manifest, a savepoint and an import carry.

    positions: how far each partition is ingested.
    names: how the log reads the names of landed files.
    last_file: the number of the last landed file.
    files: the ingested files whose names say nothing about offsets, packed by `pack_files`.
    followed_ttl: the time to live that its metadata set.
    """

    positions: tuple[Position, ...] = ()
    names: NameReading | None = None
    last_file: int = 0
    files: str = ""
    followed_ttl: FollowedTtl | None = None


NO_PROGRESS = SourceProgress()


def pack_files(landed: Iterable[LandedFileRecord], sqn: int) -> str:
    """Returns the files without offsets as one short text: their numbers, and what shows that a file was ingested.

    sqn: how many of their records were refused then.
    """
    rows = [
        (e.number, e.name, e.length, e.checksum, e.records, e.complete, e.changed, e.etag, e.count_refused(sqn))
        for e in landed
        if not e.next_offset and e.length and not e.is_copy
    ]
    return b85encode(zlib.compress(json.dumps(rows).encode())).decode() if rows else ""


def unpack_files(progress: SourceProgress) -> tuple[LandedFileRecord, ...]:
    """Returns a record of each packed file. The log knows the file, but no longer what became of its records."""
    rows = json.loads(zlib.decompress(b85decode(progress.files))) if progress.files else []
    # Such files are all of one partition.
    topic = progress.positions[0].topic if progress.positions else ""
    return tuple(_stand_for(topic, *one) for one in rows)


def _stand_for(
    topic: str,
    number: int,
    name: str,
    length: int,
    checksum: str,
    records: int,
    complete: bool,
    changed: float,
    etag: str,
    refused: int,
) -> LandedFileRecord:
    return LandedFileRecord(
        *(number, name, length, checksum, topic),
        records=records,
        unproved=records - refused,
        forgotten=records - refused,
        ignored=refused,
        settled=(f"{refused} refused before",) if refused else (),
        complete=complete,
        changed=changed,
        etag=etag,
    )
