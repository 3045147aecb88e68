"""Finds the point of a source's log up to which every log of a set has all its records. Pure.

The proof is the connector's transaction topic: for each transaction it says how many records each table has. A
position is the position of a commit in the source's log; of a binlog, that of the last record of the set's tables
before the commit. Decisions 0048 and 0051 explain why the rules are sound.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tidefold.domain.sets.progress import Cut, LogProgress, RecordRun, SignalledSnapshot, TransactionEnd

_NEWEST = 2**63 - 1
_NO_TRANSACTIONS = "the connector writes it with `provide.transaction.metadata: true`"


@dataclass(frozen=True, slots=True)
class SetPoint:
    """A point of the source's log.

    position: the position of the last commit that it contains.
    transaction: the id of that transaction; empty: the point is the initial snapshot.
    read_to: the offset of the last END record that it contains; -1: none.
    cuts: where each log is cut.
    rank: as in TransactionEnd.
    """

    position: int
    transaction: str
    read_to: int
    cuts: tuple[Cut, ...]
    rank: int | None = None

    def find_cut(self, log: str) -> Cut | None:
        """Returns where a log is cut; None: the log is not part of the point."""
        return next((one for one in self.cuts if one.log == log), None)

    def cut(self, log: str) -> int | None:
        """Returns the offset at which a log is cut; None: the log is not part of the point."""
        limit = self.find_cut(log)
        return limit.offset if limit else None


@dataclass(frozen=True, slots=True)
class SnapshotRelease:
    """A person says that the snapshot by signal which held a set had ended at a position of the source's log.

    offsets: for each log that it held, the offset at which it begins.
    by, why, instant: who said it, and when (ISO 8601).
    """

    offsets: Mapping[str, int]
    position: int
    by: str
    why: str
    instant: str


@dataclass(frozen=True, slots=True)
class FoundPoint:
    """The result of a search.

    point: the newest proved point; None: there is none yet.
    waits: for each log that holds the set back, the reason.
    newest: the position of the newest transaction whose END has landed; None: no END is new.
    disorder: why the transactions have no order, so that no point can be found; empty: they have one.
    behind: for each log that holds the set back, how many transactions come after those that it has completely.
    held: for each log that the first snapshot by signal holds, the offset at which it begins.
    """

    point: SetPoint | None
    waits: Mapping[str, str]
    newest: int | None
    disorder: str = ""
    behind: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)


def find_point(
    ends: Sequence[TransactionEnd],
    logs: Mapping[str, LogProgress],
    before: SetPoint | None,
    released: Sequence[SnapshotRelease] = (),
) -> FoundPoint:
    """Finds the newest point that is proved for all logs. It is never older than `before`.

    ends: the END records after `before`, in offset order without a gap. Records that were sent again are left out.
    """
    fresh, disorder = _leave_out_resent(ends, before)
    proofs = _find_proofs(fresh, logs)
    placed, misplaced = _place_ends(fresh, logs, proofs, before.position if before else -1)
    if disorder or misplaced:
        return FoundPoint(before, {}, None, disorder or misplaced)
    judges = {
        log: LogJudge(progress, placed, proofs, {r.offsets[log]: r.position for r in released if log in r.offsets})
        for log, progress in logs.items()
    }
    ends_held = {log: judge.find_held(_NEWEST) for log, judge in judges.items()}
    first = min((one.position for one, _ in ends_held.values() if one), default=None)
    held = {log: one.offset for log, (one, _) in ends_held.items() if one and one.position == first}
    newest = placed[-1].position if placed else None
    chosen = next((e for e in reversed(placed) if all(j.has_all_to(e.position) for j in judges.values())), None)
    if chosen:
        position, transaction, read_to = chosen.position, chosen.end.id, chosen.end.offset
        rank = chosen.end.rank
    elif before:
        position, transaction, read_to, rank = before.position, before.transaction, before.read_to, before.rank
    else:
        start = _find_snapshot(logs)
        if start is None:
            return FoundPoint(None, _explain(judges, newest), newest, "", _count_behind(judges, placed), held)
        position, transaction, read_to, rank = start, "", -1, None
    cuts = tuple(_find_cuts(judges, position, before))
    has_newer = newest is not None and newest > position
    waits = _explain(judges, newest) if has_newer else {log: ends_held[log][1] for log in held}
    point = SetPoint(position, transaction, read_to, cuts, rank)
    return FoundPoint(point, waits, newest, "", _count_behind(judges, placed), held)


def explain_missing_ends(
    ends: Sequence[TransactionEnd], logs: Mapping[str, LogProgress], point: SetPoint | None
) -> tuple[str, int]:
    """Returns which transaction has landed records after the point but no landed END, and how many do; empty: none."""
    ended = {end.id for end in ends}
    missing: dict[str, str] = {}
    for log, progress in logs.items():
        cut = point.find_cut(log) if point else None
        for run in progress.runs:
            # Records of earlier transactions are those that the source sent again.
            is_later = _may_follow(run, progress.runs, point.position if point else 0)
            is_new = run.offset >= (cut.bound if cut else 0) and is_later
            if run.transaction is not None and run.transaction not in ended and is_new:
                why = f"the END of transaction {run.transaction} has not landed"
                missing.setdefault(run.transaction, f"{why}; its records of `{log}` begin at offset {run.offset}")
    return next(iter(missing.values()), ""), len(missing)


def _may_follow(run: RecordRun, runs: Sequence[RecordRun], position: int) -> bool:
    """Whether a transaction without an END comes after the position. If not, the source sent an earlier one again."""
    if not run.is_early:
        return run.after >= position
    # It was committed no later than the commit before a later transaction.
    until = next((one.after for one in runs if one.offset > run.offset and one.after > run.after), None)
    return until is None or until > position


def _count_behind(judges: Mapping[str, LogJudge], ends: Sequence[PlacedEnd]) -> dict[str, int]:
    """Returns how many of the transactions each log has not; logs that have all are left out."""
    lags = {}
    for log, judge in judges.items():
        complete = next((at for at, end in reversed([*enumerate(ends, 1)]) if judge.has_all_to(end.position)), 0)
        if complete < len(ends):
            lags[log] = len(ends) - complete
    return lags


def _find_cuts(judges: Mapping[str, LogJudge], position: int, before: SetPoint | None) -> Iterator[Cut]:
    """Yields where each log is cut. A log for which an older point is not proved keeps its cut of then, or has none.

    Such a log went on while it was in no set, or came into the set after that point.
    """
    for log, judge in sorted(judges.items()):
        cut = judge.cut_at(log, position) if judge.has_all_to(position) else before.find_cut(log) if before else None
        if cut is not None:
            yield cut


def _leave_out_resent(ends: Sequence[TransactionEnd], before: SetPoint | None) -> tuple[list[TransactionEnd], str]:
    """Returns each transaction once, and why they have no order (empty: they have one).

    The connector sends ENDs again after a kill, without leaving one out. So ids that go back must come to the newest
    one again before a newer one follows. Otherwise the source, or another source, wrote them in another order.
    """
    reached, newest = _find_reached(ends, before), before.transaction if before else ""
    fresh: list[TransactionEnd] = []
    last = newest
    for end in ends:
        rank = end.position if end.rank is None else end.rank
        assert rank is not None
        if rank > reached:
            if end.rank is not None and newest and last != newest:
                return fresh, f"transaction {end.id} follows {last}, and {newest} came before"
            fresh.append(end)
            reached, newest = rank, end.id
        last = end.id
    return fresh, ""


def _find_reached(ends: Sequence[TransactionEnd], before: SetPoint | None) -> int:
    """Returns the rank of the point before; -1: it contains no transaction."""
    if before is None:
        return -1
    if ends and ends[0].rank is not None:
        return -1 if before.rank is None else before.rank
    return before.position


def _place_ends(
    ends: Sequence[TransactionEnd], logs: Mapping[str, LogProgress], proofs: Mapping[str, EndProof], floor: int
) -> tuple[list[PlacedEnd], str]:
    """Returns the ENDs with their positions, and why they have no order (empty: they have one).

    One without a record in the set's tables moves nothing: it has the position of the END before. One whose records
    have not landed, as far as is known, has the position of the END after it, or one more than the END before. It is no
    point in either case, because the log that lacks the records has no proof of that position.
    """
    positions = [end.position if end.position is not None else _find_place(end, logs) for end in ends]
    placed: list[PlacedEnd] = []
    last, last_known = floor, floor
    following = _find_following(positions)
    for end, position, later in zip(ends, positions, following, strict=True):
        if position is not None:
            if position <= last_known:
                return [], f"{end.name} is at position {position}, and position {last_known} came before"
            last = last_known = position
        elif proofs.get(end.id) is EndProof.LATER or any(end.counts.get(log.table) for log in logs.values()):
            last = last + 1 if later is None else later
        placed.append(PlacedEnd(end, last))
    return placed, ""


def _find_following(positions: Sequence[int | None]) -> list[int | None]:
    """Returns for each position the next one that is known."""
    following: list[int | None] = []
    later: int | None = None
    for position in reversed(positions):
        following.append(later)
        later = later if position is None else position
    return following[::-1]


def _find_place(end: TransactionEnd, logs: Mapping[str, LogProgress]) -> int | None:
    """Returns the position of the last landed record of a transaction; None: none has landed."""
    return max((log.places[end.id] for log in logs.values() if end.id in log.places), default=None)


def _find_proofs(ends: Sequence[TransactionEnd], logs: Mapping[str, LogProgress]) -> dict[str, EndProof]:
    """Returns what proves each transaction, by its id.

    A connector that was killed in a transaction, and had stored its place there, sends BEGIN and the rest again. Before
    version 3.6.1 it counts and numbers only the rest. So the count of the END may be too low, or the numbers may not
    reach the count of an END that came before the kill. A later record in the same topic proves both.
    """
    renumbers = [log.renumbers for log in logs.values()]
    if False in renumbers and True not in renumbers:
        return {}
    proofs = {}
    for end in ends:
        if end.is_partial:
            proofs[end.id] = EndProof.LATER
        elif end.is_restarted:
            proofs[end.id] = EndProof.EITHER
    return proofs


def _find_snapshot(logs: Mapping[str, LogProgress]) -> int | None:
    """Returns the position of the initial snapshot if it is the whole content of a set that begins."""
    positions = set()
    for log in logs.values():
        if not log.is_fresh:
            return None
        if log.snapshot is None:
            if log.first_offset not in (None, 0) or (
                not log.may_be_empty and (log.signalled or log.first_offset is None)
            ):
                return None
        elif not log.snapshot.is_whole or log.snapshot.first != log.snapshot.last:
            return None
        else:
            positions.add(log.snapshot.last)
    return positions.pop() if len(positions) == 1 else None


def _explain(judges: Mapping[str, LogJudge], newest: int | None) -> dict[str, str]:
    """Returns for each log why it is not at the newest transaction."""
    position = newest if newest is not None else _NEWEST
    return {log: why for log, judge in judges.items() if (why := judge.explain(position))}


@dataclass(frozen=True, slots=True)
class PlacedEnd:
    """An END with a position, its own or one that the records of the set's tables show."""

    end: TransactionEnd
    position: int


class EndProof(Enum):
    """What proves that a table has all records of a transaction."""

    COUNT = "the count of its END"
    LATER = "a later record"
    EITHER = "the count of its END, or a later record"


class LogJudge:
    """Decides for one log which points are proved."""

    def __init__(
        self,
        progress: LogProgress,
        ends: Sequence[PlacedEnd],
        proofs: Mapping[str, EndProof],
        released: Mapping[int, int],
    ) -> None:
        """`released`: the position at which snapshots by signal had ended, by the offset of the newest of them."""
        self._log, self._released = progress, released
        self._positions = {one.end.id: one.position for one in ends}
        self._indexes = {one.end.id: index for index, one in enumerate(ends)}
        first = progress.first_transaction
        self._first = self._positions.get(first.transaction or "") if first else None
        if progress.is_adopted and first and self._first is not None:
            # What was ingested before the log came into the set ends before its first new transaction.
            ends = ends[next(i for i, one in enumerate(ends) if one.end.id == first.transaction) :]
        held = [
            (one.position, why)
            for one in ends
            if (why := self._explain_end(one, proofs.get(one.end.id, EndProof.COUNT)))
        ]
        self._missing, self._reasons = [position for position, _ in held], [why for _, why in held]

    def _explain_end(self, one: PlacedEnd, proof: EndProof) -> str:
        """Returns why it is not proved that all records of a transaction have landed; empty: it is."""
        end = one.end
        is_counted = self._log.seen.get(end.id, 0) >= end.counts.get(self._log.table, 0)
        if is_counted and proof is not EndProof.LATER:
            return ""
        if proof is not EndProof.COUNT and self._has_later_than(one):
            return ""
        if not is_counted:
            return f"records of {end.name} have not landed"
        return f"no record after {end.name} has landed, and the connector was killed while it sent that transaction"

    def _has_later_than(self, one: PlacedEnd) -> bool:
        """Whether all records up to one of a later transaction have landed. A topic keeps its order."""
        own = self._indexes[one.end.id]
        for run in self._log.runs:
            if run.offset >= self._log.unbroken_to:
                return False
            index = self._indexes.get(run.transaction or "")
            if index > own if index is not None else self._is_later(run, one.position):
                return True
        return False

    def has_all_to(self, position: int) -> bool:
        """Whether all records of all transactions up to this position have landed."""
        return not self.explain(position)

    def explain(self, position: int) -> str:
        """Returns why this position is not proved; empty: it is."""
        return self._explain_beginning(position) or self.find_held(position)[1] or self._explain_records(position)

    def _explain_beginning(self, position: int) -> str:
        log, snapshot = self._log, self._log.snapshot
        if log.untracked is not None and not (log.is_adopted and self._is_before_first(log.untracked)):
            return f"the record at offset {log.untracked} has no transaction; {_NO_TRANSACTIONS}"
        if log.is_adopted:
            if log.first_offset is not None and log.first_offset != log.taken_to:
                return f"the records from offset {log.taken_to} on have not landed"
            if self._first is None or self._first > position:
                return "it was ingested before it came into the set, and joins with its next transaction"
        if not log.is_fresh or (snapshot and snapshot.last <= position):
            return ""
        if snapshot:
            return "its initial snapshot is newer"
        if log.first_offset is None:
            return "" if log.may_be_empty else "nothing of it has landed"
        if log.first_offset > 0:
            return f"the records before offset {log.first_offset} have not landed"
        return ""

    def find_held(self, position: int) -> tuple[SignalledSnapshot | None, str]:
        """Returns the first snapshot by signal whose rows are not those of this position, and why; None: none."""
        log = self._log
        # A whole one begins the table anew, so it replaces one in which the connector was killed.
        whole = max((one.position for one in log.signalled if one.is_whole and one.position <= position), default=-1)
        is_joining = log.is_fresh and log.snapshot is None and not log.may_be_empty
        for one in log.signalled:
            past = min(((offset, end) for offset, end in self._released.items() if offset >= one.offset), default=None)
            if (is_joining or one.position <= position) and (past is None or past[1] > position):
                until = f"it had ended at position {past[1]}" if past else "no record shows when it ended"
                return one, f"a snapshot by signal begins at offset {one.offset}, and {until}"
            if one.position <= position and not one.is_whole and one.position >= whole:
                return one, (
                    f"the snapshot by signal from offset {one.offset} on has not landed completely; if the connector "
                    "was killed in it, signal it again"
                )
        return None, ""

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
            return self._reasons[at]
        return ""

    def cut_at(self, log: str, position: int) -> Cut:
        """Returns the cut after the last record before the first one that comes after this position."""
        later = next((run for run in self._log.runs if self._is_later(run, position)), None)
        if later is None:
            return Cut(log, self._log.next_offset)
        return Cut(log, later.before, later.offset if later.offset < later.before else None)

    def _is_later(self, run: RecordRun, position: int) -> bool:
        if run.transaction is None:
            return run.after > position
        end = self._positions.get(run.transaction)
        return _may_follow(run, self._log.runs, position) if end is None else end > position
