"""Commands about snapshots outside of the store: savepoint takes one, import brings one in, resume ends a stop."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from tidefold.cli.commands.pipeline import run_id
from tidefold.cli.options import Log, RunId, SnapshotId, Takeover
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal
from tidefold.domain.external_snapshot import Layout, Ownership
from tidefold.errors import InvalidInputError

To = Annotated[
    str,
    typer.Option(
        "--to", help="Folder or s3:// address that does not exist or is empty.", metavar="ADDRESS", show_default=False
    ),
]
Kept = Annotated[
    Layout, typer.Option("--as", help="native: a Delta table of the snapshot's own files; canonical: plain Parquet.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite-unfinished", help="Replace an unfinished savepoint at this address.")
]
Stop = Annotated[
    bool, typer.Option("--stop", help="First stop the log; fold, judge and confirm its changes. See resume.")
]
By = Annotated[str | None, typer.Option("--by", help="With --stop: who stops it.", show_default="your user name")]
Reason = Annotated[str, typer.Option("--reason", help="With --stop: the reason.")]
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


def savepoint(
    terminal: Terminal,
    log: Log,
    to: To,
    snapshot: SnapshotId = None,
    layout: Kept = Layout.NATIVE,
    overwrite: Overwrite = False,
    stop: Stop = False,
    by: By = None,
    reason: Reason = "a savepoint was asked for",
    takeover: Takeover = False,
) -> int:
    """Write a completed snapshot to a place of your own: a copy that tidefold never deletes.

    The default is the newest completed snapshot; a tail-only one is folded while it is written. --as native writes
    a self-contained Delta table with copies of the snapshot's files. --as canonical writes plain Parquet for any
    engine. savepoint.json is written last: without it there is no savepoint. All bytes are verified. --stop first
    stops the log, then folds, judges, confirms and saves what it has; the same call again continues after an
    interruption. Starts Spark only with --stop.

    Example: tidefold savepoint accounts --to /backup/accounts-may --as canonical

    Next: tidefold import LOG ADDRESS; after --stop: tidefold resume LOG
    """
    from tidefold.cli.commands.stop_with_savepoint import StoppedSavepoint, Stopping
    from tidefold.operations.restore.target_location import open_place
    from tidefold.operations.savepoint.external import open_address
    from tidefold.operations.savepoint.take import SavepointRequest, take_savepoint

    pipeline = terminal.pipeline()
    known = pipeline.log(log).id
    wanted = SavepointRequest(to, snapshot, layout, overwrite)
    if not stop:
        return print_outcomes(terminal, "savepoint", [take_savepoint(pipeline, known, wanted, terminal.note)])
    if snapshot is not None:
        message = "A log that is stopped is saved as it then is."
        raise InvalidInputError("SAVEPOINT_OPTIONS", message, hint="Drop --snapshot or --stop.")
    open_place(pipeline, to)
    asked = Stopping(open_address(to).uri(""), by or getpass.getuser(), reason)
    return StoppedSavepoint(terminal, pipeline, known, asked, takeover).go(wanted)


def import_(
    terminal: Terminal,
    log: Log,
    address: Original,
    claim_mode: ClaimMode = Ownership.NO_CLAIM,
    run: RunId = None,
    takeover: Takeover = False,
) -> int:
    """Bring in the rows of a snapshot outside the store as a new snapshot, staged: no reader sees it yet.

    ADDRESS is a savepoint of any store, or a full snapshot in another store (STORE/snapshots/LOG/ID). Its
    description, columns, key and files are checked before anything changes. Continue with tidefold quality and
    tidefold confirm. A new log continues where the savepoint ends. In a log with changes of its own, changes not
    folded yet are left out for good, and this is recorded. To undo an import, restore the snapshot before.
    --claim-mode no-claim (default) never touches the original; you may delete it after the import is confirmed.
    --claim-mode claim owns the original and deletes it when the snapshot is retired. --claim-mode legacy uses its
    files and never deletes them. Starts Spark only for large canonical savepoints.

    Example: tidefold import accounts /backup/accounts-may

    Next: tidefold quality LOG, then tidefold confirm LOG
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.savepoint.external import open_address
    from tidefold.operations.snapshot.request import Import
    from tidefold.spark.steps import MaterializeStep

    pipeline = terminal.pipeline()
    request = Import(run_id(run), open_address(address).uri(""), claim_mode, takeover)
    outcomes = run_step(terminal, pipeline, MaterializeStep(request), [pipeline.log(log).id])
    return print_outcomes(terminal, "import", outcomes, after=f"tidefold quality {log}, then tidefold confirm {log}")


def resume(terminal: Terminal, log: Log) -> int:
    """Let a log that savepoint --stop has stopped accept changes again.

    The next ingest takes what landed meanwhile. Starts no Spark.

    Example: tidefold resume accounts

    Next: tidefold run LOG
    """
    from tidefold.operations.ingest.stop_resume import resume as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "resume", [act(pipeline, pipeline.log(log).id)], after=f"tidefold run {log}")
