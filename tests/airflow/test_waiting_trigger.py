"""A run begins when enough waits, or at a phase of its own; without a scheduler."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset

from support.landing import land, make_landing, record, take
from tidefold.domain.run_trigger import RunThresholds, WaitingWork, find_reason, spread_schedule
from tidefold.errors import NotFoundError
from tidefold.operations.inspect.waiting import measure_waiting
from tidefold_airflow import tidefold_dag, waiting_asset
from tidefold_airflow.triggers import WaitingTrigger


@pytest.mark.parametrize(
    ("waiting", "waited", "thresholds", "begins"),
    [
        (WaitingWork(0, 0), 10**6, RunThresholds(0, 1), False),
        (WaitingWork(1, 10), 0, RunThresholds(), True),
        (WaitingWork(1, 10), 0, RunThresholds(11), False),
        (WaitingWork(1, 11), 0, RunThresholds(11), True),
        (WaitingWork(1, 10), 59, RunThresholds(11, 60), False),
        (WaitingWork(1, 10), 60, RunThresholds(11, 60), True),
    ],
)
def test_a_run_begins_by_bytes_or_by_lag(
    waiting: WaitingWork, waited: float, thresholds: RunThresholds, begins: bool
) -> None:
    assert (find_reason(waiting, waited, thresholds) is not None) is begins


def test_what_waits_is_measured_and_nothing_is_written(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    assert not measure_waiting(pipeline, ["items"])
    land(tmp_path, 0, [record(offset, offset) for offset in range(20)])
    landed = measure_waiting(pipeline, ["items"])
    assert (landed.files, landed.bytes > 0) == (1, True)
    assert not (tmp_path / "store").exists()
    take(pipeline)
    ingested = measure_waiting(pipeline, ["items"])
    assert (ingested.files, ingested.bytes > 0) == (0, True)
    assert landed.is_news(None)
    assert not ingested.is_news(landed)


@pytest.mark.parametrize(
    ("landed", "last", "is_news"),
    [
        ({"a": "1"}, {"a": 5, "b": 2}, False),
        ({}, {"a": 6, "b": 2}, False),  # Ingested.
        ({"a": "2"}, {"a": 5, "b": 2}, True),
        ({"b": "1"}, {"a": 6, "b": 2}, True),
        ({"a": "1"}, {"a": 6, "b": 2}, True),  # Another writer appended it.
        ({}, {"a": 6, "b": 3}, True),
    ],
)
def test_what_comes_is_news_and_what_the_run_ingests_is_none(
    landed: dict[str, str], last: dict[str, int], is_news: bool
) -> None:
    before = WaitingWork(1, 10, frozenset({("a", "1")}), {"a": 5, "b": 2})
    assert WaitingWork(1, 10, frozenset(landed.items()), last).is_news(before) is is_news


def watch(trigger: WaitingTrigger, events: int, between: Any = None) -> list[dict[str, Any]]:
    """Returns so many events; `between` acts after each."""

    async def run() -> list[dict[str, Any]]:
        found = []
        async for event in trigger.run():
            found.append(event.payload)
            if len(found) == events:
                break
            between()
        return found

    # A browser of other tests keeps an event loop in the main thread.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, asyncio.wait_for(run(), 60)).result()


def test_a_landed_file_fires_once_and_the_next_one_again(tmp_path: Path) -> None:
    make_landing(tmp_path)
    land(tmp_path, 0, [record(offset, offset) for offset in range(20)])
    trigger = WaitingTrigger(str(tmp_path / "tidefold.yaml"), ["items"], look_every=0.001)
    more = lambda: land(tmp_path, 20, [record(offset, offset) for offset in range(20, 25)])  # noqa: E731
    first, second = watch(trigger, 2, more)
    assert (first["files"], second["files"]) == (1, 2)


def test_the_run_that_ingests_the_file_starts_no_second_run(tmp_path: Path) -> None:
    """Also if its gate fails: the changes wait, and nothing else came."""
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(offset, offset) for offset in range(20)])
    trigger = WaitingTrigger(str(tmp_path / "tidefold.yaml"), ["items"], look_every=0.001)
    real, looks = trigger._measure, []

    def measure() -> WaitingWork:
        looks.append(real())
        if len(looks) == 20:
            land(tmp_path, 20, [record(offset, offset) for offset in range(20, 25)])
        found: WaitingWork = looks[-1]
        return found

    trigger._measure = measure  # type: ignore[method-assign]
    first, second = watch(trigger, 2, lambda: take(pipeline))
    assert (first["files"], second["files"]) == (1, 1)
    assert any(look.files == 0 and look.bytes for look in looks)


def test_a_dag_without_its_configuration_is_an_import_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="config="):
        waiting_asset("orders", config=str(tmp_path / "tidefold.yaml"))


def test_a_look_that_fails_is_tried_again(tmp_path: Path) -> None:
    make_landing(tmp_path)
    land(tmp_path, 0, [record(0)])
    trigger = WaitingTrigger(str(tmp_path / "tidefold.yaml"), look_every=0.001)
    real, left = trigger._measure, [2]

    def measure() -> WaitingWork:
        if left[0]:
            left[0] -= 1
            raise ConnectionError("no store")
        found: WaitingWork = real()
        return found

    trigger._measure = measure  # type: ignore[method-assign]
    assert watch(trigger, 1)[0]["files"] == 1
    assert left == [0]


def test_a_dag_waits_for_its_asset(tmp_path: Path) -> None:
    make_landing(tmp_path)
    config = str(tmp_path / "tidefold.yaml")
    asset = waiting_asset("orders", config=config, above="100MB", after=timedelta(hours=1))
    [watcher] = asset.watchers
    path, given = watcher.trigger.serialize()
    assert WaitingTrigger(**given).serialize() == (path, given)
    assert (given["above"], given["after"]) == (100_000_000, 3600)
    dag = tidefold_dag("orders", schedule=[asset], config=config)
    assert isinstance(asset, Asset)
    assert dag.timetable.asset_condition


def test_the_random_delay_of_an_interval_is_within_it_and_stays() -> None:
    hourly = {spread_schedule("@hourly", f"dag {i}") for i in range(500)}
    assert hourly == {f"{minute} * * * *" for minute in range(60)}
    assert spread_schedule("@daily", "a") == spread_schedule("@daily", "a") != spread_schedule("@daily", "b")
    minute, hour, *_, day = spread_schedule("@weekly", "a").split()
    assert (int(minute) < 60, int(hour) < 24, int(day) < 7) == (True, True, True)
    assert spread_schedule("*/5 * * * *", "a") == "*/5 * * * *"
