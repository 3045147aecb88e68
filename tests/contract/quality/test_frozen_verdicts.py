"""Verdicts are those of Great Expectations' own SQL engine, which judged before tidefold counted itself: promise I8."""

from __future__ import annotations

from typing import Any

import pytest

from support import frozen_verdicts
from tidefold.quality.run.duckdb_rows import open_duckdb
from tidefold.quality.run.metrics import can_judge
from tidefold.quality.suite.check import Check


def adapt(check: Check, frozen: list[Any]) -> list[Any]:
    """Returns a frozen result with the two differences that were chosen (decision 0084)."""
    passed, seen, detail, shown = frozen
    if "element_count" in seen and seen["element_count"] == seen.get("missing_count", 0):
        # SQL's sum over no rows was null.
        seen = {"unexpected_count": 0} | seen
    if check.type == "expect_compound_columns_to_be_unique" and check.kwargs.keys() & {
        "row_condition",
        "ignore_row_if",
    }:
        # The examples were also of rows that are not considered.
        shown = None
    return [passed, seen, detail, shown]


# Great Expectations takes 20 ms for each check, so a case has each third one.
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("number", range(10))
@pytest.mark.rotates(30)
def test_verdicts_are_the_frozen_ones(number: int, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidefold.quality.run.expectations._SAMPLED", 10_000)
    tables, checks, results = frozen_verdicts.read()
    judged = [(c, r) for c, r in zip(checks, results[number], strict=True) if can_judge(c, frozen_verdicts.TYPES)]
    # The others had arguments of other types than their columns: Spark judges them.
    assert len(judged) == len(checks) - 20
    judged = judged[part::3]
    frozen = [adapt(*pair) for pair in judged]
    with open_duckdb() as engine:
        rows = engine.load("frozen", tables[number].to_reader())
        found = frozen_verdicts.judge(rows, [check for check, _ in judged])
    pairs = zip(judged, frozen, found, strict=True)
    apart = [(c.kwargs, one, new) for (c, _), one, new in pairs if one != (new if one[3] else [*new[:3], None])]
    assert apart == []
