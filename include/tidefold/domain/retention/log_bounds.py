"""How far the log may be truncated or compacted, and what is protected: the tightest bound decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidefold.domain.commit_times import CommitTimeRange, format_instant, merge_ranges
from tidefold.domain.log_state import ChangeSet, LogState, Snapshot, SnapshotKind, State
from tidefold.domain.snapshot.point_in_time import find_backfill_base
from tidefold.domain.snapshot.transitions import require_snapshot
from tidefold.domain.table.table_spec import Engine
from tidefold.errors import ConflictError, InvalidInputError

# A longer run is compacted in parts of this size, since a part is held in memory.
_COMPACTED_BYTES = 128 << 20
# The engines for which a compaction leaves out changes. The others need each change: `partial` its place for each
# column, `aggregate` its value, `history` and `append` its row. Their change sets are merged and keep all changes.
REDUCING = (Engine.LAST, Engine.FIRST)


@dataclass(frozen=True, slots=True)
class LogRetention:
    """The part of the log that is kept for backfills, whatever the number of snapshots. Times in microseconds.

    since: the rows of every instant after this one can be made.
    step: the time between two instants that backfills ask for, counted from 1970 UTC.
    """

    since: int
    step: int


# One transition marks the snapshots that nothing protects, then a sweep deletes their files, and a last transition
# records that the files are deleted. A marked snapshot is never used again.
def with_files(snapshots: Iterable[Snapshot]) -> tuple[Snapshot, ...]:
    """Returns the snapshots that have files of their own."""
    return tuple(s for s in snapshots if s.kind is not SnapshotKind.TAIL)


def newest(state: LogState, keep: int) -> tuple[Snapshot, ...]:
    """Returns the newest `keep` completed snapshots with files of their own, oldest first; none as of an instant."""
    if keep < 1:
        raise InvalidInputError("RETENTION_INVALID", f"Retention cannot keep {keep} snapshots.")
    return tuple(s for s in state.snapshots if s.state is State.COMPLETED and s.in_main_lineage)[-keep:]


def tails(state: LogState) -> tuple[Snapshot, ...]:
    """Returns the completed tail-only snapshots."""
    return tuple(s for s in state.snapshots if s.state is State.COMPLETED and s.kind is SnapshotKind.TAIL)


def find_protected(
    state: LogState, keep: int, log: LogRetention | None = None, shown: Collection[int] = ()
) -> frozenset[int]:
    """Returns the ids of the completed snapshots that must stay.

    These are the newest `keep` and the tails on them, tagged and held ones, the base of each kept tail, and those that
    an open attempt builds on or may restore from. Only its tag keeps a snapshot as of an instant. With `log`, the
    snapshot that the oldest backfill begins with stays too. `shown`: what readers of the log's set use.
    """
    kept = {s.id for s in newest(state, keep)} | {*shown}
    base = find_backfill_base(state, log.since) if log else None
    kept |= {base.id} if base else set()
    named = {t.snapshot for t in state.tags} | {h.snapshot for h in state.holds}
    kept_tails = {s.id: s.base for s in tails(state) if s.base in kept or s.id in named}
    building = {state.open_attempt.base, *_below(state, state.open_attempt)} if state.open_attempt else set()
    building |= {s.base for s in state.as_of_attempts}
    return frozenset(i for i in kept | named | set(kept_tails) | set(kept_tails.values()) | building if i is not None)


def _below(state: LogState, attempt: Snapshot) -> Iterator[int]:
    """Yields the ids that an attempt needs: its base, and for a restore also older snapshots with rows to link."""
    by_id = {s.id: s for s in state.snapshots}
    below = attempt.parent
    while below is not None:
        if by_id[below].state is State.COMPLETED:
            yield below
        below = by_id[below].parent if attempt.restored_from is not None else None


def subsume(state: LogState, keep: int, log: LogRetention | None = None, shown: Collection[int] = ()) -> LogState:
    """Retires the completed snapshots that are not protected. The next sweep deletes their files."""
    kept = find_protected(state, keep, log, shown)
    snapshots = tuple(
        replace(s, state=State.SUBSUMED) if s.state is State.COMPLETED and s.id not in kept else s
        for s in state.snapshots
    )
    return state if snapshots == state.snapshots else replace(state, snapshots=snapshots)


def list_subsumed(state: LogState) -> tuple[Snapshot, ...]:
    """Returns the retired snapshots whose files are not deleted yet."""
    return tuple(s for s in state.snapshots if s.state is State.SUBSUMED)


@dataclass(frozen=True, slots=True)
class Grace:
    """How long the files of an older table version are kept for its readers.

    They are kept until so many later snapshots were published, and for at least so many minutes after the version was
    replaced. A wrong clock can only keep them longer.
    """

    publishes: int = 2
    minutes: int = 0


def deletable(state: LogState, grace: Grace, instant: str) -> tuple[Snapshot, ...]:
    """Returns the retired snapshots whose files may be deleted at this instant (ISO 8601)."""
    return tuple(s for s in list_subsumed(state) if not s.in_main_lineage or _is_past(state, s, grace, instant))


def _is_past(state: LogState, snapshot: Snapshot, grace: Grace, instant: str) -> bool:
    shown = snapshot.table_version if snapshot.table_version is not None else -1
    later = [s for s in state.snapshots if s.table_version is not None and s.table_version > shown]
    if len(later) < max(grace.publishes, 1):  # Without a later one, readers see this snapshot now.
        return False
    replaced = later[0].published_at or later[0].started_at
    return datetime.fromisoformat(replaced) + timedelta(minutes=grace.minutes) <= datetime.fromisoformat(instant)


def oldest_version(state: LogState) -> int | None:
    """Returns the oldest table version that readers may still use: retained, or with files that wait for readers."""
    shown = (State.COMPLETED, State.SUBSUMED)
    versions = (s.table_version for s in state.snapshots if s.state in shown)
    return min((version for version in versions if version is not None), default=None)


def mark_deleted(state: LogState, snapshots: Iterable[int]) -> LogState:
    """Records that the files of these retired snapshots are deleted."""
    gone = set(snapshots)
    marked = tuple(
        replace(s, state=State.DELETED) if s.id in gone and s.state is State.SUBSUMED else s for s in state.snapshots
    )
    return state if marked == state.snapshots else replace(state, snapshots=marked)


@dataclass(frozen=True, slots=True)
class Bound:
    """Something that needs the log after `sqn`: as far as this is concerned, the log may be truncated up to `sqn`."""

    name: str
    sqn: int
    why: str


def bounds(state: LogState, keep: int | None, log: LogRetention | None = None) -> tuple[Bound, ...]:
    """Lists everything that needs the log, the tightest bound first. Empty: nothing was folded, so nothing is
    truncated.

    The log can be replayed onto each of the newest `keep` snapshots (None: onto every completed one). A tag keeps its
    snapshot, but not the log after it; a hold keeps both. A tail-only snapshot needs the change sets that it consists
    of. With `log`, the change sets that backfills need are kept too.
    """
    count = keep if keep is not None else len(state.snapshots)
    kept = newest(state, max(count, 1))
    if not kept:
        return ()
    # No change set is replayed onto a snapshot with the table definition from before a plan.
    first = state.reshaped.id if state.reshaped else 0
    oldest = min((s for s in kept if s.id >= first), key=lambda s: s.to_sqn)
    listed = [
        Bound("replay", oldest.to_sqn, _describe_replay(state, oldest)),
        Bound("materialized", kept[-1].to_sqn, f"snapshot {kept[-1].id} is the newest completed one"),
        *_of_tails(state),
        *([_of_backfills(state, log)] if log else []),
        *(Bound(f"hold {h.name}", end_of_snapshot(state, h.snapshot), f"it is held: {h.why}") for h in state.holds),
        *(Bound(f"consumer {c.name}", c.sqn, "the consumer has read the log up to there") for c in state.consumers),
    ]
    if state.open_attempt:
        listed.append(
            Bound("attempt", state.open_attempt.from_sqn, f"snapshot {state.open_attempt.id} is being made from there")
        )
    listed += [
        Bound("attempt", s.from_sqn, f"snapshot {s.id}, as of {s.as_of}, is being made from there by run {s.run}")
        for s in state.as_of_attempts
    ]
    return tuple(sorted(listed, key=lambda bound: bound.sqn))


def _describe_replay(state: LogState, oldest: Snapshot) -> str:
    if oldest.to_sqn < state.truncated_to:
        return f"snapshot {oldest.id} is kept, but the log after it was {state.cut_reason} up to {state.truncated_to}"
    return f"the log can be replayed onto snapshot {oldest.id}, which is kept"


def _of_tails(state: LogState) -> Iterable[Bound]:
    """Returns one bound for all tail-only snapshots, because there may be hundreds."""
    for oldest in sorted(tails(state), key=lambda s: s.from_sqn)[:1]:
        more = len(tails(state)) - 1
        which = f"snapshot {oldest.id} consists" if not more else f"snapshots {oldest.id} and {more:,} more consist"
        yield Bound("tail", oldest.from_sqn, f"tail-only {which} of what follows")


def _of_backfills(state: LogState, log: LogRetention) -> Bound:
    base, instant = find_backfill_base(state, log.since), format_instant(log.since)
    begins = f"snapshot {base.id} and the log after it are" if base else "the log is"
    why = f"{begins} kept for backfills since {instant} (`retention.log`)"
    return Bound("backfill", base.to_sqn if base else state.truncated_to, why)


def end_of_snapshot(state: LogState, snapshot: int) -> int:
    named = require_snapshot(state, snapshot)
    return named.from_sqn if named.kind is SnapshotKind.TAIL else named.to_sqn


def truncate(state: LogState, keep: int | None, log: LogRetention | None = None, most: int | None = None) -> LogState:
    """Truncates the log up to its tightest bound, and not beyond the change set `most`.

    Segments that no change set needs any more become garbage (I9).
    """
    tightest = next(iter(bounds(state, keep, log)), None)
    end = 0 if tightest is None else tightest.sqn if most is None else min(tightest.sqn, most)
    if end <= state.truncated_to:
        return state
    kept = tuple(c for c in state.change_sets if c.sqn > end)
    # A compacted change set is removed as a whole or not at all.
    cut = min([end, *(kept[0].begin - 1 for _ in kept[:1])])
    return replace(state, change_sets=kept, truncated_to=cut, lost_from=0, garbage=mark_garbage(state, kept))


def mark_garbage(state: LogState, kept: Sequence[ChangeSet]) -> tuple[str, ...]:
    """Returns the garbage segments if only these change sets are left."""
    needed = {c.location.segment for c in kept}
    cut = dict.fromkeys(c.location.segment for c in state.change_sets if c.location.segment not in needed)
    return (*state.garbage, *(path for path in cut if path not in state.garbage))


def forget_garbage(state: LogState, paths: Iterable[str]) -> LogState:
    """Records that these garbage segments are deleted."""
    gone = set(paths)
    left = tuple(path for path in state.garbage if path not in gone)
    return state if left == state.garbage else replace(state, garbage=left)


@dataclass(frozen=True, slots=True)
class CompactionTrigger:
    """When waiting change sets are compacted without a command. 0: never by this number.

    change_sets: how many change sets wait that no compaction wrote.
    bytes: how many bytes these have; only where a compaction leaves out changes.
    """

    change_sets: int
    bytes: int


def find_compactable_runs(state: LogState, log: LogRetention | None = None) -> tuple[tuple[ChangeSet, ...], ...]:
    """Returns runs of at least two waiting change sets of which only the last value of each key is needed.

    A run never crosses the end of a snapshot onto which the log may be replayed, the position of a consumer or, with
    `log`, an instant of a backfill. Returns none during an attempt, because it reads exactly what it planned.
    """
    if (state.open_attempt and state.open_attempt.state is State.ONGOING) or state.as_of_attempts:
        return ()
    ends = {s.to_sqn for s in state.snapshots if (s.open or s.state is State.COMPLETED) and s.as_of is None}
    ends |= {consumer.sqn for consumer in state.consumers}
    runs: list[list[ChangeSet]] = [[]]
    size, times = 0, None  # Of the run so far, so that a long log is read once.
    for change_set in state.unfolded:
        size, times = size + change_set.location.length, _join_times(runs[-1], times, change_set)
        if size > _COMPACTED_BYTES or (log and runs[-1] and _crosses_step(times, log)):
            runs.append([])
            size, times = change_set.location.length, change_set.times
        runs[-1].append(change_set)
        if change_set.sqn in ends:
            runs.append([])
            size = 0
    inside = {e for e in ends for c in state.unfolded if c.begin <= e < c.sqn}
    return tuple(tuple(run) for run in runs if len(run) > 1 and not inside)


def find_due_runs(
    state: LogState, trigger: CompactionTrigger, log: LogRetention | None = None
) -> tuple[tuple[ChangeSet, ...], ...]:
    """Returns the runs to compact without a command, if so much waits that the trigger fires.

    None before the first snapshot, which folds everything once, and none with changes that backfills may need (`log`).
    A run that was compacted before is compacted again only together with newer change sets.
    """
    waiting = [c for c in state.unfolded if c.first is None and not _serves_backfills(c, log)]
    if state.latest is None or not _is_due(state, trigger, waiting):
        return ()
    parts = [part for run in find_compactable_runs(state, log) for part in _split_at_backfills(run, log)]
    runs = [part for part in parts if len(part) > 1 and any(c.first is None for c in part)]
    is_due = _is_due(state, trigger, [c for run in runs for c in run if c.first is None])
    return tuple(runs) if is_due else ()


def _is_due(state: LogState, trigger: CompactionTrigger, new: Sequence[ChangeSet]) -> bool:
    """Whether so many change sets that no compaction wrote are enough."""
    is_large = state.shape.merge.engine in REDUCING and sum(c.location.length for c in new) >= trigger.bytes > 0
    return is_large or len(new) >= trigger.change_sets > 0


def _serves_backfills(change_set: ChangeSet, log: LogRetention | None) -> bool:
    """Whether backfills may need each of its changes."""
    times = change_set.times
    return log is not None and (times is None or (times.last is not None and times.last >= log.since))


def _split_at_backfills(run: Sequence[ChangeSet], log: LogRetention | None) -> list[tuple[ChangeSet, ...]]:
    """Returns the parts of a run without the change sets that backfills may need."""
    parts: list[list[ChangeSet]] = [[]]
    for one in run:
        if _serves_backfills(one, log):
            parts.append([])
        else:
            parts[-1].append(one)
    return [tuple(part) for part in parts]


def _join_times(
    run: Sequence[ChangeSet], times: CommitTimeRange | None, change_set: ChangeSet
) -> CommitTimeRange | None:
    """Returns the commit times of a run with one more change set."""
    return merge_ranges((times, change_set.times)) if run else change_set.times


def _crosses_step(times: CommitTimeRange | None, log: LogRetention) -> bool:
    """Whether an instant of a backfill is between changes of these commit times."""
    if times is None:
        return True
    if times.first is None or times.last is None or times.last < log.since:
        return False
    return times.first // log.step != times.last // log.step


def compact(state: LogState, compacted: ChangeSet, log: LogRetention | None = None) -> LogState:
    """Replaces the run `compacted.begin` to `compacted.sqn` by one change set (C12).

    Raises ConflictError if the run is not complete any more, or may no longer be compacted.
    """
    if compacted in state.change_sets:
        return state
    run = tuple(c for c in state.change_sets if compacted.begin <= c.begin and c.sqn <= compacted.sqn)
    whole = next((r for r in find_compactable_runs(state, log) if set(run) <= set(r)), ())
    if not run or not whole or (run[0].begin, run[-1].sqn) != (compacted.begin, compacted.sqn):
        raise ConflictError(
            "RUN_GONE",
            f"The change sets {compacted.begin} to {compacted.sqn} of `{state.log}` cannot be compacted any more.",
        )
    before = tuple(c for c in state.change_sets if c.sqn < compacted.begin)
    kept = (*before, compacted, *(c for c in state.change_sets if c.begin > compacted.sqn))
    return replace(state, change_sets=kept, garbage=mark_garbage(state, kept))
