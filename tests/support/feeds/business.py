"""Feeds of business programs, in two deliveries; and change logs of other tools."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from support.feeds.deliveries import DeliveredFeed, lines

_UUIDS = [f"3f2504e0-4f89-11d3-9a0c-0305e82c330{i}" for i in range(2)]
_NAMED = "id,name,updated_at\n"
_AT, _LATER = "2026-11-01 08:00:00", "2026-11-02 08:00:00"


def _connect(number: int, name: str, at: int) -> dict[str, Any]:
    """JsonConverter with schemas."""
    fields = [{"field": "id", "type": "int32"}, {"field": "name", "type": "string"},
              {"field": "updated_at", "type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}]  # fmt: skip
    return {"schema": {"type": "struct", "fields": fields}, "payload": {"id": number, "name": name, "updated_at": at}}


_PLACES = pa.schema([
    ("id", pa.int64()), ("at", pa.timestamp("ns", "UTC")), ("price", pa.decimal128(20, 4)),
    ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])), ("tags", pa.map_(pa.string(), pa.int64())),
])  # fmt: skip


def _places(*rows: tuple[int, int, str]) -> bytes:
    stream = pa.BufferOutputStream()
    made = [{"id": number, "at": datetime(2026, 11, day, tzinfo=UTC), "price": Decimal(price),
             "place": {"city": "Bonn", "zip": 1}, "tags": [("a", 1)]} for number, day, price in rows]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(made, _PLACES), stream)
    return bytes(stream.getvalue().to_pybytes())


def _goldengate(op: str, number: int, name: str, pos: int) -> dict[str, Any]:
    row = {"ID": number, "NAME": name}
    parts = {**({"before": row} if op != "I" else {}), **({"after": row} if op != "D" else {})}
    return {"table": "SHOP.CUSTOMERS", "op_type": op, "op_ts": f"2026-11-01 08:00:{pos:02d}.000000",
            "current_ts": "2026-11-01T08:01:00.123000", "pos": f"{pos:020d}", **parts}  # fmt: skip


def _canal(kind: str, number: int, name: str, second: int) -> dict[str, Any]:
    at = 1793520000000 + 1000 * second
    return {"data": [{"id": str(number), "name": name}], "database": "shop", "es": at, "id": at, "isDdl": False,
            "mysqlType": {"id": "int", "name": "varchar(20)"}, "old": None, "pkNames": ["id"], "table": "customers",
            "ts": at + 5, "type": kind}  # fmt: skip


def _wal2json(action: str, number: int, second: int, name: str | None = None) -> dict[str, Any]:
    """Format 2, with `include-lsn` and `include-timestamp`."""
    columns = [{"name": "id", "type": "integer", "value": number}, {"name": "name", "type": "text", "value": name}]
    parts = {**({"columns": columns} if action != "D" else {}), **({"identity": columns[:1]} if action != "I" else {})}
    return {"action": action, "lsn": f"0/16{second:04X}", "timestamp": f"2026-11-01 08:00:0{second}.5+00",
            "schema": "public", "table": "customers", **parts}  # fmt: skip


def _dynamodb(key: str, quantity: int, day: int) -> dict[str, Any]:
    return {"Item": {"id": {"S": key}, "qty": {"N": str(quantity)}, "updatedAt": {"S": f"2026-11-0{day}T08:00:00Z"}}}


BUSINESS = [
    DeliveredFeed(
        "tabs in .txt",
        {"customers/customers_20261101.txt": f"id\tname\tupdated_at\n1\tAnn\t{_AT}\n2\tBob\t{_AT}\n"},
        {"customers/customers_20261102.txt": f"id\tname\tupdated_at\n2\tBert\t{_LATER}\n"},
        ("id",),
        {(1,): {"name": "Ann"}, (2,): {"name": "Bert"}},
    ),
    DeliveredFeed(
        "keys of a uuid, times of several zones, operations in upper case",
        {"users/a.csv": "operation,user_id,mail,changed_at\n"
                        f"UPSERT,{_UUIDS[0]},a@x,2026-11-01T10:00:00+02:00\nUPSERT,{_UUIDS[1]},b@x,2026-11-01T08:00:01Z\n"},
        {"users/b.csv": "operation,user_id,mail,changed_at\n"
                        f"DELETE,{_UUIDS[0]},a@x,2026-11-01T09:00:00+00:00\nUPSERT,{_UUIDS[1]},c@x,2026-11-01T09:00:01Z\n"},
        ("user_id",),
        {(_UUIDS[1],): {"mail": "c@x"}},
    ),
    DeliveredFeed(
        "a title above the header",
        {"sales/report.csv": "Sales report\nGenerated 2026-11-01\n\nid,amount,updated_at\n"
                             f"1,5,{_AT}\n2,6,{_AT}\n"},
        {"sales/report2.csv": f"Sales report\nGenerated 2026-11-02\n\nid,amount,updated_at\n2,7,{_LATER}\n"},
        ("id",),
        {(1,): {"amount": 5}, (2,): {"amount": 7}},
    ),
    DeliveredFeed(
        "a delimiter at the end of each line",
        {"people/a.csv": f"id;name;updated_at;\n1;Ann;{_AT};\n2;Bob;{_AT};\n"},
        {"people/b.csv": f"id;name;updated_at;\n2;Bert;{_LATER};\n"},
        ("id",),
        {(1,): {"name": "Ann"}, (2,): {"name": "Bert"}},
    ),
    DeliveredFeed(
        "a column of the same name twice",
        {"people/a.csv": f"id,name,name,updated_at\n1,Ann,A,{_AT}\n2,Bob,B,{_AT}\n"},
        {"people/b.csv": f"id,name,name,updated_at\n2,Bert,C,{_LATER}\n"},
        ("id",),
        {(1,): {"name": "Ann", "name_3": "A"}, (2,): {"name": "Bert", "name_3": "C"}},
    ),
    DeliveredFeed(
        "tickets, months by name",
        {"issues/jira.csv": "Issue key,Summary,Status,Updated\nAB-1,x,Open,01/Nov/26 8:00 AM\n"
                            "AB-2,y,Open,01/Nov/26 8:05 PM\n"},
        {"issues/jira (1).csv": "Issue key,Summary,Status,Updated\nAB-2,y,Done,02/Nov/26 8:00 AM\n"},
        ("Issue_key",),
        {("AB-1",): {"Status": "Open"}, ("AB-2",): {"Status": "Done"}},
        "\n\n",
    ),
    DeliveredFeed(
        "Japanese, of a spreadsheet",
        {"customers/顧客_20261101.csv": "番号,名前,更新日時\n1,山田,2026/11/01 08:00:00\n"
                                        "2,佐藤,2026/11/01 08:00:00\n".encode("cp932")},
        {"customers/顧客_20261102.csv": "番号,名前,更新日時\n2,鈴木,2026/11/02 08:00:00\n".encode("cp932")},
        ("番号",),
        {(1,): {"名前": "山田"}, (2,): {"名前": "鈴木"}},
        "\n\n\n",
    ),
    DeliveredFeed(
        "rows of a connector with their schema",
        {"customers/shop.customers+0+0000000000.json": lines(_connect(1, "Ann", 1793520000000),
                                                              _connect(2, "Bob", 1793520000000))},
        {"customers/shop.customers+0+0000000002.json": lines(_connect(2, "Bert", 1793520005000))},
        ("id",),
        {(1,): {"name": "Ann"}, (2,): {"name": "Bert"}},
    ),
    DeliveredFeed(
        "parquet with nanoseconds, structs and maps",
        {"places/a.parquet": _places((1, 1, "1.5000"), (2, 1, "2.5000"))},
        {"places/b.parquet": _places((2, 2, "3.5000"))},
        ("id",),
        {(1,): {"price": Decimal("1.5000")}, (2,): {"price": Decimal("3.5000")}},
        "\n\n",
    ),
    DeliveredFeed(
        "a flag of deleted rows, booleans of PostgreSQL",
        {"users/a.csv": "id,mail,active,is_deleted,updated_at\n1,a@x,t,0,2026-11-01 08:00:00.123456+00\n"
                        "2,b@x,f,0,2026-11-01 08:00:00.123456+00\n3,c@x,t,1,2026-11-01 08:00:00+00\n"},
        {"users/b.csv": "id,mail,active,is_deleted,updated_at\n1,a@x,t,1,2026-11-02 08:00:00.5+00\n"},
        ("id",),
        {(2,): {"mail": "b@x", "active": False}},
        "\n\n\n",
    ),
    DeliveredFeed(
        "currency signs and brackets",
        {"ledger/a.csv": f'entry,amount,posted_at\nE1,"$1,234.50",{_AT}\nE2,(99.00),{_AT}\n'},
        {"ledger/b.csv": f"entry,amount,posted_at\nE2,(98.00),{_LATER}\n"},
        ("entry",),
        {("E1",): {"amount": "$1,234.50"}, ("E2",): {"amount": "(98.00)"}},
        "\n\n",
    ),
    DeliveredFeed(
        "csv, milliseconds since 1970",
        {"users/users.csv": "id,name,updated_ms\n1,a,1793520000000\n2,b,1793520000001\n"},
        {"users/users_1.csv": "id,name,updated_ms\n2,c,1793520000002\n"},
        ("id",),
        {(1,): {"name": "a"}, (2,): {"name": "c"}},
    ),
    DeliveredFeed(
        "Oracle GoldenGate",
        {"customers/c1.json": lines(_goldengate("I", 1, "Ann", 1), _goldengate("I", 2, "Bob", 2))},
        {"customers/c2.json": lines(_goldengate("U", 1, "Anna", 3), _goldengate("D", 2, "Bob", 4))},
        ("ID",),
        {(1,): {"NAME": "Anna"}},
    ),
    DeliveredFeed(
        "Canal",
        {"customers/c1.json": lines(_canal("INSERT", 1, "Ann", 0), _canal("INSERT", 2, "Bob", 1))},
        {"customers/c2.json": lines(_canal("UPDATE", 1, "Anna", 2), _canal("DELETE", 2, "Bob", 3))},
        ("id",),
        {("1",): {"name": "Anna"}},
    ),
    DeliveredFeed(
        "wal2json",
        {"customers/c1.json": lines(_wal2json("I", 1, 1, "Ann"), _wal2json("I", 2, 2, "Bob"))},
        {"customers/c2.json": lines(_wal2json("U", 1, 3, "Anna"), _wal2json("D", 2, 4))},
        ("id",),
        {(1,): {"name": "Anna"}},
    ),
    DeliveredFeed(
        "DynamoDB",
        {"customers/a.json": lines(_dynamodb("a", 5, 1), _dynamodb("b", 6, 1))},
        {"customers/b.json": lines(_dynamodb("a", 7, 2))},
        ("id",),
        {("a",): {"qty": 7}, ("b",): {"qty": 6}},
    ),
]  # fmt: skip
# What nothing can be made of as it is: `init` names the command that mends it, and each file is mended by it.
CONVERTED = [
    DeliveredFeed(
        "UTF-16 of a spreadsheet",
        {"customers/Customers.csv": f"{_NAMED}1,Zoë,{_AT}\r\n2,Bob,{_AT}\r\n".encode("utf-16")},
        {"customers/Customers (2).csv": f"{_NAMED}2,Bört,{_LATER}\r\n".encode("utf-16")},
        ("id",),
        {(1,): {"name": "Zoë"}, (2,): {"name": "Bört"}},
    ),
    DeliveredFeed(
        "blanks behind the commas",
        {"people/a.csv": f"id, name, updated_at\n1, Ann, {_AT}\n2, Bob, {_AT}\n"},
        {"people/b.csv": f"id, name, updated_at\n2, Bert, {_LATER}\n"},
        ("id",),
        {(1,): {"name": "Ann"}, (2,): {"name": "Bert"}},
    ),
]  # fmt: skip
