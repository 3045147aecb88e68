"""Verdicts are those of Great Expectations' own SQL engine, which judged before tidefold counted itself: promise I8."""

from __future__ import annotations

import pytest

from support import frozen_verdicts
from tidefold.quality.run.duckdb_rows import open_duckdb


@pytest.mark.parametrize("number", range(10))
@pytest.mark.rotates(5)
def test_verdicts_are_the_frozen_ones(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidefold.quality.run.expectations._SAMPLED", 10_000)
    tables, checks, results = frozen_verdicts.read()
    with open_duckdb() as engine:
        found = frozen_verdicts.judge(engine.load("frozen", tables[number].to_reader()), checks)
    pairs = zip(checks, results[number], found, strict=True)
    assert [(check.type, check.kwargs, one, other) for check, one, other in pairs if one != other] == []
