"""Subsume and truncate against real files: exactly what the plan names goes. I9, I10, I12, I18, I22."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from support import timed_rows
from support.effort import list_moments
from support.faults import Fault, attempt, check_nothing_left_over, on_copy, reopened
from support.pipelines import (
    CONFIG,
    contents,
    copy_pipeline,
    judge_all,
    make_pipeline,
    put,
    rows_of,
    snapshot_rows,
    table_rows,
)
from tidefold.changelog.segment import read_change_set
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import State
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.errors import RefusedError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold, Restore
from tidefold.operations.retention.clean import drop
from tidefold.operations.retention.references import tag, untag
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

KEEPING = CONFIG.replace("store: store\n", "store: store\nretention: {snapshots: 2}\n")


def grow(pipeline: Pipeline, first: int, last: int) -> None:
    """Snapshots `first` to `last`: the first of all has 40 rows, each later one changes one of them."""
    for number in range(first, last + 1):
        rows = range(40) if number == 1 else [number]
        put(pipeline, [{"id": i, "text": f"{number}"} for i in rows])
        materialize(pipeline, ["accounts"], Fold(f"run-{number}"), in_process)
        judge_all(pipeline)
        confirm(pipeline, "accounts")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_pipeline(tmp_path_factory.mktemp("template"), KEEPING)
    grow(made, 1, 5)
    return made.config.path.parent


@pytest.fixture
def pipeline(template: Path, tmp_path: Path) -> Pipeline:
    return copy_pipeline(template, tmp_path)


def test_a_plan_changes_nothing_and_names_exactly_what_goes(pipeline: Pipeline, tmp_path: Path) -> None:
    before = contents(tmp_path / "store")
    planned = subsume(pipeline, "accounts", plan=True)
    assert contents(tmp_path / "store") == before
    done = subsume(pipeline, "accounts")
    assert done.facts == {**planned.facts, "paths": done.facts["paths"]}
    assert sorted(done.facts["paths"]) == sorted(planned.facts["paths"])
    gone = {p for p in set(before) - set(contents(tmp_path / "store")) if "/ledger/" not in p}
    assert gone == set(done.facts["paths"])
    assert done.facts["bytes"] == sum(len(before[p]) for p in gone)


def test_hard_links_count_by_what_their_deletion_frees(tmp_path: Path) -> None:
    """Files of a snapshot are links to those of the table: together they take the bytes of one."""
    pipeline = make_pipeline(tmp_path, KEEPING)
    grow(pipeline, 1, 5)
    before = measure_disk(tmp_path / "store")
    planned, done = subsume(pipeline, "accounts", plan=True), subsume(pipeline, "accounts")
    assert planned.facts["bytes"] == done.facts["bytes"] == before - measure_disk(tmp_path / "store")
    assert 0 < done.facts["bytes"] < sum(len(data) for data in contents(tmp_path / "store").values())
    assert drop(pipeline, "accounts").facts["bytes"] == measure_disk(tmp_path / "store", but="")


def measure_disk(folder: Path, but: str = "ledger") -> int:
    """Returns the bytes on the disk: a file with several names takes its bytes once."""
    files = (path for path in folder.rglob("*") if path.is_file() and but not in path.parts)
    stats = [path.stat() for path in files if path.name != "store.json"]
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in stats}.values())


def test_kept_snapshots_the_table_and_its_kept_versions_read_as_before(pipeline: Pipeline) -> None:
    rows = {n: snapshot_rows(pipeline, n) for n in (4, 5)}
    assert subsume(pipeline, "accounts").facts["snapshots"] == [1, 2, 3]
    assert truncate(pipeline, "accounts").status == "truncated"
    assert {n: snapshot_rows(pipeline, n) for n in (4, 5)} == rows
    assert table_rows(pipeline) == rows[5]
    uri = pipeline.store.uri(LogPaths("accounts").table)
    before = DeltaTable(uri, version=3).to_pyarrow_table().to_pylist()
    assert {r["id"]: r["text"] for r in before} == rows[4]
    check_nothing_left_over(pipeline, [4, 5])
    assert len(pipeline.store.list("changelog")) == 1


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_one_snapshot_is_enough_and_harms_no_reader_of_the_version_before(tmp_path: Path, kind: str) -> None:
    """I10, I12, I18: a reader that began before a run ends after its retention; what is kept restores and goes on."""
    one = f"store: store\nsnapshots: {{kind: {kind}}}\nretention: {{snapshots: 1}}\n"
    pipeline = make_pipeline(tmp_path, CONFIG.replace("store: store\n", one))
    grow(pipeline, 1, 1)
    uri = pipeline.store.uri(LogPaths("accounts").table)
    for number in range(2, 6):
        reader, rows = DeltaTable(uri), table_rows(pipeline)
        grow(pipeline, number, number)
        subsume(pipeline, "accounts")
        truncate(pipeline, "accounts")
        assert {r["id"]: r["text"] for r in reader.to_pyarrow_table().to_pylist()} == rows
        assert table_rows(pipeline) == {**rows, number: f"{number}"}
        completed = [s.id for s in pipeline.ledger("accounts").read().snapshots if s.state is State.COMPLETED]
        assert completed == [number]
    [back] = materialize(pipeline, ["accounts"], Restore("back", RestorePoint(5, RestoreMode.SKIP)), in_process)
    assert back.status == "staged", back


def test_again_is_nothing(pipeline: Pipeline, tmp_path: Path) -> None:
    subsume(pipeline, "accounts")
    truncate(pipeline, "accounts")
    before = contents(tmp_path / "store")
    assert subsume(pipeline, "accounts").status == "nothing"
    assert truncate(pipeline, "accounts").status == "nothing"
    assert contents(tmp_path / "store") == before


def test_a_retired_snapshot_whose_files_stay_is_named(tmp_path: Path) -> None:
    """Fault: it could not be restored any more, and no outcome had named it."""
    pipeline = make_pipeline(
        tmp_path, config=CONFIG.replace("store: store\n", "store: store\nretention: {snapshots: 1}\n")
    )
    grow(pipeline, 1, 4)
    planned, done = subsume(pipeline, "accounts", plan=True), subsume(pipeline, "accounts")
    for outcome in (planned, done):
        assert (outcome.facts["snapshots"], outcome.facts["waiting"], outcome.facts["kept"]) == ([1, 2, 3], [3], [4])
        assert "files of retired snapshots 3 stay for a while" in outcome.message


def test_a_call_that_only_retires_is_not_nothing(tmp_path: Path) -> None:
    """Fault: the plan and the call said `nothing to retire`, and three snapshots could not be restored any more."""
    config = CONFIG.replace("store: store\n", "store: store\nretention: {snapshots: 1, grace_versions: 9}\n")
    pipeline = make_pipeline(tmp_path, config=config)
    grow(pipeline, 1, 4)
    planned, done, again = subsume(pipeline, "accounts", plan=True), *(subsume(pipeline, "accounts") for _ in "ab")
    assert [one.status for one in (planned, done, again)] == ["planned", "subsumed", "nothing"]
    for outcome in (planned, done):
        assert (outcome.facts["snapshots"], outcome.facts["waiting"], outcome.facts["files"]) == (
            [1, 2, 3],
            [1, 2, 3],
            0,
        )
    assert again.facts["snapshots"] == []


def test_the_log_goes_on_after_a_cut(pipeline: Pipeline) -> None:
    subsume(pipeline, "accounts")
    truncate(pipeline, "accounts")
    grow(pipeline, 6, 8)
    rows = table_rows(pipeline)
    assert (len(rows), rows[1], rows[8]) == (40, "1", "8")


def test_a_tagged_snapshot_stays_and_reads_until_it_is_freed(pipeline: Pipeline) -> None:
    first = snapshot_rows(pipeline, 1)
    assert tag(pipeline, "accounts", "start", 1).status == "tagged"
    assert tag(pipeline, "accounts", "start", 1).status == "already"
    assert subsume(pipeline, "accounts").facts["snapshots"] == [2, 3]
    assert snapshot_rows(pipeline, 1) == first
    assert untag(pipeline, "accounts", "start").status == "untagged"
    assert subsume(pipeline, "accounts").facts["snapshots"] == [1]


def test_a_staged_snapshot_keeps_what_it_carries(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 6, "text": "6"}])
    materialize(pipeline, ["accounts"], Fold("run-6"), in_process)
    subsume(pipeline, "accounts")
    truncate(pipeline, "accounts")
    judge_all(pipeline)
    assert confirm(pipeline, "accounts").status == "published"
    assert len(table_rows(pipeline)) == 40


def test_keeping_all_retires_nothing(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    grow(pipeline, 1, 3)
    assert subsume(pipeline, "accounts").status == "nothing"
    assert truncate(pipeline, "accounts").facts["truncated_to"] == 1


@pytest.mark.rotates(3)
@pytest.mark.parametrize("fault", list(Fault), ids=lambda f: f.name.lower())
def test_after_any_fault_the_next_call_finishes(pipeline: Pipeline, tmp_path: Path, fault: Fault) -> None:
    def clean(at_work: Pipeline, run: str) -> None:
        subsume(at_work, "accounts")
        truncate(at_work, "accounts")

    template, folder = tmp_path, tmp_path.with_name(f"{tmp_path.name}-copy")
    whole = on_copy(template, folder, config=KEEPING)
    clean(whole, "")
    calls = whole.store.calls  # type: ignore[attr-defined]
    assert calls > 10
    expected = {n: snapshot_rows(pipeline, n) for n in (4, 5)}
    for at in list_moments(calls, fault):
        attempt(on_copy(template, folder, config=KEEPING, at=at, fault=fault), clean)
        recovered = reopened(folder, config=KEEPING)
        assert rows_of(recovered.store.uri(LogPaths("accounts").table)) == expected[5]
        clean(recovered, "")
        assert {n: snapshot_rows(recovered, n) for n in (4, 5)} == expected
        check_nothing_left_over(recovered, [4, 5])
        assert len(recovered.store.list("changelog")) == 1


def test_a_drop_deletes_what_its_plan_named_and_nothing_of_others(pipeline: Pipeline, tmp_path: Path) -> None:
    put(pipeline, [{"id": 1, "text": "a"}], log="tellers")
    others = {p for p in contents(tmp_path / "store") if "tellers" in p}
    others.add(pipeline.ledger("tellers").read().change_sets[0].location.segment)
    before = contents(tmp_path / "store")
    planned = drop(pipeline, "accounts")
    assert contents(tmp_path / "store") == before
    assert planned.facts["bytes"] == sum(len(before[p]) for p in planned.facts["paths"])
    assert drop(pipeline, "accounts", plan=False).status == "dropped"
    left = set(contents(tmp_path / "store")) - others - {"store.json"}
    assert [path.rsplit("/", 1)[0] for path in left] == ["logs/accounts/ledger"]
    assert drop(pipeline, "accounts", plan=False).status == "nothing"
    grow(pipeline, 1, 1)
    assert len(table_rows(pipeline)) == 40
    # The next log of the name never meets an id of the last.
    assert [s.id for s in pipeline.ledger("accounts").read().snapshots] == [6]


def test_a_drop_waits_for_an_open_attempt(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 6, "text": "6"}])
    materialize(pipeline, ["accounts"], Fold("run-6"), in_process)
    with pytest.raises(RefusedError) as refused:
        drop(pipeline, "accounts", plan=False)
    assert refused.value.code == "ATTEMPT_OPEN"


@pytest.mark.rotates(6)
def test_an_interrupted_drop_lets_nobody_in_and_is_finished_by_the_next(pipeline: Pipeline, tmp_path: Path) -> None:
    def dropping(at_work: Pipeline, run: str) -> None:
        drop(at_work, "accounts", plan=False)

    for _ in range(130):  # Enough for pages, which go before the ledger.
        put(pipeline, [{"id": 1, "text": "more"}])
    folder = tmp_path.with_name(f"{tmp_path.name}-copy")
    calls = len(drop(pipeline, "accounts").facts["paths"])
    for at in range(1, calls, 17):
        attempt(on_copy(tmp_path, folder, config=KEEPING, at=at, fault=Fault.KILLED_AFTER), dropping)
        left = reopened(folder, config=KEEPING)
        if left.ledger("accounts").exists():
            with pytest.raises(RefusedError) as refused:
                put(left, [{"id": 1, "text": "late"}])
            assert refused.value.code == "LOG_DROPPED"
        drop(left, "accounts", plan=False)
        assert len(left.store.list("logs")) == len(left.store.list("")) - 1 == 1
        assert not left.ledger("accounts").exists()


def test_the_position_outlives_the_log_and_the_log_does_not_grow(tmp_path: Path) -> None:
    """airbytehq/airbyte#49802, #47547, #46571 (position lost, days of full resync), PeerDB-io/peerdb#4664 (raw table of
    49.5 M rows, growing): the log reaches back to the oldest kept snapshot, and no further.
    """
    pipeline = timed_rows.opened(tmp_path)
    segments = []
    for number in range(12):
        path = timed_rows.land(tmp_path, 10 * number, [timed_rows.put(i, number, f"{number}") for i in range(10)])
        assert timed_rows.take(pipeline).facts["changes"] == 10
        timed_rows.publish(pipeline, f"run-{number}")
        subsume(pipeline, timed_rows.LOG)
        truncate(pipeline, timed_rows.LOG)
        path.unlink()
        segments.append(sum(1 for _ in (tmp_path / "store/changelog").rglob("*.seg")))
    assert max(segments[2:]) <= 2
    state = pipeline.ledger(timed_rows.LOG).read()
    assert (state.positions[0].next_offset, state.truncated_to) == (120, 11)
    assert [len(read_change_set(pipeline.store, c)) for c in state.change_sets] == [10]
    assert timed_rows.take(open_pipeline(tmp_path / "tidefold.yaml")).status == "nothing"
    timed_rows.land(tmp_path, 120, [timed_rows.put(1, 50, "goes on")])
    assert timed_rows.take(pipeline).facts["changes"] == 1
