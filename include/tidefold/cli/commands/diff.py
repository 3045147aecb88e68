"""`tidefold diff`: compares two snapshots."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidefold.cli.options import LogOrSet
from tidefold.cli.terminal import Terminal, list_values
from tidefold.cli.whole_set import OfSet, WholeSet
from tidefold.errors import InvalidInputError

if TYPE_CHECKING:
    from tidefold.operations.pipeline import Pipeline
    from tidefold.read.row_diff import Difference

Before = Annotated[
    int | None, typer.Argument(help="Id of the earlier snapshot.", metavar="A", min=1, show_default=False)
]
After = Annotated[int | None, typer.Argument(help="Id of the later snapshot.", metavar="B", min=1, show_default=False)]
Limit = Annotated[int, typer.Option("--limit", help="Maximum number of rows to show.", min=0)]
Keys = Annotated[bool, typer.Option("--keys", help="Show only the keys.")]


def diff(
    terminal: Terminal,
    log: LogOrSet = None,
    before: Before = None,
    after: After = None,
    limit: Limit = 20,
    keys: Keys = False,
    of_set: OfSet = None,
) -> None:
    """Count the rows added, changed and removed between two snapshots, and show some of them.

    Compares all rows by key. Either snapshot may be tail-only or staged. Files that both snapshots share are not read.
    The counts are exact, whatever --limit is. --set NAME A B counts the rows of all tables between two versions of a
    set. Starts no Spark.

    Example: tidefold diff accounts 11 12 --limit 5

    Example: tidefold diff --set bank 3 4

    Next: tidefold restore LOG ID --log-position replay, if the later snapshot is wrong
    """
    pipeline = terminal.pipeline()
    if of_set is not None:
        # The first two arguments are the versions.
        if log is None or not log.isdecimal() or before is None or after is not None:
            raise InvalidInputError("SET_OPTIONS", "--set takes two versions.", hint="Give --set NAME A B.")
        WholeSet(terminal, pipeline, of_set).diff(int(log), before)
        return
    if log is None or before is None or after is None:
        hint = "Give LOG A B; `tidefold history LOG` lists the snapshots."
        raise InvalidInputError("SNAPSHOT_MISSING", "A diff needs a log and two snapshots.", hint=hint)
    _diff(terminal, pipeline, pipeline.log(log).id, before, after, limit, keys)


def _diff(terminal: Terminal, pipeline: Pipeline, log: str, before: int, after: int, limit: int, keys: bool) -> None:
    from tidefold.domain.wording import in_units
    from tidefold.operations.inspect.diff import diff as act
    from tidefold.presentation.tables import plain_table

    found = act(pipeline, log, before, after, limit)
    more = found.total > len(found.rows)
    rows = [{"change": row.change, "key": row.key} if keys else asdict(row) for row in found.rows]
    read = {"files": found.files, "files_read": found.files_read, "bytes_read": found.bytes_read}
    left = {"left_out": list(found.left_out)} if found.left_out else {}
    data = {"log": log, "before": before, "after": after, **found.counts, **read, "rows": rows, "more": more, **left}
    counted = ", ".join(f"{count:,} {kind}" for kind, count in found.counts.items())
    said = f"{log}: {counted} from snapshot {before} to {after}"
    of = f"{found.files_read:,} of {found.files:,} files read, {in_units(found.bytes_read)}"
    table = [plain_table(("", "key") if keys else ("", "key", "row"), [_cells(r, keys) for r in found.rows])]
    terminal.result(data, f"{said}; {of}", *(table if found.rows else []))
    if found.left_out:
        terminal.note(f"not compared, since only one of the two has them: {', '.join(found.left_out)}")
    if more and found.rows:
        terminal.note(f"the first {len(found.rows)} rows; --limit shows more")


def _cells(row: Difference, keys: bool) -> tuple[str, ...]:
    cells = (row.change, list_values(row.key))
    return cells if keys else (*cells, _row(row))


def _row(row: Difference) -> str:
    """The values beside the key: of a changed row only those that changed, before and after."""
    if row.before and row.after:
        changed = {name: f"{row.before[name]} -> {value}" for name, value in row.after.items()}
        return list_values({n: said for n, said in changed.items() if row.before[n] != row.after[n]})
    return list_values({name: value for name, value in (row.after or row.before or {}).items() if name not in row.key})
