"""`tidefold resume`: lets a stopped log accept changes again."""

from __future__ import annotations

from tidefold.cli.options import Log
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal


def resume(terminal: Terminal, log: Log) -> int:
    """Let a log accept changes again after savepoint --stop.

    The next ingest also ingests the files that landed during the stop. Starts no Spark.

    Example: tidefold resume accounts

    Next: tidefold run LOG
    """
    from tidefold.operations.ingest.stop_resume import resume as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "resume", [act(pipeline, pipeline.log(log).id)], after=f"tidefold run {log}")
