"""`tidefold audit`: judges completed snapshots again."""

from __future__ import annotations

from tidefold.cli.options import Logs, RunId, run_id
from tidefold.cli.output.outcomes import print_costs, print_outcomes
from tidefold.cli.terminal import Terminal, choose_logs


def audit(terminal: Terminal, logs: Logs = None, run: RunId = None) -> int:
    """Judge the newest completed snapshots again, with today's suites.

    Made for a schedule: it changes no verdict, snapshot or table. `freshness` counts ages up to now. Its report is kept
    beside the one of the verdict. A call with the same --run gives the same result. Exit code 3 if a snapshot failed.

    Example: tidefold audit accounts

    Next: open the report that it names (--format json: facts.report)
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.quality.judge import JudgementDetails
    from tidefold.spark.steps import AuditStep

    pipeline = terminal.pipeline()
    step = AuditStep(None if run is None else run_id(run))
    outcomes = run_step(terminal, pipeline, step, choose_logs(pipeline, logs))
    print_costs(terminal, outcomes)
    for outcome in outcomes:
        if isinstance(outcome.details, JudgementDetails):
            terminal.note(f"report: {outcome.details.report}")
    return print_outcomes(terminal, "audit", outcomes)
