"""`tidefold status` and `tidefold explain`: what a pipeline has, why a row is as it is, what an error means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidefold.cli.terminal import Live, Logs, SnapshotId, Terminal, choose_logs, complete_log
from tidefold.domain.source_progress import name_partition
from tidefold.domain.wording import list_values
from tidefold.errors import InvalidInputError, NotFoundError
from tidefold.presentation.tables import format_place, key_text

_INSTANT = len("2026-11-02T00:00:07.000000Z")
_NO_CODE = "A source of your own has codes of its own. For a row give its key, too: `tidefold explain LOG id=7`."

if TYPE_CHECKING:
    from tidefold.operations.inspect.explain_key import Kept, KeyExplained, Origin

LogOrCode = Annotated[str, typer.Argument(help="A log or a code.", metavar="LOG|CODE", autocompletion=complete_log)]
KeyWords = Annotated[list[str] | None, typer.Argument(help="As JSON, '{\"id\": 7}', or as id=7.", metavar="KEY")]


def status(terminal: Terminal, logs: Logs = None) -> int:
    """Show the state of each log.

    Shows the published snapshot, the open attempt, changes that are not folded yet, source positions, refused records,
    and why the newest snapshot was not published. It also shows the newest tail, holds, consumers, segments to delete,
    local copies, the newest proof of the files (scrub, verify) and the newest restore drill. A proof or drill older
    than 35 days is marked OLD. ALARM marks each value over a threshold of `alarms` in the configuration. A set shows
    its point, its lag, its slowest log, and why it waits. Starts no Spark.

    Example: tidefold status accounts --format json

    Next: tidefold snapshot history LOG, tidefold snapshot report LOG
    """
    from tidefold.cli.output.outcomes import exit_code
    from tidefold.operations.ground.pipeline import now
    from tidefold.operations.inspect.status import status as read_status
    from tidefold.operations.local_copies.inventory import local_use
    from tidefold.operations.sets.status import read_sets, set_lines
    from tidefold.presentation.remarks import alarm_lines, remarks
    from tidefold.presentation.tables import describe_status, local_lines, position_table, proof_lines, status_table

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
    alarms = alarm_lines(statuses)
    terminal.result(data, *parts, *of_sets, *remarks(statuses), *lines, *local_lines(use), *alarms)
    failed = (one.error.exit_code for one in sets if one.error)
    return exit_code(s.error for s in statuses if s.error) or next(failed, 0)


def explain(
    terminal: Terminal, log: LogOrCode, key: KeyWords = None, snapshot: SnapshotId = None, live: Live = False
) -> None:
    """Explain the row of a key (LOG KEY), or an error (CODE).

    Shows the published row (or the row of a snapshot, or the live row) and the change that made or deleted it: order,
    source position, segment, landed file and line, snapshot and run. Then shows every other change of the key that the
    log still has, oldest first, with its outcome, file and line. Last come the ranges where the log is incomplete, the
    refused records of the key, and the retained snapshots that have the row. Reads the files of the key's bucket, and
    the landed files of its changes. Starts no Spark. Exit code 4 if the key is unknown.

    For the code of an error, of a landed file or of a refused record, says what it means and what to do. Then it reads
    no configuration and no store.

    Example: tidefold explain accounts id=7 --live

    Example: tidefold explain LANDED_CHANGED

    Next: tidefold snapshot diff LOG A B, tidefold read LOG --changes
    """
    from tidefold.operations.inspect.explain_key import explain_key

    if not key:
        _explain_code(terminal, log)
        return
    if live and snapshot is not None:
        message = "--live and --snapshot exclude each other."
        raise InvalidInputError("READ_OPTIONS", message, hint="Give one of them.")
    pipeline = terminal.pipeline()
    answer = explain_key(pipeline, log, key_text(key, pipeline.log(log).shape), snapshot, live)
    data = {**asdict(answer), "kept": [{**asdict(one), "present": one.present} for one in answer.kept]}
    terminal.result(data, *_describe(answer))


def _explain_code(terminal: Terminal, code: str) -> None:
    import tomllib
    from difflib import get_close_matches

    from tidefold.installation import error_table

    wanted = code.strip("[]").upper()
    families = tomllib.loads(error_table().read_text())
    texts = {name: (family, *text) for family, codes in families.items() for name, text in codes.items()}
    if wanted not in texts:
        near = get_close_matches(wanted, texts, 3, 0.8)
        hint = f"Did you mean {', '.join(near)}?" if near else _NO_CODE
        raise NotFoundError("ERROR_CODE_UNKNOWN", f"`{code}` is no error code of tidefold.", hint=hint)
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
        # An instant stays in one line; positions of a source can be long.
        order = "order=" if max(len(one.at) for one in others) <= _INSTANT else "order"
        columns = ("change set>", "op", order, "offset>", "committed=", "outcome", "landed as")
        parts += ["", "other changes of this key, oldest first:", plain_table(columns, map(_other, others))]
    parts += [""] if answer.unknown else []
    parts += [_unknown(first, last, answer.lost_from) for first, last in answer.unknown]
    if answer.refused:
        refused = [(format_place(one.file, one.line), one.reason, one.detail) for one in answer.refused]
        parts += ["", "refused records of this key, in quarantine:", plain_table(("where", "reason", "why"), refused)]
    if answer.kept:
        rows = [_describe_copies([*same]) for _, same in groupby(answer.kept, lambda one: (one.state, _row_of(one)))]
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
    offset = f"{name_partition(one.partition)}:{one.offset}"
    committed = (one.committed or "-")[:19].replace("T", " ")
    landed = f"{one.landed}, {one.record}" if one.landed and one.record else one.landed or "-"
    return (sqn, one.op, one.at, offset, committed, one.why, landed)


def _unknown(first: int, last: int, lost_from: int) -> str:
    if first == lost_from:
        return f"not known any more: the change sets {first} to {last} were lost when the ledger was rebuilt."
    if first == 1:
        return f"not known any more: `tidefold retain truncate` deleted the change sets up to {last}."
    return (
        f"not known any more: `tidefold retain compact` merged the change sets {first} to {last}; only the last change "
        "of each key is left."
    )


def _describe_copies(same: Sequence[Kept]) -> tuple[str, ...]:
    """Describes snapshots in a row with the same row of the key."""
    first, last = same[0], same[-1]
    ids, ends = (
        str(one) if one == other else f"{one}-{other}"
        for one, other in ((first.snapshot, last.snapshot), (first.to_sqn, last.to_sqn))
    )
    return (ids, ", ".join(sorted({str(one.kind) for one in same})), str(first.state), ends, _row_of(first))


def _row_of(one: Kept) -> str:
    return one.error or (f"there, row {one.row_hash}" if one.present else "not there")
