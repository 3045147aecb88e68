"""How far the log may be truncated. Everything that needs the log is a bound; the tightest bound decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tidefold.domain.commit_times import format_instant
from tidefold.domain.log_state import ChangeSet, LogState, Snapshot, SnapshotKind
from tidefold.domain.retention.log_retention import LogRetention
from tidefold.domain.retention.protection import newest, tails
from tidefold.domain.snapshot.point_in_time import find_backfill_base
from tidefold.domain.snapshot.transitions import require_snapshot


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
    oldest = min(kept, key=lambda s: s.to_sqn)
    found = [
        Bound("replay", oldest.to_sqn, _describe_replay(state, oldest)),
        Bound("materialized", kept[-1].to_sqn, f"snapshot {kept[-1].id} is the newest completed one"),
        *_of_tails(state),
        *([_of_backfills(state, log)] if log else []),
        *(Bound(f"hold {h.name}", end_of_snapshot(state, h.snapshot), f"it is held: {h.why}") for h in state.holds),
        *(Bound(f"consumer {c.name}", c.sqn, "the consumer has read the log up to there") for c in state.readers),
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
    found = require_snapshot(state, snapshot)
    return found.from_sqn if found.kind is SnapshotKind.TAIL else found.to_sqn


def truncate(state: LogState, keep: int | None, log: LogRetention | None = None) -> LogState:
    """Truncates the log up to its tightest bound. Segments that no change set needs any more become garbage (I9)."""
    tightest = next(iter(bounds(state, keep, log)), None)
    if tightest is None or tightest.sqn <= state.truncated_to:
        return state
    kept = tuple(c for c in state.change_sets if c.sqn > tightest.sqn)
    # A compacted change set is removed as a whole or not at all.
    cut = min([tightest.sqn, *(kept[0].begin - 1 for _ in kept[:1])])
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
