"""Every call that changes the store fails in turn, then again during recovery. Promises I1, I4, I5, I11, I13, I19, I22.

The fold runs in this process, against real Delta tables on disk; what a killed process leaves is found by the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support import faults
from support.effort import choose, list_moments, rotate
from support.faults import Fault, FaultyStore, attempt, check_nothing_left_over
from support.interleaved import run_through_store
from support.pipelines import CONFIG, contents, judge_all, make_pipeline, put, snapshot_rows, table_rows
from tidefold.changelog.schema import DELETE
from tidefold.domain.log_state import State
from tidefold.errors import TidefoldError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.local_copies.manage import retain_local
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize

# Each bucket means more calls, and each call that fails means two runs.
FEW_BUCKETS = CONFIG.replace("buckets: 4", "buckets: 2")
on_copy, reopened = partial(faults.on_copy, config=FEW_BUCKETS), partial(faults.reopened, config=FEW_BUCKETS)
BEFORE = {i: f"a {i}" for i in range(40)}
AFTER = {**{i: f"a {i}" for i in range(5, 40)}, 7: "b 7", 99: "b 99"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with one published snapshot and changes that wait to be folded."""
    folder = tmp_path_factory.mktemp("template")
    pipeline = make_pipeline(folder, FEW_BUCKETS)
    put(pipeline, [{"id": i, "text": text} for i, text in BEFORE.items()])
    cycle(pipeline, "run-1")
    changes: list[dict[str, Any]] = [{"id": i, "text": None, "_op": DELETE} for i in range(5)]
    put(pipeline, [*changes, {"id": 7, "text": "b 7"}, {"id": 99, "text": "b 99"}])
    return folder


def cycle(pipeline: Pipeline, run: str) -> None:
    """One run as the DAG makes it; an error of a step ends it."""
    [outcome] = materialize(pipeline, ["accounts"], Fold(run), run_through_store(pipeline))
    if outcome.error_code:
        raise TidefoldError(outcome.error_code, outcome.message)
    if pipeline.ledger("accounts").read().open_attempt:
        judge_all(pipeline)
    confirm(pipeline, "accounts", Confirmation(run=run))


def cycle_then_abort(pipeline: Pipeline, run: str) -> None:
    """A run whose gate refuses."""
    [outcome] = materialize(pipeline, ["accounts"], Fold(run), run_through_store(pipeline))
    if outcome.error_code:
        raise TidefoldError(outcome.error_code, outcome.message)
    abort(pipeline, "accounts", "refused", run_id=run)


def calls_of(template: Path, folder: Path, act: Callable[[Pipeline, str], None]) -> int:
    pipeline = on_copy(template, folder)
    act(pipeline, "run-2")
    assert isinstance(pipeline.store, FaultyStore)
    return pipeline.store.calls


def check_readers(pipeline: Pipeline) -> None:
    """At any moment readers see one of the two states, whole."""
    assert table_rows(pipeline) in (BEFORE, AFTER)


def check_recovered(pipeline: Pipeline) -> None:
    state = pipeline.ledger("accounts").read()
    completed = [s for s in state.snapshots if s.state is State.COMPLETED]
    assert [s.table_version for s in completed] == [0, 1]
    assert table_rows(pipeline) == AFTER
    assert snapshot_rows(pipeline, completed[0].id) == BEFORE
    assert snapshot_rows(pipeline, completed[1].id) == AFTER
    assert state.open_attempt is None
    check_nothing_left_over(pipeline, [s.id for s in completed])


ERRORS = [Fault.ERROR_BEFORE, Fault.ERROR_AFTER]


@pytest.mark.rotates(6)
@pytest.mark.parametrize(
    ("fault", "for_ever"),
    # A process dies once; an error may come once or stay.
    [*((fault, False) for fault in Fault), *((fault, True) for fault in ERRORS)],
    ids=lambda value: value.name.lower() if isinstance(value, Fault) else ("for-ever" if value else "once"),
)
def test_after_any_fault_a_retry_ends_as_if_nothing_had_happened(
    template: Path, tmp_path: Path, fault: Fault, for_ever: bool
) -> None:
    folder = tmp_path / "copy"
    calls = calls_of(template, folder, cycle)
    assert calls >= 12
    for at in list_moments(calls, fault):
        attempt(on_copy(template, folder, at=at, fault=fault, for_ever=for_ever), cycle)
        check_readers(reopened(folder))
        recovered = reopened(folder)
        cycle(recovered, "run-2")
        check_recovered(recovered)
    print(f"{len(list_moments(calls, fault))} of {calls} calls failed in turn: {fault}")


KINDS = {
    "incremental": "snapshots: {kind: incremental}",
    "copies": "snapshots: {copy_files: always}",
    "incremental with local copies": "snapshots: {kind: incremental}\nlocal: {mode: files, path: local}",
}


@pytest.mark.rotates(6)
@pytest.mark.parametrize("fault", list(Fault), ids=lambda f: f.name.lower())
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_in_a_snapshot_of_any_kind_leaves_no_file_of_it(
    template: Path, tmp_path: Path, kind: str, fault: Fault
) -> None:
    """N6: neither in the store nor among the local copies."""
    folder, config = tmp_path / "copy", FEW_BUCKETS.replace("store: store", f"store: store\n{KINDS[kind]}")
    whole = on_copy(template, folder, config=config)
    cycle(whole, "run-2")
    assert isinstance(whole.store, FaultyStore)
    assert whole.store.calls > 8
    for at in list_moments(whole.store.calls, fault):
        attempt(on_copy(template, folder, config=config, at=at, fault=fault), cycle)
        check_readers(reopened(folder, config=config))
        recovered = reopened(folder, config=config)
        cycle(recovered, "run-2")
        state = recovered.ledger("accounts").read()
        completed = [s.id for s in state.snapshots if s.state is State.COMPLETED]
        assert (table_rows(recovered), len(completed)) == (AFTER, 2)
        check_nothing_left_over(recovered, completed)
        retain_local(recovered, ["accounts"])
        halves = [p for p in contents(folder / "local") if f"/accounts/{completed[-1]:010d}/" not in p]
        assert not [p for p in halves if "/accounts/" in p]


@pytest.mark.parametrize("fault", [Fault.KILLED_BEFORE, Fault.KILLED_AFTER], ids=lambda f: f.name.lower())
def test_a_second_crash_during_recovery_changes_nothing_either(template: Path, tmp_path: Path, fault: Fault) -> None:
    folder = tmp_path / "copy"
    calls = calls_of(template, folder, cycle)
    cases = 0
    for first in range(rotate(choose(5, 2)), calls, choose(5, 2)):
        for second in range(first % 3, calls, choose(4, 3)):
            attempt(on_copy(template, folder, at=first, fault=Fault.KILLED_AFTER), cycle)
            attempt(reopened(folder, at=second, fault=fault), cycle)
            check_readers(reopened(folder))
            recovered = reopened(folder)
            cycle(recovered, "run-2")
            check_recovered(recovered)
            cases += 1
    assert cases >= 6
    print(f"{cases} double crashes")


@pytest.mark.parametrize("fault", list(Fault), ids=lambda f: f.name.lower())
def test_a_crash_while_aborting_leaves_the_previous_snapshot_as_it_was(
    template: Path, tmp_path: Path, fault: Fault
) -> None:
    folder = tmp_path / "copy"
    calls = calls_of(template, folder, cycle_then_abort)
    kept = {p: b for p, b in contents(template / "store").items() if "/ledger/" not in p}
    for at in list_moments(calls, fault):
        attempt(on_copy(template, folder, at=at, fault=fault), cycle_then_abort)
        abort(reopened(folder), "accounts", "cleaning up")
        after = {p: b for p, b in contents(folder / "store").items() if "/ledger/" not in p}
        assert {p: b for p, b in after.items() if "/manifest" not in p or p in kept} == kept
        assert table_rows(reopened(folder)) == BEFORE
