"""Whole runs beside the usual job with 12 GB of heap, its gate and its MERGE alone, cold and in a warm session.

    make bench-usual      (SIZES=1000000,10000000 SHARES=0.01,0.1 ROUNDS=1; WAYS=ours,usual,page; WARM=0: cold runs
                          alone; HEAP=12g; KEEP: a folder for the loaded tables, which bench-growth uses, too)

Both get copies of one table and the same landed file, and their rows are compared by count and sums. A cold run is a
process from its start to its end. What was measured is added to the results beside the page, docs/contributors/
benchmarks/usual.md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import yaml
from deltalake import DeltaTable, QueryBuilder

from fold_data import link_tree
from growth import _DELETES, COLUMNS, LOG, _choose_ids, _land, find_base
from process_use import measure_use
from run import _SPARK_TYPES, JOB
from tables import folder
from test_tiers.cpu import adopt_orphans
from tidefold.config import load_config
from tidefold.quality.suite.suite import load_suite
from tidefold.spark.local_server import LocalServer, find_running
from tidefold.spark.submit import job_env, spark_conf, spark_submit
from tidefold.wiring import open_pipeline
from usual_page import RESULTS, write

SIZES = [int(size) for size in os.environ.get("SIZES", "1000000,10000000").split(",")]
SHARES = [float(share) for share in os.environ.get("SHARES", "0.01,0.1").split(",")]
ROUNDS = int(os.environ.get("ROUNDS", "1"))
WAYS = os.environ.get("WAYS", "ours,usual").split(",")
WARM = os.environ.get("WARM", "1") == "1"
HEAP = os.environ.get("HEAP", "12g")
_SUMS = 'count(*) AS rows, sum(balance) AS balance, sum("at") AS at'


def main() -> None:
    adopt_orphans()
    with folder() as scratch:
        for number in range(ROUNDS if "page" not in WAYS else 0):
            for rows in SIZES:
                base = scratch / "base"
                find_base(base, rows)
                for share in SHARES:
                    _measure(base, scratch, rows, share, number)
                shutil.rmtree(base)
    write()


def _measure(base: Path, scratch: Path, rows: int, share: float, number: int) -> None:
    ids = _choose_ids(rows, number, int(rows * share))
    found = []
    for way in WAYS:
        root = scratch / way
        link_tree(base, root)
        # A copy of its own: landed files are added, and the configuration is another.
        _configure(root, "2g" if way == "ours" else HEAP)
        _land(root, rows, rows, ids)
        found += (
            _run_ours(root, rows, share) if way == "ours" else _run_usual(root, rows, share, _count_after(rows, ids))
        )
        shutil.rmtree(root)
    if any(one != found[0] for one in found):
        raise SystemExit(f"other rows: {found}")


def _count_after(rows: int, ids: Any) -> int:
    """The rows of the table after the changes that `_land` makes of these ids."""
    deletes = np.arange(len(ids)) % 100 < _DELETES
    return int(rows + (ids >= rows).sum() - (deletes & (ids < rows)).sum())


def _configure(root: Path, memory: str) -> None:
    path = root / "tidefold.yaml"
    config = yaml.safe_load(path.read_text()) | {"spark": {"master": "local[2]", "driver_memory": memory}}
    path.unlink()
    path.write_text(yaml.safe_dump(config))


def _run_ours(root: Path, rows: int, share: float) -> list[dict[str, Any]]:
    found = []
    for warm in (False, True)[: 1 + WARM]:
        copy = root.with_name("copy")
        link_tree(root, copy)
        server = _start_server(root, copy) if warm else None
        trees = [psutil.Process(), *([psutil.Process(server.pid)] if server else [])]
        with measure_use(*trees) as used:
            _call(_tidefold(copy, "run"))
        _keep("tidefold", rows, share, warm, used.wall, used.cpu, used.load)
        found.append(_sum(copy / "store" / "tables" / LOG))
        if warm:
            _call(_tidefold(root, "spark", "stop"))
        shutil.rmtree(copy)
    return found


def _start_server(root: Path, copy: Path) -> LocalServer | None:
    """The server of `tidefold spark start`, which has run a copy before."""
    _call(_tidefold(root, "spark", "start"))
    server = find_running(load_config(root / "tidefold.yaml"))
    first = root.with_name("first")
    link_tree(copy, first)
    for each in (first, copy):
        (each / "var").mkdir(exist_ok=True)
        (each / "var" / "server").symlink_to(server.folder if server else "")
    _call(_tidefold(first, "run"))
    shutil.rmtree(first)
    return server


def _run_usual(root: Path, rows: int, share: float, after: int) -> list[dict[str, Any]]:
    """One session, two runs: the first is cold, and counts from the start of the process."""
    loaded = load_config(root / "tidefold.yaml")
    suite = load_suite(root / "suite.yaml", open_pipeline(loaded.path).log(LOG).shape, 0.5)
    tables = [root.with_name(f"usual-{number}") for number in range(1 + WARM)]
    for table in tables:
        link_tree(root / "store" / "tables" / LOG, table)
    asked = {
        "do": "session", "landed": f"{root}/landing/{LOG}", "tables": list(map(str, tables)),
        "report": str(root / "report.jsonl"),
        "columns": ", ".join(f"{name}: {_SPARK_TYPES[kind]}" for name, kind in COLUMNS.items()),
        "checks": [(c.type, dict(c.kwargs)) for c in suite.checks(after, after) if not c.own],
    }  # fmt: skip
    before = (time.time(), 0.0)
    with measure_use(psutil.Process()) as used:
        _call(spark_submit("local[2]", spark_conf(loaded), JOB, json.dumps(asked)), job_env(loaded))
    print(f"JVM: {used.java / 1e9:.1f} GB", flush=True)
    for line in map(json.loads, (root / "report.jsonl").read_text().splitlines()):
        now, warm = (line["time"], line["cpu"]), line["number"] > 0
        if line["step"] == "begin":
            before = now if warm else before
            continue
        way = "MERGE" if line["step"] == "MERGE" else "the usual job"
        _keep(way, rows, share, warm, now[0] - before[0], now[1] - before[1], used.load)
    found = [_sum(table) for table in tables]
    for table in tables:
        shutil.rmtree(table)
    return found


def _sum(table: Path) -> dict[str, Any]:
    """The number of rows, and sums of columns."""
    found = QueryBuilder().register("t", DeltaTable(str(table))).execute(f"SELECT {_SUMS} FROM t").read_all()
    [sums] = pa.table(found).to_pylist()
    return dict(sums)


def _tidefold(root: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "tidefold.cli", *words, "--config", str(root / "tidefold.yaml")]


def _call(command: Sequence[str], env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False)
    if done.returncode:
        said = f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
        raise SystemExit(f"{' '.join(command)[:300]} ended with {done.returncode}: {said}")


def _keep(way: str, rows: int, share: float, warm: bool, wall: float, cpu: float, load: Sequence[float]) -> None:
    measured = {
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), "way": way, "rows": rows, "share": share, "warm": warm,
        "wall": round(wall, 1), "cpu": round(cpu, 1), "load": [round(one, 1) for one in load],
    }  # fmt: skip
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    RESULTS.write_text("[\n" + ",\n".join(map(json.dumps, [*kept, measured])) + "\n]\n")
    print(measured, flush=True)


if __name__ == "__main__":
    main()
