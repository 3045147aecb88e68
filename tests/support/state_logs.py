"""State logs for tests: a pipeline for each kind of state, operations, and their fold in any files and snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from hypothesis import settings
from hypothesis import strategies as st

from support.effort import choose
from support.landing import fold_waiting, land, take
from tidefold.domain.paths import LogPaths
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.wiring import open_pipeline

Operation = dict[str, Any]
CONFIG = """\
version: 1
store: store
logs:
  items:
    source: {{format: state-json, path: landing/shop.public.items, record: value, {source}}}
    key: {key}
    columns: {columns}
    {more}
    key_groups: 16
    buckets: 2
"""
VALUE = ("kind: value, state_key: [id]", "[id]", "{id: int, text: string}", "")
LIST = (
    "kind: list, state_key: [id]", "[id]", '{id: int, items: "array<int>"}',
    "merge: {engine: aggregate, aggregates: {items: list}}",
)  # fmt: skip
MAP = ("kind: map, state_key: [id]", "[id, name]", "{id: int, name: string, n: long}", "")
SUMS = (
    "kind: reducing, state_key: [id]", "[id]", "{id: int, total: long, most: int}",
    "merge: {engine: aggregate, aggregates: {total: sum, most: max}}",
)  # fmt: skip
QUEUE = ("kind: queue, state_key: []", "[id]", "{id: int, priority: int}", "")
SETTINGS = settings(max_examples=choose(4, 10), deadline=None)


def make(root: Path, log: tuple[str, str, str, str], source: str = "", more: str = "") -> Pipeline:
    (root / "landing/shop.public.items").mkdir(parents=True, exist_ok=True)
    options, key, columns, merge = log
    lines = "\n    ".join(filter(None, (merge, more))) or "on_bad_record: quarantine"
    text = CONFIG.format(source=f"{options}{source}", key=key, columns=columns, more=lines)
    (root / "tidefold.yaml").write_text(text)
    return open_pipeline(root / "tidefold.yaml")


def op(name: str, key: int | None = None, value: Any = None, values: Sequence[Any] | None = None) -> Operation:
    given = {"op": name, "key": None if key is None else {"id": key}, "value": value, "values": values}
    return {name: part for name, part in given.items() if part is not None}


def rows(pipeline: Pipeline) -> list[dict[str, Any]]:
    uri = pipeline.store.uri(LogPaths("items").table)
    return DeltaTable(uri).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(uri) else []


def check(
    log: tuple[str, str, str, str], operations: Sequence[Operation], data: st.DataObject, root: Path
) -> list[dict[str, Any]]:
    """The rows after all operations, which were landed and folded in any parts."""
    pipeline = make(root, log)
    begin = 0
    while begin < len(operations):
        end = data.draw(st.integers(begin + 1, len(operations)), label="file ends")
        land(root, begin, operations[begin:end])
        if data.draw(st.booleans(), label="take") or end == len(operations):
            outcome = take(pipeline)
            assert outcome.error_code is None, outcome
        if data.draw(st.booleans(), label="fold"):
            fold_waiting(pipeline, f"run-{begin}")
        begin = end
    fold_waiting(pipeline, "last")
    return rows(pipeline)
