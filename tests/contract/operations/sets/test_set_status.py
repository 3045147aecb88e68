"""What people see of a set: its point, its lag by its slowest log, and why it waits. On the command line, the page and
as metrics.
"""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from support.bank_sets import ALL, ENDS, LOGS, land, make_bank, run
from support.page_store import client
from tidefold.cli.app import app
from tidefold.compute.runners import in_process
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.inspect.status import status
from tidefold.operations.sets.status import SetStatus, read_sets, set_lines
from tidefold_airflow.observability.metrics import of_sets
from tidefold_airflow.ui.app import build_app
from tidefold_airflow.ui.visible_pipelines import VisiblePipelines, Work


def _read(pipeline: Pipeline, logs: tuple[str, ...] = LOGS) -> SetStatus:
    [found] = read_sets(pipeline, status(pipeline, logs))
    return found


def _call(folder: Path, *given: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [*given, "--config", str(folder / "tidefold.yaml")])
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.fixture
def slow(tmp_path: Path) -> Pipeline:
    """A set that is published where the topic of its tellers ends."""
    pipeline = make_bank(tmp_path)
    land(tmp_path, {**ALL, "tellers": 300})
    run(pipeline, "r1")
    return pipeline


def test_the_slowest_log_is_named_with_its_lag(slow: Pipeline, tmp_path: Path) -> None:
    found = _read(slow)
    assert (found.version, found.slowest, [one.log for one in found.waits]) == (1, "tellers", ["tellers"])
    state = slow.set_ledger("bank").read()
    assert state.point
    assert found.position == found.point == state.point.position
    # Each transaction has one END; the first ones were sent twice.
    assert 0 < found.lag < ALL[ENDS]
    land(tmp_path, {"tellers": 370})
    ingest(slow, LOGS, in_process)
    assert 0 < _read(slow).lag < found.lag
    land(tmp_path, ALL)
    run(slow, "r2")
    assert (_read(slow).lag, _read(slow).slowest, _read(slow).waits) == (0, "", ())


def test_the_lag_counts_the_transactions_after_the_complete_ones(tmp_path: Path) -> None:
    pipeline = make_bank(tmp_path)
    land(tmp_path, {**ALL, "tellers": 300, "history": 680})
    run(pipeline, "r1")
    both = pipeline.set_ledger("bank").read().behind
    assert both is not None
    assert both["tellers"] > both["history"] > 0
    assert _read(pipeline).slowest == "tellers"


def test_nothing_landed_is_a_reason(tmp_path: Path) -> None:
    pipeline = make_bank(tmp_path)
    land(tmp_path, {name: count // 2 for name, count in ALL.items() if name != "tellers"})
    run(pipeline, "r1")
    found = _read(pipeline)
    assert found.version is None
    assert {one.log: one.why for one in found.waits}["tellers"] == "nothing of it has landed"
    assert next(set_lines(found)).startswith("set bank: no point is proved yet; ")


def test_a_transaction_topic_that_lands_nothing_is_a_reason(tmp_path: Path) -> None:
    """Otherwise a set that stands still looks healthy."""
    pipeline = make_bank(tmp_path)
    land(tmp_path, {**ALL, ENDS: 20})
    run(pipeline, "r1")
    found = _read(pipeline)
    assert found.version == 1
    assert found.slowest == "bank.transaction"
    assert found.lag > 40
    [reason] = found.waits
    assert reason.log == "bank.transaction"
    assert reason.why.startswith("the END of transaction ")
    assert "has not landed; its records of `" in reason.why
    outcomes = ingest(pipeline, LOGS, in_process)
    assert all("the END of transaction" in one.message for one in outcomes)
    land(tmp_path, ALL)
    run(pipeline, "r2")
    assert (_read(pipeline).lag, _read(pipeline).waits) == (0, ())


def test_a_gap_in_the_transaction_topic_is_named(tmp_path: Path) -> None:
    pipeline = make_bank(tmp_path)
    land(tmp_path, ALL)
    [first, *_] = sorted((tmp_path / "landing" / "bank.transaction").iterdir())
    lines = first.read_bytes().splitlines(keepends=True)
    first.write_bytes(b"".join(lines[:8] + lines[10:]))
    run(pipeline, "r1")
    [reason] = _read(pipeline).waits
    assert reason.log == "bank.transaction"
    assert reason.why == "the records at offsets 8 to 9 have not landed, and later ones have"
    first.write_bytes(b"".join(lines))
    run(pipeline, "r2")
    assert _read(pipeline).waits == ()


def test_a_folder_that_is_missing_stays_a_reason(tmp_path: Path) -> None:
    pipeline = make_bank(tmp_path)
    land(tmp_path, ALL)
    shutil.rmtree(tmp_path / "landing" / "bank.public.tellers")
    assert all(one.error for one in ingest(pipeline, LOGS, in_process))
    [reason] = _read(pipeline).waits
    assert reason.log == "tellers"
    assert "does not exist" in reason.why


def test_a_failing_gate_is_named_with_its_table(slow: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, ALL)
    run(slow, "r2", failing="branches")
    found = _read(slow)
    assert found.position != found.point
    assert [(one.log, "failed its quality gate" in one.why) for one in found.waits if one.log == "branches"] == [
        ("branches", True)
    ]


def test_the_command_shows_a_set_of_the_chosen_logs(slow: Pipeline, tmp_path: Path) -> None:
    text = _call(tmp_path, "status", "history")
    assert f"set bank: version 1 at position {_read(slow).position}, since " in text
    assert "transactions behind, as its slowest topic `tellers`." in text
    assert "set bank: waits for tellers: records of the transaction at position " in text
    [found] = json.loads(_call(tmp_path, "status", "--format", "json"))["sets"]
    assert (found["name"], found["slowest"], found["lag"]) == ("bank", "tellers", _read(slow).lag)


def test_a_damaged_ledger_of_a_set_is_one_line(slow: Pipeline, tmp_path: Path) -> None:
    for file in (tmp_path / "store" / "sets" / "bank" / "ledger").iterdir():
        file.chmod(0o600)
        file.write_text("{")
    found = _read(slow)
    assert found.error
    assert found.error.code == "UNREADABLE"
    assert "set bank: [UNREADABLE] " in _call(tmp_path, "status", code=5)


def test_the_page_shows_the_set_and_why_it_waits(slow: Pipeline) -> None:
    text = client(slow).get("/").text
    assert "<h2>Sets</h2>" in text
    assert f"{_read(slow).lag} transactions" in text
    assert 'Waits for <a href="logs/tellers">' in text or 'logs/tellers"><bdi>tellers</bdi></a>: ' in text
    assert "have not landed" in text


def test_who_sees_some_logs_alone_does_not_see_the_set(slow: Pipeline) -> None:
    some = VisiblePipelines({"dag": (Work("", frozenset({"accounts"})),)})
    page = TestClient(build_app((), (), lambda request: some, opened=lambda config: slow))
    text = page.get("/").text
    assert "<h2>Sets</h2>" not in text
    assert "tellers" not in text


def test_the_lag_of_a_set_is_a_metric(slow: Pipeline) -> None:
    sent = {one.name: one.value for one in of_sets([_read(slow)], datetime.now(UTC))}
    assert sent["lag.transactions"] == _read(slow).lag
    assert (sent["held"], sent["version"], sent["unreadable"]) == (1, 1, 0)
    assert sent["age_seconds"] >= 0


@pytest.mark.parametrize("harm", ["lost", "behind", "damaged"])
def test_status_fails_if_the_ledger_of_a_set_cannot_be_trusted(slow: Pipeline, tmp_path: Path, harm: str) -> None:
    ledger = tmp_path / "store/sets/bank/ledger"
    versions = sorted(ledger.iterdir())
    for one in versions if harm == "lost" else versions[-2:] if harm == "behind" else ():
        one.unlink()
    if harm == "damaged":
        versions[-1].write_bytes(b"{")
    for words in (("status",), ("status", "tellers")):
        assert ("tidefold move rebuild --set bank" in _call(tmp_path, *words, code=5)) == (harm != "damaged")
