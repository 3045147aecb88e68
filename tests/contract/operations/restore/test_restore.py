"""The rows of an older snapshot come back as a new one, against real segments and Delta tables, no Spark.

Requirements C10, N2; promises I4, I5, I7, I10, I13, I14, I19. The oracle is a dict that takes every change.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from support.effort import list_moments
from support.faults import Fault, FaultyStore, attempt, on_copy, reopened
from support.interleaved import run_through_store
from support.pipelines import judge_all, put, rows_of, snapshot_rows, table_rows
from support.planning import pending
from support.savepoints import FIRST, KEEPING, SECOND, THIRD, changed, make
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import State
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot import transitions
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.errors import TidefoldError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.inspect.status import find_restorers, history
from tidefold.operations.requests import Fold, Restore
from tidefold.operations.retention.references import tag
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.compact_log import take_tail
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.steps import MaterializeStep

Rows = dict[int, str | None]


def fold(pipeline: Pipeline, run: str, restore: RestorePoint | None = None) -> Outcome:
    [outcome] = materialize(pipeline, ["accounts"], Restore(run, restore) if restore else Fold(run), in_process)
    return outcome


def cycle(pipeline: Pipeline, run: str, restore: RestorePoint | None = None) -> Outcome:
    outcome = fold(pipeline, run, restore)
    assert outcome.status == "staged", outcome
    judge_all(pipeline)
    assert confirm(pipeline, "accounts", Confirmation(run=run)).status == "published"
    return outcome


def back(snapshot: int, mode: RestoreMode = RestoreMode.REPLAY) -> RestorePoint:
    return RestorePoint(snapshot, mode)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return make(tmp_path)


def test_replay_brings_the_rows_back_and_the_next_run_folds_what_came_after_again(pipeline: Pipeline) -> None:
    """I5, I7: plain Delta readers see the old rows."""
    staged = fold(pipeline, "back", back(1))
    assert (staged.snapshot, staged.facts["files_carried"], staged.facts["bytes_written"]) == (4, 4, 0)
    assert {name: staged.facts[name] for name in ("restored", "mode", "skipped", "replayed")} == {
        "restored": 1, "mode": "replay", "skipped": None, "replayed": (2, 3),
    }  # fmt: skip
    assert "; the rows of snapshot 1; folded again by the next run: change sets 2 to 3" in staged.message
    assert table_rows(pipeline) == THIRD
    judge_all(pipeline)
    assert confirm(pipeline, "accounts").facts["table_version"] == 3
    assert table_rows(pipeline) == snapshot_rows(pipeline, 4) == FIRST
    assert [c.sqn for c in pipeline.ledger("accounts").read().unfolded] == [2, 3]
    cycle(pipeline, "run-5")
    assert table_rows(pipeline) == snapshot_rows(pipeline, 5) == THIRD


def test_skip_leaves_out_for_good_what_came_after_and_records_it(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 60, "text": "never folded"}])
    staged = cycle(pipeline, "back", back(1, RestoreMode.SKIP))
    assert (staged.facts["mode"], staged.facts["skipped"], staged.facts["replayed"]) == ("skip", (2, 4), None)
    assert "; left out for good: change sets 2 to 4" in staged.message
    assert table_rows(pipeline) == FIRST
    assert fold(pipeline, "run-5").status == "nothing"
    rows = changed(pipeline, FIRST, {1: "later", 2: None})
    cycle(pipeline, "run-6")
    assert table_rows(pipeline) == rows
    found = next(s for s in history(pipeline, "accounts") if s.id == 4)
    assert (found.skipped_from, found.to_sqn, found.base, found.restored_from) == (1, 4, 3, 1)


def test_undo_is_one_more_restore(pipeline: Pipeline) -> None:
    cycle(pipeline, "back", back(1, RestoreMode.SKIP))
    cycle(pipeline, "undo", back(3))
    assert table_rows(pipeline) == THIRD
    assert fold(pipeline, "run-6").status == "nothing"
    cycle(pipeline, "again", back(4))
    assert table_rows(pipeline) == FIRST
    # The skipped range belongs to the snapshot that skipped it, and comes back with its rows.
    assert fold(pipeline, "run-8").status == "nothing"
    assert find_restorers(history(pipeline, "accounts")) == {4: 1, 5: 3, 6: 4}


@pytest.mark.parametrize("mode", [RestoreMode.REPLAY, RestoreMode.SKIP])
def test_a_tail_comes_back_as_the_fold_up_to_its_end(pipeline: Pipeline, mode: RestoreMode) -> None:
    rows = changed(pipeline, THIRD, {8: None, 52: "d 52"})
    tail = take_tail(pipeline, "accounts", "tail-1").snapshot
    assert tail == 4
    late = changed(pipeline, rows, {53: "late"})
    cycle(pipeline, "run-5")
    asking = Restore("back", back(tail, mode))
    assert pending(pipeline, ["accounts"], asking) == ["accounts"]
    staged = cycle(pipeline, "back", back(tail, mode))
    assert (staged.facts["restored"], staged.facts["changes"]) == (4, 2)
    assert staged.facts["skipped" if mode is RestoreMode.SKIP else "replayed"] == (5, 5)
    assert table_rows(pipeline) == rows
    assert find_restorers(history(pipeline, "accounts")) == {6: 4}
    if mode is RestoreMode.SKIP:
        assert fold(pipeline, "run-7").status == "nothing"
    else:
        cycle(pipeline, "run-7")
        assert table_rows(pipeline) == late


@pytest.mark.parametrize("changes", [1, 3])
def test_a_carried_tail_is_folded_by_the_next_run(pipeline: Pipeline, changes: int) -> None:
    """C10: Flink's restored changelog handles. No row is written and no change set read, whatever the tail has."""
    rows = THIRD
    for number in range(changes):
        rows = changed(pipeline, rows, {8: None, 52: f"d {number}"})
    tail = take_tail(pipeline, "accounts", "tail-1").snapshot or 0
    late = changed(pipeline, rows, {53: "late"})
    cycle(pipeline, "run-5")
    asking = Restore("back", back(tail, RestoreMode.CARRY))
    assert pending(pipeline, ["accounts"], asking) == [], "no fold"
    staged = cycle(pipeline, "back", back(tail, RestoreMode.CARRY))
    assert (staged.facts["restored"], staged.facts["changes"], staged.facts["bytes_written"]) == (3, 0, 0)
    assert staged.facts["replayed"] == (4, 4 + changes)
    assert table_rows(pipeline) == THIRD
    assert take_tail(pipeline, "accounts", "tail-2").facts["change_sets"] == changes + 1
    cycle(pipeline, "run-7")
    assert table_rows(pipeline) == late


def test_a_carried_snapshot_without_a_tail_is_replayed(pipeline: Pipeline) -> None:
    cycle(pipeline, "back", back(2, RestoreMode.CARRY))
    assert table_rows(pipeline) == SECOND
    cycle(pipeline, "run-5")
    assert table_rows(pipeline) == THIRD


def test_a_whole_snapshot_comes_back_without_spark(pipeline: Pipeline) -> None:
    asking = Restore("back", back(2))
    assert pending(pipeline, ["accounts"], asking) == []
    found = run_without_spark(pipeline, MaterializeStep(asking), ["accounts"])
    assert (found.spark, found.done[0].status) == ((), "staged")
    judge_all(pipeline)
    confirm(pipeline, "accounts")
    assert table_rows(pipeline) == SECOND


def test_the_same_run_again_is_the_same_snapshot_and_another_request_of_it_is_refused(pipeline: Pipeline) -> None:
    """I4."""
    cycle(pipeline, "back", back(1))
    again = fold(pipeline, "back", back(1))
    assert (again.status, again.snapshot) == ("already", 4)
    for other in (back(2), back(1, RestoreMode.SKIP), None):
        assert fold(pipeline, "back", other).error_code == "RUN_CHANGED"
    assert len(history(pipeline, "accounts")) == 4


def test_what_is_retired_aborted_or_unknown_is_refused_by_name(tmp_path: Path) -> None:
    pipeline = make(tmp_path, KEEPING)
    put(pipeline, [{"id": 1, "text": "d"}])
    fold(pipeline, "run-4")
    abort(pipeline, "accounts", "by hand")
    subsume(pipeline, "accounts")
    before = {e.path for e in pipeline.store.list("")}
    for snapshot, code, said in (
        (1, "WRONG_STATE", "DELETED"),
        (4, "WRONG_STATE", "ABORTED"),
        (9, "SNAPSHOT_UNKNOWN", "9"),
    ):
        refused = fold(pipeline, "back", back(snapshot))
        assert refused.error_code == code
        assert said in refused.message
        assert pending(pipeline, ["accounts"], Restore("back", back(snapshot))) == []
    assert {e.path for e in pipeline.store.list("")} == before
    assert table_rows(pipeline) == THIRD


def test_a_replay_is_refused_where_the_log_is_cut_and_a_skip_is_not(tmp_path: Path) -> None:
    pipeline = make(tmp_path, KEEPING)
    tag(pipeline, "accounts", "start", 1)
    subsume(pipeline, "accounts")
    assert truncate(pipeline, "accounts").facts["truncated_to"] == 2
    refused = fold(pipeline, "back", back(1))
    assert refused.error_code == "LOG_CUT"
    assert "the snapshot ends with change set 1, and the log was truncated up to 2" in refused.message
    assert "--log-position skip" in refused.message
    cycle(pipeline, "back", back(1, RestoreMode.SKIP))
    assert table_rows(pipeline) == FIRST


def test_an_open_attempt_blocks_a_restore_until_it_is_taken_over(pipeline: Pipeline) -> None:
    """I20."""
    put(pipeline, [{"id": 1, "text": "d"}])
    fold(pipeline, "run-4")
    assert fold(pipeline, "back", back(1)).error_code == "ATTEMPT_OPEN"
    [taken] = materialize(pipeline, ["accounts"], Restore("back", back(1), takeover=True), in_process)
    assert (taken.status, taken.snapshot) == ("staged", 5)


def test_a_restore_that_the_gate_refuses_changes_nothing_for_readers(pipeline: Pipeline) -> None:
    """I8, I13."""
    fold(pipeline, "back", back(1))
    judge_all(pipeline, passed=False)
    with pytest.raises(TidefoldError):
        confirm(pipeline, "accounts")
    abort(pipeline, "accounts", "no")
    assert table_rows(pipeline) == THIRD
    assert snapshot_rows(pipeline, 1) == FIRST
    cycle(pipeline, "back", back(1))
    assert table_rows(pipeline) == FIRST


def test_older_table_versions_read_as_before_and_the_restored_files_come_back_under_their_names(
    pipeline: Pipeline,
) -> None:
    cycle(pipeline, "back", back(1))
    uri = pipeline.store.uri(LogPaths("accounts").table)
    shown = [{r["id"]: r["text"] for r in DeltaTable(uri, version=v).to_pyarrow_table().to_pylist()} for v in range(4)]
    assert shown == [FIRST, SECOND, THIRD, FIRST]
    assert set(DeltaTable(uri, version=3).file_uris()) == set(DeltaTable(uri, version=0).file_uris())


def test_after_a_restore_retention_goes_on(tmp_path: Path) -> None:
    """I9, I10: what the newest N are is decided by id, and the log stays for all of them."""
    pipeline = make(tmp_path, KEEPING)
    tag(pipeline, "accounts", "start", 1)
    cycle(pipeline, "back", back(1))
    assert subsume(pipeline, "accounts").facts["kept"] == [1, 3, 4]
    cut = truncate(pipeline, "accounts")
    assert cut.facts["truncated_to"] == 1
    cycle(pipeline, "run-5")
    assert table_rows(pipeline) == THIRD
    assert subsume(pipeline, "accounts").facts["kept"] == [1, 4, 5]
    assert (snapshot_rows(pipeline, 1), snapshot_rows(pipeline, 4)) == (FIRST, FIRST)
    assert truncate(pipeline, "accounts").facts["truncated_to"] == 1
    cycle(pipeline, "back-2", back(4))
    assert table_rows(pipeline) == FIRST


def test_a_crash_between_confirm_and_publish_of_a_restore_is_rolled_forward(pipeline: Pipeline) -> None:
    """I1."""
    fold(pipeline, "back", back(1))
    judge_all(pipeline)
    pipeline.ledger("accounts").commit(lambda s: transitions.confirm(s, 4))
    assert confirm(pipeline, "accounts").status == "published"
    assert table_rows(pipeline) == FIRST


def restoring(snapshot: int) -> Any:
    """A whole restore as a run makes it; an error of a step ends it."""

    def act(pipeline: Pipeline, run: str) -> None:
        asking = Restore(run, back(snapshot))
        [outcome] = materialize(pipeline, ["accounts"], asking, run_through_store(pipeline))
        if outcome.error_code:
            raise TidefoldError(outcome.error_code, outcome.message)
        if pipeline.ledger("accounts").read().open_attempt:
            judge_all(pipeline)
        confirm(pipeline, "accounts", Confirmation(run=run))

    return act


@pytest.mark.rotates(2)
@pytest.mark.parametrize(("kind", "faults"), [("whole", list(Fault)), ("tail", [Fault.KILLED_AFTER])])
def test_after_any_fault_a_retry_ends_as_if_nothing_had_happened(
    tmp_path: Path, kind: str, faults: list[Fault]
) -> None:
    """I1, I19, I22: every call that changes the store fails in turn."""
    template, folder = tmp_path / "template", tmp_path / "copy"
    made = make(template)
    rows = changed(made, THIRD, {8: None, 52: "d 52"})
    assert take_tail(made, "accounts", "tail-1").snapshot == 4
    wanted, expected = (1, FIRST) if kind == "whole" else (4, rows)
    act = restoring(wanted)
    whole = on_copy(template, folder)
    act(whole, "back")
    assert isinstance(whole.store, FaultyStore)
    calls, cases = whole.store.calls, 0
    assert calls > 12
    for fault in faults:
        for at in list_moments(calls, fault):
            attempt(on_copy(template, folder, at=at, fault=fault), lambda p, _: act(p, "back"))
            assert table_rows(reopened(folder)) in (THIRD, expected)
            recovered = reopened(folder)
            act(recovered, "back")
            state = recovered.ledger("accounts").read()
            assert table_rows(recovered) == expected
            assert [s.id for s in state.snapshots if s.published][:3] == [1, 2, 3]
            assert [s.state for s in state.snapshots if s.id > 4 and s.state is not State.ABORTED] == [State.COMPLETED]
            assert [rows_of(recovered.store.uri(LogPaths("accounts").snapshot(i))) for i in (1, 2, 3)] == [
                FIRST, SECOND, THIRD,
            ]  # fmt: skip
            aborted = [s.id for s in state.snapshots if s.state is State.ABORTED]
            assert not [e for i in aborted for e in recovered.store.list(LogPaths("accounts").snapshot(i))]
            cases += 1
    print(f"{cases} cases")
