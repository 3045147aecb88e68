"""The full run on the command line, also with a savepoint at its end: starts its steps and sums them up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from tidefold.cli.output.outcomes import exit_code, list_logs, print_lines
from tidefold.cli.spark_submit import SparkApplication
from tidefold.cli.terminal import Terminal
from tidefold.domain.log_state import Stopped
from tidefold.errors import RefusedError
from tidefold.operations.ground.heartbeat import find_stalled
from tidefold.operations.ground.outcome import Outcome, Status, for_each_log
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold, SnapshotRequest
from tidefold.operations.savepoint.take import SavepointRequest, take_savepoint
from tidefold.spark.full_run import FullRun
from tidefold.spark.steps import IngestStep
from tidefold.storage.traffic import traffic

_PROGRESS_SECONDS = 5.0


def find_takeovers(
    terminal: Terminal, pipeline: Pipeline, logs: Sequence[str], request: SnapshotRequest, patience: float | None
) -> SnapshotRequest:
    """Returns the request with the attempts that made no progress for `patience` seconds; None: takes over nothing."""
    if patience is None or not isinstance(request, Fold):
        return request

    def wait(seconds: float) -> None:
        terminal.note(f"materialize: waiting {seconds:.0f} s for progress of another run's attempt")
        _sleep(terminal, seconds)

    stalled = find_stalled(pipeline, logs, request.run, patience, wait)
    for log, watched in stalled.items():
        rival = watched.attempt
        terminal.note(f"{log}: taking over {rival.title} of run {rival.run}, which makes no progress")
    return msgspec.structs.replace(request, stalled=stalled)


def _sleep(terminal: Terminal, seconds: float) -> None:
    """Prints every few seconds that the command still waits."""
    begun = time.monotonic()
    while (left := seconds - (time.monotonic() - begun)) > 0:
        time.sleep(min(left, _PROGRESS_SECONDS))
        if left > _PROGRESS_SECONDS:
            terminal.note(f"materialize: still waiting, {time.monotonic() - begun:.0f} s")


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
            told = set[tuple[str, str]]()

            def report(step: str, outcomes: Sequence[Outcome]) -> None:
                if step == "abort":
                    outcomes = [outcome for outcome in outcomes if outcome.status is not Status.NOTHING]
                # Errors go to stderr, so they need no heading.
                if any(not outcome.error for outcome in outcomes):
                    terminal.line(step)
                # The same error stops a log in each later step.
                print_lines(terminal, [o for o in outcomes if (o.log, o.message) not in told], indent="  ")
                told.update((o.log, o.message) for o in outcomes if o.error)
                if step == "abort" and terminal.command == "run":
                    _print_left_open(terminal, run, outcomes)
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


def _print_left_open(terminal: Terminal, run: FullRun, aborts: Sequence[Outcome]) -> None:
    """Prints what goes on with the logs whose abort failed, as in an outage: another run would be refused."""
    made = {o.log: o.snapshot for o in run.outcomes.get("materialize", ()) if o.snapshot and not o.error}
    # A store that refuses from the beginning has nothing of this run.
    failed = [one.log for one in aborts if one.error and (one.error.transient or one.log in made)]
    for log in failed:
        if log in made:
            terminal.note(f"{log}: snapshot {made[log]} is still open")
    if failed:
        kind = f" --kind {run.request.kind}" if isinstance(run.request, Fold) and run.request.kind else ""
        terminal.note(f"next: `tidefold run{list_logs(failed)} --run {run.id}{kind}` goes on when the store answers")


def print_run(terminal: Terminal, run: FullRun, saved: Sequence[Outcome] | None = None) -> int:
    """Prints the run as JSON if that is the format, and returns the exit code.

    saved: the outcomes of the savepoint after the run.
    """
    code = exit_code([*(o for outcomes in run.outcomes.values() for o in outcomes), *(saved or ())])
    steps = {name: [o.to_dict() for o in outcomes] for name, outcomes in run.outcomes.items()}
    idle = {"idle": sorted(run.idle)} if run.idle else {}
    after = {} if saved is None else {"outcomes": [o.to_dict() for o in saved]}
    shown = {"command": terminal.command, "run": run.id, "exit_code": code, "steps": steps}
    terminal.json({**shown, **idle, **after, **_report_traffic(terminal)})
    return code


def _report_traffic(terminal: Terminal) -> dict[str, Any]:
    """Prints what this process and object stores exchanged, and returns it for the JSON output; nothing without one."""
    if not traffic.requests:
        return {}
    terminal.line(str(traffic))
    exchanged = {"requests": traffic.requests, "bytes_sent": traffic.sent, "bytes_received": traffic.received}
    return {"object_stores": exchanged}


def print_next_steps(terminal: Terminal, run: FullRun) -> None:
    """Prints the next step for each log that failed its gate; an error has its own."""
    for log in (o.log for o in run.outcomes.get("quality", ()) if o.status is Status.FAILED):
        chosen = run.pipeline.config.set_of(log)
        logs = " ".join(chosen.logs) if chosen else log
        terminal.note(
            f"next: `tidefold snapshot report {log}` shows why {log} was not published. Correct its source or its "
            f"suite, then `tidefold run {logs}`. To publish it as it is: `tidefold step materialize {logs}`, `tidefold "
            f"step quality {logs}`, then `tidefold step confirm {log} --override-by NAME --reason REASON`."
        )


def save_stopped(
    terminal: Terminal, pipeline: Pipeline, log: str, wanted: SavepointRequest, stopped: Stopped, takeover: bool
) -> int:
    """Folds the changes of a stopped log, saves its snapshot, and returns the exit code. After a failure it stays
    stopped.

    A repeated call continues under the run that stopped the log.
    """

    def save(log: str) -> Outcome:
        state = pipeline.ledger(log).read()
        if state.unfolded or state.stopped is None:
            raise RefusedError(
                "NOT_FOLDED",
                f"Some changes of `{log}` are not in a confirmed snapshot, or the log was resumed meanwhile.",
            )
        return take_savepoint(pipeline, log, replace(wanted, run=stopped.run), terminal.note)

    terminal.note(f"{log}: stopped; `tidefold move resume {log}` lets it accept changes again")
    saved: Sequence[Outcome] = ()
    with open_run(terminal, pipeline, Fold(stopped.run, takeover)) as run:
        run.fold([log])
    if not exit_code(o for outcomes in run.outcomes.values() for o in outcomes):
        saved = for_each_log([log], save)
    print_lines(terminal, saved)
    return print_run(terminal, run, saved)
