"""Results as tables for people: as wide as the terminal, no colour needed to read them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal

from tidefold.domain.ingest.append import differences
from tidefold.domain.snapshot.select_kind import NAMED_KIND
from tidefold.domain.source_progress import name_partition
from tidefold.domain.table.table_spec import TableSpec
from tidefold.domain.verify.proof_record import SourceProof, is_old
from tidefold.domain.wording import choose_record_noun, count_noun, format_minute, in_units
from tidefold.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.table import Table

    from tidefold.config import LogConfig
    from tidefold.domain.log_state import Drill, ReadFrom, Snapshot
    from tidefold.domain.verify.proof_record import ProofRecord, ReaderProof, SourceProof
    from tidefold.operations.inspect.check_history import ChecksOverTime
    from tidefold.operations.inspect.log_status import LogStatus
    from tidefold.operations.local_copies.inventory import LocalUse

# A longer value goes on below in its column.
_LONG = 32
# Values that would go on below in fewer characters cannot be read.
_TORN = 6
# More snapshots beside each other do not fit into a terminal.
_SNAPSHOTS = 10
_OLD = " OLD"


def mask_control_characters(text: str, keep: str = "\n\t") -> str:
    """Without control characters: names and reasons come from landed data, and terminals obey escape sequences."""
    return "".join(c if c.isprintable() or c in keep else "\N{REPLACEMENT CHARACTER}" for c in text)


def key_text(words: list[str], shape: TableSpec) -> str:
    """The key as a JSON object: given as one, as the value of the only key column, or as pairs.

    Values are read by the types of their columns.
    """
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return words[0]
    types = {column.name: column.type for column in shape.columns}
    hint = f"Give it as {' '.join(f'{name}=...' for name in shape.key)}, or as a JSON object."
    if len(words) == len(shape.key) == 1 and "=" not in words[0]:
        words = [f"{shape.key[0]}={words[0]}"]
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or name in values:
            raise InvalidInputError(
                "READ_KEY", f"`{word}` does not have the form `column=value`, or its column is given twice.", hint=hint
            )
        values[name] = _value(text, types.get(name, "string"))
    return json.dumps(values)


def _value(text: str, kind: str) -> str | int | bool:
    if kind == "boolean" and text in ("true", "false"):
        return text == "true"
    if kind in ("int", "long") and text.removeprefix("-").isascii() and text.removeprefix("-").isdigit():
        return int(text)
    return text


def format_place(file: str, number: int) -> str:
    """Returns the position of a record, such as `row 3 of orders.csv`."""
    return f"{choose_record_noun(file)} {number} of {file}"


def plain_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table without frame. Long values go on below.

    A column whose name ends in `>` is right-aligned, and its values, as those of one in `=`, stay in one line.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="bold")
    for column in columns:
        name, last = column.rstrip(">="), column[-1:]
        justify: Literal["left", "right"] = "right" if last == ">" else "left"
        table.add_column(name, justify=justify, no_wrap=bool(last) and last in ">=", overflow="fold")
    for row in rows:
        table.add_row(*(Text(mask_control_characters(cell, keep="")) for cell in row))
    return table


def fit_table(table: Table, width: int) -> Table | str:
    """The table; field by field if its columns were too narrow in a terminal of this width."""
    names = [str(column.header) for column in table.columns]
    rows = list(zip(*([str(cell) for cell in column.cells] for column in table.columns), strict=True))
    wraps = [not column.no_wrap for column in table.columns]
    words = (word for name, wrap in zip(names, wraps, strict=True) if wrap for word in name.split())
    least = max(_TORN, *map(len, words), 0)
    longest = [max(map(len, cells)) for cells in zip(names, *rows, strict=True)]
    needed = sum(min(size, least) if wrap else size for size, wrap in zip(longest, wraps, strict=True))
    return table if needed + 2 * (len(names) - 1) <= width else _list_fields(names, rows)


def check_lines(found: ChecksOverTime) -> list[Table | str]:
    """Returns a grid of checks by the newest snapshots, and for each check with bad rows where they began."""
    if not found.checks:
        return ["No snapshot of the log was judged yet."]
    columns = ("check", "severity", *(f"{snapshot}>" for snapshot in found.snapshots[-_SNAPSHOTS:]))
    cells = [[c.name, c.severity, *(n.text if n else "" for n in c.counts[-_SNAPSHOTS:])] for c in found.checks]
    bad = [(c.name, c.first_bad) for c in found.checks if c.first_bad]
    began = [(name, first.since, first.key or "", first.place) for name, first in bad]
    where = plain_table(("bad rows of", "since snapshot>", "such as", "landed in"), began)
    grid = plain_table(columns, cells)
    return [grid, "", where] if began else [grid]


def row_table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Table | str:
    """Rows as a table; field by field if there are too many columns for the width of the terminal."""
    widths = [max(map(len, (name, *(row[at][:_LONG] for row in rows)))) + 2 for at, name in enumerate(columns)]
    if sum(widths) <= width:
        return plain_table(columns, rows)
    return _list_fields(columns, rows)


def _list_fields(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    longest = max(map(len, columns))
    fields = [[f"{name:<{longest}}  {cell}" for name, cell in zip(columns, row, strict=True)] for row in rows]
    return "\n\n".join(map("\n".join, fields)) or ", ".join(columns)


def log_table(logs: Iterable[LogConfig]) -> Table:
    """What `validate` shows of each log."""
    rows = [_log_row(c) for c in logs]
    return plain_table(("log", "key", "columns>", "order", "fed from", "suite"), rows)


def _log_row(log: LogConfig) -> tuple[str, ...]:
    suite = log.suite.name if log.suite else "-"
    fed_from = f"topic {log.topic.topic}" if log.topic else log.address or "written by a program"
    return (log.id, ", ".join(log.shape.key), str(len(log.shape.columns)), log.shape.order, fed_from, suite)


def status_table(statuses: Sequence[LogStatus]) -> Table:
    """One line a log."""
    columns = ("log", "snapshot>", "rows>", "bytes>", "table>", "made", "open", "to fold>", "refused>")
    return plain_table(columns, [_status_row(s) for s in statuses])


def _status_row(status: LogStatus) -> tuple[str, ...]:
    if status.error:
        return (status.log, "?", "?", "?", "?", "unreadable", "?", "?", "?")
    if not status.begun:
        return (status.log, "-", "-", "-", "-", "-", "-", "-", "-")
    latest, attempt = status.latest, status.attempt
    done = ("-", "-", "-", "-", "-")
    if latest:
        version = "-" if latest.table_version is None else f"v{latest.table_version}"
        done = (
            str(latest.id),
            f"{latest.rows:,}",
            in_units(latest.bytes_full),
            version,
            format_minute(latest.started_at),
        )
    opened = f"{attempt.id} {attempt.state}" if attempt else "-"
    return (status.log, *done, opened, f"{status.changes:,}", f"{status.quarantined:,}")


def position_table(statuses: Sequence[LogStatus]) -> Table:
    """How far each partition has been taken."""
    behind = {(s.log, one.partition): f"{one.offsets:,}" for s in statuses for one in s.topic}
    # Files of any name have no offsets.
    rows = [
        (
            *(s.log, p.topic, name_partition(p.partition), f"{p.next_offset:,}"),
            behind.get((s.log, p.partition), "-"),
        )
        for s in statuses
        for p in s.positions
        if p.next_offset
    ]
    return plain_table(("log", "topic", "partition>", "next offset>", "behind>"), rows)


def local_lines(use: LocalUse | None) -> list[str]:
    """Lists the disk use of local copies, and their folders that do not answer."""
    if use is None:
        return []
    of = f" of {in_units(use.quota)}" if use.quota else ""
    where = count_noun(len(use.roots), "folder")
    lines = [f"local copies take {in_units(use.bytes)}{of} on this machine, in {where}."]
    return lines + [
        f"local copies in {root.path} cannot be looked at: {root.error}" for root in use.roots if root.error
    ]


def history_table(snapshots: Sequence[Snapshot]) -> Table:
    """One line a snapshot. `full`: bytes of all its files, `written`: of those that it did not carry over."""
    columns = (
        "id>",
        "state",
        "kind",
        "epoch>",
        "base>",
        "sets>",
        "rows>",
        "full>",
        "written>",
        "gate",
        "begun",
    )
    return plain_table(columns, [_history_row(s) for s in snapshots])


def _history_row(snapshot: Snapshot) -> tuple[str, ...]:
    judged = snapshot.verdict is not None or snapshot.manifest is not None
    sizes = (f"{snapshot.rows:,}", in_units(snapshot.bytes_full), in_units(snapshot.bytes_written))
    return (
        str(snapshot.id),
        str(snapshot.state),
        str(snapshot.kind),
        str(snapshot.epoch),
        "-" if snapshot.base is None else str(snapshot.base),
        f"{snapshot.from_sqn + 1}-{snapshot.folds_to}" if snapshot.folds_to > snapshot.from_sqn else "-",
        *(sizes if judged else ("-", "-", "-")),
        gate_word(snapshot),
        format_minute(snapshot.started_at),
    )


def reasons(
    snapshots: Sequence[Snapshot],
    tags: Mapping[int, Sequence[str]],
    restored: Mapping[int, int],
    local: Sequence[int] = (),
) -> list[str]:
    """One line for each snapshot: its run, what it restored, its tags, its local copy, and what stopped it."""
    as_of = {s.id: f", as of {s.as_of}: later changes are left out" for s in snapshots if s.as_of}
    texts = {
        s.id: [f"restored from snapshot {(of := restored[s.id])}{as_of.get(of, '')}"] if s.id in restored else []
        for s in snapshots
    }
    for snapshot in local:
        texts[snapshot].append("a copy is on this machine")
    return [f"{s.id}: run {'; '.join((s.run, *texts[s.id], *_reasons(s, tags.get(s.id, ()))))}" for s in snapshots]


def _reasons(snapshot: Snapshot, tags: Sequence[str]) -> Iterable[str]:
    verdict = snapshot.verdict
    yield from _describe_origin(snapshot)
    if tags:
        yield f"tagged {', '.join(tags)}"
    if verdict and not verdict.passed:
        yield f"gate failed: {verdict.summary}"
    if verdict and verdict.override_by:
        yield f"let through by {verdict.override_by}: {verdict.override_why}"
    if snapshot.kind_reason not in ("", NAMED_KIND):
        yield f"{snapshot.kind}, as {snapshot.kind_reason}"
    if snapshot.drill:
        yield describe_drill(snapshot.drill)
    if snapshot.bytes_read and snapshot.bytes_read.local + snapshot.bytes_read.external:
        yield _read(snapshot.bytes_read)
    if snapshot.abort_reason:
        yield f"aborted: {snapshot.abort_reason}" if snapshot.state == "ABORTED" else snapshot.abort_reason


def _describe_origin(snapshot: Snapshot) -> Iterable[str]:
    """What it has, where that is not all changes so far."""
    external = snapshot.external
    if external and external.reshape:
        told = differences(external.reshape.before, external.reshape.after, "before", "then")
        yield f"made by a plan: {'; '.join(told) or 'the same table definition'}"
    elif external:
        yield f"imported ({external.ownership}) from {external.address}, snapshot {external.snapshot} there"
    if snapshot.as_of:
        yield f"as of {snapshot.as_of}, beside the others"
    if snapshot.skipped_from is not None:
        yield f"left out change sets {snapshot.skipped_from + 1} to {snapshot.to_sqn}"


def _read(read: ReadFrom) -> str:
    """From where its inputs came, if not all from the store."""
    places = {"local copies": read.local, "the store": read.store, "outside of both": read.external}
    return f"read {', '.join(f'{in_units(size)} from {place}' for place, size in places.items() if size)}"


def describe_drill(drill: Drill) -> str:
    """How the newest trial restore of a snapshot went."""
    ended = f"restored in {drill.seconds:.1f} s" if drill.passed else "FAILED"
    return f"drill of {format_minute(drill.instant)}: {ended}"


def gate_word(snapshot: Snapshot) -> str:
    """`pass`, `FAIL`, `override`, or `-` when it was not judged."""
    verdict = snapshot.verdict
    if verdict is None:
        return "-"
    if verdict.passed:
        return "pass"
    return "override" if verdict.override_by else "FAIL"


def describe_status(status: LogStatus) -> dict[str, Any]:
    """The JSON of a status: the proof with the share that its round has read, an error as every command shows it."""
    import msgspec

    proof = status.proof
    return {
        **msgspec.to_builtins(replace(status, error=None)),
        "error": status.error.to_dict() if status.error else None,
        "proof": {**asdict(proof), "share": proof.share} if proof else None,
    }


def is_proof_old(status: LogStatus, now: str) -> bool:
    """Whether the last proof of all files is old. A log that was never proved is not old."""
    return status.proof is not None and bool(status.proof.proved) and is_old(status.proof.proved, now)


def is_drill_old(status: LogStatus, now: str) -> bool:
    """Whether the last drill is old. A log without a drill is not old."""
    drill = status.drilled.drill if status.drilled else None
    return drill is not None and is_old(drill.instant, now)


def proof_lines(status: LogStatus, now: str) -> Iterator[str]:
    """Returns the lines of `status` about a log that has a snapshot."""
    if status.error or not status.latest:
        return
    log, proof = status.log, status.proof
    verify = f"`tidefold check verify {log}`"
    old = f"{_OLD}: {verify} proves them again" if is_proof_old(status, now) else ""
    yield f"{log}: {_describe_proof(proof)}{old}." if proof else f"{log}: files never proved; {verify}."
    if proof and proof.damaged:
        yield f"{log}: {describe_damage(proof)}; {verify} names the files."
    if proof and (read := proof.readers):
        yield f"{log}: {describe_read_back(read)}."
    if proof and (source := proof.source):
        yield f"{log}: {describe_source_proof(source)}."
    if status.drilled and status.drilled.drill:
        again = f"{_OLD}: `tidefold check drill {log}` repeats it" if is_drill_old(status, now) else ""
        yield f"{log}: snapshot {status.drilled.id}: {describe_drill(status.drilled.drill)}{again}."
    else:
        yield f"{log}: restore never drilled; `tidefold check drill {log}`."


def describe_damage(proof: ProofRecord) -> str:
    """How many files the newest proof found damaged."""
    count = len(proof.damaged)
    return f"{count_noun(count, 'damaged file')} at the proof of {format_minute(proof.instant)}"


def describe_read_back(read: ReaderProof) -> str:
    """What Spark read of the published table."""
    when = f"snapshot {read.snapshot}, read back by Spark {format_minute(read.instant)}"
    if read.error:
        return f"{when}: READ DIFFERENTLY: {read.error.rstrip('.')}"
    return (
        f"{when}: {count_noun(read.rows, 'row')} in {count_noun(read.files, 'file')}, bytes of {read.hashed:,} hashed"
    )


def describe_source_proof(source: SourceProof) -> str:
    """What the newest comparison with the source proved."""
    word = "DIFFERS FROM ITS SOURCE" if source.differ else "undecided" if source.error else "compared with its source"
    return f"{word} {format_minute(source.instant)} ({source.table}, by {source.by}): {source.sentence}"


def _describe_proof(proof: ProofRecord) -> str:
    proved = f"files proved {format_minute(proof.proved)}" if proof.proved else "files not all proved yet"
    if not proof.by:
        return proved
    size = in_units(proof.bytes)
    if proof.position:
        return f"{proved}, the round since then has read {proof.share:.0%} of {size}"
    return f"{proved}, the last round read all {size} ({proof.by})"
