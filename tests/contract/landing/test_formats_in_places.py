"""Each format is ingested from each place where files land, and `init` recognises it there. I30."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from support.landing import record, text_of
from support.landing_places import PLACES, LandingBucket, delta_options, root_of_tables
from support.state_logs import op
from tidefold.cli.app import app
from tidefold.compute.runners import in_process
from tidefold.config import load_config
from tidefold.operations.ingest.ingest import ingest
from tidefold.wiring import open_pipeline

FEED = {"delta.enableChangeDataFeed": "true"}
LSN = {"snapshot": "false", "sequence": '[null,"7"]', "ts_us": 1}


def row_of(item: int) -> dict[str, Any]:
    return {"id": item, "text": f"t{item}"}


def envelope(log: str, item: int) -> dict[str, Any]:
    return record(item, item, topic=log, after=row_of(item))


def opt(kind: Any) -> list[Any]:
    return ["null", kind]


def avro(log: str, item: int) -> bytes:
    def as_record(name: str, fields: dict[str, Any]) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}

    row = as_record("Value", {"id": "int", "text": opt("string")})
    source = as_record("Source", {"snapshot": "string", "sequence": "string", "ts_us": "long"})
    schema = as_record("Envelope", {"before": opt(row), "after": opt("Value"), "source": source, "op": "string"})
    out = io.BytesIO()
    fastavro.writer(out, schema, [{"before": None, "after": row_of(item), "source": LSN, "op": "c"}])
    return out.getvalue()


def parquet_of(rows: list[dict[str, Any]], schema: pa.Schema) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), out, write_page_checksum=True)
    return out.getvalue()


def debezium_parquet(log: str, item: int) -> bytes:
    row = pa.struct([("id", pa.int32()), ("text", pa.string())])
    source = pa.struct([("snapshot", pa.string()), ("sequence", pa.string()), ("ts_us", pa.int64())])
    schema = pa.schema([("before", row), ("after", row), ("source", source), ("op", pa.string())])
    return parquet_of([{"before": None, "after": row_of(item), "source": LSN, "op": "c"}], schema)


def parquet(log: str, item: int) -> bytes:
    return parquet_of([row_of(item)], pa.schema([("id", pa.int32()), ("text", pa.string())]))


def csv(log: str, item: int) -> bytes:
    return f"id,text\n{item},t{item}\n".encode()


def json_lines(*records: dict[str, Any]) -> bytes:
    return text_of(records)


@dataclass(frozen=True)
class Format:
    """A format: the keys of its source and of its log, the extension of its names, and a file with one row."""

    source: str
    extension: str
    data: Callable[[str, int], bytes]
    log: str = ""


FORMATS = {
    "csv": Format("csv", "csv", csv, "order: [id]"),
    "zipped": Format("csv", "csv.gz", lambda log, item: gzip.compress(csv(log, item)), "order: [id]"),
    "extract": Format("csv, extract: {max_deletes: 1, min_rows: 0}", "csv", csv),
    "parquet": Format("parquet", "parquet", parquet, "order: [id]"),
    "json": Format("json, record: value", "jsonl", lambda log, item: json_lines(row_of(item))),
    "state": Format(
        "state-json, kind: value, state_key: [id], record: value",
        "jsonl",
        lambda log, item: json_lines(op("set", item, {"text": f"t{item}"})),
    ),
    "debezium_json": Format(
        "debezium-json, connector: postgresql", "jsonl", lambda log, item: json_lines(envelope(log, item))
    ),
    "debezium_avro": Format("debezium-avro, connector: postgresql", "avro", avro),
    "debezium_parquet": Format("debezium-parquet, connector: postgresql", "snappy.parquet", debezium_parquet),
}
TABLES = {"delta_feed": "delta-cdf", "delta_extract": "delta, extract: {max_deletes: 1, min_rows: 0}"}
LOG = """\
  {log}:
    source: {{format: {source}, {place}: '{root}/landing/{log}'}}
    {more}
    key: [id]
    columns: {{id: int, text: string}}
    key_groups: 8
    buckets: 1
"""


@pytest.fixture(params=PLACES)
def bucket(request: pytest.FixtureRequest) -> LandingBucket:
    found: LandingBucket = request.getfixturevalue(request.param)
    return found


def name_of(log: str, number: int) -> str:
    extension = FORMATS[log].extension
    by_day = f"{log}-2026-11-0{number + 1}.{extension}"
    return by_day if log in ("csv", "zipped", "extract", "parquet") else f"{log}+0+{number:010d}.{extension}"


def land(bucket: LandingBucket, number: int) -> None:
    """Lands one more row of each log."""
    for log, kind in FORMATS.items():
        bucket.put(f"landing/{log}/{name_of(log, number)}", kind.data(log, number))
    for log in TABLES:
        table = pa.table({"id": pa.array([number], pa.int32()), "text": [f"t{number}"]})
        address = f"{root_of_tables(bucket)}/landing/{log}"
        options = delta_options(address)
        mode = "append" if log == "delta_feed" else "overwrite"
        write_deltalake(address, table, mode=mode, configuration=FEED, storage_options=options)


@pytest.mark.rotates(4)
def test_every_format_is_ingested_from_every_place(tmp_path: Path, bucket: LandingBucket) -> None:
    """Twice a new file each, once nothing new, once each file replaced by another one of its length."""
    logs = [
        LOG.format(log=log, source=one.source, place="path", root=bucket.root, more=one.log)
        for log, one in FORMATS.items()
    ]
    logs += [
        LOG.format(log=log, source=source, place="table", root=root_of_tables(bucket), more="")
        for log, source in TABLES.items()
    ]
    path = tmp_path / "tidefold.yaml"
    path.write_text("version: 1\nstore: store\nlogs:\n" + "".join(logs))
    pipeline = open_pipeline(path)

    def take() -> dict[str, tuple[str, int | None, str | None]]:
        outcomes = ingest(pipeline, [*FORMATS, *TABLES], in_process)
        return {one.log or "": (one.status, one.facts.get("changes"), one.error_code) for one in outcomes}

    land(bucket, 0)
    assert take() == dict.fromkeys([*FORMATS, *TABLES], ("taken", 1, None))
    land(bucket, 1)
    extracts = ("extract", "delta_extract")
    assert take() == {log: ("taken", 2 if log in extracts else 1, None) for log in (*FORMATS, *TABLES)}
    assert {status for status, _, _ in take().values()} == {"nothing"}
    for log, kind in FORMATS.items():
        bucket.put(f"landing/{log}/{name_of(log, 1)}", kind.data(log, 2))
    changed = {log: code for log, (_, _, code) in take().items()}
    assert changed == dict.fromkeys(FORMATS, "LANDED_CHANGED") | dict.fromkeys(TABLES)


def test_init_reads_what_lies_in_a_place_and_its_file_works(
    tmp_path: Path, bucket: LandingBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = f"{bucket.root}/landing"
    rows = "".join(f"{i},a{i},2026-11-01T00:00:{i:02d}Z\n" for i in range(10))
    bucket.put("landing/orders/2026-11-01.csv", f"id,text,updated_at\n{rows}".encode())
    bucket.put("landing/items/items+0+0000000000.jsonl", json_lines(*(envelope("items", i) for i in range(5))))
    has_tables = root_of_tables(bucket) == bucket.root
    if has_tables:
        table = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
        write_deltalake(f"{address}/people", table, configuration=FEED, storage_options=delta_options(address))
    done = CliRunner().invoke(app, ["init", address])
    assert done.exit_code == 0, done.output
    config = load_config(tmp_path / "tidefold.yaml")
    found = {log.id: (log.source.format, log.address) for log in config.logs.values() if log.source}
    files = {"items": ("debezium-json", f"{address}/items"), "orders": ("csv", f"{address}/orders")}
    assert found == files | ({"people": ("delta-cdf", f"{address}/people")} if has_tables else {})
    outcomes = ingest(open_pipeline(tmp_path / "tidefold.yaml"), list(found), in_process)
    taken = [(one.status, one.facts["changes"]) for one in outcomes]
    assert taken == [("taken", 5), ("taken", 10), ("taken", 3)][: len(found)]
    missing = CliRunner().invoke(app, ["init", f"{bucket.root}/nothing", "-c", "other.yaml"])
    assert "LANDING_MISSING" in missing.output
