"""Restores a snapshot: its rows become the next snapshot of the log, under a new id. Explains what it would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.log_state import ChangeSet, LogState, Snapshot, SnapshotKind
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot import claim
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint, describe_replayed
from tidefold.domain.snapshot.manifest import data_folder
from tidefold.domain.source_progress_history import progress_at
from tidefold.domain.table.types import find_dropped_columns
from tidefold.domain.wording import count_noun
from tidefold.errors import NotFoundError, StorageError
from tidefold.fold.inputs import Inputs
from tidefold.fold.plan import Address, FoldTask, Input, Recipe
from tidefold.operations.ground.originals import with_originals
from tidefold.operations.ground.outcome import Details, Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.ground.snapshot_details import FailedRead
from tidefold.operations.local_copies.manage import places_of
from tidefold.operations.restore.plan import Into, find_rows_of_attempt, plan_restore
from tidefold.operations.snapshot import attempt
from tidefold.operations.snapshot.attempt import Attempt, Claimant, RestoreInfo
from tidefold.operations.snapshot.task_results import find_failed_reads

# The lengths of a folder's files by path, or why the folder cannot be listed.
_Listed = Mapping[str, int] | str


class Restore(msgspec.Struct, frozen=True, tag="restore"):
    """Asks for the rows of an older snapshot.

    `point`: the snapshot, and what happens to the changes after it.
    `takeover`: supersede an attempt of another run.
    `kind`: of the new snapshot, if not as configured.
    `by`: who asks.
    """

    run: str
    point: RestorePoint
    takeover: bool = False
    kind: KindPolicy | None = None
    by: str = ""

    def prepare_claim(self, pipeline: Pipeline, log: str) -> Claimant:
        """Raises TidefoldError, also for a log that has ingested nothing."""
        pipeline.ledger(log).read()
        attempt.require_no_set(pipeline, log)
        attempt.bring_up_to_date(pipeline, log, self.run)
        return self.claimant(pipeline)

    def claimant(self, pipeline: Pipeline) -> Claimant:
        return partial(self._claim, pipeline, now(), attempt.new_token())

    def _claim(self, pipeline: Pipeline, instant: str, token: str, state: LogState) -> LogState:
        chosen = attempt.choose_kind(pipeline, state, self.kind)
        wanted: dict[str, Any] = {"kind": self.kind or SnapshotKind.FULL, **({"asked": True} if self.kind else {})}
        asked = claim.Claim(
            run=self.run,
            request=attempt.hash_request({**wanted, "restore": self.point}),
            kind=chosen.kind,
            instant=instant,
            takeover=self.takeover,
            restore=self.point,
            because=chosen.because,
            expire=pipeline.log_of(state).expire(instant),
            token=token,
            by=self.by,
        )
        return claim.claim(state, asked)

    def describe_unclaimed(self, pipeline: Pipeline, state: LogState) -> Outcome:
        return attempt.describe_unclaimed(state, self.run, "nothing to restore")

    def plan(self, pipeline: Pipeline, state: LogState, snapshot: Snapshot) -> Attempt:
        """Reads manifests only. Raises TidefoldError."""
        paths = LogPaths(state.log)
        places = with_originals(state, places_of(pipeline, state.log))
        target = Address(StorageTier.STORE, places.store, data_folder(state.log, snapshot.kind, snapshot.id))
        into = Into(target, snapshot.id, snapshot.epoch, paths.table, pipeline.config.snapshots.copies, snapshot.token)
        wanted = find_rows_of_attempt(state, snapshot)
        planned = plan_restore(pipeline, wanted, places, into)
        source = None if snapshot.parent is None else state.snapshot(snapshot.parent)
        restored = RestoreInfo(
            mode=self.point.mode,
            snapshot=snapshot.parent if self.point.mode is RestoreMode.CARRY else self.point.snapshot,
            skipped=attempt.find_skipped_range(snapshot),
            as_of=str(source.as_of or "") if source else "",
            replayed=(snapshot.to_sqn + 1, state.last_sqn) if snapshot.to_sqn < state.last_sqn else None,
            dropped_columns=find_dropped_columns(state.schemas, source.schema, snapshot.schema) if source else (),
            unread=planned.failed,
        )
        return Attempt(
            state.log,
            snapshot,
            planned.base,
            planned.shape,
            planned.tasks,
            schemas=state.schemas,
            progress=progress_at(state, snapshot.to_sqn),
            restored=restored,
            expected_rows=wanted.rows,
            redistribution=planned.base.redistribution if planned.base else pipeline.log(state.log).distribution,
        )


# Reads names, lengths and manifests. Claims nothing, changes nothing, needs no Spark.


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacePlan:
    """A place that a restore would try. `bytes`: the length of its file; `found`: what that means."""

    place: str
    bytes: int | None
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPlan:
    """A file that a restore would read, and its places in the order in which they are tried."""

    file: str
    bytes: int
    rows: int
    places: Sequence[PlacePlan]


@dataclass(frozen=True, slots=True, kw_only=True)
class WayPlan:
    """A way to make a bucket: the files of a snapshot and ranges of change sets after it."""

    snapshot: int | None
    files: Sequence[InputPlan]
    change_sets: Sequence[Sequence[int]]
    change_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlan:
    """The ways to make a bucket, in the order in which they are tried. `key_groups`: the first and the last."""

    key_groups: Sequence[int]
    ways: Sequence[WayPlan]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlanDetails(Details):
    """What a restore would do.

    `new_id`: the id that the restored snapshot gets; `as` in the JSON output.
    `because`: why it is of this kind.
    `target`: the folder that it would write to.
    `manifests`: places of the manifest that could not be read.
    """

    restored: int
    mode: RestoreMode
    new_id: int
    kind: SnapshotKind
    because: str
    target: str
    from_sqn: int
    to_sqn: int
    manifests: Sequence[FailedRead]
    buckets: Sequence[BucketPlan]

    def to_dict(self) -> dict[str, Any]:
        return {"as" if name == "new_id" else name: value for name, value in Details.to_dict(self).items()}


def explain(pipeline: Pipeline, log: str, request: Restore) -> Outcome:
    """Plans a restore and describes the plan. Raises the errors that the restore itself would raise."""
    state = pipeline.ledger(log).read()
    claimed = request.claimant(pipeline)(state).open_attempt
    if claimed is None or claimed.run != request.run:
        raise NotFoundError("NOTHING_TO_RESTORE", f"Run `{request.run}` was no restore.")
    planned = request.plan(pipeline, state, claimed)
    look = _Look(Inputs({pipeline.store.address: pipeline.store}))
    buckets = [_bucket(task, look) for task in sorted(planned.tasks, key=lambda task: task.bucket)]
    details = RestorePlanDetails(
        restored=request.point.snapshot,
        mode=request.point.mode,
        new_id=claimed.id,
        kind=claimed.kind,
        because=claimed.kind_reason,
        target=f"{pipeline.store.address}/{data_folder(log, claimed.kind, claimed.id)}",
        from_sqn=claimed.from_sqn,
        to_sqn=claimed.to_sqn,
        manifests=find_failed_reads(planned.restored.unread if planned.restored else ()),
        buckets=buckets,
    )
    rows = "" if planned.expected_rows is None else f"{count_noun(planned.expected_rows, 'row')} in "
    message = (
        f"would restore snapshot {request.point.snapshot} as {claimed.id}: {rows}{count_noun(len(buckets), 'bucket')}"
    )
    message += _describe_later(request.point.mode, planned.restored)
    return Outcome(log, Status.PLANNED, message, details=details)


def _describe_later(mode: RestoreMode, restored: RestoreInfo | None) -> str:
    if restored and (left_out := restored.describe_left_out()):
        return f"; it would leave out for good: {left_out}"
    return f"; {describe_replayed(mode, *restored.replayed)}" if restored and restored.replayed else ""


def _bucket(task: FoldTask, look: _Look) -> BucketPlan:
    ways = [_way(task, recipe, look) for recipe in task.recipes]
    return BucketPlan(key_groups=[task.bucket.first, task.bucket.last], ways=ways)


def _way(task: FoldTask, recipe: Recipe, look: _Look) -> WayPlan:
    change_sets = task.change_sets(recipe)
    return WayPlan(
        snapshot=recipe.snapshot,
        files=[_file(one, look) for one in recipe.base],
        change_sets=spans(change_sets),
        change_bytes=sum(change_set.location.length for change_set in change_sets),
    )


def spans(change_sets: Sequence[ChangeSet]) -> list[list[int]]:
    """Returns change sets as ranges of sqns, first and last. Adjacent ranges are joined."""
    ranges: list[list[int]] = []
    for one in change_sets:
        if ranges and one.begin == ranges[-1][1] + 1:
            ranges[-1][1] = one.sqn
        else:
            ranges.append([one.begin, one.sqn])
    return ranges


def _file(one: Input, look: _Look) -> InputPlan:
    places = [look.at(address, one.file.bytes) for address in one.addresses]
    return InputPlan(file=one.file.name, bytes=one.file.bytes, rows=one.file.rows, places=places)


class _Look:
    """Lists each folder once."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._listed: dict[tuple[str, str], _Listed] = {}

    def at(self, address: Address, expected: int) -> PlacePlan:
        """Returns the length of the file at an address (None: there is none), and what that means."""
        folder = address.path.rpartition("/")[0]
        if (address.root, folder) not in self._listed:
            self._listed[address.root, folder] = self._list(address, folder)
        listed = self._listed[address.root, folder]
        if isinstance(listed, str):
            return PlacePlan(place=str(address), bytes=None, found=listed)
        length = listed.get(address.path)
        state = "missing" if length is None else "there" if length == expected else "of another length"
        return PlacePlan(place=str(address), bytes=length, found=state)

    def _list(self, address: Address, folder: str) -> _Listed:
        try:
            return {entry.path: entry.bytes for entry in self._inputs.store(address).list(folder)}
        except StorageError as error:
            if address.where is StorageTier.STORE:
                raise
            return f"unreadable ({error.message})"
