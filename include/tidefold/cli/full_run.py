"""The full run on the command line: starts its steps, prints them and sums them up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tidefold.cli.output.outcomes import exit_code, print_lines
from tidefold.cli.spark_submit import SparkApplication
from tidefold.cli.takeover import find_takeovers
from tidefold.cli.terminal import Terminal
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.request import SnapshotRequest
from tidefold.spark.full_run import FullRun
from tidefold.spark.steps import IngestStep
from tidefold.storage.s3.traffic import read_traffic


@contextmanager
def open_run(
    terminal: Terminal, pipeline: Pipeline, request: SnapshotRequest, takeover_after: float | None = None
) -> Iterator[FullRun]:
    """Opens a run that prints its steps. Steps that need Spark share one application, which ends with the block."""
    with open_runs(terminal, pipeline, takeover_after) as begin:
        yield begin(request)


@contextmanager
def open_runs(
    terminal: Terminal, pipeline: Pipeline, takeover_after: float | None = None
) -> Iterator[Callable[[SnapshotRequest], FullRun]]:
    """As `open_run`, for several runs after each other, which share the application too."""

    # Other processes may commit meanwhile: the number of the newest version is always read again.
    pipeline = replace(pipeline, versions={})

    with SparkApplication(terminal, pipeline) as application:

        def begin(request: SnapshotRequest) -> FullRun:
            def report(step: str, outcomes: Sequence[Outcome]) -> None:
                # Errors go to stderr, so they need no heading.
                if any(not outcome.error for outcome in outcomes):
                    terminal.line(step)
                print_lines(terminal, outcomes, indent="  ")
                if step == IngestStep.name and run.idle:
                    terminal.line(f"  {len(run.idle):,} more logs have nothing new")

            run = FullRun(
                pipeline,
                request,
                run_step=application.run_step,
                find_takeovers=lambda logs, asked: find_takeovers(terminal, pipeline, logs, asked, takeover_after),
                report=report,
            )
            return run

        yield begin


def print_run(terminal: Terminal, run: FullRun, command: str, saved: Sequence[Outcome] | None = None) -> int:
    """Prints the run as JSON if that is the format, and returns the exit code.

    saved: the outcomes of the savepoint after the run.
    """
    code = exit_code([*(o for outcomes in run.outcomes.values() for o in outcomes), *(saved or ())])
    steps = {name: [o.to_dict() for o in outcomes] for name, outcomes in run.outcomes.items()}
    idle = {"idle": sorted(run.idle)} if run.idle else {}
    after = {} if saved is None else {"outcomes": [o.to_dict() for o in saved]}
    shown = {"command": command, "run": run.id, "exit_code": code, "steps": steps}
    terminal.json({**shown, **idle, **after, **_report_traffic(terminal)})
    return code


def _report_traffic(terminal: Terminal) -> dict[str, Any]:
    """Prints what this process and S3 exchanged, and returns it for the JSON output; nothing without S3."""
    found = read_traffic()
    if not found.total:
        return {}
    terminal.line(str(found))
    return {"s3": {"requests": dict(found.requests), "bytes_sent": found.sent, "bytes_received": found.received}}


def print_next_steps(terminal: Terminal, run: FullRun) -> None:
    """Prints the next step for each log that failed its gate; an error has its own."""
    for log in (o.log for o in run.outcomes.get("quality", ()) if o.status is Status.FAILED):
        chosen = run.pipeline.config.set_of(log)
        logs = " ".join(chosen.logs) if chosen else log
        terminal.note(
            f"next: `tidefold report {log}` shows why {log} was not published. Correct its source or its suite, "
            f"then `tidefold run {logs}`. To publish it as it is: `tidefold materialize {logs}`, "
            f"`tidefold quality {logs}`, then `tidefold confirm {log} --override-by NAME --reason REASON`."
        )
