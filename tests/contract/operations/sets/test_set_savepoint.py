"""A savepoint of a set: written as a whole, and imported into a new store, where the set continues at its point."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from support.bank_sets import ALL, ENDS, LAST, LOGS, check_bank, judge_staged, land, make_bank, run
from support.effort import list_moments
from support.faults import Fault, FaultyStore, Killed
from tidefold.compute.runners import in_process
from tidefold.errors import RefusedError, TidefoldError
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.sets.confirm import confirm_logs
from tidefold.operations.sets.restore import find_earlier_version
from tidefold.operations.sets.savepoint import DESCRIPTION, ImportSet, SetSavepointRequest, import_set, save_set
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

FIRST = {"accounts": 310, "branches": 20, "tellers": 20, "history": 0, ENDS: 4}
SECOND = {"accounts": 420, "branches": 120, "tellers": 130, "history": 110, ENDS: 40}
THIRD = {"accounts": 500, "branches": 200, "tellers": 210, "history": 200, ENDS: 60}


def _quiet(line: str) -> None:
    pass


def _import(pipeline: Pipeline, address: str, run_id: str) -> list[Outcome]:
    request = ImportSet(run_id, "bank", address)

    def step(logs: Sequence[str]) -> list[Outcome]:
        return materialize(pipeline, logs, request, in_process)

    return import_set(pipeline, request, step)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with savepoints of versions 1 and 2 of a bank, and the bank. Version 1 has no row of history."""
    folder = tmp_path_factory.mktemp("saved")
    pipeline = make_bank(folder / "bank")
    for number, upto in enumerate((FIRST, SECOND), 1):
        land(folder / "bank", upto)
        run(pipeline, f"r{number}")
    for number in (1, 2):
        outcomes = save_set(pipeline, "bank", SetSavepointRequest(str(folder / f"v{number}"), number), _quiet)
        assert {o.status for o in outcomes} == {Status.SAVED}
    return folder


def _position(saved: Path, number: int) -> int:
    return find_earlier_version(open_pipeline(saved / "bank" / "tidefold.yaml"), "bank", number).position


@pytest.mark.parametrize("version", [1, 2])
def test_a_new_store_continues_at_the_saved_point(saved: Path, tmp_path: Path, version: int) -> None:
    pipeline = make_bank(tmp_path)
    outcomes = _import(pipeline, str(saved / f"v{version}"), "import")
    assert not any(o.error for o in outcomes)
    assert check_bank(pipeline) is None
    judge_staged(pipeline)
    assert {o.status for o in confirm_logs(pipeline, LOGS, "import")} <= {Status.PUBLISHED, Status.NOTHING}
    assert check_bank(pipeline) == _position(saved, version)
    assert not any(o.error for o in confirm_logs(pipeline, LOGS, "idle"))
    land(tmp_path, SECOND)
    run(pipeline, "r2")
    assert check_bank(pipeline) == _position(saved, 2)
    land(tmp_path, ALL)
    run(pipeline, "r3")
    assert check_bank(pipeline) == LAST


@pytest.mark.rotates(2)
@pytest.mark.parametrize("fault", [Fault.KILLED_AFTER, Fault.ERROR_AFTER])
def test_a_crash_at_every_call_of_the_confirm(saved: Path, tmp_path: Path, fault: Fault) -> None:
    pipeline = make_bank(tmp_path / "staged")
    _import(pipeline, str(saved / "v2"), "import")
    judge_staged(pipeline)
    shutil.copytree(tmp_path / "staged", tmp_path / "count")
    store = FaultyStore(tmp_path / "count" / "store")
    confirm_logs(replace(open_pipeline(tmp_path / "count" / "tidefold.yaml"), store=store), LOGS, "import")
    folder = tmp_path / "copy"
    for at in list_moments(store.calls, fault):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "staged", folder)
        pipeline = open_pipeline(folder / "tidefold.yaml")
        with suppress(Killed, TidefoldError):
            confirm_logs(replace(pipeline, store=FaultyStore(folder / "store", at, fault)), LOGS, "import")
        assert check_bank(pipeline) in (None, _position(saved, 2)), at
        after = pipeline.set_ledger("bank").read()
        decided = after.decided is not None or after.published is not None
        # Whoever comes next finishes what was decided. An import that nobody confirmed is not mixed with landed files.
        land(folder, THIRD)
        outcomes = ingest(pipeline, LOGS, in_process)
        assert all(bool(o.error) != decided for o in outcomes), at
        if not decided:
            assert {o.error_code for o in outcomes} == {"IMPORT_OPEN"}
            confirm_logs(pipeline, LOGS, "import")
        run(pipeline, "r2")
        assert (check_bank(pipeline) or 0) > _position(saved, 2), at


def test_a_savepoint_is_whole_or_none(saved: Path, tmp_path: Path) -> None:
    pipeline = open_pipeline(saved / "bank" / "tidefold.yaml")
    outcomes = save_set(pipeline, "bank", SetSavepointRequest(str(saved / "v2"), 2), _quiet)
    assert {o.status for o in outcomes} == {Status.ALREADY}
    with pytest.raises(RefusedError, match="SAVEPOINT_EXISTS"):
        save_set(pipeline, "bank", SetSavepointRequest(str(saved / "v2"), 1), _quiet)
    shutil.copytree(saved / "v2", tmp_path / "part")
    (tmp_path / "part" / DESCRIPTION).unlink()
    with pytest.raises(TidefoldError, match="SAVEPOINT_UNKNOWN"):
        _import(make_bank(tmp_path / "new"), str(tmp_path / "part"), "import")
    # A killed call is repeated: the tables are there, and the description follows.
    save_set(pipeline, "bank", SetSavepointRequest(str(tmp_path / "part"), 2), _quiet)
    assert not any(o.error for o in _import(make_bank(tmp_path / "new"), str(tmp_path / "part"), "import"))


def test_tables_of_two_savepoints_are_not_confirmed(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "v2", tmp_path / "mixed")
    shutil.rmtree(tmp_path / "mixed" / "tellers")
    shutil.copytree(saved / "v1" / "tellers", tmp_path / "mixed" / "tellers")
    pipeline = make_bank(tmp_path / "new")
    _import(pipeline, str(tmp_path / "mixed"), "import")
    judge_staged(pipeline)
    assert {o.error_code for o in confirm_logs(pipeline, LOGS, "import")} == {"ORIGINAL_CHANGED"}
    assert check_bank(pipeline) is None


def test_a_set_that_has_begun_is_not_replaced(saved: Path) -> None:
    with pytest.raises(RefusedError, match="SET_BEGUN"):
        _import(open_pipeline(saved / "bank" / "tidefold.yaml"), str(saved / "v1"), "import")
