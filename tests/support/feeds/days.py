"""Sixty kinds of feeds, each with three days of files and the rows that they must become, from one seed."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from support.feeds.ordinary import lines

Row = dict[str, Any]
DAYS = (1, 2, 3)
# The clocks of Berlin went back on the second day: the hour from 2 to 3 came twice.
_FIRST_DAY = datetime(2026, 10, 24, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
_NAMES = ("Zoë Ångström", "O'Neill, Ann", 'Bob "Bo" Ray', "Smith; Co", "a|b", "Müller", "back\\slash", "plain")
_STATES = ("new", "paid", "sent", "returned")


@dataclass(frozen=True)
class Change:
    """What happened to a row: `op` I, U or D."""

    op: str
    row: Row


class History:
    """Changes of three days: `changes[day]`, and the rows after each day: `rows[day]`."""

    def __init__(self, seed: str, *, deletes: bool) -> None:
        self.random = random.Random(seed)
        self.changes: dict[int, list[Change]] = {}
        self.rows: dict[int, dict[int, Row]] = {0: {}}
        for day in DAYS:
            rows, listed = dict(self.rows[day - 1]), list[Change]()
            ops = ["I"] * (14 if day == 1 else 3) + ["U"] * 5 + ["D"] * (2 if deletes else 0)
            changed = self.random.sample(sorted(rows) or range(1, 15), 7)
            for number, op in enumerate(ops):
                key = max(rows, default=0) + 1 if op == "I" else changed[number % 7]
                row = self._row(key, day, number) if op != "D" else {**rows[key], "updated_at": _at(day, number)}
                listed.append(Change(op, row))
                rows[key] = row
                if op == "D":
                    del rows[key]
            self.changes[day], self.rows[day] = listed, rows

    def _row(self, key: int, day: int, number: int) -> Row:
        draw = self.random
        return {
            "order_id": key,
            "customer": _NAMES[(key + number) % len(_NAMES)],
            "amount": Decimal(draw.randrange(-5_000, 2_000_000) + (number == 0) * 100_000_000).scaleb(-2),
            "status": draw.choice(_STATES),
            "nick": None if key % 3 else f"n{key:03}",
            "due": date(2026, 12, 13) + timedelta(days=key),
            "updated_at": _at(day, number),
        }


def _at(day: int, number: int) -> datetime:
    """Times of a day in UTC, 20 minutes apart. None of the second day is in Berlin's doubled hour."""
    return _FIRST_DAY + timedelta(days=day - 1, hours=4, minutes=20 * number, seconds=number)


@dataclass(frozen=True)
class Kind:
    """A kind of feed.

    write: writes the files of one day below the folder.
    deletes: whether it carries deletes.
    leaves_out: columns that it does not carry.
    more: columns that it adds to a row, made of the row and its day.
    all_rows: whether each change is a row of its own.
    edits: what a person changes in the file that `init` wrote: at most two lines, by what they have.
    answers: what a person answers `init --interactive`; empty: it is not asked.
    days: how many days have landed when `init` looks.
    """

    name: str
    write: Callable[[Path, History, int], None]
    deletes: bool = False
    leaves_out: tuple[str, ...] = ()
    more: Callable[[Row, int], Row] = field(default=lambda row, day: {})
    all_rows: bool = False
    edits: Mapping[str, str] = field(default_factory=dict)
    answers: str = ""
    days: int = 3

    def history(self, seed: int) -> History:
        return History(f"{seed} {self.name}", deletes=self.deletes)

    def truth(self, history: History) -> list[Row]:
        """Returns the rows of the table after three days."""
        listed = [(day, c) for day in DAYS for c in history.changes[day]]
        if self.all_rows:
            return [self._shown(change.row, day) for day, change in listed]
        last = {change.row["order_id"]: (day, change.row) for day, change in listed}
        return [self._shown(row, day) for day, row in last.values() if row["order_id"] in history.rows[3]]

    def _shown(self, row: Row, day: int) -> Row:
        return {n: value for n, value in {**row, **self.more(row, day)}.items() if n not in self.leaves_out}


def _put(path: Path, data: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = data.encode() if isinstance(data, str) else data
    if path.suffix == ".gz":
        raw = gzip.compress(raw)
    elif path.suffix == ".zst":
        raw = pa.compress(raw, codec="zstd", asbytes=True)
    path.write_bytes(raw)


def _day(day: int) -> date:
    return (_FIRST_DAY + timedelta(days=day - 1)).date()


_Text = Callable[[Any], str]
_COLUMNS = ("order_id", "customer", "amount", "status", "nick", "due", "updated_at")


def _csv(
    name: str = "orders/orders_{date}.csv",
    *,
    columns: Sequence[str] = _COLUMNS,
    mark: Callable[[Change], Mapping[str, Any]] = lambda change: {},
    texts: Mapping[str, _Text] | None = None,
    null: str = "",
    encoding: str = "utf-8",
    header: bool = True,
    above: str = "",
    extract: bool = False,
    clean: bool = False,
    **dialect: Any,
) -> Callable[[Path, History, int], None]:
    """Writes CSV. mark: columns in front of the row. clean: names without the characters that need quotes."""

    def write(folder: Path, history: History, day: int) -> None:
        listed = [Change("I", row) for row in history.rows[day].values()] if extract else history.changes[day]
        stream = io.StringIO()
        writer = csv.writer(stream, **{"lineterminator": "\n", **dialect})
        stream.write(above)
        names = [*mark(listed[0]), *columns]
        if header:
            writer.writerow(names)
        for change in listed:
            cells = {**mark(change), **change.row}
            writer.writerow([_cell(n, cells[n], texts or {}, null) for n in names])
        path = name.format(date=_day(day), day=day, compact=f"{_day(day):%Y%m%d}")
        _put(folder / path, stream.getvalue().encode(encoding))

    return write


def _cell(name: str, value: Any, texts: Mapping[str, _Text], null: str) -> str:
    if value is None:
        return null
    if name in texts:
        return texts[name](value)
    return f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else str(value)


def _german(value: Decimal) -> str:
    return f"{value:,.2f}".replace(",", "_").replace(".", ",").replace("_", ".")


def _berlin(value: datetime) -> str:
    return f"{value.astimezone(BERLIN):%Y-%m-%d %H:%M:%S}"


def _mysql(folder: Path, history: History, day: int) -> None:
    """As `SELECT ... INTO OUTFILE` with FIELDS ENCLOSED BY and ESCAPED BY a backslash."""

    def text(value: Any) -> str:
        if value is None:
            return "\\N"
        shown = f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else str(value)
        escaped = shown.replace("\\", "\\\\").replace('"', '\\"')
        return escaped if isinstance(value, int | Decimal) else f'"{escaped}"'

    rows = [",".join(text(change.row[name]) for name in _COLUMNS) for change in history.changes[day]]
    _put(folder / f"orders/orders_{_day(day)}.csv", "\n".join([",".join(_COLUMNS), *rows, ""]))


def _spark_parts(folder: Path, history: History, day: int) -> None:
    """An extract of two files in the folder of a day, with the mark of Spark at its end."""
    rows = list(history.rows[day].values())
    for part in range(2):
        history.rows[10 + part] = {row["order_id"]: row for row in rows[part::2]}
        _csv(f"orders/dt={{date}}/part-0000{part}-0f3c.csv", extract=True)(folder, _moved(history, 10 + part, day), day)
    _put(folder / f"orders/dt={_day(day)}/_SUCCESS", "")


def _moved(history: History, number: int, day: int) -> History:
    moved = object.__new__(History)
    moved.rows, moved.changes = {day: history.rows[number]}, history.changes
    return moved


def _json_row(row: Row) -> Row:
    return {
        **row,
        "amount": float(row["amount"]),
        "due": row["due"].isoformat(),
        "updated_at": row["updated_at"].isoformat(),
    }


def _json(
    name: str,
    shape: Callable[[list[Row]], str] = lines,
    *,
    make: Callable[[Change], Any] = lambda change: _json_row(change.row),
    extract: bool = False,
) -> Callable[[Path, History, int], None]:
    def write(folder: Path, history: History, day: int) -> None:
        listed = [Change("I", row) for row in history.rows[day].values()] if extract else history.changes[day]
        begin = sum(len(history.changes[d]) for d in DAYS if d < day)
        path = name.format(date=_day(day), day=day, offset=f"{begin:010d}")
        _put(folder / path, shape([make(change) for change in listed]))

    return write


def _extended(change: Change) -> Row:
    """As mongoexport writes it: relaxed extended JSON."""
    row = _json_row(change.row)
    return {
        "_id": {"$oid": f"{row['order_id']:024x}"},
        **row,
        "amount": {"$numberDecimal": str(change.row["amount"])},
        "due": {"$date": f"{change.row['due']}T00:00:00Z"},
        "updated_at": {"$date": f"{change.row['updated_at']:%Y-%m-%dT%H:%M:%SZ}"},
    }


def _canonical(change: Change) -> Row:
    """As mongoexport --jsonFormat=canonical writes it."""
    at = int(change.row["updated_at"].timestamp() * 1000)
    more = {"order_id": {"$numberInt": str(change.row["order_id"])}, "updated_at": {"$date": {"$numberLong": str(at)}}}
    return {**_extended(change), **more}


def _mongo(row: Row, day: int) -> Row:
    return {
        "id": f"{row['order_id']:024x}",
        "due": datetime(row["due"].year, row["due"].month, row["due"].day, tzinfo=UTC),
    }


def _kafka(change: Change, offset: int, topic: str = "shop.orders") -> Row:
    value = None if change.op == "D" else _json_row(change.row)
    key = {"order_id": change.row["order_id"]}
    return {"topic": topic, "partition": 0, "offset": offset, "timestamp": 1767225600000, "key": key, "value": value}


def _envelope(change: Change, position: int, connector: str) -> Row:
    row = _json_row(change.row)
    source: Row = {"connector": connector, "db": "shop", "table": "orders", "ts_ms": position, "snapshot": "false"}
    if connector == "postgresql":
        source |= {"sequence": json.dumps([None, str(1000 + position)]), "lsn": 1000 + position, "txId": position}
    else:
        source |= {"file": "binlog.000001", "pos": 1000 + position, "row": 0, "server_id": 1}
    before, after = (row, None) if change.op == "D" else (None, row)
    return {
        "before": before,
        "after": after,
        "source": source,
        "op": {"I": "c", "U": "u", "D": "d"}[change.op],
        "ts_ms": position,
    }


_FIELDS = [
    {"field": "order_id", "type": "int32", "optional": False},
    {"field": "customer", "type": "string", "optional": True},
    {"field": "amount", "type": "double", "optional": True},
    {"field": "status", "type": "string", "optional": True},
    {"field": "nick", "type": "string", "optional": True},
    {"field": "due", "type": "string", "optional": True, "name": "io.debezium.time.IsoDate"},
    {"field": "updated_at", "type": "string", "optional": True, "name": "io.debezium.time.ZonedTimestamp"},
]
_SCHEMA = {"type": "struct", "fields": [{"field": "after", "type": "struct", "optional": True, "fields": _FIELDS}]}


def _numbered(
    name: str, make: Callable[[Change, int], Any], shape: Callable[[list[Row]], str] = lines
) -> Callable[[Path, History, int], None]:
    """Writes records that count on from day to day."""

    def write(folder: Path, history: History, day: int) -> None:
        begin = sum(len(history.changes[d]) for d in DAYS if d < day)
        listed = [make(change, begin + i) for i, change in enumerate(history.changes[day])]
        _put(folder / name.format(offset=f"{begin:010d}", date=_day(day), day=day), shape(listed))

    return write


def _unwrapped(change: Change) -> Row:
    at = int(change.row["updated_at"].timestamp() * 1000)
    return {**_json_row(change.row), "__deleted": str(change.op == "D").lower(), "__ts_ms": at}


_ARROW = pa.schema([
    ("order_id", pa.int64()), ("customer", pa.string()), ("amount", pa.decimal128(12, 2)), ("status", pa.string()),
    ("nick", pa.string()), ("due", pa.date32()), ("updated_at", pa.timestamp("us", "UTC")),
])  # fmt: skip


def _parquet(
    name: str, *, op: bool = False, extract: bool = False, columns: Sequence[str] = _COLUMNS, **options: Any
) -> Callable[[Path, History, int], None]:
    def write(folder: Path, history: History, day: int) -> None:
        listed = [Change("I", row) for row in history.rows[day].values()] if extract else history.changes[day]
        table = pa.Table.from_pylist([change.row for change in listed], _ARROW).select(list(columns))
        if op:
            table = table.append_column("op", pa.array([change.op for change in listed]))
        path = folder / name.format(date=_day(day), day=day)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, **options)

    return write


def _delta(change_feed: bool) -> Callable[[Path, History, int], None]:
    def write(folder: Path, history: History, day: int) -> None:
        path, rows = str(folder / "orders"), pa.Table.from_pylist(list(history.rows[day].values()), _ARROW)
        if day == 1 or not change_feed:
            settings = {"delta.enableChangeDataFeed": "true"} if change_feed else {}
            write_deltalake(path, rows, mode="overwrite", configuration=settings if day == 1 else None)
            return
        merge = DeltaTable(path).merge(rows, "t.order_id = s.order_id", source_alias="s", target_alias="t")
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        merge.when_not_matched_by_source_delete().execute()

    return write


def _kinds(*groups: Iterable[Kind]) -> dict[str, Kind]:
    return {kind.name: kind for group in groups for kind in group}


_NO_TIME = ("updated_at",)
_PLAIN = tuple(name for name in _COLUMNS if name not in _NO_TIME)
_ORDERED = {"order: [?]": "order: [updated_at]"}
_words = {"I": "insert", "U": "update", "D": "delete"}

_CSV_KINDS = (
    Kind("csv", _csv()),
    Kind("csv, one day seen", _csv(), days=1),
    Kind("csv, decimal comma", _csv(delimiter=";", texts={"amount": lambda v: str(v).replace(".", ",")})),
    Kind("csv, decimal comma and points", _csv(delimiter=";", texts={"amount": _german})),
    Kind("csv, thousands with commas", _csv(texts={"amount": lambda v: f"{v:,.2f}"})),
    Kind(
        "csv, thousands with apostrophes",
        _csv(delimiter=";", texts={"amount": lambda v: f"{v:,.2f}".replace(",", "'")}),
    ),
    Kind(
        "csv, thousands with blanks",
        _csv(delimiter="\t", texts={"amount": lambda v: f"{v:,.2f}".replace(",", "\u00a0").replace(".", ",")}),
    ),
    Kind(
        "csv, local times",
        _csv(texts={"updated_at": _berlin}),
        edits={"time_zone: UTC": "time_zone: Europe/Berlin"},
    ),
    Kind(
        "csv, local times, days first",
        _csv(texts={"updated_at": lambda v: f"{v.astimezone(BERLIN):%d.%m.%Y %H:%M:%S}"}, delimiter=";"),
        edits={"time_zone: UTC": "time_zone: Europe/Berlin"},
    ),
    Kind("csv, backslash N", _csv(delimiter="\t", null="\\N")),
    Kind("csv, backslash N and escapes", _mysql),
    Kind("csv, the word NULL", _csv(null="NULL")),
    Kind("csv, all in quotes", _csv(quoting=csv.QUOTE_ALL), more=lambda row, day: {"nick": row["nick"] or ""}),
    Kind("csv, tabs", _csv("orders/orders-{date}.tsv", delimiter="\t")),
    Kind("csv, pipes", _csv("orders/{day:06}.csv", delimiter="|")),
    Kind("csv, a mark of the byte order, CRLF", _csv(encoding="utf-8-sig", lineterminator="\r\n")),
    Kind("csv, Latin-1", _csv(encoding="latin-1", delimiter=";")),
    Kind(
        "csv, days first",
        _csv(texts={"due": lambda v: f"{v:%d/%m/%Y}", "updated_at": lambda v: f"{v:%d/%m/%Y %H:%M:%S}"}),
    ),
    Kind("csv, a title above the header", _csv(above="Orders of the shop\n\n")),
    Kind(
        "csv without a header",
        _csv(header=False),
        answers="order_id,customer,amount,status,nick,due,updated_at\n\n\n",
    ),
    Kind("csv, full extracts", _csv(extract=True, columns=_PLAIN), deletes=True, leaves_out=_NO_TIME),
    Kind("csv, full extracts with a change time", _csv("orders/orders-{compact}.csv", extract=True), deletes=True),
    Kind(
        "csv, full extracts, one day seen",
        _csv(extract=True, columns=_PLAIN),
        deletes=True,
        leaves_out=_NO_TIME,
        edits={"format: csv": "format: csv\n      extract: full", "order: ": ""},
        days=1,
    ),
    Kind(
        "csv, full extracts of several files",
        _spark_parts,
        deletes=True,
    ),
    Kind("csv, updates without a time", _csv(columns=_PLAIN), leaves_out=_NO_TIME),
    Kind(
        "csv, updates without a time, numbered", _csv("orders/orders_{day:04}.csv", columns=_PLAIN), leaves_out=_NO_TIME
    ),
    Kind(
        "csv, only inserts",
        _csv("clicks/clicks_{date}.csv", columns=("status", "customer", "amount", "due", "updated_at")),
        leaves_out=("order_id", "nick"),
        all_rows=True,
    ),
    Kind("csv, a flag of deleted rows", _csv(mark=lambda c: {"is_deleted": str(c.op == "D").lower()}), deletes=True),
    Kind(
        "csv, a time of deleted rows",
        _csv(mark=lambda c: {"deleted_at": c.row["updated_at"] if c.op == "D" else None}),
        deletes=True,
    ),
    Kind("csv, operations", _csv(mark=lambda c: {"op": c.op}), deletes=True),
    Kind(
        "csv, words of operations, gzip",
        _csv("orders/orders_{date}.csv.gz", mark=lambda c: {"operation": _words[c.op]}),
        deletes=True,
    ),
    Kind("csv, zstandard", _csv("orders/orders_{date}.csv.zst")),
    Kind("csv, folders of days", _csv("orders/dt={date}/data.csv"), more=lambda row, day: {"dt": _day(day)}),
)


def _pretty(rows: list[Row]) -> str:
    return json.dumps(rows, ensure_ascii=False, indent=2)


_JSON_KINDS = (
    Kind("json lines", _json("orders/orders-{date}.jsonl")),
    Kind("json lines, gzip, one day seen", _json("orders/{date}T08.json.gz"), days=1),
    Kind("json lines, zstandard", _json("orders/orders-{date}.ndjson.zst")),
    Kind("json array", _json("orders/orders-{date}.json", json.dumps)),
    Kind("json, pretty", _json("orders/orders-{date}.json", _pretty)),
    Kind(
        "json, pretty objects one after the other",
        _json("orders/orders-{date}.json", lambda rows: "\n".join(json.dumps(row, indent=2) for row in rows)),
    ),
    Kind("json, wrapped in data", _json("orders/orders-{date}.json", lambda rows: json.dumps({"data": rows}))),
    Kind(
        "json, pages of an interface",
        _json(
            "orders/page_{date}.json",
            lambda rows: json.dumps({"meta": {"total": len(rows)}, "result": {"items": rows}}, indent=1),
        ),
    ),
    Kind("json, extracts in an array", _json("orders/orders-{date}.json", json.dumps, extract=True), deletes=True),
    Kind("json, MongoDB", _json("orders/orders-{date}.json", make=_extended), more=_mongo),
    Kind(
        "json, MongoDB, canonical array", _json("orders/orders-{date}.json", json.dumps, make=_canonical), more=_mongo
    ),
    Kind(
        "json, a flag of deleted rows",
        _json("orders/orders-{date}.jsonl", make=lambda c: {**_json_row(c.row), "deleted": c.op == "D"}),
        deletes=True,
    ),
    Kind(
        "json, operations",
        _json("orders/orders-{date}.jsonl", make=lambda c: {"op": c.op.lower(), **_json_row(c.row)}),
        deletes=True,
    ),
    Kind("json, folders of days", _json("orders/dt={date}/orders.jsonl"), more=lambda row, day: {"dt": _day(day)}),
    Kind("json of Kafka", _numbered("shop.orders/shop.orders+0+{offset}.jsonl", _kafka), deletes=True),
    Kind(
        "json of Kafka, values alone",
        _numbered("topics/orders/partition=0/orders+0+{offset}.json.gz", lambda c, n: _json_row(c.row)),
    ),
    Kind(
        "json, the row beside the operation",
        _numbered("orders/orders+0+{offset}.jsonl", lambda c, n: {"op": _words[c.op], "row": _json_row(c.row)}),
        deletes=True,
    ),
)

_DEBEZIUM_KINDS = (
    Kind(
        "debezium",
        _numbered(
            "shop.public.orders/shop.public.orders+0+{offset}.jsonl",
            lambda c, n: {**_kafka(c, n, "shop.public.orders"), "value": _envelope(c, n, "postgresql")},
        ),
        deletes=True,
    ),
    Kind(
        "debezium, values alone",
        _numbered("orders/orders+0+{offset}.json", lambda c, n: _envelope(c, n, "postgresql")),
        deletes=True,
    ),
    Kind(
        "debezium with schemas",
        _numbered(
            "orders/shop.public.orders+0+{offset}.json",
            lambda c, n: {
                **_kafka(c, n, "shop.public.orders"),
                "value": {"schema": _SCHEMA, "payload": _envelope(c, n, "postgresql")},
            },
        ),
        deletes=True,
    ),
    Kind(
        "debezium of MySQL, gzip",
        _numbered("orders/shop.orders+0+{offset}.json.gz", lambda c, n: _envelope(c, n, "mysql")),
        deletes=True,
    ),
    Kind(
        "debezium, unwrapped",
        _json("orders/orders-{date}.jsonl", make=_unwrapped),
        deletes=True,
        more=lambda row, day: {"ts_ms": row["updated_at"]},
    ),
    Kind(
        "debezium, unwrapped, of Kafka",
        _numbered("orders/shop.orders+0+{offset}.jsonl", lambda c, n: _unwrapped(c)),
        deletes=True,
        more=lambda row, day: {"ts_ms": row["updated_at"]},
    ),
)

_TYPED_KINDS = (
    Kind("parquet", _parquet("orders/orders_{date}.parquet")),
    Kind(
        "parquet of Spark, folders of days",
        _parquet("orders/dt={date}/part-00000-3d0f-c000.snappy.parquet", use_deprecated_int96_timestamps=True),
        more=lambda row, day: {"dt": _day(day)},
    ),
    Kind(
        "parquet, operations, zstandard", _parquet("orders/{day:05}.parquet", op=True, compression="zstd"), deletes=True
    ),
    Kind(
        "parquet, full extracts",
        _parquet("orders/orders-{date}.parquet", extract=True, columns=_PLAIN),
        deletes=True,
        leaves_out=_NO_TIME,
    ),
    Kind(
        "parquet, updates without a time", _parquet("orders/orders-{date}.parquet", columns=_PLAIN), leaves_out=_NO_TIME
    ),
    Kind("delta, change feed", _delta(change_feed=True), deletes=True, days=1),
)

KINDS = _kinds(_CSV_KINDS, _JSON_KINDS, _DEBEZIUM_KINDS, _TYPED_KINDS)
