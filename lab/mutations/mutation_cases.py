"""A plugin of pytest for `mutations.reach`: runs some cases of each test function, and records what each costs.

MUTATION_CASES: how many cases of a test function run. MUTATION_EFFORT: the file that gains a line for each
case: its name, its CPU seconds, and whether it passed.
"""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from collections.abc import Iterator

import pytest

_FAILED: set[str] = set()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps a fixed choice of the cases of each test function."""
    cases = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    most = int(os.environ.get("MUTATION_CASES", "1000000"))
    kept = {
        id(item)
        for name, same in cases.items()
        for item in (same if len(same) <= most else random.Random(name).sample(same, most))
    }
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = [item for item in items if id(item) in kept]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _FAILED.add(report.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    begin = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        entry = [item.nodeid, round(sum(os.times()[:4]) - begin, 3), item.nodeid not in _FAILED]
        with open(os.environ["MUTATION_EFFORT"], "a") as file:
            print(json.dumps(entry), file=file)
