"""`tidefold import`: brings in a snapshot from outside the store."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.options import LogOrSet, RunId, Takeover, run_id
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal
from tidefold.cli.whole_set import OfSet, WholeSet
from tidefold.domain.external_snapshot import Ownership
from tidefold.errors import InvalidInputError

Original = Annotated[
    str | None,
    typer.Argument(
        help="Folder or s3:// address of a savepoint, or of a full snapshot in another store.", show_default=False
    ),
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
    log: LogOrSet = None,
    address: Original = None,
    claim_mode: ClaimMode = Ownership.NO_CLAIM,
    run: RunId = None,
    takeover: Takeover = False,
    of_set: OfSet = None,
) -> int:
    """Import a snapshot from outside the store as a new, staged snapshot. Readers do not see it yet.

    ADDRESS is a savepoint of any store, or a full snapshot in another store (STORE/snapshots/LOG/ID). tidefold checks
    its description, columns, key and files before it changes anything. Continue with tidefold quality and tidefold
    confirm. A new log continues where the savepoint ends. If the log has changes that are not folded yet, the import
    leaves them out for good and records this. To undo an import, restore the snapshot before it.

    --claim-mode no-claim (default) never touches the original; you may delete it after the import is confirmed.
    --claim-mode claim takes ownership of the original and deletes it when the snapshot is retired. --claim-mode legacy
    uses its files and never deletes them. Starts Spark only for large canonical savepoints.

    --set NAME with only ADDRESS imports the savepoint of a set into a set that has not begun. It continues at the saved
    point.

    Example: tidefold import accounts /backup/accounts-may

    Example: tidefold import --set bank /backup/bank-may

    Next: tidefold quality LOG, then tidefold confirm LOG
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.savepoint.external import open_address
    from tidefold.operations.snapshot.request import Import
    from tidefold.spark.steps import MaterializeStep

    pipeline = terminal.pipeline()
    if of_set is not None:
        from tidefold.operations.sets.savepoint import ImportSet

        # The only argument is the address.
        if log is None or address is not None or takeover:
            raise InvalidInputError("SET_OPTIONS", "--set takes the address only.", hint="Give --set NAME ADDRESS.")
        whole = WholeSet(terminal, pipeline, of_set)
        return whole.import_(ImportSet(run_id(run), of_set, open_address(log).address, claim_mode))
    if log is None or address is None:
        raise InvalidInputError("LOG_MISSING", "An import needs a log and an address.", hint="Give LOG ADDRESS.")
    request = Import(run_id(run), open_address(address).address, claim_mode, takeover)
    outcomes = run_step(terminal, pipeline, MaterializeStep(request), [pipeline.log(log).id])
    return print_outcomes(terminal, "import", outcomes, after=f"tidefold quality {log}, then tidefold confirm {log}")
