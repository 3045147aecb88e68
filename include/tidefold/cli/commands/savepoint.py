"""Commands about snapshots outside of the store: savepoint takes one, import brings one in, resume ends a stop."""

from __future__ import annotations

import getpass
from enum import StrEnum
from typing import Annotated

import typer

from tidefold.cli.commands.pipeline import run_id
from tidefold.cli.options import Log, RunId, SnapshotId, Takeover
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal
from tidefold.domain.external_snapshot import Layout, Ownership
from tidefold.errors import InvalidInputError


class As(StrEnum):
    """How a savepoint keeps its rows (`--format` is how results are printed, in every command)."""

    NATIVE = "native"
    CANONICAL = "canonical"


class Mode(StrEnum):
    """Whose the original is after the import."""

    NO_CLAIM = "no-claim"
    CLAIM = "claim"
    LEGACY = "legacy"


To = Annotated[
    str,
    typer.Option("--to", help="Folder or s3:// address that is free or empty.", metavar="ADDRESS", show_default=False),
]
Kept = Annotated[
    As, typer.Option("--as", help="native: a Delta table of the snapshot's own files; canonical: plain Parquet.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite-unfinished", help="Fill an address anew that holds half a savepoint.")
]
Stop = Annotated[
    bool, typer.Option("--stop", help="First stop the log, fold, judge and confirm what it took; see resume.")
]
By = Annotated[str | None, typer.Option("--by", help="With --stop: who stops it.", show_default="your user name")]
Why = Annotated[str, typer.Option("--why", help="With --stop: why.")]
Original = Annotated[
    str, typer.Argument(help="Folder or s3:// address of a savepoint, or of a full snapshot in another store.")
]
Whose = Annotated[
    Mode, typer.Option("--mode", help="no-claim: never touched; claim: deleted when retired; legacy: read, kept.")
]


def savepoint(
    terminal: Terminal,
    log: Log,
    to: To,
    snapshot: SnapshotId = None,
    layout: Kept = As.NATIVE,
    overwrite: Overwrite = False,
    stop: Stop = False,
    by: By = None,
    why: Why = "a savepoint was asked for",
    takeover: Takeover = False,
) -> int:
    """Write a completed snapshot to a place of yours: a copy that tidefold never deletes.

    Default is the newest completed one; a tail-only one is folded while it is written. --as native gives a
    self-contained Delta table with copies of the snapshot's files, --as canonical plain Parquet that any engine reads.
    Both have savepoint.json, written last: without it there is no savepoint. All bytes are proved on the way. With
    --stop the log takes nothing more, what it took is folded, judged and confirmed, and then saved; the same call again
    goes on where one was cut off. Starts Spark only with --stop.

    Example: tidefold savepoint accounts --to /backup/accounts-may --as canonical

    Next: tidefold import LOG ADDRESS; after --stop: tidefold resume LOG
    """
    from tidefold.cli.commands.stop_with_savepoint import StoppedSavepoint, Stopping
    from tidefold.operations.restore.target_location import open_place
    from tidefold.operations.savepoint.external import open_address
    from tidefold.operations.savepoint.take import Wanted, take_savepoint

    pipeline = terminal.pipeline()
    known = pipeline.log(log).id
    wanted = Wanted(to, snapshot, Layout(layout), overwrite)
    if not stop:
        return print_outcomes(terminal, "savepoint", [take_savepoint(pipeline, known, wanted, terminal.note)])
    if snapshot is not None:
        message = "A log that is stopped is saved as it then is."
        raise InvalidInputError("SAVEPOINT_OPTIONS", message, hint="Drop --snapshot or --stop.")
    open_place(pipeline, to)
    asked = Stopping(open_address(to).uri(""), by or getpass.getuser(), why)
    return StoppedSavepoint(terminal, pipeline, known, asked, takeover).go(wanted)


def import_(
    terminal: Terminal,
    log: Log,
    address: Original,
    mode: Whose = Mode.NO_CLAIM,
    run: RunId = None,
    takeover: Takeover = False,
) -> int:
    """Bring the rows of a snapshot outside of the store in, as a new snapshot, staged: no reader sees it yet.

    ADDRESS is a savepoint of this or any other store, or a full snapshot in another store (STORE/snapshots/LOG/ID). Its
    description, columns, key and files are checked before anything is changed. Judge and confirm it as any other. A log
    that never took anything goes on where the savepoint ends; what another one took and did not fold is left out for
    good, and recorded. Undo is a restore of the snapshot before. --mode no-claim (the default) never touches the
    original, which may go as soon as the import is confirmed. --mode claim owns it from then on and deletes it when the
    snapshot is retired. --mode legacy takes its files over and never deletes it. Spark only for large canonical ones.

    Example: tidefold import accounts /backup/accounts-may

    Next: tidefold quality LOG, then tidefold confirm LOG
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.savepoint.external import open_address
    from tidefold.operations.snapshot.request import Asking, Import
    from tidefold.spark.dispatch import Step

    pipeline = terminal.pipeline()
    wanted = Import(open_address(address).uri(""), Ownership(mode))
    step = Step("materialize", Asking(run_id(run), takeover, imported=wanted))
    outcomes = run_step(terminal, pipeline, step, [pipeline.log(log).id])
    return print_outcomes(terminal, "import", outcomes, after=f"tidefold quality {log}, then tidefold confirm {log}")


def resume(terminal: Terminal, log: Log) -> int:
    """Let a log that savepoint --stop has stopped take changes again.

    What landed meanwhile is taken by the next ingest. Starts no Spark.

    Example: tidefold resume accounts

    Next: tidefold run LOG
    """
    from tidefold.operations.ingest.stop_resume import resume as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "resume", [act(pipeline, pipeline.log(log).id)], after=f"tidefold run {log}")
