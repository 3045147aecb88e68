"""diff: rows added, changed and removed between two snapshots, counted exactly; what both share is not read.

Requirements C10, N1, N3; promises I5, I23.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.pipelines import CONFIG, make_pipeline, publish, put
from tidefold.changelog.schema import DELETE
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import Column, TableSpec
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.errors import CorruptError, NotFoundError, RefusedError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, plan_read
from tidefold.operations.inspect import diff as operation
from tidefold.operations.inspect.diff import Diff, diff
from tidefold.operations.snapshot.compact_log import take_tail
from tidefold.read.plan import ReadPlan
from tidefold.read.task import compare
from tidefold.storage.local_store import LocalStore

Rows = dict[int, str | None]


def upserts(ids: Any, text: str) -> list[dict[str, Any]]:
    return [{"id": i, "text": text} for i in ids]


def told(found: Diff) -> dict[tuple[str, int], tuple[str | None, str | None]]:
    sides = {(r.change, r.key["id"]): (r.before and r.before["text"], r.after and r.after["text"]) for r in found.rows}
    assert len(sides) == len(found.rows)
    return sides


def expected(before: Rows, after: Rows) -> dict[tuple[str, int], tuple[str | None, str | None]]:
    """The oracle: two dicts compared."""
    rows = {("added", k): (None, after[k]) for k in after.keys() - before.keys()}
    rows |= {("removed", k): (before[k], None) for k in before.keys() - after.keys()}
    return rows | {("changed", k): (before[k], after[k]) for k in before.keys() & after.keys() if before[k] != after[k]}


_CHANGE = st.tuples(st.integers(0, 25), st.sampled_from(["a", "b", "", None, "gone"]))
_STEP = st.tuples(st.lists(_CHANGE, min_size=1, max_size=12), st.sampled_from(["full", "tail"]))


@settings(max_examples=choose(4, 8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(_STEP, min_size=2, max_size=4))
def test_any_two_snapshots_differ_as_two_dicts_do(steps: list[tuple[list[tuple[int, str | None]], str]]) -> None:
    """I5: whatever was changed, and whether the snapshots are whole or tail-only."""
    with tempfile.TemporaryDirectory() as folder:
        pipeline, model, history = make_pipeline(Path(folder)), Rows(), {}
        for number, (changes, kind) in enumerate(steps):
            put(pipeline, [_change(*change) for change in changes])
            for key, text in changes:
                model.pop(key, None)
                model |= {} if text == "gone" else {key: text}
            if number and kind == "tail":
                take_tail(pipeline, "accounts", f"run-{number}")
            else:
                publish(pipeline, f"run-{number}")
            history[pipeline.ledger("accounts").read().snapshots[-1].id] = dict(model)
        for one, other in itertools.product(history, repeat=2):
            found = diff(pipeline, "accounts", one, other, limit=1000)
            wanted = expected(history[one], history[other])
            assert told(found) == wanted
            counts = [change for change, _ in wanted]
            assert found.counts == {kind: counts.count(kind) for kind in ("added", "changed", "removed")}


def _change(key: int, text: str | None) -> dict[str, Any]:
    return {"id": key, "text": None, "_op": DELETE} if text == "gone" else {"id": key, "text": text}


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Snapshot 1 of 100 rows in 4 files, snapshot 2 with one of them changed, and a tail on it with another."""
    made = make_pipeline(tmp_path)
    put(made, upserts(range(100), "a"))
    publish(made, "run-1")
    put(made, upserts([7], "b"))
    publish(made, "run-2")
    put(made, upserts([8], "c"))
    take_tail(made, "accounts", "tail-1")
    return made


def test_files_that_both_share_are_not_read(pipeline: Pipeline, tmp_path: Path) -> None:
    """N1: measured by files, and shown by damaging every file that is not to be read."""
    found = diff(pipeline, "accounts", 1, 2)
    assert told(found) == {("changed", 7): ("a", "b")}
    assert (found.files, found.files_read) == (5, 2)
    folders = [tmp_path / f"store/snapshots/accounts/{i:010d}/_data" for i in (1, 2)]
    one, other = ({f.name for f in folder.iterdir()} for folder in folders)
    sizes = [(folder / name).stat().st_size for folder in folders for name in one ^ other if (folder / name).exists()]
    assert found.bytes_read == sum(sizes)
    for folder, name in itertools.product(folders, one & other):
        (folder / name).unlink()
    assert told(diff(pipeline, "accounts", 1, 2)) == {("changed", 7): ("a", "b")}
    (folders[1] / (other - one).pop()).unlink()
    with pytest.raises(CorruptError):
        diff(pipeline, "accounts", 1, 2)


def test_a_tail_is_folded_only_where_it_has_changes(pipeline: Pipeline) -> None:
    found = diff(pipeline, "accounts", 2, 3)
    assert told(found) == {("changed", 8): ("a", "c")}
    assert (found.files, found.files_read) == (4, 2)  # One bucket, once for each side.
    put(pipeline, upserts([9], "d"))
    take_tail(pipeline, "accounts", "tail-2")
    assert told(diff(pipeline, "accounts", 4, 3)) == {("changed", 9): ("d", "a")}


def test_a_snapshot_does_not_differ_from_itself_and_nothing_is_read(pipeline: Pipeline) -> None:
    for snapshot in (1, 3):
        found = diff(pipeline, "accounts", snapshot, snapshot)
        assert (found.total, found.files_read, found.rows) == (0, 0, [])


def test_counts_are_exact_whatever_is_shown(pipeline: Pipeline) -> None:
    put(pipeline, [*upserts(range(200, 260), "new"), *({"id": i, "text": None, "_op": DELETE} for i in range(50))])
    publish(pipeline, "run-4")
    for limit in (0, 1, 20):
        found = diff(pipeline, "accounts", 2, 4, limit)
        assert (found.counts, len(found.rows)) == ({"added": 60, "changed": 0, "removed": 50}, limit)


def test_snapshots_of_other_bucket_counts_are_compared(tmp_path: Path) -> None:
    """L8: ranges that no file of either side reaches across, read as they are."""
    sides = []
    for buckets in (4, 6):
        config = CONFIG.replace("buckets: 4", f"buckets: {buckets}")
        made = make_pipeline(tmp_path / str(buckets), config)
        put(made, upserts(range(60), "a"))
        put(made, upserts([buckets], "b"))
        publish(made, "run")
        sides.append(made)
    plans = [plan_read(made, "accounts", ReadRequest(snapshot=1)) for made in sides]
    ranges = list(operation.find_ranges(plans))
    assert [(r.first, r.last) for r in ranges] == [(0, 7), (8, 15)]


def test_of_a_range_with_several_files_only_those_that_differ_are_read(tmp_path: Path) -> None:
    """As after a change of the bucket count: a bucket holds files of smaller ones."""
    shape = TableSpec(("id",), (Column("id", "int"),), "postgresql", 16, 1)
    low, high, other = (
        DataFile(name, 1, 1, name, KeyGroups(*span), "")
        for name, span in (("low", (0, 7)), ("high", (8, 15)), ("other", (8, 15)))
    )
    plans = [ReadPlan("", "accounts", shape, True, i, files, ()) for i, files in ((1, (low, high)), (2, (low, other)))]
    [whole] = operation.find_ranges(plans)
    tasks = operation._tasks(LocalStore(tmp_path), plans, whole)
    assert [[file.name for file in task.files] for task in tasks] == [["high"], ["other"]]


def test_an_unknown_or_retired_snapshot_is_said_so(pipeline: Pipeline) -> None:
    with pytest.raises(NotFoundError):
        diff(pipeline, "accounts", 1, 9)


def test_snapshots_of_different_keys_are_refused_by_name(pipeline: Pipeline) -> None:
    # One log has two keys only after a plan was applied. Here the manifest of the second snapshot gets another key.
    put(pipeline, [{"id": 1, "text": "a"}])
    publish(pipeline, "r1")
    put(pipeline, [{"id": 2, "text": "b"}])
    publish(pipeline, "r2")
    plans = [plan_read(pipeline, "accounts", ReadRequest(snapshot=one)) for one in (1, 2)]
    other = replace(plans[1], shape=replace(plans[1].shape, key=("id", "text")))
    with pytest.raises(RefusedError, match=r"differ \(id; later id, text\)"):
        operation._alike([plans[0], other], is_planned=False)
    assert operation._alike(plans, is_planned=False) == (plans, ())


def test_values_that_only_look_alike_are_told_apart() -> None:
    """Null, empty and NaN; names of columns that differ by case alone; keys of several columns."""
    columns = (Column("id", "int"), Column("Id", "string"), Column("x", "double"), Column("before", "string"))
    shape = TableSpec(("id", "Id"), columns, "postgresql", 16, 4)

    def side(*rows: tuple[Any, ...]) -> list[pa.RecordBatch]:
        return pa.Table.from_pylist([dict(zip(("id", "Id", "x", "before"), r, strict=True)) for r in rows]).to_batches()

    nan = float("nan")
    one = side((1, "a", nan, None), (1, "b", 1.0, ""), (2, "a", 1.0, "x"), (3, "a", None, "x"))
    other = side((1, "a", nan, None), (1, "b", 1.0, None), (2, "A", 1.0, "x"), (3, "a", nan, "x"))
    found = compare(one, other, shape, 10)
    assert found.counts == {"added": 1, "changed": 2, "removed": 1}
    assert {(r.change, *r.key.values()) for r in found.rows} == {
        ("added", 2, "A"), ("changed", 1, "b"), ("changed", 3, "a"), ("removed", 2, "a"),
    }  # fmt: skip
    assert compare([], [], shape, 10).rows == ()
    assert compare(one, [], shape, 0).counts["removed"] == compare([], one, shape, 0).counts["added"] == 4
    assert json.dumps([r.key for r in found.rows])
