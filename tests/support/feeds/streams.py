"""Feeds in two deliveries: changefeeds of databases and services, and files of query engines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from support.feeds.deliveries import DeliveredFeed, lines

_AT, _LATER = "2026-11-01 08:00:00", "2026-11-02 08:00:00"
_MS = 1793520000000


def _parquet(columns: Mapping[str, pa.DataType], *rows: tuple[Any, ...], int96: bool = False) -> bytes:
    stream = pa.BufferOutputStream()
    table = pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], pa.schema(columns.items()))
    pq.write_table(table, stream, use_deprecated_int96_timestamps=int96)
    return bytes(stream.getvalue().to_pybytes())


def _day(day: int) -> datetime:
    return datetime(2026, 11, day, tzinfo=UTC)


_DMS = {"Op": pa.string(), "dms_timestamp": pa.string(), "id": pa.int32(), "name": pa.string()}
_CLICKHOUSE = {"id": pa.uint64(), "name": pa.binary(), "at": pa.timestamp("ms", "UTC")}
_NAMED = {"id": pa.int64(), "name": pa.string(), "updated_at": pa.timestamp("ns")}
_QLIK = "header__change_seq,header__change_oper,header__timestamp,id,name\n"
_SEQ = "2026110108000000000000000000000000"


def _stripe(event: int, kind: str, mail: str) -> dict[str, Any]:
    item = {"object": {"id": "cus_1", "email": mail}}
    return {"id": f"evt_{event}", "object": "event", "type": f"customer.{kind}", "created": 1793520000 + event,
            "data": item}  # fmt: skip


STREAMS = [
    DeliveredFeed(
        "parquet of a migration service, times as text",
        {"shop/customers/LOAD00000001.parquet": _parquet(
            _DMS, ("I", f"{_AT}.000000", 1, "Ann"), ("I", f"{_AT}.000000", 2, "Bob"))},
        {"shop/customers/20261102-080000123.parquet": _parquet(
            _DMS, ("U", f"{_LATER}.000001", 1, "Anna"), ("D", f"{_LATER}.000002", 2, "Bob"))},
        ("id",),
        {(1,): {"name": "Anna"}},
        "\n\ndms_timestamp\n",
    ),
    DeliveredFeed(
        "parquet of ClickHouse: unsigned numbers of 64 bits, texts as bytes",
        {"customers/c1.parquet": _parquet(_CLICKHOUSE, (1, b"Ann", _day(1)), (2**62, b"Bob", _day(1)))},
        {"customers/c2.parquet": _parquet(_CLICKHOUSE, (2**62, b"Bert", _day(2)))},
        ("id",),
        {(1,): {"name": b"Ann"}, (2**62,): {"name": b"Bert"}},
        "id\n\n\n",
    ),
    DeliveredFeed(
        "parquet of Impala: INT96 in .parq",
        {"customers/a-0_data.0.parq": _parquet(_NAMED, (1, "Ann", datetime(2026, 11, 1)),
                                               (2, "Bob", datetime(2026, 11, 1)), int96=True)},
        {"customers/b-0_data.0.parq": _parquet(_NAMED, (2, "Bert", datetime(2026, 11, 2)), int96=True)},
        ("id",),
        {(1,): {"name": "Ann"}, (2,): {"name": "Bert"}},
    ),
    DeliveredFeed(
        "parquet of Athena: names without an ending, random ids",
        {"customers/20261101_080000_00012_x7k2p_0f1e2d3c-aaaa-bbbb-cccc-0123456789ab": _parquet(
            _NAMED, (1, "Ann", datetime(2026, 11, 1)), (2, "Bob", datetime(2026, 11, 1)))},
        {"customers/20261102_080000_00044_q9w2e_1f1e2d3c-dddd-eeee-ffff-0123456789ac": _parquet(
            _NAMED, (2, "Bert", datetime(2026, 11, 2)))},
        ("id",),
        {(1,): {"name": "Ann"}, (2,): {"name": "Bert"}},
    ),
    DeliveredFeed(
        "text of Hive",
        {"customers/000000_0": f"1\x01Ann\x01{_AT}\n2\x01Bob\x01{_AT}\n"},
        {"customers/000001_0": f"2\x01Bert\x01{_LATER}\n"},
        ("id",),
        {(1,): {"name": "Ann"}, (2,): {"name": "Bert"}},
        "id, name, updated_at\nid\n\n",
    ),
    DeliveredFeed(
        "Qlik Replicate's change tables",
        {"customers__ct/20261101-080000123.csv": f"{_QLIK}{_SEQ}1,I,{_AT}.000,1,Ann\n{_SEQ}2,I,{_AT}.000,2,Bob\n"},
        {"customers__ct/20261102-080000123.csv": f"{_QLIK}{_SEQ}3,B,{_LATER}.000,1,Ann\n"
                                                 f"{_SEQ}3,U,{_LATER}.000,1,Anna\n{_SEQ}4,D,{_LATER}.000,2,Bob\n"},
        ("id",),
        {(1,): {"name": "Anna"}},
        "\n\n\n",
    ),
    DeliveredFeed(
        "events of a payment service",
        {"events/2026-11-01.jsonl": lines(_stripe(1, "created", "a@x"), _stripe(2, "updated", "b@x"))},
        {"events/2026-11-02.jsonl": lines(_stripe(3, "updated", "c@x"), _stripe(2, "updated", "b@x"))},
        ("id",),
        {("evt_1",): {"type": "customer.created"}, ("evt_2",): {}, ("evt_3",): {"type": "customer.updated"}},
        "id\n\n",
    ),
]  # fmt: skip


def _cockroach(number: int, name: str | None, step: int) -> dict[str, Any]:
    after = {"id": number, "name": name} if name else None
    return {"after": after, "key": [number], "updated": f"{_MS + step}000000.0000000000"}


def _mongo(op: str, number: int, name: str | None, step: int) -> dict[str, Any]:
    document = {"fullDocument": {"_id": number, "name": name}} if name else {}
    return {"_id": {"_data": f"82{step:04x}"}, "operationType": op, "ns": {"db": "shop", "coll": "customers"},
            "clusterTime": {"$timestamp": {"t": 1793520000 + step, "i": 1}}, "documentKey": {"_id": number},
            **document}  # fmt: skip


def _webhook(op: str, number: int, new: str | None, old: str | None, at: str = _LATER) -> dict[str, Any]:
    def row(name: str | None, at: str) -> dict[str, Any] | None:
        return {"id": number, "name": name, "updated_at": at} if name else None

    return {"type": op, "table": "customers", "schema": "public", "record": row(new, at), "old_record": row(old, _AT)}


def _tidb(op: str, number: int, new: str | None, old: str | None, step: int) -> dict[str, Any]:
    def row(name: str | None) -> dict[str, Any] | None:
        return {"id": str(number), "name": name} if name else None

    return {"version": 1, "type": op, "database": "shop", "table": "customers", "tableID": 148, "data": row(new),
            "commitTs": 447984000000000000 + (step << 20), "buildTs": _MS + step, "old": row(old)}  # fmt: skip


def _datastream(op: str, number: int, name: str, step: int) -> dict[str, Any]:
    about = {"schema": "public", "table": "customers", "is_deleted": op == "DELETE", "change_type": op, "tx_id": step,
             "lsn": f"0/{step:06X}", "primary_keys": ["id"]}  # fmt: skip
    return {"uuid": f"u{step}", "read_timestamp": "2026-11-01T08:00:59.000", "object": "public_customers",
            "source_timestamp": f"2026-11-01T08:00:{step:02d}.000", "sort_keys": [_MS + step, f"0/{step:06X}"],
            "source_metadata": about, "payload": {"id": number, "name": name}}  # fmt: skip


def _estuary(op: str, number: int, name: str, step: int) -> dict[str, Any]:
    source = {"ts_ms": _MS + step, "schema": "public", "table": "customers", "loc": [step, step, step]}
    return {"_meta": {"op": op, "source": source, "uuid": f"{step:08d}"}, "id": number, "name": name}


def _striim(op: str, number: int, name: str, step: int) -> dict[str, Any]:
    about = {"TableName": "SHOP.CUSTOMERS", "OperationName": op, "TimeStamp": _MS + step, "SCN": 1000 + step}
    return {"metadata": about, "data": {"ID": number, "NAME": name}, "before": None}


def _kcat(offset: int, number: int, name: str | None) -> dict[str, Any]:
    row = json.dumps({"id": number, "name": name}) if name else None
    return {"topic": "customers", "partition": 0, "offset": offset, "tstype": "create", "ts": _MS + offset, "broker": 1,
            "key": json.dumps({"id": number}), "payload": row}  # fmt: skip


def _salesforce(what: str, key: str, name: str | None, step: int) -> dict[str, Any]:
    changed = ["Name"] if name and what == "UPDATE" else []
    about = {"entityName": "Account", "recordIds": [key], "changeType": what, "commitTimestamp": _MS + step,
             "commitNumber": 11657372702432 + step, "sequenceNumber": 1,
             "changedFields": [*changed, "Level"]}  # fmt: skip
    return {"ChangeEventHeader": about, "Name": name, "Level": step}


def _person(name: str | None) -> dict[str, Any] | None:
    """A row whose key changes with its name."""
    return {"id": len(name) if name != "Bob" else 9, "name": name} if name else None


def _audit(what: str, old: str | None, new: str | None, step: int) -> dict[str, Any]:
    return {"event_id": step, "table_name": "customers", "action_tstamp_tx": f"2026-11-01T08:00:0{step}Z",
            "action": what, "old_data": _person(old), "new_data": _person(new)}  # fmt: skip


def _qlik(what: str, old: str | None, new: str | None, step: int) -> dict[str, Any]:
    about = {"operation": what, "changeSequence": f"{_SEQ}{step}", "timestamp": "2026-11-01T08:00:00.000"}
    inner = {"data": _person(new), "beforeData": _person(old), "headers": about}
    return {"magic": "atMSG", "type": "DT", "messageSchema": None, "message": inner}


def _hasura(what: str, old: str | None, new: str | None, step: int) -> dict[str, Any]:
    event = {"session_variables": {}, "op": what, "data": {"old": _person(old), "new": _person(new)}}
    about = {"created_at": f"2026-11-01T08:00:0{step}.1Z", "id": f"c{step}", "trigger": {"name": "t"}}
    return {"event": event, **about, "table": {"schema": "public", "name": "customers"}}


def _flink(what: str, old: str | None, new: str | None) -> dict[str, Any]:
    return {"before": _person(old), "after": _person(new), "op": what}


def _images(name: str, column: str, words: str, place: str) -> DeliveredFeed:
    """An update of a row, and one that gives it another key, with the row before each."""
    insert, before, after = words.split()
    first = [(insert, 1, 1, "Ann"), (insert, 2, 2, "Bob"), (before, 3, 2, "Bob"), (after, 3, 2, "Bert")]
    texts = [
        f"{column},{place},id,name\n" + "".join(f"{op},{at:018d},{key},{value}\n" for op, at, key, value in part)
        for part in (first, [(after, 4, 9, "Ann"), (before, 4, 1, "Ann")])
    ]
    files = [{f"customers/c{n}.csv": text} for n, text in enumerate(texts)]
    return DeliveredFeed(name, *files, ("id",), {(2,): {"name": "Bert"}, (9,): {"name": "Ann"}}, "\n\n\n")


def _converted(name: str, ending: str, first: str, second: str, truth: Mapping[tuple[Any], Any]) -> DeliveredFeed:
    [column] = next(iter(truth.values()))
    key = ("ID",) if column.isupper() else ("id",)
    return DeliveredFeed(
        name, {f"customers/c-a.{ending}": first}, {f"customers/c-b.{ending}": second}, key, dict(truth)
    )


_ANNA = {(1,): {"name": "Anna"}}
# Each is made a feed of rows by the command that `init` names.
CONVERTED_STREAMS = [
    _converted(
        "line ends of CR alone", "csv",
        f"id,name,updated_at\r1,Ann,{_AT}\r2,Bob,{_AT}\r",
        f"id,name,updated_at\r2,Bert,{_LATER}\r", {(1,): {"name": "Ann"}, (2,): {"name": "Bert"}},
    ),
]  # fmt: skip
# The profile that `init` names reads them.
WITH_PROFILES = [
    _converted(
        "audit table of PostgreSQL", "jsonl",
        lines(_audit("I", None, "Ann", 1), _audit("I", None, "Bob", 2)),
        lines(_audit("U", "Ann", "Anna", 3), _audit("D", "Bob", None, 4)), {(4,): {"name": "Anna"}},
    ),
    _converted(
        "Qlik Replicate for Kafka", "json",
        lines(_qlik("REFRESH", None, "Ann", 1), _qlik("INSERT", None, "Bob", 2)),
        lines(_qlik("UPDATE", "Ann", "Anna", 3), _qlik("DELETE", None, "Bob", 4)), {(4,): {"name": "Anna"}},
    ),
    _converted(
        "event triggers of Hasura", "json",
        lines(_hasura("INSERT", None, "Ann", 1), _hasura("INSERT", None, "Bob", 2)),
        lines(_hasura("UPDATE", "Ann", "Anna", 3), _hasura("DELETE", "Bob", None, 4)), {(4,): {"name": "Anna"}},
    ),
    _converted(
        "Flink's debezium-json", "json",
        lines(_flink("c", None, "Ann"), _flink("c", None, "Bob")),
        lines(_flink("d", "Ann", None), _flink("c", None, "Anna"), _flink("d", "Bob", None)), {(4,): {"name": "Anna"}},
    ),
    _converted(
        "webhooks of Supabase", "jsonl",
        lines(_webhook("INSERT", 1, "Ann", None, _AT), _webhook("INSERT", 2, "Bob", None, _AT)),
        lines(_webhook("UPDATE", 1, "Anna", "Ann"), _webhook("DELETE", 2, None, "Bob")), _ANNA,
    ),
    _converted(
        "TiCDC", "json",
        lines(_tidb("INSERT", 1, "Ann", None, 1), _tidb("INSERT", 2, "Bob", None, 2)),
        lines(_tidb("UPDATE", 1, "Anna", "Ann", 3), _tidb("DELETE", 2, None, "Bob", 4)), {("1",): {"name": "Anna"}},
    ),
    _converted(
        "Datastream", "jsonl",
        lines(_datastream("INSERT", 1, "Ann", 1), _datastream("INSERT", 2, "Bob", 2)),
        lines(_datastream("UPDATE", 1, "Anna", 3), _datastream("DELETE", 2, "Bob", 4)), _ANNA,
    ),
    _converted(
        "Estuary", "jsonl",
        lines(_estuary("c", 1, "Ann", 1), _estuary("c", 2, "Bob", 2)),
        lines(_estuary("u", 1, "Anna", 3), _estuary("d", 2, "Bob", 4)), _ANNA,
    ),
    _converted(
        "Striim", "json",
        lines(_striim("INSERT", 1, "Ann", 1), _striim("INSERT", 2, "Bob", 2)),
        lines(_striim("UPDATE", 1, "Anna", 3), _striim("DELETE", 2, "Bob", 4)), {(1,): {"NAME": "Anna"}},
    ),
]  # fmt: skip
STREAMS += [
    _converted(
        "CockroachDB", "ndjson",
        lines(_cockroach(1, "Ann", 1), _cockroach(2, "Bob", 2), {"resolved": f"{_MS}000000.0000000000"}),
        lines(_cockroach(1, "Anna", 3), _cockroach(2, None, 4)), _ANNA,
    ),
    _converted(
        "kcat -J", "json",
        lines(_kcat(0, 1, "Ann"), _kcat(1, 2, "Bob")),
        lines(_kcat(2, 1, "Anna"), _kcat(3, 2, None)), _ANNA,
    ),
    DeliveredFeed(
        "change events of Salesforce",
        {"customers/c1.json": lines(_salesforce("CREATE", "a", "Ann", 1), _salesforce("CREATE", "b", "Bob", 2),
                                    _salesforce("UPDATE", "a", None, 3))},
        {"customers/c2.json": lines(_salesforce("UPDATE", "a", "Anna", 4), _salesforce("DELETE", "b", None, 5),
                                    _salesforce("UPDATE", "a", None, 6))},
        ("Id",),
        {("a",): {"Name": "Anna", "Level": 6}},
    ),
    _images("images of Qlik Replicate", "header__change_oper", "I B U", "header__change_seq"),
    _images("images of SQL Server", "__$operation", "2 3 4", "change_lsn"),
    _images("images of Delta", "_change_type", "insert update_preimage update_postimage", "_commit_version"),
    _images("images of MaxScale", "event_type", "insert update_before update_after", "sequence"),
    _images("images of Paimon's changelog", "_VALUE_KIND", "0 1 2", "_SEQUENCE_NUMBER"),
    _images("images of Hudi", "_hoodie_operation", "I -U U", "_hoodie_commit_time"),
    _images("images of Flink", "row_kind", "+I -U +U", "version"),
    DeliveredFeed(
        "Oracle's flashback queries, the first without a delete",
        {"customers/c1.csv": "VERSIONS_STARTSCN,VERSIONS_OPERATION,id,name\n1,I,1,Ann\n2,I,2,Bob\n3,U,1,Anna\n"},
        {"customers/c2.csv": "VERSIONS_STARTSCN,VERSIONS_OPERATION,id,name\n4,D,2,Bob\n"},
        ("id",),
        {(1,): {"name": "Anna"}},
        "\n\n\n",
    ),
    _converted(
        "change stream of MongoDB", "json",
        lines(_mongo("insert", 1, "Ann", 1), _mongo("insert", 2, "Bob", 2)),
        lines(_mongo("update", 1, "Anna", 3), _mongo("delete", 2, None, 4)), _ANNA,
    ),
]  # fmt: skip
