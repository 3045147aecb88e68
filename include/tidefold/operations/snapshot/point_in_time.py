"""Full snapshots of the rows as of an instant: a tag keeps them, and they are never published.

"As of" means the changes that were committed at their source before the instant, whenever they arrived.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import msgspec

from tidefold.domain.commit_times import NEVER, format_instant, micros
from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State
from tidefold.domain.snapshot import claim, point_in_time
from tidefold.domain.snapshot.point_in_time import UNDATED_HINT, came_later, find_kept
from tidefold.domain.wording import count_noun
from tidefold.errors import InvalidInputError, RefusedError
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.snapshot.attempt import Attempt, Claimant
from tidefold.operations.snapshot.claiming import hash_request, new_token
from tidefold.operations.snapshot.details import PointInTimePlanDetails
from tidefold.operations.snapshot.fold import plan_changes


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
        return partial(self._claim, pipeline, now(), new_token())

    def _claim(self, pipeline: Pipeline, instant: str, token: str, state: LogState) -> LogState:
        ttl = pipeline.log(state.log).ttl
        asked = claim.Claim(
            run=self.run,
            request=hash_request({"as_of": self.at}),
            kind=SnapshotKind.FULL,
            instant=instant,
            takeover=self.takeover,
            # Only rows that were too old at that instant expire.
            expire=ttl.expire(format_instant(self.at)) if ttl else None,
            token=token,
        )
        try:
            return point_in_time.claim(state, asked, self.at)
        except RefusedError as error:
            if self.skip_undated and error.code == "AS_OF_NO_TIMES":
                return state
            raise

    def describe_unclaimed(self, pipeline: Pipeline, state: LogState) -> Outcome:
        found = find_kept(state, self.at) or claim.of_run(state, self.run)
        if found is not None and found.state in (State.STAGED, State.COMPLETED):
            which = f"snapshot {found.id} of run {found.run}, as of {found.as_of}, is {found.state}"
            return Outcome(state.log, Status.ALREADY, which + _describe_missed(state, found), found.id)
        undated = sum(c.times.without for c in state.change_sets if c.times)
        if undated and self.skip_undated:
            message = f"{undated:,} changes have no commit time; no snapshot is made ({UNDATED_HINT})"
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
        raise InvalidInputError("AS_OF_MISSING", message, hint="Give one, such as 2026-11-05T00:00:00Z.")
    at = micros(text.strip().replace(" ", "T", 1))
    if at >= NEVER or at <= 0:
        raise InvalidInputError(
            "AS_OF_INVALID",
            f"`{text[:60]}` is not an instant with a time zone, or it is before 1970.",
            hint="Write it as `2026-11-05T00:00:00Z`.",
        )
    if at > (now := int(datetime.now(UTC).timestamp() * 1_000_000)):
        raise InvalidInputError(
            "AS_OF_FUTURE",
            f"{format_instant(at)} is in the future. The time is now {format_instant(now)[:19]}Z.",
            hint="Give an instant that has passed.",
        )
    return at


def _describe_missed(state: LogState, found: Snapshot) -> str:
    """Describes the changes that the snapshot lacks, because they arrived too late."""
    late = len(came_later(state, found))
    if not late or found.as_of is None:
        return ""
    again = f"`tidefold untag {state.log} {found.as_of.tag}` and a new run id make a new one with them"
    return f"; {count_noun(late, 'later change set')} may contain changes from before the instant ({again})"


def explain_point_in_time(pipeline: Pipeline, log: str, request: PointInTime) -> Outcome:
    """Describes what would be folded. Changes nothing. Raises the errors of the claim."""
    state = pipeline.ledger(log).find()
    if state is None:
        return Outcome(log, Status.NOTHING, "nothing was ingested yet")
    claimed = request.claimant(pipeline)(state)
    if claimed == state:
        return request.describe_unclaimed(pipeline, state)
    mine = claim.of_run(claimed, request.run)
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
    begins = f"snapshot {base.id} ({base.rows:,} rows)" if base else "the empty table"
    message = (
        f"would fold at most {details.changes_at_most:,} changes of {len(sets):,} change sets onto {begins}; "
        f"{planned.later:,} change sets after it have no change from before {at}"
    )
    return Outcome(log, Status.PLANNED, message, details=details)
