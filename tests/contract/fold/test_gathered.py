"""Many small change sets are read once for all buckets, and by every way to read give the rows that one by one give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from support import workloads
from support.counted import counted
from support.pipelines import CONFIG, copy_pipeline, judge_all, make_pipeline, put, table_rows
from support.small_segments import put_segments
from tidefold.changelog.schema import DELETE
from tidefold.changelog.segment import read_change_set
from tidefold.compute.runners import Runner, in_process, in_threads
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import ChangeSet
from tidefold.errors import CorruptError
from tidefold.fold import inputs
from tidefold.fold.inputs import MANY, CachePool, ChangeCache
from tidefold.fold.plan import ChangeSetIndex
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_pipeline(tmp_path_factory.mktemp("template"), CONFIG)
    for number in range(MANY):
        put(made, [{"id": (number * 7 + i) % 40, "text": f"{number}"} for i in range(3)])
    put(made, [{"id": 1, "text": None, "_op": DELETE}])
    return made.config.path.parent


@pytest.fixture
def pipeline(template: Path, tmp_path: Path) -> Pipeline:
    return copy_pipeline(template, tmp_path)


def expected() -> dict[int, str]:
    rows = {(number * 7 + i) % 40: f"{number}" for number in range(MANY) for i in range(3)}
    return {key: text for key, text in rows.items() if key != 1}


@pytest.mark.parametrize("runner", [in_process, in_threads()], ids=["one", "threads"])
@pytest.mark.parametrize("most", [inputs._MOST, -1])
def test_the_rows_are_those_of_reading_one_by_one(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, runner: Runner, most: int
) -> None:
    monkeypatch.setattr(inputs, "_MOST", most)
    monkeypatch.setattr(inputs, "_RUN", 10)
    _, rows = read_rows(pipeline, "accounts", ReadRequest(What.LIVE))
    assert {row["id"]: row["text"] for batch in rows for row in batch.to_pylist()} == expected()
    assert materialize(pipeline, ["accounts"], Fold("run"), runner)[0].status == "staged"
    judge_all(pipeline)
    confirm(pipeline, "accounts")
    assert table_rows(pipeline) == expected()


def test_each_segment_is_opened_once(tmp_path: Path) -> None:
    root = workloads.begun(tmp_path / "root")
    parts = workloads.uniform(10_000, 100)
    put_segments(workloads.opened(root), workloads.LOG, [workloads.rows(ids, 1) for ids in parts])
    counts = counted(lambda: workloads.fold(root, "next"))
    assert counts["files opened"] == 100 + 2 * 16


def test_another_work_finds_what_was_damaged_since(pipeline: Pipeline) -> None:
    sets = pipeline.ledger("accounts").read().change_sets
    kept, all_of_them = CachePool(), KeyGroups(0, 15)
    read = partial_read(pipeline)
    index = ChangeSetIndex(sets)
    every = index.find_overlapping(all_of_them)
    [(whole, _)] = kept.of("one").changes(index, every, all_of_them, read)
    Path(pipeline.store.uri(sets[3].location.segment)).write_bytes(b"damaged")
    assert kept.of("one").changes(index, every, all_of_them, read)[0][0].equals(whole)
    with pytest.raises(CorruptError):
        kept.of("two").changes(index, every, all_of_them, read)


@pytest.mark.parametrize(("most", "again"), [(inputs._MOST, 0), (1, 1)])
def test_the_works_of_late_are_kept_as_far_as_there_is_room(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, most: int, again: int
) -> None:
    monkeypatch.setattr(inputs, "_MOST", most)
    monkeypatch.setattr(inputs, "_FRAME", 0)
    index = ChangeSetIndex(pipeline.ledger("accounts").read().change_sets[:1])
    kept, all_of_them, read = CachePool(), KeyGroups(0, 15), []

    def noted(change_set: ChangeSet) -> pa.Table:
        read.append(change_set)
        return read_change_set(pipeline.store, change_set)

    for work in ("one", "two", "one", "two"):
        kept.of(work).changes(index, index.find_overlapping(all_of_them), all_of_them, noted)
    assert len(read) == 2 + 2 * again


def test_a_task_gets_only_the_change_sets_and_key_groups_that_it_asks_for(pipeline: Pipeline) -> None:
    index = ChangeSetIndex(pipeline.ledger("accounts").read().change_sets)
    kept, read, all_of_them, bucket = ChangeCache(), partial_read(pipeline), KeyGroups(0, 15), KeyGroups(4, 7)
    kept.changes(index, np.intersect1d(np.arange(50), index.find_overlapping(all_of_them)), all_of_them, read)
    asked = np.intersect1d([*range(20, 30), 60], index.find_overlapping(bucket))
    [(found, _)] = kept.changes(index, asked, bucket, read)
    slices = [read_change_set(pipeline.store, index.change_sets[one], bucket) for one in asked]
    assert found.sort_by("_offset").equals(pa.concat_tables(slices).combine_chunks().sort_by("_offset"))


def test_the_index_finds_what_a_look_at_each_change_set_finds(pipeline: Pipeline) -> None:
    sets = pipeline.ledger("accounts").read().change_sets
    index = ChangeSetIndex(sets)
    for bucket in (KeyGroups(first, last) for first in range(16) for last in range(first, 16)):
        near = [number for number, one in enumerate(sets) if one.key_groups.meets(bucket)]
        assert index.find_overlapping(bucket).tolist() == near
        bytes_ = sum(
            one.location.length * len(groups(one.key_groups) & groups(bucket)) / len(groups(one.key_groups))
            for one in sets
        )
        assert index.estimate_bytes(index.find_overlapping(bucket), bucket) == int(bytes_ + 1e-6)


def groups(span: KeyGroups) -> set[int]:
    return set(range(span.first, span.last + 1))


def test_change_sets_of_different_schemas_stay_apart(pipeline: Pipeline) -> None:
    sets = pipeline.ledger("accounts").read().change_sets
    index = ChangeSetIndex([replace(one, schema=1 + number % 2) for number, one in enumerate(sets)])
    everything = KeyGroups(0, 15)
    found = ChangeCache().changes(index, index.find_overlapping(everything), everything, partial_read(pipeline))
    assert sorted(schema for _, schema in found) == [1, 2]
    assert sum(len(table) for table, _ in found) == sum(one.rows for one in sets)


def partial_read(pipeline: Pipeline) -> Callable[[ChangeSet], pa.Table]:
    return lambda change_set: read_change_set(pipeline.store, change_set)
