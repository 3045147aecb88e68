"""Commands about the change sets after the newest materialization: tail, compact-log. They start no JVM."""

from __future__ import annotations

from tidefold.cli.commands.pipeline import run_id
from tidefold.cli.options import DryRun, Logs, RunId
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal, choose_logs
from tidefold.operations.outcome import for_each_log


def tail(terminal: Terminal, logs: Logs = None, run: RunId = None) -> int:
    """Make a tail-only snapshot: the newest materialization and the change sets after it.

    It is complete at once and costs one small file, whatever the size of the table. It is never published and has
    the verdict of its base. It is retired with its base, unless a tag or a hold keeps it. Without changes since the
    newest snapshot nothing is done. Starts no Spark.

    Example: tidefold tail accounts

    Next: tidefold read LOG --snapshot ID shows its rows; tidefold restore LOG ID --log-position replay brings them back
    """
    from tidefold.operations.snapshot.tail import take_tail

    run = run_id(run)
    pipeline = terminal.pipeline()
    outcomes = for_each_log(choose_logs(pipeline, logs), lambda log: take_tail(pipeline, log, run))
    return print_outcomes(terminal, "tail", outcomes, after="tidefold history LOG")


def compact_log(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Merge runs of waiting change sets: keep only the last change of each key.

    Useful if many small change sets wait, or the same keys change often: the next materialize and read --live read
    less. The rows of every snapshot and every replay stay the same: nothing is merged across the end of a snapshot
    or the position of a consumer. Refused records and counts stay. Starts no Spark.

    Example: tidefold compact-log accounts --dry-run

    Next: tidefold truncate removes the segments that it replaced
    """
    from tidefold.operations.snapshot.tail import squash as act

    pipeline = terminal.pipeline()
    outcomes = for_each_log(choose_logs(pipeline, logs), lambda log: act(pipeline, log, dry_run))
    return print_outcomes(terminal, "compact-log", outcomes, after="" if dry_run else "tidefold truncate")
