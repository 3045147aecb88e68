"""Makes a snapshot of each log, for any kind of request: claims it, plans it, runs its tasks, stages or aborts it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tidefold.compute.runners import Answer, Runner
from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.snapshot import transitions
from tidefold.domain.snapshot.claim import of_run
from tidefold.errors import SupersededError, TidefoldError, wrap_unexpected
from tidefold.fold.fold_bucket import deal
from tidefold.fold.plan_fold import sort_by_weight
from tidefold.operations.local_copies.manage import clear_leftovers
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.retention.file_gc import sweep
from tidefold.operations.snapshot.attempt import Attempt, Claimant
from tidefold.operations.snapshot.heartbeat import Heartbeat, heartbeat
from tidefold.operations.snapshot.request import SnapshotRequest
from tidefold.operations.snapshot.stage import stage
from tidefold.operations.snapshot.task_results import decode_results, require_rows

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """The plan of a request for a log.

    `claimant`: makes the claim.
    `claimed`: the state of the log after the claim, unless another process changes it first.
    `attempt`: the work after the claim.
    """

    claimant: Claimant
    claimed: LogState
    attempt: Attempt


def prepare(pipeline: Pipeline, log: str, request: SnapshotRequest) -> SnapshotPlan | Outcome:
    """Plans a snapshot without claiming the log; an outcome if there is nothing to make. Raises TidefoldError."""
    claimant = request.prepare_claim(pipeline, log)
    if claimant is None:
        return _describe_empty(log)
    state = pipeline.ledger(log).read()
    claimed = claimant(state)
    mine = of_run(claimed, request.run)
    if claimed == state or mine is None:
        return request.describe_unclaimed(pipeline, state)
    return SnapshotPlan(claimant, claimed, request.plan(pipeline, claimed, mine))


def materialize(
    pipeline: Pipeline,
    logs: Sequence[str],
    request: SnapshotRequest,
    run: Runner,
    plans: Mapping[str, SnapshotPlan] | None = None,
) -> list[Outcome]:
    """Makes a snapshot of each log that has something new, all of them in one round of tasks.

    `plans`: from `prepare`, by log. A log without one is planned here; so is one that changed since. A log that cannot
    be folded gives an error outcome and is left as it was; the others continue.
    """
    # The heartbeat lasts until the last file is linked, because an object store copies the whole table for that.
    with heartbeat(pipeline.store) as heart:
        begun = [_begin(pipeline, log, request, heart, (plans or {}).get(log)) for log in logs]
        attempts = [a for a in begun if isinstance(a, Attempt)]
        tasks = sort_by_weight([task for attempt in attempts for task in attempt.tasks])
        _log.info("folding %d buckets of %d logs", len(tasks), len(attempts))
        try:
            answers = run(*deal(tasks))
        except BaseException:
            for attempt in attempts:
                _log.warning(
                    "%s: snapshot %d was cancelled. The files that were being written are closed and deleted. The next "
                    "run deletes the others.",
                    attempt.log,
                    attempt.snapshot.id,
                )
            raise
        folded = {a.log: [r for t, r in zip(tasks, answers, strict=True) if t.plan.log == a.log] for a in attempts}
        return [b if isinstance(b, Outcome) else _finish(pipeline, b, folded[b.log]) for b in begun]


def _begin(
    pipeline: Pipeline, log: str, request: SnapshotRequest, heart: Heartbeat, planned: SnapshotPlan | None
) -> Attempt | Outcome:
    ledger = pipeline.ledger(log)
    try:
        claimant = planned.claimant if planned else request.prepare_claim(pipeline, log)
        if claimant is None:
            return _describe_empty(log)
        state = ledger.commit(claimant)
    except TidefoldError as error:
        return Outcome.of_error(log, error)
    snapshot = of_run(state, request.run)
    if snapshot is None or snapshot.state is not State.ONGOING:
        return request.describe_unclaimed(pipeline, state)
    heart.add(log, snapshot)
    try:
        sweep(pipeline.store, ledger)
        clear_leftovers(pipeline, log, state)
        # The claim is made on the newest state. The plan is only valid for the state that it was made for.
        if planned and replace(planned.claimed, version=state.version) == state:
            return planned.attempt
        return request.plan(pipeline, state, snapshot)
    except Exception as error:
        return _give_up(pipeline, log, snapshot, error)


def _describe_empty(log: str) -> Outcome:
    return Outcome(log, Status.NOTHING, "nothing was ingested yet")


def _finish(pipeline: Pipeline, attempt: Attempt, answers: Sequence[Answer]) -> Outcome:
    try:
        results = decode_results(answers)
        require_rows(attempt.log, attempt.expected_rows, results)
        return stage(pipeline, attempt, results)
    except Exception as error:
        return _give_up(pipeline, attempt.log, attempt.snapshot, error)


def _give_up(pipeline: Pipeline, log: str, snapshot: Snapshot, error: Exception) -> Outcome:
    """Aborts the attempt. If that fails too, the outcome still has the first error, and the next run cleans up."""
    found = wrap_unexpected(error)
    if found is not error:
        _log.error("%s: %s", log, found, exc_info=error)
    ledger = pipeline.ledger(log)
    try:
        # If a newer attempt has deleted this one's files, the cause is SUPERSEDED, not a missing file.
        transitions.require_not_aborted(ledger.read(), snapshot.id)
        ledger.commit(lambda state: transitions.abort(state, snapshot.id, f"{found.code}: {found.message}"))
        sweep(pipeline.store, ledger)
    except SupersededError as superseded:
        found = superseded
        with suppress(TidefoldError):
            sweep(pipeline.store, ledger)
    except TidefoldError as second:
        _log.warning("%s: cleaning up after %s failed: %s", log, found.code, second)
    return Outcome.of_error(log, found, snapshot.id)
