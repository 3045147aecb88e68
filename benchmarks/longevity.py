"""Measures a log after a long life: many small segments, many snapshots in a row, idle runs, live reads.

`make bench-long` writes longevity.md. ROWS, ROUNDS: how large the table is, how often each way runs;
PARTS: some of idle, segments, row, spark. With CLOCK=cpu it counts CPU seconds, and with WRITE=0 it only prints.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from unittest import mock

import duckdb
import psutil
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from fold_data import append, begin, changes, checksum, connection, files_of, fold, link_tree, open_bench, table_of
from fold_measured import Use, sample_use
from support.small_segments import put_segments
from tables import HEAD, Row, folder, machine, ratios, seconds, write_page
from tidefold.compute.runners import in_threads, on_spark
from tidefold.config import Config
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.spark.data_source import register
from tidefold.spark.submit import job_env, spark_conf

ROWS, ROUNDS = int(os.environ.get("ROWS", "1000000")), int(os.environ.get("ROUNDS", "3"))
PARTS = os.environ.get("PARTS", "idle,segments,row,spark").split(",")
SEGMENTS, SNAPSHOTS = 10_000, 50
TIDEFOLD = Path(__file__).parents[1] / "tidefold"


def small_segments(base: Path, scratch: Path) -> Iterator[Row]:
    """The same changes in few segments and in many; each round folds a copy of each."""
    with connection() as db:
        table = changes(db, ROWS, 0.05, 1)
    made = {count: _make_table(base, scratch / f"segments-{count}", table, count) for count in (16, SEGMENTS)}
    taken = _time_folds_in_turn(made, scratch)
    what = f"{table.num_rows:,} changes folded into {ROWS:,} rows"
    yield Row(f"{what}, from 16 segments", taken[16], "s")
    yield Row(f"... from {SEGMENTS:,} segments", taken[SEGMENTS], "s")
    yield Row("... many against few", ratios(taken[SEGMENTS], taken[16]), "x", "<= 3 x", limit=3)


def _time_folds_in_turn(waiting: dict[int, Path], scratch: Path) -> dict[int, list[float]]:
    """Returns the seconds to fold the waiting changes of each store, in copies, in rotating order."""
    taken: dict[int, list[float]] = {count: [] for count in waiting}
    for number in range(ROUNDS):
        for count in sorted(waiting, reverse=number % 2 == 1):
            with _copy(waiting[count], scratch) as root:
                taken[count].append(seconds(lambda root=root: _fold(root, "measured")))
            print(f"{count}: {taken[count][-1]:.2f} s", flush=True)
    return taken


def _make_table(base: Path, root: Path, table: pa.Table, count: int) -> Path:
    edges = [table.num_rows * number // count for number in range(count + 1)]
    link_tree(base, root)
    # How long it takes to put them there is not measured.
    with mock.patch("os.fsync"):
        put_segments(open_bench(root), "bench", [table.slice(a, b - a) for a, b in pairwise(edges)])
    return root


def _fold(root: Path, run: str, kind: KindPolicy = KindPolicy.INCREMENTAL) -> None:
    fold(open_bench(root), run, kind, in_threads())


@contextmanager
def _copy(root: Path, scratch: Path) -> Iterator[Path]:
    # Another each time: Spark's workers keep what they read of a snapshot.
    copy = scratch / uuid.uuid4().hex
    link_tree(root, copy)
    os.sync()
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


def in_a_row(base: Path, scratch: Path) -> Iterator[Row]:
    """Incremental snapshots of 0.1 % each, of which three are kept; then the table is scanned."""
    root = scratch / "in-a-row"
    link_tree(base, root)
    config = root / "tidefold.yaml"
    text = config.read_text()
    config.unlink()  # The copies share it.
    config.write_text(f"{text}\nretention: {{snapshots: 3}}\n")
    waiting = {2: scratch / "before-2", SNAPSHOTS: scratch / "before-last"}
    for number in range(1, SNAPSHOTS + 1):
        # What is not measured need not wait for the disk.
        with connection() as db, mock.patch("os.fsync"):
            append(open_bench(root), [changes(db, ROWS, 0.001, number)])
            if number in waiting:
                link_tree(root, waiting[number])
            _fold(root, f"run-{number}")
            subsume(open_bench(root), "bench")
            truncate(open_bench(root), "bench")
    taken = _time_folds_in_turn(waiting, scratch)
    yield Row(f"incremental snapshot of 0.1 % of {ROWS:,} rows, the 2nd in a row", taken[2], "s")
    yield Row(f"... the {SNAPSHOTS}th", taken[SNAPSHOTS], "s")
    yield Row(f"... the {SNAPSHOTS}th against the 2nd", ratios(taken[SNAPSHOTS], taken[2]), "x", "<= 1.2 x", limit=1.2)
    yield from _scans(root, scratch)


def _scans(root: Path, scratch: Path) -> Iterator[Row]:
    """The table as it became, and one freshly made of the same rows."""
    fresh = scratch / "fresh"
    fresh.mkdir()
    shutil.copy(root / "tidefold.yaml", fresh)
    rows = DeltaTable(str(table_of(root))).to_pyarrow_table()
    append(open_bench(fresh), [rows.select(["id", "amount", "seen", "city", "text"])])
    _fold(fresh, "fresh", KindPolicy.FULL)
    if checksum(table_of(fresh)) != checksum(table_of(root)):
        raise SystemExit("the fresh table has other rows")
    ways: dict[str, Callable[[Path], object]] = {"deltalake": _by_deltalake, "DuckDB": _by_duckdb}
    for name, scan in ways.items():
        found: dict[Path, list[float]] = {root: [], fresh: []}
        for number in range(2 * ROUNDS + 1):
            for one in sorted(found, reverse=number % 2 == 1):
                found[one].append(seconds(lambda one=one, scan=scan: scan(table_of(one))))
        yield Row(f"scan by {name} after {SNAPSHOTS} snapshots", found[root][1:], "s")
        against = ratios(found[root][1:], found[fresh][1:])
        yield Row("... against freshly compacted", against, "x", "<= 1.25 x", limit=1.25)


def _by_deltalake(table: Path) -> object:
    return DeltaTable(str(table)).to_pyarrow_table().num_rows


def _by_duckdb(table: Path) -> object:
    with duckdb.connect() as db:
        query = "SELECT sum(id), sum(amount), max(seen), max(city), max(text) FROM read_parquet(?)"
        return db.execute(query, [files_of(table)]).fetchall()


def nothing_to_do(base: Path) -> Iterator[Row]:
    """As a user runs it, where there is no Java: had it wanted a JVM it would have failed."""
    command = [str(TIDEFOLD), "run", "bench", "--config", str(base / "tidefold.yaml")]
    env = {**os.environ, "JAVA_HOME": "/nonexistent"}
    taken = [
        seconds(lambda: subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL))
        for _ in range(ROUNDS + 2)
    ]
    yield Row("`tidefold run` with nothing to do, without a Java to start", taken, "s", "<= 2 s", limit=2)


def memory(base: Path, spark: SparkSession, scratch: Path) -> Iterator[Row]:
    """The most that all processes but the JVM held at once; a page that two share counts twice."""
    waiting = scratch / "memory"
    link_tree(base, waiting)
    with connection() as db:
        append(open_bench(waiting), [changes(db, ROWS, 0.01, 3)])
    what = f"most memory while 1 % is folded into {ROWS:,} rows"
    ways = {"in this process": in_threads(), "on Spark, beside its JVM": on_spark(spark)}
    for name, runner in ways.items():
        with _copy(waiting, scratch) as root, sample_use(use := Use(), psutil.Process()):
            fold(open_bench(root), "measured", KindPolicy.INCREMENTAL, runner)
        yield Row(f"{what}, {name}", [use.others / 2**30], "GiB", "<= 2 GiB", limit=2)


def reading_live(base: Path, spark: SparkSession, scratch: Path) -> Iterator[Row]:
    """The table alone and with a tail, through the command line's reader and through Spark's data source."""
    for share in (0.001, 0.01):
        root = scratch / f"tail-{share}"
        link_tree(base, root)
        with connection() as db:
            append(open_bench(root), [changes(db, ROWS, share, 4)])
        for name, read in (("`tidefold read`", _read), ("Spark", lambda r, w: _read_by_spark(spark, r, w))):
            taken: dict[What, list[float]] = {What.TABLE: [], What.LIVE: []}
            for _ in range(ROUNDS + 1):
                for what, some in taken.items():
                    some.append(seconds(lambda r=root, w=what, read=read: read(r, w)))
            yield Row(f"{name}: {ROWS:,} rows, the table alone", taken[What.TABLE][1:], "s")
            yield Row(f"... live, with a tail of {share:.1%}", taken[What.LIVE][1:], "s")
            against = ratios(taken[What.LIVE][1:], taken[What.TABLE][1:])
            yield Row("... live against the table alone", against, "x", "close")


def _read(root: Path, what: What) -> None:
    _, rows = read_rows(open_bench(root), "bench", ReadRequest(what))
    for _ in rows:
        pass


def _read_by_spark(spark: SparkSession, root: Path, what: What) -> None:
    given = {"config": str(root / "tidefold.yaml"), "log": "bench", "what": str(what)}
    spark.read.format("tidefold").options(**given).load().write.format("noop").mode("overwrite").save()


def _with_spark(base: Path, scratch: Path) -> Iterator[Row]:
    spark = _session(open_bench(base).config)
    register(spark)
    yield from memory(base, spark, scratch)
    yield from reading_live(base, spark, scratch)
    spark.stop()


def _session(config: Config) -> SparkSession:
    os.environ.update(job_env(config))
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for key, value in {**spark_conf(config), "spark.driver.memory": "2g"}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def main() -> None:
    with folder() as scratch:
        base = begin(scratch / "base", ROWS)
        parts: dict[str, Callable[[], Iterator[Row]]] = {
            "idle": lambda: nothing_to_do(base),
            "segments": lambda: small_segments(base, scratch),
            "row": lambda: in_a_row(base, scratch),
            "spark": lambda: _with_spark(base, scratch),
        }
        rows = [row for part in PARTS for row in parts[part]()]
    head = [
        "# What a long life costs",
        "",
        f"Written by `ROWS={ROWS} ROUNDS={ROUNDS} make bench-long` (benchmarks/longevity.py). Local disk, medians.",
        machine(),
        "",
        "Rows have about 100 bytes and lie in 16 buckets. Folds run in this process, from segments on disk to the",
        "synced commit; Spark is warm.",
        "",
        *HEAD,
    ]
    write_page("longevity.md", [*head, *(row.text for row in rows)])


if __name__ == "__main__":
    main()
