"""`tidefold tag`: names a snapshot, which keeps it."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.options import Log
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal

TaggedSnapshot = Annotated[int, typer.Argument(help="Id of the snapshot.", metavar="SNAPSHOT", min=1)]
TagName = Annotated[str, typer.Argument(help="Name of the tag.", metavar="TAG")]


def tag(terminal: Terminal, log: Log, snapshot: TaggedSnapshot, name: TagName) -> int:
    """Give a completed snapshot a name, so that it is kept as long as the tag exists.

    Example: tidefold tag accounts 12 before-migration

    Next: tidefold untag LOG TAG removes the tag
    """
    from tidefold.operations.retention.references import tag as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "tag", [act(pipeline, pipeline.log(log).id, name, snapshot)])
