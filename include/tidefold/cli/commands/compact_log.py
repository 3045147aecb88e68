"""`tidefold compact-log`: merges runs of waiting change sets."""

from __future__ import annotations

from tidefold.cli.options import DryRun, Logs
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal, choose_logs
from tidefold.operations.outcome import for_each_log


def compact_log(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Merge waiting change sets: keep only the last change of each key.

    Useful if many small change sets wait, or if the same keys change often: the next materialize and read --live then
    read less. Every snapshot and every replay still gives the same rows. tidefold never merges change sets before and
    after the end of a snapshot or the position of a consumer. Refused records and counts stay. Starts no Spark.

    Example: tidefold compact-log accounts --dry-run

    Next: tidefold truncate, which deletes the replaced segments
    """
    from tidefold.operations.snapshot.compact_log import compact_log as act

    pipeline = terminal.pipeline()
    outcomes = for_each_log(choose_logs(pipeline, logs), lambda log: act(pipeline, log, dry_run))
    return print_outcomes(terminal, "compact-log", outcomes, after="" if dry_run else "tidefold truncate")
