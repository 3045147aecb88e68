"""`tidefold read`: rows in the terminal, without Spark."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from tidefold.cli.terminal import Live, Log, SnapshotId, Terminal, terminal_width
from tidefold.domain.key_groups import RedistributionMode, Share
from tidefold.domain.wording import format_cell
from tidefold.errors import InvalidInputError

if TYPE_CHECKING:
    from tidefold.operations.ground.read import ReadRequest

LogRows = Annotated[bool, typer.Option("--changes", help="Show change sets instead of rows, in the order of the log.")]
Since = Annotated[int | None, typer.Option("--since", help="With --changes: only change sets after this sqn.", min=0)]
ShareOfTable = Annotated[
    str | None,
    typer.Option(
        "--share", help="Only one worker's share of the key groups: 2/8 is the second of eight.", metavar="I/N"
    ),
]
HowShared = Annotated[
    RedistributionMode | None,
    typer.Option(
        "--distribution",
        help="With --share: split gives each row to one worker, union all rows to each, broadcast one owner's rows.",
        show_default="as the snapshot says",
    ),
]
RowsOfSet = Annotated[str | None, typer.Option("--set", help="The rows of the set's version.", metavar="NAME")]
MaxRows = Annotated[int, typer.Option("--limit", help="Maximum number of rows.", min=1)]


def read(
    terminal: Terminal,
    log: Log,
    live: Live = False,
    snapshot: SnapshotId = None,
    changes: LogRows = False,
    since: Since = None,
    share: ShareOfTable = None,
    distribution: HowShared = None,
    of_set: RowsOfSet = None,
    limit: MaxRows = 20,
) -> None:
    """Show rows: published, of a snapshot, or live; or change sets.

    --live adds the changes that were ingested after the newest snapshot, and writes nothing. --changes shows the log
    itself: each change with its change set (_sqn), its operation (_op: 0 upsert, 1 delete) and its source position.
    --set reads the rows of the set's published version: all tables of one set agree with each other. --share reads only
    the key groups of one of several workers. For large reads use a Delta reader on the table, or
    spark.read.format("tidefold"). Starts no Spark.

    Example: tidefold read accounts --live --limit 5

    Next: tidefold run LOG, if changes wait
    """
    from tidefold.operations.ground.read import read_rows
    from tidefold.presentation.tables import row_table

    wanted = _parse_wanted(live, snapshot, changes, since)
    if distribution is not None and share is None:
        raise InvalidInputError("READ_OPTIONS", "--distribution needs --share.", hint="Add --share, such as 2/8.")
    pipeline = terminal.pipeline()
    if of_set is not None:
        from tidefold.operations.sets.read import find_member

        if live or changes or snapshot is not None:
            raise InvalidInputError("READ_OPTIONS", "--set reads the published rows.", hint="Give it alone.")
        wanted = replace(wanted, snapshot=find_member(pipeline, of_set, log).snapshot)
    wanted = wanted if share is None else replace(wanted, share=Share.parse(share, distribution))
    schema, batches = read_rows(pipeline, log, wanted)
    with closing(batches):  # Files that are open at the end of the process raise warnings.
        rows = list(islice((row for batch in batches for row in batch.to_pylist()), limit + 1))
    shown, more = rows[:limit], len(rows) > limit
    data = {"log": log, "columns": {f.name: str(f.type) for f in schema}, "rows": shown, "more": more}
    cells = [[format_cell(row[name]) for name in schema.names] for row in shown]
    terminal.result(data, row_table(schema.names, cells, terminal_width()))
    if more:
        # `run` shows rows, too.
        terminal.note_cut(limit, "row", "--limit" if terminal.command == "read" else f"`tidefold read {log} --limit N`")


def _parse_wanted(live: bool, snapshot: int | None, changes: bool, since: int | None) -> ReadRequest:
    from tidefold.operations.ground.read import ReadRequest, What

    options = [("--live", live), ("--snapshot", snapshot is not None), ("--changes", changes)]
    several = [name for name, is_given in options if is_given]
    if len(several) > 1:
        message = f"{' and '.join(several)} exclude each other."
        raise InvalidInputError("READ_OPTIONS", message, hint="Give one of them.")
    if since is not None and not changes:
        raise InvalidInputError("READ_OPTIONS", "--since needs --changes.", hint="Add --changes.")
    return ReadRequest(What.LIVE if live else What.LOG if changes else What.TABLE, snapshot, since)
