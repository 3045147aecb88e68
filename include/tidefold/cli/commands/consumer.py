"""`tidefold consumer`: registers a program that reads the log."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.options import Log
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal
from tidefold.errors import InvalidInputError

ConsumerName = Annotated[str, typer.Argument(help="Name of the consumer.", metavar="NAME")]
At = Annotated[
    int | None,
    typer.Option("--at", help="The last change set (sqn) that the consumer has read.", min=0, show_default=False),
]
Remove = Annotated[bool, typer.Option("--remove", help="Remove the consumer.")]


def consumer(terminal: Terminal, log: Log, name: ConsumerName, at: At = None, remove: Remove = False) -> int:
    """Register the position of an external consumer, so that the log keeps the change sets after it.

    Call it again when the consumer has read further: truncate may then delete change sets up to the new position.
    Remove consumers that no longer read, or the log grows. A position before the start or after the end of the log is
    refused. Starts no Spark.

    Example: tidefold consumer accounts search-index --at 120

    Next: tidefold consumer LOG NAME --remove removes the consumer
    """
    from tidefold.operations.retention.references import register, unregister

    if (at is None) != remove:
        raise InvalidInputError(
            "CONSUMER_OPTIONS", "A consumer needs either --at or --remove.", hint="Give one of them."
        )
    pipeline = terminal.pipeline()
    known = pipeline.log(log).id
    outcome = unregister(pipeline, known, name) if at is None else register(pipeline, known, name, at)
    return print_outcomes(terminal, "consumer", [outcome])
