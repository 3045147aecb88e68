"""Commands about a log's tail, the change sets after its newest materialization: tail, squash. They start no JVM."""

from __future__ import annotations

from tidefold.cli.commands.pipeline import run_id
from tidefold.cli.options import Logs, Plan, RunId
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal, chosen_logs
from tidefold.operations.outcome import each_log


def tail(terminal: Terminal, logs: Logs = None, run: RunId = None) -> int:
    """Take a tail-only snapshot: the newest materialization and the change sets after it.

    It is complete at once, costs one small file whatever the size of the table, is never published, and has the
    verdict of what it is built on. It goes when that goes, unless a tag or a hold keeps it. Nothing was appended since
    the newest snapshot: nothing is done. Starts no Spark.

    Example: tidefold tail accounts

    Next: tidefold read LOG --snapshot ID shows its rows; tidefold restore LOG ID --mode replay brings them back
    """
    from tidefold.operations.snapshot.tail import take_tail

    run = run_id(run)
    pipeline = terminal.pipeline()
    outcomes = each_log(chosen_logs(pipeline, logs), lambda log: take_tail(pipeline, log, run))
    return print_outcomes(terminal, "tail", outcomes, after="tidefold history LOG")


def squash(terminal: Terminal, logs: Logs = None, plan: Plan = False) -> int:
    """Keep, of runs of change sets that wait to be folded, only the last change of each key.

    Worth it when many small change sets wait, or the same keys change all the time: the next materialize and
    read --live have less to read. Rows stay as they are, of every snapshot and every replay: nothing is squashed
    across the end of one, or across a place where a reader stands. Refused records and counts stay. Starts no Spark.

    Example: tidefold squash accounts --plan

    Next: tidefold truncate removes the segments that it replaced
    """
    from tidefold.operations.snapshot.tail import squash as act

    pipeline = terminal.pipeline()
    outcomes = each_log(chosen_logs(pipeline, logs), lambda log: act(pipeline, log, plan))
    return print_outcomes(terminal, "squash", outcomes, after="" if plan else "tidefold truncate")
