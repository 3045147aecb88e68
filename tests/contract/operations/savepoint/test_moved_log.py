"""A log moves to another store by a savepoint, and is fed from the same source there: nothing is lost, nothing comes
twice. N8, N9, I5, I7.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.landing import TOPIC, land, make_landing, record, state_of, take, tombstone
from support.pipelines import judge_all, make_pipeline, table_rows
from support.savepoints import bring_in
from tidefold.changelog.writer import Changelog, WriterSettings
from tidefold.compute.runners import in_process
from tidefold.domain.external_snapshot import Layout, Ownership
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold, Import
from tidefold.operations.restore.rebuild import rebuild
from tidefold.operations.savepoint.take import SavepointRequest, take_savepoint
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

ALL = {1: "t1005", 2: "t1001", 4: "t1006", 5: "t1007"}


def fold(pipeline: Pipeline, run: str, imported: Import | None = None, log: str = "items") -> Outcome:
    [outcome] = materialize(pipeline, [log], imported or Fold(run), in_process)
    assert outcome.status == "staged", outcome
    judge_all(pipeline, log)
    confirm(pipeline, log, Confirmation(run=run))
    return outcome


def landed(root: Path) -> None:
    land(root, 0, [record(0), record(1, 2), record(2, 3)])
    land(root, 3, [record(3, 3, "d"), tombstone(4, 3)])
    land(root, 5, [record(5, 1, "u"), record(6, 4)])
    land(root, 7, [record(7, 5)])


def other(root: Path) -> Pipeline:
    """Another store under another number of buckets, with everything that ever landed, the old files too."""
    make_landing(root)
    (root / "tidefold.yaml").write_text((root / "tidefold.yaml").read_text().replace("buckets: 4", "buckets: 3"))
    landed(root)
    return open_pipeline(root / "tidefold.yaml")


@pytest.mark.rotates(6)
@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("mode", list(Ownership))
def test_a_log_goes_on_elsewhere_from_the_middle_of_its_source(tmp_path: Path, layout: Layout, mode: Ownership) -> None:
    pipeline = make_landing(tmp_path / "one")
    landed(tmp_path / "one")
    late = [tmp_path / f"one/landing/{TOPIC}/{TOPIC}+0+{start:010d}.jsonl" for start in (5, 7)]
    for path in late:
        path.rename(tmp_path / path.name)
    take(pipeline)
    fold(pipeline, "run-1")
    for path in late:
        shutil.copy(tmp_path / path.name, path)
    take(pipeline)
    assert state_of(pipeline).positions[0].next_offset == 8
    # Of the snapshot before what was taken last: its own place in the source is saved, not the log's.
    saved = take_savepoint(pipeline, "items", SavepointRequest(str(tmp_path / "save"), layout=layout))
    [position] = saved.facts["positions"]
    assert (position["next_offset"], position["stream"]["max_order"][-1]) == (5, 1003)
    fold(pipeline, "run-2")
    assert table_rows(pipeline, "items") == ALL

    moved = other(tmp_path / "two")
    fold(moved, "in", Import("in", str(tmp_path / "save"), mode))
    assert table_rows(moved, "items") == {1: "t1000", 2: "t1001"}
    taken = take(moved)
    assert (taken.facts["changes"], taken.facts["unproved"], taken.facts["problems"]) == (3, 5, [])
    fold(moved, "run-2")
    assert table_rows(moved, "items") == ALL
    assert state_of(moved).positions == state_of(pipeline).positions
    assert take(moved).status == "nothing"
    assert [c.sqn for c in state_of(moved).change_sets] == [3, 4]


@pytest.mark.parametrize("is_new", [True, False])
def test_an_imported_log_goes_on_after_its_ledger_was_lost(tmp_path: Path, is_new: bool) -> None:
    """I29. The manifest of an imported snapshot knows how far the source was taken, as that of any other."""
    pipeline = make_landing(tmp_path / "one")
    land(tmp_path / "one", 0, [record(0), record(1, 2), record(2, 3)])
    take(pipeline)
    fold(pipeline, "run-1")
    take_savepoint(pipeline, "items", SavepointRequest(str(tmp_path / "save")))
    moved = other(tmp_path / "two")
    if not is_new:
        take(moved)
        fold(moved, "run-1")
    fold(moved, "in", Import("in", str(tmp_path / "save"), Ownership.NO_CLAIM))
    before = state_of(moved)
    shutil.rmtree(tmp_path / "two/store/logs/items/ledger")
    moved = open_pipeline(tmp_path / "two/tidefold.yaml")
    rebuild(moved, "items", plan=False)
    after = state_of(moved)
    assert after.positions == before.positions
    assert after.last_file >= before.last_file
    assert after.stopped is None
    land(tmp_path / "two", 8, [record(8, 6)])
    taken = take(moved)
    assert (taken.facts["changes"], taken.facts["problems"]) == ((5 if is_new else 1), [])
    fold(moved, "run-2")
    assert table_rows(moved, "items") == (
        ALL | {6: "t1008"} if is_new else {1: "t1000", 2: "t1001", 3: "t1002", 6: "t1008"}
    )


def test_a_writer_goes_on_where_it_stood_when_the_log_was_saved(tmp_path: Path) -> None:
    config = (
        "version: 1\nstore: store\nlogs:\n  accounts:\n    key: [id]\n    columns: {id: int, text: string}\n"
        "    order: arrival\n    key_groups: 16\n    buckets: 4\n"
    )
    pipeline = make_pipeline(tmp_path / "one", config)
    shape = pipeline.log("accounts").shape
    with Changelog(pipeline.store, WriterSettings(name="writer")) as changelog:
        writer = changelog.log("accounts", shape)
        writer.append([{"id": 1, "text": "a"}, {"id": 2, "text": "b"}])
        writer.flush()
        fold(pipeline, "run-1", log="accounts")
        writer.append([{"id": 3, "text": "c"}])
        writer.flush()
    take_savepoint(pipeline, "accounts", SavepointRequest(str(tmp_path / "save")))
    moved = make_pipeline(tmp_path / "two", config)
    bring_in(moved, tmp_path / "save")
    with Changelog(moved.store, WriterSettings(name="writer")) as changelog:
        writer = changelog.log("accounts", shape)
        assert writer.offset == 2
        writer.append([{"id": 1, "text": "later"}])
        writer.flush()
    fold(moved, "run-2", log="accounts")
    assert table_rows(moved) == {1: "later", 2: "b"}
