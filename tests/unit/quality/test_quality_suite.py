"""Suites: what a suite file may say, what it is refused for, and what its hash covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidefold.domain.log_state import Column, TableSpec
from tidefold.errors import InvalidInputError
from tidefold.quality.suite.check import Severity
from tidefold.quality.suite.suite import Suite, load_suite

SHAPE = TableSpec(("aid",), (Column("aid", "int"), Column("bid", "int"), Column("day", "date")), "postgresql", 16, 4)

GOOD = """\
expectations:
  - type: expect_column_values_to_be_in_set
    kwargs: {column: bid, value_set: [1, 2]}
  - type: expect_column_values_to_be_between
    name: recent days
    severity: warn
    kwargs: {column: day, min_value: 2026-01-01}
"""


def suite_of(tmp_path: Path, text: str, shape: TableSpec = SHAPE, max_row_drop: float = 0.5) -> Suite:
    file = tmp_path / "suite.yaml"
    file.write_text(text)
    return load_suite(file, shape, max_row_drop)


def test_a_suite_file_becomes_checks_in_its_order(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, GOOD)
    assert [(c.name, c.severity) for c in suite.own] == [
        ("bid values to be in set", Severity.FAIL),
        ("recent days", Severity.WARN),
    ]


def test_built_in_checks_come_first_and_the_row_count_needs_a_base() -> None:
    suite = load_suite(None, SHAPE, 0.5)
    assert [c.name for c in suite.checks(10, None)] == ["aid unique", "aid not null", "row count of manifest"]
    assert [c.name for c in suite.checks(10, 100)][3:] == ["row count"]


def test_a_check_that_is_built_in_and_written_again_stands_once(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, "checks:\n- not_null: aid\n- not_null: bid\n- {not_null: aid, allow: 0.01}\n")
    names = [c.name for c in suite.checks(10, None)]
    assert names == ["aid unique", "aid not null", "row count of manifest", "bid not null", "aid not null"]


def test_a_compound_key_is_unique_as_a_whole_and_not_null_in_each_column() -> None:
    suite = Suite(("aid", "bid"), 0.5)
    unique, *nulls = suite.checks(1, None)[:3]
    assert (unique.type, unique.kwargs) == ("expect_compound_columns_to_be_unique", {"column_list": ["aid", "bid"]})
    assert [c.kwargs for c in nulls] == [{"column": "aid"}, {"column": "bid"}]


@pytest.mark.parametrize(
    ("base_rows", "drop", "least"),
    [(1000, 0.7, 300), (1000, 0.9, 100), (1000, 0, 1000), (1000, 1, 0), (3, 0.5, 2), (0, 0.5, 0)],
)
def test_the_row_count_may_drop_by_exactly_the_share_given(base_rows: int, drop: float, least: int) -> None:
    check = Suite(("aid",), drop).checks(0, base_rows)[-1]
    assert check.kwargs == {"min_value": least}


def test_the_hash_is_of_the_content_not_of_the_text(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, GOOD)
    reordered = GOOD.replace("{column: bid, value_set: [1, 2]}", "{value_set: [1, 2], column: bid}  # same")
    assert suite_of(tmp_path, reordered).sha256 == suite.sha256
    assert load_suite(None, SHAPE, 0.5).sha256 == suite_of(tmp_path, "expectations: []").sha256


@pytest.mark.parametrize(
    ("old", "new"),
    [("[1, 2]", "[1, 3]"), ("severity: warn", "severity: fail"), ("2026-01-01", "2026-01-02"), ("recent", "newer")],
)
def test_the_hash_changes_with_every_part_of_the_content(tmp_path: Path, old: str, new: str) -> None:
    assert suite_of(tmp_path, GOOD.replace(old, new)).sha256 != suite_of(tmp_path, GOOD).sha256


def test_the_hash_covers_the_built_in_checks() -> None:
    hashes = {Suite(key, drop).sha256 for key in (("aid",), ("aid", "bid"), ("bid", "aid")) for drop in (0.5, 0.6)}
    assert len(hashes) == 6


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- type: x", "1: must be a mapping with the keys `checks` and `expectations`"),
        ("", "1: must be a mapping with the keys `checks` and `expectations`"),
        ("expectation: []", "1: `expectation` is not a known key. Allowed here: checks, expectations. Did you mean"),
        ("expectations: 3", "1: `expectations` has the wrong type: it should be a valid list"),
        ("expectations:\n  - 3", "2: `expectations[0]` has the wrong type: it should be a mapping"),
        ("expectations:\n  - type: t\n    kwarg: {}", "3: `expectations[0].kwarg` is not a known key."),
        ("expectations:\n  - type: t\n    kwarg: {}", "Did you mean `kwargs`?"),
        ("expectations:\n  - kwargs: {}", "2: `expectations[0].type` is missing"),
        (
            "expectations:\n  - {type: t, severity: error}",
            "`expectations[0].severity` cannot be `error`.",
        ),
        ("expectations:\n  - {type: t, kwargs: [1]}", "`expectations[0].kwargs` has the wrong type"),
        ("expectations:\n  - {type: t, name: 3}", "`expectations[0].name` has the wrong type"),
        ('expectations:\n  - {type: t, name: "a\\nb"}', "`expectations[0].name` must be one line of text"),
        ("expectations:\n  - {type: t, kwargs: {column: bit}}", "kwargs.column` is `bit`, which is not a column"),
        ("expectations:\n  - {type: t, kwargs: {column: bit}}", "Did you mean `bid`?"),
        ("expectations:\n  - {type: t, kwargs: {column_list: [aid, x]}}", "kwargs.column_list[1]` is `x`"),
        ("expectations:\n  - {type: t, kwargs: {result_format: COMPLETE}}", "result_format` is set by tidefold"),
        ("expectations:\n  - {type: t, kwargs: {value: .nan}}", "kwargs` contains a value that is not text, a number"),
        ("expectations:\n  - {type: t, type: u}", "2: `expectations[0].type` occurs twice, first on line 2"),
        ("expectations: [", "is not YAML"),
        ("a: &a [*a]", "1: uses an anchor or alias"),
        ("expectations: !!python/object/apply:os.getcwd []", "1: uses the tag"),
    ],
)
def test_a_wrong_suite_file_is_refused_with_file_line_and_key(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        suite_of(tmp_path, text)
    assert refused.value.code == "SUITE_INVALID"
    assert str(tmp_path / "suite.yaml") in refused.value.message
    assert says in f"{refused.value.message} {refused.value.hint}"


def test_every_problem_of_a_suite_file_is_listed(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as refused:
        suite_of(tmp_path, "expectations:\n  - {typ: t}\n  - {type: t, kwargs: {column: nope}}")
    assert "suite.yaml:2: `expectations[0].typ` is not a known key" in refused.value.message
    assert "suite.yaml:3: `expectations[1].kwargs.column` is `nope`" in refused.value.message


def test_a_missing_or_binary_suite_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    for name, hint in (("absent.yaml", "Correct the path `quality.suite`"), ("binary.yaml", "Save it as UTF-8")):
        with pytest.raises(InvalidInputError) as refused:
            load_suite(tmp_path / name, SHAPE, 0.5)
        assert refused.value.code == "SUITE_UNREADABLE"
        assert hint in str(refused.value)


def test_a_row_drop_that_is_no_share_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="max_row_drop"):
        load_suite(None, SHAPE, 1.5)
