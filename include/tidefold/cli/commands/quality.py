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
    from tidefold.operations.outcome import Status
    from tidefold.spark.steps import QualityStep

    pipeline = terminal.pipeline()
    step = QualityStep(None if run is None else run_id(run))
    outcomes = run_step(terminal, pipeline, step, choose_logs(pipeline, logs))
    print_costs(terminal, outcomes)
    passed = [one.log for one in outcomes if one.status is Status.PASSED]
    code = print_outcomes(terminal, "quality", outcomes)
    failed = [one.log for one in outcomes if one.status is Status.FAILED]
    if failed:
        override = f"tidefold confirm {failed[0]} --override-by NAME --reason REASON"
        terminal.note(
            f"next: `tidefold report {failed[0]}` shows what failed. Then `tidefold abort {failed[0]}`, or to publish "
            f"it as it is: `{override}`"
        )
    if passed:
        more = f" (and {len(passed) - 1:,} more)" if len(passed) > 1 else ""
        terminal.note(f"next: tidefold confirm {passed[0]}{more}")
    return code
