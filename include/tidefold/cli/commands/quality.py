"""`tidefold quality`: judges staged snapshots."""

from __future__ import annotations

from tidefold.cli.options import Logs, RunId, run_id
from tidefold.cli.output.outcomes import print_costs, print_outcomes
from tidefold.cli.terminal import Terminal, choose_logs


def quality(terminal: Terminal, logs: Logs = None, run: RunId = None) -> int:
    """Judge the staged snapshots: run the quality checks on all rows of the staged files.

    Checks that the key is unique and not null, compares the row count with the last snapshot, and runs the log's suite
    file. Stores the verdict with a report. Exit code 3 if a gate failed.

    Example: tidefold quality accounts

    Next: tidefold confirm LOG, or tidefold report LOG if it failed
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.spark.steps import QualityStep

    pipeline = terminal.pipeline()
    step = QualityStep(None if run is None else run_id(run))
    outcomes = run_step(terminal, pipeline, step, choose_logs(pipeline, logs))
    print_costs(terminal, outcomes)
    return print_outcomes(terminal, "quality", outcomes, after="tidefold confirm LOG")
