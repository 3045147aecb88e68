"""`airflow backfill create` over five days: one kept snapshot a date, in any order, beside the scheduled runs.

Issue 7, Build 3. The sample's commit times are spread over days by scripts/shift_times.py; each day's rows are compared
with those that a program makes of the landed files, which knows nothing of tidefold. Two days by Airflow's own command
are in tests/airflow/test_scheduled_life.py; what is refused is in tests/airflow/test_backfill_runs.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from demo.watch import DAG
from local_airflow.settings import Request
from local_airflow.stack import LocalAirflow, down, up
from support.airflow_stack import SELDOM, all_on_spark, hash_files, wait_until
from support.past import KEYS, Rows, land, published, rows_before
from tidefold.cli.sample import LOGS, prepare
from tidefold.domain.commit_times import micros
from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.paths import LogPaths
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.wiring import open_pipeline

BACKFILL = "tidefold_backfill"
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
DAYS = [MIDNIGHT - timedelta(days=back) for back in (5, 4, 3, 2, 1)]
FORWARDS = 2


@dataclass(frozen=True)
class Past:
    """An Airflow over a pipeline whose changes were committed on several days."""

    airflow: LocalAirflow
    pipeline: Pipeline

    def state(self, log: str) -> LogState:
        return self.pipeline.ledger(log).read()

    def files(self, below: str = "") -> dict[str, str]:
        return hash_files(self.pipeline, below)

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
        return rows_before(self.pipeline.config.path.parent, log, at)

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
    request = Request(root, config, "* * * * * */20", quick_spark=True, more=SELDOM)
    past = Past(up(request, print), open_pipeline(config))
    try:
        wait_until(lambda: {DAG, BACKFILL} <= {dag["dag_id"] for dag in past.airflow.api.get("/dags")["dags"]}, every=1)
        past.airflow.api.set_paused(DAG, True)
        yield past
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
