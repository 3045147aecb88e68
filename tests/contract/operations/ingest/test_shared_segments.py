"""Segments of several logs: who may need them, and what becomes of them when their writer dies (requirement C2, C13).

Promises I4, I11, I12, I19, I20, I22.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.faults import Fault, FaultyStore, Killed
from support.interleaved import run_then
from support.landing_pair import PAIR, land, land_pair, make, rows
from support.pipelines import judge_all, table_rows
from tidefold.changelog import write_intents
from tidefold.changelog.segment import read_index
from tidefold.compute.runners import TaskAnswer, TaskWork, in_process
from tidefold.domain.ingest.append import names
from tidefold.domain.paths import INTENTS
from tidefold.ledger import Ledger
from tidefold.operations.ground import recovery
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.retention.clean import clean, drop
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate, truncate_logs
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline


def failing(pipeline: Pipeline, at: int | None = None, fault: Fault | None = None) -> Pipeline:
    return replace(pipeline, store=FaultyStore(pipeline.config.path.parent / "store", at, fault))


def segments(pipeline: Pipeline) -> set[str]:
    return {e.path for e in pipeline.store.list("changelog", unfinished=True) if not e.path.startswith(INTENTS)}


def named(pipeline: Pipeline) -> set[str]:
    states = [pipeline.ledger(log).find() for log in pipeline.config.logs]
    return {name for state in states if state for name in names(state)}


def long_ago(pipeline: Pipeline) -> None:
    """Makes every announcement so old that nobody waits for its writer any more."""
    then = (datetime.now(UTC) - 2 * recovery.PATIENCE).isoformat(timespec="seconds")
    for run in list(write_intents.read_announced(pipeline.store)):
        write_intents.end(pipeline.store, run.run)
        for intent in run.intents:
            write_intents.begin(pipeline.store, replace(intent, instant=then))
        if run.takings is not None:
            write_intents.bring(pipeline.store, run.run, run.takings)


def test_500_small_logs_make_one_segment(tmp_path: Path) -> None:
    logs = [f"log_{i:03d}" for i in range(500)]
    pipeline = make(tmp_path, logs)
    for log in logs:
        land(tmp_path, log, 0, 20)
    outcomes = ingest(pipeline, logs, in_process)
    assert {(o.status, o.facts["changes"]) for o in outcomes} == {("taken", 20)}
    [segment] = segments(pipeline)
    assert [entry.log for entry in read_index(pipeline.store, segment)] == logs
    assert rows(pipeline, "log_499") == list(range(20))
    assert pipeline.store.list(INTENTS) == []


@pytest.mark.rotates(3)
def test_the_writer_dies_at_any_call_and_the_next_ingest_takes_everything_once(tmp_path: Path) -> None:
    cases = 0
    for fault in Fault:
        for at in range(100):
            root = tmp_path / f"{fault.name}-{at}"
            root.mkdir()
            pipeline = make(root)
            land_pair(root)
            store = failing(pipeline, at, fault)
            with suppress(Killed):
                ingest(store, PAIR, in_process)
            ended = isinstance(store.store, FaultyStore) and store.store.calls <= at
            again = ingest(pipeline, PAIR, in_process)
            assert not any(o.error_code for o in again)
            assert [rows(pipeline, log) for log in PAIR] == [[0], [0]]
            long_ago(pipeline)
            clean(pipeline, PAIR)
            assert segments(pipeline) == named(pipeline)
            assert pipeline.store.list(INTENTS) == []
            cases += 1
            if ended:
                break
        else:
            pytest.fail("the run has more calls than were tried")
    print(f"{cases} cases")
    assert cases > 30


@pytest.mark.parametrize("first", PAIR)
def test_the_writer_dies_between_the_two_appends_and_the_other_log_is_rolled_forward(
    tmp_path: Path, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make(tmp_path)
    land_pair(tmp_path)
    dies_after_telling(monkeypatch, first)
    with pytest.raises(Killed):
        ingest(pipeline, sorted(PAIR, key=lambda log: log != first), in_process)
    monkeypatch.undo()
    [other] = [log for log in PAIR if log != first]
    assert (rows(pipeline, first), rows(pipeline, other)) == ([0], [])

    def no_tasks(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        raise AssertionError("nothing has to be parsed again")

    [outcome] = ingest(pipeline, [other], no_tasks)
    assert outcome.status == "nothing"
    assert (rows(pipeline, first), rows(pipeline, other)) == ([0], [0])
    assert pipeline.store.list(INTENTS) == []


def dies_after_telling(monkeypatch: pytest.MonkeyPatch, log: str) -> None:
    real = Ledger.commit

    def commit(ledger: Ledger, move, **more):  # type: ignore[no-untyped-def]
        if ledger._name != log:
            raise Killed
        return real(ledger, move, **more)

    monkeypatch.setattr(Ledger, "commit", commit)


@pytest.mark.parametrize("first", PAIR)
def test_a_writer_that_dies_before_it_says_what_it_brings_is_refused_and_leaves_nothing(
    tmp_path: Path, first: str
) -> None:
    pipeline = make(tmp_path)
    land_pair(tmp_path)

    def dies(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        in_process(work, tasks)
        raise Killed

    with pytest.raises(Killed):
        ingest(pipeline, sorted(PAIR, key=lambda log: log != first), dies)
    assert len(segments(pipeline)) == 1
    clean(pipeline, PAIR)
    assert len(segments(pipeline)) == 1, "a young run may still be at work"
    long_ago(pipeline)
    clean(pipeline, PAIR)
    assert segments(pipeline) == set()
    assert {o.status for o in ingest(pipeline, PAIR, in_process)} == {"taken"}
    assert [rows(pipeline, log) for log in PAIR] == [[0], [0]]


def test_a_slow_writer_that_was_given_up_is_refused_and_the_next_ingest_takes_everything(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    land_pair(tmp_path)

    def give_up() -> None:
        long_ago(pipeline)
        clean(pipeline, PAIR)
        assert segments(pipeline) == set()

    late = ingest(pipeline, PAIR, run_then(give_up))
    assert [o.error_code for o in late] == ["INTAKE_FENCED", "INTAKE_FENCED"]
    assert named(pipeline) == set()
    assert {o.status for o in ingest(pipeline, PAIR, in_process)} == {"taken"}
    assert [rows(pipeline, log) for log in PAIR] == [[0], [0]]
    long_ago(pipeline)
    clean(pipeline, PAIR)
    assert segments(pipeline) == named(pipeline)


def test_whoever_comes_in_between_tells_the_logs_and_the_writer_finds_it_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make(tmp_path)
    land_pair(tmp_path)
    real = write_intents.bring

    def bring(*said):  # type: ignore[no-untyped-def]
        real(*said)
        for run in write_intents.read_announced(pipeline.store):
            recovery.recover_run(pipeline.store, run)

    monkeypatch.setattr(write_intents, "bring", bring)
    assert {o.status for o in ingest(pipeline, PAIR, in_process)} == {"taken"}
    assert [rows(pipeline, log) for log in PAIR] == [[0], [0]]
    assert segments(pipeline) == named(pipeline)


def fold(pipeline: Pipeline, log: str, run: str) -> None:
    materialize(pipeline, [log], Fold(run), in_process)
    judge_all(pipeline, log)
    assert confirm(pipeline, log, Confirmation(run=run)).status == "published"


def folded_past(pipeline: Pipeline, root: Path, log: str) -> None:
    """Folds what is there and two more files, so that the first segment is behind every kept snapshot."""
    for number in (0, 1, 2):
        if number:
            land(root, log, number)
            ingest(pipeline, [log], in_process)
        fold(pipeline, log, f"{log}-{number}")
    subsume(pipeline, log)


@pytest.mark.parametrize("first", PAIR)
def test_a_shared_segment_goes_only_when_both_logs_have_released_it(tmp_path: Path, first: str) -> None:
    pipeline = make(tmp_path)
    land_pair(tmp_path)
    ingest(pipeline, PAIR, in_process)
    [shared] = segments(pipeline)
    [second] = [log for log in PAIR if log != first]
    folded_past(pipeline, tmp_path, first)
    assert shared not in truncate(pipeline, first, plan=True).facts["paths"]
    assert shared not in truncate(pipeline, first).facts["paths"]
    assert rows(pipeline, second) == [0]
    folded_past(pipeline, tmp_path, second)
    assert shared in truncate(pipeline, second, plan=True).facts["paths"]
    assert shared in truncate(pipeline, second).facts["paths"]
    assert segments(pipeline) == named(pipeline)
    assert [len(table_rows(pipeline, log)) for log in PAIR] == [3, 3]


def truncate_shared(root: Path, logs: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Truncates logs that are all behind their shared segment. Returns how many ledgers were read."""
    pipeline = make(root, logs)
    for log in logs:
        land(root, log, 0)
    ingest(pipeline, logs, in_process)
    [shared] = segments(pipeline)
    for log in logs:
        folded_past(pipeline, root, log)
    planned = truncate_logs(pipeline, logs, plan=True)
    read: list[str] = []
    find = Ledger.find
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "find", lambda self: read.append("") or find(self))
        outcomes = truncate_logs(pipeline, logs)
    assert [one.status for one in outcomes] == ["truncated"] * len(logs)
    assert sum(shared in one.facts["paths"] for one in outcomes) == 1
    assert [one.facts["paths"] for one in planned] == [one.facts["paths"] for one in outcomes]
    assert segments(pipeline) == named(pipeline)
    assert not any(state.garbage for log in logs if (state := pipeline.ledger(log).find()))
    return len(read)


def test_logs_that_are_truncated_together_read_each_ledger_once_and_delete_what_they_share_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = {}
    for count in (2, 4):
        root = tmp_path / str(count)
        root.mkdir()
        reads[count] = truncate_shared(root, [f"log_{number}" for number in range(count)], monkeypatch)
    assert reads[4] == 2 * reads[2]


def test_a_log_that_cannot_be_cut_keeps_what_it_shares(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    land_pair(tmp_path)
    ingest(pipeline, PAIR, in_process)
    [shared] = segments(pipeline)
    for log in PAIR:
        folded_past(pipeline, tmp_path, log)
    for entry in pipeline.store.list("logs/items/ledger"):
        path = tmp_path / "store" / entry.path
        path.chmod(0o600)
        path.write_bytes(b"{}")
    fresh = open_pipeline(tmp_path / "tidefold.yaml")
    items, orders = truncate_logs(fresh, PAIR)
    assert items.error_code == orders.error_code == "UNREADABLE"
    assert shared in segments(fresh)


def test_a_dropped_log_leaves_the_segments_that_others_need(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    land_pair(tmp_path)
    ingest(pipeline, PAIR, in_process)
    [shared] = segments(pipeline)
    assert shared not in drop(pipeline, "items", plan=False).facts["paths"]
    assert rows(pipeline, "orders") == [0]
    assert shared in drop(pipeline, "orders", plan=False).facts["paths"]
    assert segments(pipeline) == set()


def test_a_segment_on_its_way_to_another_log_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make(tmp_path)
    land_pair(tmp_path)
    dies_after_telling(monkeypatch, "items")
    with pytest.raises(Killed):
        ingest(pipeline, PAIR, in_process)
    monkeypatch.undo()
    [shared] = segments(pipeline)
    drop(pipeline, "items", plan=False)
    assert segments(pipeline) == {shared}
    ingest(pipeline, ["orders"], in_process)
    assert rows(pipeline, "orders") == [0]


def test_what_was_on_its_way_to_a_dropped_log_never_reaches_the_next_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make(tmp_path)
    land_pair(tmp_path)
    ingest(pipeline, PAIR, in_process)
    land_pair(tmp_path, 1)
    dies_after_telling(monkeypatch, "orders")
    with pytest.raises(Killed):
        ingest(pipeline, ["orders", "items"], in_process)
    monkeypatch.undo()
    drop(pipeline, "items", plan=False)
    for run in write_intents.read_announced(pipeline.store):
        recovery.recover_run(pipeline.store, run)
    assert pipeline.ledger("items").find() is None
    ingest(pipeline, ["items"], in_process)
    assert rows(pipeline, "items") == [0, 1]


def test_a_damaged_shared_segment_keeps_everything(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    land_pair(tmp_path)
    ingest(pipeline, PAIR, in_process)
    [shared] = segments(pipeline)
    folded_past(pipeline, tmp_path, "items")
    path = tmp_path / "store" / shared
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-5])
    assert truncate(pipeline, "items").facts["unreadable"] == [shared]
    assert shared in segments(pipeline)
    long_ago(pipeline)
    clean(pipeline, PAIR)
    drop(pipeline, "items", plan=False)
    assert shared in segments(pipeline)
    assert pipeline.ledger("items").find() is None


def test_patience_is_only_a_delay(tmp_path: Path) -> None:
    """I24: a clock that is wrong by years gives up a run too early or too late, and changes no rows."""
    pipeline = make(tmp_path)
    land_pair(tmp_path)

    def sleeps(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        future = (datetime.now(UTC) + timedelta(days=9_000)).isoformat(timespec="seconds")
        for run in recovery.find_abandoned(pipeline.store, future):
            recovery.recover_run(pipeline.store, run)
        return in_process(work, tasks)

    assert {o.error_code for o in ingest(pipeline, PAIR, sleeps)} == {"INTAKE_FENCED"}
    ingest(pipeline, PAIR, in_process)
    assert [rows(pipeline, log) for log in PAIR] == [[0], [0]]
