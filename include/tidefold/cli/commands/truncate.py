"""`tidefold truncate`: deletes the oldest part of the log."""

from __future__ import annotations

from tidefold.cli.options import DryRun, Logs
from tidefold.cli.output.outcomes import print_removals
from tidefold.cli.terminal import Terminal, choose_logs
from tidefold.operations.outcome import for_each_log


def truncate(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Delete the part of the log that no snapshot needs, and the segments that nothing needs.

    Prints each reason why a part of the log is kept, and which one keeps the most. The log keeps the change sets that a
    retained snapshot, a tail, an open attempt, a hold, a consumer or a replay needs. The command also deletes old
    ledger versions. Starts no Spark.

    Example: tidefold truncate accounts --dry-run

    Next: tidefold status
    """
    from tidefold.operations.retention.truncate import truncate as act

    pipeline = terminal.pipeline()
    outcomes = for_each_log(choose_logs(pipeline, logs), lambda log: act(pipeline, log, dry_run))
    return print_removals(terminal, "truncate", outcomes)
