"""Snapshots of many logs are judged at the same time: the same verdicts, and a slow log holds up nobody. Promise I8."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from support.counting_engine import CountingEngine
from support.staging import ROWS, Row, stage
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.quality.judge import judge
from tidefold.quality.run.duckdb_rows import open_duckdb
from tidefold.spark.steps import QualityStep
from tidefold.wiring import open_pipeline

# Of an outcome: log, status, message, code of the error.
Facts = tuple[str, str, str, str | None]
AT_ONCE = 8
LOGS = [f"log{number:02}" for number in range(12)]
LOG = """\
  {log}:
    source: {{format: debezium-json, connector: postgresql, path: landing/{log}}}
    key: [aid]
    columns: {{aid: int, bid: int, filler: string}}
    quality: {{suite: suite.yaml, max_row_drop: 0.5}}
"""
SUITE = """\
expectations:
- {type: expect_column_values_to_be_between, kwargs: {column: bid, min_value: 0, max_value: 2}}
- {type: expect_column_values_to_match_regex, kwargs: {column: filler, regex: '^row [0-9]+$'}}
"""


def make_pipeline(folder: Path) -> Pipeline:
    """Logs with staged snapshots. Every third has a value that its suite refuses, every fifth a key twice."""
    (folder / "suite.yaml").write_text(SUITE)
    text = "".join(LOG.format(log=log) for log in LOGS)
    (folder / "tidefold.yaml").write_text(f"version: 1\nstore: store\nlogs:\n{text}")
    pipeline = open_pipeline(folder / "tidefold.yaml")
    for number, log in enumerate(LOGS):
        wrong: list[Row] = [(1000 + number, number, f"row {number}")] if number % 3 == 0 else []
        twice: list[Row] = [(7, 1, "row 7")] if number % 5 == 0 else []
        stage(pipeline, [*ROWS[: 20 + number], *wrong, *twice], log)
    return pipeline


def facts(outcomes: list[Outcome]) -> list[Facts]:
    return [(o.log, o.status, o.message.partition("; engine")[0], o.error_code) for o in outcomes]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Facts]:
    """What each log gets when it is judged alone."""
    pipeline = make_pipeline(tmp_path_factory.mktemp("alone"))
    with open_duckdb() as engine:
        return facts([outcome for log in LOGS for outcome in judge(pipeline, [log], None, engine)])


def without_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidefold.quality.run.expectations._SAMPLED", 0)  # Samples are Spark's.


def test_verdicts_side_by_side_are_those_of_each_log_alone(
    tmp_path: Path, alone: list[Facts], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_samples(monkeypatch)
    assert {status for _, status, _, _ in alone} == {"passed", "failed"}
    pipeline = make_pipeline(tmp_path)
    assert facts(judge(pipeline, LOGS, None, CountingEngine(), AT_ONCE)) == alone
    verdicts = [pipeline.ledger(log).read().snapshots[-1].verdict for log in LOGS]
    assert [verdict is not None and verdict.passed for verdict in verdicts] == [s == "passed" for _, s, _, _ in alone]


def test_engines_of_this_process_side_by_side(
    tmp_path: Path, alone: list[Facts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a store across a network."""
    pipeline, step = make_pipeline(tmp_path), QualityStep("run-1")
    prepared = [one for one in step.prepare(pipeline, LOGS) if not isinstance(one, Outcome)]
    monkeypatch.setattr(Pipeline, "at_once", AT_ONCE)
    assert facts(step.execute(pipeline, prepared, lambda log, done, total: None)) == alone


@pytest.mark.rotates(3)
def test_a_slow_log_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow one ends only when all others have their verdicts."""
    without_samples(monkeypatch)
    pipeline = make_pipeline(tmp_path)
    slow, *others = LOGS

    def has_verdict(log: str) -> bool:
        return pipeline.ledger(log).read().snapshots[-1].verdict is not None

    def wait_for_others(log: str) -> None:
        pause = threading.Event()
        for _ in range(6_000 if log == slow else 0):
            if all(map(has_verdict, others)):
                return
            pause.wait(0.01)
        assert log != slow, "the others wait for the slow log"

    outcomes = judge(pipeline, LOGS, None, CountingEngine(wait_for_others), AT_ONCE)
    assert [(o.log, o.error) for o in outcomes] == [(log, None) for log in LOGS]


def test_an_error_of_one_log_is_that_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_samples(monkeypatch)
    pipeline = make_pipeline(tmp_path)

    def refuse(log: str) -> None:
        if log == LOGS[3]:
            raise OSError("made by a test")

    outcomes = judge(pipeline, LOGS, None, CountingEngine(refuse), AT_ONCE)
    assert [o.log for o in outcomes if o.error] == [LOGS[3]]
    assert pipeline.ledger(LOGS[3]).read().snapshots[-1].verdict is None
