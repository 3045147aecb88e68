"""`tidefold savepoint --stop`: stops a log, folds its changes with the ordinary steps, and saves the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidefold.cli.full_run import open_run, print_run
from tidefold.cli.output.outcomes import exit_code, print_lines
from tidefold.cli.terminal import Terminal
from tidefold.errors import RefusedError
from tidefold.operations.ingest.stop_resume import stop
from tidefold.operations.outcome import Outcome, for_each_log
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.savepoint.take import SavepointRequest, take_savepoint
from tidefold.operations.snapshot.request import Fold


@dataclass(frozen=True, slots=True)
class Stopping:
    """The request to stop a log: the address of the savepoint, who stops the log, and why."""

    address: str
    by: str
    why: str


@dataclass(frozen=True, slots=True)
class StoppedSavepoint:
    """The stop of one log. A repeated call continues under the run that stopped the log."""

    terminal: Terminal
    pipeline: Pipeline
    log: str
    asked: Stopping
    takeover: bool = False

    def go(self, wanted: SavepointRequest) -> int:
        """Stops the log, folds and saves, and returns the exit code. After a failure the log stays stopped."""
        stopped = stop(self.pipeline, self.log, self.asked.address, self.asked.by, self.asked.why)
        self.terminal.note(f"{self.log}: stopped; `tidefold resume {self.log}` lets it accept changes again")
        saved: Sequence[Outcome] = ()
        with open_run(self.terminal, self.pipeline, Fold(stopped.run, self.takeover)) as run:
            run.fold([self.log])
        if not exit_code(o for outcomes in run.outcomes.values() for o in outcomes):
            saved = for_each_log([self.log], lambda _: self._save(replace(wanted, run=stopped.run)))
        print_lines(self.terminal, saved)
        return print_run(self.terminal, run, "savepoint", saved)

    def _save(self, wanted: SavepointRequest) -> Outcome:
        state = self.pipeline.ledger(self.log).read()
        if state.unfolded or state.stopped is None:
            raise RefusedError(
                "NOT_FOLDED",
                f"Some changes of `{self.log}` are not in a confirmed snapshot, or the log was resumed meanwhile.",
                hint="Call the same command again. It continues where it stopped.",
            )
        return take_savepoint(self.pipeline, self.log, wanted, self.terminal.note)
