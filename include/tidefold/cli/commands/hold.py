"""`tidefold hold`: keeps a snapshot and the log after it."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.options import Log
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal

HoldName = Annotated[str, typer.Argument(help="Name of the hold.", metavar="NAME")]
HeldId = Annotated[int, typer.Argument(help="Id of the snapshot.", metavar="SNAPSHOT", min=1)]
Reason = Annotated[str, typer.Option("--reason", help="The reason. status and truncate show it.", show_default=False)]


def hold(terminal: Terminal, log: Log, name: HoldName, snapshot: HeldId, reason: Reason) -> int:
    """Keep a completed snapshot and all change sets after it, until you call release.

    A tag keeps only the snapshot. With a hold, tidefold can also replay the log onto the snapshot. truncate names the
    holds. The command is refused for a retired snapshot, and if change sets after the snapshot were truncated. Starts
    no Spark.

    Example: tidefold hold accounts audit 12 --reason "audit until May"

    Next: tidefold release LOG NAME, which ends the hold
    """
    from tidefold.operations.retention.references import hold as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "hold", [act(pipeline, pipeline.log(log).id, name, snapshot, reason)])
