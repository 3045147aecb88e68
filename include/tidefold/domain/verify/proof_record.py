"""What is known of the proofs of a log, and what of its files the next scrub reads. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

# After this time a proof or a drill is reported as old. No decision depends on it.
OLD_AFTER = timedelta(days=35)


@dataclass(frozen=True, slots=True)
class ReaderProof:
    """What Delta's reader on Spark returned of a published snapshot.

    instant: when it was read (ISO 8601, for people).
    rows, files: how many it returned. hashed: of how many files Spark hashed the bytes.
    error, hint: how that differs from what was judged, and the next step; empty: it does not.
    """

    snapshot: int
    instant: str
    rows: int = 0
    files: int = 0
    hashed: int = 0
    error: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class SourceProof:
    """What a comparison of the published table with its source proved.

    instant, by: when it ended (ISO 8601, for people), and who asked. table, connection: what was compared with.
    snapshots: the first and the last that was looked at. looks: how often.
    equal, moving, differ: how many keys are equal at rest, changed in every look, and differ.
    apart: how many differences of each known kind were counted apart.
    waiting: what differed at rest once: key, hashes of both sides, and since when (seconds since 1970).
    left_out: columns that were not compared. not_there: columns of the source that the log does not have.
    groups, checksum: how many groups of keys were counted, and the sha256 of their numbers and checksums.
    error, hint: what differs, or why nothing can be told, and the next step; empty: all is equal.
    """

    instant: str
    by: str
    connection: str
    table: str
    snapshots: tuple[int, int]
    looks: int = 0
    equal: int = 0
    moving: int = 0
    differ: int = 0
    apart: Mapping[str, int] = field(default_factory=dict)
    waiting: tuple[tuple[str, int | None, int | None, float], ...] = ()
    left_out: tuple[str, ...] = ()
    not_there: tuple[str, ...] = ()
    groups: int = 0
    checksum: str = ""
    error: str = ""
    hint: str = ""

    @property
    def sentence(self) -> str:
        """What was proved, in one sentence."""
        first, last = self.snapshots
        which = f"snapshot {first}" if first == last else f"snapshots {first} to {last}"
        return f"{which}: {self.equal:,} keys equal at rest, {self.moving:,} still moving, {self.differ:,} differ"


@dataclass(frozen=True, slots=True)
class ProofRecord:
    """What is known of the newest proofs of a log: of scrubs, and of complete runs of `verify`.

    number: counts the records of a log.
    instant: when the newest of them ended (ISO 8601, for people).
    by: `scrub` or `verify`.
    position: the place on the ring up to which the present round has read; empty: the next run begins a round.
    read_files, read_bytes: read in the newest round, or in the one under way.
    files, bytes: what the log had then.
    proved: when the newest round that read every file ended; empty: none did.
    damaged: names of the files with damage that is left. Each run reads them again.
    readers: the newest proof of what readers on Spark get.
    source: the newest comparison with the source.
    """

    number: int = 0
    instant: str = ""
    by: str = ""
    position: str = ""
    read_files: int = 0
    read_bytes: int = 0
    files: int = 0
    bytes: int = 0
    proved: str = ""
    damaged: tuple[str, ...] = ()
    readers: ReaderProof | None = None
    source: SourceProof | None = None

    @property
    def share(self) -> float:
        """The share of the log's bytes that the newest round, or the one under way, has read: 0 to 1."""
        if not self.position and self.proved:
            return 1.0
        return min(self.read_bytes / self.bytes, 1.0) if self.bytes else 0.0


@dataclass(frozen=True, slots=True)
class ScrubBudget:
    """How much a run reads of a log: `share` of its bytes, or `bytes`. At least one file."""

    share: float = 0.05
    bytes: int | None = None

    def of(self, total: int) -> int:
        """Returns the budget in bytes."""
        return math.ceil(self.share * total) if self.bytes is None else self.bytes


@dataclass(frozen=True, slots=True)
class ScrubChoice:
    """What one run reads.

    names: the files, those with known damage among them.
    position: the place on the ring that the run reaches; empty: the round ends.
    files, bytes: how much of the round that is, without files that are only read again.
    """

    names: frozenset[str]
    position: str
    files: int
    bytes: int


# The files of a log are on a ring, by the sha256 of their names. A round goes once around the ring, a share in each
# run. New files can be anywhere on the ring, so they never prevent the end of a round.
def place_on_ring(name: str) -> str:
    """Returns the position of a file on the ring."""
    return hashlib.sha256(name.encode()).hexdigest()


def choose_files(sizes: Mapping[str, int], position: str, budget: int, damaged: Collection[str] = ()) -> ScrubChoice:
    """The next files after `position`, until they have `budget` bytes together: at least one file, if there is one.

    The file that reaches the budget is the last, so a run reads less than the budget and one file.
    """
    left = sorted((place_on_ring(name), name) for name in sizes if place_on_ring(name) > position)
    chosen: list[tuple[str, str]] = []
    total = 0
    for place, name in left:
        if chosen and total >= budget:
            break
        chosen.append((place, name))
        total += sizes[name]
    again = [name for name in damaged if name in sizes]
    reached = chosen[-1][0] if len(chosen) < len(left) else ""
    return ScrubChoice(frozenset([*(name for _, name in chosen), *again]), reached, len(chosen), total)


def record_scrub(
    before: ProofRecord, choice: ScrubChoice, sizes: Mapping[str, int], damaged: Collection[str], instant: str
) -> ProofRecord:
    """The record after a run. A round that ends proves the log, if no damage is left."""
    begins = not before.position
    ends = not choice.position and not damaged
    return replace(
        before,
        number=before.number + 1,
        instant=instant,
        by="scrub",
        position=choice.position,
        read_files=choice.files + (0 if begins else before.read_files),
        read_bytes=choice.bytes + (0 if begins else before.read_bytes),
        files=len(sizes),
        bytes=sum(sizes.values()),
        proved=instant if ends else before.proved,
        damaged=tuple(sorted(damaged)),
    )


def record_verify(before: ProofRecord, sizes: Mapping[str, int], damaged: Collection[str], instant: str) -> ProofRecord:
    """The record after a `verify` that has read every file: the next scrub begins a round."""
    every = ScrubChoice(frozenset(sizes), "", len(sizes), sum(sizes.values()))
    return replace(record_scrub(replace(before, position=""), every, sizes, damaged, instant), by="verify")


def is_old(instant: str, now: str) -> bool:
    """Whether a proof or a drill of that instant is to be repeated."""
    return datetime.fromisoformat(now) - datetime.fromisoformat(instant) > OLD_AFTER
