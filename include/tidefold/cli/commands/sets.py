"""`tidefold sets`: shows the published version of each set."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.terminal import Terminal

Name = Annotated[str | None, typer.Argument(help="The set; all without it.", show_default=False, metavar="NAME")]


def sets(terminal: Terminal, name: Name = None) -> None:
    """Show which table versions of a set belong together, at which point, and which log holds it back.

    Open each table at the version shown: all tables then have exactly the transactions up to one point of the source's
    log. Starts no Spark.

    Example: tidefold sets bank

    Next: tidefold read accounts --set bank
    """
    from tidefold.operations.sets.read import describe_set, find_set

    pipeline = terminal.pipeline()
    chosen = [find_set(pipeline, name)] if name else list(pipeline.config.sets.values())
    found = [describe_set(pipeline, one) for one in chosen]
    lines = [line for one in found for line in one.lines]
    terminal.result({"sets": [one.data for one in found]}, *(lines or ["No set is configured."]))
