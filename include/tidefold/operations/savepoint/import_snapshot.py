"""Imports a snapshot from outside the store: its rows become the next snapshot of the log."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import msgspec

from tidefold.domain.external_snapshot import External, Layout, Ownership, StorageTier
from tidefold.domain.key_groups import KeyGroups, bucket_ranges
from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, TableSpec
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot import claim
from tidefold.domain.snapshot.manifest import data_folder
from tidefold.domain.snapshot.select_kind import KindDecision
from tidefold.domain.snapshot.transitions import progress_after_import
from tidefold.domain.table.schema_evolution import schemas_of
from tidefold.errors import CorruptError
from tidefold.fold.inputs import SourcePlaces
from tidefold.fold.plan import (
    Address,
    FoldPlan,
    FoldTask,
    Input,
    Recipe,
    RewriteAction,
    RewriteDecision,
    decide_rewrite,
)
from tidefold.fold.plan_fold import sort_by_weight
from tidefold.operations.ground.originals import Original, check_original, original_at
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.publish.publish_log import roll_forward
from tidefold.operations.snapshot import attempt
from tidefold.operations.snapshot.attempt import Attempt, Claimant, RestoreInfo
from tidefold.operations.snapshot.switch import find_reshape


class Import(msgspec.Struct, frozen=True, tag="import"):
    """The request to import a snapshot from outside the store.

    `address`: the whole address of the snapshot.
    `ownership`: who owns the original afterwards.
    `takeover`: supersede an attempt of another run.
    `reshape`: the snapshot is that of the log's plan: the log goes on with its table definition and its change sets.
    """

    run: str
    address: str
    ownership: Ownership
    takeover: bool = False
    reshape: bool = False

    def prepare_claim(self, pipeline: Pipeline, log: str) -> Claimant:
        """Checks the original before anything changes. Raises TidefoldError."""
        attempt.require_no_set(pipeline, log)
        original = check_original(pipeline, log, self.address, self.ownership, own=self.reshape)
        external = original.external(self.ownership)
        if self.reshape:
            roll_forward(pipeline, log)
            external = replace(external, reshape=find_reshape(pipeline, pipeline.ledger(log).read(), external))
        else:
            pipeline.ledger(log).begin(pipeline.log(log).shape)
            attempt.bring_up_to_date(pipeline, log, self.run)
        return partial(self._claim, pipeline, external, now(), attempt.new_token())

    def _claim(self, pipeline: Pipeline, external: External, instant: str, token: str, state: LogState) -> LogState:
        config, chosen = pipeline.log_of(state), _choose_kind(external)
        asked = claim.Claim(
            run=self.run,
            request=attempt.hash_request({"kind": SnapshotKind.FULL, "import": external}),
            kind=chosen.kind,
            instant=instant,
            takeover=self.takeover,
            because=chosen.because,
            expire=config.expire(instant) if chosen.kind is SnapshotKind.FULL else None,
            external=external,
            token=token,
        )
        return claim.claim(state, asked)

    def describe_unclaimed(self, pipeline: Pipeline, state: LogState) -> Outcome:
        return attempt.describe_unclaimed(state, self.run, "nothing to import")

    def plan(self, pipeline: Pipeline, state: LogState, snapshot: Snapshot) -> Attempt:
        """Plans the tasks. Raises CorruptError if the original has changed since the claim (I6)."""
        external = snapshot.external
        assert external is not None
        original = original_at(external.address)
        if original.digest != external.description:
            message = f"The snapshot at {external.address} changed since the import began."
            raise CorruptError("ORIGINAL_CHANGED", message, hint="Import again.")
        configured = pipeline.log(state.log).shape
        if external.reshape:
            configured = external.reshape.after
        native = original.savepoint.kind is Layout.NATIVE
        # The files of a native savepoint are taken over unchanged, in the buckets that they were written for.
        shape = replace(configured, buckets=original.savepoint.shape.buckets) if native else configured
        newest = state.snapshot(snapshot.base) if snapshot.base else None
        restored = RestoreInfo(
            mode=self.ownership,
            address=external.address,
            skipped=attempt.find_skipped_range(snapshot),
            newest=newest.id if newest else None,
            newest_rows=newest.rows if newest else 0,
            older_by=_find_unsaved(state, external, newest) if newest else None,
        )
        # A plan lies in the same store, and nobody else has its files.
        is_kept = self.ownership is Ownership.NO_CLAIM and not external.reshape
        copy = pipeline.config.snapshots.copies or is_kept
        tasks = _plan_tasks(state.log, snapshot, original, shape, SourcePlaces(pipeline.store.address), copy)
        return Attempt(
            state.log,
            snapshot,
            None,
            shape,
            tasks,
            schemas=(*schemas_of(state), *external.reshape.schemas) if external.reshape else state.schemas,
            progress=progress_after_import(state, snapshot, external.progress),
            restored=restored,
            redistribution=original.savepoint.redistribution,
        )


def _find_unsaved(state: LogState, external: External, newest: Snapshot) -> tuple[int, int] | None:
    """Returns the folded change sets after an original that is an older snapshot of this log; None: there are none."""
    saved = state.snapshot(external.snapshot)
    is_of_this_log = external.log == state.log and saved is not None and saved.to_sqn == external.sqn
    return (external.sqn + 1, newest.to_sqn) if is_of_this_log and external.sqn < newest.to_sqn else None


def _choose_kind(external: External) -> KindDecision:
    if external.reshape:
        return KindDecision(SnapshotKind.FULL, "a plan makes each row again")
    if external.ownership is Ownership.NO_CLAIM:
        return KindDecision(SnapshotKind.FULL, "the original stays the user's, and may go")
    return KindDecision(SnapshotKind.INCREMENTAL, "the original's files are taken over where that is possible")


def _plan_tasks(
    log: str, snapshot: Snapshot, original: Original, shape: TableSpec, places: SourcePlaces, copy: bool
) -> tuple[FoldTask, ...]:
    """Plans one task for each bucket with rows, the largest first."""
    plan = FoldPlan(
        log=log,
        shape=shape,
        snapshot=snapshot.id,
        epoch=snapshot.epoch,
        target=Address(StorageTier.STORE, places.store, data_folder(log, snapshot.kind, snapshot.id)),
        segments=places.logs,
        table=LogPaths(log).table,
        expire=snapshot.expire,
        copy=copy,
        token=snapshot.token,
    )
    tasks = []
    for bucket in bucket_ranges(shape.key_groups, shape.buckets):
        inputs = _find_inputs(original, bucket, shape)
        if not inputs:
            continue
        if original.savepoint.kind is Layout.NATIVE:
            files = [one.file for one in inputs]
            unchanged = decide_rewrite(files, bucket, unchanged=RewriteAction.LINK, expire=snapshot.expire)
        else:
            unchanged = RewriteDecision(RewriteAction.REWRITE, "a canonical savepoint has plain rows")
        recipe = Recipe(None, inputs, 0, original.savepoint.cleared, unchanged=unchanged)
        tasks.append(FoldTask(plan, bucket, (recipe,)))
    return sort_by_weight(tasks)


def _find_inputs(original: Original, bucket: KeyGroups, shape: TableSpec) -> tuple[Input, ...]:
    # With another number of key groups, each file may have rows of each bucket.
    same = original.savepoint.shape.key_groups == shape.key_groups
    everything = KeyGroups(0, shape.key_groups - 1)
    files = [(f, f.data_file(None if same else everything)) for f in original.savepoint.files]
    return tuple(Input(data, (original.place(file),)) for file, data in files if data.key_groups.meets(bucket))
