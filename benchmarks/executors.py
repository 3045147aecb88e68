"""CPU seconds of a fold for each row, on one, two and four executors of a real Spark cluster.

`make bench-executors` starts a master and two workers, folds the same changes on each number of executors, and writes
its part of capacity.md. A machine with two cores shows the CPU seconds of four executors, but not their wall time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from local_airflow.processes import Register, stop
from local_cluster.spark import SparkCluster, make_cluster
from support.pipelines import judge_all, put_table
from tables import KEPT, machine
from tidefold.changelog.schema import UPSERT, change_schema
from tidefold.compute.runners import on_spark
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.spark.submit import job_env, spark_conf
from tidefold.wiring import open_pipeline

PAGE = Path(__file__).parents[1] / "docs" / "contributors" / "capacity.md"
EXECUTORS = (1, 2, 4)
ROWS, CHANGES = int(os.environ.get("ROWS", 6_400_000)), 64_000
BUCKETS, ROUNDS, GOAL = 16, int(os.environ.get("ROUNDS", 3)), 0.10
LOG = "orders"
CONFIG = f"""
version: 1
store: store
spark:
  master: "{{master}}"
  driver_memory: 1g
  ship_code: true
  conf: {{{{spark.executor.memory: 512m, spark.executor.cores: 1, spark.cores.max: {{executors}}}}}}
logs:
  {LOG}:
    order: arrival
    key: [id]
    columns: {{{{id: int, text: string}}}}
    key_groups: 64
    buckets: {BUCKETS}
"""


@contextmanager
def open_cluster(root: Path) -> Iterator[SparkCluster]:
    """Starts a master and two workers with two cores each."""
    register = Register(root / "cluster.json")
    spark = make_cluster(root / "spark", {}, register, cores=2)
    try:
        spark.start_master()
        for name in ("one", "two"):
            spark.start_worker(name)
        yield spark
    finally:
        for started in reversed(register.read()):
            stop(started)


def cpu_seconds(pids: Sequence[int]) -> float:
    """Returns the CPU seconds of these processes and of all below them, also of those that have ended."""
    total = 0.0
    for pid in pids:
        above = psutil.Process(pid)
        for process in (above, *above.children(recursive=True)):
            with suppress(psutil.Error):
                total += sum(process.cpu_times()[:4])
    return total


def change(pipeline: Pipeline, ids: np.ndarray) -> None:
    """Appends a change of each of these ids. The text is new."""
    state = pipeline.ledger(LOG).begin(pipeline.log(LOG).shape)
    first, count = state.positions[0].next_offset if state.positions else 0, len(ids)
    digits = [pa.array(np.random.default_rng().integers(10**17, 10**18, count)).cast(pa.string()) for _ in range(4)]
    offsets, zero = pa.array(np.arange(first, first + count)), pa.array(np.zeros(count, np.int64))
    columns = {"_op": pa.array([UPSERT]).take(zero), "_o0": pc.add(zero, 1), "_o1": offsets, "_offset": offsets}
    columns |= {"id": pa.array(ids), "text": pc.binary_join_element_wise(*digits, " ")}
    schema = change_schema(pipeline.log(LOG).shape)
    columns["_absent"] = pa.nulls(count, schema.field("_absent").type)
    put_table(pipeline, pa.table([columns.get(f.name, zero).cast(f.type) for f in schema], schema=schema), LOG)


def measure(root: str, workers: Sequence[int]) -> None:
    """Folds in this process's Spark session. Prints wall and CPU seconds of the workers for each round, as JSON."""
    from pyspark.sql import SparkSession

    pipeline = open_pipeline(Path(root) / "tidefold.yaml", lambda text: None)
    os.environ.update({**job_env(pipeline.config), "TIDEFOLD_SPARK_C1": "1"})
    builder = SparkSession.builder.master(pipeline.config.spark.master).appName("tidefold executors")
    for key, value in spark_conf(pipeline.config).items():
        builder = builder.config(key, value)
    builder.getOrCreate()
    from tidefold.compute.spark_session import spark_session

    run = on_spark(spark_session("executors"))
    found = []
    for number in range(ROUNDS + 3):
        change(pipeline, np.arange(0, ROWS, ROWS // CHANGES if number else 1))
        kind = KindPolicy.INCREMENTAL if number else KindPolicy.FULL
        begun, before = time.perf_counter(), cpu_seconds(workers)
        [done] = materialize(pipeline, [LOG], Fold(f"run-{number}", kind=kind), run)
        assert done.status == "staged", done
        found.append((time.perf_counter() - begun, cpu_seconds(workers) - before))
        judge_all(pipeline, LOG)
        confirm(pipeline, LOG)
    # The first rounds start executors and their Python, and import.
    print(json.dumps(found[3:]), flush=True)


def main() -> None:
    found: dict[int, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-tidefold-") as made, open_cluster(Path(made)) as spark:
        workers = [str(spark.find(name).pid) for name in ("one", "two")]
        for executors in EXECUTORS:
            root = Path(made) / str(executors)
            root.mkdir()
            (root / "tidefold.yaml").write_text(CONFIG.format(master=spark.master, executors=executors))
            call = [sys.executable, __file__, str(root), *workers]
            done = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=True)
            found[executors] = [tuple(one) for one in json.loads(done.stdout.splitlines()[-1])]
            print(executors, found[executors], flush=True)
    text = "\n".join(describe(found))
    print(text)
    if os.environ.get("WRITE") != "0":
        above, _, _ = PAGE.read_text().partition(KEPT)
        PAGE.write_text(f"{above.rstrip()}\n\n{KEPT}\n\n{text}")


def describe(found: dict[int, list[tuple[float, float]]]) -> list[str]:
    cpu = {executors: min(cpu for _, cpu in rounds) for executors, rounds in found.items()}
    first = cpu[EXECUTORS[0]]
    lines = [
        "## From one to four executors",
        "",
        f"`make bench-executors`: {CHANGES:,} changes that reach all {BUCKETS} buckets of {ROWS:,} rows, folded on a",
        f"standalone cluster with two workers and executors of one core. {machine()} CPU seconds are those of the",
        "workers with all their processes: JVM and Python. The least of some rounds counts, after two to warm up.",
        "Four executors share two cores here, so their wall time says nothing about a larger machine.",
        "",
        "| executors | CPU for each million rows | compared with one | CPU of the rounds | wall time, median |",
        "|---|---|---|---|---|",
    ]
    for executors, rounds in found.items():
        each = cpu[executors] / ROWS * 1e6
        spread = ", ".join(f"{one:.2f}" for _, one in rounds)
        wall = statistics.median(seconds for seconds, _ in rounds)
        compared = f"{cpu[executors] / first - 1:+.0%}" if executors > 1 else ""
        lines.append(f"| {executors} | {each:.2f} s | {compared} | {spread} s | {wall:.1f} s |")
    worst = max(abs(one / first - 1) for one in cpu.values())
    verdict = "met" if worst <= GOAL else "**missed**"
    return [*lines, "", f"Goal: the same CPU seconds for each row within {GOAL:.0%}: {verdict} ({worst:.0%}).", ""]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1], [int(pid) for pid in sys.argv[2:]])
    else:
        main()
