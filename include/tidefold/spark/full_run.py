"""Runs all steps over some logs: the operation behind `tidefold run`, which programs can call as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidefold.domain.log_state import LogState, State
from tidefold.errors import TidefoldError
from tidefold.operations.ground.outcome import Outcome, Status, for_each_log, map_logs
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.inspect.status import explain_left_out
from tidefold.operations.requests import FEW_LOGS, PointInTime, SnapshotRequest, has_nothing_to_fold
from tidefold.operations.sets.confirm import confirm_logs, confirm_past
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import publish_waiting
from tidefold.spark.steps import AnyStep, IngestStep, MaterializeStep, QualityStep

# The log has everything up to the error, and that is folded.
_PARTLY_DONE = (Status.STOPPED, Status.INCOMPLETE)


@dataclass(slots=True)
class FullRun:
    """One run of ingest, materialize, quality and confirm. A log that fails is aborted; the others continue.

    run_step: runs a step for some logs and returns one outcome a log.
    find_takeovers: adds to the request the attempts of other runs that it may supersede.
    report: is called with the name of each step and its outcomes.
    reconcile: as Confirmation has it.
    outcomes: what each step did, by its name.
    idle: of more than 100 logs, those without news. Only the ingest looks at them, and no outcome names them.
    """

    pipeline: Pipeline
    request: SnapshotRequest
    run_step: Callable[[AnyStep, Sequence[str]], list[Outcome]]
    find_takeovers: Callable[[Sequence[str], SnapshotRequest], SnapshotRequest] = lambda logs, request: request
    report: Callable[[str, Sequence[Outcome]], None] = lambda step, outcomes: None
    reconcile: bool = False
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.request.run

    def run(self, logs: Sequence[str]) -> None:
        """Runs all steps. What this run has staged before is judged and confirmed, and nothing is ingested first."""
        states = map_logs(self._find_state, logs, self.pipeline.at_once)
        staged = [log for log, state in zip(logs, states, strict=True) if self._has_staged(state)]
        idle = (
            [log for log, state in zip(logs, states, strict=True) if self._has_nothing(state)]
            if len(logs) > FEW_LOGS
            else []
        )

        if self.reconcile:  # A snapshot that waits behind a commit of another program would stop the next one.
            waiting = [one.log for one in states if one and one.latest and not one.latest.published]
            self._record("publish", for_each_log(waiting, lambda log: publish_waiting(self.pipeline, log)))

        def work() -> None:
            ingested = self._ingest([log for log in logs if log not in staged], idle)
            self._fold(ingested, [log for log in logs if log not in self.idle], staged)

        self._abort_if_interrupted(work, logs)
        published = {o.log for o in self.outcomes.get("confirm", ()) if o.status is Status.PUBLISHED}
        after = [self._find_state(log) if log in published else state for log, state in zip(logs, states, strict=True)]
        if told := [outcome for state in after if state and (outcome := explain_left_out(self.pipeline, state))]:
            self._record("left out", told)

    def _find_state(self, log: str) -> LogState | None:
        """Returns None if the log was not started, or its ledger cannot be read: then the steps report the error."""
        try:
            return self.pipeline.ledger(log).find()
        except TidefoldError:
            return None

    def _ingest(self, logs: Sequence[str], idle: Sequence[str]) -> list[str]:
        """Ingests. `idle`: logs that need nothing but an ingest. Those without news leave the run."""
        outcomes = self.run_step(IngestStep(), logs)
        without_news = frozenset(o.log for o in outcomes if o.status is Status.NOTHING and not o.error)
        self.idle = without_news.intersection(idle)
        return self._record(IngestStep.name, [o for o in outcomes if o.log not in self.idle])

    def fold(self, logs: Sequence[str]) -> None:
        """Runs the steps after ingest."""
        self._abort_if_interrupted(lambda: self._fold(logs, logs), logs)

    def _abort_if_interrupted(self, work: Callable[[], None], logs: Sequence[str]) -> None:
        try:
            work()
        except KeyboardInterrupt:
            # Otherwise the open attempt would block the next run.
            self._abort(logs, f"run {self.id} was interrupted")
            raise

    def _has_nothing(self, state: LogState | None) -> bool:
        return has_nothing_to_fold(self.pipeline, state, self.request)

    def _has_staged(self, state: LogState | None) -> bool:
        attempt = state.open_attempt if state else None
        return attempt is not None and (attempt.run, attempt.state) == (self.id, State.STAGED)

    def _fold(self, going: Sequence[str], logs: Sequence[str], staged: Sequence[str] = ()) -> None:
        folded = self._step(MaterializeStep(self.find_takeovers(going, self.request)), going)
        judged = self._step(QualityStep(self.id), [log for log in logs if log in folded or log in staged])
        # Also if nothing is staged: this finishes a publication that a crash interrupted.
        if isinstance(self.request, PointInTime):
            outcomes = confirm_past(self.pipeline, judged, self.id)
        else:
            outcomes = confirm_logs(self.pipeline, judged, self.id, self.reconcile)
        confirmed = self._record("confirm", outcomes)
        self._abort([log for log in logs if log not in confirmed], f"run {self.id} did not confirm it")

    def _step(self, step: AnyStep, logs: Sequence[str]) -> list[str]:
        return self._record(step.name, self.run_step(step, logs))

    def _record(self, name: str, outcomes: list[Outcome]) -> list[str]:
        """The logs that continue. A log with nothing to ingest may still have something to fold."""
        self.outcomes[name] = outcomes
        self.report(name, outcomes)
        return [o.log for o in outcomes if o.status in _PARTLY_DONE or (not o.error and o.status is not Status.FAILED)]

    def _abort(self, logs: Sequence[str], reason: str) -> None:
        if logs:
            act = lambda log: abort(self.pipeline, log, self._find_reason(log) or reason, run_id=self.id)  # noqa: E731
            self._record("abort", for_each_log(logs, act))

    def _find_reason(self, log: str) -> str:
        """The last error of the log in this run: the history keeps it."""
        outcomes_of_log = [o for outcomes in self.outcomes.values() for o in outcomes if o.log == log]
        return next((o.message for o in reversed(outcomes_of_log) if o.error and o.status not in _PARTLY_DONE), "")
