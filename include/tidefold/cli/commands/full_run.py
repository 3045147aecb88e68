"""The full run on the command line: how its steps are started, printed and summed up."""

from __future__ import annotations

from collections.abc import Sequence

from tidefold.cli.output.outcomes import exit_code, print_lines
from tidefold.cli.spark_submit import run_step
from tidefold.cli.takeover import find_takeovers
from tidefold.cli.terminal import Terminal
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.request import SnapshotRequest
from tidefold.spark.full_run import FullRun


def open_run(
    terminal: Terminal, pipeline: Pipeline, request: SnapshotRequest, takeover_after: float | None = None
) -> FullRun:
    """A run that prints its steps and starts Spark where it is needed."""

    def report(step: str, outcomes: Sequence[Outcome]) -> None:
        # Errors go to stderr, so they need no heading.
        if any(not outcome.error for outcome in outcomes):
            terminal.line(step)
        print_lines(terminal, outcomes, indent="  ")

    return FullRun(
        pipeline,
        request,
        run_step=lambda step, logs: run_step(terminal, pipeline, step, logs),
        find_takeovers=lambda logs, asked: find_takeovers(terminal, pipeline, logs, asked, takeover_after),
        report=report,
    )


def print_run(terminal: Terminal, run: FullRun, command: str, saved: Sequence[Outcome] | None = None) -> int:
    """Prints the run as JSON if that is the format, and returns the exit code.

    saved: the outcomes of the savepoint after the run.
    """
    code = exit_code([*(o for outcomes in run.outcomes.values() for o in outcomes), *(saved or ())])
    steps = {name: [o.to_dict() for o in outcomes] for name, outcomes in run.outcomes.items()}
    after = {} if saved is None else {"outcomes": [o.to_dict() for o in saved]}
    terminal.json({"command": command, "run": run.id, "exit_code": code, "steps": steps, **after})
    return code


def print_next_steps(terminal: Terminal, run: FullRun) -> None:
    """Prints the next step for each log that failed its gate; an error has its own."""
    for log in (o.log for o in run.outcomes.get("quality", ()) if o.status is Status.FAILED):
        terminal.note(
            f"next: `tidefold report {log}` shows why {log} was not published. Correct its source or its suite, "
            f"then `tidefold run {log}`. To publish it as it is: `tidefold materialize {log}`, "
            f"`tidefold quality {log}`, then `tidefold confirm {log} --override-by NAME --reason REASON`."
        )
