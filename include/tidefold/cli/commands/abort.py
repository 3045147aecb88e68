"""`tidefold abort`: undoes an unconfirmed snapshot."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.options import Log, SnapshotId
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal


def abort(
    terminal: Terminal,
    log: Log,
    reason: Annotated[
        str, typer.Option("--reason", help="The reason, shown in the history.")
    ] = "aborted from the command line",
    snapshot: SnapshotId = None,
) -> int:
    """Abort an unconfirmed snapshot: delete its files, keep its verdict and the reason.

    The default is the open attempt. The table and its last snapshot are unchanged. No change is lost: the next
    materialize folds them again. Starts no Spark.

    Example: tidefold abort accounts --reason "wrong suite"

    Next: tidefold materialize LOG
    """
    from tidefold.operations.snapshot.abort import abort as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "abort", [act(pipeline, pipeline.log(log).id, reason, snapshot)])
