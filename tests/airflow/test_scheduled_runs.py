"""The scheduler runs the DAG over real changes: through a failing suite, a task marked failed and a kill -9.

Each fixture takes the story one run further and hands its run to the tests; any test alone plays what leads to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from demo.watch import DAG, Run
from support.airflow_stack import Scene, java_started, wait_until
from tidefold.cli.sample import LOGS
from tidefold.domain.log_state import LogState, State
from tidefold.domain.paths import LogPaths

_FAILS = "expectations:\n  - type: expect_column_values_to_be_between\n    kwargs: {column: abalance, min_value: 1}\n"


# Skipped where they would delete nothing.
IDLE = ("truncate", "local_retention", "clean")


@dataclass(frozen=True)
class Red:
    """A run that failed, and what was stored before it."""

    run: Run
    before: dict[str, str]
    after: dict[str, str]


@pytest.fixture(scope="module")
def first(scene: Scene) -> Run:
    """The scheduler's first run after the start."""
    run = scene.follow(datetime.now(UTC) - timedelta(hours=1))
    assert all(scene.all_equal_truth("phase1"))
    return run


@pytest.fixture(scope="module")
def refused(scene: Scene, first: Run) -> Red:
    """Phase 2 with a suite for `accounts` that cannot pass; the suite is put right afterwards."""
    suite = scene.folder / "quality" / "accounts.yaml"
    good = suite.read_text()
    before = scene.files()
    suite.write_text(_FAILS)
    run = scene.follow(scene.land("phase2"))
    suite.write_text(good)
    return Red(run, before, scene.files())


@pytest.fixture(scope="module")
def put_right(scene: Scene, refused: Red) -> Run:
    """The next run of the scheduler, with the suite that passes."""
    return scene.follow(refused.run.begun)


@pytest.fixture(scope="module")
def marked(scene: Scene, put_right: Run) -> Red:
    """Phase 3, with somebody marking `materialize` as failed while it folds."""
    before = scene.files("tables")
    landed = scene.land("phase3")
    wait_until(lambda: _ongoing(scene) is not None, every=0.05)
    run_id = str(_ongoing(scene)).removeprefix(f"{DAG}/")
    scene.airflow.api.set_task_state(DAG, run_id, "materialize", "failed")
    run = scene.follow(landed)
    return Red(run, before, scene.files("tables"))


@pytest.fixture(scope="module")
def killed(scene: Scene, marked: Red) -> tuple[Run, LogState]:
    """The next run, its Spark job killed in mid materialize: the run, and `accounts` as the killed attempt left it."""
    wait_until(lambda: _ongoing(scene) not in (None, f"{DAG}/{marked.run.id}"), every=0.05)
    state = scene.state("accounts")
    scene.kill("materialize")
    return scene.follow(marked.run.begun), state


def _ongoing(scene: Scene) -> str | None:
    """The run whose attempt at `accounts` is being folded."""
    attempt = scene.state("accounts").open_attempt
    return attempt.run if attempt and attempt.state is State.ONGOING else None


def test_the_schedulers_own_run_publishes_every_log(scene: Scene, first: Run) -> None:
    assert first.id.startswith("scheduled__")
    assert first.state == "success"
    # A first run has nothing to delete.
    assert {state for task, state in first.tasks.items() if task not in IDLE} == {"success"}
    assert {first.tasks[task] for task in IDLE} <= {"success", "skipped"}
    for log in LOGS:
        [snapshot] = scene.state(log).snapshots
        assert (snapshot.state, snapshot.run) == (State.COMPLETED, f"{DAG}/{first.id}")
        assert snapshot.published
    assert scene.airflow.api.xcom(DAG, first.id, "confirm", 0)["accounts"] == {
        "result": "published",
        "snapshot": 1,
        "error": None,
    }


def test_a_failing_suite_turns_the_run_red_and_says_why(scene: Scene, refused: Red) -> None:
    assert refused.run.state == "failed"
    assert refused.run.tasks["confirm"] == "failed"
    assert refused.run.tasks["abort"] == "success"
    assert "GATE_FAILED" in scene.log(refused.run, "confirm")
    [snapshot] = [s for s in scene.state("accounts").snapshots if s.run.endswith(refused.run.id)]
    assert snapshot.state is State.ABORTED
    assert snapshot.verdict
    assert not snapshot.verdict.passed
    assert scene.task(refused.run, "confirm")["try_number"] == 1


def test_a_failing_suite_leaves_what_was_there_byte_for_byte(scene: Scene, refused: Red) -> None:
    assert {path: refused.after.get(path) for path in refused.before} == refused.before
    # Beside it only the new segments, what the other logs published, the records that say what was refused and why, and
    # the ledger's marks.
    new = {path for path in refused.after if path not in refused.before and "/accounts/" in path}
    new = {path for path in new if "/_tidefold/" not in path}
    assert {path.split("/accounts/")[1].split("/")[0] for path in new} <= {"ledger", "quality", "pages", "snapshots"}
    assert not [path for path in new if path.endswith(".parquet")]


def test_a_failing_suite_of_one_log_does_not_hold_back_the_others(scene: Scene, refused: Red) -> None:
    for log in ("branches", "tellers"):
        scene.rows_equal_truth(log, "phase2")


def test_the_next_run_publishes_what_the_suite_held_back(scene: Scene, put_right: Run) -> None:
    assert put_right.state == "success"
    assert all(scene.all_equal_truth("phase2"))


def test_a_materialize_marked_failed_is_aborted_and_the_run_red(scene: Scene, marked: Red) -> None:
    assert marked.run.state == "failed"
    assert marked.run.tasks == {
        "choose": "success",
        "ingest": "success",
        "materialize": "failed",
        "quality": "success",
        "confirm": "failed",
        "subsume": "success",
        **{task: marked.run.tasks[task] for task in IDLE},
        "alarms": "success",
        "abort": "success",
        "done": "upstream_failed",
    }
    assert {marked.run.tasks[task] for task in IDLE} <= {"success", "skipped"}
    for log in LOGS:
        mine = [s for s in scene.state(log).snapshots if s.run.endswith(marked.run.id)]
        assert {s.state for s in mine} <= {State.ABORTED}
    assert {path: marked.after.get(path) for path in marked.before} == marked.before


def test_a_killed_job_is_tried_again_and_makes_one_snapshot(scene: Scene, killed: tuple[Run, LogState]) -> None:
    run, before = killed
    assert run.state == "success"
    assert scene.task(run, "materialize")["try_number"] == 2
    mine = [s for s in scene.state("accounts").snapshots if s.run == f"{DAG}/{run.id}"]
    assert [s.state for s in mine] == [State.ABORTED, State.COMPLETED]
    assert before.open_attempt
    assert mine[0].id == before.open_attempt.id
    assert mine[1].epoch > mine[0].epoch
    assert all(scene.all_equal_truth("phase3"))
    left = [p for p in scene.files() if f".s{mine[0].id:010d}." in p and "/accounts/" in p]
    assert left == []


def test_a_run_with_nothing_new_starts_no_java_and_writes_nothing(scene: Scene, killed: tuple[Run, LogState]) -> None:
    before = scene.files()
    with java_started(scene.airflow) as java:
        run = scene.follow(datetime.now(UTC))
    assert run.state == "success"
    assert java == []
    assert "no Spark job started" in scene.log(run, "ingest")
    # What has nothing to do costs no process.
    ran = {task for task, state in run.tasks.items() if state == "success"}
    assert ran <= {"choose", "ingest", "truncate", "local_retention", "clean", "alarms", "done"}
    assert scene.files() == before


def test_everything_listens_on_the_loopback_only(scene: Scene, first: Run) -> None:
    addresses = {c.laddr.ip for p in scene.processes() for c in p.net_connections("inet") if c.status == "LISTEN"}
    assert addresses
    assert addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def test_the_password_is_readable_by_its_owner_only(scene: Scene) -> None:
    assert scene.airflow.request.passwords.stat().st_mode & 0o077 == 0
    assert (scene.airflow.request.root / "postgres" / "password").stat().st_mode & 0o077 == 0


def test_the_table_is_one_delta_version_a_published_snapshot(scene: Scene, killed: tuple[Run, LogState]) -> None:
    for log in LOGS:
        published = [s for s in scene.state(log).snapshots if s.published]
        log_files = [p for p in scene.files(f"{LogPaths(log).table}/_delta_log") if p.endswith(".json")]
        assert len(log_files) == len(published)


def test_no_orphan_outlives_its_task(scene: Scene, killed: tuple[Run, LogState]) -> None:
    wait_until(lambda: not [p for p in psutil.process_iter() if _is_orphan(scene, p)], 30)


def _is_orphan(scene: Scene, process: psutil.Process) -> bool:
    """A Spark process of this pipeline that nobody started any more."""
    try:
        return str(scene.folder) in " ".join(process.cmdline()) and process.ppid() == 1 and "java" in process.name()
    except psutil.Error:
        return False
