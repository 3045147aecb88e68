"""What is kept and what may go: snapshots beyond the newest N, and the log that nothing kept needs (design 4.5).

Protect first, delete second: a move marks what is left after the protected was taken out, a sweep deletes what is
marked, a later move forgets it. Nothing marked ever comes back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidefold.lifecycle.errors import InvalidInputError, RefusedError
from tidefold.lifecycle.moves import known
from tidefold.lifecycle.values import LogState, Snapshot, State, Tag


@dataclass(frozen=True, slots=True)
class Bound:
    """Something that keeps the log: it may be cut up to `sqn` as far as this is concerned."""

    name: str
    sqn: int
    why: str


def newest(state: LogState, keep: int) -> tuple[Snapshot, ...]:
    """The newest `keep` completed snapshots, oldest first."""
    if keep < 1:
        raise InvalidInputError("RETENTION_INVALID", f"{keep} snapshots cannot be kept.", hint="Keep at least one.")
    return tuple(s for s in state.snapshots if s.state is State.COMPLETED)[-keep:]


def protected(state: LogState, keep: int) -> frozenset[int]:
    """Ids of the completed snapshots that must stay: the newest `keep`, and tagged ones."""
    return frozenset({s.id for s in newest(state, keep)} | {t.snapshot for t in state.tags})


def subsume(state: LogState, keep: int) -> LogState:
    """Retires the completed snapshots that are not protected; their files go with the next sweep."""
    kept = protected(state, keep)
    snapshots = tuple(
        replace(s, state=State.SUBSUMED) if s.state is State.COMPLETED and s.id not in kept else s
        for s in state.snapshots
    )
    return state if snapshots == state.snapshots else replace(state, snapshots=snapshots)


def subsumed(state: LogState) -> tuple[Snapshot, ...]:
    """Retired snapshots whose files were not yet removed."""
    return tuple(s for s in state.snapshots if s.state is State.SUBSUMED)


def deleted(state: LogState, snapshots: Iterable[int]) -> LogState:
    """Records that the files of these retired snapshots are gone."""
    gone = set(snapshots)
    marked = tuple(
        replace(s, state=State.DELETED) if s.id in gone and s.state is State.SUBSUMED else s for s in state.snapshots
    )
    return state if marked == state.snapshots else replace(state, snapshots=marked)


def bounds(state: LogState, keep: int | None) -> tuple[Bound, ...]:
    """Everything that keeps the log, the tightest first. Empty: nothing was folded yet, so nothing may be cut.

    The log can be replayed onto each of the newest `keep` snapshots (None: onto every completed one). A tag keeps its
    snapshot, which is complete without the log, and not the log behind it.
    """
    count = keep if keep is not None else len(state.snapshots)
    kept = newest(state, max(count, 1))
    if not kept:
        return ()
    found = [
        Bound("replay", kept[0].to_sqn, f"the log can be replayed onto snapshot {kept[0].id}, the oldest kept"),
        Bound("materialized", kept[-1].to_sqn, f"snapshot {kept[-1].id} is the newest completed one"),
    ]
    if state.attempt:
        found.append(Bound("attempt", state.attempt.from_sqn, f"snapshot {state.attempt.id} is being made from there"))
    return tuple(sorted(found, key=lambda bound: bound.sqn))


def truncate(state: LogState, keep: int | None) -> LogState:
    """Cuts the log up to its tightest bound; segments that no change set needs any more become garbage (I9)."""
    tightest = next(iter(bounds(state, keep)), None)
    if tightest is None or tightest.sqn <= state.truncated_to:
        return state
    kept = tuple(c for c in state.change_sets if c.sqn > tightest.sqn)
    needed = {c.segment for c in kept}
    cut = dict.fromkeys(c.segment for c in state.change_sets if c.segment not in needed)
    garbage = (*state.garbage, *(path for path in cut if path not in state.garbage))
    return replace(state, change_sets=kept, truncated_to=tightest.sqn, garbage=garbage)


def collected(state: LogState, paths: Iterable[str]) -> LogState:
    """Records that these garbage segments are gone."""
    gone = set(paths)
    left = tuple(path for path in state.garbage if path not in gone)
    return state if left == state.garbage else replace(state, garbage=left)


def tag(state: LogState, name: str, snapshot_id: int) -> LogState:
    """Names a completed snapshot, which keeps it. Refused for a retired one: its files may be going (design 3)."""
    snapshot = known(state, snapshot_id)
    if snapshot.state is not State.COMPLETED:
        raise RefusedError(
            "WRONG_STATE",
            f"Snapshot {snapshot_id} of `{state.log}` is {snapshot.state} and cannot be tagged.",
            hint=f"`tidefold history {state.log}` shows which snapshots are COMPLETED.",
        )
    taken = next((t for t in state.tags if t.name == name), None)
    if taken and taken.snapshot != snapshot_id:
        raise RefusedError(
            "TAG_TAKEN",
            f"Tag `{name}` of `{state.log}` names snapshot {taken.snapshot}.",
            hint=f"`tidefold untag {state.log} {name}` frees it.",
        )
    return state if taken else replace(state, tags=(*state.tags, Tag(name, snapshot_id)))


def untag(state: LogState, name: str) -> LogState:
    """Frees a tag; one that does not exist is no error."""
    left = tuple(t for t in state.tags if t.name != name)
    return state if left == state.tags else replace(state, tags=left)
