"""The change tests that Spark, Paimon, Delta, Iceberg and Hudi publish, as cases of ours: where we agree or not.

Requirement S3; promise I25. docs/contributors/neighbours.md lists the same cases.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.folding import folded
from support.naive import rows_of
from support.neighbours import ALL, REFUSED, line
from support.neighbours.case import Case
from support.neighbours.refused import Refused
from tidefold.domain.table.table_spec import COLUMNS, VALID_FROM, VALID_TO, Engine
from tidefold.domain.table.table_spec_validation import merge_mistakes

PAGE = Path(__file__).parents[3] / "docs" / "contributors" / "neighbours.md"


@cache
def page_lines() -> frozenset[str]:
    return frozenset(PAGE.read_text().splitlines())


def named(case: Case | Refused) -> str:
    return case.name


def shown(case: Case, folds: list[list[dict[str, Any]]]) -> list[tuple[Any, ...]]:
    return [case.shown(row) for row in folded(case.shape, folds)]


def naive_rows(case: Case) -> list[tuple[Any, ...]]:
    rows = rows_of(case.shape, [change for fold in case.folds() for change in fold])
    if case.shape.merge.engine is Engine.HISTORY:
        spans = [{VALID_FROM: row["from"][0], VALID_TO: row["until"] and row["until"][0]} for row in rows]
        rows = [row | span for row, span in zip(rows, spans, strict=True)]
    return [case.shown(row) for row in rows]


@pytest.mark.rotates(6)
@pytest.mark.parametrize("case", ALL, ids=named)
def test_a_published_case_gives_the_rows_that_are_documented(case: Case) -> None:
    """Folded batch by batch, at once with repeats, backwards where the order is not that of arrival, and by the naive
    program. A case says that it differs where it does, and stands in the page.
    """
    assert not list(merge_mistakes(case.shape))
    folds = case.folds()
    whole = [change for fold in folds for change in fold]
    adds = case.shape.merge.engine is Engine.AGGREGATE
    ways = {"batch by batch": folds, "at once": [whole if adds else whole + whole]}
    if case.shape.order == COLUMNS and not adds:
        ways["backwards"] = [fold[::-1] for fold in folds[::-1]]
    found = {way: shown(case, given) for way, given in ways.items()} | {"naive": naive_rows(case)}
    assert found == {way: list(case.rows) for way in found}
    theirs = case.rows if case.theirs is None else case.theirs
    assert bool(case.why) == (theirs != case.rows)
    assert line(case) in page_lines()


@pytest.mark.parametrize("case", REFUSED, ids=named)
def test_a_definition_that_cannot_be_exact_is_refused_by_name(case: Refused) -> None:
    """An option without effect, or without a sure one, is a mistake."""
    assert {code for code, *_ in merge_mistakes(case.shape)} == {case.code}
    assert line(case) in page_lines()


def test_there_are_enough_cases_and_each_has_a_name_of_its_own() -> None:
    assert len({case.name for case in ALL}) == len(ALL) >= 40
    differ = sum(bool(case.why) for case in ALL)
    page = " ".join(PAGE.read_text().split())
    assert f"publish tests of how they handle changes. {len(ALL)} of them" in page
    assert f"{len(ALL) - differ} give the same rows; {differ} differ" in page
