"""`tidefold drill`: tests whether a snapshot can be restored."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from tidefold.cli.options import LogOrSet
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.output.progress import BucketLine
from tidefold.cli.output.restore import print_reads
from tidefold.cli.terminal import Terminal
from tidefold.cli.whole_set import OfSet, VersionNumber, WholeSet, require_log, require_no_log

Tried = Annotated[
    int | None,
    typer.Argument(help="Id of the snapshot.", metavar="SNAPSHOT", min=1, show_default="the newest completed one"),
]
Scratch = Annotated[
    str | None,
    typer.Option("--scratch", help="Folder for the scratch copy.", metavar="DIR", show_default="var/drill"),
]


def drill(
    terminal: Terminal,
    log: LogOrSet = None,
    snapshot: Tried = None,
    scratch: Scratch = None,
    of_set: OfSet = None,
    version: VersionNumber = None,
) -> int:
    """Test whether a snapshot can be restored: restore it into a scratch folder, check it, record the result.

    Reads the files as a restore does: from the local copy, the store, or an older snapshot and the log. Checks the row
    count, every checksum, and the Delta log of the result. Then deletes the scratch copy. history and status show the
    newest drill of each snapshot. --set drills all tables of a set's version, and compares the configured sums. Exit
    code 5 if the rows cannot be restored. Nothing else changes.

    Example: tidefold drill accounts

    Next: tidefold verify LOG, if the drill failed
    """
    from tidefold.compute.runners import in_threads
    from tidefold.operations.restore.drill import Trial
    from tidefold.operations.restore.drill import drill as act

    pipeline = terminal.pipeline()
    if of_set is not None:
        return WholeSet(terminal, pipeline, require_no_log(of_set, log, snapshot)).drill(version, scratch)
    name = pipeline.log(require_log(log, of_set, version)).id
    trial = Trial(scratch, in_threads(partial(BucketLine(terminal.note), name)))
    outcome = act(pipeline, name, snapshot, trial)
    code = print_outcomes(terminal, "drill", [outcome])
    print_reads(terminal, [outcome])
    return code
