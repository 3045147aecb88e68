"""Finds the point of a source's log up to which every log of a set has all its records. Pure.

The proof is the connector's transaction topic: for each transaction it says how many records each table has. A
position is the position of a commit in the source's log; of a binlog, that of the last record of the set's tables
before the commit. Decisions 0048 and 0051 explain why the rules are sound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidefold.domain.sets.log_prover import NEWEST, EndProof, LogProver, PlacedEnd, may_follow
from tidefold.domain.sets.progress import Cut, LogProgress, TransactionEnd


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
    provers = {
        log: LogProver(progress, placed, proofs, {r.offsets[log]: r.position for r in released if log in r.offsets})
        for log, progress in logs.items()
    }
    ends_held = {log: prover.find_held(NEWEST) for log, prover in provers.items()}
    first = min((one.position for one, _ in ends_held.values() if one), default=None)
    held = {log: one.offset for log, (one, _) in ends_held.items() if one and one.position == first}
    newest = placed[-1].position if placed else None
    chosen = next((e for e in reversed(placed) if all(p.has_all_to(e.position) for p in provers.values())), None)
    if chosen:
        position, transaction, read_to = chosen.position, chosen.end.id, chosen.end.offset
        rank = chosen.end.rank
    elif before:
        position, transaction, read_to, rank = before.position, before.transaction, before.read_to, before.rank
    else:
        start = _find_snapshot(logs)
        if start is None:
            return FoundPoint(None, _explain(provers, newest), newest, "", _count_behind(provers, placed), held)
        position, transaction, read_to, rank = start, "", -1, None
    cuts = tuple(_find_cuts(provers, position, before))
    has_newer = newest is not None and newest > position
    waits = _explain(provers, newest) if has_newer else {log: ends_held[log][1] for log in held}
    point = SetPoint(position, transaction, read_to, cuts, rank)
    return FoundPoint(point, waits, newest, "", _count_behind(provers, placed), held)


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
            is_later = may_follow(run, progress.runs, point.position if point else 0)
            is_new = run.offset >= (cut.bound if cut else 0) and is_later
            if run.transaction is not None and run.transaction not in ended and is_new:
                why = f"the END of transaction {run.transaction} has not landed"
                missing.setdefault(run.transaction, f"{why}; its records of `{log}` begin at offset {run.offset}")
    return next(iter(missing.values()), ""), len(missing)


def _count_behind(provers: Mapping[str, LogProver], ends: Sequence[PlacedEnd]) -> dict[str, int]:
    """Returns how many of the transactions each log has not; logs that have all are left out."""
    lags = {}
    for log, prover in provers.items():
        complete = next((at for at, end in reversed([*enumerate(ends, 1)]) if prover.has_all_to(end.position)), 0)
        if complete < len(ends):
            lags[log] = len(ends) - complete
    return lags


def _find_cuts(provers: Mapping[str, LogProver], position: int, before: SetPoint | None) -> Iterator[Cut]:
    """Yields where each log is cut. A log for which an older point is not proved keeps its cut of then, or has none.

    Such a log went on while it was in no set, or came into the set after that point.
    """
    for log, prover in sorted(provers.items()):
        cut = prover.cut_at(log, position) if prover.has_all_to(position) else before.find_cut(log) if before else None
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


def _explain(provers: Mapping[str, LogProver], newest: int | None) -> dict[str, str]:
    """Returns for each log why it is not at the newest transaction."""
    position = newest if newest is not None else NEWEST
    return {log: why for log, prover in provers.items() if (why := prover.find_gap(position))}
