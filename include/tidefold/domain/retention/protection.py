"""Which snapshots are kept, and which may be deleted.

One transition marks the snapshots that nothing protects, then a sweep deletes their files, and a last transition
records that the files are deleted. A marked snapshot is never used again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State
from tidefold.domain.retention.log_retention import LogRetention
from tidefold.domain.snapshot.point_in_time import find_backfill_base
from tidefold.errors import InvalidInputError


def with_files(snapshots: Iterable[Snapshot]) -> tuple[Snapshot, ...]:
    """Returns the snapshots that have files of their own."""
    return tuple(s for s in snapshots if s.kind is not SnapshotKind.TAIL)


def newest(state: LogState, keep: int) -> tuple[Snapshot, ...]:
    """Returns the newest `keep` completed snapshots with files of their own, oldest first; none as of an instant."""
    if keep < 1:
        raise InvalidInputError(
            "RETENTION_INVALID", f"Retention cannot keep {keep} snapshots.", hint="Keep at least one."
        )
    return tuple(s for s in state.snapshots if s.state is State.COMPLETED and s.in_main_lineage)[-keep:]


def tails(state: LogState) -> tuple[Snapshot, ...]:
    """Returns the completed tail-only snapshots."""
    return tuple(s for s in state.snapshots if s.state is State.COMPLETED and s.kind is SnapshotKind.TAIL)


def find_protected(state: LogState, keep: int, log: LogRetention | None = None) -> frozenset[int]:
    """Returns the ids of the completed snapshots that must stay.

    These are the newest `keep` and the tails on them, tagged and held ones, the base of each kept tail, and those that
    an open attempt builds on or may restore from. Only its tag keeps a snapshot as of an instant. With `log`, the
    snapshot that the oldest backfill begins with stays too.
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
    """Yields the ids that an attempt needs: its base, and for a restore also older snapshots with rows to link."""
    known = {s.id: s for s in state.snapshots}
    below = attempt.parent
    while below is not None:
        if known[below].state is State.COMPLETED:
            yield below
        below = known[below].parent if attempt.restored_from is not None else None


def subsume(state: LogState, keep: int, log: LogRetention | None = None) -> LogState:
    """Retires the completed snapshots that are not protected. The next sweep deletes their files."""
    kept = find_protected(state, keep, log)
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
