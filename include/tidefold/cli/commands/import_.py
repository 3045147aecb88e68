"""`tidefold import`: brings in a snapshot from outside the store."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.options import Log, RunId, Takeover, run_id
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal
from tidefold.domain.external_snapshot import Ownership

Original = Annotated[
    str, typer.Argument(help="Folder or s3:// address of a savepoint, or of a full snapshot in another store.")
]
ClaimMode = Annotated[
    Ownership,
    typer.Option(
        "--claim-mode",
        help="no-claim: never touch the original; claim: delete it when retired; legacy: use and keep it.",
    ),
]


def import_(
    terminal: Terminal,
    log: Log,
    address: Original,
    claim_mode: ClaimMode = Ownership.NO_CLAIM,
    run: RunId = None,
    takeover: Takeover = False,
) -> int:
    """Import a snapshot from outside the store as a new, staged snapshot. Readers do not see it yet.

    ADDRESS is a savepoint of any store, or a full snapshot in another store (STORE/snapshots/LOG/ID). tidefold checks
    its description, columns, key and files before it changes anything. Continue with tidefold quality and tidefold
    confirm. A new log continues where the savepoint ends. If the log has changes that are not folded yet, the import
    leaves them out for good and records this. To undo an import, restore the snapshot before it.

    --claim-mode no-claim (default) never touches the original; you may delete it after the import is confirmed.
    --claim-mode claim takes ownership of the original and deletes it when the snapshot is retired. --claim-mode legacy
    uses its files and never deletes them. Starts Spark only for large canonical savepoints.

    Example: tidefold import accounts /backup/accounts-may

    Next: tidefold quality LOG, then tidefold confirm LOG
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.savepoint.external import open_address
    from tidefold.operations.snapshot.request import Import
    from tidefold.spark.steps import MaterializeStep

    pipeline = terminal.pipeline()
    request = Import(run_id(run), open_address(address).address, claim_mode, takeover)
    outcomes = run_step(terminal, pipeline, MaterializeStep(request), [pipeline.log(log).id])
    return print_outcomes(terminal, "import", outcomes, after=f"tidefold quality {log}, then tidefold confirm {log}")
