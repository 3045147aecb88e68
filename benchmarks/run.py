"""Whole runs, cold start included: landed Debezium JSON -> published table, by tidefold and by the usual job.

    make bench-run        (ROWS=1000000 ROUNDS=5 SIZES=10kB,1MB,1%,100MB; WAYS names some of the ways; WAYS=page only
                           writes the page)

Each way is the process that a person starts. Wall seconds and the CPU seconds of the process and its children are
taken from outside. Each measured run is added to the results beside the page, so an interrupted benchmark goes on.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from deltalake import DeltaTable

import run_airflow
import run_cost
from run_page import RESULTS, write
from tables import folder
from test_tiers.cpu import measure_running
from tidefold.cli import sample
from tidefold.config import load_config
from tidefold.quality.suite.suite import load_suite
from tidefold.spark.local_server import LocalServer, find_running
from tidefold.spark.submit import job_env, spark_conf, spark_submit
from tidefold.wiring import open_pipeline

ROWS = int(os.environ.get("ROWS", "1000000"))
ROUNDS = int(os.environ.get("ROUNDS", "5"))
SIZES = os.environ.get("SIZES", "10kB,1MB,1%,100MB").split(",")
WAYS = os.environ.get("WAYS", "sample,airflow,tidefold,warm,spark,fold,usual").split(",")
TOPIC = "shop.public.accounts"
JOB = Path(__file__).parent / "peers" / "usual_job.py"
COLUMNS = {
    "id": "long", "bid": "int", "balance": "long", "amount": "double", "status": "string", "name": "string",
    "day": "int", "at": "long", "flag": "boolean", "note": "string",
}  # fmt: skip
_SPARK_TYPES = {"long": "BIGINT", "int": "INT", "double": "DOUBLE", "string": "STRING", "boolean": "BOOLEAN"}
CHECKS: list[dict[str, Any]] = [
    {"not_null": ["bid", "balance", "amount", "status", "name", "day", "at", "flag", "note"]},
    {"range": {"column": "bid", "min": 0, "max": 1000}},
    {"range": {"column": "balance", "min": -10_000, "max": 10_000}},
    {"range": {"column": "amount", "min": -100.0, "max": 100.0}},
    {"in_set": {"column": "status", "values": ["open", "closed", "held"]}},
    {"matches": {"column": "name", "regex": "^name "}},
    {"matches": {"column": "note", "regex": "^x"}},
    {"row_count": {"min": 1}},
]
UNITS = {"kB": 1_000, "MB": 1_000_000}


@dataclass(frozen=True)
class Base:
    """A published table, ready to be copied for each run.

    record: bytes of one landed record.
    checks: the expectations of the gate, as Great Expectations takes them.
    """

    root: Path
    record: int
    checks: Sequence[tuple[str, dict[str, Any]]]

    @property
    def config(self) -> Path:
        return self.root / "tidefold.yaml"


def main() -> None:
    with folder() as scratch:
        if "sample" in WAYS:
            _measure_sample(scratch)
        if "airflow" in WAYS:
            run_airflow.measure(ROUNDS)
            run_cost.measure(ROUNDS)
        if set(WAYS) & {"tidefold", "warm", "spark", "fold", "usual"}:
            base = _make_base(scratch)
            with _warm_server(base, scratch) as server:
                for round_ in range(ROUNDS):
                    for size in SIZES:
                        _measure_size(base, scratch, size, round_, server)
    write()


def _measure_sample(scratch: Path) -> None:
    for phase in (0, 1):
        for _ in range(ROUNDS):
            root = scratch / "sample"
            config = sample.prepare(root, None)
            for number in range(phase + 1):
                sample.land(config, sample.PHASES[number])
                if number < phase:
                    _call(_tidefold(config))
            _keep("sample", f"phase {phase + 1}", 0, *_measure(_tidefold(config)))
            _keep("sample", "nothing new", 0, *_measure(_tidefold(config)))
            shutil.rmtree(root)


@contextmanager
def _warm_server(base: Base, scratch: Path) -> Iterator[LocalServer | None]:
    """The server of `tidefold spark start`, after one run that nobody measures."""
    if "warm" not in WAYS:
        yield None
        return
    home = scratch / "warm"
    shutil.copytree(base.root, home)
    _call(_tidefold(home / "tidefold.yaml", "spark", "start"))
    try:
        _land(home / "landing" / TOPIC / f"{TOPIC}+0+{ROWS:010d}.jsonl", _changes(_count_changes(base, "1%"), 0))
        _call(_tidefold(home / "tidefold.yaml"))
        yield find_running(load_config(home / "tidefold.yaml"))
    finally:
        _call(_tidefold(home / "tidefold.yaml", "spark", "stop"))


def _measure_size(base: Base, scratch: Path, size: str, round_: int, server: LocalServer | None) -> None:
    changed = _count_changes(base, size)
    for way in ("tidefold", "warm", "spark", "fold", "usual"):
        if way not in WAYS:
            continue
        root = scratch / "run"
        shutil.copytree(base.root, root)
        landed = root / "landing" / TOPIC / f"{TOPIC}+0+{ROWS:010d}.jsonl"
        size_now = _land(landed, _changes(changed, round_))
        command, env = _command_of(way, base, root, landed)
        if way == "warm" and server:
            (root / "var").mkdir(exist_ok=True)
            (root / "var" / "server").symlink_to(server.folder)
        taken = _measure(command, env, server if way == "warm" else None)
        _keep(way, size, size_now, *taken)
        _check(way, root, changed)
        shutil.rmtree(root)


def _command_of(way: str, base: Base, root: Path, landed: Path) -> tuple[list[str], dict[str, str]]:
    config = root / "tidefold.yaml"
    if way == "usual":
        return _usual(config, {"do": "run", "landed": str(landed), "checks": base.checks})
    if way == "fold":
        _call(_tidefold(config, "step", "ingest"))
    if way in ("spark", "fold"):
        config.write_text(config.read_text() + "spark: {above: 0B}\n")
    return _tidefold(config, "materialize" if way == "fold" else "run"), {}


def _tidefold(config: Path, *command: str) -> list[str]:
    return [sys.executable, "-m", "tidefold.cli", *(command or ("run",)), "--config", str(config)]


def _usual(config: Path, asked: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """With the settings of tidefold's own jobs, the archive of Spark's classes included."""
    loaded = load_config(config)
    columns = ", ".join(f"{name}: {_SPARK_TYPES[type_]}" for name, type_ in COLUMNS.items())
    whole = {"columns": columns, "table": str(config.parent / "usual"), **asked}
    return list(spark_submit("local[2]", spark_conf(loaded), JOB, json.dumps(whole))), job_env(loaded)


def _make_base(scratch: Path) -> Base:
    root = scratch / "base"
    landed = root / "landing" / TOPIC / f"{TOPIC}+0+{0:010d}.jsonl"
    landed.parent.mkdir(parents=True)
    source = {"format": "debezium-json", "connector": "postgresql", "path": f"landing/{TOPIC}"}
    log = {"source": source, "key": ["id"], "columns": COLUMNS, "quality": {"suite": "suite.yaml"}, "buckets": 8}
    (root / "suite.yaml").write_text(yaml.safe_dump({"checks": CHECKS}))
    (root / "tidefold.yaml").write_text(yaml.safe_dump({"version": 1, "store": "store", "logs": {"accounts": log}}))
    size = _land(landed, _records(np.arange(ROWS), np.random.default_rng(1), 1, "r"))
    print(f"landed {size / 1e6:.0f} MB", flush=True)
    pipeline = open_pipeline(root / "tidefold.yaml")
    with_limit = (root / "tidefold.yaml").read_text()
    (root / "tidefold.yaml").write_text(with_limit + "spark: {above: 100GB}\n")
    _call(_tidefold(root / "tidefold.yaml"))
    (root / "tidefold.yaml").write_text(with_limit)
    landed.unlink()
    suite = load_suite(root / "suite.yaml", pipeline.log("accounts").shape, 0.5)
    checks = [(c.type, dict(c.kwargs)) for c in suite.checks(ROWS, ROWS) if not c.own]
    if "usual" in WAYS:
        rows = scratch / "rows.parquet"
        pq.write_table(DeltaTable(pipeline.store.uri("tables/accounts")).to_pyarrow_table(), rows)
        _call(*_usual(root / "tidefold.yaml", {"do": "make", "rows": str(rows), "files": 8}))
    return Base(root, size // ROWS, checks)


def _records(ids: Any, random: np.random.Generator, first: int, op: str) -> Iterator[str]:
    status = np.array(["open", "closed", "held"])[random.integers(0, 3, len(ids))]
    amounts = random.normal(0, 1, len(ids)).round(4)
    balances = random.integers(-5000, 5000, len(ids))
    for number, key in enumerate(ids.tolist()):
        lsn = first + number
        row = {
            "id": key, "bid": key % 100, "balance": int(balances[number]), "amount": float(amounts[number]),
            "status": str(status[number]), "name": f"name {key}", "day": 18_000 + key % 2_000,
            "at": 1_700_000_000_000_000 + key, "flag": key % 2 == 0, "note": "x" * 20,
        }  # fmt: skip
        source = {"connector": "postgresql", "snapshot": "false", "sequence": f'["{lsn}","{lsn}"]', "ts_us": lsn}
        value = {"before": None, "after": row, "source": source, "op": op, "ts_ms": lsn}
        record = {"topic": TOPIC, "partition": 0, "offset": lsn - 1, "key": {"id": key}, "value": value, "headers": []}
        yield json.dumps(record, separators=(",", ":"))


def _changes(count: int, round_: int) -> Iterator[str]:
    random = np.random.default_rng(100 + round_)
    return _records(np.sort(random.choice(ROWS, count, replace=False)), random, ROWS + 1, "u")


def _count_changes(base: Base, size: str) -> int:
    if size.endswith("%"):
        return ROWS * int(size[:-1]) // 100
    return min(max(int(size[:-2]) * UNITS[size[-2:]] // base.record, 1), ROWS)


def _land(path: Path, records: Iterator[str]) -> int:
    with path.open("w") as stream:
        for record in records:
            stream.write(record + "\n")
    return path.stat().st_size


def _measure(
    command: Sequence[str], env: dict[str, str] | None = None, server: LocalServer | None = None
) -> tuple[float, float]:
    """Wall seconds, and CPU seconds of the process with its children, and of the server."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    served = measure_running(server.pid) if server else 0.0
    _call(command, env)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - begun
    served = (measure_running(server.pid) if server else 0.0) - served
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime + served


def _call(command: Sequence[str], env: dict[str, str] | None = None) -> None:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, env={**kept, **(env or {})}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)[:300]} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        )


def _check(way: str, root: Path, changed: int) -> None:
    """The table has all rows, and the changes are in it."""
    if way == "fold":
        return
    table = DeltaTable(str(root / ("usual" if way == "usual" else "store/tables/accounts")))
    if way == "usual":
        if table.version() < 1:
            raise SystemExit("the usual job published nothing")
        return
    found = table.to_pyarrow_table() if changed < ROWS else None
    if table.version() < 1 or (found is not None and found.num_rows != ROWS):
        raise SystemExit(f"{way} did not publish all rows")


def _keep(way: str, size: str, landed: int, wall: float, cpu: float) -> None:
    print(
        f"{way} {size} ({landed:,} B landed): {wall:.1f} s, CPU {cpu:.1f} s, load {os.getloadavg()[0]:.0f}", flush=True
    )
    run = {
        "way": way, "size": size, "landed": landed, "rows": ROWS, "wall": round(wall, 2), "cpu": round(cpu, 2),
        "load": round(os.getloadavg()[0], 1), "python": platform.python_version(), "pyarrow": pa.__version__,
    }  # fmt: skip
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    RESULTS.write_text(json.dumps([*kept, run], indent=1) + "\n")


if __name__ == "__main__":
    main()
