"""Folds the changes since the newest snapshot into the next one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import Expire, LogState, Snapshot, SnapshotKind
from tidefold.domain.snapshot import claim
from tidefold.domain.snapshot.kind_selection import KindPolicy
from tidefold.domain.source_progress_history import positions_at
from tidefold.domain.table.schema import shape_at
from tidefold.fold.plan_fold import plan_fold
from tidefold.fold.rewrite import RewriteAction, decide_rewrite
from tidefold.ledger import read_manifest
from tidefold.operations.local_copies.manage import places_of
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.sets.publish import give_up_staged
from tidefold.operations.snapshot.attempt import Attempt, Claimant
from tidefold.operations.snapshot.claiming import (
    bring_up_to_date,
    choose_kind,
    describe_unclaimed,
    hash_request,
    new_token,
)
from tidefold.operations.snapshot.expiry import find_last_clean_up
from tidefold.operations.snapshot.heartbeat import add_heartbeats
from tidefold.operations.snapshot.manifests import read_manifest_or_copy


class Fold(msgspec.Struct, frozen=True, tag="fold"):
    """The request for the next snapshot of a log.

    `takeover`: supersede an attempt of another run.
    `kind`: of the snapshot, if not as configured.
    `stalled`: by log, attempts of other runs that showed no progress; each is superseded if it still is as it was seen.
    """

    run: str
    takeover: bool = False
    kind: KindPolicy | None = None
    stalled: dict[str, Snapshot] = {}

    def prepare_claim(self, pipeline: Pipeline, log: str) -> Claimant | None:
        """None: nothing was ever ingested. Raises TidefoldError."""
        if not pipeline.ledger(log).exists():
            return None
        bring_up_to_date(pipeline, log, self.run)
        if self.takeover or log in self.stalled:
            state = pipeline.ledger(log).read()
            rival = state.open_attempt
            give_up_staged(pipeline, log, rival if rival and rival.run != self.run else None)
        return self.claimant(pipeline)

    def claimant(self, pipeline: Pipeline) -> Claimant:
        return partial(self._claim, pipeline, now(), new_token())

    def _claim(self, pipeline: Pipeline, instant: str, token: str, state: LogState) -> LogState:
        config = pipeline.log(state.log)
        chosen = choose_kind(pipeline, state, self.kind)
        wanted: dict[str, Any] = {"kind": self.kind or SnapshotKind.FULL, **({"asked": True} if self.kind else {})}
        expire = config.ttl.expire(instant) if config.ttl else None
        is_due = config.ttl is not None and config.ttl.is_due(find_last_clean_up(state), instant)
        asked = claim.Claim(
            run=self.run,
            request=hash_request(wanted),
            kind=chosen.kind,
            instant=instant,
            takeover=self.takeover,
            stalled=self._find_stalled(pipeline, state),
            because=chosen.because,
            expire=expire if chosen.kind is SnapshotKind.FULL or is_due else None,
            renew=self._renews(pipeline, state, expire, is_due),
            lateness=config.lateness,
            token=token,
        )
        return claim.claim(state, asked)

    def _find_stalled(self, pipeline: Pipeline, state: LogState) -> claim.Stalled | None:
        """Returns the open attempt if neither the ledger nor a heartbeat shows progress since it was seen."""
        seen, attempt = self.stalled.get(state.log), state.open_attempt
        if seen is None or attempt is None or add_heartbeats(pipeline.store, state.log, [attempt]) != (seen,):
            return None
        return claim.Stalled(attempt, seen.progress)

    def _renews(self, pipeline: Pipeline, state: LogState, expire: Expire | None, is_due: bool) -> bool:
        """Whether a snapshot is worth making without new changes."""
        if self.kind is KindPolicy.FULL:
            return _would_renew(pipeline, state, expire)
        idle = state.latest is not None and not state.unfolded and state.open_attempt is None
        return is_due and idle and _has_expired_rows(pipeline, state, expire)

    def describe_unclaimed(self, pipeline: Pipeline, state: LogState) -> Outcome:
        return describe_unclaimed(state, self.run, f"nothing new to fold{_describe_waiting(pipeline, state)}")

    def plan(self, pipeline: Pipeline, state: LogState, snapshot: Snapshot) -> Attempt:
        return plan_changes(pipeline, state, snapshot)


def plan_changes(pipeline: Pipeline, state: LogState, snapshot: Snapshot) -> Attempt:
    """Plans the attempt that folds change sets onto the base. Reads only manifests. Raises TidefoldError."""
    below = state.snapshot(snapshot.parent) if snapshot.parent is not None else None
    base = read_manifest_or_copy(pipeline, state.log, below) if below else None
    config = pipeline.log(state.log)
    # An incremental snapshot shares files of the old buckets, so only a full one can change their number.
    buckets = config.shape.buckets if snapshot.kind is SnapshotKind.FULL or base is None else base.shape.buckets
    shape = replace(shape_at(state, snapshot.schema), buckets=buckets)
    tasks = plan_fold(state, snapshot, base, shape, places_of(pipeline, state.log), config.deletion_vectors)
    return Attempt(
        state.log,
        snapshot,
        base,
        shape,
        tasks,
        schemas=state.schemas,
        positions=positions_at(state, snapshot.to_sqn),
        redistribution=config.redistribution,
    )


def _would_renew(pipeline: Pipeline, state: LogState, expire: Expire | None) -> bool:
    """Whether a requested full snapshot would differ from the newest one, although nothing was ingested since."""
    latest = state.latest
    if latest is None:
        return False
    rescaled = state.shape.buckets != pipeline.log(state.log).shape.buckets
    if latest.kind is not SnapshotKind.FULL or rescaled or latest.schema != state.schema:
        return True
    return _has_expired_rows(pipeline, state, expire)


def _has_expired_rows(pipeline: Pipeline, state: LogState, expire: Expire | None) -> bool:
    """Whether the statistics of the newest snapshot show rows that are too old. Reads its manifest."""
    latest = state.latest
    if latest is None or expire is None:
        return False
    files = read_manifest(pipeline.store, state.log, latest).files
    everything = KeyGroups(0, state.shape.key_groups - 1)
    decision = decide_rewrite(files, everything, unchanged=RewriteAction.KEEP, expire=expire)
    return decision.action is RewriteAction.REWRITE


def _describe_waiting(pipeline: Pipeline, state: LogState) -> str:
    """Describes configured settings that take effect only in a full snapshot."""
    buckets = pipeline.log(state.log).shape.buckets
    if state.latest is None:
        return ""
    waiting = [] if state.shape.buckets == buckets else [f"{buckets} buckets"]
    verb = "wait" if waiting else "waits"
    waiting += [f"schema {state.schema}"] if state.latest.schema != state.schema else []
    said = f"; {' and '.join(waiting)} {verb} for the next full snapshot (`--kind full` makes one)"
    return said if waiting else ""
