"""pytest plugin: one line of JSON a test, with its CPU seconds, into the folder that TIDEFOLD_TEST_RECORDS names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from test_tiers.cpu import measure_tree

ENVIRONMENT = "TIDEFOLD_TEST_RECORDS"


class Recorder:
    """Measures the tests of one pytest process. What runs between two tests counts to the second of them."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._before = measure_tree()
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._outcomes[report.nodeid] = report.outcome

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        result = yield
        now = measure_tree()
        record = {
            "test": item.nodeid,
            "cpu": round(now - self._before, 3),
            "outcome": self._outcomes.pop(item.nodeid, "failed"),
            "is_random": _is_random(item),
        }
        self._before = now
        with self._file.open("a") as stream:
            stream.write(json.dumps(record) + "\n")
        return result


def _is_random(item: pytest.Item) -> bool:
    """Whether the commit decides which part of the test is played, or Hypothesis draws examples."""
    if item.get_closest_marker("rotates") or hasattr(getattr(item, "obj", None), "hypothesis"):
        return True
    names: dict[str, Any] = getattr(getattr(item, "module", None), "__dict__", {})
    return any(getattr(value, "__module__", None) == "support.effort" for value in names.values())


def pytest_configure(config: pytest.Config) -> None:
    folder = os.environ.get(ENVIRONMENT)
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    is_controller = worker is None and bool(config.getoption("numprocesses", None))
    if folder and not is_controller:
        config.pluginmanager.register(Recorder(Path(folder) / f"{worker or 'main'}-{os.getpid()}.jsonl"))
