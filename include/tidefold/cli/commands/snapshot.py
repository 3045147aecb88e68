"""List, compare, tag and hold snapshots; read quality reports.

history lists them, diff compares two, report shows why one failed. tail and as-of make snapshots that are never
published. tag and hold keep a snapshot from retention, until untag and release.

Example: tidefold snapshot history accounts
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated

import typer

from tidefold.cli.output.outcomes import act_on_log, act_on_logs, print_outcomes
from tidefold.cli.terminal import (
    AtInstant,
    DryRun,
    Log,
    Logs,
    RunId,
    SnapshotId,
    Takeover,
    Terminal,
    choose_logs,
    run_id,
)
from tidefold.domain.wording import count_noun, format_cell, in_units, list_values
from tidefold.operations.ground.outcome import for_each_log

if TYPE_CHECKING:
    from tidefold.operations.ground.pipeline import Pipeline
    from tidefold.read.task import Difference

Before = Annotated[int, typer.Argument(help="Id of the earlier snapshot.", metavar="A", min=1)]
After = Annotated[int, typer.Argument(help="Id of the later snapshot.", metavar="B", min=1)]
MaxDifferences = Annotated[int, typer.Option("--limit", help="Maximum number of rows to show.", min=0)]
Keys = Annotated[bool, typer.Option("--keys", help="Show only the keys.")]
KeptSnapshot = Annotated[int, typer.Argument(help="Id of the snapshot.", metavar="SNAPSHOT", min=1)]
TagName = Annotated[str, typer.Argument(help="Name of the tag.", metavar="TAG")]
HoldName = Annotated[str, typer.Argument(help="Name of the hold.", metavar="NAME")]
OverTime = Annotated[bool, typer.Option("--over-time", help="Print each check's bad rows in each judged snapshot.")]
Reason = Annotated[str, typer.Option("--reason", help="The reason. status and truncate show it.")]


def history(terminal: Terminal, log: Log) -> None:
    """List every snapshot of a log, newest first.

    Shows state, kind, epoch, base, folded change sets, rows, full size, written size, verdict and run. For a restored
    snapshot it also shows the source and the changes that were left out, for an aborted one the reason. Last come the
    records that a topic no longer had (--accept-gap). Reads no data file. Starts no Spark.

    Example: tidefold snapshot history accounts

    Next: tidefold snapshot report LOG --snapshot ID
    """
    import msgspec

    from tidefold.domain.paths import LogPaths
    from tidefold.domain.table.schema_evolution import describe_schemas
    from tidefold.operations.inspect.status import find_restorers
    from tidefold.operations.local_copies.inventory import local_use
    from tidefold.operations.local_copies.manage import snapshots_here
    from tidefold.presentation.tables import history_table, local_lines, reasons
    from tidefold.sources.kafka.accepted_gaps import list_accepted_gaps

    pipeline = terminal.pipeline()
    state = pipeline.ledger(pipeline.log(log).id).read()
    snapshots = state.snapshots[::-1]
    tags: dict[int, list[str]] = {}
    for tag in state.tags:
        tags.setdefault(tag.snapshot, []).append(tag.name)
    restored, local, schemas = find_restorers(snapshots), snapshots_here(pipeline, state), describe_schemas(state)[::-1]
    lines = [*reasons(snapshots, tags, restored, local), *schemas]
    shown = [history_table(snapshots), "", *lines] if snapshots else [f"{log} has no snapshot yet."]
    data = [
        {**msgspec.to_builtins(s), "tags": tags.get(s.id, []), "restored": restored.get(s.id), "local": s.id in local}
        for s in snapshots
    ]
    use, gaps = local_use(pipeline), list_accepted_gaps(pipeline.store, LogPaths(log))
    more = {"schemas": schemas, "gaps": msgspec.to_builtins(gaps), "local": asdict(use) if use else None}
    terminal.result(
        {"log": log, "snapshots": data, **more},
        *shown,
        *map(str, gaps),
        *local_lines(use),
    )


def report(terminal: Terminal, log: Log, snapshot: SnapshotId = None, over_time: OverTime = False) -> None:
    """Print the address of the newest quality report of a log, and the checks that did not pass.

    The report is one self-contained HTML page. Its address alone goes to stdout. The checks, with samples of bad rows,
    go to stderr. --snapshot selects the report of one snapshot. Copy one in S3 to this machine first: aws s3 cp
    "$(tidefold snapshot report accounts)" report.html

    --over-time prints instead how many bad rows each check had in each of the newest 50 judged snapshots (with
    --snapshot, up to that one). For a check with bad rows it prints the first snapshot that had some, and the landed
    file and line of one of them.

    Example: xdg-open "$(tidefold snapshot report accounts)"

    Next: tidefold step confirm LOG, or tidefold step abort LOG
    """
    from tidefold.operations.inspect.status import list_unmet_checks, newest_report

    pipeline = terminal.pipeline()
    if over_time:
        return _report_over_time(terminal, pipeline, pipeline.log(log).id, snapshot)
    newest, address = newest_report(pipeline, pipeline.log(log).id, snapshot)
    passed, unmet = bool(newest.verdict and newest.verdict.passed), list_unmet_checks(pipeline, log, newest)
    checks = [asdict(check) for check in unmet]
    terminal.result({"log": log, "snapshot": newest.id, "passed": passed, "report": address, "checks": checks}, address)
    for check in unmet:
        # Without a key there are values alone.
        rows = [": ".join(filter(None, row)) for row in zip_longest(check.keys, check.sample)]
        such = f", such as {'; '.join(rows)}" if rows else ""
        terminal.note(f"{check.severity}: {check.name}: {check.detail or check.observed or ''}{such}")


def _report_over_time(terminal: Terminal, pipeline: Pipeline, log: str, snapshot: int | None) -> None:
    from tidefold.operations.ground.read import require_state
    from tidefold.operations.inspect.check_history import compare_over_time
    from tidefold.presentation.tables import check_lines

    history = compare_over_time(pipeline, require_state(pipeline, log), snapshot)
    terminal.result(asdict(history), *check_lines(history))
    if history.older:
        terminal.note(f"not compared: {count_noun(history.older, 'older judged snapshot')}")


def diff(
    terminal: Terminal, log: Log, before: Before, after: After, limit: MaxDifferences = 20, keys: Keys = False
) -> None:
    """Count the rows added, changed and removed between two snapshots, and show some of them.

    Compares all rows by key. Either snapshot may be tail-only or staged. Files that both snapshots share are not read.
    The counts are exact, whatever --limit is. Starts no Spark.

    Example: tidefold snapshot diff accounts 11 12 --limit 5

    Next: tidefold restore LOG ID --log-position skip, if the landed changes were wrong; replay, if their fold was
    """
    from tidefold.operations.inspect.diff import diff as act
    from tidefold.presentation.tables import plain_table

    pipeline = terminal.pipeline()
    diff = act(pipeline, pipeline.log(log).id, before, after, limit)
    more = diff.total > len(diff.rows)
    rows = [{"change": row.change, "key": row.key} if keys else asdict(row) for row in diff.rows]
    read = {"files": diff.files, "files_read": diff.files_read, "bytes_read": diff.bytes_read}
    left = {"left_out": list(diff.left_out)} if diff.left_out else {}
    data = {"log": log, "before": before, "after": after, **diff.counts, **read, "rows": rows, "more": more, **left}
    counted = ", ".join(f"{count:,} {kind}" for kind, count in diff.counts.items())
    summary = f"{log}: {counted} from snapshot {before} to {after}"
    of = f"{diff.files_read:,} of {count_noun(diff.files, 'file')} read, {in_units(diff.bytes_read)}"
    table = [plain_table(("", "key") if keys else ("", "key", "row"), [_cells(r, keys) for r in diff.rows])]
    terminal.result(data, f"{summary}; {of}", *(table if diff.rows else []))
    if diff.left_out:
        terminal.note(f"not compared, since only one of the two has them: {', '.join(diff.left_out)}")
    if more and diff.rows:
        terminal.note_cut(len(diff.rows), "row")


def _cells(row: Difference, keys: bool) -> tuple[str, ...]:
    cells = (row.change, list_values(row.key))
    return cells if keys else (*cells, _row(row))


def _row(row: Difference) -> str:
    """The values beside the key: of a changed row only those that changed, before and after."""
    if row.before and row.after:
        changed = {name: value for name, value in row.after.items() if row.before[name] != value}
        return ", ".join(
            f"{name}={format_cell(row.before[name])} -> {format_cell(value)}" for name, value in changed.items()
        )
    return list_values({name: value for name, value in (row.after or row.before or {}).items() if name not in row.key})


def as_of(
    terminal: Terminal,
    at: AtInstant,
    logs: Logs = None,
    run: RunId = None,
    takeover: Takeover = False,
    dry_run: DryRun = False,
) -> int:
    """Make a full snapshot of everything that the source had committed before an instant.

    Only the commit time at the source counts, not the time of arrival. The quality gate judges the snapshot. A tag
    (as-of-2026-11-05) keeps it until you run untag and subsume. tidefold never publishes it and never builds another
    snapshot on it, so the table, the log and scheduled runs are not affected. If a snapshot of that instant exists, the
    command does nothing. If the log was truncated after the instant, the command is refused and names the oldest
    possible instant. --dry-run only prints the base snapshot and the number of changes to fold.

    Example: tidefold snapshot as-of accounts --at 2026-11-05T00:00:00Z

    Next: tidefold read LOG --snapshot ID, tidefold snapshot diff LOG, tidefold restore LOG ID --log-position skip
    """
    from tidefold.cli.full_run import open_run, print_run
    from tidefold.operations.snapshot.fold import PointInTime, explain_point_in_time, parse_instant

    request = PointInTime(run_id(run), parse_instant(at), takeover)
    pipeline = terminal.pipeline()
    chosen = choose_logs(pipeline, logs)
    if dry_run:
        return print_outcomes(terminal, for_each_log(chosen, lambda log: explain_point_in_time(pipeline, log, request)))
    with open_run(terminal, pipeline, request) as whole:
        whole.fold(chosen)
    return print_run(terminal, whole)


def tail(terminal: Terminal, logs: Logs = None, run: RunId = None) -> int:
    """Make a tail-only snapshot: the newest materialized snapshot and the change sets after it.

    The snapshot is complete at once and costs one small file, whatever the size of the table. It has the verdict of the
    snapshot below it. tidefold never publishes it, and retires it together with the snapshot below it, unless a tag or
    a hold keeps it. Without changes after the newest snapshot, the command does nothing. Starts no Spark.

    Example: tidefold snapshot tail accounts

    Next: tidefold read LOG --snapshot ID, which reads its rows, or tidefold restore LOG ID --log-position replay
    """
    from tidefold.operations.snapshot.compact_log import take_tail

    run = run_id(run)
    return print_outcomes(terminal, act_on_logs(terminal, logs, take_tail, run), after="tidefold snapshot history LOG")


def tag(terminal: Terminal, log: Log, snapshot: KeptSnapshot, name: TagName) -> int:
    """Give a completed snapshot a name, so that it is kept as long as the tag exists.

    Example: tidefold snapshot tag accounts 12 before-migration

    Next: tidefold snapshot untag LOG TAG, which removes the tag
    """
    from tidefold.operations.retention.references import tag as act

    return act_on_log(terminal, log, act, name, snapshot)


def untag(terminal: Terminal, log: Log, name: TagName) -> int:
    """Remove a tag. Retention may then delete the snapshot.

    Example: tidefold snapshot untag accounts before-migration

    Next: tidefold retain subsume LOG --dry-run
    """
    from tidefold.operations.retention.references import untag as act

    return act_on_log(terminal, log, act, name)


def hold(terminal: Terminal, log: Log, name: HoldName, snapshot: KeptSnapshot, reason: Reason) -> int:
    """Keep a completed snapshot and all change sets after it, until you call release.

    A tag keeps only the snapshot. With a hold, tidefold can also replay the log onto the snapshot. truncate names the
    holds. The command is refused for a retired snapshot, and if change sets after the snapshot were truncated. Starts
    no Spark.

    Example: tidefold snapshot hold accounts audit 12 --reason "audit until May"

    Next: tidefold snapshot release LOG NAME, which ends the hold
    """
    from tidefold.operations.retention.references import hold as act

    return act_on_log(terminal, log, act, name, snapshot, reason)


def release(terminal: Terminal, log: Log, name: HoldName) -> int:
    """End a hold. Retention may then delete the snapshot and the change sets after it.

    Example: tidefold snapshot release accounts audit

    Next: tidefold retain subsume LOG --dry-run, tidefold retain truncate LOG --dry-run
    """
    from tidefold.operations.retention.references import release as act

    return act_on_log(terminal, log, act, name)
