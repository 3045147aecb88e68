"""What a full snapshot and a restore cost, measured against plain copies and against Spark in the same run.

`make bench-snapshot` prints a Markdown table and writes it to snapshot.md. ROWS, ROUNDS: how large the
table is, how often each way runs; PARTS: some of full, files, tail, local. With CLOCK=cpu it counts CPU seconds, and
with WRITE=0 it only prints.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from support.pipelines import judge_all
from support.s3_server import ENVIRONMENT, S3Bucket, S3Server
from tables import HEAD, Row, folder, machine, ratios, seconds, write_page
from tidefold.changelog.key_group_hash import key_group_sql
from tidefold.changelog.writer import Changelog
from tidefold.compute.runners import in_process, in_threads
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint
from tidefold.domain.table.table_spec import Column, TableSpec
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold, Restore
from tidefold.operations.restore.export import restore_to
from tidefold.operations.snapshot.compact_log import take_tail
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.spark.submit import job_env, spark_conf
from tidefold.wiring import open_pipeline

if TYPE_CHECKING:
    from tidefold.operations.ground.outcome import Outcome

ROWS, ROUNDS = int(os.environ.get("ROWS", "5000000")), int(os.environ.get("ROUNDS", "5"))
PARTS = os.environ.get("PARTS", "full,files,tail,local").split(",")
LATENCY = 0.02
CONFIG = """
version: 1
store: {store}
snapshots: {{copy_files: {copy}}}
{more}
logs:
  bench: {{key: [id], columns: {{id: long, text: string}}, order: arrival, buckets: {buckets}, key_groups: 4096}}
"""


def open_bench(root: Path, buckets: int, copy: str = "auto", store: str = "store", more: str = "") -> Pipeline:
    (root / "tidefold.yaml").write_text(CONFIG.format(store=store, copy=copy, buckets=buckets, more=more))
    return open_pipeline(root / "tidefold.yaml")


def write(pipeline: Pipeline, ids: Sequence[int], seed: int) -> None:
    """Rows of about 80 bytes whose text cannot be compressed to nothing."""
    chance = random.Random(seed)
    with Changelog(pipeline.store) as changelog:
        log = changelog.log("bench", pipeline.log("bench").shape)
        for start in range(0, len(ids), 250_000):
            some = ids[start : start + 250_000]
            texts = [f"{chance.getrandbits(128):032x}{i:010d}{'a common part of all rows':>30}" for i in some]
            log.append(pa.table({"id": pa.array(some, pa.int64()), "text": texts}))


def take(pipeline: Pipeline, run: str, kind: KindPolicy = KindPolicy.FULL, restore: int | None = None) -> Outcome:
    asking = Fold(run, kind=kind) if restore is None else Restore(run, RestorePoint(restore, RestoreMode.SKIP))
    [outcome] = materialize(pipeline, ["bench"], asking, in_process if restore is None else in_threads())
    if outcome.error_code:
        raise SystemExit(outcome.message)
    return outcome


def settle(pipeline: Pipeline) -> None:
    if pipeline.ledger("bench").read().open_attempt:
        judge_all(pipeline, "bench")
        confirm(pipeline, "bench")


def make_filled(root: Path, rows: int, buckets: int, **how: str) -> Pipeline:
    """A log with one incremental snapshot: the next full one takes over every file."""
    pipeline = open_bench(root, buckets, **how)
    write(pipeline, range(rows), 1)
    take(pipeline, "first", KindPolicy.INCREMENTAL)
    settle(pipeline)
    return pipeline


def full(pipeline: Pipeline, number: int) -> float:
    """A full snapshot of what did not change; then an incremental one, so that the next is full of the same again."""
    taken = seconds(lambda: take(pipeline, f"full-{number}"))
    settle(pipeline)
    write(pipeline, range(1), number)
    take(pipeline, f"again-{number}", KindPolicy.INCREMENTAL)
    settle(pipeline)
    return taken


def spark_session(pipeline: Pipeline) -> SparkSession:
    os.environ.update(job_env(pipeline.config))
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for key, value in {**spark_conf(pipeline.config), "spark.driver.memory": "6g"}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def by_spark(spark: SparkSession, table: str, target: Path) -> float:
    """What a user would write who has no files to take over: the table read and written, in a session that is warm."""
    return seconds(lambda: spark.read.format("delta").load(table).write.format("delta").save(str(target)))


def full_snapshots() -> Iterator[Row]:
    with folder() as root:
        linked, copied = root / "linked", root / "copied"
        for each in (linked, copied):
            each.mkdir()
        pipeline = make_filled(linked, ROWS, 16)
        own = make_filled(copied, ROWS, 16, copy="always")
        table = pipeline.store.uri(LogPaths("bench").table)
        spark = spark_session(pipeline)
        by_spark(spark, table, root / "warm")
        found: dict[str, list[float]] = {"link": [], "copy": [], "cp": [], "spark": []}
        for number in range(ROUNDS):
            target = root / f"target-{number}"
            found["link"].append(full(pipeline, number))
            found["copy"].append(full(own, number))
            found["cp"].append(seconds(lambda to=target: copy_folder(Path(table) / "_data", to)))
            found["spark"].append(by_spark(spark, table, root / f"spark-{number}"))
            shutil.rmtree(target)
        spark.stop()
        size = sum(f.bytes for f in pipeline.store.list(f"{LogPaths('bench').table}/_data"))
    what = f"full snapshot, nothing changed, {ROWS:,} rows"
    yield Row(f"{what}, 16 files: hard links", found["link"], "s", "<= 2 s + 1 ms a file", limit=2.016)
    yield Row("... as bytes of its own (`copy_files: always`)", found["copy"], "s")
    yield Row("... `cp -r` of the same files", found["cp"], "s")
    yield Row("... copy against `cp -r`", ratios(found["copy"], found["cp"]), "x", "<= 1.3 x", limit=1.3)
    yield Row("... read and written by Spark", found["spark"], "s")
    yield Row("... links against Spark", ratios(found["link"], found["spark"]), "x", "<= 0.05 x", limit=0.05)
    yield Row("size of the table's folder", [size / 1e6], "MB")


def copy_folder(source: Path, target: Path) -> None:
    """With the same promise as ours: what was copied is on disk."""
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)
    for file in (*target.iterdir(), target):
        handle = os.open(file, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def many_files() -> Iterator[Row]:
    with folder() as root:
        pipeline = make_filled(root, 200_000, 2000)
        values = [full(pipeline, number) for number in range(3)]
    yield Row("full snapshot, nothing changed, 2,000 files: hard links", values, "s", "<= 2 s + 1 ms a file", limit=4.0)
    yield Row("... a file", [value / 2 for value in values], "ms")


def from_local_copies() -> Iterator[Row]:
    """The same snapshot restored with and without local copies, from an S3 server that takes its time."""
    os.environ.update(ENVIRONMENT)
    server = S3Server(LATENCY)
    os.environ["AWS_ENDPOINT_URL"] = server.url
    bucket = S3Bucket(server, "bench")
    bucket.client.create_bucket(Bucket=bucket.name)
    found: dict[str, list[float]] = {"local": [], "store": [], "to local": [], "to store": []}
    with folder() as root:
        near = make_filled(root, 500_000, 16, store=bucket.address, more="local: {mode: files, path: local}")
        far = replace(near, local=None)
        for number in range(ROUNDS):
            for name, pipeline in (("local", near), ("store", far)):
                target = root / f"{name}-{number}"
                found[f"to {name}"].append(seconds(lambda p=pipeline, to=str(target): restore_to(p, "bench", 1, to)))
                found[name].append(seconds(lambda p=pipeline, n=f"{name}-{number}": take(p, n, restore=1)))
                settle(pipeline)
                shutil.rmtree(target)
    server.stop()
    what = f"restore of 500,000 rows, S3 with {LATENCY * 1000:.0f} ms more a request"
    yield Row(f"{what}: to another folder, from the store", found["to store"], "s")
    yield Row("... from the local copy", found["to local"], "s")
    yield Row("... local against store", ratios(found["to local"], found["to store"]), "x", "<= 1 x", limit=1)
    yield Row(f"{what}: to the table, from the store", found["store"], "s")
    yield Row("... from the local copy", found["local"], "s")
    yield Row("... local against store", ratios(found["local"], found["store"]), "x", "<= 1 x", limit=1)


def with_a_tail() -> Iterator[Row]:
    """The same snapshot with two tails of as many changes: anywhere, and all of them in 2 of 16 buckets."""
    with folder() as root:
        found: dict[str, list[float]] = {"whole": [], "anywhere": [], "in 2": []}
        pipelines = {}
        for name, ids in (("anywhere", range(0, ROWS, 10)), ("in 2", _ids_of_two_buckets())):
            (root / name).mkdir()
            pipelines[name] = make_filled(root / name, ROWS, 16)
            write(pipelines[name], ids, 7)
        tails = {name: take_tail(one, "bench", "tail").snapshot or 0 for name, one in pipelines.items()}
        asked = {"whole": (pipelines["anywhere"], 1), **{name: (pipelines[name], tails[name]) for name in tails}}
        for number in range(ROUNDS):
            for name, (pipeline, snapshot) in asked.items():
                target = root / f"{name}-{number}"
                found[name].append(
                    seconds(lambda p=pipeline, s=snapshot, to=str(target): restore_to(p, "bench", s, to))
                )
                shutil.rmtree(target)
    yield Row(f"restore of {ROWS:,} rows to another folder, whole snapshot", found["whole"], "s")
    for name, where in (("anywhere", "anywhere, so that every bucket is folded"), ("in 2", "in 2 of 16 buckets")):
        yield Row(f"... of the same with a tail of 10 % changed rows, {where}", found[name], "s")
        values = ratios(found[name], found["whole"])
        yield Row("... with the tail against without", values, "x", "<= 1.25 x", limit=1.25)


def _ids_of_two_buckets() -> list[int]:
    """A tenth of the ids, all of them in the first 512 of 4,096 key groups."""
    group = key_group_sql(TableSpec(("id",), (Column("id", "long"),), "arrival", 4096, 16))
    with duckdb.connect() as db:
        found = db.sql(f"SELECT id FROM (SELECT i::BIGINT AS id FROM range({ROWS}) r(i)) WHERE {group} < 512")
        return [one for (one,) in found.limit(ROWS // 10).fetchall()]


def main() -> None:
    parts = {"full": full_snapshots, "files": many_files, "tail": with_a_tail, "local": from_local_copies}
    rows = [row for part in PARTS for row in parts[part]()]
    head = [
        "# What snapshots and restores cost",
        "",
        "Written by `make bench-snapshot` (benchmarks/snapshot.py). Local disk, medians; the ways take turns.",
        machine(),
        "",
        "Snapshots and restores run in this process, without the start of a JVM; Spark's session is warm. All ways end",
        "with their bytes on disk (`cp -r` is followed by fsync), restores have proved each file by its sha256.",
        "",
        *HEAD,
    ]
    write_page("snapshot.md", [*head, *(row.text for row in rows)])


if __name__ == "__main__":
    main()
