"""`change_feed`: the change data feed of a version is the naive difference of it and the version before.

Compared for folds of every kind, deletion vectors, clears, restores, changed columns and tables without a key. Feeds
are read by the rules of the Delta protocol, and by deltalake where it can.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.change_data_feed import (
    FEED,
    KEYLESS,
    LOG,
    VECTORS,
    find_differences,
    open_table,
    publish,
    rows_at,
    text_of,
)
from support.effort import choose
from support.faults import Fault, FaultyStore, Killed
from support.pipelines import judge_all, make_pipeline, put, with_log_shape
from tidefold.changelog.schema import CLEAR, DELETE
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import Column, State
from tidefold.domain.paths import CHANGE_FOLDER, LogPaths
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint
from tidefold.domain.table.schema_evolution import Policies, Policy
from tidefold.errors import RefusedError, TidefoldError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.schema_update import apply_configured_schema
from tidefold.operations.requests import Fold, Restore, SnapshotRequest
from tidefold.operations.retention.clean import clean
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import VerifyRequest, verify

KINDS = (KindPolicy.FULL, KindPolicy.INCREMENTAL)


def actions_of(pipeline: Pipeline, version: int) -> list[dict[str, Any]]:
    text = pipeline.store.read(f"{LogPaths(LOG).table}/_delta_log/{version:020d}.json")
    return [json.loads(line) for line in text.splitlines()]


def feed_of(pipeline: Pipeline, version: int) -> Counter[str]:
    """The feed of a version by the protocol: its `cdc` files alone, else the rows of added and removed files."""
    folder = Path(pipeline.store.uri(LogPaths(LOG).table).removeprefix("file://"))
    actions = actions_of(pipeline, version)
    changes = [action["cdc"] for action in actions if "cdc" in action]
    if changes:
        assert all(one["dataChange"] is False and one["path"].startswith(f"{CHANGE_FOLDER}/") for one in changes)
        assert all((folder / one["path"]).stat().st_size == one["size"] for one in changes)
        return Counter(text_of(row) for one in changes for row in pq.read_table(folder / one["path"]).to_pylist())
    assert not any("remove" in action for action in actions)
    added = [pq.read_table(folder / action["add"]["path"]) for action in actions if "add" in action]
    names = [field.name for field in open_table(pipeline, version).schema().fields]
    rows = [row for one in added for row in one.to_pylist()]
    return Counter(text_of({**{n: row.get(n) for n in names}, "_change_type": "insert"}) for row in rows)


def assert_exact(pipeline: Pipeline, version: int, key: str | None = "id") -> None:
    names = [field.name for field in open_table(pipeline, version).schema().fields]
    before = rows_at(pipeline, version - 1) if version else []
    wanted = find_differences(before, rows_at(pipeline, version), names, key)
    assert feed_of(pipeline, version) == wanted
    deltas = open_table(pipeline, version)
    if deltas.protocol().min_reader_version == 1:
        read = pa.table(deltas.load_cdf(starting_version=version, ending_version=version).read_all())
        rows = read.drop_columns(["_commit_version", "_commit_timestamp"]).to_pylist()
        shown = [{name: row.get(name) for name in [*names, "_change_type"]} for row in rows]
        assert Counter(map(text_of, shown)) == wanted


CHANGE = st.one_of(
    st.builds(lambda i, text: {"id": i, "text": text}, st.integers(0, 30), st.sampled_from(["a", "b", None])),
    st.builds(lambda i: {"id": i, "_op": DELETE}, st.integers(0, 30)),
)
STEP = st.one_of(
    st.tuples(st.just("fold"), st.lists(CHANGE, min_size=1, max_size=8), st.sampled_from(KINDS)),
    st.tuples(st.just("clear"), st.lists(CHANGE, max_size=3), st.sampled_from(KINDS)),
    st.tuples(st.just("restore"), st.integers(0, 5), st.sampled_from(KINDS)),
)


@settings(deadline=None, max_examples=choose(5, 12), suppress_health_check=list(HealthCheck))
@given(st.sampled_from([FEED, VECTORS]), st.lists(STEP, min_size=1, max_size=4))
def test_a_feed_is_the_naive_difference_of_two_versions(config: str, steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="feed", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        pipeline = make_pipeline(Path(folder), config)
        put(pipeline, [{"id": i, "text": "first"} for i in range(25)])
        versions = [publish(pipeline, Fold("run-0"))]
        for number, (what, given_, kind) in enumerate(steps, 1):
            if what == "restore":
                done = [s.id for s in pipeline.ledger(LOG).read().snapshots if s.published]
                point = RestorePoint(done[given_ % len(done)], RestoreMode.SKIP)
                request: SnapshotRequest = Restore(f"run-{number}", point, kind=kind)
            else:
                put(pipeline, [*([{"_op": CLEAR, "id": None}] if what == "clear" else []), *given_, {"id": 99}])
                request = Fold(f"run-{number}", kind=kind)
            versions.append(publish(pipeline, request))
        assert versions == list(range(len(steps) + 1))
        for version in versions:
            assert_exact(pipeline, version)


@pytest.mark.parametrize("kind", KINDS)
def test_new_types_and_new_and_dropped_columns(tmp_path: Path, kind: KindPolicy) -> None:
    policies = Policies(*[Policy.EVOLVE] * 6)
    made = make_pipeline(tmp_path, FEED)

    def with_columns(*columns: Column) -> Pipeline:
        found = with_log_shape(made, columns=columns, policies=policies)
        found.ledger(LOG).begin(found.log(LOG).shape)
        apply_configured_schema(found, found.ledger(LOG).read())
        return found

    first = with_columns(Column("id", "int"), Column("text", "string"), Column("n", "int"))
    put(first, [{"id": i, "text": "a", "n": i} for i in range(10)])
    publish(first, Fold("run-0", kind=kind))
    wider = with_columns(
        Column("id", "int"), Column("text", "string"), Column("n", "long"), Column("new", "int", default="7")
    )
    put(wider, [{"id": 1, "text": "b", "n": 2**40, "new": 1}])
    publish(wider, Fold("run-1", kind=kind))
    fewer = with_columns(Column("id", "int"), Column("n", "long"), Column("new", "int", default="7"))
    put(fewer, [{"id": 2, "n": 5, "new": None}, {"id": 3, "_op": DELETE}])
    publish(fewer, Fold("run-2", kind=kind))
    for version in range(3):
        assert_exact(fewer, version)


def test_rows_of_a_table_without_a_key_are_inserted_and_deleted(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path, KEYLESS)
    put(pipeline, [{"id": 1, "text": "a"}, {"id": 1, "text": "a"}])
    publish(pipeline, Fold("run-0"))
    put(pipeline, [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}])
    publish(pipeline, Fold("run-1"))
    publish(pipeline, Restore("run-2", RestorePoint(1, RestoreMode.SKIP)))
    for version in range(3):
        assert_exact(pipeline, version, key=None)
    assert sum(feed_of(pipeline, 2).values()) == 2


def test_a_version_that_changes_no_row_has_a_feed_without_rows(tmp_path: Path) -> None:
    """Without a `cdc` action readers would take the rows of new and old files as inserted and deleted."""
    pipeline = make_pipeline(tmp_path, FEED)
    put(pipeline, [{"id": i, "text": "a"} for i in range(10)])
    publish(pipeline, Fold("run-0"))
    put(pipeline, [{"id": i, "text": "a"} for i in range(10)])
    publish(pipeline, Fold("run-1"))
    assert any("cdc" in action for action in actions_of(pipeline, 1))
    assert feed_of(pipeline, 1) == Counter()
    assert_exact(pipeline, 1)


@pytest.mark.parametrize("config", [FEED, VECTORS])
def test_switched_on_later_and_off_again(tmp_path: Path, config: str) -> None:
    off = make_pipeline(tmp_path, config.replace("change_feed: true", "change_feed: false"))
    put(off, [{"id": i, "text": "a"} for i in range(30)])
    publish(off, Fold("run-0", kind=KindPolicy.INCREMENTAL))
    assert "delta.enableChangeDataFeed" not in open_table(off).metadata().configuration
    on = make_pipeline(tmp_path, config)
    put(on, [{"id": 3, "text": "b"}, {"id": 4, "_op": DELETE}])
    publish(on, Fold("run-1", kind=KindPolicy.INCREMENTAL))
    assert open_table(on).metadata().configuration["delta.enableChangeDataFeed"] == "true"
    assert_exact(on, 1)
    off = make_pipeline(tmp_path, config.replace("change_feed: true", "change_feed: false"))
    put(off, [{"id": 5, "text": "c"}])
    publish(off, Fold("run-2", kind=KindPolicy.INCREMENTAL))
    assert "delta.enableChangeDataFeed" not in open_table(off).metadata().configuration
    assert not any("cdc" in action for action in actions_of(off, 2))


def test_a_feed_that_another_program_switched_on_is_a_foreign_change(tmp_path: Path) -> None:
    """Its readers would take files that tidefold replaces for deleted and inserted rows."""
    pipeline = make_pipeline(tmp_path)
    put(pipeline, [{"id": 1, "text": "a"}])
    publish(pipeline, Fold("run-0"))
    open_table(pipeline).alter.set_table_properties({"delta.enableChangeDataFeed": "true"}, raise_if_not_exists=False)
    put(pipeline, [{"id": 1, "text": "b"}])
    materialize(pipeline, [LOG], Fold("run-1"), in_process)
    judge_all(pipeline)
    with pytest.raises(RefusedError, match="FOREIGN_COMMIT"):
        confirm(pipeline, LOG)


@pytest.mark.parametrize("fault", [Fault.KILLED_BEFORE, Fault.KILLED_AFTER, Fault.ERROR_AFTER])
def test_a_publisher_that_dies_at_any_call_leaves_an_exact_feed(tmp_path: Path, fault: Fault) -> None:
    pipeline = make_pipeline(tmp_path, FEED)
    put(pipeline, [{"id": i, "text": "a"} for i in range(10)])
    publish(pipeline, Fold("run-0"))
    put(pipeline, [{"id": 3, "text": "b"}])
    materialize(pipeline, [LOG], Fold("run-1"), in_process)
    judge_all(pipeline)
    for call in range(30):
        store = FaultyStore(tmp_path / "store", call, fault)
        with suppress(Killed, TidefoldError):
            confirm(replace(pipeline, store=store), LOG)
        if open_table(pipeline).version() == 1 and store.calls <= call:
            break
    confirm(pipeline, LOG)
    assert open_table(pipeline).version() == 1
    assert_exact(pipeline, 1)


def test_change_files_go_with_their_snapshot(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path, FEED.replace("store: store\n", "store: store\nretention: {snapshots: 1}\n"))
    for number in range(5):
        put(pipeline, [{"id": 1, "text": f"{number}"}])
        publish(pipeline, Fold(f"run-{number}"))
        subsume(pipeline, LOG)
        clean(pipeline, [LOG])
    folder = Path(pipeline.store.uri(LogPaths(LOG).table).removeprefix("file://")) / CHANGE_FOLDER
    snapshots = {int(path.name.split(".s")[1][:10]) for path in folder.iterdir()}
    kept = {s.id for s in pipeline.ledger(LOG).read().snapshots if s.state in (State.COMPLETED, State.SUBSUMED)}
    assert snapshots == kept
    assert_exact(pipeline, 4)


@pytest.mark.parametrize("harm", ["missing", "cut", "altered"])
def test_verify_names_a_damaged_file_of_the_feed(tmp_path: Path, harm: str) -> None:
    """Its only copy: nothing is repaired, and the table stays whole."""
    made = make_pipeline(tmp_path, FEED)
    for run, text in (("run-0", "a"), ("run-1", "b")):
        put(made, [{"id": 1, "text": text}])
        publish(made, Fold(run))
    assert verify(made, LOG).status == "whole"
    [action] = [one["cdc"] for one in actions_of(made, 1) if "cdc" in one]
    path = f"{LogPaths(LOG).table}/{action['path']}"
    file = tmp_path / "store" / path
    whole = file.read_bytes()
    file.unlink() if harm == "missing" else file.write_bytes(whole[:-1] if harm == "cut" else whole[:-1] + b"!")
    outcome = verify(made, LOG, VerifyRequest(repair=True))
    [damage] = outcome.facts["damage"]
    assert (damage["part"], damage["harm"], damage["paths"]) == ("change data file", harm, [path])
    assert (damage["snapshots"], damage["repaired"]) == ([2], "")
    assert "continues from that version" in damage["hint"]
    assert outcome.error_code == "DAMAGED"
    assert (verify(made, LOG, VerifyRequest(deep=False)).status == "whole") is (harm == "altered")
    assert len(open_table(made).to_pyarrow_table()) == 1


def test_verify_reports_a_damaged_commit_as_damage_of_the_table(tmp_path: Path) -> None:
    made = make_pipeline(tmp_path, FEED)
    put(made, [{"id": 1, "text": "a"}])
    publish(made, Fold("run-0"))
    commit = tmp_path / "store" / f"{LogPaths(LOG).table}/_delta_log/{0:020d}.json"
    commit.write_bytes(commit.read_bytes()[:-40])
    outcome = verify(made, LOG)
    assert [one["part"] for one in outcome.facts["damage"]] == ["published table"]
