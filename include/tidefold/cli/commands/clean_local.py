"""`tidefold clean-local`: deletes local copies."""

from __future__ import annotations

from tidefold.cli.options import DryRun, Logs
from tidefold.cli.output.outcomes import print_removals
from tidefold.cli.terminal import Terminal, choose_logs


def clean_local(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Delete all local copies except the copy of each log's newest completed snapshot.

    The copy of a snapshot that is being judged stays too. The command deletes copies of older and aborted snapshots,
    files of dead writers, and copies of folded segments. It touches only files below this pipeline's folder in
    `local.path` or `local.paths`, never the store. If it cannot delete a file, it reports a warning. Starts no Spark.

    Example: tidefold clean-local --dry-run

    Next: tidefold status
    """
    from tidefold.operations.local_copies.retain import retain_local

    pipeline = terminal.pipeline()
    return print_removals(terminal, "clean-local", retain_local(pipeline, choose_logs(pipeline, logs), dry_run))
