"""`tidefold savepoint`: writes a copy of a snapshot to a folder that the user owns."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from tidefold.cli.options import LogOrSet, SnapshotId, Takeover
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal
from tidefold.cli.whole_set import OfSet, VersionNumber, WholeSet, require_log, require_no_log
from tidefold.domain.external_snapshot import Layout
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


def savepoint(
    terminal: Terminal,
    to: To,
    log: LogOrSet = None,
    snapshot: SnapshotId = None,
    layout: Kept = Layout.NATIVE,
    overwrite: Overwrite = False,
    stop: Stop = False,
    by: By = None,
    reason: Reason = "a savepoint was asked for",
    takeover: Takeover = False,
    of_set: OfSet = None,
    version: VersionNumber = None,
) -> int:
    """Write a copy of a completed snapshot to an address of your choice. tidefold never deletes it.

    The default is the newest completed snapshot. A tail-only snapshot is folded during the write. --as native writes a
    self-contained Delta table with copies of the snapshot's files. --as canonical writes plain Parquet for any engine.
    tidefold verifies all bytes. It writes savepoint.json last: a folder without it is not a savepoint. --stop first
    stops the log, then folds, judges, confirms and saves its changes. After an interruption, call the same command
    again to continue. --set saves all tables of a set at one point: a savepoint of each, and set.json. Starts Spark
    only with --stop.

    Example: tidefold savepoint accounts --to /backup/accounts-may --as canonical

    Next: tidefold import LOG ADDRESS; after --stop: tidefold resume LOG
    """
    from tidefold.cli.stop_with_savepoint import StoppedSavepoint, Stopping
    from tidefold.operations.restore.target_location import open_place
    from tidefold.operations.savepoint.external import open_address
    from tidefold.operations.savepoint.take import SavepointRequest, take_savepoint

    pipeline = terminal.pipeline()
    if of_set is not None:
        from tidefold.operations.sets.savepoint import SetSavepointRequest

        named = require_no_log(of_set, log, snapshot, stop)
        return WholeSet(terminal, pipeline, named).save(SetSavepointRequest(to, version, layout, overwrite))
    known = pipeline.log(require_log(log, of_set, version)).id
    wanted = SavepointRequest(to, snapshot, layout, overwrite)
    if not stop:
        return print_outcomes(terminal, "savepoint", [take_savepoint(pipeline, known, wanted, terminal.note)])
    if snapshot is not None:
        message = "--stop saves the state at the stop, so --snapshot cannot choose another one."
        raise InvalidInputError("SAVEPOINT_OPTIONS", message, hint="Leave out --snapshot or --stop.")
    open_place(pipeline, to)
    asked = Stopping(open_address(to).address, by or getpass.getuser(), reason)
    return StoppedSavepoint(terminal, pipeline, known, asked, takeover).go(wanted)
