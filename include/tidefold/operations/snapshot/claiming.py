"""Functions that all kinds of snapshot requests use to claim a log."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.snapshot.claim import of_run
from tidefold.domain.snapshot.kind_selection import KindDecision, KindInputs, KindPolicy, select_kind
from tidefold.operations.ingest.schema_update import apply_configured_schema
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.sets.membership import require_alone
from tidefold.operations.sets.publish import finish_set
from tidefold.operations.snapshot.confirm import roll_forward


def hash_request(wanted: Mapping[str, Any]) -> str:
    """Returns the sha256 of a request. With it, a different request under the same run id is refused."""
    return hashlib.sha256(msgspec.json.encode(wanted)).hexdigest()


def new_token() -> str:
    """Returns the random part of an attempt's token."""
    return uuid.uuid4().hex[:8]


def bring_up_to_date(pipeline: Pipeline, log: str, run: str) -> None:
    """Before a claim: publishes a completed snapshot and what its set decided, and gives the log its columns."""
    finish_set(pipeline, log)
    roll_forward(pipeline, log)
    apply_configured_schema(pipeline, pipeline.ledger(log).read(), run)


def require_no_set(pipeline: Pipeline, log: str) -> None:
    """Raises RefusedError if the log is in a set: the set's tables are published at one point."""
    require_alone(
        pipeline,
        log,
        ": rows of another point would be published beside its other tables.",
        hint=f"Use --set {{set}}, or restore into a folder. Or remove `{log}` from the configured set.",
    )


def choose_kind(pipeline: Pipeline, state: LogState, asked: KindPolicy | None) -> KindDecision:
    """Returns the kind of the next snapshot: as requested, else as configured."""
    snapshots = pipeline.config.snapshots
    links = pipeline.store.links and not snapshots.copies
    terms = KindInputs(asked or snapshots.kind, links, snapshots.full_every, pipeline.log(state.log).shape.buckets)
    return select_kind(state, terms)


def find_skipped_range(snapshot: Snapshot) -> tuple[int, int] | None:
    """Returns the first and last sqn of the change sets that an attempt leaves out for good."""
    return (snapshot.folds_to + 1, snapshot.to_sqn) if snapshot.folds_to < snapshot.to_sqn else None


def describe_unclaimed(state: LogState, run: str, otherwise: str) -> Outcome:
    """Returns the outcome if a claim changed nothing: the earlier snapshot of the run, else the text `otherwise`."""
    mine = of_run(state, run)
    if mine is None:
        return Outcome(state.log, Status.NOTHING, otherwise)
    return Outcome(state.log, Status.ALREADY, f"snapshot {mine.id} of this run is {mine.state}", mine.id)


def find_horizon(pipeline: Pipeline, state: LogState) -> int | None:
    """Returns the order below which changes are quarantined, because such old deletes are forgotten. None: no limit."""
    if pipeline.log(state.log).late != "quarantine":
        return None
    announced = (s.horizon for s in state.snapshots if s.state is not State.ABORTED)
    return max((one for one in announced if one is not None), default=None)
