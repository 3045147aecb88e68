"""`tidefold explain`: shows why the row of a key is as it is."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidefold.cli.options import Log, SnapshotId
from tidefold.cli.terminal import Terminal, list_values
from tidefold.errors import InvalidInputError
from tidefold.presentation.text import format_place, key_text

if TYPE_CHECKING:
    from tidefold.operations.inspect.explain_key import Kept, KeyExplained, Origin

Key = Annotated[
    list[str],
    typer.Argument(help="The key as JSON, '{\"id\": 7}', or as pairs, id=7.", metavar="KEY", show_default=False),
]
Live = Annotated[bool, typer.Option("--live", help="Include changes that are ingested but not folded.")]


def explain(terminal: Terminal, log: Log, key: Key, snapshot: SnapshotId = None, live: Live = False) -> None:
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
    found = explain_key(pipeline, log, key_text(key, pipeline.log(log).shape), snapshot, live)
    data = {**asdict(found), "kept": [{**asdict(one), "present": one.present} for one in found.kept]}
    terminal.result(data, *_describe(found))


def _describe(found: KeyExplained) -> list[Any]:
    from tidefold.presentation.tables import plain_table

    where = f"snapshot {found.snapshot}" if found.snapshot is not None else "no snapshot"
    shown = {"published": f"published, {where}", "snapshot": where, "live": f"live, on {where}"}[found.view]
    row = "not there" if found.row is None else _list_row(found)
    parts: list[Any] = [f"{found.log} {list_values(found.key)} ({shown}, up to change set {found.to_sqn}): {row}"]
    parts += [found.remark] if found.remark else []
    parts += _describe_maker(found.made_by) if found.made_by else []
    if others := [one for one in found.changes if one != found.made_by]:
        columns = ("sqn>", "op", "order", "offset>", "committed", "outcome", "landed as")
        parts += ["", "other changes of this key, oldest first:", plain_table(columns, map(_other, others))]
    parts += [""] if found.unknown else []
    parts += [_unknown(first, last, found.lost_from) for first, last in found.unknown]
    if found.refused:
        refused = [(format_place(one.file, one.line), one.reason, one.detail) for one in found.refused]
        parts += ["", "refused records of this key, in quarantine:", plain_table(("where", "reason", "why"), refused)]
    if found.kept:
        rows = [_describe_copy(one) for one in found.kept]
        parts += ["", "in kept snapshots:", plain_table(("id>", "kind", "state", "up to>", "row"), rows)]
    return parts


def _list_row(found: KeyExplained) -> str:
    """Returns the row without its key and without system columns."""
    row = found.row or {}
    return list_values({name: row[name] for name in row if name not in found.key and not name.startswith("_")})


def _describe_maker(one: Origin) -> list[str]:
    verb = "deleted by" if one.op == "delete" else "made by"
    source = f", {one.topic or 'partition'} {one.partition} offset {one.offset}" if not one.is_placed_by_content else ""
    committed = f", committed {one.committed}" if one.committed else ""
    lines = [f"{verb} {one.op}{f' of order {one.at}' if one.at else ''}{source}{committed}"]
    lines.append(f"  change set {one.sqn}, {one.segment} #{one.ordinal}")
    if one.landed:
        by = f", ingested {one.taken} by run {one.ingest_run}" if one.ingest_run else ""
        place = f", {one.record}" if one.record else ""
        lines.append(f"  landed as {one.landed}{place}{by}")
    return [*lines, f"  {one.why}"]


def _other(one: Origin) -> tuple[str, ...]:
    sqn = str(one.sqn) if one.first == one.sqn else f"{one.first}-{one.sqn}"
    offset = "-" if one.is_placed_by_content else f"{one.partition}:{one.offset}"
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
