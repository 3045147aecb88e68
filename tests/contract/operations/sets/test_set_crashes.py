"""A process that dies or loses an answer at any call while a set is decided and published: all tables, or none."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from support.bank_sets import ENDS, LOGS, check_bank, config, copy_bank, land, make_bank, read_set, replay, run
from support.effort import choose, list_moments, rotate
from support.faults import Fault, FaultyStore, Killed
from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import State
from tidefold.errors import TidefoldError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.sets.confirm import confirm_logs
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

FIRST = {"accounts": 310, "branches": 20, "tellers": 20, "history": 12, ENDS: 12}
SECOND = {"accounts": 420, "branches": 120, "tellers": 130, "history": 110, ENDS: 40}
THIRD = {"accounts": 500, "branches": 200, "tellers": 210, "history": 200, ENDS: 60}


def _stage(pipeline: Pipeline, run_id: str) -> None:
    ingest(pipeline, LOGS, in_process)
    materialize(pipeline, LOGS, Fold(run_id), in_process)
    for log in LOGS:
        judge_all(pipeline, log)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set with one published version and staged snapshots of the next one."""
    folder = tmp_path_factory.mktemp("sets") / "template"
    pipeline = make_bank(folder)
    land(folder, FIRST)
    run(pipeline, "r1")
    assert check_bank(pipeline) is not None
    land(folder, SECOND)
    _stage(pipeline, "r2")
    return folder


def _count_calls(template: Path, folder: Path) -> int:
    pipeline = copy_bank(template, folder)
    store = FaultyStore(folder / "store")
    outcomes = confirm_logs(replace(pipeline, store=store), LOGS, "r2")
    assert not any(o.error for o in outcomes)
    return store.calls


@pytest.mark.rotates(3)
@pytest.mark.parametrize("fault", list(Fault))
def test_a_crash_at_every_call_of_a_confirm(template: Path, tmp_path: Path, fault: Fault) -> None:
    folder = tmp_path / "copy"
    before = open_pipeline(template / "tidefold.yaml").set_ledger("bank").read()
    assert before.published
    assert before.point
    states = set()
    for at in list_moments(_count_calls(template, folder), fault):
        pipeline = copy_bank(template, folder)
        with suppress(Killed, TidefoldError):
            confirm_logs(replace(pipeline, store=FaultyStore(folder / "store", at, fault)), LOGS, "r2")
        assert check_bank(pipeline) in (before.published.position, before.point.position), at
        after = pipeline.set_ledger("bank").read()
        states.add((after.decided is not None, after.published == before.published))
        # Whoever comes next finishes what was decided: here a run that has nothing new, or an abort by hand.
        if at % 2:
            for log in LOGS:
                with suppress(TidefoldError):
                    abort(pipeline, log, "by hand")
            confirm_logs(pipeline, LOGS, "r3")
        else:
            materialize(pipeline, LOGS[:1], Fold("r3"), in_process)
        shown = check_bank(pipeline)
        decided = after.decided is not None or after.published != before.published
        assert shown == (before.point.position if decided else before.published.position), at
        newest = {log: pipeline.ledger(log).read().latest for log in LOGS}
        published = pipeline.set_ledger("bank").read().published
        assert published
        assert {m.log: m.snapshot for m in published.members} == {log: s.id for log, s in newest.items() if s}
    # Some crashes came between the decision and the last table.
    assert (True, True) in states


def test_the_next_run_goes_on_after_a_crash_in_any_step(template: Path, tmp_path: Path) -> None:
    """Some calls of a whole run; the next run publishes the newest point."""
    folder = tmp_path / "copy"
    pipeline = copy_bank(template, folder)
    for log in LOGS:
        abort(pipeline, log, "begin", run_id="r2")
    land(folder, THIRD)
    shutil.copytree(folder, tmp_path / "begun")
    store = FaultyStore(folder / "store")
    run(replace(pipeline, store=store), "r3")
    newest = check_bank(pipeline)
    for at in range(rotate(choose(15, 7)), store.calls, choose(15, 7)):
        pipeline = copy_bank(tmp_path / "begun", folder)
        with suppress(Killed, TidefoldError):
            run(replace(pipeline, store=FaultyStore(folder / "store", at, Fault.KILLED_AFTER)), "r3")
        check_bank(pipeline)
        for log in LOGS:
            with suppress(TidefoldError):
                abort(pipeline, log, "the next run takes over")
        run(pipeline, "r4")
        assert check_bank(pipeline) == newest, at


def test_a_decided_snapshot_is_published_and_not_aborted(template: Path, tmp_path: Path) -> None:
    pipeline = copy_bank(template, tmp_path / "copy")
    ledger = pipeline.set_ledger("bank")
    calls = _count_calls(template, tmp_path / "other")
    decided = None
    for at in range(calls):
        pipeline = copy_bank(template, tmp_path / "copy")
        with suppress(Killed):
            confirm_logs(
                replace(pipeline, store=FaultyStore(tmp_path / "copy" / "store", at, Fault.KILLED_AFTER)), LOGS, "r2"
            )
        decided = pipeline.set_ledger("bank").read().decided
        if decided:
            break
    assert decided
    staged = pipeline.ledger("history").read().open_attempt
    assert staged
    assert staged.state is State.STAGED
    with pytest.raises(TidefoldError, match="WRONG_STATE"):
        abort(pipeline, "history", "by hand", staged.id)
    assert ledger.read().published
    assert check_bank(pipeline) == decided.position


def test_an_aborted_snapshot_is_never_decided(template: Path, tmp_path: Path) -> None:
    pipeline = copy_bank(template, tmp_path / "copy")
    abort(pipeline, "tellers", "by hand", run_id="r2")
    outcomes = confirm_logs(pipeline, LOGS, "r2")
    assert {o.error_code for o in outcomes} == {"SET_HELD"}
    assert "tellers" in outcomes[0].message


def test_an_abort_between_look_and_decision_wins(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process aborts a snapshot after this one has read it, and before it decides."""
    pipeline = copy_bank(template, tmp_path / "copy")
    before = check_bank(pipeline)

    def meddle(*given: object) -> str:
        abort(pipeline, "tellers", "meanwhile", run_id="r2")
        return ""

    monkeypatch.setattr("tidefold.operations.sets.checks.find_unequal_sums", meddle)
    outcomes = confirm_logs(pipeline, LOGS, "r2")
    assert {o.error_code for o in outcomes} == {"SET_HELD"}
    assert check_bank(pipeline) == before
    assert pipeline.set_ledger("bank").read().decided is None


def test_readers_between_two_tables_see_one_point(template: Path, tmp_path: Path) -> None:
    """The pointer changes only when all tables show the version; single tables change one after the other."""
    pipeline = copy_bank(template, tmp_path / "copy")
    calls = _count_calls(template, tmp_path / "other")
    before = read_set(pipeline)
    mixed = 0
    for at in range(calls):
        pipeline = copy_bank(template, tmp_path / "copy")
        with suppress(Killed):
            confirm_logs(
                replace(pipeline, store=FaultyStore(tmp_path / "copy" / "store", at, Fault.KILLED_AFTER)), LOGS, "r2"
            )
        ids = [s.id for log in LOGS if (s := pipeline.ledger(log).read().latest)]
        mixed += len(set(ids)) > 1
        if pipeline.set_ledger("bank").read().decided:
            assert read_set(pipeline) == before
    assert mixed > 0


def test_the_point_stands_in_the_commit_of_each_table(template: Path, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    pipeline = copy_bank(template, tmp_path / "copy")
    confirm_logs(pipeline, LOGS, "r2")
    version = pipeline.set_ledger("bank").read().published
    assert version
    for log in LOGS:
        [commit] = DeltaTable(pipeline.store.uri(f"tables/{log}")).history(1)
        assert (commit["tidefold.set"], commit["tidefold.set.position"]) == ("bank", str(version.position))


def test_two_sets_do_not_hold_each_other(tmp_path: Path) -> None:
    sets = """
sets:
  money: {logs: [branches, tellers], transactions: landing/bank.transaction}
  others: {logs: [accounts, history], transactions: landing/bank.transaction, may_be_empty: [history]}
"""
    pipeline = make_bank(tmp_path, config(sets))
    land(tmp_path, SECOND)
    outcomes = {o.log: o.error_code for o in run(pipeline, "r1", failing="tellers")}
    assert outcomes == {"accounts": None, "branches": "SET_HELD", "tellers": "SET_HELD", "history": None}
    assert pipeline.set_ledger("others").read().published
    assert pipeline.set_ledger("money").read().published is None
    assert replay().rows


def test_a_decision_about_a_lost_snapshot_is_an_error_with_a_name(template: Path, tmp_path: Path) -> None:
    """The ledger of one log is set back between the decision and its publication."""
    pipeline = copy_bank(template, tmp_path / "copy")
    folder = tmp_path / "copy" / "store"
    for at in range(_count_calls(template, tmp_path / "other")):
        pipeline = copy_bank(template, tmp_path / "copy")
        with suppress(Killed):
            confirm_logs(replace(pipeline, store=FaultyStore(folder, at, Fault.KILLED_AFTER)), LOGS, "r2")
        if pipeline.set_ledger("bank").read().decided:
            break
    staged = pipeline.ledger("tellers").read().open_attempt
    assert staged
    pipeline.ledger("tellers").commit(lambda state: state.with_snapshot(replace(staged, state=State.ABORTED)))
    outcomes = confirm_logs(open_pipeline(pipeline.config.path), LOGS, "r3")
    assert {o.error_code for o in outcomes} == {"SET_MEMBER_LOST"}
