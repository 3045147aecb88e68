"""An attempt without progress is taken over, one that lives is not; nobody sleeps here. I3, I20, I24."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest

from support.interleaved import run_then
from support.pipelines import judge_all, make_pipeline, put, table_rows
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import Snapshot, State
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import WatchedAttempt, build_open_error
from tidefold.errors import InvalidInputError, SupersededError
from tidefold.operations.ground.heartbeat import LEAST_PATIENCE, Heartbeat, count_heartbeats, find_stalled, heartbeat
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.spark.request import Request, make_argument
from tidefold.spark.steps import MaterializeStep
from tidefold.storage.local_store import LocalStore

LOGS = ["accounts", "tellers"]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = make_pipeline(tmp_path)
    put(made, [{"id": i, "text": f"a {i}"} for i in range(20)])
    return made


def begin(pipeline: Pipeline, run: str = "run-1") -> Snapshot:
    """Claims a snapshot, as a job does that dies or falls asleep then."""
    state = pipeline.ledger("accounts").commit(lambda s: Fold(run).claimant(pipeline)(s))
    assert state.open_attempt
    return state.open_attempt


def stalled(pipeline: Pipeline, meanwhile: Callable[[], object] = lambda: None) -> dict[str, WatchedAttempt]:
    """What is found when so much happens while it is waited."""
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        meanwhile()

    found = find_stalled(pipeline, LOGS, "run-2", LEAST_PATIENCE, wait)
    assert waited == [LEAST_PATIENCE]
    return found


def fold(pipeline: Pipeline, asking: Fold) -> Outcome:
    return materialize(pipeline, ["accounts"], asking, in_process)[0]


def test_an_attempt_without_progress_is_taken_over_and_its_job_is_refused_when_it_wakes(pipeline: Pipeline) -> None:
    attempt = begin(pipeline)
    assert fold(pipeline, Fold("run-2")).error_code == "ATTEMPT_OPEN"
    found = stalled(pipeline)
    assert found == {"accounts": WatchedAttempt(attempt, 0)}
    assert fold(pipeline, Fold("run-2", stalled=found)).status == "staged"
    judge_all(pipeline)
    assert confirm(pipeline, "accounts", Confirmation(run="run-2")).status == "published"
    assert len(table_rows(pipeline)) == 20
    with pytest.raises(SupersededError):
        confirm(pipeline, "accounts", Confirmation(snapshot=attempt.id))
    beat(pipeline, attempt)  # The job that slept finds out when it stages.
    assert [s.state for s in pipeline.ledger("accounts").read().snapshots] == [State.ABORTED, State.COMPLETED]


def beat(pipeline: Pipeline, attempt: Snapshot) -> None:
    heart = Heartbeat(pipeline.store)
    heart.add("accounts", attempt)
    heart.beat()


def test_an_attempt_that_shows_progress_is_left_alone(pipeline: Pipeline) -> None:
    attempt = begin(pipeline)
    found = stalled(pipeline, lambda: beat(pipeline, attempt))
    assert found == {}
    assert fold(pipeline, Fold("run-2", stalled=found)).error_code == "ATTEMPT_OPEN"


def test_one_that_moves_between_the_look_and_the_claim_is_left_alone(pipeline: Pipeline) -> None:
    """I24: the count decides, whatever the clock said."""
    attempt = begin(pipeline)
    found = stalled(pipeline)
    beat(pipeline, attempt)
    assert fold(pipeline, Fold("run-2", stalled=found)).error_code == "ATTEMPT_OPEN"


def test_a_takeover_names_the_attempt_and_the_heartbeat_that_it_saw(pipeline: Pipeline) -> None:
    attempt = begin(pipeline)
    beat(pipeline, attempt)
    assert fold(pipeline, Fold("run-2", stalled=stalled(pipeline))).status == "staged"
    old = pipeline.ledger("accounts").read().snapshot(attempt.id)
    assert old
    assert old.abort_reason == "superseded by attempt 2, which saw no heartbeat after number 1"
    with pytest.raises(SupersededError) as late:
        confirm(pipeline, "accounts", Confirmation(snapshot=attempt.id))
    assert late.value.code == "SUPERSEDED"


def test_a_heartbeat_is_a_hint_and_no_version_of_the_ledger(pipeline: Pipeline) -> None:
    attempt = begin(pipeline)
    before = pipeline.ledger("accounts").read()
    for _ in range(3):
        beat(pipeline, attempt)
    assert pipeline.ledger("accounts").read() == before
    path = LogPaths("accounts").heartbeat
    assert [e.path for e in pipeline.store.list("logs/accounts") if "heartbeat" in e.path] == [path]
    pipeline.store.delete([path])
    pipeline.store.put_if_absent(path, b"torn {")
    assert list(stalled(pipeline)) == ["accounts"]
    beat(pipeline, attempt)
    assert stalled(pipeline)["accounts"].heartbeats == 1


def test_attempts_of_one_log_beat_beside_each_other_and_old_ones_are_forgotten(pipeline: Pipeline) -> None:
    attempts = [replace(begin(pipeline), id=number, epoch=number) for number in range(1, 12)]
    for one in attempts:
        beat(pipeline, one)
    seen = count_heartbeats(pipeline.store, "accounts", attempts)
    assert [one.heartbeats for one in seen] == [0] * 3 + [1] * 8
    [other] = count_heartbeats(pipeline.store, "accounts", [replace(attempts[-1], token="of a lost ledger")])
    assert other.heartbeats == 0


def test_another_attempt_that_began_meanwhile_is_left_alone(pipeline: Pipeline) -> None:
    begin(pipeline)
    found = stalled(pipeline, lambda: begin(pipeline))  # The retry of the same run.
    assert found == {}


def test_of_two_that_wait_for_the_same_one_takes_it_over(pipeline: Pipeline) -> None:
    """I20."""
    begin(pipeline)
    found = stalled(pipeline)
    assert fold(pipeline, Fold("run-2", stalled=found)).status == "staged"
    assert fold(pipeline, Fold("run-3", stalled=found)).error_code == "ATTEMPT_OPEN"


def never(seconds: float) -> None:
    pytest.fail(f"waited {seconds} s")


def test_nobody_waits_where_no_other_attempt_is_made(pipeline: Pipeline) -> None:
    """Nothing open, one's own, or one that is staged and waits for its verdict."""
    find = partial(find_stalled, pipeline, LOGS, patience=LEAST_PATIENCE, wait=never)
    assert find(run_id="run-2") == {}
    begin(pipeline, "run-2")
    assert find(run_id="run-2") == {}
    fold(pipeline, Fold("run-2"))
    assert find(run_id="run-3") == {}


def test_a_patience_below_two_heartbeats_is_refused(pipeline: Pipeline) -> None:
    begin(pipeline)
    with pytest.raises(InvalidInputError) as refused:
        find_stalled(pipeline, LOGS, "run-2", LEAST_PATIENCE - 1, never)
    assert refused.value.code == "PATIENCE_TOO_SHORT"


def test_what_was_seen_reaches_the_job_as_it_was_seen(pipeline: Pipeline) -> None:
    begin(pipeline)
    request = Request(
        "tidefold.yaml", ("accounts",), MaterializeStep(Fold("run-2", stalled=stalled(pipeline))), "result.json"
    )
    sent = msgspec.json.decode(make_argument(request), type=Request)
    assert sent == request
    assert isinstance(sent.step, MaterializeStep)
    assert isinstance(sent.step.request, Fold)
    assert fold(pipeline, sent.step.request).status == "staged"


def test_a_job_at_work_raises_its_count_until_it_ends(pipeline: Pipeline) -> None:
    attempt = begin(pipeline)
    raised = threading.Event()

    class Told(LocalStore):
        def put_if_absent(self, path: str, data: bytes) -> None:
            super().put_if_absent(path, data)
            raised.set()

    with heartbeat(Told(Path(pipeline.store.address)), interval=0.001) as heart:
        heart.add("accounts", attempt)
        assert raised.wait(30)
    [after] = count_heartbeats(pipeline.store, "accounts", [attempt])
    assert after.heartbeats > 0
    assert not [t for t in threading.enumerate() if t.name == "tidefold-heartbeat"]


def test_a_job_lives_also_while_it_takes_files_over(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an object store that is a copy of the whole table, and takes its time."""
    from tidefold.operations.snapshot import materialize as module

    real, at_work = module.stage, []

    def stage(*given: object) -> Outcome:
        at_work.extend(t for t in threading.enumerate() if t.name == "tidefold-heartbeat")
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "stage", stage)
    assert fold(pipeline, Fold("run-1")).status == "staged"
    assert len(at_work) == 1


def test_the_work_of_a_superseded_job_ends_as_its_own_error(pipeline: Pipeline) -> None:
    def take_over() -> None:
        assert fold(pipeline, Fold("run-2", stalled=stalled(pipeline))).status == "staged"

    [late] = materialize(pipeline, ["accounts"], Fold("run-1"), run_then(take_over))
    assert (late.status, late.error_code) == ("error", "SUPERSEDED")
    judge_all(pipeline)
    assert confirm(pipeline, "accounts", Confirmation(run="run-2")).status == "published"


def test_a_staged_attempt_names_the_run_that_goes_on_and_what_a_restore_brings_back(pipeline: Pipeline) -> None:
    """Fault: `--takeover-after` was named, which leaves a staged snapshot to a person; a restore had no name."""
    fold(pipeline, Fold("run-1"))
    put(pipeline, [{"id": 1, "text": "b"}])
    refused = fold(pipeline, Fold("run-2"))
    assert refused.error_code == "ATTEMPT_OPEN"
    assert "`tidefold run accounts --run run-1` goes on with it" in refused.message
    assert "`--takeover-after` leaves it to a person" in refused.message
    judge_all(pipeline)
    confirm(pipeline, "accounts", Confirmation(run="run-1"))
    state = pipeline.ledger("accounts").read()
    restored = replace(state.snapshots[-1], id=2, restored_from=1, state=State.STAGED)
    assert "snapshot 2 (a restore of snapshot 1) is STAGED" in build_open_error(state, restored).message
