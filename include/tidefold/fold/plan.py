"""Plans a materialization: which buckets to fold from what, largest first. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidefold.lifecycle.errors import RefusedError
from tidefold.lifecycle.key_groups import KeyGroups, bucket_ranges
from tidefold.lifecycle.manifest import DataFile, Manifest
from tidefold.lifecycle.values import ChangeSet, LogState, Shape, Snapshot


@dataclass(frozen=True, slots=True)
class FoldTask:
    """Everything one task needs to fold one bucket; it reads nothing that is not named here (I6).

    `store` is the store's address, `base` the files of this bucket in snapshot `base_snapshot`.
    """

    store: str
    log: str
    shape: Shape
    snapshot: int
    epoch: int
    bucket: KeyGroups
    base_snapshot: int | None
    base: tuple[DataFile, ...]
    change_sets: tuple[ChangeSet, ...]

    @property
    def weight(self) -> int:
        """About how many bytes the task reads."""
        changes = sum(c.length * _share(self.bucket, c.key_groups) for c in self.change_sets)
        return sum(f.bytes for f in self.base) + int(changes)


@dataclass(frozen=True, slots=True)
class FoldResult:
    """What became of one bucket. `file` is None when it has no rows left; `touched` is False when none of the changes
    was for it and its base files can be carried. Counts are of keys after squashing; `replaced`: base rows that went.
    """

    bucket: KeyGroups
    touched: bool
    file: DataFile | None
    upserts: int = 0
    deletes: int = 0
    replaced: int = 0
    changes: int = 0


def plan_fold(store: str, state: LogState, snapshot: Snapshot, base: Manifest | None) -> tuple[FoldTask, ...]:
    """One task for each bucket that a change may be for.

    Raises RefusedError when the change sets do not join the base without gap or overlap (I7).
    """
    change_sets = state.between(snapshot.from_sqn, snapshot.folds_to)
    _require_joined(state.log, snapshot, change_sets)
    tasks = []
    for bucket in bucket_ranges(state.shape.key_groups, state.shape.buckets):
        mine = tuple(c for c in change_sets if c.key_groups.meets(bucket))
        if mine:
            files = files_of(bucket, base)
            base_id = base.snapshot if base else None
            tasks.append(
                FoldTask(store, state.log, state.shape, snapshot.id, snapshot.epoch, bucket, base_id, files, mine)
            )
    return tuple(sorted(tasks, key=lambda task: -task.weight))


def files_of(bucket: KeyGroups, base: Manifest | None) -> tuple[DataFile, ...]:
    """The base files that belong to a bucket."""
    return tuple(f for f in base.files if f.key_groups.meets(bucket)) if base else ()


def carried_files(base: Manifest | None, results: Sequence[FoldResult]) -> tuple[DataFile, ...]:
    """The base files of every bucket that no result replaces."""
    if base is None:
        return ()
    replaced = [result.bucket for result in results if result.touched]
    return tuple(f for f in base.files if not any(f.key_groups.meets(bucket) for bucket in replaced))


def _require_joined(log: str, snapshot: Snapshot, change_sets: tuple[ChangeSet, ...]) -> None:
    begins = [c.begin for c in change_sets]
    ends = [snapshot.from_sqn, *(c.sqn for c in change_sets)]
    if [end + 1 for end in ends] != [*begins, snapshot.folds_to + 1]:
        raise RefusedError(
            "SQN_GAP",
            f"Snapshot {snapshot.id} of `{log}` needs the change sets {snapshot.from_sqn + 1} to {snapshot.folds_to}, "
            f"the log has {ends[1:]}.",
            hint=f"`tidefold history {log}` shows what was folded; restore an older snapshot.",
        )


def _share(bucket: KeyGroups, span: KeyGroups) -> float:
    overlap = min(bucket.last, span.last) - max(bucket.first, span.first) + 1
    return overlap / (span.last - span.first + 1)
