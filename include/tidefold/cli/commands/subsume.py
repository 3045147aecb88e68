"""`tidefold subsume`: retires snapshots."""

from __future__ import annotations

from tidefold.cli.options import DryRun, Logs
from tidefold.cli.output.outcomes import print_removals
from tidefold.cli.terminal import Terminal, choose_logs
from tidefold.operations.outcome import for_each_log


def subsume(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Retire completed snapshots beyond `retention.snapshots`, and delete the files that only they need.

    Tagged and held snapshots stay. With `retention.snapshots: all` nothing is retired. Starts no Spark.

    Example: tidefold subsume --dry-run

    Next: tidefold truncate
    """
    from tidefold.operations.retention.subsume import subsume as act

    pipeline = terminal.pipeline()
    outcomes = for_each_log(choose_logs(pipeline, logs), lambda log: act(pipeline, log, dry_run))
    return print_removals(terminal, "subsume", outcomes)
