"""The other ways to fold changes into a Delta table, each as somebody would write it who knows its tool.

They read the same changes as Parquet, and end with everything that they wrote on disk.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyspark
from delta.tables import DeltaTable as SparkTable
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame, SparkSession

from fold_data import COLUMNS, Case, connection, table_of
from fold_measured import Way, all_files, sync_new
from tidefold.config import Config
from tidefold.spark.submit import job_env, spark_conf

VERSIONS = (
    f"Spark {pyspark.__version__}, delta-spark 4.4.0, deltalake {deltalake.__version__}, DuckDB {duckdb.__version__}"
)
# Of the session; each way of Spark's sets its own on top. `defaults` takes back what tidefold sets for its jobs.
_SNAPSHOT = "spark.databricks.delta.snapshotPartitions"
_SHUFFLE = "spark.sql.shuffle.partitions"
_DEFAULTS = {_SHUFFLE: "200", _SNAPSHOT: "50"}
_TUNED = {
    _SHUFFLE: "4",
    _SNAPSHOT: "2",
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.sql.parquet.compression.codec": "zstd",
}
_LAST = "row_number() OVER (PARTITION BY id ORDER BY _o0 DESC) = 1"
_MEMORY = "2GB"
HEAP = os.environ.get("HEAP", "6g")


def spark_session(config: Config) -> SparkSession:
    os.environ.update(job_env(config))
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for key, value in {**spark_conf(config), "spark.driver.memory": HEAP}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def spark_peers(spark: SparkSession) -> list[Way]:
    def way(name: str, act: Callable[[SparkSession, Path, Case], None], conf: Mapping[str, str], **more: Any) -> Way:
        def run(root: Path, case: Case) -> None:
            before = all_files(root)
            with _configure(spark, conf):
                act(spark, root, case)
            sync_new(root, before)

        return Way(name, run, **more)

    def vectors(root: Path) -> None:
        _enable_vectors(spark, root)

    return [
        way("row_number + Delta MERGE, defaults", _merge_plain, _DEFAULTS),
        way("squash, then MERGE, tuned", _merge_tuned, _TUNED),
        way("squash, then MERGE, tuned, with deletion vectors", _merge_tuned, _TUNED, prepare=vectors),
        way("Spark: anti join, union, overwrite", _overwrite, {**_TUNED, _SHUFFLE: "16"}),
    ]


def lone_peers() -> list[Way]:
    return [
        Way("delta-rs merge", delta_rs_merge, alone=True),
        Way("DuckDB script + deltalake commit", duckdb_script, alone=True),
    ]


@contextmanager
def _configure(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in conf}
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def _latest(spark: SparkSession, case: Case) -> DataFrame:
    changes = spark.read.parquet(str(case.export_path))
    return changes.selectExpr("*", "row_number() OVER (PARTITION BY id ORDER BY _o0 DESC) AS _n").where("_n = 1")


def _merge_plain(spark: SparkSession, root: Path, case: Case) -> None:
    _merge(spark, root, _latest(spark, case))


def _merge_tuned(spark: SparkSession, root: Path, case: Case) -> None:
    """Squashed once, for both passes of the MERGE."""
    _merge(spark, root, _squash_changes(spark, root, case))


def _squash_changes(spark: SparkSession, root: Path, case: Case) -> DataFrame:
    # A cached source is refused by MERGE (DELTA_MERGE_SOURCE_CACHED_DURING_EXECUTION).
    path = str(root / "squashed")
    _latest(spark, case).select("_op", *COLUMNS).write.parquet(path)
    return spark.read.parquet(path)


def _merge(spark: SparkSession, root: Path, latest: DataFrame) -> None:
    columns: dict[str, Any] = {name: f"s.{name}" for name in COLUMNS}
    (
        SparkTable.forPath(spark, str(table_of(root)))
        .alias("t")
        .merge(latest.alias("s"), "t.id = s.id")
        .whenMatchedDelete("s._op = 1")
        .whenMatchedUpdate(set=columns)
        .whenNotMatchedInsert("s._op = 0", values=columns)
        .execute()
    )


def _overwrite(spark: SparkSession, root: Path, case: Case) -> None:
    table = str(table_of(root))
    latest = _squash_changes(spark, root, case)
    kept = spark.read.format("delta").load(table).join(latest.select("id"), "id", "left_anti").select(*COLUMNS)
    kept.unionByName(latest.where("_op = 0").select(*COLUMNS)).write.format("delta").mode("overwrite").save(table)


def _enable_vectors(spark: SparkSession, root: Path) -> None:
    spark.sql(f"ALTER TABLE delta.`{table_of(root)}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")


def delta_rs_merge(root: Path, case: Case) -> None:
    before = all_files(root)
    with connection() as db:
        source = db.sql(f"SELECT * FROM read_parquet('{case.export_path}/*.parquet') QUALIFY {_LAST}").to_arrow_table()
    columns: dict[str, Any] = {name: f"s.{name}" for name in COLUMNS}
    (
        DeltaTable(str(table_of(root)))
        .merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_delete("s._op = 1")
        .when_matched_update(columns, "s._op = 0")
        .when_not_matched_insert(columns, "s._op = 0")
        .execute()
    )
    sync_new(root, before)


def duckdb_script(root: Path, case: Case) -> None:
    """Finds the files that have a changed key, writes these again with both threads, and commits with statistics."""
    folder, before = table_of(root), all_files(root)
    table = DeltaTable(str(folder))
    active = table.file_uris()
    names = ", ".join(COLUMNS)
    with connection() as db:
        db.execute(f"SET memory_limit = '{_MEMORY}'")
        db.execute(f"SET temp_directory = '{root / 'spill'}'")
        db.execute("SET preserve_insertion_order = false")
        db.execute(
            f"CREATE TEMP TABLE latest AS SELECT * FROM read_parquet('{case.export_path}/*.parquet') QUALIFY {_LAST}"
        )
        found = db.sql(
            f"SELECT DISTINCT filename FROM read_parquet({active}, filename = true) SEMI JOIN latest USING (id)"
        )
        touched = [name for (name,) in found.fetchall()]
        kept = f"SELECT {names} FROM read_parquet({touched}) ANTI JOIN latest USING (id) UNION ALL " if touched else ""
        target = folder / "_data" / uuid.uuid4().hex
        written = db.execute(
            f"COPY ({kept}SELECT {names} FROM latest WHERE _op = 0) TO '{target}' "
            "(FORMAT parquet, COMPRESSION zstd, PER_THREAD_OUTPUT, RETURN_STATS)"
        ).fetchall()
    sync_new(root, before)
    sizes = {str(folder / path): (path, size) for path, size in _sizes(table).items()}
    actions: list[AddAction | RemoveAction] = [_make_add_action(folder, *one[:5]) for one in written]
    actions += [RemoveAction(sizes[name][0], True, _now(), sizes[name][1], {}) for name in touched]
    _commit(table, actions)
    sync_new(root, before)


def _commit(table: DeltaTable, actions: list[AddAction | RemoveAction]) -> None:
    schema = Schema.from_arrow(table.schema().to_arrow())
    table.create_write_transaction(
        actions, mode="append", schema=schema, commit_properties=CommitProperties(max_commit_retries=0)
    )


def _sizes(table: DeltaTable) -> dict[str, int]:
    actions = table.get_add_actions()
    return dict(zip(actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), strict=True))


def _make_add_action(folder: Path, name: str, rows: int, size: int, _footer: int, columns: dict[str, Any]) -> AddAction:
    stats: dict[str, Any] = {"numRecords": rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for quoted, found in columns.items():
        column = quoted.strip('"')
        stats["minValues"][column] = _parse_bound(column, found["min"])
        stats["maxValues"][column] = _parse_bound(column, found["max"])
        stats["nullCount"][column] = int(found["null_count"])
    return AddAction(str(Path(name).relative_to(folder)), size, {}, _now(), True, json.dumps(stats))


def _parse_bound(column: str, text: str) -> Any:
    if column == "seen":
        return text.replace(" ", "T").split("+")[0].split(".")[0] + ".000Z"
    return {"id": int, "amount": float}.get(column, str)(text)


def _now() -> int:
    return int(time.time() * 1000)
