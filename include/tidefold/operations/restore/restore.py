"""Restores a snapshot: its rows become the next snapshot of the log, under a new id."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot import claim
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.domain.snapshot.kind_selection import KindPolicy
from tidefold.domain.snapshot.manifest import home
from tidefold.domain.source_progress_history import positions_at
from tidefold.domain.storage_tier import StorageTier
from tidefold.domain.table.schema import find_dropped_columns
from tidefold.fold.plan import Address
from tidefold.operations.local_copies.manage import places_of
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.restore.plan import Into, find_rows_of_attempt, plan_restore
from tidefold.operations.savepoint.external import with_originals
from tidefold.operations.snapshot.attempt import Attempt, Claimant, RestoreInfo
from tidefold.operations.snapshot.claiming import (
    bring_up_to_date,
    choose_kind,
    describe_unclaimed,
    find_skipped_range,
    hash_request,
    new_token,
    require_no_set,
)


class Restore(msgspec.Struct, frozen=True, tag="restore"):
    """Asks for the rows of an older snapshot.

    `point`: the snapshot, and what happens to the changes after it.
    `takeover`: supersede an attempt of another run.
    `kind`: of the new snapshot, if not as configured.
    """

    run: str
    point: RestorePoint
    takeover: bool = False
    kind: KindPolicy | None = None

    def prepare_claim(self, pipeline: Pipeline, log: str) -> Claimant:
        """Raises TidefoldError, also for a log that has ingested nothing."""
        pipeline.ledger(log).read()
        require_no_set(pipeline, log)
        bring_up_to_date(pipeline, log, self.run)
        return self.claimant(pipeline)

    def claimant(self, pipeline: Pipeline) -> Claimant:
        return partial(self._claim, pipeline, now(), new_token())

    def _claim(self, pipeline: Pipeline, instant: str, token: str, state: LogState) -> LogState:
        config = pipeline.log(state.log)
        chosen = choose_kind(pipeline, state, self.kind)
        wanted: dict[str, Any] = {"kind": self.kind or SnapshotKind.FULL, **({"asked": True} if self.kind else {})}
        asked = claim.Claim(
            run=self.run,
            request=hash_request({**wanted, "restore": self.point}),
            kind=chosen.kind,
            instant=instant,
            takeover=self.takeover,
            restore=self.point,
            because=chosen.because,
            expire=config.ttl.expire(instant) if config.ttl else None,
            token=token,
        )
        return claim.claim(state, asked)

    def describe_unclaimed(self, pipeline: Pipeline, state: LogState) -> Outcome:
        return describe_unclaimed(state, self.run, "nothing to restore")

    def plan(self, pipeline: Pipeline, state: LogState, snapshot: Snapshot) -> Attempt:
        """Reads manifests only. Raises TidefoldError."""
        paths = LogPaths(state.log)
        places = with_originals(state, places_of(pipeline, state.log))
        target = Address(StorageTier.STORE, places.store, home(state.log, snapshot.kind, snapshot.id))
        into = Into(target, snapshot.id, snapshot.epoch, paths.table, pipeline.config.snapshots.copies, snapshot.token)
        wanted = find_rows_of_attempt(state, snapshot)
        planned = plan_restore(pipeline, wanted, places, into)
        source = None if snapshot.parent is None else state.snapshot(snapshot.parent)
        restored = RestoreInfo(
            mode=self.point.mode,
            snapshot=snapshot.parent if self.point.mode is RestoreMode.CARRY else self.point.snapshot,
            skipped=find_skipped_range(snapshot),
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
            positions=positions_at(state, snapshot.to_sqn),
            restored=restored,
            expected_rows=wanted.rows,
            redistribution=planned.base.redistribution if planned.base else pipeline.log(state.log).redistribution,
        )
