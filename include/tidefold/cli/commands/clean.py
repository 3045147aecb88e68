"""`tidefold clean`: deletes what dead runs left."""

from __future__ import annotations

from tidefold.cli.options import DryRun, Logs
from tidefold.cli.output.outcomes import print_removals
from tidefold.cli.terminal import Terminal, choose_logs


def clean(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Delete what dead runs left behind: files of unfinished ingests and of aborted attempts.

    A run announces its files before it writes them. clean ends unfinished runs: each log commits the run's results
    or rejects them for good. A run that reported no results is left alone for an hour. Then files that no log needs
    are deleted. Files that a log names are never touched. Starts no Spark.

    Example: tidefold clean --dry-run

    Next: tidefold ingest takes anew what was refused
    """
    from tidefold.operations.retention.clean import clean as act

    pipeline = terminal.pipeline()
    return print_removals(terminal, "clean", act(pipeline, choose_logs(pipeline, logs), dry_run))
