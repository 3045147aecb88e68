"""Ordinary feeds: the same short history of a table, as different programs write it. Each has two parts."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

Row = dict[str, Any]
_BEGIN = datetime(2026, 11, 1, 8, tzinfo=UTC)


@dataclass(frozen=True)
class Event:
    """What happened to a row: `op` I, U or D, in the order of `row["updated_at"]`."""

    op: str
    row: Row


def _row(number: int, minute: int, status: str) -> Row:
    total = Decimal(number) + Decimal("0.50")
    at = _BEGIN + timedelta(minutes=minute)
    return {"order_id": number, "customer": f"Zoë {number % 3}", "total": total, "status": status, "updated_at": at}


# The first part: 12 rows, 3 of them paid. The second: deletes, updates and new rows of the day after.
FIRST = [
    *(Event("I", _row(i, i, "new")) for i in range(1, 13)),
    *(Event("U", _row(i, 20 + i, "paid")) for i in (2, 5, 7)),
]
SECOND = [
    *(Event("D", _row(i, 1440 + i, "gone")) for i in (1, 2, 12)),
    *(Event("U", _row(i, 1460 + i, "sent")) for i in (3, 5)),
    *(Event("I", _row(i, 1480 + i, "new")) for i in (20, 21)),
]


def truth(events: Iterable[Event]) -> dict[int, Row]:
    """Returns the expected rows of the table."""
    rows: dict[int, Row] = {}
    for event in sorted(events, key=lambda event: event.row["updated_at"]):
        if event.op == "D":
            rows.pop(event.row["order_id"], None)
        else:
            rows[event.row["order_id"]] = event.row
    return rows


Write = Callable[[Path, Sequence[Event], int], None]


@dataclass(frozen=True)
class OrdinaryFeed:
    """A feed: how its files are written, part after part (1, 2).

    deletes: whether it contains deletes.
    answers: a person's answers to `init --interactive`; None: it needs none.
    told: a row as this feed shows it, if it cannot show all of it.
    """

    name: str
    write: Write
    deletes: bool = True
    answers: str | None = None
    told: Callable[[Row], Row] = lambda row: row

    def truth(self, events: Iterable[Event]) -> dict[Any, Row]:
        """Returns the expected rows of the table."""
        rows = map(self.told, truth(events).values())
        return {row["order_id"]: row for row in rows}

    def events(self, part: int) -> list[Event]:
        found = FIRST if part == 1 else SECOND
        return [event for event in found if self.deletes or event.op != "D"]


def put(path: Path, data: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)


def csv_text(
    events: Sequence[Event],
    *,
    op: str | None = "op",
    header: bool = True,
    words: dict[str, str] | None = None,
    at: Callable[[datetime], str] = lambda at: f"{at:%Y-%m-%d %H:%M:%S}",
    null: str = "",
    **dialect: Any,
) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, **{"lineterminator": "\n", **dialect})
    names = [*([op] if op else []), "order_id", "customer", "total", "status", "updated_at", "note"]
    if header:
        writer.writerow(names)
    for event in events:
        cells = {**event.row, "updated_at": at(event.row["updated_at"]), "note": null}
        cells |= {op: (words or {}).get(event.op, event.op)} if op else {}
        writer.writerow([cells[name] for name in names])
    return stream.getvalue()


def _daily_csv(folder: Path, events: Sequence[Event], part: int) -> None:
    put(folder / f"orders/orders_2026-11-0{part}.csv", csv_text(events))


def _late_and_overlapping(folder: Path, events: Sequence[Event], part: int) -> None:
    """The second part repeats records that were sent before, and an older file lands last."""
    again = [*FIRST[6:], *events] if part == 2 else events[:8]
    put(folder / f"orders/orders-{part}.csv", csv_text(again))
    if part == 2:
        put(folder / "orders/orders-0.csv", csv_text(FIRST[:7]))


def _excel(folder: Path, events: Sequence[Event], part: int) -> None:
    text = csv_text(events, delimiter=";", lineterminator="\r\n", at=lambda at: f"{at:%d.%m.%Y %H:%M:%S}")
    day = 13 + part  # Above 12: nothing is left to ask.
    text = text.replace("01.11.2026", f"{day}.11.2026").replace("02.11.2026", f"{day}.11.2026")
    put(folder / f"orders/Export {part}.csv", text.encode("cp1252"))


def _postgres_copy(folder: Path, events: Sequence[Event], part: int) -> None:
    text = csv_text(events, delimiter="\t", null="\\N", at=lambda at: f"{at:%Y-%m-%d %H:%M:%S}+00")
    put(folder / f"orders/2026/11/0{part}/orders.csv", text)


def _no_header(folder: Path, events: Sequence[Event], part: int) -> None:
    put(folder / f"orders/{part:06d}.csv", csv_text(events, header=False, delimiter="|"))


def _all_quoted(folder: Path, events: Sequence[Event], part: int) -> None:
    text = "\ufeff" + csv_text(events, quoting=csv.QUOTE_ALL, words={"I": "insert", "U": "update", "D": "delete"})
    put(folder / f"orders/orders_{part}.csv.gz", gzip.compress(text.encode()))


def _dms(folder: Path, events: Sequence[Event], part: int) -> None:
    name = f"LOAD0000000{part}.csv" if part == 1 else "20261102-080000123.csv"
    put(folder / "orders" / name, csv_text(events, op="Op", at=lambda at: f"{at:%Y-%m-%d %H:%M:%S.%f}"))


def _pandas_csv(folder: Path, events: Sequence[Event], part: int) -> None:
    frame = pd.DataFrame([{**e.row, "total": float(e.row["total"]), "__deleted": e.op == "D"} for e in events])
    frame["updated_at"] = frame["updated_at"].dt.tz_localize(None)
    (folder / "orders").mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / f"orders/part-{part}.csv", index=False)


def _dump(folder: Path, events: Sequence[Event], part: int) -> None:
    """Writes a whole dump each day: all current rows, including unchanged ones."""
    rows = truth(FIRST if part == 1 else [*FIRST, *events])
    put(folder / f"orders/dump-2026-11-0{part}.csv", csv_text([Event("I", row) for row in rows.values()], op=None))


def json_row(row: Row) -> Row:
    return {**row, "total": float(row["total"]), "updated_at": row["updated_at"].isoformat()}


def lines(rows: Iterable[Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _kafka_rows(folder: Path, events: Sequence[Event], part: int) -> None:
    begin, place = (part - 1) * len(FIRST), {"topic": "shop.orders", "partition": 0}
    listed = [
        {**place, "offset": begin + i, "key": {"order_id": e.row["order_id"]},
         "value": None if e.op == "D" else json_row(e.row)}
        for i, e in enumerate(events)
    ]  # fmt: skip
    put(folder / f"shop.orders/shop.orders+0+{begin:010d}.jsonl", lines(listed))


def _connect_values(folder: Path, events: Sequence[Event], part: int) -> None:
    """Writes values alone, in the layout of Confluent's sink for object stores."""
    begin = (part - 1) * len(FIRST)
    rows = [{**json_row(e.row), "__deleted": str(e.op == "D").lower()} for e in events]
    put(folder / f"topics/orders/partition=0/orders+0+{begin:010d}.json.gz", gzip.compress(lines(rows).encode()))


def _row_beside_op(folder: Path, events: Sequence[Event], part: int) -> None:
    begin, words = (part - 1) * len(FIRST), {"I": "insert", "U": "update", "D": "delete"}
    listed = [{"op": words[e.op], "sent": "2026-11-01T00:00:00Z", "row": json_row(e.row)} for e in events]
    put(folder / f"orders/orders+0+{begin:010d}.jsonl", lines(listed))


def _daily_lines(folder: Path, events: Sequence[Event], part: int) -> None:
    put(folder / f"orders/orders-2026-11-0{part}.jsonl", lines({"op": e.op.lower(), **json_row(e.row)} for e in events))


def _hourly_lines(folder: Path, events: Sequence[Event], part: int) -> None:
    text = lines({**json_row(e.row), "action": {"I": "created", "U": "updated", "D": "deleted"}[e.op]} for e in events)
    put(folder / f"orders/2026-11-0{part}T08.json.gz", gzip.compress(text.encode()))


_OPS = {"I": "c", "U": "u", "D": "d"}


def envelope(event: Event, number: int, connector: str = "postgresql") -> Row:
    row = json_row(event.row)
    source: Row = {"connector": connector, "ts_ms": number}
    if connector == "postgresql":
        source |= {"sequence": json.dumps([None, str(1000 + number)]), "lsn": 1000 + number}
    else:
        source |= {"file": "binlog.000001", "pos": 1000 + number, "row": 0, "server_id": 1}
    before, after = (row, None) if event.op == "D" else (None, row)
    return {"before": before, "after": after, "op": _OPS[event.op], "source": source, "ts_ms": number}


def _debezium(layout: str, connector: str = "postgresql", key: bool = True, schema: bool = False) -> Write:
    def write(folder: Path, events: Sequence[Event], part: int) -> None:
        begin = (part - 1) * len(FIRST)
        listed = []
        for number, event in enumerate(events, begin):
            value: Row = envelope(event, number, connector)
            if schema:
                value = {"schema": _SCHEMA, "payload": value}
            place = {"topic": "shop.public.orders", "partition": 0, "offset": number}
            listed.append({**place, "key": {"order_id": event.row["order_id"]}, "value": value} if key else value)
        path = folder / layout.format(offset=f"{begin:010d}")
        data = lines(listed).encode()
        put(path, gzip.compress(data) if path.suffix == ".gz" else data)

    return write


_FIELDS = [
    {"field": "order_id", "type": "int32"},
    {"field": "customer", "type": "string"},
    {"field": "total", "type": "double"},
    {"field": "status", "type": "string"},
    {"field": "updated_at", "type": "string", "name": "io.debezium.time.ZonedTimestamp"},
]
_SCHEMA = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": _FIELDS}]}
_ARROW = pa.schema(
    [
        ("op", pa.string()), ("order_id", pa.int64()), ("customer", pa.string()), ("total", pa.decimal128(12, 2)),
        ("status", pa.string()), ("updated_at", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip


def arrow_rows(events: Sequence[Event]) -> pa.Table:
    return pa.Table.from_pylist([{"op": event.op, **event.row} for event in events], _ARROW)


def _spark_parquet(folder: Path, events: Sequence[Event], part: int) -> None:
    path = folder / f"orders/part-0000{part}-3d0f5c1e-9d0b-4c3a-8b1a-1f0c7f9f0a1b-c000.snappy.parquet"
    put(path.parent / "_SUCCESS", "")
    pq.write_table(arrow_rows(events), path, flavor="spark", use_deprecated_int96_timestamps=True)


def _pandas_parquet(folder: Path, events: Sequence[Event], part: int) -> None:
    frame = pd.DataFrame([{"op": e.op, **e.row} for e in events]).set_index("order_id", drop=False)
    frame.index.name = None
    frame["updated_at"] = frame["updated_at"].dt.tz_localize(None)
    (folder / "orders").mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / f"orders/orders_{part}.parquet")


def _hive_parquet(folder: Path, events: Sequence[Event], part: int) -> None:
    path = folder / f"orders/dt=2026-11-0{part}/hour=08/data.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(arrow_rows(events), path)


def _delta(folder: Path, events: Sequence[Event], part: int) -> None:
    path = str(folder / "orders")
    rows = arrow_rows([e for e in events if e.op != "D"]).drop_columns(["op"])
    if part == 1:
        newest = pa.Table.from_pylist(list(truth(events).values()), rows.schema)
        write_deltalake(path, newest, configuration={"delta.enableChangeDataFeed": "true"})
        return
    table = DeltaTable(path)
    gone = ", ".join(str(e.row["order_id"]) for e in events if e.op == "D")
    table.delete(f"order_id IN ({gone})")
    merge = DeltaTable(path).merge(rows, "t.order_id = s.order_id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


_ANSWERS = "op, order_id, customer, total, status, updated_at, note\n" + 3 * "\n"
FEEDS = [
    OrdinaryFeed("csv, daily names", _daily_csv),
    OrdinaryFeed("csv, late and overlapping files", _late_and_overlapping),
    OrdinaryFeed("csv of a spreadsheet: semicolons, cp1252, days first", _excel),
    OrdinaryFeed("csv of COPY: tabs, backslash N, folders of days", _postgres_copy),
    OrdinaryFeed("csv without a header, pipes, numbered", _no_header, answers=_ANSWERS),
    OrdinaryFeed("csv, all in quotes, byte order mark, gzip", _all_quoted),
    OrdinaryFeed("csv of a database migration service", _dms),
    OrdinaryFeed("csv of pandas, with a mark of deleted rows", _pandas_csv),
    OrdinaryFeed("csv, a dump each day", _dump, deletes=False),
    OrdinaryFeed("json, records of Kafka", _kafka_rows),
    OrdinaryFeed("json, values alone, partition folders, gzip", _connect_values),
    OrdinaryFeed("json, the row beside the op", _row_beside_op),
    OrdinaryFeed("json lines, daily names", _daily_lines),
    OrdinaryFeed("json lines, hourly names, gzip", _hourly_lines),
    OrdinaryFeed(
        "debezium, values alone, names with dashes",
        _debezium("orders/orders-0-{offset}.jsonl.gz", key=False),
    ),
    OrdinaryFeed("debezium, records", _debezium("orders/shop.public.orders+0+{offset}.jsonl")),
    OrdinaryFeed(
        "debezium, values alone, partition folders",
        _debezium("topics/orders/partition=0/orders+0+{offset}.json", key=False),
    ),
    OrdinaryFeed("debezium with schemas", _debezium("orders/shop.public.orders+0+{offset}.json", schema=True)),
    OrdinaryFeed(
        "debezium, values alone with schemas",
        _debezium("orders/shop.public.orders+0+{offset}.json.gz", key=False, schema=True),
    ),
    OrdinaryFeed("debezium of MySQL", _debezium("orders/shop.public.orders+0+{offset}.jsonl.gz", "mysql")),
    OrdinaryFeed("parquet of Spark", _spark_parquet),
    OrdinaryFeed("parquet of pandas", _pandas_parquet),
    OrdinaryFeed("parquet in folders of days", _hive_parquet),
    OrdinaryFeed("a Delta table", _delta),
]
