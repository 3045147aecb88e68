"""What a plan costs beside the first load of the same rows: time, CPU and memory of all its processes.

    make bench-plan          (ROWS=10000000; MEMORY=4g of the JVM; WRITE=0 writes no page)

A log is loaded from Parquet files. A tenth of its rows is sent again, with an earlier `created` and a later `changed`.
Two plans, of another order and of another key, and the application of the first are commands of their own, on Spark
with two cores. The rows of a plan are compared with what the files say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import psutil
import yaml

from process_use import measure_use
from tables import folder, machine, write_page
from test_tiers.cpu import adopt_orphans

ROWS = int(os.environ.get("ROWS", "10000000"))
MEMORY = os.environ.get("MEMORY", "4g")
_PER_FILE = 1_000_000
LOG = "orders"
COLUMNS = {
    "id": "long", "line": "int", "amount": "decimal(12,2)", "text": "string", "created": "timestamp",
    "changed": "timestamp",
}  # fmt: skip


def main() -> None:
    adopt_orphans()
    with folder() as root:
        write_rows(root / "landing")
        lines = [
            "# What a plan costs",
            "",
            "Written by `make bench-plan` (benchmarks/plan.py).",
            "A [plan](../decisions/0085-a-plan-is-a-shadow-store.md) beside the first load of the same rows: "
            f"{ROWS:,} rows, and a tenth of them sent again. Each command is a process of its own, with Spark in "
            f"`local[2]` and {MEMORY} for the JVM. CPU and the peak of memory are sampled "
            f"twice a second over all processes. {machine()}",
            "",
            "| command | wall | CPU | memory beside the JVM | JVM | load of the machine |",
            "|---|---|---|---|---|---|",
        ]
        configure(root, "created", "id")
        lines.append(call("`run`, the first load", root, "run")[0])
        configure(root, "changed", "id")
        line, of_order = call("`plan` of another order", root, "plan", LOG)
        lines.append(line)
        configure(root, "created", "id, line")
        line, of_key = call("`plan` of another key", root, "plan", LOG)
        lines.append(line)
        require(of_order["plan"]["counts"]["changed"], ROWS // 10)
        require(of_key["plan"]["counts"]["added"], ROWS // 10)
        configure(root, "changed", "id")
        lines.append(call("`plan --apply` of the first", root, "plan", LOG, "--apply")[0])
        size = sum(path.stat().st_size for path in (root / "landing").iterdir())
        lines += [
            "",
            f"Landed: {size / 1e6:,.0f} MB of Parquet. The plan of another order changed {ROWS // 10:,} rows,",
        ]
        lines.append("that of another key added as many. Both are what the files say.")
    write_page("plan.md", lines)


def require(count: int, expected: int) -> None:
    if count != expected:
        raise SystemExit(f"{count:,} rows differ, and {expected:,} should")


def write_rows(landing: Path) -> None:
    """Each row once; then every tenth again, as another line, created before and changed after it."""
    landing.mkdir()
    with duckdb.connect(config={"threads": 1, "memory_limit": "1GB"}) as db:
        for first in range(0, ROWS, _PER_FILE):
            ids = f"range({first}, {min(first + _PER_FILE, ROWS)}) r(i)"
            select(db, landing / f"a-{first:010d}.parquet", ids, 1, "true")
            select(db, landing / f"b-{first:010d}.parquet", ids, 2, "i % 10 = 0")


def select(db: duckdb.DuckDBPyConnection, path: Path, ids: str, line: int, where: str) -> None:
    start = "TIMESTAMP '2026-01-01'"
    created, changed = (f"{start} + to_seconds(i + {n})" for n in ((2, 2) if line == 1 else (1, 3)))
    rows = (
        f"SELECT i::BIGINT AS id, {line}::INT AS line, (hash(i, {line}) % 1000000 / 100)::DECIMAL(12,2) AS amount, "
        f"'text ' || (hash(i, {line}, 1) % 1000) AS text, {created} AS created, {changed} AS changed "
        f"FROM {ids} WHERE {where} ORDER BY hash(i)"
    )
    db.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")


def configure(root: Path, order: str, key: str) -> None:
    log = {
        "source": {"format": "parquet", "path": "landing"}, "key": key.split(", "), "order": [order],
        "columns": COLUMNS, "buckets": 32,
    }  # fmt: skip
    spark = {"master": "local[2]", "driver_memory": MEMORY, "above": "0B"}
    (root / "tidefold.yaml").write_text(
        yaml.safe_dump({"version": 1, "store": "store", "spark": spark, "logs": {LOG: log}})
    )


def call(what: str, root: Path, *words: str) -> tuple[str, dict[str, Any]]:
    """Runs a command. Returns its line of the table, and what it printed."""
    command = [
        sys.executable,
        "-m",
        "tidefold.cli",
        *words,
        "--format",
        "json",
        "--config",
        str(root / "tidefold.yaml"),
    ]
    with (root / "output").open("w+") as output:
        with measure_use(psutil.Process()) as used:
            process = subprocess.run(command, stdout=output, check=False)
        output.seek(0)
        told = output.read()
    if process.returncode:
        raise SystemExit(f"{what}: exit code {process.returncode}\n{told[-2000:]}")
    memory = f"{used.others / 1e9:.2f} GB | {used.java / 1e9:.2f} GB"
    line = f"| {what} | {used.wall:,.0f} s | {used.cpu:,.0f} s | {memory} | {used.load[1]:.1f} |"
    print(line, flush=True)
    return line, json.loads(told)


if __name__ == "__main__":
    main()
