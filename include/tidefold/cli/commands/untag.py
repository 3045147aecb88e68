"""`tidefold untag`: removes a tag."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.options import Log
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal

TagName = Annotated[str, typer.Argument(help="Name of the tag.", metavar="TAG")]


def untag(terminal: Terminal, log: Log, name: TagName) -> int:
    """Remove a tag. Retention may then delete the snapshot.

    Example: tidefold untag accounts before-migration

    Next: tidefold subsume LOG --dry-run
    """
    from tidefold.operations.retention.references import untag as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "untag", [act(pipeline, pipeline.log(log).id, name)])
