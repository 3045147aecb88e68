"""The commands that show what a pipeline has, and what an error means, without Spark."""

from __future__ import annotations

from dataclasses import asdict
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidefold.cli.terminal import Log, Logs, SnapshotId, Terminal, choose_logs, format_cell, list_values
from tidefold.errors import InvalidInputError, NotFoundError
from tidefold.presentation.tables import format_place, key_text

if TYPE_CHECKING:
    from tidefold.operations.inspect.explain_key import Kept, KeyExplained, Origin
    from tidefold.read.task import Difference


def status(terminal: Terminal, logs: Logs = None) -> int:
    """Show the state of each log.

    Shows the published snapshot, the open attempt, changes that are not folded yet, source positions, refused records,
    and why the newest snapshot was not published. It also shows the newest tail, holds, consumers, segments to delete,
    local copies, the newest proof of the files (scrub, verify) and the newest restore drill. A proof or drill older
    than 35 days is marked OLD. ALARM marks each value over a threshold of `alarms` in the configuration. A set shows
    its point, its lag, its slowest log, and why it waits. Starts no Spark.

    Example: tidefold status accounts --format json

    Next: tidefold history LOG, tidefold report LOG
    """
    from tidefold.cli.output.outcomes import exit_code
    from tidefold.operations.ground.pipeline import now
    from tidefold.operations.inspect.status import status as read_status
    from tidefold.operations.local_copies.inventory import local_use
    from tidefold.operations.sets.status import read_sets, set_lines
    from tidefold.presentation.remarks import alarm_lines, remarks
    from tidefold.presentation.tables import (
        describe_status,
        local_lines,
        position_table,
        proof_lines,
        status_table,
    )

    pipeline = terminal.pipeline()
    statuses = read_status(pipeline, choose_logs(pipeline, logs), proofs=True)
    parts = [
        status_table(statuses),
        "",
        *([position_table(statuses), ""] if any(p.next_offset for s in statuses for p in s.positions) else []),
    ]
    use = local_use(pipeline)
    sets = read_sets(pipeline, statuses)
    data = {
        "logs": [describe_status(s) for s in statuses],
        "sets": [asdict(one) for one in sets],
        "local": asdict(use) if use else None,
    }
    lines = [line for s in statuses for line in proof_lines(s, now())]
    of_sets = [line for one in sets for line in set_lines(one)]
    terminal.result(data, *parts, *alarm_lines(statuses), *of_sets, *remarks(statuses), *lines, *local_lines(use))
    failed = (one.error.exit_code for one in sets if one.error)
    return exit_code(s.error for s in statuses if s.error) or next(failed, 0)


Name = Annotated[str | None, typer.Argument(help="The set; all without it.", show_default=False, metavar="NAME")]
Sql = Annotated[bool, typer.Option("--sql", help="Print Spark SQL that makes a view of each table at its version.")]
Ended = Annotated[
    int | None,
    typer.Option(
        "--snapshot-ended",
        help="A position that the source had reached after the end of the snapshot by signal that holds the set.",
        metavar="POSITION",
        show_default=False,
    ),
]
Who = Annotated[str, typer.Option("--by", help="With --snapshot-ended: who says it.", show_default=False)]
How = Annotated[str, typer.Option("--reason", help="With --snapshot-ended: how it is known.", show_default=False)]


def sets(
    terminal: Terminal,
    name: Name = None,
    sql: Sql = False,
    ended: Ended = None,
    by: Who = "",
    reason: How = "",
) -> None:
    """Show which table versions of a set belong together, at which point, and which log holds it back.

    Open each table at the version shown: all tables then have exactly the transactions up to one point of the source's
    log. --sql prints statements that make views of one set; execute them again after each publication.
    --snapshot-ended releases a set that a snapshot by signal holds: it is published again at the first point from that
    position on. Starts no Spark.

    Example: tidefold sets bank

    Next: tidefold read accounts --set bank
    """
    from tidefold.operations.sets.read import describe_set, find_set, write_views
    from tidefold.operations.sets.status import release_set

    pipeline = terminal.pipeline()
    if (sql or ended is not None) and name is None:
        message = "--sql and --snapshot-ended need the name of a set."
        raise InvalidInputError("SET_OPTIONS", message, hint="Give NAME with it.")
    if sql and name:
        statements = write_views(pipeline, name)
        terminal.result({"set": name, "statements": statements}, *(f"{one};" for one in statements))
        return
    chosen = [find_set(pipeline, name)] if name else list(pipeline.config.sets.values())
    if ended is not None:
        release_set(pipeline, chosen[0], ended, by, reason)
    descriptions = [describe_set(pipeline, one) for one in chosen]
    lines = [line for one in descriptions for line in one.lines]
    terminal.result({"sets": [one.data for one in descriptions]}, *(lines or ["No set is configured."]))


def history(terminal: Terminal, log: Log) -> None:
    """List every snapshot of a log, newest first.

    Shows state, kind, epoch, base, folded change sets, rows, full size, written size, verdict and run. For a restored
    snapshot it also shows the source and the changes that were left out, for an aborted one the reason. Reads only the
    ledger. Starts no Spark.

    Example: tidefold history accounts

    Next: tidefold report LOG --snapshot ID
    """
    import msgspec

    from tidefold.domain.table.schema_evolution import describe_schemas
    from tidefold.operations.inspect.status import find_restorers
    from tidefold.operations.local_copies.inventory import local_use
    from tidefold.operations.local_copies.manage import snapshots_here
    from tidefold.presentation.tables import history_table, local_lines, reasons

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
    use = local_use(pipeline)
    terminal.result(
        {"log": log, "snapshots": data, "schemas": schemas, "local": asdict(use) if use else None},
        *shown,
        *local_lines(use),
    )


def report(terminal: Terminal, log: Log, snapshot: SnapshotId = None) -> None:
    """Print the address of the newest quality report of a log, and the checks that did not pass.

    The report is one self-contained HTML page. Its address alone goes to stdout. The checks, with samples of bad rows,
    go to stderr. --snapshot selects the report of one snapshot.

    Example: xdg-open "$(tidefold report accounts)"

    Next: tidefold confirm LOG, or tidefold abort LOG
    """
    from tidefold.operations.inspect.status import list_unmet_checks, newest_report

    pipeline = terminal.pipeline()
    newest, address = newest_report(pipeline, pipeline.log(log).id, snapshot)
    passed, unmet = bool(newest.verdict and newest.verdict.passed), list_unmet_checks(pipeline, log, newest)
    checks = [asdict(check) for check in unmet]
    terminal.result({"log": log, "snapshot": newest.id, "passed": passed, "report": address, "checks": checks}, address)
    for check in unmet:
        # Without a key there are values alone.
        rows = [": ".join(filter(None, row)) for row in zip_longest(check.keys, check.sample)]
        such = f", such as {'; '.join(rows)}" if rows else ""
        terminal.note(f"{check.severity}: {check.name}: {check.detail or check.observed or ''}{such}")


KeyWords = Annotated[
    list[str],
    typer.Argument(help="The key as JSON, '{\"id\": 7}', or as pairs, id=7.", metavar="KEY", show_default=False),
]
Live = Annotated[bool, typer.Option("--live", help="Include changes that are ingested but not folded.")]


def explain(terminal: Terminal, log: Log, key: KeyWords, snapshot: SnapshotId = None, live: Live = False) -> None:
    """Show which change made the row of a key, which changes lost, and why.

    Shows the published row (or the row of a snapshot, or the live row) and the change that made or deleted it: order,
    source position, segment, landed file and line, snapshot and run. Then shows every other change of the key that the
    log still has, oldest first, with its outcome, file and line. Last come the ranges where the log is incomplete, the
    refused records of the key, and the retained snapshots that have the row. Reads the files of the key's bucket, and
    the landed files of its changes. Starts no Spark. Exit code 4 if the key is unknown.

    Example: tidefold explain accounts id=7 --live

    Next: tidefold diff LOG A B, tidefold read LOG --changes
    """
    from tidefold.operations.inspect.explain_key import explain_key

    if live and snapshot is not None:
        message = "--live and --snapshot exclude each other."
        raise InvalidInputError("READ_OPTIONS", message, hint="Give one of them.")
    pipeline = terminal.pipeline()
    answer = explain_key(pipeline, log, key_text(key, pipeline.log(log).shape), snapshot, live)
    data = {**asdict(answer), "kept": [{**asdict(one), "present": one.present} for one in answer.kept]}
    terminal.result(data, *_describe(answer))


def explain_error(
    terminal: Terminal, code: Annotated[str, typer.Argument(help="An error code, or the reason of a refused record.")]
) -> None:
    """Say what an error code means, and what to do.

    Knows the codes of all errors, of landed files and of refused records. Reads no configuration and no store.

    Example: tidefold explain-error LANDED_CHANGED

    Next: the step that it names
    """
    import tomllib
    from difflib import get_close_matches

    from tidefold.installation import error_table

    wanted = code.strip("[]").upper()
    families = tomllib.loads(error_table().read_text())
    texts = {name: (family, *text) for family, codes in families.items() for name, text in codes.items()}
    if wanted not in texts:
        near = get_close_matches(wanted, texts, 3)
        hint = f"Did you mean {', '.join(near)}?" if near else "The message of an error has its code in brackets."
        raise NotFoundError("ERROR_CODE_UNKNOWN", f"`{code}` is no error code of this version.", hint=hint)
    family, meaning, step = texts[wanted]
    data = {"code": wanted, "family": family, "meaning": meaning, "next": step}
    terminal.result(data, f"{wanted} ({family}): {meaning}", f"next: {step}")


def _describe(answer: KeyExplained) -> list[Any]:
    from tidefold.presentation.tables import plain_table

    where = f"snapshot {answer.snapshot}" if answer.snapshot is not None else "no snapshot"
    shown = {"published": f"published, {where}", "snapshot": where, "live": f"live, on {where}"}[answer.view]
    row = "not there" if answer.row is None else _list_row(answer)
    parts: list[Any] = [f"{answer.log} {list_values(answer.key)} ({shown}, up to change set {answer.to_sqn}): {row}"]
    parts += [answer.remark] if answer.remark else []
    parts += _describe_maker(answer.made_by) if answer.made_by else []
    if others := [one for one in answer.changes if one != answer.made_by]:
        columns = ("sqn>", "op", "order", "offset>", "committed", "outcome", "landed as")
        parts += ["", "other changes of this key, oldest first:", plain_table(columns, map(_other, others))]
    parts += [""] if answer.unknown else []
    parts += [_unknown(first, last, answer.lost_from) for first, last in answer.unknown]
    if answer.refused:
        refused = [(format_place(one.file, one.line), one.reason, one.detail) for one in answer.refused]
        parts += ["", "refused records of this key, in quarantine:", plain_table(("where", "reason", "why"), refused)]
    if answer.kept:
        rows = [_describe_copy(one) for one in answer.kept]
        parts += ["", "in kept snapshots:", plain_table(("id>", "kind", "state", "up to>", "row"), rows)]
    return parts


def _list_row(answer: KeyExplained) -> str:
    """Returns the row without its key and without system columns."""
    row = answer.row or {}
    return list_values({name: row[name] for name in row if name not in answer.key and not name.startswith("_")})


def _describe_maker(one: Origin) -> list[str]:
    verb = "deleted by" if one.op == "delete" else "made by"
    committed = f", committed {one.committed}" if one.committed else ""
    lines = [f"{verb} {one.op}{f' of order {one.at}' if one.at else ''}, {one.source}{committed}"]
    lines.append(f"  change set {one.sqn}, {one.segment} #{one.ordinal}")
    if one.landed:
        by = f", ingested {one.taken} by run {one.ingest_run}" if one.ingest_run else ""
        place = f", {one.record}" if one.record else ""
        lines.append(f"  landed as {one.landed}{place}{by}")
    return [*lines, f"  {one.why}"]


def _other(one: Origin) -> tuple[str, ...]:
    sqn = str(one.sqn) if one.first == one.sqn else f"{one.first}-{one.sqn}"
    offset = f"{one.partition}:{one.offset}"
    committed = (one.committed or "-")[:19].replace("T", " ")
    landed = f"{one.landed}, {one.record}" if one.landed and one.record else one.landed or "-"
    return (sqn, one.op, one.at, offset, committed, one.why, landed)


def _unknown(first: int, last: int, lost_from: int) -> str:
    if first == lost_from:
        return f"not known any more: the change sets {first} to {last} were lost when the ledger was rebuilt."
    if first == 1:
        return f"not known any more: `tidefold truncate` deleted the change sets up to {last}."
    return (
        f"not known any more: `tidefold compact-log` merged the change sets {first} to {last}; only the last change of "
        "each key is left."
    )


def _describe_copy(one: Kept) -> tuple[str, ...]:
    row = one.error or (f"there, row {one.row_hash}" if one.present else "not there")
    return (str(one.snapshot), str(one.kind), str(one.state), str(one.to_sqn), row)


Before = Annotated[int, typer.Argument(help="Id of the earlier snapshot.", metavar="A", min=1)]
After = Annotated[int, typer.Argument(help="Id of the later snapshot.", metavar="B", min=1)]
MaxDifferences = Annotated[int, typer.Option("--limit", help="Maximum number of rows to show.", min=0)]
Keys = Annotated[bool, typer.Option("--keys", help="Show only the keys.")]


def diff(
    terminal: Terminal, log: Log, before: Before, after: After, limit: MaxDifferences = 20, keys: Keys = False
) -> None:
    """Count the rows added, changed and removed between two snapshots, and show some of them.

    Compares all rows by key. Either snapshot may be tail-only or staged. Files that both snapshots share are not read.
    The counts are exact, whatever --limit is. Starts no Spark.

    Example: tidefold diff accounts 11 12 --limit 5

    Next: tidefold restore LOG ID --log-position replay, if the later snapshot is wrong
    """
    from tidefold.domain.wording import in_units
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
    of = f"{diff.files_read:,} of {diff.files:,} files read, {in_units(diff.bytes_read)}"
    table = [plain_table(("", "key") if keys else ("", "key", "row"), [_cells(r, keys) for r in diff.rows])]
    terminal.result(data, f"{summary}; {of}", *(table if diff.rows else []))
    if diff.left_out:
        terminal.note(f"not compared, since only one of the two has them: {', '.join(diff.left_out)}")
    if more and diff.rows:
        terminal.note(f"the first {len(diff.rows)} rows; --limit shows more")


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
