"""`tidefold clean`: deletes what dead runs left."""

from __future__ import annotations

from tidefold.cli.options import DryRun, Logs
from tidefold.cli.output.outcomes import print_removals
from tidefold.cli.terminal import Terminal, choose_logs


def clean(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Delete the files that dead runs left behind: unfinished ingests and aborted attempts.

    An ingest announces its files before it writes them. clean ends unfinished ingests: it commits their results to the
    logs, or rejects them for good. It leaves an ingest without results alone for an hour. Then clean deletes the files
    that no log needs. It never touches files that a log names. Starts no Spark.

    Example: tidefold clean --dry-run

    Next: tidefold ingest, which ingests the rejected files again
    """
    from tidefold.operations.retention.clean import clean as act

    pipeline = terminal.pipeline()
    return print_removals(terminal, "clean", act(pipeline, choose_logs(pipeline, logs), dry_run))
