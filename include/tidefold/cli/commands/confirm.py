"""`tidefold confirm`: completes and publishes a judged snapshot."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.options import Log, SnapshotId
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal


def confirm(
    terminal: Terminal,
    log: Log,
    snapshot: SnapshotId = None,
    override_by: Annotated[
        str | None,
        typer.Option(
            "--override-by", help="Your name, to confirm a snapshot that failed its gate.", show_default=False
        ),
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="The reason of the override.", show_default=False)
    ] = None,
    reconcile: Annotated[
        bool, typer.Option("--reconcile", help="Replace files that other programs committed to the table.")
    ] = False,
) -> int:
    """Complete a judged snapshot and publish it to the readers of the table.

    Needs a passing verdict for exactly the staged files. --override-by with --reason publishes a snapshot that failed
    its gate; the ledger keeps the name and the reason for ever. A second confirm changes nothing, but finishes an
    interrupted publication. A log in a set is confirmed with all logs of its set, or not at all. If another program
    committed to the table (OPTIMIZE, UPDATE), confirm is refused. Undo that commit, or replace it with --reconcile.
    Starts no Spark, unless `catalog` is configured and the table is not yet registered there.

    Example: tidefold confirm accounts

    Next: read the table with any Delta reader; tidefold status
    """
    from tidefold.cli.after_publication import register_new_tables
    from tidefold.operations.sets.confirm import confirm_log

    pipeline = terminal.pipeline()
    known = pipeline.log(log).id
    outcome = confirm_log(pipeline, known, snapshot, override_by=override_by, why=reason, reconcile=reconcile)
    register_new_tables(terminal, pipeline, [log])
    return print_outcomes(terminal, "confirm", [outcome])
