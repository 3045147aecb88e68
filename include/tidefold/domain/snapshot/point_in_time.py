"""Plans snapshots as of an instant, and finds older snapshots from which rows can be made. Pure.

Only the commit time at the source counts, to the microsecond, not the time of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidefold.domain.commit_times import NEVER, AsOf, format_instant, micros, next_second, tag_of
from tidefold.domain.log_state import ChangeSet, Expire, LogState, Snapshot, SnapshotKind, State
from tidefold.domain.retention.tag_names import require_free
from tidefold.domain.snapshot.claim import (
    Claim,
    WatchedAttempt,
    begin_attempt,
    build_open_error,
    same_request,
    supersede,
)
from tidefold.errors import CorruptError, RefusedError

# Change sets with `after` < sqn <= `to`.
_Span = tuple[int, int]
_SECOND = 1_000_000
UNDATED_HINT = "if a timestamp column orders the log, set `source: {commit_time: COLUMN}` for files that land later"


@dataclass(frozen=True, slots=True)
class Older:
    """A retained snapshot (None: the empty table), and the change sets that turn its rows into those of a newer one.

    `expired`: the age limits of the snapshots between them, the newest first.
    """

    snapshot: Snapshot | None
    change_sets: tuple[ChangeSet, ...]
    expired: tuple[Expire, ...] = ()

    def suits(self, expire: Expire | None) -> bool:
        """Whether the age limit `expire` also drops all rows that the snapshots between dropped."""
        return all(
            expire is not None and one.column == expire.column and one.before <= expire.before for one in self.expired
        )


def older(state: LogState, snapshot: Snapshot) -> Iterator[Older]:
    """Yields the retained snapshots from which the rows of this one can be made again, the nearest first.

    Ends where the log was truncated, or at an import. Leaves out what a restore left out for good.
    """
    if _has_lineage(snapshot):
        expired = (snapshot.expire,) if snapshot.expire else ()
        yield from _descend(state, snapshot.parent, (snapshot.from_sqn, snapshot.folds_to), expired)


def up_to(state: LogState, head: Snapshot | None, to: int) -> Iterator[Older]:
    """Yields the retained snapshots from which the rows after change set `to` can be made, the nearest first.

    `head`: the newest snapshot to yield; None: only the empty table.
    """
    after = head.to_sqn if head else 0
    return _descend(state, head.id if head else None, (after, max(to, after)))


def _descend(state: LogState, source: int | None, span: _Span, expired: tuple[Expire, ...] = ()) -> Iterator[Older]:
    """Yields `source` and the snapshots below it.

    span: the change sets that are folded onto `source`.
    expired: the age limits of the snapshots above.
    """
    spans: tuple[_Span, ...] = ()
    while True:
        spans = _cut_after(span, spans)
        if spans and spans[0][0] < state.truncated_to:
            return
        below = None if source is None else state.snapshot(source)
        if source is None or _is_kept(below):
            change_sets = _within(state, spans)
            if change_sets is not None:
                yield Older(below, change_sets, expired)
        if below is None or not _has_lineage(below):
            return
        expired = (*expired, below.expire) if below.expire else expired
        source, span = below.parent, (below.from_sqn, below.folds_to)


def _has_lineage(snapshot: Snapshot) -> bool:
    """Whether its rows were made from all changes of this log."""
    return (snapshot.external is None or snapshot.reshape is not None) and snapshot.as_of is None


def _is_kept(snapshot: Snapshot | None) -> bool:
    return snapshot is not None and snapshot.state is State.COMPLETED and snapshot.kind is not SnapshotKind.TAIL


def _cut_after(span: _Span, spans: tuple[_Span, ...]) -> tuple[_Span, ...]:
    """Adds a span before the others. Adjacent spans are joined: compaction may have joined their change sets."""
    if span[0] == span[1]:
        return spans
    if spans and spans[0][0] == span[1]:
        return ((span[0], spans[0][1]), *spans[1:])
    return (span, *spans)


def _within(state: LogState, spans: Sequence[_Span]) -> tuple[ChangeSet, ...] | None:
    """Returns all change sets of these spans in order; None: one is missing, or crosses the end of its span (I7)."""
    inside: list[ChangeSet] = []
    for after, to in spans:
        reached = after
        for change_set in state.change_sets_in(after, to):
            if change_set.begin != reached + 1:
                return None
            reached = change_set.sqn
            inside.append(change_set)
        if reached != to:
            return None
    return tuple(inside)


@dataclass(frozen=True, slots=True)
class PointInTimePlan:
    """The plan of a snapshot as of an instant.

    base: the snapshot that it begins with; None: the empty table.
    change_sets: the later change sets that may contain changes from before the instant.
    later: how many later change sets contain no such change.
    """

    base: Snapshot | None
    change_sets: tuple[ChangeSet, ...]
    later: int


def plan(state: LogState, at: int, expire: Expire | None) -> PointInTimePlan | None:
    """Plans a snapshot as of `at`; None: nothing was committed before. `expire`: which rows were too old then.

    Raises RefusedError if the log no longer has the needed changes, or their commit times are unknown.
    """
    offered = list(up_to(state, state.latest, state.last_sqn))
    base = next((one for one in offered if _reaches(one.snapshot) < at and _has_all(state, one, expire)), None)
    if base is None:
        raise _too_old(state, at, offered)
    chosen = _before(state.log, base.change_sets, at)
    if base.snapshot is None and not chosen:
        return None
    return PointInTimePlan(base.snapshot, chosen, len(base.change_sets) - len(chosen))


def change_sets_of(state: LogState, snapshot: Snapshot) -> tuple[ChangeSet, ...]:
    """Returns the change sets of an open attempt's plan. They are neither truncated nor compacted."""
    assert snapshot.as_of is not None
    head = None if snapshot.as_of.head is None else state.snapshot(snapshot.as_of.head)
    for one in up_to(state, head, snapshot.to_sqn):
        if (one.snapshot.id if one.snapshot else None) == snapshot.base:
            return _before(state.log, one.change_sets, snapshot.as_of.at)
    raise CorruptError(
        "BASE_MISSING",
        f"Snapshot {snapshot.id} of `{state.log}` is based on snapshot {snapshot.base}, which is no longer retained.",
    )


def _reaches(snapshot: Snapshot | None) -> int:
    """Returns an instant at or after the last commit in a snapshot.

    If that is not known (imports, changes without a commit time), it is the time at which the snapshot was made, to the
    second: a source does not commit in the future.
    """
    if snapshot is None:
        return -NEVER
    return (
        min(micros(snapshot.started_at) + _SECOND, NEVER)
        if snapshot.max_commit_time is None
        else snapshot.max_commit_time
    )


def find_backfill_base(state: LogState, since: int) -> Snapshot | None:
    """Returns the newest completed snapshot from which the rows as of every instant after `since` can be made.

    If there is none: the oldest one, or None if the log still has everything from its beginning.
    """
    base = oldest = None
    dropped = -NEVER
    for one in reversed(list(_lineage(state, state.latest))):
        if one.expire:
            dropped = max(dropped, micros(one.started_at))
        if one.state is not State.COMPLETED or not one.in_main_lineage:
            continue
        oldest = oldest or one
        serves = max(min(_reaches(one), NEVER - 1) + 1, dropped)
        # A row with a commit time in the future, or without one, must not keep the log for ever.
        if min(serves, micros(one.started_at) + _SECOND) <= since:
            base = one
    return base or (oldest if state.truncated_to > state.begins else None)


def _lineage(state: LogState, snapshot: Snapshot | None) -> Iterator[Snapshot]:
    """Yields a snapshot and those that its rows were made from."""
    by_id = {one.id: one for one in state.snapshots}
    while snapshot is not None:
        yield snapshot
        below = None if snapshot.external else snapshot.parent
        snapshot = None if below is None else by_id.get(below)


def _has_all(state: LogState, offered: Older, expire: Expire | None) -> bool:
    """Whether no row was dropped for its age that was young enough at the instant."""
    dropped = tuple(one.expire for one in _lineage(state, offered.snapshot) if one.expire)
    return Older(offered.snapshot, (), dropped).suits(expire)


def _before(log: str, change_sets: Sequence[ChangeSet], at: int) -> tuple[ChangeSet, ...]:
    """Returns the change sets that may contain changes from before an instant."""
    earlier = []
    for one in change_sets:
        times = one.times
        if times is not None and times.without:
            raise without_times(log, sum(one.times.without for one in change_sets if one.times))
        if times is not None and times.first is not None and times.first >= at:
            continue
        if one.first is not None and (times is None or times.last is None or times.last >= at):
            raise RefusedError(
                "AS_OF_COMPACTED",
                f"The change sets {one.begin} to {one.sqn} of `{log}` were compacted into one. They contain changes "
                f"from before and after {format_instant(at)}, and only the last change of each key is left.",
            )
        earlier.append(one)
    return tuple(earlier)


def claim(state: LogState, request: Claim, at: int) -> LogState:
    """Starts an attempt at a snapshot as of `at`.

    Returns the state unchanged if nothing was committed before, or if this run or another one has already made it. It
    is open at the same time as the attempt at the next snapshot; neither waits for the other. Raises RefusedError if
    another run has an attempt for the same instant or its tag names another snapshot, and the errors of `plan`.
    """
    mine = same_request(state, request)
    if find_kept(state, at) or (mine and mine.state in (State.STAGED, State.COMPLETED)):
        return state
    require_free(state, tag_of(at))
    mine = mine if mine and mine.open else None
    rival = next((s for s in state.as_of_attempts if s.as_of and s.as_of.at == at and s != mine), None)
    if rival and not request.takeover:
        raise build_open_error(state, rival)
    planned = plan(state, at, request.expire)
    if planned is None:
        return state
    free = supersede(supersede(state, mine), rival)
    base, head = planned.base, free.latest
    as_of = AsOf(at, head.id if head else None)
    begun = replace(begin_attempt(free, request, base), as_of=as_of, max_commit_time=at - 1)
    return replace(free, epoch=begun.epoch).with_snapshot(begun)


def find_kept(state: LogState, at: int) -> Snapshot | None:
    """Returns the completed snapshot as of an instant that a tag keeps."""
    tagged = {tag.snapshot for tag in state.tags}
    kept = (s for s in reversed(state.snapshots) if s.as_of and s.as_of.at == at and s.id in tagged)
    return next((s for s in kept if s.state is State.COMPLETED), None)


def came_later(state: LogState, snapshot: Snapshot) -> tuple[ChangeSet, ...]:
    """Returns the change sets that were ingested later and contain changes from before the snapshot's instant."""
    since = state.change_sets_in(snapshot.to_sqn, state.last_sqn)
    at = snapshot.as_of.at if snapshot.as_of else 0
    return tuple(c for c in since if c.times is None or (c.times.first is not None and c.times.first < at))


def find_given_up(
    watched: Sequence[WatchedAttempt], instant: str, beat: float, patience: timedelta
) -> tuple[Snapshot, ...]:
    """Returns the attempts whose process is dead, as far as their heartbeat count shows at `instant` (ISO 8601).

    A live process raises the count every `beat` seconds. An attempt that is wrongly found loses its work, nothing else.
    """
    now = datetime.fromisoformat(instant)
    return tuple(
        one.attempt
        for one in watched
        if now - datetime.fromisoformat(one.attempt.started_at) - timedelta(seconds=beat * one.heartbeats) > patience
    )


def without_times(log: str, count: int) -> RefusedError:
    """Returns the error for changes without a commit time."""
    return RefusedError(
        "AS_OF_NO_TIMES",
        f"{count:,} changes of `{log}` have no commit time: tidefold cannot tell which were before an instant.",
        hint=f"Use a source that records a commit time for each change; {UNDATED_HINT}.",
    )


def _too_old(state: LogState, at: int, offered: Sequence[Older]) -> RefusedError:
    possible = [_earliest(state, one.snapshot) for one in offered]
    oldest = min(possible, default=NEVER)
    if oldest >= NEVER:
        return without_times(state.log, sum(c.rows for c in state.change_sets))
    return RefusedError(
        "AS_OF_TOO_OLD",
        f"The rows of `{state.log}` as of {format_instant(at)} are no longer available: the log was "
        f"{state.cut_reason}, or the rows expired. The oldest possible instant is "
        f"{format_instant(next_second(oldest))}.",
        hint=f"`tidefold snapshot history {state.log}` lists the kept snapshots. `retention: {{log: 30d}}` in the "
        "configuration keeps, from now on, the log that backfills of the last 30 days need.",
    )


def _earliest(state: LogState, snapshot: Snapshot | None) -> int:
    """Returns the earliest instant that a snapshot serves: after its last commit and its last drop of old rows."""
    dropping = [micros(one.started_at) for one in _lineage(state, snapshot) if one.expire]
    return max([min(_reaches(snapshot), NEVER - 1) + 1, *dropping])
