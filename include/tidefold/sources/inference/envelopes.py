"""Proposes a log for a topic of Debezium envelopes, from a sample of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec

from tidefold.domain.table.table_spec import MARIADB, MYSQL, ORACLE, POSTGRESQL, SQLSERVER, Column, TableSpec
from tidefold.domain.table.table_spec_validation import column_mistakes
from tidefold.domain.wording import explain_experimental
from tidefold.sources.debezium.connect_schema import column_names, columns_by, decimals_of, explain_losses
from tidefold.sources.debezium.envelope import envelope_reader
from tidefold.sources.inference import roles
from tidefold.sources.inference.columns import ask_types, infer_column, list_names, name_column
from tidefold.sources.inference.proposal import NUMERIC, ProposedColumn, ProposedLog
from tidefold.sources.inference.values import column_of_values, text_column, whole_number_note
from tidefold.sources.records.accounting import FilePosition, ReaderPosition
from tidefold.sources.records.errors import RefusedRecordError
from tidefold.sources.records.text_forms import find_unit

_encode = msgspec.json.Encoder().encode
_CONNECTORS = (POSTGRESQL, MYSQL, MARIADB, SQLSERVER, ORACLE)
_NO_ENVELOPES = "its records are plain rows: of Avro, only Debezium's envelopes are read. Write JSON or Parquet instead"
_NAMES = {bool: "boolean", int: "long", float: "double", str: "string"}


def is_envelope(row: dict[str, Any]) -> bool:
    """Whether a row is an envelope. A row may also have a column with the name of a part of an envelope."""
    parts = (row.get("source"), row.get("payload"))
    return any(isinstance(part, dict) for part in parts) or ("after" in row and "op" in row)


def propose_envelopes(
    log: str, topic: str, folder: PurePosixPath, shared: Sequence[str], sample: Sequence[dict[str, Any]]
) -> ProposedLog:
    """Proposes a log for Debezium envelopes. Without a record key, the inserted rows show the key columns."""
    values = [r["value"] for r in sample if isinstance(r.get("value"), dict)]
    rows = [v["after"] for v in values if isinstance(v.get("after"), dict)]
    columns = _infer_columns(rows, sample)
    key, questions = find_key(sample), []
    if not key:
        by_op = [(v.get("op"), v["after"]) for v in values if isinstance(v.get("after"), dict)]
        inserted = [row for op, row in by_op if op in ("r", "c")]
        once = [[row for op, row in by_op if op == "r"]]  # A snapshot has each row once.
        keys = roles.find_keys(log, columns, inserted, None, once=once)
        key = keys[0] if keys else ()
        questions = [roles.key_question(log, keys, inserted, None, once=once)]
    questions += ask_types(columns)
    named = {column.name: name_column(column, of_json=True) for column in columns}
    columns, key = tuple(named.values()), tuple(named[name].name if name in named else name for name in key)
    connector = next((str(v["source"].get("connector")) for v in values if isinstance(v.get("source"), dict)), "")
    notes = _notes(columns, connector, shared)
    if values and not any(map(is_envelope, values)):
        notes, questions = [_NO_ENVELOPES, *shared], []
    changes = [v for v in values if v.get("op") != "r"]
    return ProposedLog(
        id=log,
        topic=topic,
        path=str(folder),
        key=key,
        columns=columns,
        connector=connector,
        order=connector,
        records=len(sample),
        usable=not notes and all(question.sure for question in questions),
        notes=tuple(notes),
        questions=tuple(questions),
        warnings=()
        if notes or not key
        else (
            *filter(None, [explain_experimental(connector)]),
            *_find_refused(key, columns, connector, sample),
            *explain_losses(next((r["value schema"] for r in reversed(sample) if r.get("value schema")), None), key),
            *(f"key {c.name}: {c.note}" for c in columns if c.name in key and "base64(" in c.note),
        ),
        has_transactions=not changes or any(isinstance(v.get("transaction"), dict) for v in changes),
    )


def _find_refused(
    key: Sequence[str], columns: Sequence[ProposedColumn], order: str, sample: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Describes the sampled records that the proposal would refuse, in one sentence; empty: none."""
    proposed = tuple(
        Column(c.name, c.type or "string", c.encoding, aliases=(c.alias,) if c.alias else ()) for c in columns
    )
    if next(column_mistakes([column.name for column in proposed]), None):
        return ()  # Another message reports this.
    shape = TableSpec(tuple(key), proposed, order, key_groups=1, buckets=1)
    reader, at = envelope_reader(shape), ReaderPosition(FilePosition("", 0), shape)
    reasons: Counter[str] = Counter()
    first = ""
    for record in sample:
        line = _encode(_wrap(record))
        at.begin_single_record(line, 0, 0)
        try:
            reader(at, line)
        except RefusedRecordError as refused:
            reasons[refused.reason] += 1
            first = first or refused.detail
        at.drain_batch()
    if not reasons:
        return ()
    counted = ", ".join(f"{number} {reason}" for reason, number in sorted(reasons.items()))
    return (f"{reasons.total()} of {len(sample)} sampled records would be refused ({counted}): {first}",)


def _wrap(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the record as it landed, without its position."""
    value, schema = record.get("value"), record.get("value schema")
    payload = {"schema": schema, "payload": value} if schema and value is not None else value
    key, key_schema = record.get("key"), record.get("key schema")
    return {"key": {"schema": key_schema, "payload": key} if key_schema and key else key, "value": payload}


def _infer_columns(rows: Sequence[dict[str, Any]], sample: Sequence[dict[str, Any]]) -> tuple[ProposedColumn, ...]:
    """Returns the columns with the types that the schemas beside the records declare, else those of the values."""
    declared: dict[str, str | None] = {}
    for schema in (r.get("value schema") for r in sample):
        declared |= dict.fromkeys(column_names(schema)) | {n: c.type for n, c in columns_by(schema).items()}
    decimals = {name for r in sample for name in decimals_of(r.get("value schema"))}
    notes = {
        name: "as the schema says" if type_ else "no type fits what the schema says" for name, type_ in declared.items()
    }
    return tuple(
        ProposedColumn(
            name, declared[name], notes[name], other=NUMERIC if declared[name] == "string" and name in decimals else ""
        )
        if name in declared
        else infer_column(name, [row[name] for row in rows if name in row], _column)
        for name in list_names(rows)
    )


def find_key(sample: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    keys = [r["key"] for r in sample if isinstance(r.get("key"), dict)]
    # A schema may be beside it.
    first = keys[0].get("payload", keys[0]) if keys else {}
    return tuple(first) if isinstance(first, dict) else tuple(keys[0])


def _column(name: str, seen: Sequence[Any]) -> ProposedColumn:
    values = [v for v in seen if v is not None]
    kinds = {type(v) for v in values}
    if not kinds:
        return ProposedColumn(name, "string", "only nulls seen: check the type")
    if kinds == {int, float}:
        kinds = {float}
    if len(kinds) > 1 or not kinds <= set(_NAMES):
        shown = ", ".join(sorted(kind.__name__ for kind in kinds))
        return ProposedColumn(name, None, f"no type fits what was seen ({shown})")
    kind = kinds.pop()
    if kind is str:
        column = column_of_values(name, values)
        return column if column.encoding == "iso" else text_column(name, values)
    return ProposedColumn(name, _NAMES[kind], _whole_number_note(values) if kind is int else "")


def _whole_number_note(values: Sequence[int]) -> str:
    unit, note = find_unit(min(values), max(values)), whole_number_note(values)
    if unit == "micros":
        return f"{note}: microseconds since 1970? then `timestamp`"
    return (
        f"{note}: milliseconds since 1970? then `{{type: timestamp, encoding: millis}}`" if unit == "millis" else note
    )


def _notes(columns: Sequence[ProposedColumn], connector: str, shared: Sequence[str]) -> list[str]:
    notes = []
    if not columns:
        notes.append("no record with `after` seen: the columns are not known")
    notes += [f"column {c.name}: {c.note}" for c in columns if c.type is None]
    if not connector:
        notes.append(
            "its records have no `source`, so nothing says which of two changes is the newer: land what Debezium "
            "itself writes (other programs, such as Flink's `debezium-json`, leave `source` out)"
        )
    elif connector not in _CONNECTORS:
        connectors = ", ".join(_CONNECTORS)
        notes.append(f"connector {connector}: only {connectors} are supported in this version")
    return [*notes, *shared]
