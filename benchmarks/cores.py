"""How the ingest of one large file, and a whole run of a change in one file, get faster from one core to two.

    make bench-cores         (WAYS=parquet,json,csv,debezium,run names the parts, WAYS= only writes the page; ROUNDS=3;
                             ROWS=16000000: the table of `run`; BEFORE: a clone of an earlier commit, measured in turn)

Each measurement is a process of its own with its own Spark. What was measured is added to the results beside the page.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import duckdb
import psutil
import yaml

from fold_data import link_tree
from large import COLUMNS, LOG, ROWS, _load, _select_rows, _write_changes
from process_use import measure_use
from tables import PAGES, folder, machine, write_page
from test_tiers.cpu import adopt_orphans, measure_running

HERE = Path(__file__).parents[1]
CLONES = {"before": Path(before)} if (before := os.environ.get("BEFORE")) else {}
CLONES |= {"now": HERE}
ROUNDS = int(os.environ.get("ROUNDS", "3"))
WAYS = [way for way in os.environ.get("WAYS", "parquet,json,csv,debezium,run").split(",") if way]
RESULTS = PAGES / "cores.json"
BYTES = int(os.environ.get("BYTES", "300000000"))
SOURCES: dict[str, dict[str, Any]] = {
    "parquet": {"format": "parquet", "op": {"column": "op"}},
    "csv": {"format": "csv", "op": {"column": "op"}},
    "json": {"format": "json", "record": "value", "names": "any", "op": {"column": "op"}},
    "debezium": {"format": "debezium-json", "connector": "postgresql"},
}
_ROW_BYTES = {"parquet": 38, "csv": 88, "json": 175, "debezium": 330}


def main() -> None:
    adopt_orphans()
    if len(sys.argv) > 1:
        _ingest(Path(sys.argv[1]), int(sys.argv[2]))
        return
    with folder() as scratch:
        for way in WAYS:
            _measure_run(scratch) if way == "run" else _measure_ingest(scratch / way, way)
    write()


def write() -> None:
    """Writes the page from all results."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    lines = [
        "# From one core to two",
        "",
        "Written by `make bench-cores` (benchmarks/cores.py). " + machine(),
        "",
        "One landed file of about 300 MB (156 MB of Parquet) with ten columns is ingested on Spark, `local[1]` against",
        "`local[2]`, in a session that has run tasks before. `before` reads a file as one, `now` in parts (decision",
        "[0092](../decisions/0092-landed-files-are-split.md)). The runs are whole processes, start of Spark and gate",
        "included: a change of 10 % in one file of Parquet.",
        "",
        "*Alone* is computed from CPU seconds: the driver, and the core that gets most of the tasks, as if no other",
        "work ran. *Wall* is what passed on a shared machine with the load that is given.",
        "",
        "| what | | alone, 1 core | 2 cores | ratio | CPU s, 1 and 2 | wall, 1 core | 2 cores | ratio | load |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for way, clone in dict.fromkeys((one["way"], one["clone"]) for one in kept):
        mine = [one for one in kept if (one["way"], one["clone"]) == (way, clone)]
        cells = []
        for name in ("path", "cpu", "wall"):
            one, two = ([r[name] for r in mine if r["cores"] == cores and r[name] is not None] for cores in (1, 2))
            if not one or not two:
                cells += [""] if name == "cpu" else ["", "", ""]
                continue
            middle = statistics.median(one), statistics.median(two)
            told = [f"{middle[0]:.1f}", f"{middle[1]:.1f}", f"{middle[0] / middle[1]:.2f}"]
            cells += [f"{told[0]}, {told[1]}"] if name == "cpu" else told
        loads = [one["load"] for one in mine]
        lines.append(f"| {way} | {clone} | {' | '.join(cells)} | {min(loads):.0f} to {max(loads):.0f} |")
    write_page("cores.md", lines)


def _keep(way: str, clone: str, cores: int, path: float | None, wall: float, cpu: float, load: float) -> None:
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    figures = {"path": path, "wall": wall, "cpu": cpu, "load": load}
    kept.append({"way": way, "clone": clone, "cores": cores, **figures})
    RESULTS.write_text("[\n" + ",\n".join(map(json.dumps, kept)) + "\n]\n")
    print(way, clone, cores, figures, flush=True)


def _measure_ingest(root: Path, way: str) -> None:
    landing = root / "landing" / LOG
    landing.mkdir(parents=True)
    _land(landing, way)
    for clone, cores in [(clone, cores) for _ in range(ROUNDS) for clone in CLONES for cores in (1, 2)]:
        shutil.rmtree(root / "store", ignore_errors=True)
        log = {"source": {**SOURCES[way], "path": f"landing/{LOG}"}, "key": ["id"], "columns": COLUMNS}
        log |= {} if way == "debezium" else {"order": ["at"]}
        spark = {"master": f"local[{cores}]", "driver_memory": "2g"}
        config = {"version": 1, "store": "store", "logs": {LOG: log}, "spark": spark}
        (root / "tidefold.yaml").write_text(yaml.safe_dump(config))
        load = os.getloadavg()[0]
        done = subprocess.run(
            [sys.executable, __file__, str(root), str(cores)],
            env=_env(CLONES[clone]),
            text=True,
            capture_output=True,
        )
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
        path, wall, cpu, *told = json.loads(done.stdout.splitlines()[-1])
        _keep(way, clone, cores, path, wall, cpu, load)
        print(f"{told[0]} tasks, {told[1]:,} changes", flush=True)
    shutil.rmtree(root)


def _env(clone: Path) -> dict[str, str]:
    paths = [clone / "include", HERE / "benchmarks", HERE / "tests", HERE / "scripts"]
    return {**os.environ, "PYTHONPATH": ":".join(map(str, paths))}


def _land(landing: Path, way: str) -> None:
    """Writes one file of about BYTES."""
    rows = BYTES // _ROW_BYTES[way]
    # More keys than rows, some twice.
    select = _select_rows(f"SELECT hash(i) % {rows} AS id, 'u' AS op, i AS pos FROM range({rows}) r(i)", 0)
    with duckdb.connect() as db:
        if way == "debezium":
            row = ", ".join(f"{name} := {name}" for name in COLUMNS).replace("at := at", '"at" := "at"')
            record = f"""json_object('offset', "at", 'key', json_object('id', id), 'value', json_object('before', NULL,
                'after', struct_pack({row}), 'op', 'u', 'source', json_object('sequence',
                '["' || (1000 + "at") || '","' || (1000 + "at") || '"]', 'ts_us', "at", 'snapshot', 'false')))"""
            path, options = (
                landing / f"{LOG}+0+0000000000.jsonl",
                "FORMAT csv, HEADER false, QUOTE '', DELIMITER '\x01'",
            )
            db.execute(f"COPY (SELECT {record} FROM ({select})) TO '{path}' ({options})")
        else:
            kind = {"parquet": "FORMAT parquet, COMPRESSION zstd", "csv": "FORMAT csv, HEADER", "json": "FORMAT json"}
            path = landing / f"rows.{'jsonl' if way == 'json' else way}"
            db.execute(f"COPY ({select}) TO '{path}' ({kind[way]})")
    print(f"{way}: {rows:,} rows, {path.stat().st_size / 1e6:.0f} MB", flush=True)


def _ingest(root: Path, cores: int) -> None:
    """Prints the seconds of an ingest on Spark, after a small one."""
    from pyspark.sql import SparkSession

    from tidefold.compute.runners import _OfCores, on_spark
    from tidefold.operations.ingest.ingest import ingest
    from tidefold.spark.submit import job_env, spark_conf
    from tidefold.wiring import open_pipeline

    pipeline = open_pipeline(root / "tidefold.yaml")
    os.environ.update(job_env(pipeline.config))
    builder = SparkSession.builder.master(f"local[{cores}]")
    for name, value in spark_conf(pipeline.config, "ingest").items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    runner = on_spark(spark)
    runner(_import, ["1"] * 4 * cores)
    tasks = root / "tasks"
    shutil.rmtree(tasks, ignore_errors=True)
    tasks.mkdir()
    before, own, begun = measure_running(os.getpid()), time.process_time(), time.monotonic()
    [outcome] = ingest(pipeline, [LOG], _OfCores(lambda work, some: runner(_Timed(work, str(tasks)), some), cores))
    wall, cpu = time.monotonic() - begun, measure_running(os.getpid()) - before
    driver, each = time.process_time() - own, [float(path.read_text()) for path in tasks.iterdir()]
    # What it takes on cores of its own: the driver, and the core that gets most.
    longest = [0.0] * cores
    for one in sorted(each, reverse=True):
        longest[longest.index(min(longest))] += one
    print(json.dumps([driver + max(longest), wall, cpu, len(each), outcome.facts["changes"]]))
    spark.stop()


class _Timed:
    """Does the work, and leaves the CPU seconds that it took in a folder."""

    def __init__(self, work: Any, folder: str) -> None:
        self._work, self._folder = work, folder

    def __call__(self, task: str) -> str:
        begun = time.process_time()
        answer: str = self._work(task)
        Path(self._folder, uuid.uuid4().hex).write_text(str(time.process_time() - begun))
        return answer


def _import(text: str) -> str:
    from tidefold.operations.ingest import parse

    return f"{text}{parse.__name__}"


def _measure_run(scratch: Path) -> None:
    base = Path(os.environ.get("KEEP", scratch)) / "base"
    if not base.exists():
        _load(base, "store")
    for clone, cores in [(clone, cores) for _ in range(ROUNDS) for clone in CLONES for cores in (1, 2)]:
        copy = scratch / "copy"
        link_tree(base, copy)
        config = yaml.safe_load((copy / "tidefold.yaml").read_text())
        config["spark"] |= {"master": f"local[{cores}]", "above": "0B"}
        (copy / "tidefold.yaml").unlink()
        (copy / "tidefold.yaml").write_text(yaml.safe_dump(config))
        path = copy / "landing" / LOG / "changes.parquet"
        _write_changes(0.1, path)
        command = [CLONES[clone] / "tidefold", "run", "--config", copy / "tidefold.yaml"]
        with measure_use(psutil.Process()) as used:
            done = subprocess.run(list(map(str, command)), text=True, capture_output=True)
        if done.returncode:
            raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])
        _keep(f"run, {ROWS:,} rows", clone, cores, None, used.wall, used.cpu, used.load[0])
        print(f"{path.stat().st_size / 1e6:.0f} MB", flush=True)
        shutil.rmtree(copy)


if __name__ == "__main__":
    main()
