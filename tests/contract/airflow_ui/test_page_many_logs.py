"""The page of a pipeline with more logs than one page shows: it reads a bounded number of ledgers."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from support.page_store import DAG, client, run_id
from support.pipelines import put
from tidefold.compute.runners import in_process
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage.local_store import LocalStore
from tidefold.wiring import open_pipeline
from tidefold_airflow.ui.app import build_app
from tidefold_airflow.ui.request import LEDGERS, LINES, LogQuery, read_page
from tidefold_airflow.ui.visible_pipelines import VisiblePipelines, Work

LOG = "  {name}: {{order: arrival, key: [id], columns: {{id: int, text: string}}, key_groups: 4, buckets: 1}}\n"
NAMES = [f"log_{number:03d}" for number in range(2 * LINES + 20)]
BUSY, DAMAGED = NAMES[77], NAMES[LINES + 9]


def configure(folder: Path, names: list[str]) -> Path:
    config = folder / "tidefold.yaml"
    config.write_text("version: 1\nstore: store\nlogs:\n" + "".join(LOG.format(name=name) for name in names))
    return config


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = open_pipeline(configure(tmp_path, NAMES))
    put(made, [{"id": 1, "text": "a"}], BUSY)
    materialize(made, [BUSY], Fold(run_id(1)), in_process)
    made.ledger(DAMAGED).begin(made.log(DAMAGED).shape)
    newest = max((tmp_path / "store" / "logs" / DAMAGED / "ledger").iterdir())
    newest.write_bytes(b"{")
    return made


def shown(ask: TestClient, address: str) -> tuple[list[str], str]:
    """Returns the logs of the page, and its text."""
    answer = ask.get(address)
    assert answer.status_code == 200, answer.text
    return re.findall(r'<a href="[^"]*logs/(\w+)"><bdi>', answer.text), unescape(answer.text)


def follow(ask: TestClient, text: str, word: str) -> tuple[list[str], str]:
    [link] = re.findall(rf'<a href="([^"]*)">{word}</a>', text)
    return shown(ask, f"/{link}")


def test_a_page_shows_fifty_logs_and_links_to_the_others(pipeline: Pipeline) -> None:
    ask = client(pipeline)
    first, text = shown(ask, "/")
    assert first == NAMES[:LINES]
    assert f"1 to {LINES} of {len(NAMES)}" in text
    assert ">previous<" not in text
    second, text = follow(ask, text, "next")
    third, text = follow(ask, text, "next")
    assert [*first, *second, *third] == NAMES
    assert ">next<" not in text
    back, _ = follow(ask, text, "previous")
    assert back == second


def test_logs_are_found_by_a_part_of_their_name(pipeline: Pipeline) -> None:
    ask = client(pipeline)
    assert shown(ask, "/?name=_07")[0] == NAMES[70:80]
    assert shown(ask, f"/dags/{DAG}?name=_07")[0] == NAMES[70:80]
    found, text = shown(ask, "/?name=%22%3E%3Cb%3E")
    assert (found, "None of these logs" in text) == ([], True)
    assert "<b>" not in ask.get("/?name=%22%3E%3Cb%3E").text


def test_logs_that_need_attention_are_found_on_any_page(pipeline: Pipeline) -> None:
    found, text = shown(client(pipeline), "/?attention=1")
    assert found == [DAMAGED]
    assert f"1 to {len(NAMES)} of {len(NAMES)}" in text


def test_the_page_of_a_run_shows_the_logs_that_it_changed(pipeline: Pipeline) -> None:
    found, text = shown(client(pipeline), f"/runs/{run_id(1)}")
    assert set(found) == {BUSY, DAMAGED}
    assert "The snapshots that this run started" in text


def test_a_page_costs_a_bounded_number_of_requests(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()

    def count(verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            calls[verb] += 1
            return call(*given, **named)

        return counted

    for verb in ("read", "list", "open"):
        monkeypatch.setattr(LocalStore, verb, count(verb, getattr(LocalStore, verb)))
    ask = client(replace(pipeline, pages={}))
    shown(ask, f"/?from={LINES}")
    # At most five requests a log, and one for the doctor's findings.
    assert 0 < calls.total() <= 5 * LINES + 1
    before = calls.total()
    shown(ask, "/?name=log_001")
    assert calls.total() - before <= 6


def test_the_search_reads_a_bounded_number_of_ledgers() -> None:
    logs, read = [f"log_{number}" for number in range(5_000)], []

    def look(log: str) -> str:
        read.append(log)
        return log

    page = read_page(logs, LogQuery(attention=True), 64, look, lambda log: log == logs[4_999])
    assert (page.lines, len(read), page.end, page.has_next) == ([], LEDGERS, LEDGERS, True)
    page = read_page(logs, LogQuery(attention=True, start=4_900), 64, look, lambda log: log == logs[4_999])
    assert (page.lines, page.has_next, page.previous) == ([logs[4_999]], False, 0)
    page = read_page(logs, LogQuery(attention=True), 64, look, lambda log: True)
    assert (page.lines, page.end) == (logs[:LINES], LINES)
    assert read_page(logs, LogQuery(start=9_999), 1, look, lambda log: True).lines == []


@pytest.mark.parametrize("start", ["x", "-1", "1.5"])
def test_a_place_that_is_no_number_is_refused(pipeline: Pipeline, start: str) -> None:
    answer = client(pipeline).get(f"/?from={start}")
    assert (answer.status_code, "PAGE_NUMBER" in answer.text) == (400, True)


def test_a_configuration_is_read_again_when_it_was_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tidefold_airflow.ui.app as app

    read: list[Path] = []
    real = app.load_config
    monkeypatch.setattr(app, "load_config", lambda path: read.append(path) or real(path))
    config = configure(tmp_path, NAMES[:2])

    def visible(request: Request) -> VisiblePipelines:
        return VisiblePipelines({DAG: (Work(str(config), cleans=True),)})

    ask = TestClient(build_app((), (), visible), base_url="http://testserver")
    assert shown(ask, "/")[0] == shown(ask, "/")[0] == NAMES[:2]
    assert len(read) == 1
    other = tmp_path / "other.yaml"
    other.write_text(config.read_text().replace(NAMES[1], "another"))
    os.replace(other, config)
    assert shown(ask, "/")[0] == [NAMES[0], "another"]
