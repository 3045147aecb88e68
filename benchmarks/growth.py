"""What one run costs at several sizes of a table, with the same changes; writes docs/contributors/benchmarks/growth.md.

    make bench-growth        (SIZES=100000,1000000,10000000 RUNS=11; WAYS=runs,gates,search names the parts; SIZES= only
                             writes the page; KEEP: a folder for the loaded tables, which the next call uses)

Everything runs in this process, the tasks one after the other: the counts are exact, and CPU seconds need no quiet
machine. What was measured is added to the results beside the page, so an interrupted benchmark goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

import numpy as np
import pyarrow as pa
import yaml
from deltalake import DeltaTable

from fold_data import link_tree
from growth_fold import measure_search
from growth_page import RESULTS, write
from support.counted import CountedStore, counting
from support.counting_engine import CountingEngine
from support.pipelines import put_table
from tables import folder
from tidefold.changelog.schema import UPSERT, change_schema
from tidefold.compute.runners import in_process
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.inspect.status import status
from tidefold.operations.quality.judge import judge
from tidefold.operations.requests import Fold
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage import StoredObject
from tidefold.storage.local_store import LocalStore
from tidefold.wiring import open_pipeline

SIZES = [int(size) for size in os.environ.get("SIZES", "100000,1000000,10000000").split(",") if size]
RUNS = int(os.environ.get("RUNS", "11"))
WAYS = os.environ.get("WAYS", "runs,gates,search").split(",")
KEEP = os.environ.get("KEEP")
CHANGES = 10_000
LOG = "accounts"
COLUMNS = {
    "id": "long", "bid": "int", "balance": "long", "amount": "double", "status": "string", "name": "string",
    "day": "int", "at": "long", "flag": "boolean", "note": "string",
}  # fmt: skip
# Twenty with the two that are always there: key unique and key not null.
CHECKS: list[dict[str, Any]] = [
    {"not_null": ["bid", "balance", "amount", "status", "name", "day", "at", "flag", "note"]},
    {"range": {"column": "bid", "min": 0, "max": 1000}},
    {"range": {"column": "balance", "min": -10_000, "max": 10_000}},
    {"range": {"column": "amount", "min": -100.0, "max": 100.0}},
    {"range": {"column": "day", "min": 0}},
    {"in_set": {"column": "status", "values": ["open", "closed", "held"]}},
    {"matches": {"column": "name", "regex": "^name "}},
    {"matches": {"column": "note", "regex": "^x"}},
    {"row_count": {"min": 1}},
]
ENGINE = CountingEngine()
_AT_ONCE = 1_000_000
# Of 100 changes so many are deletes, and so many bring new keys.
_DELETES, _INSERTS = 5, 10


def main() -> None:
    with folder() as scratch:
        if SIZES:
            _warm_up(scratch / "warm")
        for rows in SIZES:
            if "runs" in WAYS:
                _measure_runs(scratch / "runs", rows)
            if "gates" in WAYS:
                _measure_gates(scratch, rows)
            if "search" in WAYS:
                _measure_search(scratch / "search", rows)
    write()


def find_buckets(rows: int) -> int:
    """Returns the number of buckets that docs/how-to/tune.md advises."""
    return 8 if rows <= 10_000_000 else 16 if rows <= 50_000_000 else 64


def _warm_up(root: Path) -> None:
    """One small life, so that everything is imported."""
    _make_base(root, 1_000, 8)
    _run(root, [(1, "warm", np.arange(10))])
    shutil.rmtree(root)


def find_base(root: Path, rows: int) -> None:
    """Publishes a table of so many rows. With KEEP it is a copy of the one that is kept there."""
    if not KEEP:
        _make_base(root, rows, find_buckets(rows))
        return
    kept, made = Path(KEEP) / f"growth-{rows}", Path(KEEP) / f"making-{rows}"
    if not kept.exists():
        shutil.rmtree(made, ignore_errors=True)
        _make_base(made, rows, find_buckets(rows))
        made.rename(kept)
    link_tree(kept, root)


def _make_base(root: Path, rows: int, buckets: int) -> float:
    """Publishes a table of so many rows, and returns the CPU seconds of its full gate."""
    (root / "landing" / LOG).mkdir(parents=True)
    source = {"format": "debezium-json", "connector": "postgresql", "path": f"landing/{LOG}"}
    log = {
        "source": source, "key": ["id"], "columns": COLUMNS, "buckets": buckets, "deletion_vectors": True,
        "quality": {"suite": "suite.yaml"},
    }  # fmt: skip
    config = {
        "version": 1, "store": "store", "snapshots": {"kind": "auto"}, "retention": {"snapshots": 3}, "logs": {LOG: log}
    }  # fmt: skip
    (root / "suite.yaml").write_text(yaml.safe_dump({"checks": CHECKS}))
    (root / "tidefold.yaml").write_text(yaml.safe_dump(config))
    pipeline = _open(root)
    with mock.patch("os.fsync"):
        for first in range(0, rows, _AT_ONCE):
            put_table(pipeline, _make_changes(pipeline, first, min(_AT_ONCE, rows - first)))
        _require(materialize(pipeline, [LOG], Fold("first"), in_process))
        began = time.process_time()
        [judged] = judge(pipeline, [LOG], "first", ENGINE)
        _require([judged])
        gate = time.process_time() - began
        _require([confirm(pipeline, LOG, Confirmation(run="first")), subsume(pipeline, LOG), truncate(pipeline, LOG)])
    print(f"{rows:,} rows in {buckets} buckets: {judged.message}, gate CPU {gate:.2f} s", flush=True)
    return gate


def _open(root: Path) -> Pipeline:
    return open_pipeline(root / "tidefold.yaml")


def _require(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.error_code or str(outcome.status) == "failed":
            raise SystemExit(f"{outcome.message}")


def _make_rows(ids: Any, random: np.random.Generator) -> dict[str, Any]:
    count = len(ids)
    return {
        "id": ids,
        "bid": (ids % 100).astype("int32"),
        "balance": random.integers(-5000, 5000, count),
        "amount": random.normal(0, 1, count).round(4),
        "status": np.array(["open", "closed", "held"])[random.integers(0, 3, count)],
        "name": [f"name {i}" for i in ids],
        "day": (18_000 + ids % 2_000).astype("int32"),
        "at": 1_700_000_000_000_000 + ids,
        "flag": ids % 2 == 0,
        "note": ["x" * 20] * count,
    }


def _make_changes(pipeline: Pipeline, first: int, count: int) -> pa.Table:
    places = np.arange(first, first + count)
    system = {
        "_op": np.full(count, UPSERT), "_kg": np.zeros(count), "_o0": np.ones(count), "_o1": places,
        "_partition": np.zeros(count), "_offset": places, "_ts": np.zeros(count), "_absent": pa.nulls(count),
    }  # fmt: skip
    table = pa.table({**system, **_make_rows(places, np.random.default_rng(first))})
    schema = change_schema(pipeline.log(LOG).shape)
    return table.select(schema.names).cast(schema)


def _land(root: Path, rows: int, first: int, ids: Any) -> None:
    """Lands one Debezium record for each id: mostly updates, some deletes. Ids of `rows` and above are new."""
    path = root / "landing" / LOG / f"{LOG}+0+{first:010d}.jsonl"
    values = _make_rows(ids, np.random.default_rng(first))
    columns = {name: getattr(some, "tolist", lambda some=some: some)() for name, some in values.items()}
    with path.open("w") as stream:
        for number, row in enumerate(zip(*columns.values(), strict=True)):
            lsn, deleted = first + number + 1_000, number % 100 < _DELETES and ids[number] < rows
            named = dict(zip(columns, row, strict=True))
            op = "d" if deleted else "u" if ids[number] < rows else "c"
            source = {"connector": "postgresql", "snapshot": "false", "sequence": f'["{lsn}","{lsn}"]', "ts_us": lsn}
            value = {"before": None, "after": None if deleted else named, "source": source, "op": op, "ts_ms": lsn}
            head = {"topic": LOG, "partition": 0, "offset": first + number, "key": {"id": named["id"]}, "headers": []}
            stream.write(json.dumps({**head, "value": value}, separators=(",", ":")) + "\n")


def _choose_ids(rows: int, number: int, count: int = CHANGES) -> Any:
    """Returns evenly spread ids of changes, in random order, new ones among them."""
    random, new = np.random.default_rng(number), count * _INSERTS // 100
    old = random.choice(rows, count - new, replace=False)
    return random.permutation(np.concatenate([old, rows + number * new + np.arange(new)]))


KINDS = {
    "/_delta_log/_tidefold": "marks", "checkpoint": "checkpoint", "/_delta_log/": "Delta commit",
    "/_data/": "data files", "/ledger": "ledger", "/pages": "ledger", "/manifest": "manifest", "/counts-": "counts",
    "/verdict-": "verdict", "/report-": "report", "changelog": "segments",
}  # fmt: skip


def _kind_of(path: str) -> str:
    return next((kind for part, kind in KINDS.items() if part in path), "other")


class KindStore(LocalStore):
    """A store on disk that counts its calls and bytes by the kind of file."""

    def __init__(self, root: Path, counts: dict[str, Counter[str]]) -> None:
        super().__init__(root)
        self._counted = {kind: CountedStore(root, counts[kind]) for kind in counts}

    def _of(self, path: str) -> CountedStore:
        return self._counted[_kind_of(path)]

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return self._of(path).read(path, start, length)

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        with self._of(path).open(path) as stream:
            yield stream

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        with self._of(path).create(path) as stream:
            yield stream

    def link(self, source: str, target: str, copy: bool = False) -> str:
        return self._of(target).link(source, target, copy)

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        return self._of(f"{folder}/").list(folder, unfinished)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._of(path).delete([path])


_CALLS = ("get", "range", "put", "list", "link", "delete", "files opened")


@contextmanager
def _measure_step(into: dict[str, Any], step: str) -> Iterator[None]:
    """Adds what a step costs: CPU, decoded rows, bytes of the whole process, and the store's calls by kind."""
    kinds = {kind: Counter[str]() for kind in (*KINDS.values(), "other")}
    with counting(lambda root, counts: KindStore(root, kinds)) as counts:
        before, began = _read_io(), time.process_time()
        yield
        cpu, after = time.process_time() - began, _read_io()
    used = {
        kind: [sum(c[name] for name in _CALLS), c["bytes read"], c["bytes written"]] for kind, c in kinds.items() if c
    }
    into[step] = {
        "cpu": round(cpu, 4), "rows": counts["rows decoded"], "read": after[0] - before[0],
        "written": after[1] - before[1], "kinds": used,
    }  # fmt: skip


def _read_io() -> tuple[int, int]:
    """Returns the bytes that this process has read and written by system calls, its libraries included."""
    path = Path("/proc/self/io")
    lines = dict(line.split(": ") for line in path.read_text().splitlines()) if path.exists() else {}
    return int(lines.get("rchar", 0)), int(lines.get("wchar", 0))


def _run(root: Path, changes: Sequence[tuple[int, str, Any]], rows: int = 1_000) -> list[dict[str, Any]]:
    """Lands changes and runs all steps, one run after the other. Returns what each step cost."""
    measured = []
    for first, run, ids in changes:
        _land(root, rows, rows + first - 1, ids)
        measured.append(_run_steps(root, run))
    return measured


def _run_steps(root: Path, run: str) -> dict[str, Any]:
    into: dict[str, Any] = {}
    steps: dict[str, Callable[[Pipeline], Sequence[Outcome]]] = {
        "ingest": lambda p: ingest(p, [LOG], in_process),
        "fold": lambda p: materialize(p, [LOG], Fold(run), in_process),
        "gate": lambda p: judge(p, [LOG], run, ENGINE),
        "confirm": lambda p: [confirm(p, LOG, Confirmation(run=run))],
        "subsume": lambda p: [subsume(p, LOG)],
        "truncate": lambda p: [truncate(p, LOG)],
    }
    for step, act in steps.items():
        with _measure_step(into, step):
            outcomes = act(_open(root))
        _require(outcomes)
        into[step]["told"] = outcomes[0].message
    with _measure_step(into, "status"):
        status(_open(root), [LOG], proofs=True)
    return into


def _measure_runs(root: Path, rows: int) -> None:
    find_base(root, rows)
    changes = ((1 + n * CHANGES, f"run-{n}", _choose_ids(rows, n)) for n in range(RUNS))
    runs = []
    for first, run, ids in changes:
        runs += _run(root, [(first, run, ids)], rows)
        print({step: one["cpu"] for step, one in runs[-1].items()}, flush=True)
    table = DeltaTable(str(root / "store/tables" / LOG))
    _keep({"what": "runs", "rows": rows, "buckets": find_buckets(rows), "version": table.version(), "runs": runs})
    shutil.rmtree(root)


def _measure_search(root: Path, rows: int) -> None:
    """What a fold does to its base files, and what a finer checksum or an index could save."""
    _make_base(root, rows, find_buckets(rows))
    files = sorted((root / "store/tables" / LOG / "_data").iterdir())
    ids = _choose_ids(rows, 0)
    _keep({"what": "search", "rows": rows, **measure_search(files, ids[ids < rows], np.arange(rows - CHANGES, rows))})
    shutil.rmtree(root)


def _measure_gates(scratch: Path, rows: int) -> None:
    """The gate that takes over against `--recount`: one of 20 buckets changed, and 1 % of the rows evenly."""
    for name, buckets in (("one of 20 buckets", 20), ("1 % evenly", find_buckets(rows))):
        base = scratch / "gates"
        _make_base(base, rows, buckets)
        for number in range(3):
            root = scratch / "gate"
            link_tree(base, root)
            ids = _choose_ids(rows, number, rows // 100)
            if buckets == 20:
                ids = _of_one_bucket(_open(root), ids, number)
            _land(root, rows, rows, ids)
            with mock.patch("os.fsync"):
                _require(
                    [*ingest(_open(root), [LOG], in_process), *materialize(_open(root), [LOG], Fold("a"), in_process)]
                )
                _keep({"what": name, "rows": rows, "changes": len(ids), **_compare_gates(root, scratch / "copy")})
            shutil.rmtree(root)
        shutil.rmtree(base)


def _compare_gates(root: Path, copy: Path) -> dict[str, float]:
    """Judges one staged snapshot twice, in a copy with everything read. Returns CPU seconds and rows."""
    link_tree(root, copy)
    found: dict[str, float] = {}
    for name, where, recount in (("taken over", root, False), ("full", copy, True)):
        began = time.process_time()
        [outcome] = judge(_open(where), [LOG], "a", ENGINE, recount=recount)
        found[name] = round(time.process_time() - began, 3)
        found[f"{name}, rows"] = outcome.facts["rows_read"]
        _require([outcome])
    shutil.rmtree(copy)
    return found


def _of_one_bucket(pipeline: Pipeline, ids: Any, number: int) -> Any:
    from tidefold.changelog.key_group_hash import key_groups_of
    from tidefold.domain.key_groups import bucket_ranges

    shape = pipeline.log(LOG).shape
    span = list(bucket_ranges(shape.key_groups, shape.buckets))[number]
    groups = key_groups_of(pa.table({"id": ids}), shape).to_numpy()
    return ids[(groups >= span.first) & (groups <= span.last)]


def _keep(measured: dict[str, Any]) -> None:
    stamp = {"at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), "load": round(os.getloadavg()[0], 1)}
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    RESULTS.write_text(json.dumps([*kept, {**stamp, **measured}]) + "\n")
    print({name: value for name, value in measured.items() if name != "runs"}, flush=True)


if __name__ == "__main__":
    main()
