"""`airflow backfill create` over five days: one kept snapshot a date, in any order, beside the scheduled runs.

Issue 7, Build 3. The sample's commit times are spread over days by scripts/shift_times.py; each day's rows are compared
with those that a program makes of the landed files, which knows nothing of tidefold.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from demo.watch import DAG
from local_airflow.errors import LocalAirflowError
from local_airflow.settings import Request
from local_airflow.stack import down, up
from support.airflow_stack import SELDOM, Scene, all_on_spark, wait_until
from support.past import KEYS, Rows, land, published, rows_before
from tidefold.cli.sample import LOGS, prepare
from tidefold.domain.commit_times import format_instant, micros, next_second
from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.paths import LogPaths
from tidefold.wiring import open_pipeline

BACKFILL = "tidefold_backfill"
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
DAYS = [MIDNIGHT - timedelta(days=back) for back in (5, 4, 3, 2, 1)]
FORWARDS = 2


@dataclass(frozen=True)
class Past(Scene):
    """A scene whose changes were committed on several days."""

    def wait_for(self, dag: str, count: int, seconds: float = 500) -> list[dict[str, Any]]:
        """The runs of a DAG, once so many have ended and none is under way."""

        def ended() -> bool:
            states = [run["state"] for run in self.airflow.api.runs(dag)]
            return len(states) >= count and set(states) <= {"success", "failed"}

        wait_until(ended, seconds, every=1)
        return self.airflow.api.runs(dag)

    def backfill(self, days: list[datetime], logs: tuple[str, ...] = (), **how: Any) -> list[dict[str, Any]]:
        """Makes a backfill of these days; their runs after it."""
        body = {
            "dag_id": BACKFILL,
            "from_date": min(days).isoformat(),
            "to_date": max(days).isoformat(),
            "max_active_runs": 2,
            "dag_run_conf": {"logs": list(logs)},
            **how,
        }
        # A DAG has one at a time, and its end is noticed a little later.
        wait_until(lambda: all(one["completed_at"] for one in self._backfills()), every=1)
        made = self.airflow.api.call("POST", "/backfills", body)
        wait_until(lambda: self.airflow.api.get(f"/backfills/{made['id']}")["completed_at"] is not None, 1200, every=1)
        dates = {f"{day:%Y-%m-%d}" for day in days}
        return [run for run in self.airflow.api.runs(BACKFILL) if (run["logical_date"] or "")[:10] in dates]

    def _backfills(self) -> list[dict[str, Any]]:
        return list(self.airflow.api.get(f"/backfills?dag_id={BACKFILL}")["backfills"])

    def task_of(self, run: str, name: str) -> dict[str, Any]:
        return next(task for task in self.airflow.api.tasks(BACKFILL, run) if task["task_id"] == name)

    def day_of(self, log: str, day: datetime) -> Snapshot:
        """The kept snapshot of a date."""
        state, at = self.state(log), micros((day + timedelta(days=1)).isoformat())
        [found] = [s for s in state.snapshots if s.as_of and s.as_of.at == at and s.state is State.COMPLETED]
        assert (f"as-of-{day + timedelta(days=1):%Y-%m-%d}", found.id) in [(t.name, t.snapshot) for t in state.tags]
        return found

    def rows(self, log: str, snapshot: Snapshot) -> Rows:
        columns = [column.name for column in self.pipeline.log(log).shape.columns]
        table = DeltaTable(self.pipeline.store.uri(LogPaths(log).snapshot(snapshot.id))).to_pyarrow_table()
        return {row[KEYS[log]]: row for row in table.select(columns).to_pylist()}

    def naive(self, log: str, at: datetime) -> Rows:
        return rows_before(self.folder, log, at)

    def live(self) -> dict[str, Any]:
        """What nothing of a backfill may move: the table, the newest snapshot, the positions, the log."""

        def facts(state: LogState) -> Any:
            return (state.latest, state.open_attempt, state.positions, state.truncated_to, state.change_sets)

        # The ledger's own marks are no part of a table.
        tables = {path: digest for path, digest in self.files("tables").items() if "/_tidefold/" not in path}
        return {"tables": tables, **{log: facts(self.state(log)) for log in LOGS}}


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    """Airflow over a log with a snapshot of the day before the five, and one of all of them. The scheduler's own runs,
    when they are not paused, find nothing new.
    """
    root = tmp_path_factory.mktemp("past")
    config = prepare(root)
    config.write_text(config.read_text().replace("above: 20kB", "above: 64MB"))
    land(config, "phase1", DAYS[0] - timedelta(days=1), 1)
    published(open_pipeline(config), "first")
    land(config, "phase2", DAYS[0], 3)
    land(config, "phase3", DAYS[3], 2)
    published(open_pipeline(config), "second")
    request = Request(root, config, "* * * * * */20", quick_spark=True, preloaded=True, more=SELDOM)
    scene = Past(up(request, print), open_pipeline(config))
    try:
        wait_until(
            lambda: {DAG, BACKFILL} <= {dag["dag_id"] for dag in scene.airflow.api.get("/dags")["dags"]}, every=1
        )
        scene.airflow.api.set_paused(DAG, True)
        yield scene
    finally:
        down(root, print)


@pytest.fixture(scope="module")
def unpaused(past: Past) -> Past:
    """With the snapshot of the day that ended last, which the scheduler made by itself."""
    past.airflow.api.set_paused(BACKFILL, False)
    past.wait_for(BACKFILL, 1)
    return past


@pytest.fixture(scope="module")
def forwards(unpaused: Past) -> dict[str, Any]:
    """A backfill of the first days for one log, on Spark; what was live before it."""
    past, before = unpaused, unpaused.live()
    with all_on_spark(past.pipeline.config.path):
        runs = past.backfill(DAYS[:FORWARDS], ("accounts",), reprocess_behavior="completed")
    assert {run["state"] for run in runs} == {"success"}, runs
    return before


@pytest.fixture(scope="module")
def backwards(past: Past, forwards: dict[str, Any]) -> dict[str, Any]:
    """All five days from the last one to the first, for all logs, while the scheduler makes runs of its own. There is
    so little to read that the tasks fold it themselves.
    """
    past.airflow.api.set_paused(DAG, False)
    runs = past.backfill(DAYS, reprocess_behavior="completed", run_backwards=True)
    past.airflow.api.set_paused(DAG, True)
    assert {run["state"] for run in runs} == {"success"}, runs
    return forwards


@pytest.mark.parametrize("number", range(FORWARDS))
def test_each_date_has_the_rows_of_its_end(past: Past, forwards: dict[str, Any], number: int) -> None:
    day = DAYS[number]
    rows = past.rows("accounts", past.day_of("accounts", day))
    assert rows == past.naive("accounts", day + timedelta(days=1))
    assert rows != past.naive("accounts", day)


@pytest.mark.parametrize("log", LOGS)
def test_from_the_last_to_the_first_they_are_the_same(past: Past, backwards: dict[str, Any], log: str) -> None:
    """Bad input 105: scheduled runs went on beside it."""
    for day in DAYS:
        assert past.rows(log, past.day_of(log, day)) == past.naive(log, day + timedelta(days=1))
    made = [s for s in past.state(log).snapshots if s.as_of]
    assert len(made) == len(DAYS) == len({s.as_of.at for s in made if s.as_of})


def test_the_live_table_and_the_positions_are_where_they_were(past: Past, backwards: dict[str, Any]) -> None:
    assert past.live() == backwards


def test_the_same_again_changes_nothing(past: Past, backwards: dict[str, Any]) -> None:
    """Cleared by hand or asked for again: every task is green and no file is new."""
    before = {path: digest for path, digest in past.files().items() if "/ledger/" not in path}
    runs = past.backfill(DAYS, reprocess_behavior="completed")
    assert {run["state"] for run in runs} == {"success"}
    for run in runs:
        results = past.airflow.api.xcom(BACKFILL, run["dag_run_id"], "as_of")
        assert {what["result"] for what in results.values()} == {"already"}
    assert {path: digest for path, digest in past.files().items() if "/ledger/" not in path} == before


def test_a_range_whose_log_is_cut_names_the_oldest_possible_instant(unpaused: Past) -> None:
    before, first = unpaused.live(), unpaused.state("tellers").snapshots[0]
    runs = unpaused.backfill([DAYS[0] - timedelta(days=3)], ("tellers",))
    [red] = runs
    assert red["state"] == "failed"
    assert "AS_OF_TOO_OLD" in (said := _failure(unpaused, red["dag_run_id"]))
    assert f"The oldest possible instant is {format_instant(next_second((first.max_commit_time or 0) + 1))}" in said
    assert unpaused.task_of(red["dag_run_id"], "as_of")["try_number"] == 1
    assert unpaused.live() == before


def test_bad_input_94_and_95_in_the_range(unpaused: Past) -> None:
    """Airflow itself refuses a range that ends before it begins, and one that has not passed."""
    before, later = unpaused.live(), MIDNIGHT + timedelta(days=3)
    for first, last in ((DAYS[1], DAYS[0]), (later, later)):
        body = {"dag_id": BACKFILL, "from_date": first.isoformat(), "to_date": last.isoformat()}
        with pytest.raises(LocalAirflowError, match=r": 4\d\d "):
            unpaused.airflow.api.call("POST", "/backfills", body)
    assert unpaused.live() == before


@pytest.mark.parametrize(
    ("conf", "code"),
    [({}, "AS_OF_MISSING"), ({"as_of": "2999-01-01T00:00:00Z"}, "AS_OF_FUTURE")],
    ids=["none", "future"],
)
def test_bad_input_95_of_a_run_by_hand(unpaused: Past, conf: dict[str, str], code: str) -> None:
    """It fails at its first task, at once, with the code of the command line."""
    api = unpaused.airflow.api
    run = api.call("POST", f"/dags/{BACKFILL}/dagRuns", {"logical_date": None, "conf": conf})["dag_run_id"]
    assert code in _failure(unpaused, run)
    assert unpaused.task_of(run, "as_of")["try_number"] == 1


def test_bad_input_95_a_form_without_a_zone_is_not_taken(unpaused: Past) -> None:
    body = {"logical_date": None, "conf": {"as_of": "2025-11-05"}}
    with pytest.raises(LocalAirflowError, match="400"):
        unpaused.airflow.api.call("POST", f"/dags/{BACKFILL}/dagRuns", body)


def test_bad_input_106_a_date_that_was_made_with_other_parameters(unpaused: Past) -> None:
    before, other = unpaused.live(), (DAYS[2] + timedelta(hours=12)).isoformat()
    conf = {"logs": ["tellers"], "as_of": other}
    [changed] = unpaused.backfill([DAYS[4]], reprocess_behavior="completed", dag_run_conf=conf)
    assert "RUN_CHANGED" in _failure(unpaused, changed["dag_run_id"])
    assert unpaused.live() == before
    assert unpaused.day_of("tellers", DAYS[4])


def _failure(past: Past, run: str) -> str:
    """The log of the first task of a run that failed."""
    api = past.airflow.api
    wait_until(lambda: next(r for r in api.runs(BACKFILL) if r["dag_run_id"] == run)["state"] == "failed", every=1)
    task = past.task_of(run, "as_of")
    assert task["state"] == "failed"
    return "\n".join(api.log(BACKFILL, run, "as_of", task["try_number"]))


def test_airflows_own_command_makes_it(unpaused: Past) -> None:
    """`airflow backfill create`, of a date that was made: nothing is to do."""
    before = {path: digest for path, digest in unpaused.files().items() if "/ledger/" not in path}
    day = f"{DAYS[4]:%Y-%m-%d}"
    words = ["backfill", "create", "--dag-id", BACKFILL, "--from-date", day, "--to-date", day]
    words += ["--reprocess-behavior", "completed"]
    command = [str(Path(sys.executable).with_name("airflow")), *words]
    subprocess.run(command, env=dict(unpaused.airflow.env), check=True, capture_output=True)
    wait_until(
        lambda: not any(r["state"] in ("queued", "running") for r in unpaused.airflow.api.runs(BACKFILL)), 300, every=1
    )
    assert {path: digest for path, digest in unpaused.files().items() if "/ledger/" not in path} == before
