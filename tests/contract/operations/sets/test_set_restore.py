"""An earlier version of a set comes back for all tables by one conditional write, also if a process dies at any call.

Promise I34.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from support.bank_sets import (
    ALL,
    ENDS,
    LAST,
    LOGS,
    check_bank,
    copy_bank,
    judge_staged,
    land,
    make_bank,
    read_alone,
    read_set,
    replay,
    run,
)
from support.effort import list_moments
from support.faults import Fault, FaultyStore, Killed
from tidefold.compute.runners import in_process
from tidefold.errors import RefusedError, TidefoldError
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.sets.confirm import confirm_log, confirm_logs
from tidefold.operations.sets.restore import RestoreSet, export_set, find_earlier_version, restore_set
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

FIRST = {"accounts": 310, "branches": 20, "tellers": 20, "history": 12, ENDS: 12}
SECOND = {"accounts": 420, "branches": 120, "tellers": 130, "history": 110, ENDS: 40}


def _restore(pipeline: Pipeline, version: int, run_id: str) -> list[Outcome]:
    request = RestoreSet(run_id, "bank", version)

    def step(logs: Sequence[str]) -> list[Outcome]:
        return materialize(pipeline, logs, request, in_process)

    return restore_set(pipeline, request, step)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set with two published versions."""
    folder = tmp_path_factory.mktemp("sets") / "template"
    pipeline = make_bank(folder)
    for number, upto in enumerate((FIRST, SECOND), 1):
        land(folder, upto)
        run(pipeline, f"r{number}")
    assert [one.number for one in pipeline.set_ledger("bank").read().versions] == [1, 2]
    return folder


@pytest.fixture(scope="module")
def staged(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with the rows of version 1 staged and judged again."""
    folder = tmp_path_factory.mktemp("restored") / "staged"
    pipeline = copy_bank(template, folder)
    assert not any(o.error for o in _restore(pipeline, 1, "back"))
    judge_staged(pipeline)
    return folder


def _position(pipeline: Pipeline, number: int) -> int:
    return find_earlier_version(pipeline, "bank", number).position


def test_all_tables_come_back_and_the_next_run_continues(staged: Path, tmp_path: Path) -> None:
    pipeline = copy_bank(staged, tmp_path / "copy")
    first, second = _position(pipeline, 1), _position(pipeline, 2)
    outcomes = confirm_logs(pipeline, LOGS, "back")
    assert {o.status for o in outcomes} == {Status.PUBLISHED}
    assert check_bank(pipeline) == first
    assert read_alone(pipeline) == replay().rows[first]
    published = pipeline.set_ledger("bank").read().published
    assert published
    assert (published.number, published.restored) == (3, 1)
    assert {o.status for o in confirm_logs(pipeline, LOGS, "back")} == {Status.ALREADY}
    run(pipeline, "r3")
    assert check_bank(pipeline) == second
    land(tmp_path / "copy", ALL)
    run(pipeline, "r4")
    assert check_bank(pipeline) == LAST


def test_a_restore_is_undone_by_a_restore(staged: Path, tmp_path: Path) -> None:
    pipeline = copy_bank(staged, tmp_path / "copy")
    confirm_log(pipeline, "tellers")
    _restore(pipeline, 2, "forth")
    judge_staged(pipeline)
    confirm_log(pipeline, "tellers")
    assert check_bank(pipeline) == _position(pipeline, 2)


@pytest.mark.rotates(4)
@pytest.mark.parametrize("fault", list(Fault))
def test_a_crash_at_every_call_of_the_confirm(staged: Path, tmp_path: Path, fault: Fault) -> None:
    pipeline = copy_bank(staged, tmp_path / "count")
    first, second = _position(pipeline, 1), _position(pipeline, 2)
    store = FaultyStore(tmp_path / "count" / "store")
    confirm_logs(replace(pipeline, store=store), LOGS, "back")
    folder, half_way = tmp_path / "copy", 0
    for at in list_moments(store.calls, fault):
        pipeline = copy_bank(staged, folder)
        with suppress(Killed, TidefoldError):
            confirm_logs(replace(pipeline, store=FaultyStore(folder / "store", at, fault)), LOGS, "back")
        assert check_bank(pipeline) in (first, second), at
        after = pipeline.set_ledger("bank").read()
        half_way += after.decided is not None
        decided = after.decided is not None or (after.published is not None and after.published.number == 3)
        # Whoever comes next finishes what was decided: a run without news, or a person who gives up the restore.
        if at % 2:
            for log in LOGS:
                with suppress(TidefoldError):
                    abort(pipeline, log, "by hand", run_id="back")
        confirm_logs(pipeline, LOGS, "another")
        shown = check_bank(pipeline)
        assert shown == (first if decided else second), at
        assert read_alone(pipeline) == replay().rows[shown], at
        for log in LOGS:
            with suppress(TidefoldError):
                abort(pipeline, log, "the next run takes over")
        run(pipeline, "r4")
        assert check_bank(pipeline) == second, at
    assert half_way > 0


def test_a_crash_while_the_rows_are_staged_leaves_the_set_as_it_was(template: Path, tmp_path: Path) -> None:
    pipeline = copy_bank(template, tmp_path / "count")
    first, second = _position(pipeline, 1), _position(pipeline, 2)
    store = FaultyStore(tmp_path / "count" / "store")
    _restore(replace(pipeline, store=store), 1, "back")
    folder = tmp_path / "copy"
    for at in range(0, store.calls, 5):
        pipeline = copy_bank(template, folder)
        with suppress(Killed, TidefoldError):
            _restore(replace(pipeline, store=FaultyStore(folder / "store", at, Fault.KILLED_AFTER)), 1, "back")
        assert check_bank(pipeline) == second
        # The same call again continues, and only the confirmation changes what readers see.
        assert not any(o.error for o in _restore(pipeline, 1, "back")), at
        judge_staged(pipeline)
        assert check_bank(pipeline) == second
        confirm_logs(pipeline, LOGS, "back")
        assert check_bank(pipeline) == first, at


def test_one_table_that_fails_its_gate_holds_the_restore(staged: Path, tmp_path: Path) -> None:
    pipeline = copy_bank(staged, tmp_path / "copy")
    abort(pipeline, "tellers", "by hand", run_id="back")
    outcomes = confirm_logs(pipeline, LOGS, "back")
    assert {o.error_code for o in outcomes} == {"SET_HELD"}
    assert "tellers" in outcomes[0].message
    assert check_bank(pipeline) == _position(pipeline, 2)


def test_a_run_beside_the_restore_does_not_mix_with_it(staged: Path, tmp_path: Path) -> None:
    """A scheduled run meets the staged snapshots: it publishes nothing, and the restore is confirmed afterwards."""
    pipeline = copy_bank(staged, tmp_path / "copy")
    land(tmp_path / "copy", ALL)
    run(pipeline, "scheduled")
    assert check_bank(pipeline) == _position(pipeline, 2)
    confirm_logs(pipeline, LOGS, "back")
    assert check_bank(pipeline) == _position(pipeline, 1)
    run(pipeline, "next")
    assert check_bank(pipeline) == LAST


def test_changes_that_are_truncated_refuse_the_whole_restore(template: Path, tmp_path: Path) -> None:
    pipeline = copy_bank(template, tmp_path / "copy")
    ledger = pipeline.ledger("branches")
    ledger.commit(lambda state: replace(state, truncated_to=state.last_sqn, change_sets=()))
    with pytest.raises(RefusedError, match="LOG_CUT") as found:
        _restore(pipeline, 1, "back")
    assert "`branches`" in found.value.message
    assert "--to FOLDER" in found.value.hint
    assert not any(pipeline.ledger(log).read().open_attempt for log in LOGS)


def test_an_unknown_version_is_refused(template: Path) -> None:
    with pytest.raises(TidefoldError, match="SET_VERSION_UNKNOWN"):
        _restore(open_pipeline(template / "tidefold.yaml"), 9, "back")


def test_the_tables_of_a_version_are_written_elsewhere(template: Path, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    pipeline = copy_bank(template, tmp_path / "copy")
    before = read_set(pipeline)
    version = find_earlier_version(pipeline, "bank", 1)
    outcomes = export_set(pipeline, version, str(tmp_path / "elsewhere"), lambda log: in_process)
    assert {o.status for o in outcomes} == {Status.EXPORTED}
    for log in LOGS:
        rows = DeltaTable(str(tmp_path / "elsewhere" / log)).to_pyarrow_table().num_rows
        assert rows == len(replay().rows[version.position][log])
    assert read_set(pipeline) == before
