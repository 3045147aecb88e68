"""Tables that are published together, at one point of the source.

The tables of a set, each at the version shown, have exactly the transactions up to one point of the source's log.

Example: tidefold set show bank
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.terminal import Terminal

SetName = Annotated[str, typer.Argument(help="Name of the set.", metavar="NAME")]
OptionalName = Annotated[str | None, typer.Argument(help="The set.", show_default="all", metavar="NAME")]
Ended = Annotated[int, typer.Option("--snapshot-ended", help="The position, see above.", metavar="POSITION")]
Who = Annotated[str, typer.Option("--by", help="Who says it.")]
How = Annotated[str, typer.Option("--reason", help="How it is known.")]


def show(terminal: Terminal, name: OptionalName = None) -> None:
    """Show which table versions belong together, and which log holds back.

    Open each table at the version shown: all tables then have exactly the transactions up to one point of the source's
    log. Starts no Spark.

    Example: tidefold set show bank

    Next: tidefold read accounts --set bank
    """
    from tidefold.operations.sets.read import describe_set, find_set

    pipeline = terminal.pipeline()
    chosen = [find_set(pipeline, name)] if name else pipeline.config.sets.values()
    descriptions = [describe_set(pipeline, one) for one in chosen]
    lines = [line for one in descriptions for line in one.lines]
    terminal.result({"sets": [one.data for one in descriptions]}, *(lines or ["No set is configured."]))


def views(terminal: Terminal, name: SetName) -> None:
    """Print Spark SQL that makes a view of each table at its version.

    Execute the statements again after each publication. Starts no Spark.

    Example: tidefold set views bank

    Next: execute the statements in Spark
    """
    from tidefold.operations.sets.read import write_views

    statements = write_views(terminal.pipeline(), name)
    terminal.result({"set": name, "statements": statements}, *(f"{one};" for one in statements))


def release(terminal: Terminal, name: SetName, ended: Ended, by: Who, reason: How) -> None:
    """Release a set that a snapshot by signal holds.

    POSITION is one that the source had reached after the end of that snapshot: the set is published again at the first
    point from there on. Starts no Spark.

    Example: tidefold set release bank --snapshot-ended 4711 --by ada --reason "the connector's log says so"

    Next: tidefold run
    """
    from tidefold.operations.sets.read import find_set
    from tidefold.operations.sets.status import release_set

    pipeline = terminal.pipeline()
    release_set(pipeline, find_set(pipeline, name), ended, by, reason)
    show(terminal, name)
