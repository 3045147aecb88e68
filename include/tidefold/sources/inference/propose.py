"""Looks at landed files and proposes logs for them: what `tidefold init` writes down for people to check."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path, PurePosixPath
from typing import Any

from tidefold.domain.source_progress import NameReading
from tidefold.domain.table.table_spec import MARIADB, MYSQL, POSITION, POSTGRESQL
from tidefold.sources.inference.envelopes import find_refused, infer_column
from tidefold.sources.inference.files import propose_files
from tidefold.sources.inference.proposal import ProposedColumn, ProposedLog, log_ids
from tidefold.sources.inference.schema import columns_of
from tidefold.sources.landing.listing import LandedFile, list_landed, open_landed
from tidefold.sources.landing.names import is_dash_name
from tidefold.sources.landing.streams import (
    CutShortError,
    DamagedError,
    Fingerprint,
    ShrunkError,
    chunks,
    unzipped,
    without_bom,
)

RECORDS, FILES = 2000, 3
# A name that ends in a date has no offset.
_DATED = re.compile(r"-\d{4}-\d{1,2}-\d{1,2}\.[a-z.]+$", re.ASCII)
_CONNECTORS = (POSTGRESQL, MYSQL, MARIADB)
# Microseconds since 1970 of the years 1980 to 2100: a whole number in there may be a time.
_TIMES = (315_532_800_000_000, 4_102_444_800_000_000)
_NAMES = {bool: "boolean", int: "long", float: "double", str: "string"}


def propose(directory: Path) -> list[ProposedLog]:
    """One proposal for each topic that has files below `directory`. Raises NotFoundError when it does not exist."""
    found = list_landed(directory, reading=NameReading.KAFKA_DASH)[0]
    files = sorted((f for f in found if not _DATED.search(f.name)), key=lambda f: f.topic)
    topics = {topic: list(members) for topic, members in groupby(files, key=lambda f: f.topic)}
    folders = {topic: _folder(members) for topic, members in topics.items()}
    ids = dict(zip(topics, log_ids(list(topics)), strict=True))
    proposals = []
    for topic, members in topics.items():
        shared = [t for t, folder in folders.items() if t != topic and folder.is_relative_to(folders[topic])]
        propose_one = _propose_plain if _is_plain(sample := _sample(members)) else _propose_log
        proposed = propose_one(ids[topic], topic, folders[topic], shared, sample)
        dashes = any(is_dash_name(PurePosixPath(f.name).name) for f in members)
        names = (("names", str(NameReading.KAFKA_DASH)),) if dashes else ()
        proposals.append(replace(proposed, options=(*proposed.options, *names)))
    return [*proposals, *propose_files(directory, list(ids.values()))]


def _is_plain(sample: Sequence[dict[str, Any]]) -> bool:
    """Whether records are rows, and no envelopes of Debezium."""
    rows = [r["value"] if isinstance(r.get("value"), dict) else r for r in sample]
    return bool(rows) and not any("source" in row or "after" in row or "payload" in row for row in rows)


def _propose_plain(
    log: str, topic: str, folder: PurePosixPath, shared: Sequence[str], sample: Sequence[dict[str, Any]]
) -> ProposedLog:
    """Plain JSON: the value of a record, or the line itself, is a row."""
    alone = not any("value" in record and "offset" in record for record in sample)
    values = (_row(record) if alone else record.get("value") for record in sample)
    rows = [value for value in values if isinstance(value, dict)]
    columns = tuple(_column(name, [row[name] for row in rows if name in row]) for name in _names(rows))
    known = {column.name for column in columns}
    key = tuple(name for name in (() if alone else _key(sample)) if name in known)
    notes = [] if key else ["nothing says which columns tell rows apart: name them in `key`"]
    notes += [f"column {c.name}: {c.note}" for c in columns if c.type is None]
    notes += [f"its folder also holds {', '.join(shared)}: give each topic a folder of its own"] if shared else []
    options = (("record", "value"),) if alone else ()
    how = ("json", options)
    return ProposedLog(log, topic, str(folder), key, columns, "", POSITION, len(sample), not notes, tuple(notes), *how)


def _row(record: dict[str, Any]) -> Any:
    """A line that is a row by itself, as it was before it was taken for a record."""
    return record["value"] if list(record) == ["value"] and isinstance(record["value"], dict) else record


def _folder(files: Sequence[LandedFile]) -> PurePosixPath:
    """The deepest folder that holds all files of a topic."""
    common = PurePosixPath(files[0].name).parent
    while not all(PurePosixPath(f.name).is_relative_to(common) for f in files):
        common = common.parent
    return common


def _sample(files: Sequence[LandedFile]) -> list[dict[str, Any]]:
    """Records of the first, the middle and the last file: deletes and new columns tend to come late."""
    chosen = sorted({0, len(files) // 2, len(files) - 1})
    share = RECORDS // len(chosen)
    return [record for index in chosen for record in islice(_records(files[index]), share)]


def _records(file: LandedFile) -> Iterator[dict[str, Any]]:
    with open_landed(file) as stream:
        blocks: Iterable[bytes] = Fingerprint(stream, file.size).blocks()
        try:
            for chunk in chunks(unzipped(blocks) if file.gzip else blocks):
                yield from filter(None, map(_record, without_bom(chunk).lines))
        except (CutShortError, DamagedError, ShrunkError):
            return  # A sample needs no whole file; ingest says what is wrong with it.


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return _unwrapped(record) if isinstance(record, dict) else None


def _unwrapped(record: dict[str, Any]) -> dict[str, Any]:
    """A record with its value, neither in the schema that may stand beside them; that of the value is kept apart."""
    if "value" not in record and ("op" in record or "payload" in record):
        record = {"value": record}
    for part in ("key", "value"):
        given = record.get(part)
        if isinstance(given, dict) and "payload" in given and "op" not in given:
            record = {**record, part: given["payload"], f"{part} schema": given.get("schema")}
    return record


def _propose_log(
    log: str, topic: str, folder: PurePosixPath, shared: Sequence[str], sample: Sequence[dict[str, Any]]
) -> ProposedLog:
    values = [r["value"] for r in sample if isinstance(r.get("value"), dict)]
    rows = [v["after"] for v in values if isinstance(v.get("after"), dict)]
    declared = {name: type_ for r in sample for name, type_ in columns_of(r.get("value schema")).items()}
    columns = tuple(
        _declared(name, declared[name])
        if name in declared
        else infer_column(name, [row[name] for row in rows if name in row], _column)
        for name in _names(rows)
    )
    key = _key(sample)
    connector = next((str(v["source"].get("connector")) for v in values if isinstance(v.get("source"), dict)), "")
    notes = _notes(key, columns, connector, shared)
    return ProposedLog(
        id=log,
        topic=topic,
        path=str(folder),
        key=key,
        columns=columns,
        connector=connector,
        order=connector,
        records=len(sample),
        usable=not notes,
        notes=tuple(notes),
        refused="" if notes else find_refused(key, columns, connector, sample),
    )


def _names(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Names of columns in the order in which they were seen."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _key(sample: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    keys = [tuple(r["key"]) for r in sample if isinstance(r.get("key"), dict)]
    return keys[0] if keys else ()


def _declared(name: str, type_: str | None) -> ProposedColumn:
    return ProposedColumn(name, type_, "as the schema says" if type_ else "no type fits what the schema says")


def _column(name: str, seen: Sequence[Any]) -> ProposedColumn:
    values = [v for v in seen if v is not None]
    kinds = {type(v) for v in values}
    if not kinds:
        return ProposedColumn(name, "string", "only nulls seen: check the type")
    if kinds == {int, float}:
        kinds = {float}
    if len(kinds) > 1 or not kinds <= set(_NAMES):
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        return ProposedColumn(name, None, f"no type fits what was seen ({found})")
    kind = kinds.pop()
    return ProposedColumn(name, _NAMES[kind], _whole_number_note(values) if kind is int else "")


def _whole_number_note(values: Sequence[int]) -> str:
    """`long` is proposed for every whole number: a value outside `int` may come tomorrow and would be refused."""
    low, high = min(values), max(values)
    note = f"{low} to {high} seen"
    if _TIMES[0] <= low and high <= _TIMES[1]:
        return f"{note}: microseconds since 1970? then `timestamp`"
    return f"{note}: `int` would fit" if low >= -(2**31) and high < 2**31 else note


def _notes(key: Sequence[str], columns: Sequence[ProposedColumn], connector: str, shared: Sequence[str]) -> list[str]:
    notes = []
    if not columns:
        notes.append("no record with `after` seen: the columns are not known")
    if not key:
        notes.append("the records have no key: name one, or set `merge: append` in place of `key` if rows only come")
    notes += [f"column {c.name}: {c.note}" for c in columns if c.type is None]
    if connector not in _CONNECTORS:
        known = ", ".join(_CONNECTORS)
        notes.append(f"connector {connector or 'unknown'}: only {known} are supported in this version")
    if shared:
        notes.append(f"its folder also holds {', '.join(shared)}: give each topic a folder of its own")
    return notes
