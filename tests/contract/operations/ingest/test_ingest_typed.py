"""Debezium records in Avro and Parquet files: what the same records as JSON give, and bad files by name."""

from __future__ import annotations

import base64
import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.landing import TOPIC, changes_of, make_landing, quarantined, record, state_of, take
from tidefold.config import load_config
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.quarantine.retry import retry
from tidefold.storage import open_store

CONNECT, TIME = "org.apache.kafka.connect.data", "io.debezium.time"
COLUMNS = {
    "id": "long",
    "text": "string",
    "amount": "decimal(10,2)",
    "at": "timestamp",
    "day": "date",
    "data": "binary",
    "rate": "double",
    "tags": "array<string>",
    "small": "int",
    "ok": "boolean",
}
YAML = "{" + ", ".join(f"{name}: '{type_}'" for name, type_ in COLUMNS.items()) + "}"


def opt(kind: Any) -> list[Any]:
    return ["null", kind]


AMOUNT = {
    "type": "bytes",
    "logicalType": "decimal",
    "precision": 10,
    "scale": 2,
    "connect.name": f"{CONNECT}.Decimal",
    "connect.version": 1,
    "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
}
FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "text", "type": opt("string"), "default": None},
    {"name": "amount", "type": opt(AMOUNT), "default": None},
    {"name": "at", "type": opt({"type": "long", "connect.name": f"{TIME}.NanoTimestamp"}), "default": None},
    {"name": "day", "type": opt({"type": "int", "connect.name": f"{CONNECT}.Date", "logicalType": "date"})},
    {"name": "data", "type": opt("bytes")},
    {"name": "rate", "type": opt("double")},
    {"name": "tags", "type": opt({"type": "array", "items": opt("string")})},
    {"name": "small", "type": opt({"type": "int", "connect.type": "int16"})},
    {"name": "ok", "type": opt("boolean")},
]
SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {"name": "snapshot", "type": opt("string")},
        {"name": "sequence", "type": opt("string")},
        {"name": "ts_us", "type": opt("long")},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.items",
    "fields": [
        {"name": "before", "type": opt({"type": "record", "name": "Value", "fields": FIELDS}), "default": None},
        {"name": "after", "type": opt("Value"), "default": None},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
    ],
    "connect.name": "shop.public.items.Envelope",
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
AIVEN = {
    "type": "record",
    "name": "connector_records",
    "fields": [
        {"name": "key", "type": opt(KEY)},
        {"name": "offset", "type": "long"},
        {"name": "timestamp", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "headers", "type": opt({"type": "map", "values": "bytes"})},
        {"name": "value", "type": opt(ENVELOPE)},
    ],
}
ROW = {
    "id": 1,
    "text": "t",
    "amount": (12345).to_bytes(3, "big", signed=True),
    "at": 1_700_000_000_123_456_000,
    "day": 19_000,
    "data": b"\x00\xff",
    "rate": 0.5,
    "tags": ["a", None],
    "small": 7,
    "ok": True,
}
NULLS = dict.fromkeys(COLUMNS) | {"id": 2}


def value(offset: int, row: dict[str, Any], op: str = "c") -> dict[str, Any]:
    source = {"snapshot": "false", "sequence": f'[null,"{1000 + offset}"]', "ts_us": offset}
    return {"before": row if op == "d" else None, "after": None if op == "d" else row, "source": source, "op": op}


VALUES = [
    value(0, ROW),
    value(1, NULLS),
    value(2, ROW | {"rate": float("nan"), "at": 1}),  # It has parts of a microsecond: refused.
    value(3, ROW | {"id": 3, "rate": float("-inf")}),
    value(4, NULLS, "d"),
    value(5, ROW | {"text": "__debezium_unavailable_value", "data": b"__debezium_unavailable_value"}, "u"),
]


def as_json(one: dict[str, Any]) -> dict[str, Any]:
    """The record as Kafka Connect's JSON converter writes it without schema."""
    one = json.loads(json.dumps(one, default=lambda data: base64.b64encode(data).decode(), allow_nan=True))
    row = one["after"] or {}
    if isinstance(row.get("rate"), float) and (row["rate"] != row["rate"] or abs(row["rate"]) == float("inf")):
        row["rate"] = "NaN" if row["rate"] != row["rate"] else "Infinity" if row["rate"] > 0 else "-Infinity"
    return one


def avro(schema: Any, records: list[Any], codec: str = "null", interval: int = 16_000) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, _as_bytes(schema), records, codec=codec, sync_interval=interval)
    data = out.getvalue()
    # The library would rather write decimals itself; the schema in the file is the one that a sink writes.
    plain, real = (json.dumps(s, separators=(",", ":")).encode() for s in (_as_bytes(schema), schema))
    head = io.BytesIO(data)
    found = fastavro.reader(head).metadata["avro.schema"]
    assert json.loads(found) is not None
    return _with_schema(data, found.encode(), real) if plain != real else data


def _as_bytes(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {n: _as_bytes(v) for n, v in schema.items() if n not in ("logicalType", "precision", "scale")}
    return [_as_bytes(one) for one in schema] if isinstance(schema, list) else schema


def _long(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _with_schema(data: bytes, old: bytes, new: bytes) -> bytes:
    return data.replace(_long(len(old)) + old, _long(len(new)) + new, 1)


def parquet(records: list[dict[str, Any]], with_names: bool = True) -> bytes:
    """As a sink writes it: through Avro, whose schema stands beside it."""
    row = pa.struct(
        [
            ("id", pa.int64()),
            ("text", pa.string()),
            ("amount", pa.decimal128(10, 2)),
            ("at", pa.int64()),
            ("day", pa.date32()),
            ("data", pa.binary()),
            ("rate", pa.float64()),
            ("tags", pa.list_(pa.string())),
            ("small", pa.int32()),
            ("ok", pa.bool_()),
        ]
    )
    source = pa.struct([("snapshot", pa.string()), ("sequence", pa.string()), ("ts_us", pa.int64())])
    schema = pa.schema([("before", row), ("after", row), ("source", source), ("op", pa.string())])

    def typed(one: dict[str, Any] | None) -> dict[str, Any] | None:
        if one is None or one["amount"] is None:
            return one
        return one | {"amount": Decimal(int.from_bytes(one["amount"], "big", signed=True)).scaleb(-2)}

    rows = [r | {"before": typed(r["before"]), "after": typed(r["after"])} for r in records]
    columns = [[r[name] for r in rows] for name in schema.names]
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
    if with_names:
        table = table.replace_schema_metadata({"parquet.avro.schema": json.dumps(ENVELOPE)})
    out = io.BytesIO()
    pq.write_table(table, out, compression="snappy", row_group_size=2)
    return out.getvalue()


@dataclass(frozen=True)
class Format:
    name: str
    extension: str
    data: Callable[[list[dict[str, Any]]], bytes]
    default: str = "[?]"  # Of a column that may be null, as far as the file says that it may.


FORMATS = [
    Format("debezium-avro", "avro", lambda values: avro(ENVELOPE, values, "deflate", 100), "null"),
    Format("debezium-parquet", "snappy.parquet", parquet),
]


def begun(root: Path, name: str, columns: str = YAML) -> Pipeline:
    make_landing(root, columns=columns)
    path = root / "tidefold.yaml"
    path.write_text(path.read_text().replace("debezium-json", name))
    return Pipeline(load_config(path), open_store("store", root))


def land_bytes(root: Path, start: int, data: bytes, extension: str) -> Path:
    path = root / "landing" / TOPIC / f"{TOPIC}+0+{start:010d}.{extension}"
    path.write_bytes(data)
    return path


def plain(rows: list[dict[str, Any]]) -> str:
    return repr([{n: v for n, v in row.items() if n != "_kg"} for row in rows])


@pytest.fixture(params=FORMATS, ids=lambda f: f.name)
def kind(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    return found


def test_typed_files_give_what_json_gives(kind: Format, tmp_path: Path) -> None:
    nanos = YAML.replace("at: 'timestamp'", "at: {type: timestamp, encoding: nanos}")
    # Lines have no schema, which would say the scale.
    nanos = nanos.replace("amount: 'decimal(10,2)'", "amount: {type: 'decimal(10,2)', encoding: base64(2)}")
    (tmp_path / "json").mkdir()
    as_lines = begun(tmp_path / "json", "debezium-json", columns=nanos)
    lines = b"".join(json.dumps(as_json(v)).encode() + b"\n" for v in VALUES)
    land_bytes(tmp_path / "json", 10, lines, "json")
    expected = take(as_lines)
    pipeline = begun(tmp_path, kind.name)
    land_bytes(tmp_path, 10, kind.data(VALUES), kind.extension)
    outcome = take(pipeline)
    assert outcome.message.partition(";")[0] == expected.message.partition(";")[0]
    assert outcome.facts["refused"] == expected.facts["refused"] == {"VALUE_INVALID": 1}
    assert plain(changes_of(pipeline)) == plain(changes_of(as_lines))
    first = changes_of(pipeline)[0]
    assert (first["amount"], first["data"], first["tags"]) == (Decimal("123.45"), b"\x00\xff", ["a", None])
    assert changes_of(pipeline)[-1]["_absent"] == ["text", "data"]
    # The refused one lies in the quarantine as text, with its schema, and can be read again.
    [refused] = quarantined(pipeline)
    assert (refused["line"], refused["offset"]) == (3, 12)
    assert "NanoTimestamp" in refused["record"]
    assert retry(pipeline, "items").facts["staying"] == 1


def test_a_file_that_grew_is_taken_from_where_it_was(tmp_path: Path) -> None:
    """Blocks behind the last whole one are still being written."""
    pipeline = begun(tmp_path, "debezium-avro")
    values = [v for i, v in enumerate(VALUES) if i != 2]
    data = avro(ENVELOPE, values, "deflate", 1)
    land_bytes(tmp_path, 0, data[:-20], "avro")
    outcome = take(pipeline)
    assert outcome.facts["still_writing"] == [f"{TOPIC}+0+0000000000.avro"]
    taken = outcome.facts["records"]
    assert 0 < taken < len(values)
    land_bytes(tmp_path, 0, data, "avro")
    assert take(pipeline).facts["records"] == len(values) - taken
    assert [c["_offset"] for c in changes_of(pipeline)] == list(range(len(values)))
    assert take(pipeline).status == "nothing"


def container(codec: str, pack: Callable[[bytes], bytes]) -> bytes:
    """A file by hand: what the library here writes only with packages that nothing else needs."""
    block, sync = io.BytesIO(), bytes(range(16))
    for one in VALUES[:2]:
        fastavro.schemaless_writer(block, fastavro.parse_schema(_as_bytes(ENVELOPE)), one)
    metadata = {"avro.codec": codec.encode(), "avro.schema": json.dumps(ENVELOPE).encode()}
    pairs = b"".join(_long(len(part)) + part for n, v in metadata.items() for part in (n.encode(), v))
    packed = pack(block.getvalue())
    return b"Obj\x01" + _long(2) + pairs + _long(0) + sync + _long(2) + _long(len(packed)) + packed + sync


def deflated(data: bytes) -> bytes:
    machine = zlib.compressobj(wbits=-15)
    return machine.compress(data) + machine.flush()


def snappy(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, codec="snappy", asbytes=True)
    return packed + zlib.crc32(data).to_bytes(4, "big")


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": deflated,
    "snappy": snappy,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstandard": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read(codec: str, tmp_path: Path) -> None:
    pipeline = begun(tmp_path, "debezium-avro")
    land_bytes(tmp_path, 0, container(codec, CODECS[codec]), "avro")
    assert take(pipeline).facts["changes"] == 2
    land_bytes(tmp_path, 2, container(codec, lambda data: CODECS[codec](data)[:-6] + b"------"), "avro")
    assert take(pipeline).error_code in ("LANDED_DAMAGED", "LANDED_TRUNCATED")


def test_whole_records_bring_their_offsets_keys_and_headers(tmp_path: Path) -> None:
    """As Aiven's sink writes them."""
    pipeline = begun(tmp_path, "debezium-avro")
    moved = {"__debezium.oldkey": b'{"id":1}'}
    gone = ROW | {"id": 4, "text": "__debezium_unavailable_value"}
    whole = [
        {"key": {"id": 1}, "offset": 3, "timestamp": 5, "headers": None, "value": value(0, ROW)},
        {"key": {"id": 1}, "offset": 7, "timestamp": 5, "headers": None, "value": None},
        {"key": {"id": 4}, "offset": 8, "timestamp": 5, "headers": moved, "value": value(1, gone)},
        {"key": {"id": 9}, "offset": 9, "timestamp": 5, "headers": None, "value": value(2, ROW)},
    ]
    land_bytes(tmp_path, 3, avro(AIVEN, whole), "avro")
    outcome = take(pipeline)
    assert (outcome.facts["changes"], outcome.facts["tombstones"], outcome.facts["key_changes"]) == (2, 1, 1)
    assert outcome.facts["refused"] == {"KEY_MISMATCH": 1}
    first, second = changes_of(pipeline)
    assert [(c["_offset"], c["id"]) for c in (first, second)] == [(3, 1), (8, 4)]
    assert second["text"] == first["text"]
    assert state_of(pipeline).positions[0].next_offset == 10


def test_a_schema_that_is_not_the_logs_refuses_every_record_by_name(kind: Format, tmp_path: Path) -> None:
    pipeline = begun(tmp_path, kind.name, columns=YAML.replace("day: 'date'", "day: 'boolean'"))
    land_bytes(tmp_path, 0, kind.data(VALUES[:2]), kind.extension)
    assert take(pipeline).facts["refused"] == {"VALUE_INVALID": 2}
    assert "`day` is" in quarantined(pipeline)[0]["detail"]
    assert state_of(pipeline).positions[0].next_offset == 2


def test_columns_that_are_not_configured_wait_with_the_lines_to_add(kind: Format, tmp_path: Path) -> None:
    """S5, bad input 58: the types of the source are told; once the columns are configured the records come in."""
    less = {name: type_ for name, type_ in COLUMNS.items() if name not in ("amount", "day", "tags")}
    pipeline = begun(tmp_path, kind.name, columns="{" + ", ".join(f"{n}: '{t}'" for n, t in less.items()) + "}")
    land_bytes(tmp_path, 0, kind.data(VALUES[:2]), kind.extension)
    assert take(pipeline).facts["refused"] == {"UNKNOWN_COLUMN": 2}
    detail = quarantined(pipeline)[0]["detail"]
    lines = (f"`{name}: {{type: '{COLUMNS[name]}', default: {kind.default}}}`" for name in ("amount", "day", "tags"))
    assert f"add {', '.join(lines)} to `columns`" in detail
    added = [
        f"{n}: {{type: '{t}', default: '2026-01-31'}}" if n == "day" else f"{n}: '{t}'" for n, t in COLUMNS.items()
    ]
    pipeline = begun(tmp_path, kind.name, columns="{" + ", ".join(added) + "}")
    assert retry(pipeline, "items").facts["changes"] == 2
    whole = begun(tmp_path / "whole", kind.name)
    land_bytes(tmp_path / "whole", 0, kind.data(VALUES[:2]), kind.extension)
    take(whole)
    names = ["id", *COLUMNS]
    found, expected = ([{n: r[n] for n in names} for r in changes_of(one)] for one in (pipeline, whole))
    assert found == expected


def test_a_column_that_is_not_configured_stops_the_log(kind: Format, tmp_path: Path) -> None:
    less = "{" + ", ".join(f"{n}: '{t}'" for n, t in COLUMNS.items() if n != "tags") + "}"

    def configured(text: str) -> Pipeline:
        pipeline = begun(tmp_path, kind.name, columns=text)
        path = tmp_path / "tidefold.yaml"
        path.write_text(path.read_text().replace("    on_bad_record: quarantine\n", ""))
        return Pipeline(load_config(path), pipeline.store)

    pipeline = configured(less)
    land_bytes(tmp_path, 0, kind.data(VALUES[:2]), kind.extension)
    outcome = take(pipeline)
    assert (outcome.status, outcome.error_code) == ("stopped", "UNKNOWN_COLUMN")
    assert f"add `tags: {{type: 'array<string>', default: {kind.default}}}` to `columns`" in outcome.message
    assert take(configured(YAML)).facts["changes"] == 2


def test_former_names_in_typed_files(kind: Format, tmp_path: Path) -> None:
    """Values are read as the schema says under the name that it has; what was not sent is told under today's."""
    former = YAML.replace("text: 'string'", "label: {type: string, aliases: [text]}")
    former = former.replace("at: 'timestamp'", "seen: {type: timestamp, aliases: [at]}")
    (tmp_path / "renamed").mkdir()
    pipeline, plainly = begun(tmp_path / "renamed", kind.name, columns=former), begun(tmp_path, kind.name)
    for root in (tmp_path / "renamed", tmp_path):
        land_bytes(root, 10, kind.data(VALUES), kind.extension)
    assert take(pipeline).facts["refused"] == take(plainly).facts["refused"]
    found, expected = changes_of(pipeline), changes_of(plainly)
    assert [(row["label"], row["seen"], row["day"]) for row in found] == [
        (row["text"], row["at"], row["day"]) for row in expected
    ]
    assert found[-1]["_absent"] == ["label", "data"]


def test_without_the_names_of_debezium_parquet_s_own_types_count(tmp_path: Path) -> None:
    pipeline = begun(tmp_path, "debezium-parquet", columns=YAML.replace("at: 'timestamp'", "at: long"))
    land_bytes(tmp_path, 0, parquet(VALUES[:1], with_names=False), "parquet")
    assert take(pipeline).facts["changes"] == 1
    assert changes_of(pipeline)[0]["at"] == ROW["at"]


def damaged(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("harm", "code"),
    [
        (lambda data: b"", "LANDED_EMPTY"),
        (lambda data: b"{}\n" * 100, "LANDED_FORMAT"),
        (lambda data: data[:-3], "LANDED_TRUNCATED LANDED_DAMAGED"),
        (lambda data: data[:30], "LANDED_TRUNCATED LANDED_DAMAGED"),
        (lambda data: damaged(data, len(data) - 5), "LANDED_DAMAGED LANDED_TRUNCATED"),
    ],
    ids=["empty", "json", "cut", "head", "damaged"],
)
def test_a_bad_file_is_named_and_what_follows_waits(
    kind: Format, harm: Callable[[bytes], bytes], code: str, tmp_path: Path
) -> None:
    """Bad inputs 29 to 33: nothing of the file is taken, nor of those behind it."""
    pipeline = begun(tmp_path, kind.name)
    land_bytes(tmp_path, 0, harm(kind.data(VALUES[:2])), kind.extension)
    land_bytes(tmp_path, 2, kind.data(VALUES[3:4]), kind.extension)
    outcome = take(pipeline)
    assert outcome.error_code in code.split()
    assert not pipeline.ledger("items").exists() or not state_of(pipeline).change_sets


def test_a_newest_file_that_is_not_complete_is_left(kind: Format, tmp_path: Path) -> None:
    pipeline = begun(tmp_path, kind.name)
    data = kind.data(VALUES[:2])
    land_bytes(tmp_path, 0, data[:20], kind.extension)
    assert take(pipeline).facts["still_writing"] == [f"{TOPIC}+0+0000000000.{kind.extension}"]
    land_bytes(tmp_path, 0, data, kind.extension)
    assert take(pipeline).facts["changes"] == 2
    # JSON lines do not belong here.
    land_bytes(tmp_path, 5, json.dumps(record(5)).encode(), "jsonl")
    assert [p["code"] for p in take(pipeline).facts["problems"]] == ["FOREIGN_FILE"]


STRANGE = ["[" * 100_000, '{"type": "record", "connect.name": {"a": 1}, "fields": [{"name": ["x"]}]}']


@pytest.mark.parametrize("schema", STRANGE, ids=["deep", "no names"])
def test_a_strange_schema_in_the_metadata_of_a_parquet_file_is_no_hint(tmp_path: Path, schema: str) -> None:
    pipeline = begun(tmp_path, "debezium-parquet")
    out = io.BytesIO()
    table = pa.table({"id": pa.array([1], pa.int32())})
    pq.write_table(table.replace_schema_metadata({"avro.schema": schema}), out)
    land_bytes(tmp_path, 0, out.getvalue(), "parquet")
    assert take(pipeline).facts["refused"] == {"NOT_A_RECORD": 1}
