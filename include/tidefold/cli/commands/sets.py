"""`tidefold sets`: shows the published version of each set."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.terminal import Terminal
from tidefold.errors import InvalidInputError

Name = Annotated[str | None, typer.Argument(help="The set; all without it.", show_default=False, metavar="NAME")]

Sql = Annotated[bool, typer.Option("--sql", help="Print Spark SQL that makes a view of each table at its version.")]


def sets(terminal: Terminal, name: Name = None, sql: Sql = False) -> None:
    """Show which table versions of a set belong together, at which point, and which log holds it back.

    Open each table at the version shown: all tables then have exactly the transactions up to one point of the source's
    log. --sql prints statements that make views of one set; execute them again after each publication. Starts no Spark.

    Example: tidefold sets bank

    Next: tidefold read accounts --set bank
    """
    from tidefold.operations.sets.read import describe_set, find_set
    from tidefold.operations.sets.views import write_views

    pipeline = terminal.pipeline()
    if sql:
        if name is None:
            raise InvalidInputError("SET_OPTIONS", "--sql needs the name of a set.", hint="Give NAME --sql.")
        statements = write_views(pipeline, name)
        terminal.result({"set": name, "statements": statements}, *(f"{one};" for one in statements))
        return
    chosen = [find_set(pipeline, name)] if name else list(pipeline.config.sets.values())
    found = [describe_set(pipeline, one) for one in chosen]
    lines = [line for one in found for line in one.lines]
    terminal.result({"sets": [one.data for one in found]}, *(lines or ["No set is configured."]))
