"""What is kept and what may go: snapshots beyond the newest N, and the log that nothing kept needs.

Protect first, delete second: a move marks what is left after the protected was taken out, a sweep deletes what is
marked, a later move forgets it. Nothing marked ever comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidefold.domain.commit_times import format_instant, merge_ranges
from tidefold.domain.log_state import ChangeSet, Consumer, Hold, LogState, Snapshot, SnapshotKind, State, Tag
from tidefold.domain.retention.tag_names import require_free
from tidefold.domain.snapshot.point_in_time import find_backfill_base
from tidefold.domain.snapshot.transitions import require_snapshot
from tidefold.errors import ConflictError, InvalidInputError, RefusedError

# Of a longer run so much is compacted at once: it is held in memory.
_COMPACTED_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class LogRetention:
    """The part of the log that is kept for backfills, whatever the number of snapshots. Times in microseconds.

    since: rows as of each later instant can be made.
    step: the time between two instants that backfills ask for, counted from 1970 UTC.
    """

    since: int
    step: int


@dataclass(frozen=True, slots=True)
class Bound:
    """Something that keeps the log: it may be cut up to `sqn` as far as this is concerned."""

    name: str
    sqn: int
    why: str


def with_files(snapshots: Iterable[Snapshot]) -> tuple[Snapshot, ...]:
    """Those that have files of their own."""
    return tuple(s for s in snapshots if s.kind is not SnapshotKind.TAIL)


def newest(state: LogState, keep: int) -> tuple[Snapshot, ...]:
    """The newest `keep` completed snapshots with files of their own, oldest first; none as of an instant is one."""
    if keep < 1:
        raise InvalidInputError(
            "RETENTION_INVALID", f"Retention cannot keep {keep} snapshots.", hint="Keep at least one."
        )
    return tuple(s for s in state.snapshots if s.state is State.COMPLETED and s.in_main_lineage)[-keep:]


def tails(state: LogState) -> tuple[Snapshot, ...]:
    """The completed snapshots that consist of another one's files and the change sets after them."""
    return tuple(s for s in state.snapshots if s.state is State.COMPLETED and s.kind is SnapshotKind.TAIL)


def find_protected(state: LogState, keep: int, log: LogRetention | None = None) -> frozenset[int]:
    """Ids of the completed snapshots that must stay: the newest `keep` and the tails on them, tagged and held ones,
    what a kept tail is built on, and what an open attempt builds on or may fall back on. One as of an instant is kept
    by its tag alone. With `log`, also the one that the oldest backfill begins with.
    """
    kept = {s.id for s in newest(state, keep)}
    base = find_backfill_base(state, log.since) if log else None
    kept |= {base.id} if base else set()
    named = {t.snapshot for t in state.tags} | {h.snapshot for h in state.holds}
    kept_tails = {s.id: s.base for s in tails(state) if s.base in kept or s.id in named}
    building = {state.open_attempt.base, *_below(state, state.open_attempt)} if state.open_attempt else set()
    building |= {s.base for s in state.as_of_attempts}
    return frozenset(i for i in kept | named | set(kept_tails) | set(kept_tails.values()) | building if i is not None)


def _below(state: LogState, attempt: Snapshot) -> Iterator[int]:
    """What an attempt begins with; of a restore also the older ones that its rows can be made from again: their files
    may be taken over by name.
    """
    known = {s.id: s for s in state.snapshots}
    below = attempt.parent
    while below is not None:
        if known[below].state is State.COMPLETED:
            yield below
        below = known[below].parent if attempt.restored_from is not None else None


def subsume(state: LogState, keep: int, log: LogRetention | None = None) -> LogState:
    """Retires the completed snapshots that are not protected; their files go with the next sweep."""
    kept = find_protected(state, keep, log)
    snapshots = tuple(
        replace(s, state=State.SUBSUMED) if s.state is State.COMPLETED and s.id not in kept else s
        for s in state.snapshots
    )
    return state if snapshots == state.snapshots else replace(state, snapshots=snapshots)


def list_subsumed(state: LogState) -> tuple[Snapshot, ...]:
    """Retired snapshots whose files were not yet removed."""
    return tuple(s for s in state.snapshots if s.state is State.SUBSUMED)


@dataclass(frozen=True, slots=True)
class Grace:
    """How long files stay that plain readers of an older table version may still read: until so many snapshots were
    published after theirs, and so many minutes after it was replaced. A clock can only keep them longer.
    """

    publishes: int = 2
    minutes: int = 0


def deletable(state: LogState, grace: Grace, instant: str) -> tuple[Snapshot, ...]:
    """The retired snapshots whose files may go at this instant (ISO 8601)."""
    return tuple(s for s in list_subsumed(state) if not s.in_main_lineage or _is_past(state, s, grace, instant))


def _is_past(state: LogState, snapshot: Snapshot, grace: Grace, instant: str) -> bool:
    shown = snapshot.table_version if snapshot.table_version is not None else -1
    later = [s for s in state.snapshots if s.table_version is not None and s.table_version > shown]
    if len(later) < max(grace.publishes, 1):  # Without one it is what readers see now.
        return False
    replaced = later[0].published_at or later[0].started_at
    return datetime.fromisoformat(replaced) + timedelta(minutes=grace.minutes) <= datetime.fromisoformat(instant)


def oldest_version(state: LogState) -> int | None:
    """The oldest version of the published table that anybody may still read: of a snapshot that is kept, or one whose
    files wait for readers.
    """
    shown = (State.COMPLETED, State.SUBSUMED)
    versions = (s.table_version for s in state.snapshots if s.state in shown)
    return min((version for version in versions if version is not None), default=None)


def mark_deleted(state: LogState, snapshots: Iterable[int]) -> LogState:
    """Records that the files of these retired snapshots are gone."""
    gone = set(snapshots)
    marked = tuple(
        replace(s, state=State.DELETED) if s.id in gone and s.state is State.SUBSUMED else s for s in state.snapshots
    )
    return state if marked == state.snapshots else replace(state, snapshots=marked)


def bounds(state: LogState, keep: int | None, log: LogRetention | None = None) -> tuple[Bound, ...]:
    """Everything that keeps the log, the tightest first. Empty: nothing was folded yet, so nothing may be cut.

    The log can be replayed onto each of the newest `keep` snapshots (None: onto every completed one). A tag keeps its
    snapshot, which is complete without the log, and not the log behind it; a hold keeps both. A tail-only snapshot
    needs the change sets that it consists of. With `log`, what backfills need stays too.
    """
    count = keep if keep is not None else len(state.snapshots)
    kept = newest(state, max(count, 1))
    if not kept:
        return ()
    oldest = min(kept, key=lambda s: s.to_sqn)
    found = [
        Bound("replay", oldest.to_sqn, f"the log can be replayed onto snapshot {oldest.id}, which is kept"),
        Bound("materialized", kept[-1].to_sqn, f"snapshot {kept[-1].id} is the newest completed one"),
        *_of_tails(state),
        *([_of_backfills(state, log)] if log else []),
        *(Bound(f"hold {h.name}", _behind(state, h.snapshot), f"it is held: {h.why}") for h in state.holds),
        *(Bound(f"consumer {r.name}", r.sqn, "it has read the log up to there") for r in state.readers),
    ]
    if state.open_attempt:
        found.append(
            Bound("attempt", state.open_attempt.from_sqn, f"snapshot {state.open_attempt.id} is being made from there")
        )
    found += [
        Bound("attempt", s.from_sqn, f"snapshot {s.id}, as of {s.as_of}, is being made from there by run {s.run}")
        for s in state.as_of_attempts
    ]
    return tuple(sorted(found, key=lambda bound: bound.sqn))


def _of_tails(state: LogState) -> Iterable[Bound]:
    """One bound for all of them: there may be hundreds."""
    for oldest in sorted(tails(state), key=lambda s: s.from_sqn)[:1]:
        more = len(tails(state)) - 1
        which = f"snapshot {oldest.id} consists" if not more else f"snapshots {oldest.id} and {more:,} more consist"
        yield Bound("tail", oldest.from_sqn, f"tail-only {which} of what follows")


def _of_backfills(state: LogState, log: LogRetention) -> Bound:
    base, instant = find_backfill_base(state, log.since), format_instant(log.since)
    begins = f"snapshot {base.id} and the log after it are" if base else "the log is"
    why = f"{begins} kept for backfills since {instant} (`retention.log`)"
    return Bound("backfill", base.to_sqn if base else state.truncated_to, why)


def _behind(state: LogState, snapshot: int) -> int:
    found = require_snapshot(state, snapshot)
    return found.from_sqn if found.kind is SnapshotKind.TAIL else found.to_sqn


def truncate(state: LogState, keep: int | None, log: LogRetention | None = None) -> LogState:
    """Cuts the log up to its tightest bound; segments that no change set needs any more become garbage (I9)."""
    tightest = next(iter(bounds(state, keep, log)), None)
    if tightest is None or tightest.sqn <= state.truncated_to:
        return state
    kept = tuple(c for c in state.change_sets if c.sqn > tightest.sqn)
    # A run that was compacted can only go as a whole.
    cut = min([tightest.sqn, *(kept[0].begin - 1 for _ in kept[:1])])
    return replace(state, change_sets=kept, truncated_to=cut, garbage=_mark_garbage(state, kept))


def _mark_garbage(state: LogState, kept: Sequence[ChangeSet]) -> tuple[str, ...]:
    """The garbage when only these change sets are left."""
    needed = {c.location.segment for c in kept}
    cut = dict.fromkeys(c.location.segment for c in state.change_sets if c.location.segment not in needed)
    return (*state.garbage, *(path for path in cut if path not in state.garbage))


def find_compactable_runs(state: LogState, log: LogRetention | None = None) -> tuple[tuple[ChangeSet, ...], ...]:
    """Runs of at least two change sets of the tail of which only the last value a key is needed.

    Whatever ends in between is kept apart: snapshots onto which the log may be replayed, readers of the log and, with
    `log`, the instants that backfills ask for. None while an attempt is being made: it reads exactly what it planned.
    """
    if (state.open_attempt and state.open_attempt.state is State.ONGOING) or state.as_of_attempts:
        return ()
    ends = {s.to_sqn for s in state.snapshots if (s.open or s.state is State.COMPLETED) and s.as_of is None}
    ends |= {reader.sqn for reader in state.readers}
    runs: list[list[ChangeSet]] = [[]]
    for change_set in state.unfolded:
        is_large = sum(c.location.length for c in runs[-1]) + change_set.location.length > _COMPACTED_BYTES
        if is_large or (log and runs[-1] and _crosses_step((*runs[-1], change_set), log)):
            runs.append([])
        runs[-1].append(change_set)
        if change_set.sqn in ends:
            runs.append([])
    inside = {e for e in ends for c in state.unfolded if c.begin <= e < c.sqn}
    return tuple(tuple(run) for run in runs if len(run) > 1 and not inside)


def _crosses_step(run: Sequence[ChangeSet], log: LogRetention) -> bool:
    """Whether an instant that a backfill may ask for lies between changes of a run."""
    times = merge_ranges(one.times for one in run)
    if times is None:
        return True  # A change set of an older program: nobody knows.
    if times.first is None or times.last is None or times.last < log.since:
        return False
    return times.first // log.step != times.last // log.step


def compact(state: LogState, compacted: ChangeSet, log: LogRetention | None = None) -> LogState:
    """Puts one change set in the place of the run `compacted.begin` to `compacted.sqn` (C12).

    Raises ConflictError when that run is not there as a whole any more, or may no longer be compacted.
    """
    if compacted in state.change_sets:
        return state
    run = tuple(c for c in state.change_sets if compacted.begin <= c.begin and c.sqn <= compacted.sqn)
    found = next((r for r in find_compactable_runs(state, log) if set(run) <= set(r)), ())
    if not run or not found or (run[0].begin, run[-1].sqn) != (compacted.begin, compacted.sqn):
        raise ConflictError(
            "RUN_GONE",
            f"The change sets {compacted.begin} to {compacted.sqn} of `{state.log}` cannot be compacted any more.",
            hint="Nothing was changed. Call again.",
        )
    before = tuple(c for c in state.change_sets if c.sqn < compacted.begin)
    kept = (*before, compacted, *(c for c in state.change_sets if c.begin > compacted.sqn))
    return replace(state, change_sets=kept, garbage=_mark_garbage(state, kept))


def forget_garbage(state: LogState, paths: Iterable[str]) -> LogState:
    """Records that these garbage segments are gone."""
    gone = set(paths)
    left = tuple(path for path in state.garbage if path not in gone)
    return state if left == state.garbage else replace(state, garbage=left)


def tag(state: LogState, name: str, snapshot_id: int) -> LogState:
    """Names a completed snapshot, which keeps it. Refused for a retired one: its files may be going."""
    snapshot = require_snapshot(state, snapshot_id)
    if snapshot.state is not State.COMPLETED:
        raise RefusedError(
            "WRONG_STATE",
            f"Snapshot {snapshot_id} of `{state.log}` is {snapshot.state} and cannot be tagged.",
            hint=f"`tidefold history {state.log}` shows which snapshots are COMPLETED.",
        )
    taken = require_free(state, name, snapshot_id)
    return state if taken else replace(state, tags=(*state.tags, Tag(name, snapshot_id)))


def hold(state: LogState, wanted: Hold) -> LogState:
    """Keeps a completed snapshot and the log behind it. Refused for a retired one, or when the log behind it is cut."""
    snapshot = require_snapshot(state, wanted.snapshot)
    if snapshot.state is not State.COMPLETED or _behind(state, snapshot.id) < state.truncated_to:
        what = (
            f"is {snapshot.state}"
            if snapshot.state is not State.COMPLETED
            else "no longer has the change sets after it"
        )
        raise RefusedError(
            "CANNOT_HOLD",
            f"Snapshot {snapshot.id} of `{state.log}` {what} and cannot be held.",
            hint=f"Choose another from `tidefold history {state.log}`. `tidefold tag` keeps a snapshot alone.",
        )
    taken = next((h for h in state.holds if h.name == wanted.name), None)
    if taken and taken.snapshot != wanted.snapshot:
        raise RefusedError(
            "HOLD_TAKEN",
            f"Hold `{wanted.name}` of `{state.log}` already keeps snapshot {taken.snapshot}.",
            hint=f"`tidefold release {state.log} {wanted.name}` removes that hold. Or choose another name.",
        )
    return state if taken else replace(state, holds=(*state.holds, wanted))


def release(state: LogState, name: str) -> LogState:
    """Frees a hold; one that does not exist is no error."""
    left = tuple(h for h in state.holds if h.name != name)
    return state if left == state.holds else replace(state, holds=left)


def register(state: LogState, reader: Consumer) -> LogState:
    """Notes how far a reader of the log has come. Refused when he stands before what was cut, or beyond the end."""
    if not state.truncated_to <= reader.sqn <= state.last_sqn:
        raise RefusedError(
            "CONSUMER_OUTSIDE_LOG",
            f"Consumer `{reader.name}` cannot be at {reader.sqn}: "
            f"`{state.log}` has the change sets after {state.truncated_to} up to {state.last_sqn}.",
            hint="Read a snapshot first, then the log from the end of that snapshot.",
        )
    inside = next((c for c in state.change_sets if c.begin <= reader.sqn < c.sqn), None)
    if inside:
        raise RefusedError(
            "CONSUMER_INSIDE_RUN",
            f"Consumer `{reader.name}` cannot be at {reader.sqn}: "
            f"the change sets {inside.begin} to {inside.sqn} of `{state.log}` were compacted into one.",
            hint=f"Use {inside.begin - 1} or {inside.sqn}.",
        )
    others = tuple(r for r in state.readers if r.name != reader.name)
    return state if reader in state.readers else replace(state, readers=(*others, reader))


def unregister(state: LogState, name: str) -> LogState:
    """Forgets a reader; one that does not exist is no error."""
    left = tuple(r for r in state.readers if r.name != name)
    return state if left == state.readers else replace(state, readers=left)


def untag(state: LogState, name: str) -> LogState:
    """Frees a tag; one that does not exist is no error."""
    left = tuple(t for t in state.tags if t.name != name)
    return state if left == state.tags else replace(state, tags=left)
