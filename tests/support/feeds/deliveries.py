"""Feeds as a reader writes them who has never seen the program. Each knows what its table must contain."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Rows = dict[Any, dict[str, Any]]


@dataclass(frozen=True)
class DeliveredFeed:
    """A feed as two deliveries of files.

    first, second: files by name, as they land.
    truth: the columns that must be right, by the key.
    key: the columns of the key.
    answers: what a person answers `init --interactive`; None: it needs none.
    """

    name: str
    first: Mapping[str, bytes | str]
    second: Mapping[str, bytes | str]
    key: tuple[str, ...]
    truth: Rows
    answers: str | None = None

    def land(self, folder: Path, files: Mapping[str, bytes | str]) -> None:
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.encode() if isinstance(data, str) else data)


def lines(*rows: Mapping[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _parquet(schema: pa.Schema, *rows: Mapping[str, Any]) -> bytes:
    stream = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema), stream)
    return bytes(stream.getvalue().to_pybytes())


_SQL_SERVER = "__$start_lsn,__$seqval,__$operation,__$update_mask,id,name,modified\n"
_SENSOR = pa.schema({
    "sensor": pa.dictionary(pa.int8(), pa.string()), "day": pa.date32(), "value": pa.float32(), "ok": pa.bool_(),
    "seq": pa.uint32(), "tags": pa.list_(pa.string()),
}.items())  # fmt: skip


def _sensor(sensor: str, seq: int, value: float) -> dict[str, Any]:
    return {"sensor": sensor, "day": None, "value": value, "ok": True, "seq": seq, "tags": ["a"]}


def _issue(number: int, state: str, at: str, closed: str | None = None) -> dict[str, Any]:
    return {
        "id": 9000 + number, "number": number, "title": "x", "state": state, "user": {"login": "ann"},
        "labels": ["bug"], "created_at": "2026-10-01T00:00:00Z", "updated_at": at, "closed_at": closed,
    }  # fmt: skip


def _customer(number: int, name: str, city: str | None, at: str) -> dict[str, Any]:
    address = {"city": city} if city else None
    return {"customerId": number, "name": name, "address": address, "tags": ["a"] if city else [], "updatedAt": at}


DELIVERIES = [
    DeliveredFeed(
        "a key of two columns",
        {"order_lines/a.csv": "order_id,line_no,sku,qty,modified_at\n1,1,x,2,2026-11-01T08:00:00Z\n"
                              "1,2,y,1,2026-11-01T08:00:00Z\n2,1,x,5,2026-11-01T08:00:00Z\n"},
        {"order_lines/b.csv": "order_id,line_no,sku,qty,modified_at\n1,2,y,7,2026-11-02T08:00:00Z\n"},
        ("order_id", "line_no"),
        {(1, 1): {"qty": 2}, (1, 2): {"qty": 7}, (2, 1): {"qty": 5}},
        "order_id, line_no\n\n",
    ),
    DeliveredFeed(
        "camel case, objects and lists, CRLF and a byte order mark",
        {"customers/c1.json": "\ufeff" + lines(
            _customer(1, "Ann", "Bonn", "2026-11-01T08:00:00.5Z"), _customer(2, "Bob", None, "2026-11-01T08:00:00Z"),
        ).replace("\n", "\r\n")},
        {"customers/c2.json": lines(
            _customer(2, "Bert", "Ulm", "2026-11-02T08:00:00Z")
        )},
        ("customerId",),
        {(1,): {"name": "Ann", "address": '{"city": "Bonn"}'}, (2,): {"name": "Bert", "address": '{"city": "Ulm"}'}},
    ),
    DeliveredFeed(
        "French: semicolons, decimal commas, days first",
        {"clients/clients.csv": "id;nom;solde;modifié_le\n1;Zoé;1.234,50;13/11/2026 08:00\n"
                                "2;Léa;0,99;14/11/2026 09:30\n".encode("cp1252")},
        {"clients/clients (1).csv": "id;nom;solde;modifié_le\n2;Léa;1,99;15/11/2026 09:30\n".encode("cp1252")},
        ("id",),
        {(1,): {"nom": "Zoé", "solde": Decimal("1234.50")}, (2,): {"nom": "Léa", "solde": Decimal("1.99")}},
        "\n\n\n",
    ),
    DeliveredFeed(
        "headings for people",
        {"payments/unified_payments.csv": "id,Created date (UTC),Amount,Currency,Updated (UTC),Customer Email\n"
         "ch_1,2026-11-01 08:00,12.50,usd,2026-11-01 08:00,a@x.org\n"
         "ch_2,2026-11-01 08:01,3.00,eur,2026-11-01 08:02,b@x.org\n"},
        {"payments/unified_payments (1).csv": "id,Created date (UTC),Amount,Currency,Updated (UTC),Customer Email\n"
         "ch_2,2026-11-01 08:01,0.00,eur,2026-11-02 08:02,b@x.org\n"},
        ("id",),
        {("ch_1",): {"Currency": "usd"}, ("ch_2",): {"Currency": "eur", "Customer_Email": "b@x.org"}},
        "\nUpdated (UTC)\n",
    ),
    DeliveredFeed(
        "names of an API, null among times",
        {"issues/2026-11-01-8.json": lines(_issue(1, "open", "2026-11-01T08:00:00Z"),
                                            _issue(2, "open", "2026-11-01T08:00:01Z"))},
        {"issues/2026-11-01-9.json": lines(_issue(1, "closed", "2026-11-01T09:00:00Z", "2026-11-01T09:00:00Z"))},
        ("id",),
        {(9001,): {"state": "closed"}, (9002,): {"state": "open"}},
    ),
    DeliveredFeed(
        "seconds since 1970, .ndjson",
        {"readings/sensors-2026-11-01.ndjson": lines({"sensor_id": "s1", "ts": 1793520000, "c": 1.5},
                                                      {"sensor_id": "s2", "ts": 1793520000, "c": 2})},
        {"readings/sensors-2026-11-02.ndjson": lines({"sensor_id": "s1", "ts": 1793606400, "c": -3.25})},
        ("sensor_id",),
        {("s1",): {"c": -3.25}, ("s2",): {"c": 2.0}},
        "sensor_id\n\n\n\n",
    ),
    DeliveredFeed(
        "upper case, leading zeros, numbers for days",
        {"KUNDEN/KUNDEN_20261101.CSV": "KUNNR|NAME1|AEDAT\n0000004711|Meier|20261101\n0000004712|Huber|20261101\n"},
        {"KUNDEN/KUNDEN_20261102.CSV": "KUNNR|NAME1|AEDAT\n0000004712|Huber AG|20261102\n"},
        ("KUNNR",),
        {("0000004711",): {"NAME1": "Meier"}, ("0000004712",): {"NAME1": "Huber AG"}},
        "KUNNR\nAEDAT\n",
    ),
    DeliveredFeed(
        "SQL Server's change tables",
        {"customers/cdc_1.csv": _SQL_SERVER + "0x01,0x01,2,0x07,1,Ann,2026-11-01 08:00:00.000\n"
                                              "0x02,0x01,2,0x07,2,Bob,2026-11-01 08:01:00.000\n"},
        {"customers/cdc_2.csv": _SQL_SERVER + "0x03,0x01,3,0x02,1,Ann,2026-11-01 08:00:00.000\n"
                                              "0x03,0x02,4,0x02,1,Anna,2026-11-02 08:00:00.000\n"
                                              "0x04,0x01,1,0x07,2,Bob,2026-11-01 08:01:00.000\n"},
        ("id",),
        {(1,): {"name": "Anna"}},
    ),
    DeliveredFeed(
        "a stream of Snowflake",
        {"customers/data_0_0_0.csv.gz": gzip.compress(
            b"ID,NAME,UPDATED_AT,METADATA$ACTION,METADATA$ISUPDATE,METADATA$ROW_ID\n"
            b"1,Ann,2026-11-01 08:00:00.000,INSERT,false,r1\n2,Bob,2026-11-01 08:01:00.000,INSERT,false,r2\n")},
        {"customers/data_0_0_1.csv.gz": gzip.compress(
            b"ID,NAME,UPDATED_AT,METADATA$ACTION,METADATA$ISUPDATE,METADATA$ROW_ID\n"
            b"1,Ann,2026-11-01 08:00:00.000,DELETE,true,r1\n1,Anna,2026-11-02 08:00:00.000,INSERT,true,r1\n"
            b"2,Bob,2026-11-01 08:01:00.000,DELETE,false,r2\n")},
        ("ID",),
        {(1,): {"NAME": "Anna"}},
    ),
    DeliveredFeed(
        "parquet with categories, small numbers, days and lists",
        {"readings/part.0.parquet": _parquet(_SENSOR, _sensor("a", 1, 0.5), _sensor("b", 2, 1.5))},
        {"readings/part.1.parquet": _parquet(_SENSOR, _sensor("a", 3, 2.5))},
        ("sensor",),
        {("a",): {"value": 2.5, "tags": ["a"]}, ("b",): {"value": 1.5}},
        "sensor\nseq\n",
    ),
    DeliveredFeed(
        "yes and no, blank lines",
        {"members/members.csv": "member_id,active,changed_on\n1,yes,2026-11-01\n\n2,no,2026-11-01\n"},
        {"members/members2.csv": "member_id,active,changed_on\n2,yes,2026-11-02\n\n"},
        ("member_id",),
        {(1,): {"active": "yes"}, (2,): {"active": "yes"}},
    ),
    DeliveredFeed(
        "quotes with line ends and delimiters in them",
        {"notes/notes.csv": 'id,text,updated_at\n1,"a, b\nc ""d""",2026-11-01T08:00:00Z\n'
                            "2,plain,2026-11-01T08:00:00Z\n"},
        {"notes/notes.2.csv": 'id,text,updated_at\n2,"x\n\ny",2026-11-02T08:00:00Z\n'},
        ("id",),
        {(1,): {"text": 'a, b\nc "d"'}, (2,): {"text": "x\n\ny"}},
    ),
    DeliveredFeed(
        "two partitions of a topic, values alone",
        {"t/partition=0/shop.users+0+0000000000.json": lines({"id": 1, "name": "a"}, {"id": 2, "name": "b"}),
         "t/partition=1/shop.users+1+0000000000.json": lines({"id": 3, "name": "c"})},
        {"t/partition=1/shop.users+1+0000000001.json": lines({"id": 3, "name": "d"})},
        ("id",),
        {(1,): {"name": "a"}, (2,): {"name": "b"}, (3,): {"name": "d"}},
    ),
    DeliveredFeed(
        "fields that come later",
        {"users/1.jsonl": lines({"id": 1, "name": "a", "updated_at": "2026-11-01T08:00:00Z"},
                                 {"id": 2, "name": "b", "mail": "b@x", "updated_at": "2026-11-01T08:00:00Z"})},
        {"users/2.jsonl": lines({"id": 1, "name": "a", "mail": "a@x", "updated_at": "2026-11-02T08:00:00Z"})},
        ("id",),
        {(1,): {"mail": "a@x"}, (2,): {"mail": "b@x"}},
        "\npartial\n\n",
    ),
    DeliveredFeed(
        "a version counter instead of a time",
        {"stock/stock_v1.csv": "sku,qty,version\nA1,5,1\nB2,7,1\n"},
        {"stock/stock_v2.csv": "sku,qty,version\nA1,4,2\n"},
        ("sku",),
        {("A1",): {"qty": 4}, ("B2",): {"qty": 7}},
        "sku\n\n",
    ),
]  # fmt: skip
