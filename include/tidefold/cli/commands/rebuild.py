"""`tidefold rebuild`: makes a lost ledger again from the snapshots and the table."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.options import Log
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal

Yes = Annotated[bool, typer.Option("--yes", help="Write the ledger. Without it, only the plan is printed.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing: print the plan. This is also the default.")]


def rebuild(terminal: Terminal, log: Log, yes: Yes = False, dry_run: DryRun = False) -> int:
    """Rebuild the ledger of a log that was lost or is older than the table.

    Use it only if you have no newer copy of logs/LOG. The manifests and the commits of the table tell the command which
    snapshots exist, and from which position ingest has to read the source again. Verdicts, tags, holds and counts of
    refused records are lost. The command aborts snapshots that were never published. Starts no Spark.

    Example: tidefold rebuild accounts --yes

    Next: tidefold verify LOG, then tidefold ingest LOG, which ingests again what landed after the newest snapshot
    """
    from tidefold.operations.restore.rebuild import RebuildDetails
    from tidefold.operations.restore.rebuild import rebuild as act

    outcome = act(terminal.pipeline(), log, plan=dry_run or not yes)
    code = print_outcomes(terminal, "rebuild", [outcome])
    for unknown in outcome.details.unknown if isinstance(outcome.details, RebuildDetails) else ():
        terminal.line(f"  {outcome.log}: not known any more: {unknown}")
    return code
