"""Real changes of a database, committed over six days: each day has the rows, forwards and backwards, that a program
makes of the landed files.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from deltalake import DeltaTable

from support.instants import kept_as_of, snapshot_of
from support.past import KEYS, Rows, land, published, rows_before
from tidefold.cli.sample import LOGS, prepare
from tidefold.domain.commit_times import micros
from tidefold.domain.paths import LogPaths
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.wiring import open_pipeline

FIRST = datetime(2025, 11, 1, tzinfo=UTC)
DAYS = [FIRST + timedelta(days=number) for number in range(2, 7)]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A snapshot of the first day, behind which the log is cut, and one of all six."""
    config = prepare(tmp_path_factory.mktemp("bank"))
    land(config, "phase1", FIRST, 1)
    published(open_pipeline(config), "first")
    land(config, "phase2", DAYS[0] - timedelta(days=1), 3)
    land(config, "phase3", DAYS[3] - timedelta(days=1), 2)
    made = open_pipeline(config)
    published(made, "second")
    return made


def rows_as_of(pipeline: Pipeline, log: str, at: datetime, run: str) -> Rows:
    made = snapshot_of(pipeline, kept_as_of(pipeline, micros(at.isoformat()), run, log))
    columns = [column.name for column in pipeline.log(log).shape.columns]
    table = DeltaTable(pipeline.store.uri(LogPaths(log).snapshot(made.id))).to_pyarrow_table()
    return {row[KEYS[log]]: row for row in table.select(columns).to_pylist()}


@pytest.mark.rotates(6)
@pytest.mark.parametrize("log", LOGS)
def test_each_day_forwards_and_backwards(pipeline: Pipeline, log: str) -> None:
    folder, ledger = pipeline.config.path.parent, pipeline.ledger(log)
    before = ledger.read()
    expected = [rows_before(folder, log, day) for day in DAYS]
    assert len({str(rows) for rows in expected}) == len(DAYS)
    for day, rows in zip(DAYS, expected, strict=True):
        assert rows_as_of(pipeline, log, day, f"forwards/{day:%F}") == rows
    noons = [day - timedelta(hours=12) for day in reversed(DAYS)]
    for at in noons:
        assert rows_as_of(pipeline, log, at, f"backwards/{at:%F}") == rows_before(folder, log, at)
    state = ledger.read()
    assert (state.latest, state.positions, state.change_sets) == (before.latest, before.positions, before.change_sets)
    assert kept_as_of(pipeline, micros(FIRST.isoformat()), "too-old", log).error_code == "AS_OF_TOO_OLD"
