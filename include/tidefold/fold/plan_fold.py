"""Plans a materialization: which buckets to make, and from which addresses, the largest first. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidefold.changelog.schema import Aligner
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.key_groups import KeyGroups, bucket_ranges
from tidefold.domain.log_state import ChangeSet, LogState, Snapshot, SnapshotKind, TableSpec
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.manifest import DataFile, Manifest, data_folder
from tidefold.domain.snapshot.point_in_time import change_sets_of
from tidefold.errors import RefusedError
from tidefold.fold.inputs import SourcePlaces
from tidefold.fold.plan import (
    Address,
    FoldPlan,
    FoldResult,
    FoldTask,
    Recipe,
    RewriteAction,
    RewriteDecision,
    decide_rewrite,
    number_ways,
)
from tidefold.storage.local_copies.host_copies import HostFolders


def plan_fold(
    state: LogState,
    snapshot: Snapshot,
    base: Manifest | None,
    shape: TableSpec,
    places: SourcePlaces,
    marks: bool = False,
) -> tuple[FoldTask, ...]:
    """Returns one task for each bucket that a change may belong to, or whose files cannot stay.

    All files must change if the number of buckets or, by a new schema, their values change. Files with expired rows
    must change if the snapshot drops these rows, files with deletions if it is a full one. Raises RefusedError if the
    change sets do not join the base without gap or overlap (I7).

    shape: the table definition of the new snapshot.
    marks: the snapshot may mark rows as deleted.
    """
    if snapshot.as_of:
        change_sets = change_sets_of(state, snapshot)
    else:
        change_sets = state.change_sets_in(snapshot.from_sqn, snapshot.folds_to)
        require_joined(state.log, snapshot, change_sets)
    # Only what shares its files with former snapshots gains by leaving them as they are.
    marking = marks and snapshot.kind is SnapshotKind.INCREMENTAL
    return _tasks(state, snapshot, base, shape, places, change_sets, marking)


def _tasks(
    state: LogState,
    snapshot: Snapshot,
    base: Manifest | None,
    shape: TableSpec,
    places: SourcePlaces,
    change_sets: Sequence[ChangeSet],
    marks: bool,
) -> tuple[FoldTask, ...]:
    aligner = Aligner(shape, snapshot.schema, state.schemas)
    differs = base is not None and aligner.must_rewrite(base.schema)
    rescaled = base is not None and base.shape.buckets != shape.buckets
    # What is forgotten now was announced by the snapshot below: an ingest under way knew it.
    below = state.snapshot(snapshot.parent) if snapshot.parent is not None else None
    numbered, ways = number_ways([change_sets])
    plan = FoldPlan(
        log=state.log,
        shape=shape,
        snapshot=snapshot.id,
        epoch=snapshot.epoch,
        target=Address(StorageTier.STORE, places.store, data_folder(state.log, snapshot.kind, snapshot.id)),
        segments=places.logs,
        change_sets=numbered,
        ways=ways,
        expire=snapshot.expire,
        horizon=below.horizon if below else None,
        before=snapshot.as_of.at if snapshot.as_of else None,
        marks=marks,
        gathers=True,
        schema=snapshot.schema,
        schemas=state.schemas,
        token=snapshot.token,
        hosts=None if snapshot.as_of else _name_needed(places.hosts, base, numbered),
    )
    tasks = []
    for bucket in bucket_ranges(shape.key_groups, shape.buckets):
        files = files_of(bucket, base)
        unchanged = decide_rewrite(
            files,
            bucket,
            unchanged=RewriteAction.KEEP,
            expire=snapshot.expire,
            schema_differs=differs,
            rescaled=rescaled,
            keeps_deletions=snapshot.kind is not SnapshotKind.FULL,
        )
        if len(plan.find_change_sets(0, bucket)) or (files and unchanged.action is RewriteAction.REWRITE):
            tasks.append(FoldTask(plan, bucket, (_recipe(base, files, places, unchanged),)))
    return sort_by_weight(tasks)


def _name_needed(
    hosts: HostFolders | None, base: Manifest | None, change_sets: Sequence[ChangeSet]
) -> HostFolders | None:
    """Returns the folders of the hosts with the copies that a fold needs there. Its tasks remove the others."""
    files = {file.sha256 for file in base.files} if base else set()
    segments = {one.location.segment.rpartition("/")[2] for one in change_sets}
    return replace(hosts, needed=(*sorted(files), *sorted(segments))) if hosts else None


def sort_by_weight(tasks: Sequence[FoldTask]) -> tuple[FoldTask, ...]:
    """Returns the tasks, the largest first."""
    return tuple(sorted(tasks, key=lambda task: -task.weight))


def _recipe(
    base: Manifest | None, files: Sequence[DataFile], places: SourcePlaces, unchanged: RewriteDecision
) -> Recipe:
    if base is None:
        return Recipe(None, (), unchanged=unchanged)
    inputs = places.inputs(base, files, base.data_folder, LogPaths(base.log).table)
    return Recipe(base.snapshot, inputs, 0, base.cleared, base.schema, unchanged)


def files_of(bucket: KeyGroups, base: Manifest | None) -> tuple[DataFile, ...]:
    """Returns the base files that belong to a bucket."""
    return tuple(f for f in base.files if f.key_groups.meets(bucket)) if base else ()


def find_carried_files(base: Manifest | None, results: Sequence[FoldResult]) -> tuple[DataFile, ...]:
    """Returns the base files of every bucket that no result replaces."""
    if base is None:
        return ()
    replaced = [result.bucket for result in results if result.touched and not result.added]
    return tuple(f for f in base.files if not any(f.key_groups.meets(bucket) for bucket in replaced))


def require_joined(log: str, snapshot: Snapshot, change_sets: Sequence[ChangeSet]) -> None:
    """Raises RefusedError if these are not all change sets that the snapshot folds."""
    begins = [c.begin for c in change_sets]
    ends = [snapshot.from_sqn, *(c.sqn for c in change_sets)]
    if [end + 1 for end in ends] != [*begins, snapshot.folds_to + 1]:
        raise RefusedError(
            "SQN_GAP",
            f"Snapshot {snapshot.id} of `{log}` needs the change sets {snapshot.from_sqn + 1} to {snapshot.folds_to}, "
            f"but the log has {', '.join(str(end) for end in ends[1:]) or 'none'}.",
            hint=f"Restore an older snapshot; `tidefold snapshot history {log}` lists them.",
        )
