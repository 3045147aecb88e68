"""`tidefold run`: every step for every log; what fails drops out and is aborted, the others go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidefold.cli.output.outcomes import exit_code, print_lines
from tidefold.cli.spark_submit import run_step
from tidefold.cli.takeover import find_takeovers
from tidefold.cli.terminal import Terminal
from tidefold.domain.log_state import State
from tidefold.operations.outcome import Outcome, Status, for_each_log
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.request import SnapshotRequest
from tidefold.spark.steps import AnyStep, IngestStep, MaterializeStep, QualityStep

# What was taken is folded all the same.
GOES_ON = (Status.STOPPED, Status.INCOMPLETE)


@dataclass(slots=True)
class WholeRun:
    """One run over some logs; `steps` collects what each step did."""

    terminal: Terminal
    pipeline: Pipeline
    request: SnapshotRequest
    takeover_after: float | None = None
    steps: dict[str, list[Outcome]] = field(default_factory=dict)

    @property
    def run(self) -> str:
        return self.request.run

    def go(self, logs: list[str]) -> int:
        """Works, prints, and answers the exit code."""
        self._guarded(self._work, logs)
        self.tell_next()
        return self.told("run")

    def fold(self, logs: list[str]) -> int:
        """What was taken already, without an ingest; answers the exit code."""
        self._guarded(lambda named: self._fold(named, named), logs)
        return exit_code(o for outcomes in self.steps.values() for o in outcomes)

    def told(self, command: str, saved: Sequence[Outcome] | None = None) -> int:
        """Prints what a command did as JSON, if that is wanted, and answers its exit code. `saved`: what it made of the
        logs after the run.
        """
        code = exit_code([*(o for outcomes in self.steps.values() for o in outcomes), *(saved or ())])
        steps = {name: [o.to_dict() for o in outcomes] for name, outcomes in self.steps.items()}
        said = {} if saved is None else {"outcomes": [o.to_dict() for o in saved]}
        self.terminal.json({"command": command, "run": self.run, "exit_code": code, "steps": steps, **said})
        return code

    def tell_next(self) -> None:
        """Says what can be done about each log that the gate held; an error says it itself."""
        for log in (o.log for o in self.steps.get("quality", ()) if o.status is Status.FAILED):
            self.terminal.note(
                f"next: `tidefold report {log}` shows why {log} was not published. Correct its source or its suite, "
                f"then `tidefold run {log}`. To publish it as it is: `tidefold materialize {log}`, "
                f"`tidefold quality {log}`, then `tidefold confirm {log} --override-by NAME --reason REASON`."
            )

    def _guarded(self, act: Callable[[list[str]], None], logs: list[str]) -> None:
        try:
            act(logs)
        except KeyboardInterrupt:
            # Else the next run would find the log held by one that nobody continues.
            self._abort(logs, f"run {self.run} was interrupted")
            raise

    def _work(self, logs: list[str]) -> None:
        # What this run has staged, also as a restore or an import, is judged and confirmed: nothing is taken before.
        staged = [log for log in logs if self._has_staged(log)]
        self._fold(self._step(IngestStep(), [log for log in logs if log not in staged]), logs, staged)

    def _has_staged(self, log: str) -> bool:
        state = self.pipeline.ledger(log).find()
        attempt = state.open_attempt if state else None
        return attempt is not None and (attempt.run, attempt.state) == (self.run, State.STAGED)

    def _fold(self, going: list[str], logs: list[str], staged: Sequence[str] = ()) -> None:
        request = find_takeovers(self.terminal, self.pipeline, going, self.request, self.takeover_after)
        folded = self._step(MaterializeStep(request), going)
        going = self._step(QualityStep(self.run), [log for log in logs if log in folded or log in staged])
        # Also where nothing was staged: a publication that a crash cut off is finished here.
        confirmed = self._each("confirm", going, lambda log: confirm(self.pipeline, log, run_id=self.run))
        self._abort([log for log in logs if log not in confirmed], f"run {self.run} did not confirm it")

    def _step(self, step: AnyStep, logs: list[str]) -> list[str]:
        """The logs that may go on. Those with nothing to ingest may still have something to fold."""
        outcomes = run_step(self.terminal, self.pipeline, step, logs)
        return self._record(step.name, outcomes)

    def _each(self, name: str, logs: list[str], act: Callable[[str], Outcome]) -> list[str]:
        return self._record(name, for_each_log(logs, act))

    def _record(self, name: str, outcomes: list[Outcome]) -> list[str]:
        self.steps[name] = outcomes
        # Errors are told elsewhere: no heading stands above nothing.
        if any(not outcome.error for outcome in outcomes):
            self.terminal.line(name)
        print_lines(self.terminal, outcomes, indent="  ")
        # A log that stopped has taken everything up to there.
        return [o.log for o in outcomes if o.status in GOES_ON or (not o.error and o.status is not Status.FAILED)]

    def _abort(self, logs: list[str], reason: str) -> None:
        if logs:
            self._each("abort", logs, lambda log: abort(self.pipeline, log, self._why(log, reason), run_id=self.run))

    def _why(self, log: str, reason: str) -> str:
        """The error that stopped the log in this run, so that it is found in the history later."""
        outcomes = [o for one in self.steps.values() for o in one if o.log == log]
        errors = [o for o in outcomes if o.error and o.status not in GOES_ON]
        return errors[-1].message if errors else reason
