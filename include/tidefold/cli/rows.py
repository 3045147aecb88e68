"""`tidefold read`: rows in the terminal, without Spark."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from tidefold.cli.arguments import Log, SnapshotId
from tidefold.cli.terminal import Terminal

Live = Annotated[bool, typer.Option("--live", help="Also what was ingested and not yet folded.")]
Limit = Annotated[int, typer.Option("--limit", help="How many rows at most.", min=1)]


def read(terminal: Terminal, log: Log, live: Live = False, snapshot: SnapshotId = None, limit: Limit = 20) -> None:
    """Show rows of a log: as published, of one snapshot, or live.

    --live folds what was ingested since the newest snapshot while it reads; nothing is written. For more than a look
    use any Delta reader on the table. Starts no Spark.

    Example: tidefold read accounts --live --limit 5

    Next: tidefold materialize LOG
    """
    from tidefold.cli.tables import plain_table
    from tidefold.operations.read import read_rows

    if live and snapshot is not None:
        raise typer.BadParameter("--live and --snapshot exclude each other.")
    pipeline = terminal.pipeline()
    schema, batches = read_rows(pipeline, pipeline.log(log).id, live, snapshot)
    rows = list(islice((row for batch in batches for row in batch.to_pylist()), limit + 1))
    shown, more = rows[:limit], len(rows) > limit
    data = {"log": log, "columns": {f.name: str(f.type) for f in schema}, "rows": shown, "more": more}
    cells = [[_cell(row[name]) for name in schema.names] for row in shown]
    terminal.result(data, plain_table(schema.names, cells))
    if more:
        terminal.note(f"the first {limit} rows; --limit shows more")


def _cell(value: Any) -> str:
    return "null" if value is None else str(value)
