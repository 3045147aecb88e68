"""Full snapshots of the rows as of an instant: kept by their tag, never published, beside the log's own life.

As of an instant means: the changes that were committed at their source before it, whenever they came.
"""

from __future__ import annotations

from datetime import UTC, datetime

from tidefold.domain.commit_times import NEVER, micros, told
from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.snapshot import claim, point_in_time
from tidefold.domain.snapshot.point_in_time import Plan, came_later, change_sets_of, kept
from tidefold.domain.table.schema import must_rewrite
from tidefold.errors import InvalidInputError, TidefoldError
from tidefold.fold.plan import has_expired
from tidefold.ledger import read_manifest
from tidefold.operations.outcome import Outcome, Status, UntypedDetails
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.request import Asking, as_of_claim


def instant_of(text: str) -> int:
    """The instant that a text names, in microseconds: ISO 8601 with its zone, after 1970 and not in the future.

    Raises InvalidInputError. One in the future may still get changes from before it.
    """
    if not text.strip():
        message = "Nothing says as of which instant."
        raise InvalidInputError("AS_OF_MISSING", message, hint="Give one, as 2026-11-05T00:00:00Z.")
    at = micros(text.strip().replace(" ", "T", 1))
    if at >= NEVER or at <= 0:
        raise InvalidInputError(
            "AS_OF_INVALID",
            f"`{text[:60]}` is not an instant with a time zone, from 1970 on.",
            hint="Write it as 2026-11-05T00:00:00Z.",
        )
    if at > (now := int(datetime.now(UTC).timestamp() * 1_000_000)):
        raise InvalidInputError(
            "AS_OF_FUTURE",
            f"{told(at)} is in the future; now is {told(now)[:19]}Z.",
            hint="Give an instant that has passed.",
        )
    return at


def begin(pipeline: Pipeline, log: str, asking: Asking) -> Snapshot | Outcome:
    """Claims the attempt that was asked for; what is to be said instead when there is none to make."""
    ledger = pipeline.ledger(log)
    if not ledger.exists():
        return Outcome(log, Status.NOTHING, "nothing was ingested yet")
    state = ledger.commit(lambda current: _claimed(pipeline, current, asking))
    return _there(state, asking) or _nothing(state, asking)


def _claimed(pipeline: Pipeline, state: LogState, asking: Asking) -> LogState:
    assert asking.as_of is not None
    return point_in_time.claim(state, as_of_claim(pipeline, state, asking), asking.as_of)


def _there(state: LogState, asking: Asking) -> Snapshot | Outcome | None:
    """The attempt, or the snapshot that was made before."""
    mine = claim.of_run(state, asking.run or "")
    if mine and mine.state is State.ONGOING:
        return mine
    found = kept(state, asking.as_of or 0) or mine
    if found is None or found.state not in (State.STAGED, State.COMPLETED):
        return None
    which = f"snapshot {found.id} of run {found.run}, as of {found.as_of}, is {found.state}"
    return Outcome(state.log, Status.ALREADY, which + _missed(state, found), found.id)


def _missed(state: LogState, found: Snapshot) -> str:
    """What it does not have, as it came too late for it."""
    late = len(came_later(state, found))
    if not late or found.as_of is None:
        return ""
    sets = "1 change set" if late == 1 else f"{late:,} change sets"
    anew = f"`tidefold untag {state.log} {found.as_of.tag}`, then ask again under a new run id, makes it anew"
    return f"; {sets} taken since may hold changes from before then, which it lacks ({anew})"


def _nothing(state: LogState, asking: Asking) -> Outcome:
    first = [c.times.first for c in state.change_sets if c.times and c.times.first is not None]
    since = f": the first change is of {told(min(first))}" if first else ""
    message = f"nothing was committed before {told(asking.as_of or 0)}{since}; no snapshot is made"
    return Outcome(state.log, Status.NOTHING, message)


def would_fold(pipeline: Pipeline, log: str, asking: Asking) -> bool:
    """Whether there are rows to write: files that stay as they are only are taken over, which needs no Spark."""
    try:
        claimed = would_claim(pipeline, log, asking)
        return claimed is not None and (bool(change_sets_of(*claimed)) or _would_rewrite(pipeline, *claimed))
    except TidefoldError:
        return False  # An error to report: that needs no Spark.


def would_claim(pipeline: Pipeline, log: str, asking: Asking) -> tuple[LogState, Snapshot] | None:
    """The log and its attempt, were it claimed; None: there is nothing to claim."""
    state = pipeline.ledger(log).find()
    claimed = _claimed(pipeline, state, asking) if state else None
    mine = claim.of_run(claimed, asking.run or "") if claimed else None
    return (claimed, mine) if claimed and mine and claimed != state else None


def _would_rewrite(pipeline: Pipeline, state: LogState, attempt: Snapshot) -> bool:
    base = None if attempt.base is None else state.snapshot(attempt.base)
    if base is None:
        return False
    manifest = read_manifest(pipeline.store, state.log, base)
    rescaled = manifest.shape.buckets != pipeline.log(state.log).shape.buckets
    must_go = any(has_expired(file, attempt.expire) or file.deletions for file in manifest.files)
    return rescaled or must_go or must_rewrite(state.schemas, manifest.schema, attempt.schema)


def plan_as_of(pipeline: Pipeline, log: str, asking: Asking) -> Outcome:
    """What would be folded, without any of it. Raises what the claim raises."""
    state = pipeline.ledger(log).find()
    if state is None:
        return Outcome(log, Status.NOTHING, "nothing was ingested yet")
    claimed, at = _claimed(pipeline, state, asking), asking.as_of or 0
    if claimed == state:
        found = _there(state, asking)
        return found if isinstance(found, Outcome) else _nothing(state, asking)
    planned = point_in_time.plan(state, at, as_of_claim(pipeline, state, asking).expire)
    assert planned is not None
    return _planned(log, at, planned)


def _planned(log: str, at: int, planned: Plan) -> Outcome:
    base, sets = planned.base, planned.change_sets
    facts = {
        "as_of": told(at),
        "base": base.id if base else None,
        "change_sets": len(sets),
        "changes_at_most": sum(c.rows for c in sets),
        "change_sets_later": planned.later,
    }
    begins = f"snapshot {base.id} ({base.rows:,} rows)" if base else "the empty table"
    message = (
        f"would fold at most {facts['changes_at_most']:,} changes of {len(sets):,} change sets onto {begins}; "
        f"{planned.later:,} change sets after it hold nothing from before {told(at)}"
    )
    return Outcome(log, Status.PLANNED, message, details=UntypedDetails(values=facts))
