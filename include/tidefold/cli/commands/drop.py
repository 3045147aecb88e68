"""`tidefold drop`: deletes a log."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.options import Log
from tidefold.cli.output.outcomes import print_removals
from tidefold.cli.terminal import Terminal


def drop(
    terminal: Terminal,
    log: Log,
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Without it, only the plan is printed.")] = False,
) -> int:
    """Delete a log and everything that only it needs: table, snapshots, segments, reports, quarantine, ledger.

    Landed files stay. The log need not be configured any more. This cannot be undone. Starts no Spark.

    Example: tidefold drop accounts --yes

    Next: tidefold ingest LOG starts the log again
    """
    from tidefold.operations.retention.drop_log import drop as act

    return print_removals(terminal, "drop", [act(terminal.pipeline(), log, plan=not yes)])
