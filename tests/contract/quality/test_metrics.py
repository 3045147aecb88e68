"""What Great Expectations wants to know, by name. What is not known here is never a pass: promise I8."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from support import frozen_verdicts
from support.hostile_rows import NAMES, SHAPE, all_checks
from tidefold.errors import TidefoldError
from tidefold.quality.run.counts import Count
from tidefold.quality.run.duckdb_rows import open_duckdb
from tidefold.quality.run.expectations import _COUNTS, build_expectation, evaluate, judge_counts, list_metrics
from tidefold.quality.run.gx_import import load
from tidefold.quality.run.metrics import can_judge, find_answers, find_count
from tidefold.quality.suite.check import Check

VALUES = "expect_column_values_to_"
COLUMN = {"column", "batch_id", "table", "row_condition", "condition_parser"}
ROWS = COLUMN - {"column"}
BOUNDS = {"min_value", "max_value", "strict_min", "strict_max"}
TEXT, LONG = NAMES["string"], NAMES["long"]
# Each expectation that is counted here: arguments, the metric by which it judges, and that metric's arguments.
LENGTH = "column_values.value_length"
KNOWN: list[tuple[str, dict[str, Any], str, set[str]]] = [
    (f"{VALUES}not_be_null", {"column": TEXT}, "column_values.nonnull", set()),
    (f"{VALUES}be_null", {"column": TEXT}, "column_values.null", set()),
    (f"{VALUES}be_unique", {"column": TEXT}, "column_values.unique", set()),
    (f"{VALUES}be_between", {"column": LONG, "min_value": 1}, "column_values.between", BOUNDS),
    (f"{VALUES}be_in_set", {"column": TEXT, "value_set": ["a"]}, "column_values.in_set", {"value_set"}),
    (f"{VALUES}not_be_in_set", {"column": TEXT, "value_set": ["a"]}, "column_values.not_in_set", {"value_set"}),
    (f"{VALUES}match_regex", {"column": TEXT, "regex": "a"}, "column_values.match_regex", {"regex"}),
    ("expect_column_value_lengths_to_be_between", {"column": TEXT, "min_value": 1}, f"{LENGTH}.between", BOUNDS),
    ("expect_column_value_lengths_to_equal", {"column": TEXT, "value": 1}, f"{LENGTH}.equals", {"value"}),
]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    load()


def list_asked(check: Check) -> dict[str, tuple[set[str], set[str]]]:
    """Returns the metrics of a check with the keys of their domain and of their arguments."""
    asked = list_metrics(build_expectation(check, 0), _COUNTS)
    return {one.metric_name: (set(one.metric_domain_kwargs), set(one.metric_value_kwargs or {})) for one in asked}


@pytest.mark.parametrize(("type_", "arguments", "metric", "keys"), KNOWN, ids=[one[0] for one in KNOWN])
def test_an_expectation_names_its_metrics_and_their_arguments(
    type_: str, arguments: dict[str, Any], metric: str, keys: set[str]
) -> None:
    """It fails first when a new Great Expectations asks for something else."""
    asked = {"column_values.nonnull.unexpected_count": (COLUMN, set[str]())} | list_asked(Check("", type_, arguments))
    assert asked == {
        "table.row_count": (ROWS, set()),
        "column_values.nonnull.unexpected_count": (COLUMN, set()),
        f"{metric}.unexpected_count": (COLUMN, keys),
        f"{metric}.unexpected_values": (COLUMN, {*keys, "result_format"}),
    }


def test_expectations_of_several_columns_and_of_all_rows_name_theirs() -> None:
    domain = {*ROWS, "column_list", "ignore_row_if"}
    assert list_asked(Check("", "expect_compound_columns_to_be_unique", {"column_list": [TEXT, LONG]})) == {
        "table.row_count": (ROWS, set()),
        "compound_columns.unique.unexpected_count": (domain, set()),
        "compound_columns.unique.filtered_row_count": (domain, {"result_format"}),
        "compound_columns.unique.unexpected_values": (domain, {"result_format"}),
    }
    for type_, arguments in (("equal", {"value": 1}), ("be_between", {"min_value": 1})):
        asked = list_asked(Check("", f"expect_table_row_count_to_{type_}", arguments))
        assert asked == {"table.row_count": (ROWS, set())}


def test_the_engine_is_chosen_by_what_great_expectations_asks_for() -> None:
    """Before it is loaded, and from the arguments of the suite file."""
    checks = [*all_checks(0), *all_checks(1), *frozen_verdicts.read()[1]]
    for check in [one for one in checks if can_judge(one, SHAPE.types)]:
        expected = find_count(check, SHAPE.types)
        answers = find_answers(list_metrics(build_expectation(check, 0), _COUNTS), SHAPE.types)
        assert expected is not None
        assert answers is not None
        named = [(one.where, one.columns, one.same) for one in answers if isinstance(one, Count)]
        assert (expected.where, expected.columns, expected.same) in named, check


UNKNOWN = [
    Check("another metric", f"{VALUES}match_like_pattern", {"column": TEXT, "like_pattern": "a%"}),
    Check("a column's type", f"{VALUES}be_in_set", {"column": LONG, "value_set": ["1"]}),
    Check("a bound's type", f"{VALUES}be_between", {"column": NAMES["date"], "min_value": 1}),
    Check("a pattern of Java", f"{VALUES}match_regex", {"column": TEXT, "regex": "(?=a)"}),
    Check("SQL", f"{VALUES}not_be_null", {"column": TEXT, "row_condition": "c0 > 1", "condition_parser": "spark"}),
    Check(
        "an instant as a condition",
        f"{VALUES}not_be_null",
        {
            "column": TEXT,
            "row_condition": f'col("{NAMES["date"]}") > date("2026-01-01")',
            "condition_parser": "great_expectations",
        },
    ),
]


@pytest.mark.parametrize("check", UNKNOWN, ids=lambda check: check.name)
def test_what_is_unknown_is_left_to_spark_and_without_it_an_error_by_name(check: Check) -> None:
    """Over no rows every check would pass."""
    assert not can_judge(check, SHAPE.types)
    none = frozen_verdicts.read()[0][0].slice(0, 0)
    with open_duckdb() as engine, pytest.raises(TidefoldError, match=check.type) as raised:
        evaluate(engine.load("rows", none.to_reader()), [check])
    assert raised.value.code == "CHECK_NOT_COMPUTED"


def test_an_argument_that_a_newer_version_adds_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    check = Check("", f"{VALUES}be_in_set", {"column": TEXT, "value_set": ["a"]})
    asked = list_metrics(build_expectation(check, 0), _COUNTS)
    assert find_answers(asked, SHAPE.types) is not None
    for part in ("metric_value_kwargs", "metric_domain_kwargs"):
        [one] = [one for one in asked if one.metric_name == "column_values.in_set.unexpected_count"]
        monkeypatch.setattr(one, f"_{part}", {**getattr(one, part), "ignore_case": True})
        assert find_answers(asked, SHAPE.types) is None
        monkeypatch.undo()


def test_equal_numbers_of_different_types_share_no_count() -> None:
    """2**53 + 1 is 2.0**53 as a floating point number, and True is 1."""
    sets = [[2**53], [2.0**53], [1], [1.0]]
    checks = [Check("", f"{VALUES}be_in_set", {"column": "n", "value_set": one}) for one in sets]
    rows = pa.table({"n": pa.array([1, 2**53 + 1, 2**53 + 1])})
    asked: list[Count] = []
    with open_duckdb() as engine:
        judged = engine.load("rows", rows.to_reader())
        assert [one.unexpected for one in evaluate(judged, checks)] == [3, 1, 2, 2]
        expectations = [build_expectation(check, 0) for check in checks]
        judge_counts(expectations, _COUNTS, judged.types, lambda counts: asked.extend(counts) or [0] * len(counts))
    assert len([one for one in asked if one.values]) == 4
    assert Count("n = ?", (1,)) != Count("n = ?", (True,))


def test_a_count_that_duckdb_cannot_do_is_an_error_that_names_the_check() -> None:
    """And not one of all checks of the log."""
    rows = pa.table({"d": pa.array([Decimal("0.1")], pa.decimal128(38, 38))})
    bad = Check("", f"{VALUES}be_in_set", {"column": "d", "value_set": [5]})
    with open_duckdb() as engine:
        judged = engine.load("tidefold_rows", rows.to_reader())
        with pytest.raises(TidefoldError, match=r"be_in_set.*could not be computed.*value_set"):
            evaluate(judged, [Check("", f"{VALUES}be_null", {"column": "d"}), bad])
