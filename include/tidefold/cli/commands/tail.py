"""`tidefold tail`: makes a tail-only snapshot."""

from __future__ import annotations

from tidefold.cli.options import Logs, RunId, run_id
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal, choose_logs
from tidefold.operations.outcome import for_each_log


def tail(terminal: Terminal, logs: Logs = None, run: RunId = None) -> int:
    """Make a tail-only snapshot: the newest materialized snapshot and the change sets after it.

    The snapshot is complete at once and costs one small file, whatever the size of the table. It has the verdict of the
    snapshot below it. tidefold never publishes it, and retires it together with the snapshot below it, unless a tag or
    a hold keeps it. Without changes after the newest snapshot, the command does nothing. Starts no Spark.

    Example: tidefold tail accounts

    Next: tidefold read LOG --snapshot ID to read its rows, or tidefold restore LOG ID --log-position replay
    """
    from tidefold.operations.snapshot.tail import take_tail

    run = run_id(run)
    pipeline = terminal.pipeline()
    outcomes = for_each_log(choose_logs(pipeline, logs), lambda log: take_tail(pipeline, log, run))
    return print_outcomes(terminal, "tail", outcomes, after="tidefold history LOG")
