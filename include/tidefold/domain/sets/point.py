"""Finds the point of a source's log up to which every log of a set has all its records. Pure.

The proof is the connector's transaction topic: for each transaction it says how many records each table has. A
position is the position of a commit in the source's log. Decision 0048 explains why the rules are sound.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidefold.domain.sets.progress import LogProgress, RecordRun


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """The end of a transaction, as the transaction topic says it.

    position: the position of its commit. offset: the offset of the END record.
    counts: the number of records of each table.
    """

    id: str
    position: int
    offset: int
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a log is cut at a point: records from this offset on come later, and the one before it does not."""

    log: str
    offset: int


@dataclass(frozen=True, slots=True)
class SetPoint:
    """A point of the source's log.

    position: the position of the last commit that it contains.
    transaction: the id of that transaction; empty: the point is the initial snapshot.
    read_to: the offset of the last END record that it contains; -1: none.
    cuts: where each log is cut.
    """

    position: int
    transaction: str
    read_to: int
    cuts: tuple[Cut, ...]

    def cut(self, log: str) -> int | None:
        """Returns where a log is cut; None: the log is not part of the point."""
        return next((one.offset for one in self.cuts if one.log == log), None)


@dataclass(frozen=True, slots=True)
class FoundPoint:
    """The result of a search.

    point: the newest proved point; None: there is none yet.
    waits: for each log that holds the set back, the reason.
    newest: the position of the newest transaction whose END has landed; None: no END is new.
    """

    point: SetPoint | None
    waits: Mapping[str, str]
    newest: int | None


def find_point(ends: Sequence[TransactionEnd], logs: Mapping[str, LogProgress], before: SetPoint | None) -> FoundPoint:
    """Finds the newest point that is proved for all logs. It is never older than `before`.

    ends: the END records after `before`, in offset order without a gap. Records that were sent again are left out.
    """
    fresh = _leave_out_resent(ends, before)
    judges = {log: _LogJudge(progress, fresh) for log, progress in logs.items()}
    newest = fresh[-1].position if fresh else None
    chosen = next((e for e in reversed(fresh) if all(j.has_all_to(e.position) for j in judges.values())), None)
    if chosen:
        position, transaction, read_to = chosen.position, chosen.id, chosen.offset
    elif before:
        position, transaction, read_to = before.position, before.transaction, before.read_to
    else:
        start = _find_snapshot(logs)
        if start is None:
            return FoundPoint(None, _explain(judges, newest), newest)
        position, transaction, read_to = start, "", -1
    cuts = tuple(_find_cuts(judges, position, before))
    waits = _explain(judges, newest) if newest is not None and newest > position else {}
    return FoundPoint(SetPoint(position, transaction, read_to, cuts), waits, newest)


def _find_cuts(judges: Mapping[str, _LogJudge], position: int, before: SetPoint | None) -> Iterator[Cut]:
    """Yields where each log is cut. A log for which an older point is not proved keeps its cut of then, or has none.

    Such a log went on while it was in no set, or came into the set after that point.
    """
    for log, judge in sorted(judges.items()):
        offset = judge.cut_at(position) if judge.has_all_to(position) else before.cut(log) if before else None
        if offset is not None:
            yield Cut(log, offset)


def _leave_out_resent(ends: Sequence[TransactionEnd], before: SetPoint | None) -> list[TransactionEnd]:
    """Returns each transaction once: the connector sends ENDs again after a kill, with the same positions."""
    reached = before.position if before else -1
    fresh: list[TransactionEnd] = []
    for end in ends:
        if end.position > reached:
            fresh.append(end)
            reached = end.position
    return fresh


def _find_snapshot(logs: Mapping[str, LogProgress]) -> int | None:
    """Returns the position of the initial snapshot if it is the whole content of a set that begins."""
    positions = set()
    for log in logs.values():
        if not log.is_fresh:
            return None
        if log.snapshot is None:
            if log.first_offset not in (None, 0) or (log.first_offset is None and not log.may_be_empty):
                return None
        elif not log.snapshot.is_whole or log.snapshot.first != log.snapshot.last:
            return None
        else:
            positions.add(log.snapshot.last)
    return positions.pop() if len(positions) == 1 else None


class _LogJudge:
    """Decides for one log which points are proved."""

    def __init__(self, progress: LogProgress, ends: Sequence[TransactionEnd]) -> None:
        self._log = progress
        self._positions = {end.id: end.position for end in ends}
        seen = progress.seen or {}
        missing = (end for end in ends if seen.get(end.id, 0) < end.counts.get(progress.table, 0))
        first = progress.first_transaction
        self._first = self._positions.get(first.transaction or "") if first else None
        # What was ingested before the log came into the set ends before its first new transaction.
        floor = self._first if progress.is_adopted and self._first is not None else -1
        self._missing = [end.position for end in missing if end.position >= floor]

    def has_all_to(self, position: int) -> bool:
        """Whether all records of all transactions up to this position have landed."""
        return not self.explain(position)

    def explain(self, position: int) -> str:
        """Returns why this position is not proved; empty: it is."""
        return self._explain_beginning(position) or self._explain_records(position)

    def _explain_beginning(self, position: int) -> str:
        log, snapshot = self._log, self._log.snapshot
        if log.untracked is not None and not (log.is_adopted and self._is_before_first(log.untracked)):
            return f"the record at offset {log.untracked} has no transaction"
        if log.is_adopted:
            if log.first_offset is not None and log.first_offset != log.taken_to:
                return f"the records from offset {log.taken_to} on have not landed"
            if self._first is None or self._first > position:
                return "it was ingested before it came into the set, and has no new transaction yet"
        if not log.is_fresh or (snapshot and snapshot.last <= position):
            return ""
        if snapshot:
            return "its initial snapshot is newer"
        if log.first_offset is None:
            return "" if log.may_be_empty else "nothing of it has landed"
        if log.first_offset > 0:
            return f"the records before offset {log.first_offset} have not landed"
        return ""

    def _is_before_first(self, offset: int) -> bool:
        first = self._log.first_transaction
        return first is not None and offset < first.offset

    def _explain_records(self, position: int) -> str:
        snapshot, replaced = self._log.snapshot, -1
        if snapshot and snapshot.first <= position:
            if not snapshot.is_whole or snapshot.last > position:
                return "its initial snapshot has not landed completely"
            # The rows of a snapshot contain all transactions before it.
            replaced = snapshot.last
        at = bisect_right(self._missing, replaced)
        if at < len(self._missing) and self._missing[at] <= position:
            return f"records of the transaction at position {self._missing[at]} have not landed"
        return ""

    def cut_at(self, position: int) -> int:
        """Returns the offset after the last record before the first one that comes after this position."""
        later = (run.before for run in self._log.runs if self._is_later(run, position))
        return next(later, self._log.next_offset)

    def _is_later(self, run: RecordRun, position: int) -> bool:
        if run.transaction is None:
            return run.after > position
        end = self._positions.get(run.transaction)
        # Without an END it comes after the position, unless the source sent an earlier transaction again.
        return run.after >= position if end is None else end > position


def _explain(judges: Mapping[str, _LogJudge], newest: int | None) -> dict[str, str]:
    """Returns for each log why it is not at the newest transaction."""
    position = newest if newest is not None else 2**63 - 1
    return {log: why for log, judge in judges.items() if (why := judge.explain(position))}
