"""`tidefold ingest`: takes new landed files into the changelog."""

from __future__ import annotations

from tidefold.cli.options import Logs
from tidefold.cli.output.outcomes import list_logs, print_outcomes
from tidefold.cli.terminal import Terminal, choose_logs


def ingest(terminal: Terminal, logs: Logs = None) -> int:
    """Ingest new landed files into the changelog.

    tidefold ingests each partition strictly in offset order. It quarantines records that it cannot use, with file and
    line. If the end of the newest file is incomplete, the next run ingests the rest. Without new files, the command
    starts no Spark and writes no file.

    Example: tidefold ingest accounts

    Next: tidefold materialize
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.spark.steps import IngestStep

    pipeline = terminal.pipeline()
    outcomes = run_step(terminal, pipeline, IngestStep(), choose_logs(pipeline, logs))
    return print_outcomes(terminal, "ingest", outcomes, after=f"tidefold materialize{list_logs(logs)}")
