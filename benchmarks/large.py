"""Whole runs on a table of 100,000,000 rows that was loaded from Parquet, and its peers on the same changes.

    make bench-large         (ROWS=100000000; WAYS=load,0.0001,0.01,0.1,iceberg,delta-rs,restore names the parts,
                             iceberg-load: only its load; KEEP: a folder for the loaded table, which the next call
                             uses; STORE=s3: in a bucket of versitygw, with WAYS=load and one share)

Each part is a process from its start to its end, on a copy of one table. The changes of the peers are those of 0.01.
The number of rows and sums are printed for tidefold and Iceberg. Its lines stand in growth.md.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pyarrow as pa
import yaml
from deltalake import DeltaTable, QueryBuilder

from faults.servers import versitygw
from fold_data import files_of, link_tree
from growth import CHECKS, COLUMNS, LOG, find_buckets
from peer_environment import PeerError, read_peers
from peer_process import COW, MOR, PeerProcess
from process_use import Used, measure_use
from tables import folder
from test_tiers.cpu import adopt_orphans

ROWS = int(os.environ.get("ROWS", "100000000"))
WAYS = os.environ.get("WAYS", "load,0.0001,0.01,0.1,iceberg,delta-rs,restore").split(",")
_PER_FILE = 5_000_000
# Of 100 changes so many are deletes, and so many bring new keys.
_DELETES, _INSERTS = 5, 10
# A peer that takes longer is ended.
_PEER_SECONDS = 1200
_SUMS = 'count(*), sum(balance), sum("at")'


def main() -> None:
    adopt_orphans()
    with folder() as scratch, _open_store() as (store, options):
        base = Path(os.environ.get("KEEP", scratch)) / "base"
        if "load" in WAYS:
            _load(base, store)
        for share in (way for way in WAYS if way[0].isdigit()):
            _change(base, scratch / "copy", float(share), f"{store}/tables/{LOG}", options)
        if "restore" in WAYS:
            link_tree(base, scratch / "copy")
            _call(
                "restore --to",
                _tidefold(scratch / "copy", "move", "export", LOG, "1", "--to", str(scratch / "restored")),
            )
            shutil.rmtree(scratch / "copy")
        if {"iceberg", "iceberg-load"} & set(WAYS):
            _run_iceberg(base, scratch)
        if "delta-rs" in WAYS:
            _merge_by_delta_rs(base, scratch)


@contextmanager
def _open_store() -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the address of the store, and what a Delta reader needs for it."""
    if os.environ.get("STORE") == "s3":
        with versitygw() as (bucket, options):
            yield f"s3://{bucket}/store", options
    else:
        yield "store", {}


def _load(base: Path, store: str) -> None:
    """A table of its own, from files of Parquet that land at once."""
    landing = base / "landing" / LOG
    landing.mkdir(parents=True)
    source = {"format": "parquet", "path": f"landing/{LOG}", "op": {"column": "op"}}
    log = {
        "source": source, "key": ["id"], "order": ["at"], "columns": COLUMNS, "buckets": find_buckets(ROWS),
        "deletion_vectors": True, "quality": {"suite": "suite.yaml"},
    }  # fmt: skip
    config = {
        "version": 1, "store": store, "snapshots": {"kind": "auto"}, "retention": {"snapshots": 3},
        "logs": {LOG: log}, "spark": {"master": "local[2]", "driver_memory": "2g"},
    }  # fmt: skip
    (base / "suite.yaml").write_text(yaml.safe_dump({"checks": CHECKS}))
    (base / "tidefold.yaml").write_text(yaml.safe_dump(config))
    with duckdb.connect() as db:
        for first in range(0, ROWS, _PER_FILE):
            ids = f"SELECT i AS id, 'c' AS op, 0 AS pos FROM range({first}, {min(first + _PER_FILE, ROWS)}) r(i)"
            path = landing / f"rows-{first:010d}.parquet"
            db.execute(f"COPY ({_select_rows(ids, 0)}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")
    landed = list(landing.iterdir())
    size = sum(path.stat().st_size for path in landed)
    _call(f"load of {ROWS:,} rows in {len(landed)} files of Parquet, {size / 1e9:.1f} GB", _tidefold(base, "run"))
    # Not with the copies of the table.
    (base.parent / "landed").mkdir()
    for path in landed:
        path.rename(base.parent / "landed" / path.name)


def _select_rows(ids: str, seed: int) -> str:
    """Rows as those of growth.py, made from their `id`; with the operation and the position of the change."""
    return (
        f"SELECT id::BIGINT AS id, (id % 100)::INT AS bid, (hash(id, {seed}) % 10000)::BIGINT - 5000 AS balance, "
        f"((hash(id, {seed}, 1) % 2000000)::BIGINT / 10000.0 - 100)::DOUBLE AS amount, "
        f"['open', 'closed', 'held'][(hash(id, {seed}, 2) % 3)::INT + 1] AS status, 'name ' || id AS name, "
        f'(18000 + id % 2000)::INT AS day, pos::BIGINT AS "at", hash(id, {seed}, 3) % 2 = 0 AS flag, '
        f"'x' || (hash(id, {seed}, 4) % 1000) AS note, op FROM ({ids})"
    )


def _write_changes(share: float, path: Path) -> int:
    """Changes that are spread evenly, in random order. Returns how many rows the table then has."""
    count = int(ROWS * share)
    new = count * _INSERTS // 100
    step = ROWS // (count - new)
    deleted = f"n < {count - new} AND n % 100 < {_DELETES}"
    key = f"CASE WHEN n < {count - new} THEN n * {step} + hash(n) % {step} ELSE {ROWS} + n END"
    ids = f"SELECT {key} AS id, CASE WHEN {deleted} THEN 'd' ELSE 'u' END AS op, 1 + n AS pos FROM range({count}) r(n)"
    with duckdb.connect() as db:
        db.execute(f"COPY ({_select_rows(ids, 1)} ORDER BY hash(\"at\")) TO '{path}' (FORMAT parquet)")
        [(deletes,)] = db.sql(f"SELECT count(*) FILTER (op = 'd') FROM '{path}'").fetchall()
    return ROWS + new - int(deletes)


def _change(base: Path, copy: Path, share: float, address: str, options: dict[str, str]) -> None:
    link_tree(base, copy)
    path = copy / "landing" / LOG / "changes.parquet"
    rows = _write_changes(share, path)
    what = f"tidefold run: {int(ROWS * share):,} changes in one file of {path.stat().st_size / 1e6:.0f} MB"
    _call(what, _tidefold(copy, "run"))
    table = DeltaTable(address if "://" in address else str(copy / address), storage_options=options)
    result = pa.table(QueryBuilder().register("t", table).execute(f"SELECT {_SUMS} FROM t").read_all())
    [found] = result.to_pylist()
    print(f"  rows and sums: {list(found.values())}", flush=True)
    if next(iter(found.values())) != rows:
        raise SystemExit(f"{rows:,} rows were expected")
    shutil.rmtree(copy)


def _run_iceberg(base: Path, scratch: Path) -> None:
    """Loads the files that landed, and merges."""
    peer, merged = read_peers()["iceberg"], "iceberg" in WAYS
    files = [f"file://{path}" for path in sorted((base.parent / "landed").iterdir())]
    for kind in (MOR, COW) if merged else (MOR,):
        lake = PeerProcess(peer, scratch, "6g")
        try:
            lake.live.mkdir(parents=True)
            _ask(lake, f"{kind}: load", "load", table=kind, files=files)
            if merged:
                changes = str(_write_changes_of_peers(scratch))
                _ask(lake, f"{kind}: MERGE of 1 %", "merge", table=kind, changes=changes, compact=False)
                lake.ask("export", table=kind, path=str(scratch / "export"))
                with duckdb.connect() as db:
                    print("  rows and sums:", db.sql(f"SELECT {_SUMS} FROM '{scratch}/export/*.parquet'").fetchall())
        except PeerError as error:
            print(f"{peer.title}, {kind}: {error}", flush=True)
        finally:
            lake.close()
            for path in (lake.live, scratch / "export", scratch / f"{peer.name}-scratch"):
                shutil.rmtree(path, ignore_errors=True)


def _ask(lake: PeerProcess, what: str, do: str, **asked: Any) -> None:
    with _print_use(f"{lake.peer.title}, {what}", lake.process):
        lake.ask(do, **asked)


def _write_changes_of_peers(scratch: Path) -> Path:
    """With the names that the peers' programs know, in a folder."""
    path = scratch / "changes"
    path.mkdir(exist_ok=True)
    _write_changes(0.01, scratch / "changes.parquet")
    selected = f"SELECT * EXCLUDE (op), (op = 'd')::TINYINT AS _op, \"at\" AS _o0 FROM '{scratch}/changes.parquet'"
    with duckdb.connect() as db:
        db.execute(f"COPY ({selected}) TO '{path}/0000.parquet' (FORMAT parquet)")
    return path


_DELTA_RS = f"""
import sys
import pyarrow.parquet as pq
from deltalake import DeltaTable
columns = {{name: "s." + name for name in {list(COLUMNS)}}}
merge = DeltaTable(sys.argv[1]).merge(pq.read_table(sys.argv[2]), "t.id = s.id", source_alias="s", target_alias="t")
merge = merge.when_matched_delete("s._op = 1").when_matched_update(columns, "s._op = 0")
print(merge.when_not_matched_insert(columns, "s._op = 0").execute())
"""


def _merge_by_delta_rs(base: Path, scratch: Path) -> None:
    """Into a table of the same files, without deletion vectors: delta-rs does not write to one that has the feature."""
    changes, plain = _write_changes_of_peers(scratch), scratch / "plain"
    from deltalake import convert_to_deltalake

    plain.mkdir()
    for file in files_of(base / "store" / "tables" / LOG):
        os.link(file.removeprefix("file://"), plain / Path(file).name)
    convert_to_deltalake(str(plain))
    _call("delta-rs: merge of 1 %", [sys.executable, "-c", _DELTA_RS, str(plain), str(changes)], _PEER_SECONDS)
    shutil.rmtree(plain)


def _tidefold(root: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "tidefold.cli", *words, "--config", str(root / "tidefold.yaml")]


def _call(what: str, command: Sequence[str], seconds: int | None = None) -> None:
    """Runs a command, prints what it took, and what it said if it failed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with _print_use(what, psutil.Process()):
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
    if process.returncode:
        print(f"exit code {process.returncode}\n{said[-2000:]}", flush=True)


@contextmanager
def _print_use(what: str, tree: psutil.Process) -> Iterator[None]:
    """Prints what all processes of the tree use meanwhile."""
    used = Used()
    try:
        with measure_use(tree) as used:
            yield
    finally:
        memory = f"{used.others / 1e9:.2f} GB (one process {used.largest / 1e9:.2f})"
        told = f"{memory} beside the JVM's {used.java / 1e9:.2f} | load {used.load[0]:.1f} to {used.load[1]:.1f}"
        print(f"| {what} | {used.wall:.0f} s | CPU {used.cpu:.0f} s | {told}", flush=True)


if __name__ == "__main__":
    main()
