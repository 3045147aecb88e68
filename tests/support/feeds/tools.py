"""The same life of a table as other programs export it, with the names and the forms that each of them has."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq

from support.feeds.ordinary import (
    FIRST,
    Event,
    OrdinaryFeed,
    Row,
    arrow_rows,
    csv_text,
    envelope,
    json_row,
    lines,
    put,
    truth,
)

_WORDS = {"I": "insert", "U": "update", "D": "delete"}


def _kept(part: int, events: Sequence[Event]) -> list[Row]:
    """What the table has after a part, as an export of the whole table finds it."""
    return list(truth(events if part == 1 else [*FIRST, *events]).values())


def _fluent_bit(folder: Path, events: Sequence[Event], part: int) -> None:
    """Output plugin s3, `json_date_format iso8601`, `s3_key_format /logs/$TAG/%Y/%m/%d/%H_%M_%S_$UUID.jsonl.gz`."""
    rows = [{"date": f"2026-11-0{part}T08:00:0{i % 10}.000000Z", "op": _WORDS[e.op], **json_row(e.row)}
            for i, e in enumerate(events)]  # fmt: skip
    name = f"logs/orders/2026/11/0{part}/08_00_00_Xe{part}4QwZb.jsonl.gz"
    put(folder / name, gzip.compress(lines(rows).encode()))


def _vector(folder: Path, events: Sequence[Event], part: int) -> None:
    """Sink aws_s3, encoding json, framing newline_delimited: its names end in `.log.gz`."""
    rows = [{"host": "db1", "source_type": "kafka", "timestamp": f"2026-11-0{part}T09:00:00.{i:03d}Z", "op": e.op,
             **json_row(e.row)} for i, e in enumerate(events)]  # fmt: skip
    name = f"orders/date=2026-11-0{part}/179352000{part}-30f6652c-71da-4f9f-800d-a1189c47c54{part}.log.gz"
    put(folder / name, gzip.compress(lines(rows).encode()))


def _logstash(folder: Path, events: Sequence[Event], part: int) -> None:
    """Output s3, codec json_lines: its names end in `.txt`, its columns begin with `@`."""
    rows = [{"@timestamp": f"2026-11-0{part}T09:00:00.{i:03d}Z", "@version": "1", "op": e.op, **json_row(e.row)}
            for i, e in enumerate(events)]  # fmt: skip
    name = f"orders/ls.s3.312bc026-2f5d-49bc-ae9f-5940cf4ad9a{part}.2026-11-0{part}T08.00.part0.txt"
    put(folder / name, lines(rows))


def _airbyte_row(event: Event, number: int) -> Row:
    row = json_row(event.row)
    at = row["updated_at"]
    return {**row, "_ab_cdc_lsn": 1000 + number, "_ab_cdc_updated_at": at,
            "_ab_cdc_deleted_at": at if event.op == "D" else None}  # fmt: skip


def _airbyte_json(folder: Path, events: Sequence[Event], part: int) -> None:
    """Destination S3, JSON lines, no flattening: the row is in `_airbyte_data`; a deleted one has an instant."""
    first = (part - 1) * len(FIRST)
    rows = [
        {"_airbyte_raw_id": f"0b2f6c1e-0000-4000-8000-{first + i:012d}", "_airbyte_extracted_at": 1793520000000 + i,
         "_airbyte_meta": {"changes": [], "sync_id": part}, "_airbyte_generation_id": 1,
         "_airbyte_data": _airbyte_row(e, first + i)}
        for i, e in enumerate(events)
    ]  # fmt: skip
    put(folder / f"public/orders/2026_11_0{part}_179352000{part}000_0.jsonl.gz", gzip.compress(lines(rows).encode()))


def _airbyte_parquet(folder: Path, events: Sequence[Event], part: int) -> None:
    """Destination S3, Parquet, flattened: a deleted row has an instant in `_ab_cdc_deleted_at`."""
    first = (part - 1) * len(FIRST)
    rows = []
    for i, event in enumerate(events):
        at = event.row["updated_at"]
        rows.append({
            "_airbyte_raw_id": f"0b2f6c1e-0000-4000-8000-{first + i:012d}", "_airbyte_generation_id": 1,
            **event.row, "_ab_cdc_lsn": 1000 + first + i, "_ab_cdc_updated_at": at,
            "_ab_cdc_deleted_at": at if event.op == "D" else None,
        })  # fmt: skip
    path = folder / f"public/orders/2026_11_0{part}_179352000{part}000_0.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.Table.from_pylist(rows).schema
    index = schema.get_field_index("_ab_cdc_deleted_at")
    schema = schema.set(index, pa.field("_ab_cdc_deleted_at", pa.timestamp("us", "UTC")))
    pq.write_table(pa.Table.from_pylist(rows, schema), path, compression="gzip")


def _meltano_jsonl(folder: Path, events: Sequence[Event], part: int) -> None:
    """target-jsonl with `add_record_metadata`: `_sdc_deleted_at` of a tap with log-based replication."""
    first = (part - 1) * len(FIRST)
    rows = []
    for i, event in enumerate(events):
        at = f"2026-11-0{part}T09:00:00.{i:06d}+00:00"
        rows.append({
            **json_row(event.row), "_sdc_extracted_at": at, "_sdc_received_at": at, "_sdc_batched_at": at,
            "_sdc_deleted_at": at if event.op == "D" else None, "_sdc_sequence": 1793520000000 + first + i,
            "_sdc_table_version": None, "_sdc_sync_started_at": 1793519999000 + part,
        })  # fmt: skip
    put(folder / f"orders/orders-2026110{part}T080000.jsonl", lines(rows))


def _singer_messages(folder: Path, events: Sequence[Event], part: int) -> None:
    """What a tap prints, as it is: records among schemas and states."""
    schema = {"type": "SCHEMA", "stream": "orders", "schema": {"properties": {}}, "key_properties": ["order_id"]}
    records = [{"type": "RECORD", "stream": "orders", "record": json_row(e.row)} for e in events]
    state = {"type": "STATE", "value": {"bookmarks": {"orders": part}}}
    put(folder / f"orders/tap-output-{part}.jsonl", lines([schema, *records, state]))


def _fivetran_csv(folder: Path, events: Sequence[Event], part: int) -> None:
    out = io.StringIO()
    names = ["order_id", "customer", "total", "status", "updated_at", "_fivetran_deleted", "_fivetran_synced"]
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for i, event in enumerate(events):
        at = f"{event.row['updated_at']:%Y-%m-%dT%H:%M:%S.%f}Z"
        writer.writerow({**event.row, "updated_at": at, "_fivetran_deleted": str(event.op == "D").lower(),
                         "_fivetran_synced": f"2026-11-0{part}T09:00:00.{i:06d}Z"})  # fmt: skip
    put(folder / f"orders/orders_{part}.csv", out.getvalue())


def _snowflake(folder: Path, events: Sequence[Event], part: int) -> None:
    """`COPY INTO @stage`: `data_0_0_0.csv.gz`, null as backslash N, the zone behind a blank, no header."""
    text = csv_text(events, header=True, null="\\N", at=lambda at: f"{at:%Y-%m-%d %H:%M:%S}.000 +0000")
    put(folder / f"orders/run={part}/data_0_0_0.csv.gz", gzip.compress(text.encode()))


def _bigquery_csv(folder: Path, events: Sequence[Event], part: int) -> None:
    """`EXPORT DATA ... format='CSV'`: instants end in `UTC`."""
    text = csv_text(events, at=lambda at: f"{at:%Y-%m-%d %H:%M:%S} UTC")
    put(folder / f"orders/2026-11-0{part}/orders-000000000000.csv", text)


def _bigquery_json(folder: Path, events: Sequence[Event], part: int) -> None:
    """`format='JSON'`: 64 bit numbers and numerics are texts."""
    rows = [{"op": e.op, **e.row, "order_id": str(e.row["order_id"]), "total": str(e.row["total"]),
             "updated_at": f"{e.row['updated_at']:%Y-%m-%d %H:%M:%S} UTC"} for e in events]  # fmt: skip
    put(folder / f"orders/2026-11-0{part}/orders-000000000000.json", lines(rows))


def _redshift(folder: Path, events: Sequence[Event], part: int) -> None:
    """`UNLOAD ... HEADER DELIMITER '|' ADDQUOTES GZIP EXTENSION 'csv.gz'`."""
    text = csv_text(events, delimiter="|", quoting=csv.QUOTE_ALL)
    put(folder / f"orders/unload_{part}/0000_part_00.csv.gz", gzip.compress(text.encode()))
    put(folder / f"orders/unload_{part}/_manifest", "{}")


def _mysql_batch(folder: Path, events: Sequence[Event], part: int) -> None:
    """`mysql --batch -e 'SELECT ...' > orders.tsv`: tabs, no quotes, NULL as a word."""
    text = csv_text(events, delimiter="\t", null="NULL", quoting=csv.QUOTE_NONE)
    put(folder / f"orders/orders_2026110{part}.tsv", text)


def _psql_csv(folder: Path, events: Sequence[Event], part: int) -> None:
    """`psql --csv` of a table with `timestamptz` at another zone."""
    text = csv_text(events, at=lambda at: f"{at.replace(hour=at.hour + 1):%Y-%m-%d %H:%M:%S.%f}+01")
    put(folder / f"orders/orders.{part}.csv", text)


def _quoted(row: Row) -> Row:
    return {**row, "status": row["status"] + ' "or so", 5" long'}


def _spark_csv(folder: Path, events: Sequence[Event], part: int) -> None:
    """`df.write.option("header", True).csv(...)`: quotes inside a value are escaped by a backslash."""
    changed = [Event(e.op, _quoted(e.row)) for e in events]
    text = csv_text(changed, at=lambda at: f"{at:%Y-%m-%dT%H:%M:%S}.000Z").replace('""', '\\"')
    put(folder / f"orders/batch={part}/part-00000-4c1d0f0e-9d5d-4b0e-a6b0-0c7b2fbd1d0{part}-c000.csv", text)
    put(folder / f"orders/batch={part}/_SUCCESS", "")


def _sql_server(folder: Path, events: Sequence[Event], part: int) -> None:
    """Results of SSMS saved as CSV: byte order mark, CRLF, NULL as a word, datetime2(7)."""
    text = csv_text(events, null="NULL", lineterminator="\r\n", at=lambda at: f"{at:%Y-%m-%d %H:%M:%S}.0000000")
    put(folder / f"orders/orders {part}.csv", "\ufeff" + text)


def _oracle(folder: Path, events: Sequence[Event], part: int) -> None:
    """SQL Developer: names in upper case, all texts in quotes, months by name."""
    text = csv_text(events, quoting=csv.QUOTE_NONNUMERIC, at=lambda at: f"{at:%d-%b-%y %I.%M.%S.%f %p}".upper())
    put(folder / f"orders/ORDERS_DATA_TABLE_{part}.CSV", text)


def _spreadsheet_us(folder: Path, events: Sequence[Event], part: int) -> None:
    """Excel in the US: `11/13/2026 8:01:00 AM`; no zeros in front."""

    def at(given: datetime) -> str:
        hour = given.hour % 12 or 12
        return f"{given.month}/{given.day + 12}/{given.year} {hour}:{given:%M:%S} {'PM' if given.hour > 11 else 'AM'}"

    put(folder / f"orders/orders ({part}).csv", csv_text(events, lineterminator="\r\n", at=at))


def _salesforce(folder: Path, events: Sequence[Event], part: int) -> None:
    """Data Loader, `queryAll`: all in quotes, `IsDeleted` says what is in the bin."""
    out = io.StringIO()
    names = ["ORDER_ID", "CUSTOMER", "TOTAL", "STATUS", "UPDATED_AT", "ISDELETED", "SYSTEMMODSTAMP"]
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(names)
    for event in events:
        at = f"{event.row['updated_at']:%Y-%m-%dT%H:%M:%S}.000Z"
        cells = [event.row["order_id"], event.row["customer"], event.row["total"], event.row["status"], at]
        writer.writerow([*cells, str(event.op == "D").lower(), at])
    put(folder / f"orders/extract_{part}.csv", out.getvalue())


def _maxwell(folder: Path, events: Sequence[Event], part: int) -> None:
    """Maxwell's daemon, `--producer=file`: the row in `data`, what was there before in `old`."""
    first = (part - 1) * len(FIRST)
    rows = []
    for i, e in enumerate(events, first):
        old = {"old": {"status": "was"}} if e.op == "U" else {}
        rows.append({"database": "shop", "table": "orders", "type": _WORDS[e.op], "ts": 1793520000 + i, "xid": 900 + i,
                     "commit": True, "data": json_row(e.row), **old})  # fmt: skip
    put(folder / f"orders/maxwell-2026-11-0{part}.jsonl", lines(rows))


def _debezium_flat(folder: Path, events: Sequence[Event], part: int) -> None:
    """Debezium Server with `ExtractNewRecordState`, `add.fields`, `delete.handling.mode=rewrite`; batches by uuid."""
    first = (part - 1) * len(FIRST)
    rows = []
    for i, e in enumerate(events, first):
        op = {"I": "c", "U": "u", "D": "d"}[e.op]
        rows.append({**json_row(e.row), "__op": op, "__table": "orders", "__source_ts_ms": 1793520000000 + i,
                     "__db": "shop", "__deleted": str(e.op == "D").lower()})  # fmt: skip
    put(folder / f"debezium-batch/shop.public.orders/{part}f1c9d1e-5b9b-4df2-9d55-7a1c1c1d1e1f.json", lines(rows))


def _debezium_aiven(folder: Path, events: Sequence[Event], part: int) -> None:
    """Aiven's sink, `format.output.type=jsonl`, `format.output.fields=key,value,offset,timestamp`, its usual names."""
    first = (part - 1) * len(FIRST)
    rows = [{"key": {"order_id": e.row["order_id"]}, "value": envelope(e, i), "offset": i,
             "timestamp": "2026-11-01T08:00:00.000Z"} for i, e in enumerate(events, first)]  # fmt: skip
    put(folder / f"shop.public.orders-0-{first}.gz", gzip.compress(lines(rows).encode()))


def _debezium_parquet(folder: Path, events: Sequence[Event], part: int) -> None:
    """Confluent's sink, `ParquetFormat`: envelopes in Parquet."""
    first = (part - 1) * len(FIRST)
    row = pa.struct([("order_id", pa.int32()), ("customer", pa.string()), ("total", pa.float64()),
                     ("status", pa.string()), ("updated_at", pa.timestamp("us", "UTC"))])  # fmt: skip
    source = pa.struct([("connector", pa.string()), ("ts_ms", pa.int64()), ("sequence", pa.string()),
                        ("lsn", pa.int64())])  # fmt: skip
    schema = pa.schema(
        [("before", row), ("after", row), ("source", source), ("op", pa.string()), ("ts_ms", pa.int64())]
    )
    envelopes = [envelope(e, i) for i, e in enumerate(events, first)]
    for one, e in zip(envelopes, events, strict=True):
        for part_of in ("before", "after"):
            one[part_of] = one[part_of] and {**one[part_of], "updated_at": e.row["updated_at"]}
    table = pa.Table.from_pylist(envelopes, schema)
    path = folder / f"topics/shop.public.orders/partition=0/shop.public.orders+0+{first:010d}.snappy.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def _cloud_events(folder: Path, events: Sequence[Event], part: int) -> None:
    """EventBridge and others: the row is in `detail`, the kind of the event beside it."""
    rows = [
        {"version": "0", "id": f"e{part}{i}", "detail-type": "Order", "source": "shop", "account": "1", "region": "eu",
         "time": f"2026-11-0{part}T08:00:{i:02d}Z", "resources": [], "action": _WORDS[e.op] + "d" * (e.op != "I"),
         "detail": json_row(e.row)}
        for i, e in enumerate(events)
    ]  # fmt: skip
    put(folder / f"orders/2026/11/0{part}/08/orders-{part}.jsonl", lines(rows))


def _elasticdump(folder: Path, events: Sequence[Event], part: int) -> None:
    """elasticdump --type=data: the whole index each time, the row in `_source`."""
    rows = [{"_index": "orders", "_id": str(row["order_id"]), "_score": 1, "_source": json_row(row)}
            for row in _kept(part, events)]  # fmt: skip
    put(folder / f"orders/orders_{part}.json", lines(rows))


def _mongoexport(folder: Path, events: Sequence[Event], part: int) -> None:
    """mongoexport --jsonFormat=canonical: numbers, instants and ids are objects."""
    rows = []
    for e in events:
        row = e.row
        at = int(row["updated_at"].timestamp() * 1000)
        rows.append({
            "_id": {"$oid": f"65f0c0de{row['order_id']:016x}"}, "order_id": {"$numberInt": str(row["order_id"])},
            "customer": row["customer"], "total": {"$numberDecimal": str(row["total"])}, "status": row["status"],
            "updated_at": {"$date": {"$numberLong": str(at)}}, "operation": _WORDS[e.op],
        })  # fmt: skip
    put(folder / f"orders/orders_{part}.json", lines(rows))


def _mongoexport_csv(folder: Path, events: Sequence[Event], part: int) -> None:
    """mongoexport --type=csv --fields=...: ids as `ObjectId(...)`, instants in ISO 8601."""
    text = csv_text(events, op="operation", words=_WORDS, at=lambda at: f"{at:%Y-%m-%dT%H:%M:%S}.000Z")
    head, *rows = text.splitlines()
    ids = (f"ObjectId({row.split(',')[1]:0>24})" for row in rows)
    text = "\n".join([f"_id,{head}", *(f"{id_},{row}" for id_, row in zip(ids, rows, strict=True))]) + "\n"
    put(folder / f"orders/orders_{part}.csv", text)


def _polars_parquet(folder: Path, events: Sequence[Event], part: int) -> None:
    frame = polars.DataFrame([{"op": e.op, **e.row} for e in events])
    (folder / "orders").mkdir(parents=True, exist_ok=True)
    frame.write_parquet(folder / f"orders/orders-{part}.zstd.parquet", compression="zstd")


def _duckdb_parquet(folder: Path, events: Sequence[Event], part: int) -> None:
    """`COPY (FROM orders) TO 'orders' (FORMAT parquet, PARTITION_BY (day))`: categories, small whole numbers."""
    rows = arrow_rows(events)
    rows = rows.set_column(0, "op", rows.column("op").dictionary_encode())
    rows = rows.set_column(1, "order_id", rows.column("order_id").cast(pa.int16()))
    path = folder / f"orders/day=2026-11-0{part}/data_0.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, compression="zstd")


def _pandas_lines(folder: Path, events: Sequence[Event], part: int) -> None:
    """`frame.to_json(orient="records", lines=True)`: instants are milliseconds."""
    frame = pd.DataFrame([{"op": e.op, **e.row, "total": float(e.row["total"])} for e in events])
    (folder / "orders").mkdir(parents=True, exist_ok=True)
    frame.to_json(folder / f"orders/orders_{part}.json", orient="records", lines=True, date_unit="ms")


def _dbt_snapshot(folder: Path, events: Sequence[Event], part: int) -> None:
    """An export of a dbt snapshot: every version of a row, with where it begins and ends."""
    rows = []
    for e in (e for e in ([*FIRST, *events] if part == 2 else events) if e.op != "D"):
        at = f"{e.row['updated_at']:%Y-%m-%d %H:%M:%S}"
        rows.append({**e.row, "updated_at": at, "dbt_scd_id": f"{e.row['order_id']:04x}{e.row['status']}",
                     "dbt_updated_at": at, "dbt_valid_from": at, "dbt_valid_to": ""})  # fmt: skip
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    put(folder / f"orders/orders_snapshot_{part}.csv", out.getvalue())


def _hourly_csv(folder: Path, events: Sequence[Event], part: int) -> None:
    """An hour a file, the day as folders, an hour that brings only its header."""
    put(folder / f"orders/2026/11/0{part}/orders-2026110{part}T07.csv", csv_text([]))
    for hour, some in enumerate((events[:5], events[5:]), 8):
        put(folder / f"orders/2026/11/0{part}/orders-2026110{part}T{hour:02d}.csv", csv_text(some))


def _array_of_rows(folder: Path, events: Sequence[Event], part: int) -> None:
    """An API's answer: one array of objects."""
    put(folder / f"orders/orders_{part}.json", json.dumps([{"op": e.op, **json_row(e.row)} for e in events], indent=1))


def _firehose(folder: Path, events: Sequence[Event], part: int) -> None:
    """Kinesis Firehose without a delimiter: objects one behind the other, on one line."""
    text = "".join(json.dumps({"op": e.op, **json_row(e.row)}) for e in events)
    put(folder / f"orders/orders-{part}-2026-11-01-08-00-00-0f1e.json", text)


TOOL_FEEDS = [
    OrdinaryFeed("fluent bit, s3", _fluent_bit),
    OrdinaryFeed("vector, s3", _vector, answers="\n\n\nupdated_at\n"),
    OrdinaryFeed("logstash, s3", _logstash),
    OrdinaryFeed("airbyte, json lines", _airbyte_json),
    OrdinaryFeed("airbyte, parquet", _airbyte_parquet),
    OrdinaryFeed("meltano, target-jsonl", _meltano_jsonl),
    OrdinaryFeed("singer, messages as printed", _singer_messages, deletes=False),
    OrdinaryFeed("fivetran, csv", _fivetran_csv),
    OrdinaryFeed("snowflake, copy into", _snowflake),
    OrdinaryFeed("bigquery, csv", _bigquery_csv),
    OrdinaryFeed("bigquery, json", _bigquery_json, told=lambda row: {**row, "order_id": str(row["order_id"])}),
    OrdinaryFeed("redshift, unload", _redshift),
    OrdinaryFeed("mysql --batch", _mysql_batch),
    OrdinaryFeed("psql --csv", _psql_csv),
    OrdinaryFeed("spark, csv", _spark_csv, told=_quoted),
    OrdinaryFeed("sql server, ssms", _sql_server),
    OrdinaryFeed("oracle, sql developer", _oracle),
    OrdinaryFeed("excel, us", _spreadsheet_us),
    OrdinaryFeed("salesforce, data loader", _salesforce, answers="\n\nsystemmodstamp\n".upper()),
    OrdinaryFeed("maxwell", _maxwell),
    OrdinaryFeed("debezium server, flat", _debezium_flat),
    OrdinaryFeed("debezium, aiven", _debezium_aiven),
    OrdinaryFeed("debezium, parquet", _debezium_parquet),
    OrdinaryFeed("event bus, detail", _cloud_events),
    OrdinaryFeed("elasticdump", _elasticdump, deletes=False),
    OrdinaryFeed("mongoexport, csv", _mongoexport_csv, answers="\norder_id\n\n"),
    OrdinaryFeed("polars, parquet", _polars_parquet),
    OrdinaryFeed("duckdb, parquet", _duckdb_parquet),
    OrdinaryFeed("pandas, json lines", _pandas_lines),
    OrdinaryFeed("dbt snapshot, csv", _dbt_snapshot, deletes=False),
    OrdinaryFeed("csv, hourly, an empty hour", _hourly_csv),
]
# What nothing can be made of, with what `init` says and what its advice makes of it.
TOOL_FEEDS += [
    OrdinaryFeed("mongoexport, extended JSON", _mongoexport, answers="\norder_id\n\n"),
    OrdinaryFeed("array of rows", _array_of_rows),
    OrdinaryFeed("firehose without delimiter", _firehose),
]
