"""The restore drill: a snapshot is really restored, checked, recorded and removed again. Real stores, no Spark.

Requirement L6; promises I10, I15, I17, I24.
"""

from __future__ import annotations

import fcntl
from dataclasses import replace
from pathlib import Path

import pytest

from support.interleaved import run_then
from support.pipelines import contents, make_pipeline, put, table_rows
from support.restoring import (
    BATCHES,
    LOG,
    THIRD,
    Bench,
    bench,
    configured,
    copy_of,
    cycle,
    files_of,
    flip,
    names_of,
    spoil,
    take,
)
from tidefold.compute.runners import Runner, TaskAnswer, TaskWork, in_process
from tidefold.domain.log_state import Drill, State
from tidefold.domain.snapshot import transitions
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.errors import InvalidInputError, NotFoundError, RefusedError, StorageError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.inspect.status import history, status
from tidefold.operations.requests import Fold
from tidefold.operations.restore.export import Trial, drill
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.compact_log import take_tail
from tidefold.operations.snapshot.materialize import materialize


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench(tmp_path_factory.mktemp("drill"), configured(), only_copy=3)


def clock() -> Trial:
    """A trial whose clock goes on by 2.5 seconds each time it is looked at."""
    ticks = iter(range(100))
    return Trial(run=in_process, clock=lambda: next(ticks) * 2.5)


def recorded(pipeline: Pipeline, snapshot: int = 3) -> Drill | None:
    found = pipeline.ledger(LOG).read().snapshot(snapshot)
    assert found
    return found.drill


def without_ledger(pipeline: Pipeline) -> dict[str, bytes]:
    root = pipeline.config.path.parent
    return {name: data for name, data in contents(root).items() if "/ledger/" not in name and "/pages/" not in name}


def test_the_newest_snapshot_is_restored_checked_recorded_and_removed(made: Bench) -> None:
    """L6: read from the local copy, and said so."""
    pipeline = made.reset()
    before = without_ledger(pipeline)
    outcome = drill(pipeline, LOG, trial=clock())
    assert (outcome.status, outcome.snapshot, outcome.error_code) == ("passed", 3, None)
    size = sum(f.bytes for f in files_of(pipeline, 3))
    found = recorded(pipeline)
    assert found
    assert (found.seconds, found.bytes, found.bytes_local, found.passed) == (2.5, size, size, True)
    assert (outcome.facts["rows"], outcome.facts["files"], outcome.facts["wrong"]) == (len(THIRD), 4, [])
    assert without_ledger(pipeline) == before
    assert not list((made.work / "var").rglob("*.parquet"))
    assert history(pipeline, LOG)[0].drill == found
    [said] = status(pipeline, [LOG])
    assert said.drilled
    assert said.drilled.drill == found
    assert table_rows(pipeline) == THIRD


def test_one_that_is_named_and_a_tail(made: Bench) -> None:
    pipeline = made.reset()
    take(pipeline, {5: None})
    assert take_tail(pipeline, LOG, "tail").snapshot == 4
    for snapshot in (1, 4):
        assert drill(pipeline, LOG, snapshot, clock()).status == "passed"
        found = recorded(pipeline, snapshot)
        assert found
        assert found.passed
    assert recorded(pipeline) is None
    # The newest with files of its own is what counts.
    assert drill(pipeline, LOG, trial=clock()).snapshot == 3


def test_what_cannot_be_had_fails_by_name_and_is_recorded(made: Bench) -> None:
    """I17: exit code 5; a later drill that passes stands in its place."""
    pipeline = made.reset()
    spoil(pipeline, 3, "corrupt")
    for path in (copy_of(pipeline, 3) / "_data").iterdir():
        flip(path)
    assert drill(pipeline, LOG, trial=clock()).status == "passed"  # From snapshot 2 and the log.
    spoil(pipeline, 2, "missing")
    spoil(pipeline, 1, "missing")
    before = without_ledger(pipeline)
    outcome = drill(pipeline, LOG, trial=clock())
    assert (outcome.status, outcome.error_code, outcome.error.exit_code) == ("damaged", "DRILL_FAILED", 5)
    assert any(f.name in outcome.message for f in files_of(pipeline, 3))
    found = recorded(pipeline)
    assert found
    assert (found.passed, found.bytes) == (False, 0)
    assert without_ledger(pipeline) == before
    assert list((made.work / "var" / "drill").iterdir()) == []
    assert pipeline.ledger(LOG).read().snapshots[-1].id == 3


@pytest.mark.parametrize("how", ["altered", "missing"])
def test_what_the_scratch_disk_loses_is_found(made: Bench, how: str) -> None:
    """The restored files themselves are read again."""
    pipeline = made.reset()
    lost: list[str] = []

    def lose() -> None:
        [path, *_] = sorted((made.work / "var" / "drill").rglob("*.parquet"))
        lost.append(path.name)
        flip(path) if how == "altered" else path.unlink()

    outcome = drill(pipeline, LOG, trial=Trial(run=run_then(lose)))
    assert outcome.facts["wrong"] == [f"_data/{lost[0]}: {how}"]
    assert not list((made.work / "var").rglob("*.parquet"))


def test_the_scratch_place_goes_too_when_the_drill_is_cut_off(made: Bench, tmp_path: Path) -> None:
    pipeline = made.reset()

    def run_until(error: BaseException) -> Runner:
        def run(work: TaskWork, tasks: list[str]) -> list[TaskAnswer]:
            in_process(work, tasks)
            raise error

        return run

    for error in (StorageError("STORAGE", "the disk is full"), KeyboardInterrupt(), RuntimeError("a bug")):
        with pytest.raises(type(error)):
            drill(pipeline, LOG, trial=Trial(str(tmp_path / "scratch"), run_until(error)))
        assert contents(tmp_path / "scratch") == {}
        assert recorded(pipeline) is None


def test_what_is_not_there_is_not_drilled(made: Bench, tmp_path: Path) -> None:
    pipeline = made.reset()
    with pytest.raises(NotFoundError, match="LOG_UNKNOWN"):
        drill(pipeline, "tellers")
    with pytest.raises(NotFoundError):
        drill(pipeline, LOG, 9)
    with pytest.raises(InvalidInputError):
        drill(pipeline, LOG, trial=Trial(str(made.work / "store")))
    take(pipeline, {1: "open"})
    materialize(pipeline, [LOG], Fold("open"), in_process)
    with pytest.raises(RefusedError, match="STAGED"):
        drill(pipeline, LOG, 4)
    # What is open is left alone, and does not keep a drill from being recorded.
    assert drill(pipeline, LOG).snapshot == 3
    attempt = pipeline.ledger(LOG).read().open_attempt
    assert attempt
    assert attempt.state is State.STAGED
    assert recorded(pipeline)


def test_a_snapshot_that_is_retired_meanwhile_keeps_no_record(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path, configured(local=False))
    put(pipeline, [{"id": 1, "text": "a"}])
    cycle(pipeline, "run-1", {})
    cycle(pipeline, "run-2", BATCHES[0])
    state = pipeline.ledger(LOG).read()
    [first, _] = state.snapshots
    gone = state.with_snapshot(replace(first, state=State.DELETED))
    assert transitions.record_drill(gone, 1, Drill("", 1.0, 1, 1, True)) == gone
    assert transitions.record_drill(state, 1, Drill("", 1.0, 1, 1, True)) != state
    with pytest.raises(NotFoundError):
        transitions.record_drill(state, 9, Drill("", 1.0, 1, 1, True))


def test_what_a_killed_drill_left_goes_with_the_next_one(made: Bench) -> None:
    """One that lives is left alone: it holds its lock."""
    pipeline = made.reset()
    parent = made.work / "var" / "drill"
    held = []
    for name in ("dead", "alive"):
        (parent / name / "_data").mkdir(parents=True)
        (parent / name / "_data" / "x.parquet").write_bytes(b"rows")
        held.append((parent / f"{name}.lock").open("xb"))
        fcntl.flock(held[-1], fcntl.LOCK_EX)
    held[0].close()  # As the system does it for a process that ends.
    assert drill(pipeline, LOG).error_code is None
    assert sorted(path.name for path in parent.iterdir()) == ["alive", "alive.lock"]
    held[1].close()


def test_a_drill_of_an_incremental_snapshot_with_a_lost_file_is_recorded(tmp_path: Path) -> None:
    """L6: that its rows cannot be had is what a drill is to find out, whatever the error is called."""
    pipeline = make_pipeline(tmp_path, configured(local=False, retention="2"))
    for number in (1, 2):
        cycle(pipeline, f"run-{number}", dict.fromkeys(range(40), f"{number}"), KindPolicy.INCREMENTAL)
    truncate(pipeline, LOG)
    names_of(pipeline, 1, files_of(pipeline, 1)[0].name)[0].unlink()
    outcome = drill(pipeline, LOG, 1, trial=Trial(str(tmp_path / "drill")))
    assert outcome.error_code == "DRILL_FAILED"
    drilled = pipeline.ledger(LOG).read().snapshots[0].drill
    assert drilled is not None
    assert not drilled.passed
