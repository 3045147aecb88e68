"""The catalogue of checks: what each entry becomes, and what it is refused for, with line and what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import suite_reference
from tidefold.domain.log_state import Column, TableSpec
from tidefold.errors import InvalidInputError
from tidefold.quality.suite.check import Check, Severity
from tidefold.quality.suite.suite import load_suite
from tidefold.yaml_files.document import ConfigError

TYPES = {
    "aid": "int", "bid": "long", "price": "decimal(10,2)", "ratio": "double", "status": "string", "flag": "boolean",
    "day": "date", "at": "timestamp", "raw": "binary",
}  # fmt: skip
SHAPE = TableSpec(("aid",), tuple(Column(n, t) for n, t in TYPES.items()), "postgresql", 16, 4)
LOGS = {"branches": {"bid": "int", "name": "string"}, "accounts": TYPES}


def checks_of(tmp_path: Path, text: str) -> tuple[Check, ...]:
    file = tmp_path / "suite.yaml"
    file.write_text(text)
    return load_suite(file, SHAPE, 0.5, LOGS).own


def one(tmp_path: Path, entry: str) -> Check:
    [check] = checks_of(tmp_path, f"checks:\n  - {entry}\n")
    return check


@pytest.mark.parametrize(
    ("entry", "name", "type_", "kwargs"),
    [
        ("unique: bid", "bid unique", "expect_column_values_to_be_unique", {"column": "bid"}),
        ("unique: [bid, day]", "bid, day unique", "expect_compound_columns_to_be_unique",
         {"column_list": ["bid", "day"]}),
        ("not_null: bid", "bid not null", "expect_column_values_to_not_be_null", {"column": "bid"}),
        ("{not_null: bid, allow: 0.01}", "bid not null", "expect_column_values_to_not_be_null",
         {"column": "bid", "mostly": 0.99}),
        ("range: {column: price, min: 0, max: 9.5}", "price from 0 to 9.5", "expect_column_values_to_be_between",
         {"column": "price", "min_value": 0, "max_value": 9.5}),
        ("range: {column: bid, min: 0}", "bid at least 0", "expect_column_values_to_be_between",
         {"column": "bid", "min_value": 0}),
        ("in_set: {column: status, values: [open, closed]}", "status in set", "expect_column_values_to_be_in_set",
         {"column": "status", "value_set": ["open", "closed"]}),
        ("not_in_set: {column: status, values: [lost]}", "status not in set", "expect_column_values_to_not_be_in_set",
         {"column": "status", "value_set": ["lost"]}),
        ("length: {column: status, min: 1}", "length of status at least 1", "expect_column_value_lengths_to_be_between",
         {"column": "status", "min_value": 1}),
        ("matches: {column: status, regex: '^o'}", "status matches ^o", "expect_column_values_to_match_regex",
         {"column": "status", "regex": "^o"}),
        ("row_count: {min: 1}", "row count at least 1", "expect_table_row_count_to_be_between", {"min_value": 1}),
        ("row_count_drift: {max_drop: 0.1}", "row count drift", "tidefold_row_count_drift", {"max_drop": 0.1}),
        ("sum_drift: {column: price, max_growth: 2}", "sum of price", "tidefold_sum_drift",
         {"column": "price", "max_growth": 2.0}),
        ("mean_drift: {column: ratio, max_drop: 0.5}", "mean of ratio", "tidefold_mean_drift",
         {"column": "ratio", "max_drop": 0.5}),
        ("freshness: {column: at, max_age: 2 days}", "at at most 2 days old", "tidefold_freshness",
         {"column": "at", "max_age_seconds": 172_800}),
        ("references: {column: bid, to: branches.bid}", "bid in branches.bid", "tidefold_references",
         {"column": "bid", "log": "branches", "log_column": "bid", "staged": False}),
        ("distribution: {column: flag, max_shift: 0.2}", "distribution of flag", "tidefold_distribution",
         {"column": "flag", "max_shift": 0.2}),
    ],
)  # fmt: skip
def test_an_entry_becomes_a_check(tmp_path: Path, entry: str, name: str, type_: str, kwargs: dict[str, Any]) -> None:
    check = one(tmp_path, entry)
    assert (check.name, check.type, check.kwargs, check.severity) == (name, type_, kwargs, Severity.FAIL)


def test_several_columns_that_may_not_be_null_are_several_checks(tmp_path: Path) -> None:
    checks = checks_of(tmp_path, "checks:\n  - {not_null: [bid, day], severity: warn, name: given}\n")
    assert [(c.name, c.severity) for c in checks] == [
        ("given (bid not null)", Severity.WARN),
        ("given (day not null)", Severity.WARN),
    ]


def test_the_catalogue_stands_beside_expectations_and_comes_first(tmp_path: Path) -> None:
    text = "expectations:\n  - {type: expect_column_to_exist, kwargs: {column: x}}\nchecks:\n  - unique: bid\n"
    assert [c.type for c in checks_of(tmp_path, text)] == [
        "expect_column_values_to_be_unique",
        "expect_column_to_exist",
    ]


# Entry, the key that the message names (below `checks[1]`), and what it says, hint included.
REFUSED = [
    ("3", "", "must be a mapping such as"),
    ("uniqe: bid", ".uniqe", "is not a known check. Did you mean `unique`?"),
    ("foo: bid", ".foo", "is not a known check. Checks are: unique, not_null, range"),
    ("{unique: bid, not_null: bid}", "", "must have exactly one check, but it has `unique`, `not_null`"),
    ("{severity: warn}", "", "must have exactly one check, but it has none"),
    ("{unique: bid, severity: error}", ".severity", "cannot be `error`. Allowed: fail, warn."),
    ("{unique: bid, name: 3}", ".name", "has the wrong type: it should be a valid string."),
    ('{unique: bid, name: "a\\nb"}', ".name", "must be one line of text."),
    ("unique: [bid, bid]", ".unique", "must name one column, or a list of different columns"),
    ("unique: []", ".unique", "must name one column, or a list of different columns"),
    ("unique: bit", ".unique", "is `bit`, which is not a column of the log. Did you mean `bid`?"),
    ("not_null: {a: b}", ".not_null", "which is not a column of the log. Columns are: aid, bid"),
    ("range: bid", ".range", "must be a mapping with `column`, `min` (optional), `max` (optional)"),
    ("range: {column: bid, mim: 0}", ".range.mim",
     "is not a known key. Allowed here: column, min, max. Did you mean `min`?"),
    ("range: {min: 0}", ".range.column", "is missing."),
    ("range: {column: bid}", ".range", "needs `min` or `max`"),
    ("range: {column: bid, min: 2, max: 1}", ".range", "has a `min` (2) that is greater than its `max` (1)"),
    ("range: {column: status, min: 1}", ".range.column", "of type `string`. Allowed types: `number` or `date`"),
    ("range: {column: bid, min: '1'}", ".range.min", "contains `1`, but `long` needs a number"),
    ("range: {column: bid, min: true}", ".range.min", "contains `true`, but `long` needs a number"),
    ("range: {column: bid, max: 9007199254740992}", ".range.max", "numbers from 2^53 on cannot be compared exactly"),
    ("range: {column: day, min: 5}", ".range.min", "contains `5`, but `date` needs a date, as 2026-01-31"),
    ("range: {column: day, min: 2026-13-31}", ".range.min", "`date` needs a date, as 2026-01-31"),
    ("range: {column: at, min: 2026-01-31}", ".range.min", "`timestamp` needs an instant, as 2026-01-31T00:00:00Z"),
    ("range: {column: bid, min: .nan}", ".range.min", "contains `nan`, but `long` needs a number"),
    ("in_set: {column: status, values: [no]}", ".in_set.values",
     "`string` needs text. Put it in quotes: YAML reads it as another type"),
    ("in_set: {column: bid, values: []}", ".in_set.values", "must be a list of at least one value"),
    ("in_set: {column: raw, values: [a]}", ".in_set.column", "is `raw` of type `binary`"),
    ("not_in_set: {column: bid, values: [a]}", ".not_in_set.values", "contains `a`, but `long` needs a number"),
    ("length: {column: bid, min: 1}", ".length.column", "is `bid` of type `long`. Allowed types: `string`"),
    ("length: {column: status, min: -1}", ".length.min", "is `-1`, but must be a whole number from 0"),
    ("matches: {column: bid, regex: a}", ".matches.column", "is `bid` of type `long`. Allowed types: `string`"),
    ("matches: {column: status, regex: 3}", ".matches.regex", "must be a regular expression, as text"),
    ("row_count: {}", ".row_count", "needs `min` or `max`"),
    ("row_count: {min: -1}", ".row_count.min", "is `-1`, but must be a whole number from 0"),
    ("{row_count: {min: 1}, allow: 0.1}", ".allow", "works only with checks of single rows: unique, not_null"),
    ("{unique: bid, allow: 1}", ".allow", "is `1`, but must be a share of rows"),
    ("row_count_drift: {}", ".row_count_drift", "needs `max_drop` or `max_growth`"),
    ("row_count_drift: {max_drop: -0.1}", ".row_count_drift.max_drop",
     "is `-0.1`, but must be a share from 0 up (0.1 is a tenth)"),
    ("sum_drift: {column: status, max_drop: 0.1}", ".sum_drift.column", "Allowed types: `number`"),
    ("sum_drift: {column: bid, max_drop: 10 %}", ".sum_drift.max_drop", "is `10 %`, but must be a share"),
    ("freshness: {column: bid, max_age: 2 days}", ".freshness.column", "Allowed types: `date` or `timestamp`"),
    ("freshness: {column: at, max_age: 2}", ".freshness.max_age",
     "is `2`, but must be like `30 minutes`, `12 hours` or `2 days`"),
    ("references: {column: bid, to: branch.bid}", ".references.to", "is not configured. Did you mean `branches`?"),
    ("references: {column: bid, to: branches}", ".references.to",
     "names column ``, which log `branches` does not have. Columns are: bid, name"),
    ("references: {column: bid, to: branches.bit}", ".references.to",
     "names column `bit`, which log `branches` does not have. Did you mean `bid`?"),
    ("references: {column: bid, to: branches.name}", ".references.to",
     "names `branches.name` of type `string`, but the column is of type `long`"),
    ("references: {column: bid, to: branches.bid, staged: 1}", ".references.staged",
     "is `1`, but must be true or false"),
    ("distribution: {column: bid, max_shift: 0}", ".distribution.max_shift",
     "is `0`, but must be a share from 0.01 to 1"),
    ("distribution: {column: raw, max_shift: 0.1}", ".distribution.column", "is `raw` of type `binary`"),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "key", "says"), REFUSED, ids=[case[0] for case in REFUSED])
def test_a_wrong_entry_is_refused_with_file_line_key_and_what_is_right(
    tmp_path: Path, entry: str, key: str, says: str
) -> None:
    """Bad input 94 to 110: nothing is guessed."""
    with pytest.raises(InvalidInputError) as refused:
        checks_of(tmp_path, f"checks:\n  - unique: aid\n  - {entry}\n")
    assert refused.value.code == "SUITE_INVALID"
    assert refused.value.message.startswith(f"{tmp_path / 'suite.yaml'}:3: `checks[1]{key}` ")
    assert says in f"{refused.value.message} {refused.value.hint}"


def test_a_mistake_is_named_with_its_own_line(tmp_path: Path) -> None:
    text = (
        "checks:\n  - range:\n      column: bid\n      min: x\n    severity: error\n  - in_set:\n      column: nope\n"
    )
    with pytest.raises(ConfigError) as refused:
        checks_of(tmp_path, text)
    assert [(p.line, p.key) for p in refused.value.problems] == [
        (4, "checks[0].range.min"),
        (5, "checks[0].severity"),
        (6, "checks[1].in_set.values"),
        (7, "checks[1].in_set.column"),
    ]


def test_tidefolds_own_checks_cannot_be_named_as_expectations(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is not an expectation") as refused:
        checks_of(tmp_path, "expectations:\n  - {type: tidefold_sum_drift, kwargs: {column: bid}}\n")
    assert "under `checks`" in refused.value.hint


def test_the_table_in_the_documentation_is_written_from_the_classes() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "quality.md").read_text()
    assert suite_reference.insert_table(text) == text, "run scripts/suite_reference.py"
