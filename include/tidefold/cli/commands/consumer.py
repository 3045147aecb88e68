"""Positions of external readers: the log is kept after them.

Register a program that reads change sets itself, such as a search index. Remove it when it no longer reads, or the log
grows. `tidefold status` shows the consumers.

Example: tidefold consumer register accounts search-index --at 120
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.output.outcomes import act_on_log
from tidefold.cli.terminal import Log, Terminal

ConsumerName = Annotated[str, typer.Argument(help="Name of the consumer.", metavar="NAME")]
ReadUpTo = Annotated[int, typer.Option("--at", help="The last change set (sqn) that the consumer has read.", min=0)]


def register(terminal: Terminal, log: Log, name: ConsumerName, at: ReadUpTo) -> int:
    """Register a position, or a further one: the log keeps what is after it.

    Call it again when the consumer has read further: truncate may then delete change sets up to the new position. A
    position before the start or after the end of the log is refused. Snapshots go by age all the same: `tidefold
    snapshot hold` keeps one. Starts no Spark.

    Example: tidefold consumer register accounts search-index --at 120

    Next: tidefold consumer remove LOG NAME, when it no longer reads
    """
    from tidefold.operations.retention.references import register as act

    return act_on_log(terminal, log, act, name, at)


def remove(terminal: Terminal, log: Log, name: ConsumerName) -> int:
    """Remove a consumer. The log no longer keeps changes for it.

    Example: tidefold consumer remove accounts search-index

    Next: tidefold retain truncate LOG --dry-run
    """
    from tidefold.operations.retention.references import unregister

    return act_on_log(terminal, log, unregister, name)
