"""A small log of orders for tests of plans: its configuration with any edit, its files, its rows, random ones too."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from support.effort import rotate
from tidefold.compute.runners import in_process
from tidefold.domain.plan import Plan
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, read_rows
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.plan.apply import apply_plan
from tidefold.operations.plan.plan import make_plan
from tidefold.operations.plan.shadow import steps_in_process
from tidefold.operations.quality.judge import judge
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.quality.run.duckdb_rows import DuckDBEngine
from tidefold.wiring import open_pipeline, open_plan

HEAD = "version: 1\nstore: store\nspark: {above: 1GB}\nlogs:\n  orders:\n"
DAY = "2026-11-%02d 0%d:00:00"
FIRST = rotate(30) * 10


def configure(
    folder: Path, order: str = "[created]", key: str = "id", amount: str = "string", zone: str = "", op: bool = True,
    merge: str = "last", buckets: int = 4, more: str = "", store: str = "store",
) -> Pipeline:  # fmt: skip
    mapped = ", op: {column: op, upsert: [U], delete: [D]}" if op else ""
    ordered = f"    order: {order}\n" if order else ""
    zoned = f", time_zone: {zone}" if zone else ""
    kind = "{engine: first, deletes: ignore}" if merge == "first" else merge
    columns = f"id: long, line: int, amount: '{amount}', created: timestamp, changed: timestamp"
    head = HEAD.replace("store: store", f"store: {store}")
    (folder / "landing").mkdir(parents=True, exist_ok=True)
    (folder / "tidefold.yaml").write_text(
        f"{head}    source: {{format: csv, path: landing{mapped}{zoned}}}\n    key: [{key}]\n{ordered}"
        f"    merge: {kind}\n    columns: {{{columns}{'' if op else ', op: string'}}}\n    key_groups: 16\n"
        f"    buckets: {buckets}\n    quality: {{max_refused: 1.0, max_row_drop: 1.0}}\n{more}"
    )
    return open_pipeline(folder / "tidefold.yaml", lambda text: None)


def land(folder: Path, name: str, *rows: tuple[Any, ...]) -> None:
    lines = [",".join(map(str, row)) for row in rows]
    (folder / "landing" / name).write_text("\n".join(["op,id,line,amount,created,changed", *lines]) + "\n")


def run(pipeline: Pipeline, name: str, engine: DuckDBEngine, *, full: bool = False) -> None:
    ingest(pipeline, ["orders"], in_process)
    request = Fold(name, kind=KindPolicy.FULL if full else None)
    if materialize(pipeline, ["orders"], request, in_process)[0].status == "staged":
        assert judge(pipeline, ["orders"], name, engine)[0].status == "passed"
        confirm(pipeline, "orders", Confirmation(run=name))


def plan(pipeline: Pipeline, engine: DuckDBEngine, limit: int = 3) -> tuple[Plan, Pipeline]:
    beside = open_plan(pipeline, "orders")
    return make_plan(beside, "orders", steps_in_process(beside, engine), limit), beside


def apply(pipeline: Pipeline, engine: DuckDBEngine, checksum: str = "") -> list[Outcome]:
    return apply_plan(open_plan(pipeline, "orders"), "orders", steps_in_process(pipeline, engine), checksum)


def find_shadow(folder: Path) -> list[Path]:
    """The files of shadow stores of plans."""
    return [path for path in (folder / "store/plans").rglob("store/*/**/*") if path.is_file()]


def rows(pipeline: Pipeline) -> list[tuple[tuple[str, str], ...]]:
    """All rows with their values and their places, in any store."""
    state = pipeline.ledger("orders").read()
    _, batches = read_rows(pipeline, "orders", ReadRequest(snapshot=state.snapshots[-1].id))
    return sorted(tuple((n, str(v)) for n, v in row.items()) for batch in batches for row in batch.to_pylist())


def random_shape(r: random.Random) -> dict[str, Any]:
    merge = r.choice(["last", "last", "first", "partial", "history"])
    orders = ["[created]", "[changed]", "[changed, file]", "[created, changed]"] + ["file"] * (merge != "history")
    return {
        "key": r.choice(["id", "id, line"]),
        "order": r.choice(orders),
        "merge": merge,
        "zone": r.choice(["", "Europe/Berlin"]),
        "amount": r.choice(["string", "decimal(12,2)"]),
        "op": r.random() < 0.5,
        "buckets": r.choice([1, 4, 16]),
    }


def random_file(r: random.Random) -> list[tuple[Any, ...]]:
    def one() -> tuple[Any, ...]:
        amount = f"{r.randint(0, 99)}.{r.randint(0, 9)}0"
        places = DAY % (r.randint(1, 3), r.randint(0, 3)), DAY % (r.randint(1, 4), r.randint(0, 3))
        return (r.choice("UUUD"), r.randint(1, 6), r.randint(1, 2), amount, *places)

    return [one() for _ in range(r.randint(1, 20))]
