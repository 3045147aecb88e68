"""Plans which landed files an ingest takes, from which byte on, in strict offset order, by what was taken. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby

from tidefold.domain.log_state import LandedFileRecord, LogState, Position
from tidefold.domain.source_progress import NO_POSITION, StreamPosition, stream_at
from tidefold.sources.landing.completeness import Ending
from tidefold.sources.landing.folders import folder_at, start_in
from tidefold.sources.landing.listing import LandedFile, sort_by_arrival
from tidefold.sources.landing.problems import FileProblem, report_changed, report_empty
from tidefold.sources.landing.streams import BLOCK, CutShortError, DamagedError, ShrunkError, is_packed_name

# Two files of a partition overlap if a sink exports a range again, if a file is renamed, or if two producers count
# from the same beginning. Only the text of a record distinguishes these cases, never its number alone.
_BEYOND = 1 << 63
UNREADABLE = (OSError, ValueError, CutShortError, DamagedError, ShrunkError)
# How many bytes to parse one byte of gzip stands for: Debezium's JSON shrinks 15 to 45 times.
_GZIP_WEIGHT = 20
# A task names so many files before its own.
BEFORE = 64
# Whether the log had a row under a key before an order.
Formers = Mapping[tuple[object, ...], Mapping[tuple[int, ...], bool]]


class Match(Enum):
    """Whether the file that brought an offset has the same record there."""

    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TakenFile:
    """A landed file that brought offsets which another file of its partition may bring again.

    name: as the ledger has it.
    root, path: folder of the log, and where the file lies in it now; an empty path: it is gone.
    packed: whether its bytes are gzip or zstandard.
    length, checksum: how many bytes were taken, and their sha256.
    start: the offset that its name says; -1 when it says none.
    taken: the offsets that it brought, as ordered intervals [first, next).
    """

    name: str
    root: str
    path: str
    packed: bool
    length: int
    checksum: str
    start: int
    taken: tuple[tuple[int, int], ...]

    def covers(self, offset: int) -> bool:
        """Whether an offset is among those that the file brought."""
        return any(first <= offset < end for first, end in self.taken)


# The records of a taken file with their offsets, in the order of the file.
ReadRecords = Callable[[TakenFile], Iterator[tuple[int, bytes]]]


@dataclass(slots=True)
class TakenRecords:
    """The records that a partition has taken, read again side by side with a file that brings their offsets.

    files: the files that brought them.
    """

    files: Sequence[TakenFile]
    read: ReadRecords
    _intact: dict[str, bool] = field(default_factory=dict)
    _open: TakenFile | None = None
    _records: Iterator[tuple[int, bytes]] = field(default_factory=lambda: iter(()))
    _asked: int = -1
    _offset: int = -1
    _text: bytes = b""

    def compare(self, offset: int, text: bytes) -> tuple[Match, str]:
        """Whether the record taken at this offset has this text, and the name of the file that brought it."""
        file = next((f for f in self.files if f.covers(offset)), None)
        if file is None or not self._is_intact(file):
            return Match.UNKNOWN, file.name if file else ""
        try:
            if self._open is not file or offset < self._asked:
                self._open, self._records, self._offset = file, self.read(file), -1
            self._asked = offset
            # Skips records whose offsets fall back: they were refused.
            while self._offset < offset:
                record = next(self._records, (_BEYOND, b""))
                if record[0] > self._offset:
                    self._offset, self._text = record
        except UNREADABLE:
            self._intact[file.name] = False
            return Match.UNKNOWN, file.name
        same = self._offset == offset and self._text == text
        return Match.SAME if same else Match.OTHER, file.name

    def _is_intact(self, file: TakenFile) -> bool:
        """Whether the file still has the bytes that were ingested."""
        if file.name not in self._intact:
            self._intact[file.name] = bool(file.path) and _has_bytes(file)
        return self._intact[file.name]


def _has_bytes(file: TakenFile) -> bool:
    digest, left = hashlib.sha256(), file.length
    try:
        with folder_at(file.root).open(file.path) as stream:
            while left and (block := stream.read(min(left, BLOCK))):
                digest.update(block)
                left -= len(block)
    except OSError:
        return False
    return not left and digest.hexdigest() == file.checksum


@dataclass(frozen=True, slots=True)
class FileTask:
    """One landed file to take, and what the log knows about it.

    until: take it up to this byte.
    begin, begin_checksum, records: what was taken before; of a packed file that is the whole file of then.
    next_offset, taken: lower offsets were taken if they are in one of the intervals `taken`.
    stream: the stream position of the partition.
    newest: whether it is the newest file of its partition; only that one may still grow.
    horizon: changes whose first order number is lower come too late.
    resumes: a record stopped the log; the file is read again without the first `records`.
    stops: the reasons for which a refused record ends the partition.
    most: how many records to take; None: all.
    earlier: the files that brought the taken offsets.
    lines: the numbers of the rows to take; None: all.
    before: the files right before it in its partition, the nearest first.
    log_begin: the first offset of its partition that the log has.
    formers: of the keys that a retry asks for, at the first record of a transaction; None: nobody has looked.
    part, parts: which part of the new bytes this task reads, from 0, and of how many; only part 0 has the checksum.
    """

    file: LandedFile
    until: int
    begin: int = 0
    begin_checksum: str = ""
    records: int = 0
    next_offset: int = 0
    taken: tuple[tuple[int, int], ...] = ()
    stream: StreamPosition = NO_POSITION
    newest: bool = True
    horizon: int | None = None
    resumes: bool = False
    stops: tuple[str, ...] = ()
    most: int | None = None
    earlier: tuple[TakenFile, ...] = ()
    lines: frozenset[int] | None = None
    before: tuple[LandedFile, ...] = ()
    log_begin: int = 0
    formers: Formers | None = None
    part: int = 0
    parts: int = 1

    @property
    def from_beginning(self) -> bool:
        """Whether it is read again from its first byte although a part was taken."""
        return self.begin > 0 and (self.file.is_whole or self.resumes)

    @property
    def weight(self) -> int:
        """About how many bytes are to be parsed."""
        if self.file.packed:
            return self.until * _GZIP_WEIGHT
        return (self.until if self.resumes else self.until - self.begin) // self.parts

    def find_cut(self, part: int) -> int:
        """Returns about where a part begins: the first line or row from there on is its first one."""
        return self.begin + (self.until - self.begin) * part // self.parts

    def split(self, size: int) -> list[FileTask]:
        """Returns the parts of a file that is new as a whole or has grown, each with about `size` bytes to parse."""
        is_one = self.file.is_whole or not self.file.alone or self.resumes or self.most is not None
        parts = 1 if is_one else max(1, round(self.weight / size))
        return [replace(self, part=part, parts=parts) for part in range(parts)]


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The planned files, in offset order within each partition. `left`: the endings of files that are incomplete."""

    take: tuple[FileTask, ...] = ()
    left: Mapping[str, Ending] = field(default_factory=dict)
    problems: tuple[FileProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class _TakenSoFar:
    """How much of a file was taken. `is_copy`: nothing, because another file had these bytes."""

    length: int = 0
    checksum: str = ""
    records: int = 0
    complete: bool = True
    is_copy: bool = False


def newest_files(files: Sequence[LandedFile], state: LogState) -> tuple[tuple[LandedFile, int], ...]:
    """The newest file of each partition that is not taken completely, and how many bytes of it were taken."""
    taken = _sum_taken(state.landed)
    last = {f.queue: f for f in files}
    asked = ((f, taken.get(f.name, _TakenSoFar())) for f in last.values())
    return tuple((f, k.length if k.complete else 0) for f, k in asked if f.size > k.length or not k.complete)


def plan_files(files: Sequence[LandedFile], endings: Mapping[str, Ending], state: LogState) -> FilePlan:
    """The plan. `files`: ordered by partition and start. `endings`: of the files of `newest_files`."""
    taken = _sum_taken(state.landed)
    names = {file.name for file in files}
    take: list[FileTask] = []
    left: dict[str, Ending] = {}
    problems: list[FileProblem] = []
    for _, group in groupby(files, key=lambda f: f.queue):
        members = list(group)
        partition = members[0].partition
        position = next((p for p in state.positions if p.partition == partition), None)
        landed = [] if members[0].is_numbered else [p for p in state.landed if p.partition == partition]
        covered = _intervals(landed)
        for at, file in enumerate(members):
            newest, before = file is members[-1], tuple(reversed(members[max(0, at - BEFORE) : at]))
            step = _step(file, taken.get(file.name, _TakenSoFar()), endings.get(file.name), newest)
            if isinstance(step, FileProblem):
                problems.append(step)
                break  # What follows in the partition waits: offsets are taken in order.
            until, torn = step
            if torn:
                left[file.name] = endings.get(file.name, Ending(0))
            if until is not None:
                stream = stream_at(state.positions, partition)
                task = _task(file, until, taken.get(file.name, _TakenSoFar()), position, stream, covered, newest)
                task = (
                    task
                    if file.is_numbered
                    else replace(task, before=before, log_begin=covered[0][0] if covered else 0)
                )
                take.append(replace(task, earlier=_earlier(file, landed, names)) if task.taken else task)
    return FilePlan(_sort_by_arrival(take), left, tuple(problems))


def _sort_by_arrival(tasks: Sequence[FileTask]) -> tuple[FileTask, ...]:
    """Returns the tasks in the order in which the log numbers their files."""
    if not all(task.file.is_numbered for task in tasks):
        return tuple(tasks)
    tasks_of = {task.file: task for task in tasks}
    return tuple(tasks_of[file] for file in sort_by_arrival(list(tasks_of)))


def _step(
    file: LandedFile, taken: _TakenSoFar, ending: Ending | None, newest: bool
) -> FileProblem | tuple[int | None, bool]:
    """A problem, or up to which byte to take the file (None: not at all) and whether more is being written."""
    if file.size < taken.length:
        return report_changed(file.name, f"has {file.size} bytes, but {taken.length} bytes of it were already ingested")
    if ending and ending.problem:
        return ending.problem
    if file.size == 0:
        return (None, True) if newest else report_empty(file.name)
    until = ending.complete if newest and ending else file.size
    is_new = until > taken.length or not taken.complete
    return until if is_new else None, ending is not None and ending.torn


def _task(
    file: LandedFile,
    until: int,
    taken: _TakenSoFar,
    position: Position | None,
    stream: StreamPosition,
    covered: tuple[tuple[int, int], ...],
    newest: bool,
) -> FileTask:
    next_offset = position.next_offset if position else 0
    return FileTask(
        file,
        until,
        # A copy that grows was no copy.
        begin=0 if taken.is_copy else taken.length,
        begin_checksum="" if taken.is_copy else taken.checksum,
        records=0 if taken.is_copy else taken.records,
        next_offset=next_offset,
        taken=covered if file.start < next_offset else (),
        stream=stream,
        newest=newest,
        resumes=not taken.complete,
    )


def _earlier(file: LandedFile, landed: Iterable[LandedFileRecord], names: Collection[str]) -> tuple[TakenFile, ...]:
    """The taken files with offsets that this one may bring again. `names`: the files that still exist.

    A renamed file is found by its bytes, because it was taken under its new name too.
    """
    records = list(landed)
    copies = {(entry.checksum, entry.length): entry.name for entry in records if entry.name in names}
    brought: dict[str, list[LandedFileRecord]] = {}
    for entry in records:
        if entry.first_offset < entry.next_offset and entry.next_offset > file.start:
            brought.setdefault(entry.name, []).append(entry)
    return tuple(
        TakenFile(
            name,
            file.root,
            name if name in names else copies.get((entries[-1].checksum, entries[-1].length), ""),
            is_packed_name(name),
            entries[-1].length,
            entries[-1].checksum,
            start_in(name.rpartition("/")[2]),
            _intervals(entries),
        )
        for name, entries in brought.items()
    )


def limit_plan(plan: FilePlan, bound: Mapping[str, int | None]) -> FilePlan:
    """Returns the plan with the first records of each file only, in the order of the bounds.

    bound: how many records of a file, with those that were taken; None: all. A file without a bound waits.
    """
    take: list[FileTask] = []
    at = {name: number for number, name in enumerate(bound)}
    for task in sorted(plan.take, key=lambda task: at.get(task.file.name, 0)):
        most = bound.get(task.file.name, 0)
        if most is None:
            take.append(task)
        elif most > task.records:
            take.append(replace(task, most=most - task.records))
    return replace(plan, take=tuple(take))


def _sum_taken(landed: Iterable[LandedFileRecord]) -> dict[str, _TakenSoFar]:
    """The sum of what was taken of each file, which may have grown several times."""
    totals: dict[str, _TakenSoFar] = {}
    for account in landed:
        before = totals.get(account.name, _TakenSoFar())
        records = account.records if before.is_copy else before.records + account.records
        totals[account.name] = _TakenSoFar(account.length, account.checksum, records, account.complete, account.is_copy)
    return totals


def _intervals(landed: Iterable[LandedFileRecord]) -> tuple[tuple[int, int], ...]:
    """The offsets taken, as ordered intervals [first, next) that do not touch."""
    merged: list[tuple[int, int]] = []
    for first, end in sorted((a.first_offset, a.next_offset) for a in landed if a.first_offset < a.next_offset):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return tuple(merged)


def bins(tasks: Sequence[FileTask], size: int) -> list[tuple[FileTask, ...]]:
    """Neighbouring files together, up to about `size` bytes to parse in each bin."""
    packed: list[list[FileTask]] = []
    weight = size
    for task in tasks:
        # Two parts of a file are never together: their refused records do not say which part they are of.
        if not packed or weight + task.weight > size or task.part:
            packed.append([])
            weight = 0
        packed[-1].append(task)
        weight += task.weight
    return [tuple(members) for members in packed]
