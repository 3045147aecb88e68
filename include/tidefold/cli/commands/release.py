"""`tidefold release`: removes a hold."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.options import Log
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal

HoldName = Annotated[str, typer.Argument(help="Name of the hold.", metavar="NAME")]


def release(terminal: Terminal, log: Log, name: HoldName) -> int:
    """End a hold. Retention may then delete the snapshot and the change sets after it.

    Example: tidefold release accounts audit

    Next: tidefold subsume LOG --dry-run, tidefold truncate LOG --dry-run
    """
    from tidefold.operations.retention.references import release as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "release", [act(pipeline, pipeline.log(log).id, name)])
