"""A small log of orders for tests of plans: its configuration with any edit, its files, its rows, random ones too."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tidefold.compute.runners import in_process
from tidefold.domain.plan import ColumnEdits, Example, Plan
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

HEAD = "version: 1\nstore: store\nspark: {{above: 1GB}}\nsnapshots: {{kind: {kind}}}\nlogs:\n  orders:\n"
DAY = "2026-11-%02d 0%d:00:00"
COLUMNS = ("op", "id", "line", "amount", "created", "changed")
_AGGREGATES = {"id": "max", "line": "sum", "amount": "max", "created": "min", "changed": "max", "op": "min"}

# What a plan may have found.
PLAN = Plan(
    log="orders", edit="e" * 12, made_at="2026-11-28T10:00:00+00:00", snapshot=1, manifest="m" * 64, base=3,
    base_manifest="b" * 64, checksum="c" * 64, edits=("order: created before, changed now",),
    ingested="taken: took 2 files", gate="passed: 4 checks passed", passed=True, refused={"a.csv": 2},
    rows=(1200, 1201),
    counts={"added": 2, "removed": 1, "changed": 1}, values={"text": 1}, joined_by=("id",),
    columns=ColumnEdits(("new",), (), ("amount: string before, double now",)),
    examples=(
        Example("changed", {"id": 1}, {"id": 1, "text": "a", "same": 0}, {"id": 1, "text": None, "same": 0},
                "upsert of a.csv, row 1", "upsert of b.csv, row 2"),
        Example("removed", {"id": 2}, {"id": 2, "text": "gone"}, None, "upsert of c.csv", "delete of d.csv"),
    ),
    gone=(), lost=0, folder="/store/plans/orders/e/store", landed_bytes=2_000_000, written_bytes=5000, table_bytes=9000,
    cpu_seconds=0.4,
)  # fmt: skip


def configure(
    folder: Path, order: str = "[created]", key: str = "id", amount: str = "string", zone: str = "", op: bool = True,
    merge: str = "last", buckets: int = 4, more: str = "", store: str = "store", kind: str = "auto", groups: int = 16,
    form: str = "csv",
) -> Pipeline:  # fmt: skip
    mapped = ", op: {column: op, upsert: [U], delete: [D]}" if op else ""
    ordered = f"    order: {order}\n" if order else ""
    zoned = f", time_zone: {zone}" if zone else ""
    time = "{type: timestamp, encoding: iso}" if form == "json" else "timestamp"
    columns = f"id: long, line: int, amount: '{amount}', created: {time}, changed: {time}"
    reading = f"{form}{', record: value, names: any' if form == 'json' else ''}"
    head = HEAD.format(kind=kind).replace("store: store", f"store: {store}")
    (folder / "landing").mkdir(parents=True, exist_ok=True)
    engine = _describe(merge, [*key.split(", "), *(["op"] if op else [])])
    (folder / "tidefold.yaml").write_text(
        f"{head}    source: {{format: {reading}, path: landing{mapped}{zoned}}}\n    key: [{key}]\n"
        f"{ordered}    merge: {engine}\n    columns: {{{columns}{'' if op else ', op: string'}}}\n"
        f"    key_groups: {groups}\n    buckets: {buckets}\n"
        f"    quality: {{max_refused: 1.0, max_row_drop: 1.0}}\n{more}"
    )
    return open_pipeline(folder / "tidefold.yaml", lambda text: None)


def _describe(merge: str, others: list[str]) -> str:
    if merge == "first":
        return "{engine: first, deletes: ignore}"
    if merge != "aggregate":
        return merge
    given = ", ".join(f"{name}: {how}" for name, how in _AGGREGATES.items() if name not in others)
    return f"{{engine: aggregate, deletes: ignore, aggregates: {{{given}}}}}"


def land(folder: Path, name: str, *rows: tuple[Any, ...]) -> None:
    if name.endswith(".csv"):
        text = "".join(f"{','.join(map(str, row))}\n" for row in (COLUMNS, *rows))
    else:  # A value that is None is left out.
        given = [{c: v for c, v in zip(COLUMNS, row, strict=True) if v is not None} for row in rows]
        text = "".join(f"{json.dumps(row)}\n" for row in given)
    (folder / "landing" / name).write_text(text)


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


def require_applied(pipeline: Pipeline, engine: DuckDBEngine, refused: str | None = None) -> None:
    """Applies the plan of the configuration. refused: the code of the error that must come instead."""
    outcomes = apply(pipeline, engine)
    assert next((one.error_code for one in outcomes if one.error), None) == refused, outcomes


def rows(pipeline: Pipeline) -> list[tuple[tuple[str, str], ...]]:
    """All rows of the newest snapshot with their values and their places, in any store."""
    return read_texts(pipeline, pipeline.ledger("orders").read().snapshots[-1].id)


def published(pipeline: Pipeline) -> list[tuple[tuple[str, str], ...]]:
    """All rows that readers see, with their places."""
    return read_texts(pipeline, None)


def read_texts(pipeline: Pipeline, snapshot: int | None) -> list[tuple[tuple[str, str], ...]]:
    return sorted(tuple((name, str(value)) for name, value in row.items()) for row in read_dicts(pipeline, snapshot))


def read_dicts(pipeline: Pipeline, snapshot: int | None = None) -> list[dict[str, Any]]:
    _, batches = read_rows(pipeline, "orders", ReadRequest(snapshot=snapshot))
    return [row for batch in batches for row in batch.to_pylist()]


def random_shape(r: random.Random, form: str = "csv") -> dict[str, Any]:
    """Any definition of the table."""
    merge = r.choice(["last", "last", "last", "first", "partial", "history", "aggregate", "append"])
    orders = ["[created]", "[changed]", "[changed, file]", "[created, changed]", "[line, changed]"]
    keyless = merge == "append"
    amount = r.choice(["string", "decimal(12,2)", "double"][: 2 if merge == "aggregate" or form == "json" else 3])
    keys = ["id", "id", "id, line", "line", "line, id", "created, id", *(["amount"] if amount != "double" else [])]
    return {
        "merge": merge,
        "key": "" if keyless else r.choice(keys),
        "order": "" if keyless else r.choice(orders[:2] if merge == "history" else [*orders, "file"]),
        "zone": r.choice(["", "Europe/Berlin"]),
        "amount": amount,
        "op": r.random() < 0.5 and not keyless,
        "groups": r.choice([16, 16, 8]),
        "buckets": r.choice([1, 4, 8]),
        "kind": r.choice(["auto", "full", "incremental"]),
        "form": form,
    }


def random_file(r: random.Random, form: str = "csv", whole: bool = False) -> list[tuple[Any, ...]]:
    """Changes with ties and deletes; some that only a text can take, and in JSON some that lack columns.

    whole: with a row that every table takes.
    """

    def one() -> tuple[Any, ...]:
        amount = f"{r.randint(0, 99)}.{r.randint(0, 9)}0" if r.random() < 0.95 else "none"
        places = DAY % (r.randint(1, 3), r.randint(0, 3)), DAY % (r.randint(1, 4), r.randint(0, 3))
        op = r.choice("UUUDUUUDUUUDZ")
        return (op, r.randint(1, 6), r.randint(1, 2), None if form == "json" and r.random() < 0.2 else amount, *places)

    sure = [("U", 1, 1, "1.00", DAY % (1, 0), DAY % (1, 0))] if whole else []
    return [*(one() for _ in range(r.randint(1, 20))), *sure]
