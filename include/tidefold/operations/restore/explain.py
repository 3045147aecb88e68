"""Describes what a restore would do: the files of each bucket, the places of each file, and the older ways.

Reads names, lengths and manifests. Claims nothing, changes nothing, needs no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidefold.domain.log_state import ChangeSet, SnapshotKind
from tidefold.domain.snapshot.claim import RestoreMode
from tidefold.domain.storage_tier import StorageTier
from tidefold.errors import NotFoundError, StorageError
from tidefold.fold.inputs import Inputs
from tidefold.fold.plan import Address, Input, Recipe
from tidefold.fold.task import FoldTask
from tidefold.operations.outcome import Details, Outcome, Status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.restore.restore import Restore
from tidefold.operations.snapshot.details import FailedRead
from tidefold.operations.snapshot.task_results import find_failed_reads

# The lengths of a folder's files by path, or why the folder cannot be listed.
_Listed = Mapping[str, int] | str


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
    `manifests`: places of the manifest that could not be read.
    """

    restored: int
    mode: RestoreMode
    new_id: int
    kind: SnapshotKind
    because: str
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
        raise NotFoundError("NOTHING_TO_RESTORE", f"Run `{request.run}` was no restore.", hint="Use another run id.")
    attempt = request.plan(pipeline, state, claimed)
    look = _Look(Inputs({pipeline.store.address: pipeline.store}))
    buckets = [_bucket(task, look) for task in sorted(attempt.tasks, key=lambda task: task.bucket)]
    details = RestorePlanDetails(
        restored=request.point.snapshot,
        mode=request.point.mode,
        new_id=claimed.id,
        kind=claimed.kind,
        because=claimed.kind_reason,
        from_sqn=claimed.from_sqn,
        to_sqn=claimed.to_sqn,
        manifests=find_failed_reads(attempt.restored.unread if attempt.restored else ()),
        buckets=buckets,
    )
    ways = max((len(bucket.ways) for bucket in buckets), default=0)
    message = f"would restore snapshot {request.point.snapshot} as {claimed.id} in {len(buckets)} buckets"
    return Outcome(log, Status.PLANNED, f"{message}, {ways} ways each at most", details=details)


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
    found: list[list[int]] = []
    for one in change_sets:
        if found and one.begin == found[-1][1] + 1:
            found[-1][1] = one.sqn
        else:
            found.append([one.begin, one.sqn])
    return found


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
        found = "missing" if length is None else "there" if length == expected else "of another length"
        return PlacePlan(place=str(address), bytes=length, found=found)

    def _list(self, address: Address, folder: str) -> _Listed:
        try:
            return {entry.path: entry.bytes for entry in self._inputs.store(address).list(folder)}
        except StorageError as error:
            if address.where is StorageTier.STORE:
                raise
            return f"unreadable ({error.message})"
