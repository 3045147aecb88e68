"""Merges the results of the tasks of an ingest in offset order.

Tasks parse files in parallel, and each knows only what the log had before. The merge puts the files in order: changes
below the highest order of an earlier file were sent again, and get a floor. If a file must be read again with that
knowledge, it waits for another round; the results of the files behind it are kept until it is their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidefold.domain.ingest.append import IngestedFile, append
from tidefold.domain.log_state import ChangeSet, LandedFileRecord, LogState, Position, TableSpec
from tidefold.domain.table.table_spec import ARRIVAL, COLUMNS, POSITION, VERSION
from tidefold.sources.ingest.accounting import COUNTING, Account
from tidefold.sources.ingest.parse_task import FileResult
from tidefold.sources.ingest.plan import FileTask
from tidefold.sources.landing.problems import FileProblem, report_late_dump


@dataclass(frozen=True, slots=True)
class RemainingChanges:
    """What is left of a change set above its floor.

    rows, changes: how many; a change may have several rows.
    dropped: the latest commit time of what is below the floor.
    """

    rows: int
    changes: int
    dropped: int | None = None


# Counts what is left of a change set above its floor.
Count = Callable[[ChangeSet], RemainingChanges]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of one file, the task that it was read with, and the quarantine file of the Spark task."""

    task: FileTask
    result: FileResult
    quarantine: str | None


@dataclass(frozen=True, slots=True)
class MergedResults:
    """The outcome of a merge.

    state: the log with `arrivals` appended.
    stopped: queues that a problem holds up.
    again: names of files that must be read again.
    """

    state: LogState
    arrivals: tuple[IngestedFile, ...]
    problems: tuple[FileProblem, ...]
    stopped: frozenset[int | str]
    again: frozenset[str]


def merge(state: LogState, tasks: Sequence[FileTask], found: Mapping[str, TaskResult], count: Count) -> MergedResults:
    """Appends the files, each partition up to its first problem or to the first file that needs another round."""
    arrivals: list[IngestedFile] = []
    problems: list[FileProblem] = []
    waiting: set[int | str] = set()
    again: set[str] = set()
    for task in tasks:
        file = task.file
        if file.queue in waiting:
            continue
        here = found[file.name]
        position = _position(state, task)
        if _is_early_stop(here, position):
            again.add(file.name)
            waiting.add(file.queue)
            continue
        account = here.result.account
        if account and _is_late_dump(state, account):
            problems.append(report_late_dump(file.name, state.log))
            waiting.add(file.queue)
            continue
        arrival = None
        if account and not needs_another_look(here.task, account, position, state.shape):
            arrival = _arrival(task, here, account, position, count)
        if arrival:
            arrivals.append(arrival)
            state = append(state, [arrival])
        elif account:
            again.add(file.name)
        if here.result.problem and file.name not in again:
            problems.append(here.result.problem)
        if here.result.problem or not arrival:
            waiting.add(file.queue)
    stopped = frozenset(t.file.queue for t in tasks if any(p.file == t.file.name for p in problems))
    return MergedResults(state, tuple(arrivals), tuple(problems), stopped, frozenset(again))


def _is_late_dump(state: LogState, account: Account) -> bool:
    """Whether the changes of a file are older than every change of a source, and a snapshot may have newer rows.

    A snapshot has no positions of its rows: a later change of a key replaces its row, whatever its position.
    """
    snapshot = state.latest or state.open_attempt
    highest = account.stream.max_order
    by_source = state.shape.order not in (ARRIVAL, POSITION, VERSION, COLUMNS)
    load = account.changes > 0 and account.snapshot is None and bool(highest) and not any(highest)
    return snapshot is not None and by_source and load


def _is_early_stop(found: TaskResult, position: Position) -> bool:
    """Whether the record that stopped the log may have been sent before, which its reader could not know."""
    problem = found.result.problem
    return problem is not None and problem.stops and found.task.stream.max_order != position.high


def needs_another_look(task: FileTask, account: Account, position: Position, shape: TableSpec) -> bool:
    """Whether an earlier file of the same run changes how this one must be read."""
    moved = task.next_offset < position.next_offset
    if moved and account.lowest is not None and account.lowest < position.next_offset:
        return True  # Offsets overlap.
    # Rows of an initial snapshot after other records: is it the same snapshot?
    high, read_with = position.high, task.stream.max_order
    if high and high != read_with and account.snapshot is not None and account.snapshot != high:
        return True
    # Its reader must know the highest order to decide whether a refused record was sent before.
    lowest = min((one for one in (account.low, account.refused_low) if one is not None), default=None)
    if account.refused_low is not None and high != read_with and (lowest or ()) < high:
        return True
    # Which of equal records came again depends on how many there were.
    begun, stream = (one._replace(max_commit_time=None) for one in (task.stream, position.stream))
    uncertain = shape.merge.engine in COUNTING and begun != stream
    return uncertain and (lowest is None or lowest <= high)


def _position(state: LogState, task: FileTask) -> Position:
    file = task.file
    known = next((p for p in state.positions if (p.topic, p.partition) == (file.topic, file.partition)), None)
    return known or Position(file.topic, file.partition, 0, ())


def _arrival(
    task: FileTask, found: TaskResult, account: Account, before: Position, count: Count
) -> IngestedFile | None:
    """None if records that look re-sent may be new: then the reader must know what came before."""
    latest = max((time for time in (before.time, account.stream.max_commit_time) if time is not None), default=None)
    high = max(before.high, account.stream.max_order)
    stream = account.stream._replace(max_order=high, max_commit_time=latest)
    floor = before.high if account.low is not None and account.low < before.high else None
    written = found.result.written
    change_set = written.change_set(high, floor) if written else None
    kept = RemainingChanges(change_set.rows if change_set else 0, account.changes if change_set else 0)
    if change_set and change_set.floor is not None:
        kept = count(change_set)
        change_set = replace(change_set, rows=kept.rows) if kept.rows else None
        if before.time is not None and kept.dropped is not None and kept.dropped > before.time:
            return None
    # A file without new offsets takes an empty interval at the partition's position.
    stand = before.next_offset or task.file.start
    first = stand if account.first is None else account.first
    end = first if account.last is None else account.last + 1
    landed = replace(_build_record(task, found, account, kept), first_offset=first, next_offset=end)
    return IngestedFile(landed, change_set, before.advance(end, stream), task.file.names)


def _build_record(task: FileTask, found: TaskResult, account: Account, kept: RemainingChanges) -> LandedFileRecord:
    """The record of a file; its offsets and its number are not yet known."""
    quarantined = sum(account.refused.values())
    return LandedFileRecord(
        number=0,
        name=task.file.name,
        length=task.until,
        checksum=found.result.checksum,
        topic=task.file.topic,
        partition=task.file.partition,
        first_offset=0,
        next_offset=0,
        records=account.records,
        changes=kept.changes,
        tombstones=account.tombstones,
        repeated=account.repeated,
        resent=account.resent + account.changes - kept.changes,
        unproved=account.unproved,
        forgotten=account.forgotten,
        quarantined=quarantined,
        ignored=account.ignored,
        sqn=None,
        quarantine=found.quarantine if quarantined else None,
        changed=task.file.stamp.changed,
        etag=task.file.stamp.etag,
        complete=found.result.problem is None and task.most is None,
        truncates=account.truncates if kept.changes else 0,
        key_changes=account.refused.get("UNAVAILABLE_AFTER_KEY_CHANGE", 0),
    )
