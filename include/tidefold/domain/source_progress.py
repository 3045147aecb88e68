"""What was taken of the source: an account of each landed file, and how far each partition has come."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class NameReading(StrEnum):
    """How a log reads the names of its landed files.

    KAFKA: `topic+partition+offset`, no other name is taken.
    KAFKA_DASH: also `topic-partition-offset`.
    ANY: a name says nothing; each file is taken by itself.
    """

    KAFKA = "kafka"
    KAFKA_DASH = "kafka-dash"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class LandedFileRecord:
    """What was taken from one landed file: `length` bytes with that sha256, the offsets [first, next).

    `changed` is the file's own time of change then (seconds): another one is a reason to look at its bytes again.
    `high` is the highest order seen in the partition up to its end; empty where that was not kept; `count`, `again` and
    `time` belong to it: see Position. `run` and `instant` (ISO 8601) say for people which ingest took it, and when.

    The counts add up: records = changes + tombstones + repeated + resent + unproved + quarantined + ignored.
    `repeated`: the same bytes came before at the same offset; `resent`: the source's own order says that it sent the
    record before; `unproved`: the offset was taken, and nothing shows any more what was there. Accounts of older
    versions have all three in `repeated`.

    `truncates`: how often the source emptied the whole table.
    `key_changes` of the quarantined ones wait for values of the row under their old key. `settled`: how many records
    somebody settled by hand, who and why; they count as ignored.

    Not `complete`: a record after the last counted one stopped the log. It and what follows in these bytes wait.
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


@dataclass(frozen=True, slots=True)
class Position:
    """How far one partition of the source has been taken, and the highest order seen in it.

    `time` is the latest commit time (microseconds) seen. Where equal records must stay apart, `count` says how many
    records carried the highest order, and `again` how many of these came once more since the source went back.
    """

    topic: str
    partition: int
    next_offset: int
    high: tuple[int, ...]
    count: int = 0
    again: int | None = None
    time: int | None = None
