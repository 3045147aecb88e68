"""Runs of the DAG that makes one snapshot a date, without a scheduler: in any order, again, and where they cannot be.

Issue 7, Build 3. The rows of each day are those of a plain dict. Airflow's own `backfill create` is in
test_scheduled_life.py; five days of the sample beside scheduled runs are in tests/drills.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from local_airflow.settings import PROJECT
from support.airflow_shop import LOGS, Stock, prepare
from support.dag_test import DagTests, PlayedRun, airflow_database
from tidefold.domain.commit_times import format_instant, micros, next_second
from tidefold.domain.log_state import State
from tidefold.domain.paths import LogPaths
from tidefold.wiring import open_pipeline

BACKFILL = "tidefold_backfill"
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
DAYS = [MIDNIGHT - timedelta(days=back) for back in (3, 2, 1)]
DAY = timedelta(days=1)


@dataclass(kw_only=True)
class Past(Stock):
    """A pipeline whose changes were committed on several days. `shown_then`: the rows at the end of each."""

    dags: DagTests
    shown_then: dict[datetime, dict[str, dict[int, str]]]

    def make(self, day: datetime, **conf: Any) -> PlayedRun:
        """Runs the DAG for the interval of a day, as a backfill does."""
        return self.dags.play(BACKFILL, at=day + DAY, **conf)

    def rows(self, log: str, day: datetime) -> dict[int, str]:
        """The rows of the kept snapshot of a date."""
        state, at = self.state(log), micros((day + DAY).isoformat())
        [made] = [s for s in state.snapshots if s.as_of and s.as_of.at == at and s.state is State.COMPLETED]
        assert (f"as-of-{day + DAY:%Y-%m-%d}", made.id) in [(tag.name, tag.snapshot) for tag in state.tags]
        table = DeltaTable(self.pipeline.store.uri(LogPaths(log).snapshot(made.id))).to_pyarrow_table()
        return {row["id"]: row["text"] for row in table.to_pylist()}

    def live(self) -> dict[str, Any]:
        """What no backfill may move: the tables, the newest snapshots, the positions, the logs."""
        states = {log: self.state(log) for log in LOGS}
        return {
            # The ledger's own marks are no part of a table.
            "tables": {path: digest for path, digest in self.files("tables").items() if "/_tidefold/" not in path},
            **{
                log: (state.latest, state.open_attempt, state.positions, state.truncated_to, state.change_sets)
                for log, state in states.items()
            },
        }


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    """A snapshot of the day before the three, and one of all of them."""
    root = tmp_path_factory.mktemp("past")
    config = prepare(root)
    files = [PROJECT / "dags" / f"{name}.py" for name in ("tidefold_materialize", BACKFILL)]
    with airflow_database(root, files, TIDEFOLD_CONFIG=str(config)) as tests:
        made = Past(pipeline=open_pipeline(config), dags=tests, shown_then={})
        for log in LOGS:
            made.change(log, dict.fromkeys(range(4), "before"), at=DAYS[0] - DAY)
        tests.play("tidefold_materialize").green()
        for number, day in enumerate(DAYS):
            for log in LOGS:
                made.change(log, {number: f"{day:%F}", 10 + number: "new", 9 + number: None}, at=day + DAY / 2)
            made.shown_then[day] = {log: dict(made.held[log]) for log in LOGS}
        tests.play("tidefold_materialize").green()
        assert made.all_equal()
        yield made


@pytest.fixture(scope="module")
def live(past: Past) -> dict[str, Any]:
    """All days are made, from the last to the first; what was live before."""
    before = past.live()
    for day in reversed(DAYS):
        past.make(day).green()
    return before


def test_each_date_has_the_rows_of_its_end_in_any_order(past: Past, live: dict[str, Any]) -> None:
    for log in LOGS:
        assert {day: past.rows(log, day) for day in DAYS} == {day: past.shown_then[day][log] for day in DAYS}
        assert len([s for s in past.state(log).snapshots if s.as_of]) == len(DAYS)


def test_the_live_table_and_the_positions_are_where_they_were(past: Past, live: dict[str, Any]) -> None:
    assert past.live() == live


def test_the_same_again_changes_nothing(past: Past, live: dict[str, Any]) -> None:
    """Cleared by hand or asked for again: every task is green and no file is new."""
    before = {path: digest for path, digest in past.files().items() if "/ledger/" not in path}
    for day in DAYS:
        results = past.make(day).green().results["as_of"]
        assert {what["result"] for what in results.values()} == {"already"}
    assert {path: digest for path, digest in past.files().items() if "/ledger/" not in path} == before


def test_a_date_whose_log_is_cut_names_the_oldest_possible_instant(past: Past) -> None:
    before, first = past.live(), past.state("notes").snapshots[0]
    run = past.make(DAYS[0] - 3 * DAY, logs=["notes"]).red()
    assert "AS_OF_TOO_OLD" in run.lines
    oldest = next_second((first.max_commit_time or 0) + 1)
    assert f"The oldest possible instant is {format_instant(oldest)}" in run.lines
    assert past.live() == before


@pytest.mark.parametrize(
    ("conf", "code"),
    [({}, "AS_OF_MISSING"), ({"as_of": "2999-01-01T00:00:00Z"}, "AS_OF_FUTURE")],
    ids=["none", "future"],
)
def test_bad_input_95_of_a_run_by_hand(past: Past, conf: dict[str, str], code: str) -> None:
    """It fails at its first task, at once, with the code of the command line."""
    run = past.dags.play(BACKFILL, **conf).red()
    assert code in run.lines
    assert run.tasks["as_of"] == "failed"


def test_bad_input_106_a_date_that_was_made_with_other_parameters(past: Past, live: dict[str, Any]) -> None:
    before, other = past.live(), (DAYS[1] + DAY / 2).isoformat()
    assert "RUN_CHANGED" in past.make(DAYS[2], logs=["notes"], as_of=other).red().lines
    assert past.live() == before
    assert past.rows("notes", DAYS[2])
