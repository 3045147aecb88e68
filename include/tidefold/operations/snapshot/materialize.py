"""Makes a snapshot of each log, for any kind of request: claims it, plans it, runs its tasks, stages or aborts it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tidefold.compute.broadcast_work import TaskWork
from tidefold.compute.runners import Runner, TaskAnswer
from tidefold.domain.log_state import LogState, State
from tidefold.domain.snapshot.claim import find_by_run
from tidefold.errors import TidefoldError
from tidefold.fold.plan import FoldTask
from tidefold.fold.plan_fold import sort_by_weight
from tidefold.fold.tasks import serialize_tasks
from tidefold.operations.ground.heartbeat import Heartbeat, heartbeat
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.sweep import sweep
from tidefold.operations.local_copies.manage import clear_leftovers
from tidefold.operations.snapshot.abort import give_up_attempt
from tidefold.operations.snapshot.attempt import Attempt, AttemptRequest, Claimant
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


def prepare(pipeline: Pipeline, log: str, request: AttemptRequest) -> SnapshotPlan | Outcome:
    """Plans a snapshot without claiming the log; an outcome if there is nothing to make. Raises TidefoldError."""
    claimant = request.prepare_claim(pipeline, log)
    if claimant is None:
        return _describe_empty(log)
    state = pipeline.ledger(log).read()
    claimed = claimant(state)
    mine = find_by_run(claimed, request.run)
    if claimed == state or mine is None:
        return request.describe_unclaimed(pipeline, state)
    return SnapshotPlan(claimant, claimed, request.plan(pipeline, claimed, mine))


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts of a request at the logs of one round.

    `begun`: for each log its attempt, or why there is none.
    `tasks`: of all attempts, the largest first.
    """

    pipeline: Pipeline
    begun: Sequence[Attempt | Outcome]
    tasks: Sequence[FoldTask]

    def serialize_tasks(self) -> tuple[TaskWork, list[str]]:
        """Returns the work that all tasks share, and the text of each task, the largest first."""
        _log.info("folding %d buckets of %d logs", len(self.tasks), len({task.plan.log for task in self.tasks}))
        return serialize_tasks(self.tasks)

    def record(self, answers: Sequence[TaskAnswer]) -> list[Outcome]:
        """Stages the snapshot of each log; one that cannot be staged is aborted. `answers`: one for each task."""
        done: dict[str, list[TaskAnswer]] = {}
        for task, answer in zip(self.tasks, answers, strict=True):
            done.setdefault(task.plan.log, []).append(answer)
        return [
            one if isinstance(one, Outcome) else _finish(self.pipeline, one, done.get(one.log, []))
            for one in self.begun
        ]


def materialize(
    pipeline: Pipeline,
    logs: Sequence[str],
    request: AttemptRequest,
    run: Runner,
    plans: Mapping[str, SnapshotPlan] | None = None,
) -> list[Outcome]:
    """Makes a snapshot of each log that has something new, all of them in one round of tasks.

    `plans`: from `prepare`, by log. A log that cannot be folded gives an error outcome and is left as it was; the
    others continue.
    """
    with begin(pipeline, logs, request, plans) as attempts:
        return attempts.record(run(*attempts.serialize_tasks()))


@contextmanager
def begin(
    pipeline: Pipeline,
    logs: Sequence[str],
    request: AttemptRequest,
    plans: Mapping[str, SnapshotPlan] | None = None,
) -> Iterator[Attempts]:
    """Claims each log and plans its tasks. Within the context, heartbeats show other runs that the attempts live.

    `plans`: from `prepare`, by log. A log without one is planned here; so is one that changed since.
    """
    # The heartbeat lasts until the last file is linked, because an object store copies the whole table for that.
    with heartbeat(pipeline.store) as heart:
        begun = [_begin(pipeline, log, request, heart, (plans or {}).get(log)) for log in logs]
        attempts = [one for one in begun if isinstance(one, Attempt)]
        try:
            yield Attempts(pipeline, begun, sort_by_weight([task for one in attempts for task in one.tasks]))
        except BaseException:
            for attempt in attempts:
                _log.warning(
                    "%s: snapshot %d was cancelled. The files that were being written are closed and deleted. The next "
                    "run deletes the others.",
                    attempt.log,
                    attempt.snapshot.id,
                )
            raise


def _begin(
    pipeline: Pipeline, log: str, request: AttemptRequest, heart: Heartbeat, planned: SnapshotPlan | None
) -> Attempt | Outcome:
    ledger = pipeline.ledger(log)
    try:
        claimant = planned.claimant if planned else request.prepare_claim(pipeline, log)
        if claimant is None:
            return _describe_empty(log)
        state = ledger.commit(claimant)
        snapshot = find_by_run(state, request.run)
        if snapshot is None or snapshot.state is not State.ONGOING:
            return request.describe_unclaimed(pipeline, state)
    except TidefoldError as error:
        return Outcome.of_error(log, error)
    heart.add(log, snapshot)
    try:
        sweep(pipeline.store, ledger)
        clear_leftovers(pipeline, log, state)
        # The claim is made on the newest state. The plan is only valid for the state that it was made for.
        if planned and replace(planned.claimed, version=state.version) == state:
            return planned.attempt
        return request.plan(pipeline, state, snapshot)
    except Exception as error:
        return give_up_attempt(pipeline, log, snapshot, error)


def _describe_empty(log: str) -> Outcome:
    return Outcome(log, Status.NOTHING, "nothing was ingested yet")


def _finish(pipeline: Pipeline, attempt: Attempt, answers: Sequence[TaskAnswer]) -> Outcome:
    try:
        results = decode_results(answers)
        require_rows(attempt.log, attempt.expected_rows, results)
        return stage(pipeline, attempt, results)
    except Exception as error:
        return give_up_attempt(pipeline, attempt.log, attempt.snapshot, error)
