"""What a profile cannot say in paths: lists of rows, values with their types, and positions of more than one number."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tidefold.domain.source_progress import parse_lsn
from tidefold.sources.records.extended_json import to_plain
from tidefold.typed_json import make_decoder

Raw = msgspec.Raw
Fields = dict[str, Raw]
NULL = Raw(b"null")
_encode = msgspec.json.Encoder().encode
_fields, _list = make_decoder(Fields).decode, make_decoder(list[Raw] | None).decode
_text, _maybe = make_decoder(str).decode, make_decoder(str | None).decode
_LARGE = 10**18


class _Named(msgspec.Struct):
    name: str
    value: Raw = NULL


class _Change(msgspec.Struct):
    """A change of wal2json's first format: `columnvalues` belong to `columnnames`."""

    kind: str
    table: Raw = NULL
    schema: Raw = NULL
    columnnames: list[str] = []
    columnvalues: list[Raw] = []
    oldkeys: dict[str, Raw] = {}


_named, _changes = make_decoder(list[_Named] | None).decode, make_decoder(list[_Change]).decode


def raw(value: Any) -> Raw:
    return Raw(_encode(value))


def _split_lists(record: Fields) -> list[Fields]:
    """Canal: `data` and `old` are lists of one length; `old` may be null."""
    rows, old = _list(record.get("data", NULL)) or [NULL], _list(record.get("old", NULL)) or []
    return [{**record, "data": row, "old": old[at] if at < len(old) else NULL} for at, row in enumerate(rows)]


def _join_names(record: Fields) -> list[Fields]:
    """The second format of wal2json: `columns` and `identity` are lists of names and values."""
    lists = {name: _named(record[name]) for name in ("columns", "identity") if name in record}
    return [{**record, **{name: raw({one.name: one.value for one in told or ()}) for name, told in lists.items()}}]


def _split_transaction(record: Fields) -> list[Fields]:
    """The first format of wal2json: a transaction is one record. Values belong to names by their place."""
    return [{**record, **_flatten(one)} for one in _changes(record["change"])]


def _flatten(one: _Change) -> Fields:
    told = {name: _list(one.oldkeys.get(name, NULL)) or [] for name in ("keynames", "keyvalues")}
    keys = {_text(name): value for name, value in zip(told["keynames"], told["keyvalues"], strict=True)}
    row = dict(zip(one.columnnames, one.columnvalues, strict=True))
    rows = {"columns": raw(row)} if row else {}
    return {"kind": raw(one.kind), "table": one.table, "schema": one.schema, **rows, "identity": raw(keys)}


def _drop_types(record: Fields) -> list[Fields]:
    """DynamoDB: each value is an object of its type: `{"N": "1.50"}`. Numbers keep all their digits."""
    record |= _fields(record["dynamodb"]) if "dynamodb" in record else {}
    rows = {name: _fields(record[name]) for name in ("Keys", "NewImage", "Item") if name in record}
    written = _fields(record["Metadata"]) if "Metadata" in record else {}
    micros = {name: _plain(value) for name, value in written.items() if name == "WriteTimestampMicros"}
    return [{**record, **micros, **{name: raw({n: _plain(v) for n, v in row.items()}) for name, row in rows.items()}}]


def _plain(value: Raw) -> Raw:
    [(kind, inner)] = _fields(value).items()
    if kind == "N":
        return Raw(_text(inner).encode())
    if kind == "NULL":
        return NULL
    if kind == "M":
        return raw({name: _plain(one) for name, one in _fields(inner).items()})
    if kind == "L":
        return raw([_plain(one) for one in _list(inner) or ()])
    return raw([Raw(_text(one).encode()) for one in _list(inner) or ()]) if kind == "NS" else inner


def _drop_wrappers(record: Fields) -> list[Fields]:
    """MongoDB: `{"$oid": ...}` and the like are plain values."""
    return [{name: Raw(to_plain(bytes(value))) for name, value in record.items()}]


def _read_texts(record: Fields) -> list[Fields]:
    """kcat: keys and rows are texts of JSON."""
    texts = {name: _maybe(record[name]) for name in ("key", "payload") if name in record}
    return [{**record, **{name: NULL if text is None else Raw(text.encode()) for name, text in texts.items()}}]


def _split_before(record: Fields) -> list[Fields]:
    """DMS: with `add-before-image-columns` the row has the former value of `id` in `BI_id`."""
    row = _fields(record["data"]) if b'"BI_' in bytes(record.get("data", b"")) else {}
    old = {name[3:]: value for name, value in row.items() if name.startswith("BI_") and name[3:] in row}
    new = {name: value for name, value in row.items() if name[3:] not in old or not name.startswith("BI_")}
    return [{**record, "data": raw(new), "before-image": raw(old)} if old else record]


def _split_ids(record: Fields) -> list[Fields]:
    """Salesforce: an event is of several records. What an update did not change may be there, as null."""
    header = _fields(record["ChangeEventHeader"])
    row = {name: value for name, value in record.items() if name != "ChangeEventHeader"}
    if _text(header["changeType"]) == "UPDATE" and (changed := _list(header.get("changedFields", NULL))):
        row = {name: row[name] for name in map(_text, changed)}
    return [{**record, "row": raw({"Id": one, **row})} for one in _list(header["recordIds"]) or ()]


UNPACK: Mapping[str, Callable[[Fields], list[Fields]]] = {
    "lists": _split_lists, "named-values": _join_names, "transaction": _split_transaction, "typed-values": _drop_types,
    "extended-json": _drop_wrappers, "texts": _read_texts, "ids": _split_ids, "before": _split_before,
}  # fmt: skip


def _lsn(value: Any) -> int:
    return parse_lsn(str(value))


def _binlog(value: Any) -> int:
    file, at = str(value).rsplit(":", 1)
    return int(re.sub(r".*\.", "", file)) << 40 | int(at)


def _timestamp(value: Any) -> int:
    told = value["$timestamp"]
    return int(told["t"]) << 32 | int(told["i"])


# How the value of a field becomes a whole number. Digits of more than 18 places are two numbers.
FORMS: Mapping[str, Callable[[Any], int]] = {
    "lsn": _lsn,
    "binlog": _binlog,
    "timestamp": _timestamp,
    "digits": int,
    "whole": lambda value: int(value.partition(".")[0]),
    "fraction": lambda value: int(value.partition(".")[2]),
    "high": lambda value: int(value) // _LARGE,
    "low": lambda value: int(value) % _LARGE,
}
