"""Stop-with-savepoint: the log takes nothing more, what it took is folded, judged, confirmed and saved; a call that was
cut off goes on. N9, I4, I19. The steps are the real ones, but that they run in this process and the gate is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from support.faults import Killed
from support.interleaved import run_then
from support.landing import find_pending, land, make_landing, record, state_of, take
from support.pipelines import contents, judge_all, make_pipeline, put, table_rows
from support.savepoints import THIRD, Rows, bring_in, changed, finish, make, save, saved_rows
from tidefold.changelog.writer import Changelog, WriterSettings
from tidefold.cli import full_run
from tidefold.cli.app import app
from tidefold.cli.spark_submit import SparkApplication
from tidefold.compute.runners import in_process
from tidefold.domain.external_snapshot import Layout
from tidefold.domain.log_state import State, Stopped
from tidefold.domain.snapshot.manifest import DESCRIPTION
from tidefold.errors import RefusedError, TidefoldError
from tidefold.ledger import Ledger
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.ingest import stop_resume as stop_module
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.inspect.status import status
from tidefold.operations.requests import Fold
from tidefold.operations.sets.confirm import confirm_logs
from tidefold.operations.snapshot.materialize import materialize
from tidefold.spark import full_run as spark_full_run
from tidefold.spark.steps import AnyStep, MaterializeStep


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), prog_name="tidefold", catch_exceptions=False)


def steps(gate: bool = True, cut: Callable[[str, str], None] = lambda step, when: None) -> Callable[..., list[Outcome]]:
    """The steps in this process; `cut` may end the process before or after one."""

    def run_step(application: SparkApplication, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
        pipeline = application._pipeline
        cut(step.name, "before")
        if isinstance(step, MaterializeStep):
            outcomes = materialize(pipeline, logs, step.request, in_process)
        else:
            attempt = pipeline.ledger("accounts").read().open_attempt
            if attempt and attempt.state is State.STAGED:
                judge_all(pipeline, passed=gate)
            outcomes = [Outcome(log, Status.PASSED if gate else Status.FAILED, "as given") for log in logs]
        cut(step.name, "after")
        return outcomes

    return run_step


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEFOLD_CONFIG", str(tmp_path / "one/tidefold.yaml"))
    monkeypatch.setattr(SparkApplication, "run_step", steps())
    return make(tmp_path / "one")


def waiting(pipeline: Pipeline) -> Rows:
    return changed(pipeline, THIRD, {8: None, 52: "d 52"})


@pytest.mark.parametrize("layout", list(Layout))
def test_a_log_is_stopped_folded_and_saved(tmp_path: Path, pipeline: Pipeline, layout: Layout) -> None:
    rows = waiting(pipeline)
    done = call(
        "move", "savepoint", "accounts", "--to", "save", "--as", layout, "--stop", "--by", "me", "--reason", "a move"
    )
    assert done.exit_code == 0, done.output
    assert "accounts: saved: snapshot 4" in done.stdout
    assert saved_rows(tmp_path / "save", layout) == table_rows(pipeline) == rows
    # The source stands in the savepoint where it stood when the log was stopped: nothing is lost, nothing twice.
    other = make_pipeline(tmp_path / "two")
    bring_in(other, tmp_path / "save")
    assert other.ledger("accounts").read().positions == pipeline.ledger("accounts").read().positions
    said = call("status", "accounts").stdout
    assert f"accounts: stopped by me on {now()[:10]} (a move); `tidefold move resume accounts`" in said
    [shown] = json.loads(call("status", "accounts", "--format", "json").stdout)["logs"]
    assert shown["stopped"]["address"] == str(tmp_path / "save")
    assert call("move", "resume", "accounts").exit_code == 0
    assert status(pipeline, ["accounts"])[0].stopped is None
    assert "nothing: the log is not stopped" in call("move", "resume", "accounts").stdout


def test_the_same_call_again_changes_nothing(tmp_path: Path, pipeline: Pipeline) -> None:
    waiting(pipeline)
    assert call("move", "savepoint", "accounts", "--to", "save", "--stop").exit_code == 0
    before = contents(tmp_path)
    done = call("move", "savepoint", "accounts", "--to", "save", "--stop")
    assert (done.exit_code, "accounts: already: snapshot 4" in done.stdout) == (0, True), done.output
    assert contents(tmp_path) == before
    refused = call("move", "savepoint", "accounts", "--to", "elsewhere", "--stop")
    assert (refused.exit_code, "[LOG_STOPPED]" in refused.stderr) == (3, True)


CUTS = [(step, when) for step in ("materialize", "quality") for when in ("before", "after")]
CUTS += [("confirm", "before"), ("confirm", "after"), ("save", "before"), ("save", "half"), ("save", "after")]


@pytest.mark.parametrize("cut", CUTS)
def test_a_stop_that_was_killed_goes_on_when_it_is_called_again(
    tmp_path: Path, pipeline: Pipeline, cut: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """I19: and meanwhile nothing looks like a savepoint."""
    rows = waiting(pipeline)

    def die(*where: str) -> None:
        if where == cut:
            raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(SparkApplication, "run_step", steps(cut=die))
        dying.setattr(spark_full_run, "confirm_logs", _dying(confirm_logs, "confirm", die))
        dying.setattr(full_run, "take_savepoint", _dying(full_run.take_savepoint, "save", die))
        if cut == ("save", "half"):
            from tidefold.operations.savepoint import take as savepoint

            dying.setattr(savepoint, "_describe", _dying(savepoint._describe, "save", die, "half"))
        with pytest.raises(Killed):
            call("move", "savepoint", "accounts", "--to", "save", "--stop")
    assert (tmp_path / "save" / DESCRIPTION).exists() is (cut == ("save", "after"))
    with pytest.raises(RefusedError):
        put(pipeline, [{"id": 1, "text": "refused"}])
    done = call("move", "savepoint", "accounts", "--to", "save", "--stop")
    assert done.exit_code == 0, done.output
    assert saved_rows(tmp_path / "save", Layout.NATIVE) == rows
    completed = [s.id for s in pipeline.ledger("accounts").read().snapshots if s.state is State.COMPLETED]
    assert len(completed) == 4


def _dying(
    act: Callable[..., object], name: str, die: Callable[..., None], before: str = "before"
) -> Callable[..., object]:
    def acts(*given: object, **how: object) -> object:
        die(name, before)
        found = act(*given, **how)
        die(name, "after")
        return found

    return acts


def test_a_gate_that_says_no_leaves_the_log_stopped_and_nothing_saved(
    tmp_path: Path, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = waiting(pipeline)
    with monkeypatch.context() as failing:
        failing.setattr(SparkApplication, "run_step", steps(gate=False))
        assert call("move", "savepoint", "accounts", "--to", "save", "--stop").exit_code == 3
    assert not (tmp_path / "save").exists()
    assert table_rows(pipeline) == THIRD
    assert status(pipeline, ["accounts"])[0].stopped
    # The suite was mended: the same call goes on.
    assert call("move", "savepoint", "accounts", "--to", "save", "--stop").exit_code == 0
    assert saved_rows(tmp_path / "save", Layout.NATIVE) == rows


def test_an_open_attempt_of_another_run_is_waited_for_or_superseded(tmp_path: Path, pipeline: Pipeline) -> None:
    rows = waiting(pipeline)
    materialize(pipeline, ["accounts"], Fold("other"), in_process)
    refused = call("move", "savepoint", "accounts", "--to", "save", "--stop")
    assert (refused.exit_code, "[ATTEMPT_OPEN]" in refused.stderr) == (3, True)
    finish(pipeline, "other")
    assert call("move", "savepoint", "accounts", "--to", "save", "--stop").exit_code == 0
    assert saved_rows(tmp_path / "save", Layout.NATIVE) == rows


# What a stopped log refuses


def stopped(pipeline: Pipeline, log: str) -> Stopped:
    return stop_module.stop(pipeline, log, "/elsewhere", "me", "a move")


def test_an_ingest_leaves_a_stopped_log_alone_and_the_next_one_after_it_loses_nothing(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(0), record(1, 2)])
    take(pipeline)
    stopped(pipeline, "items")
    land(tmp_path, 2, [record(2, 3)])
    before = contents(tmp_path / "store")
    assert find_pending(pipeline, ["items"]) == []
    [skipped] = ingest(pipeline, ["items"], in_process)
    assert (skipped.status, skipped.error) == (Status.SKIPPED, None)
    assert f"stopped by me on {now()[:10]} (a move)" in skipped.message
    assert "tidefold move resume items" in skipped.message
    assert contents(tmp_path / "store") == before
    stop_module.resume(pipeline, "items")
    assert take(pipeline).facts["changes"] == 1
    assert state_of(pipeline).positions[0].next_offset == 3


def test_an_ingest_that_was_on_its_way_when_the_log_was_stopped_is_refused(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(0)])
    take(pipeline)
    land(tmp_path, 1, [record(1, 2)])

    [refused] = ingest(pipeline, ["items"], run_then(lambda: stopped(pipeline, "items")))
    assert refused.error_code == "LOG_STOPPED"
    assert state_of(pipeline).last_sqn == 1
    stop_module.resume(pipeline, "items")
    assert take(pipeline).facts["changes"] == 1
    assert len([e for e in pipeline.store.list("changelog") if e.path.endswith(".seg")]) == 2


def test_a_stopped_log_does_not_hold_up_those_beside_it(tmp_path: Path) -> None:
    from support.landing_pair import PAIR, land_pair
    from support.landing_pair import make as make_pair

    pipeline = make_pair(tmp_path)
    land_pair(tmp_path)
    ingest(pipeline, PAIR, in_process)
    stopped(pipeline, PAIR[0])
    land_pair(tmp_path, 10)
    skipped, taken = ingest(pipeline, PAIR, in_process)
    assert (skipped.status, taken.status) == ("skipped", "taken")


def test_a_writer_of_a_stopped_log_is_refused_and_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    config = (
        "version: 1\nstore: store\nlogs:\n  accounts:\n    key: [id]\n    columns: {id: int, text: string}\n"
        "    order: arrival\n    key_groups: 16\n    buckets: 4\n"
    )
    pipeline = make_pipeline(tmp_path, config)
    with Changelog(pipeline.store, WriterSettings(name="writer")) as changelog:
        writer = changelog.log("accounts", pipeline.log("accounts").shape)
        writer.append([{"id": 1, "text": "a"}])
        writer.flush()
        stopped(pipeline, "accounts")
        writer.append([{"id": 2, "text": "b"}])
        with pytest.raises(TidefoldError) as refused:
            writer.flush()
        assert refused.value.code == "LOG_STOPPED"
        assert not refused.value.transient
        stop_module.resume(pipeline, "accounts")
        writer.flush()
    assert Ledger(pipeline.store, "accounts").read().positions[0].next_offset == 2


def test_a_savepoint_without_stop_leaves_the_log_running(tmp_path: Path, pipeline: Pipeline) -> None:
    save(pipeline, tmp_path / "save")
    changed(pipeline, THIRD, {1: "goes on"})
    assert status(pipeline, ["accounts"])[0].stopped is None


def test_a_second_stop_goes_on_under_the_run_of_the_first(pipeline: Pipeline) -> None:
    """I4: so that its attempt is its own again."""
    first = stopped(pipeline, "accounts")
    version = pipeline.ledger("accounts").read().version
    assert stopped(pipeline, "accounts") == first
    assert pipeline.ledger("accounts").read().version == version
