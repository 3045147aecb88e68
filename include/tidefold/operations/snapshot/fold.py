"""Folds the changes since the newest snapshot, or those before an instant, into a snapshot."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from tidefold.domain.commit_times import NEVER, format_instant, micros
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import Expire, LogState, Snapshot, SnapshotKind, State
from tidefold.domain.snapshot import claim, point_in_time
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.domain.snapshot.point_in_time import UNDATED_HINT, came_later, find_kept
from tidefold.domain.source_progress_history import progress_at
from tidefold.domain.table.schema_evolution import shape_at
from tidefold.domain.wording import count_noun
from tidefold.errors import InvalidInputError, RefusedError
from tidefold.fold.plan import RewriteAction, decide_rewrite
from tidefold.fold.plan_fold import plan_fold
from tidefold.ledger import read_manifest
from tidefold.operations.ground.heartbeat import count_heartbeats
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline, find_last_clean_up, now
from tidefold.operations.ground.snapshot_details import PointInTimePlanDetails
from tidefold.operations.local_copies.manage import places_of
from tidefold.operations.publish.publish_log import read_manifest_or_copy, require_as_published
from tidefold.operations.publish.publish_set import give_up_staged
from tidefold.operations.snapshot import attempt
from tidefold.operations.snapshot.attempt import Attempt, Claimant


class Fold(msgspec.Struct, frozen=True, tag="fold"):
    """The request for the next snapshot of a log.

    `takeover`: supersede an attempt of another run.
    `kind`: of the snapshot, if not as configured.
    `partly`: the first snapshot may lack a landed file, because the log has published without it.
    `stalled`: by log, attempts of other runs that showed no progress; each is superseded if it still is as it was seen.
    """

    run: str
    takeover: bool = False
    kind: KindPolicy | None = None
    partly: bool = False
    stalled: dict[str, claim.WatchedAttempt] = {}

    def prepare_claim(self, pipeline: Pipeline, log: str) -> Claimant | None:
        """None: nothing was ever ingested. Raises TidefoldError."""
        if not pipeline.ledger(log).exists():
            return None
        pipeline.ledger(log).require_table(attempt.bring_up_to_date(pipeline, log, self.run))
        if self.takeover or log in self.stalled:
            state = pipeline.ledger(log).read()
            rival = state.open_attempt
            give_up_staged(pipeline, log, rival if rival and rival.run != self.run else None)
        return self.claimant(pipeline)

    def claimant(self, pipeline: Pipeline) -> Claimant:
        return partial(self._claim, pipeline, now(), attempt.new_token())

    def _claim(self, pipeline: Pipeline, instant: str, token: str, state: LogState) -> LogState:
        config = pipeline.log_of(state)
        chosen = attempt.choose_kind(pipeline, state, self.kind)
        wanted: dict[str, Any] = {"kind": self.kind or SnapshotKind.FULL, **({"asked": True} if self.kind else {})}
        expire = config.expire(instant)
        is_due = config.is_cleanup_due(find_last_clean_up(state), instant)
        asked = claim.Claim(
            run=self.run,
            request=attempt.hash_request(wanted),
            kind=chosen.kind,
            instant=instant,
            takeover=self.takeover,
            stalled=self._find_stalled(pipeline, state),
            because=chosen.because,
            expire=expire if chosen.kind is SnapshotKind.FULL or is_due else None,
            renew=self._renews(pipeline, state, expire, is_due),
            lateness=config.lateness,
            token=token,
            partly=self.partly,
        )
        return claim.claim(state, asked)

    def _find_stalled(self, pipeline: Pipeline, state: LogState) -> claim.WatchedAttempt | None:
        """Returns the open attempt if neither the ledger nor a heartbeat shows progress since it was seen."""
        seen, rival = self.stalled.get(state.log), state.open_attempt
        now = count_heartbeats(pipeline.store, state.log, [rival] if seen and rival else [])
        return seen if now == (seen,) else None

    def _renews(self, pipeline: Pipeline, state: LogState, expire: Expire | None, is_due: bool) -> bool:
        """Whether a snapshot is worth making without new changes: a full one that was asked for always is."""
        if self.kind is KindPolicy.FULL:
            return state.latest is not None
        idle = state.latest is not None and not state.unfolded and state.open_attempt is None
        return is_due and idle and _has_expired_rows(pipeline, state, expire)

    def describe_unclaimed(self, pipeline: Pipeline, state: LogState) -> Outcome:
        # A publication compares the table. Without one, nobody would hear that it was deleted, or changed by others.
        require_as_published(pipeline, state)
        return attempt.describe_unclaimed(state, self.run, f"nothing new to fold{_describe_waiting(pipeline, state)}")

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
        progress=progress_at(state, snapshot.to_sqn),
        redistribution=config.distribution,
    )


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
    text = f"; {' and '.join(waiting)} {verb} for the next full snapshot (`--kind full` makes one)"
    return text if waiting else ""


# "As of" means the changes that were committed at their source before the instant, whenever they arrived.
class PointInTime(msgspec.Struct, frozen=True, tag="point-in-time"):
    """The request for a snapshot with the changes that were committed before an instant.

    `at`: the instant, in microseconds since 1970 UTC.
    `takeover`: supersede an attempt of another run at the same instant.
    `skip_undated`: a log whose changes have no commit time gets no snapshot instead of an error.
    """

    run: str
    at: int
    takeover: bool = False
    skip_undated: bool = False

    def prepare_claim(self, pipeline: Pipeline, log: str) -> Claimant | None:
        """None: nothing was ever ingested. The published table and the schema are not touched."""
        return self.claimant(pipeline) if pipeline.ledger(log).exists() else None

    def claimant(self, pipeline: Pipeline) -> Claimant:
        return partial(self._claim, pipeline, now(), attempt.new_token())

    def _claim(self, pipeline: Pipeline, instant: str, token: str, state: LogState) -> LogState:
        asked = claim.Claim(
            run=self.run,
            request=attempt.hash_request({"as_of": self.at}),
            kind=SnapshotKind.FULL,
            instant=instant,
            takeover=self.takeover,
            # Only rows that were too old at that instant expire.
            expire=pipeline.log_of(state).expire(format_instant(self.at)),
            token=token,
        )
        try:
            return point_in_time.claim(state, asked, self.at)
        except RefusedError as error:
            if self.skip_undated and error.code == "AS_OF_NO_TIMES":
                return state
            raise

    def describe_unclaimed(self, pipeline: Pipeline, state: LogState) -> Outcome:
        kept = find_kept(state, self.at) or claim.find_by_run(state, self.run)
        if kept is not None and kept.state in (State.STAGED, State.COMPLETED):
            which = f"snapshot {kept.id} of run {kept.run}, as of {kept.as_of}, is {kept.state}"
            return Outcome(state.log, Status.ALREADY, which + _describe_missed(state, kept), kept.id)
        undated = sum(c.times.without for c in state.change_sets if c.times)
        if undated and self.skip_undated:
            message = f"{count_noun(undated, 'change')} without a commit time; no snapshot is made ({UNDATED_HINT})"
            return Outcome(state.log, Status.NOTHING, message)
        first = [c.times.first for c in state.change_sets if c.times and c.times.first is not None]
        since = f": the first change is of {format_instant(min(first))}" if first else ""
        message = f"nothing was committed before {format_instant(self.at)}{since}; no snapshot is made"
        return Outcome(state.log, Status.NOTHING, message)

    def plan(self, pipeline: Pipeline, state: LogState, snapshot: Snapshot) -> Attempt:
        return plan_changes(pipeline, state, snapshot)


def parse_instant(text: str) -> int:
    """Parses an instant, in microseconds: ISO 8601 with its zone, after 1970 and not in the future.

    Raises InvalidInputError. For an instant in the future, more changes may still be committed before it.
    """
    if not text.strip():
        message = "A snapshot as of an instant needs the instant."
        raise InvalidInputError("AS_OF_MISSING", message)
    at = micros(text.strip().replace(" ", "T", 1))
    if at >= NEVER or at <= 0:
        raise InvalidInputError(
            "AS_OF_INVALID", f"`{text[:60]}` is not an instant with a time zone, or it is before 1970."
        )
    if at > (now := int(datetime.now(UTC).timestamp() * 1_000_000)):
        raise InvalidInputError(
            "AS_OF_FUTURE", f"{format_instant(at)} is in the future. The time is now {format_instant(now)[:19]}Z."
        )
    return at


def _describe_missed(state: LogState, kept: Snapshot) -> str:
    """Describes the changes that the snapshot lacks, because they arrived too late."""
    late = len(came_later(state, kept))
    if not late or kept.as_of is None:
        return ""
    again = f"`tidefold snapshot untag {state.log} {kept.as_of.tag}` and a new run id make a new one with them"
    return f"; {count_noun(late, 'later change set')} may contain changes from before the instant ({again})"


def explain_point_in_time(pipeline: Pipeline, log: str, request: PointInTime) -> Outcome:
    """Describes what would be folded. Changes nothing. Raises the errors of the claim."""
    state = pipeline.ledger(log).find()
    if state is None:
        return Outcome(log, Status.NOTHING, "nothing was ingested yet")
    claimed = request.claimant(pipeline)(state)
    if claimed == state:
        return request.describe_unclaimed(pipeline, state)
    mine = claim.find_by_run(claimed, request.run)
    assert mine is not None
    planned = point_in_time.plan(state, request.at, mine.expire)
    assert planned is not None
    base, sets, at = planned.base, planned.change_sets, format_instant(request.at)
    details = PointInTimePlanDetails(
        as_of=at,
        base=base.id if base else None,
        change_sets=len(sets),
        changes_at_most=sum(c.rows for c in sets),
        change_sets_later=planned.later,
    )
    begins = f"snapshot {base.id} ({count_noun(base.rows, 'row')})" if base else "the empty table"
    message = (
        f"would fold at most {count_noun(details.changes_at_most, 'change')} of "
        f"{count_noun(len(sets), 'change set')} onto {begins}; "
        f"{planned.later:,} change sets after it have no change from before {at}"
    )
    return Outcome(log, Status.PLANNED, message, details=details)
