"""Commands about who needs more of a log than retention keeps: hold, release, reader. They start no JVM."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.arguments import Log
from tidefold.cli.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal
from tidefold.lifecycle.errors import InvalidInputError

HoldName = Annotated[str, typer.Argument(help="Name of the hold.", metavar="NAME")]
ReaderName = Annotated[str, typer.Argument(help="Name of the reader.", metavar="NAME")]
HeldId = Annotated[int, typer.Argument(help="Id of the snapshot.", metavar="SNAPSHOT", min=1)]
Why = Annotated[str, typer.Option("--why", help="The reason, shown by status and truncate.", show_default=False)]
At = Annotated[
    int | None, typer.Option("--at", help="The last change set (sqn) that it has read.", min=0, show_default=False)
]
Remove = Annotated[bool, typer.Option("--remove", help="Forget the reader.")]


def hold(terminal: Terminal, log: Log, name: HoldName, snapshot: HeldId, why: Why) -> int:
    """Keep a completed snapshot and the log behind it, until release.

    A tag keeps only the snapshot; a hold also keeps every change set after it, so that the log can be replayed onto
    it, and truncate names the hold. Refused for a retired snapshot, and when the log behind it is cut. Starts no Spark.

    Example: tidefold hold accounts audit 12 --why "audit until May"

    Next: tidefold release LOG NAME ends it
    """
    from tidefold.operations.hold import hold as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "hold", [act(pipeline, pipeline.log(log).id, name, snapshot, why)])


def release(terminal: Terminal, log: Log, name: HoldName) -> int:
    """End a hold; the snapshot and the log behind it then go when retention says so.

    Example: tidefold release accounts audit

    Next: tidefold subsume LOG --plan, tidefold truncate LOG --plan
    """
    from tidefold.operations.hold import release as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "release", [act(pipeline, pipeline.log(log).id, name)])


def reader(terminal: Terminal, log: Log, name: ReaderName, at: At = None, remove: Remove = False) -> int:
    """Note how far somebody who reads the log by himself has read it: what follows is kept for him.

    Call it again whenever he has read on; the log is then cut up to there, as far as he is concerned. Who stops
    reading must be removed, else the log grows. Refused before what was cut and beyond the end. Starts no Spark.

    Example: tidefold reader accounts search-index --at 120

    Next: tidefold reader LOG NAME --remove forgets it
    """
    from tidefold.operations.hold import register, unregister

    if (at is None) != remove:
        raise InvalidInputError("READER_OPTIONS", "A reader needs either --at or --remove.", hint="Give one of them.")
    pipeline = terminal.pipeline()
    known = pipeline.log(log).id
    outcome = unregister(pipeline, known, name) if at is None else register(pipeline, known, name, at)
    return print_outcomes(terminal, "reader", [outcome])
