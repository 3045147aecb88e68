"""Plans a restore: for each bucket every way to make its rows again, the cheapest first (L6, I17).

The first way is the snapshot's own files: the local copy, then the store, then the original of an imported file. The
next ways are older snapshots and the log. Planning reads manifests only.

How a source is chosen: `fold/inputs.py` lists the addresses of each file in this order and reads the first one whose
bytes match the recorded checksum, and `fold/fold_bucket.py` tries the next way if there is none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tidefold.changelog.schema import Aligner
from tidefold.domain.key_groups import KeyGroups, OwnedRows, bucket_ranges
from tidefold.domain.log_state import ChangeSet, Expire, LogState, Snapshot, SnapshotKind, TableSpec
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.snapshot.point_in_time import older
from tidefold.domain.table.schema_evolution import shape_at
from tidefold.domain.table.table_spec import Engine
from tidefold.domain.table.types import find_dropped_columns
from tidefold.errors import CorruptError, TidefoldError
from tidefold.fold.inputs import Inputs, SourcePlaces
from tidefold.fold.plan import (
    Address,
    FoldPlan,
    FoldTask,
    Read,
    Recipe,
    RewriteAction,
    RewriteDecision,
    decide_rewrite,
    number_ways,
)
from tidefold.fold.plan_fold import files_of, require_joined, sort_by_weight
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.publish.publish_log import find_manifest

_log = logging.getLogger(__name__)
# One way to make all rows: a manifest (None: the empty table) and the change sets to fold into it.
_Way = tuple[Manifest | None, tuple[ChangeSet, ...]]


@dataclass(frozen=True, slots=True)
class RestoredRows:
    """Rows to make: those of `below` with `tail` folded in, in this schema. `expire` drops old rows.

    only: the rows of one owner.
    """

    state: LogState
    below: Snapshot
    tail: tuple[ChangeSet, ...]
    schema: int
    expire: Expire | None = None
    only: OwnedRows | None = None

    @property
    def rows(self) -> int | None:
        """Returns their number, if it is known.

        Versions of a history that only a dropped column told apart become one.
        """
        shape, gone = self.state.shape, find_dropped_columns(self.state.schemas, self.below.schema, self.schema)
        joins = bool(gone) and shape.merge.engine is Engine.HISTORY and shape.orders_by_file
        return None if self.tail or self.only or joins else self.below.rows

    @property
    def limit(self) -> Expire | None:
        """Returns which rows may be dropped without a loss: rows that `below` dropped are not in it anyway."""
        own, asked = self.below.expire, self.expire
        if self.tail or own is None or (asked is not None and asked.column != own.column):
            return asked
        return max(asked or own, own, key=lambda one: one.before)


@dataclass(frozen=True, slots=True)
class Into:
    """What the tasks write: a folder's address, and as which snapshot and attempt.

    table: folder of the table that will link the files, if any.
    copy: the table gets bytes of its own.
    """

    target: Address
    snapshot: int
    epoch: int
    table: str | None = None
    copy: bool = False
    token: str = ""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The tasks, and the manifest they begin with; None: no copy of it is intact, so only older ones can serve.

    failed: places whose manifests cannot be used.
    """

    base: Manifest | None
    shape: TableSpec
    tasks: tuple[FoldTask, ...]
    failed: tuple[Read, ...]


def find_rows_of_attempt(state: LogState, attempt: Snapshot) -> RestoredRows:
    """Returns the rows that an attempt restores. Raises CorruptError, RefusedError."""
    return _find_rows(state, attempt.parent, attempt, attempt.expire)


def find_rows(state: LogState, snapshot: Snapshot, expire: Expire | None = None) -> RestoredRows:
    """Returns the rows of a completed snapshot without those that `expire` drops. Raises CorruptError, RefusedError."""
    if snapshot.kind is SnapshotKind.TAIL:
        return _find_rows(state, snapshot.base, snapshot, expire)
    return RestoredRows(state, snapshot, (), snapshot.schema, expire)


def _find_rows(state: LogState, source: int | None, tail: Snapshot, expire: Expire | None) -> RestoredRows:
    below = None if source is None else state.snapshot(source)
    if below is None:
        raise CorruptError("BASE_MISSING", f"The ledger does not know the base of snapshot {tail.id} of `{state.log}`.")
    change_sets = state.change_sets_in(tail.from_sqn, tail.folds_to)
    require_joined(state.log, tail, change_sets)
    return RestoredRows(state, below, change_sets, tail.schema, expire)


def plan_restore(
    pipeline: Pipeline, wanted: RestoredRows, places: SourcePlaces, into: Into, within: KeyGroups | None = None
) -> RestorePlan:
    """Returns one task for each bucket of the snapshot, or for the part of it `within` the key groups.

    Raises CorruptError if no manifest can be read, neither of the snapshot nor of an older one.
    """
    inputs = Inputs({places.store: pipeline.store})
    own, ways = _ways(wanted, places, inputs)
    buckets = (own.shape if own else wanted.state.shape).buckets
    shape = replace(shape_at(wanted.state, wanted.schema), buckets=buckets)
    aligner = Aligner(shape, wanted.schema, wanted.state.schemas)
    plan = _plan(wanted, places, into, shape, [change_sets for _, change_sets in ways])
    tasks = []
    for bucket in bucket_ranges(shape.key_groups, shape.buckets):
        span = bucket if within is None else _overlap(bucket, within)
        if not span:
            continue
        recipes = tuple(
            _recipe(wanted, manifest, number, span, aligner, places) for number, (manifest, _) in enumerate(ways)
        )
        task = FoldTask(plan, span, recipes)
        # A bucket without files of the snapshot itself has no rows, even if older snapshots had rows there.
        if any(r.base or len(task.find_change_sets(r)) for r in (recipes[:1] if own else recipes)):
            tasks.append(task)
    failed = tuple(read for read in inputs.reads if read.why)
    return RestorePlan(own, shape, sort_by_weight(tasks), failed)


def _plan(
    wanted: RestoredRows,
    places: SourcePlaces,
    into: Into,
    shape: TableSpec,
    ways: Sequence[Sequence[ChangeSet]],
) -> FoldPlan:
    change_sets, numbers = number_ways(ways)
    return FoldPlan(
        log=wanted.state.log,
        shape=shape,
        snapshot=into.snapshot,
        epoch=into.epoch,
        target=into.target,
        segments=places.logs,
        change_sets=change_sets,
        ways=numbers,
        is_restore=True,
        table=into.table,
        expire=wanted.limit,
        copy=into.copy,
        schema=wanted.schema,
        schemas=wanted.state.schemas,
        token=into.token,
        only=wanted.only,
        hosts=places.hosts,
    )


def _overlap(bucket: KeyGroups, within: KeyGroups) -> KeyGroups | None:
    if not bucket.meets(within):
        return None
    return KeyGroups(max(bucket.first, within.first), min(bucket.last, within.last))


def _recipe(
    wanted: RestoredRows,
    manifest: Manifest | None,
    way: int,
    bucket: KeyGroups,
    aligner: Aligner,
    places: SourcePlaces,
) -> Recipe:
    """Returns the sources of one bucket. The table's file comes before a full snapshot's: it is already there.

    Of a snapshot that was never published, it may have left the table together with its base.
    """
    if manifest is None:
        return Recipe(None, (), way, unchanged=RewriteDecision(RewriteAction.LINK))
    files = files_of(bucket, manifest)
    unchanged = decide_rewrite(
        files,
        bucket,
        unchanged=RewriteAction.LINK,
        expire=wanted.limit,
        schema_differs=aligner.must_rewrite(manifest.schema),
        owners_differ=wanted.only is not None,
    )
    folders, snapshot = (LogPaths(manifest.log).table, manifest.data_folder), wanted.state.snapshot(manifest.snapshot)
    inputs = places.inputs(manifest, files, *(reversed(folders) if snapshot and snapshot.as_of else folders))
    return Recipe(manifest.snapshot, inputs, way, manifest.cleared, manifest.schema, unchanged)


def _ways(wanted: RestoredRows, places: SourcePlaces, inputs: Inputs) -> tuple[Manifest | None, Sequence[_Way]]:
    own, lost = None, None
    try:
        own = find_manifest(wanted.state.log, wanted.below, places, inputs)
    except CorruptError as error:
        lost = error
        _log.warning("%s: snapshot %d itself cannot serve: %s", wanted.state.log, wanted.below.id, error)
    ways = [*([(own, wanted.tail)] if own else []), *_older_ways(wanted, places, inputs)]
    if not ways and lost:
        raise lost
    return own, ways


def _older_ways(wanted: RestoredRows, places: SourcePlaces, inputs: Inputs) -> Iterator[_Way]:
    for found in older(wanted.state, wanted.below):
        if not found.suits(wanted.limit):
            continue
        manifest = None
        try:
            if found.snapshot:
                manifest = find_manifest(wanted.state.log, found.snapshot, places, inputs)
        except TidefoldError as error:
            _log.warning("%s: %s cannot serve: %s", wanted.state.log, found.snapshot and found.snapshot.id, error)
            continue
        yield manifest, (*found.change_sets, *wanted.tail)
