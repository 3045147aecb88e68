"""`tidefold materialize`: folds new changes into a staged snapshot of each log."""

from __future__ import annotations

from tidefold.cli.options import KindOfSnapshot, Logs, RunId, Takeover, TakeoverAfter, run_id
from tidefold.cli.output.outcomes import list_logs, print_outcomes
from tidefold.cli.terminal import Terminal, choose_logs


def materialize(
    terminal: Terminal,
    logs: Logs = None,
    run: RunId = None,
    takeover: Takeover = False,
    takeover_after: TakeoverAfter = None,
    kind: KindOfSnapshot = None,
) -> int:
    """Fold new changes into a staged snapshot of each log. Readers do not see it yet.

    One Spark job folds all logs. A new number of buckets and the age limit of rows take effect in a full snapshot.
    --kind full makes a full snapshot even without new changes, if it would differ from the last one. An open attempt of
    another run blocks this command. --takeover supersedes that attempt. --takeover-after supersedes it only if it makes
    no progress (a running job reports progress every 30 seconds). With nothing to fold, the command starts no Spark and
    writes no file.

    Example: tidefold materialize accounts tellers

    Next: tidefold quality
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.cli.takeover import find_takeovers
    from tidefold.operations.snapshot.request import Fold
    from tidefold.spark.steps import MaterializeStep

    request = Fold(run_id(run), takeover, kind)
    pipeline = terminal.pipeline()
    chosen = choose_logs(pipeline, logs)
    step = MaterializeStep(find_takeovers(terminal, pipeline, chosen, request, takeover_after))
    outcomes = run_step(terminal, pipeline, step, chosen)
    return print_outcomes(terminal, "materialize", outcomes, after=f"tidefold quality{list_logs(logs)}")
