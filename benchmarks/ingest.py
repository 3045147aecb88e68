"""What taking Debezium's JSON in costs, against Spark's own `from_json` into Parquet: the same files, the same session.

`make bench-ingest` prints a Markdown table and writes it to docs/contributors/benchmarks/ingest.md.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import ingest_key_changes
from tables import HEAD, Row, folder, machine, ratios, seconds, write_page
from tidefold.changelog.segment import read_change_set
from tidefold.compute.runners import on_spark
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.spark.submit import job_env, spark_conf
from tidefold.wiring import open_pipeline

BANK = Path(__file__).parents[1] / "tests" / "data" / "bank" / "landing"
TOPIC, CORES, ROUNDS, FILES = "bank.public.pgbench_accounts", 2, 5, 8
# One line in so many is cut in the middle.
BROKEN = 1_000
CONFIG = """
version: 1
store: store
logs:
  accounts:
    source: {{format: debezium-json, connector: postgresql, path: {landing}}}
    key: [aid]
    columns: {{aid: int, bid: int, abalance: int, filler: string}}
"""
ROW = "struct<aid: int, bid: int, abalance: int, filler: string>"
SOURCE = "struct<sequence: string, ts_us: bigint, snapshot: string>"
VALUE = f"struct<before: {ROW}, after: {ROW}, source: {SOURCE}, op: string>"
COLUMNS = ["_op", "_o0", "_o1", "_partition", "_offset", "_ts", "aid", "bid", "abalance", "filler"]


@dataclass(frozen=True, slots=True)
class Form:
    """A way in which the same records lie in files."""

    name: str
    records: int
    wrapped: bool = False
    zipped: bool = False

    @property
    def schema(self) -> str:
        """Of a line, as somebody declares it who wants what tidefold takes."""
        key = "struct<aid: int>"
        key, value = (f"struct<payload: {one}>" if self.wrapped else one for one in (key, VALUE))
        return f"topic string, `partition` int, offset bigint, key {key}, value {value}"


FORMS = (
    Form("records as they are", 240_000),
    Form("the same, gzip", 240_000, zipped=True),
    Form("with schema wrapper", 60_000, wrapped=True),
)


def templates() -> list[dict[str, Any]]:
    """The updates, inserts and deletes of the bank sample, with their tombstones."""
    paths = sorted(path for phase in ("phase2", "phase3") for path in (BANK / phase / TOPIC).iterdir())
    lines = [line for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]
    return [json.loads(line) for line in lines]


def lines_of(form: Form) -> Iterator[str]:
    """As many records as wanted, each with a place and a key of its own."""
    given = templates()
    for number in range(form.records):
        record = given[number % len(given)]
        record["offset"], value = number, record["value"]
        record["key"] = {"aid": number * 7919 % 100_003}
        if value is not None:
            value["source"] |= {"sequence": f'["{48_000_000 + number * 8}","{48_000_000 + number * 8}"]'}
            for side in ("before", "after"):
                if value[side] is not None:
                    value[side] |= record["key"]
        line = json.dumps(_wrap_with_schema(record) if form.wrapped else record, separators=(",", ":"))
        yield line if number % BROKEN != BROKEN - 1 else line[: len(line) // 2]


def _wrap_with_schema(record: dict[str, Any]) -> dict[str, Any]:
    """The record as a converter with schemas writes it."""
    envelope = None if record["value"] is None else {"schema": _VALUE_SCHEMA, "payload": record["value"]}
    return {**record, "key": {"schema": _KEY_SCHEMA, "payload": record["key"]}, "value": envelope}


def _struct(name: str, fields: Iterable[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields), "optional": True, "name": f"{TOPIC}.{name}", **more}


def _field(type_: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "optional": True, "field": name, **more}


_TABLE = [
    *(_field("int32", name) for name in ("aid", "bid", "abalance")),
    _field("string", "filler"),
]
_SOURCE = [
    *(_field("string", name) for name in ("version", "connector", "name", "snapshot", "db", "sequence", "schema")),
    *(_field("int64", name) for name in ("ts_ms", "ts_us", "ts_ns", "txId", "lsn", "xmin")),
    _field("string", "table"),
]
_KEY_SCHEMA = _struct("Key", _TABLE[:1])
_VALUE_SCHEMA = _struct(
    "Envelope",
    [
        _struct("Value", _TABLE, field="before"),
        _struct("Value", _TABLE, field="after"),
        _struct("Source", _SOURCE, field="source"),
        _field("string", "op"),
        *(_field("int64", name) for name in ("ts_ms", "ts_us", "ts_ns")),
    ],
    version=2,
)


def land(form: Form, landing: Path) -> int:
    """Writes the files; returns how many bytes of text they have."""
    landing.mkdir(parents=True)
    each, lines, size = form.records // FILES, lines_of(form), 0
    for number in range(FILES):
        text = "".join(f"{next(lines)}\n" for _ in range(each)).encode()
        size += len(text)
        path = landing / f"{TOPIC}+0+{number * each:010d}.jsonl{'.gz' if form.zipped else ''}"
        path.write_bytes(gzip.compress(text, 6) if form.zipped else text)
    return size


def session(root: Path) -> SparkSession:
    """The session of tidefold's own jobs."""
    config = open_bench(root, root / "landing").config
    os.environ.update(job_env(config))
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("bench-ingest")
    for key, value in spark_conf(config).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def open_bench(root: Path, landing: Path) -> Pipeline:
    root.mkdir(parents=True, exist_ok=True)
    (root / "tidefold.yaml").write_text(CONFIG.format(landing=landing))
    return open_pipeline(root / "tidefold.yaml")


def take(spark: SparkSession, landing: Path, root: Path) -> None:
    [outcome] = ingest(open_bench(root, landing), ["accounts"], on_spark(spark))
    if outcome.status != "taken":
        raise SystemExit(outcome.message)


def parse(spark: SparkSession, form: Form, landing: Path, root: Path) -> None:
    """What somebody writes who has Spark alone. `from_json` runs once a line: a filter on what it gives would make
    Spark call it again, so lines that cannot be read, and tombstones, stay as rows of nulls.
    """
    lines = spark.read.text(str(landing))
    _write(lines.select(F.from_json("value", form.schema).alias("r")).select("r.*"), form, root)


def read(spark: SparkSession, form: Form, landing: Path, root: Path) -> None:
    """The same with Spark's JSON files."""
    _write(spark.read.schema(form.schema).json(str(landing)), form, root)


def _write(records: DataFrame, form: Form, root: Path) -> None:
    inner = ".payload" if form.wrapped else ""
    value, key = F.col(f"value{inner}"), F.col(f"key{inner}")
    order = F.split(F.translate(value["source"]["sequence"], '[" ]', ""), ",")
    row = value["after"]
    columns: list[Column] = [
        F.when(value["op"] == "d", 1).otherwise(0).cast("tinyint").alias("_op"),
        order[0].cast("long").alias("_o0"),
        order[1].cast("long").alias("_o1"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        value["source"]["ts_us"].alias("_ts"),
        F.coalesce(row["aid"], key["aid"]).alias("aid"),
        *(row[name].alias(name) for name in ("bid", "abalance", "filler")),
    ]
    records.select(*columns).write.parquet(str(root))


def check(root: Path, form: Form) -> None:
    """All ways found the same changes, and tidefold put aside what Spark made nulls of."""
    pipeline = open_pipeline(root / "tidefold" / "tidefold.yaml")
    state = pipeline.ledger("accounts").read()
    ours = pa.concat_tables(read_change_set(pipeline.store, c) for c in state.change_sets).select(COLUMNS)
    for name in ("from_json", "reader"):
        theirs = pq.read_table(root / name, filters=[("_o1", ">=", 0)]).select(COLUMNS)
        if not ours.sort_by("_offset").equals(theirs.sort_by("_offset").cast(ours.schema)):
            raise SystemExit(f"{form.name}: tidefold and {name} differ")
    refused = sum(entry.quarantined for entry in state.landed)
    if refused != form.records // BROKEN or sum(entry.records for entry in state.landed) != form.records:
        raise SystemExit(f"{form.name}: {refused} refused")


def measure(spark: SparkSession, form: Form, root: Path) -> list[Row]:
    landing = root / "landing"
    size = land(form, landing) / 1e6
    ways: dict[str, Callable[[Path], None]] = {
        "tidefold": lambda at: take(spark, landing, at),
        "from_json": lambda at: parse(spark, form, landing, at),
        "reader": lambda at: read(spark, form, landing, at),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    # The first round warms up the virtual machine, the workers and the disk.
    for number in range(ROUNDS + 1):
        for name in (*ways, *ways)[number % 3 : number % 3 + 3]:
            shutil.rmtree(root / name, ignore_errors=True)
            found[name].append(seconds(lambda name=name: ways[name](root / name)))
    check(root, form)
    shutil.rmtree(root)
    ours, once, reader = (found[name][1:] for name in ways)
    return [
        Row(f"{form.name} ({form.records:,}, {size:,.0f} MB): ingest", ours, "s"),
        *rates(form, size, ours),
        Row("... `from_json` to Parquet", once, "s"),
        *rates(form, size, once),
        Row("... ingest / `from_json`", ratios(ours, once), "x", "<= 1.2 x", limit=1.2),
        Row("... ingest / Spark's JSON files to Parquet", ratios(ours, reader), "x", "<= 1.2 x", limit=1.2),
    ]


def rates(form: Form, size: float, taken: list[float]) -> list[Row]:
    return [
        Row("... ... records a second and core", [form.records / 1e3 / each / CORES for each in taken], "thousand"),
        Row("... ... text a second and core", [size / each / CORES for each in taken], "MB/s"),
    ]


def main() -> None:
    rows = []
    with folder() as root:
        spark = session(root / "session")
        for form in FORMS:
            rows += measure(spark, form, root / "form")
        spark.stop()
    head = [
        "# What taking JSON in costs",
        "",
        "Written by `make bench-ingest` (benchmarks/ingest.py). Medians, order of the ways rotated.",
        f"{machine()} Spark {pyspark.__version__}, {CORES} cores.",
        "",
        "Updates, inserts and deletes of the bank sample (real PostgreSQL through Debezium) with their tombstones,",
        f"made larger; one line in {BROKEN:,} is broken. All ways run in one Spark session with tidefold's settings",
        f"and read the same {FILES} files of one partition. `ingest` does all that it always does: every offset and",
        "order is checked, invalid records are quarantined with reason and text, key groups, checksums, all synced",
        "to disk, the ledger written. Spark's ways are `from_json` with the declared schema of just the fields that",
        "are wanted, or the same schema on its JSON files, a projection to the same columns and a plain Parquet write;",
        "a broken line is a row of nulls there. The changes of all ways are compared, and are equal.",
        "",
        *HEAD,
    ]
    write_page("ingest.md", [*head, *(row.text for row in rows), "", *ingest_key_changes.section()])


if __name__ == "__main__":
    main()
