"""How often the gate without a JVM reads: each file once, and the rows once for all checks of single rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from support.staging import ROWS, give_suite, make_pipeline, stage
from tidefold.operations.quality.judge import judge
from tidefold.quality.run.duckdb_rows import DuckDBRows, open_duckdb
from tidefold.storage.local_store import LocalStore
from tidefold.wiring import Pipeline


def check_of(kind: str, **arguments: Any) -> dict[str, Any]:
    return {"type": f"expect_column_values_to_{kind}", "kwargs": arguments}


# With the three that are always there, 20.
CHECKS = [
    *(check_of("be_between", column="aid", min_value=-n) for n in range(5)),
    *(check_of("be_between", column="bid", max_value=100 + n) for n in range(5)),
    *(check_of("match_regex", column="filler", regex=regex) for regex in (".*", "^.*$")),
    *(check_of("be_in_set", column="bid", value_set=[*range(3 + n)]) for n in range(3)),
    *(check_of("not_be_null", column=column) for column in ("bid", "filler")),
]


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries over the judged rows."""
    seen: list[str] = []
    query = DuckDBRows.query

    def note(rows: DuckDBRows, sql: str, values: Sequence[Any] = ()) -> Any:
        seen.append(sql)
        return query(rows, sql, values)

    monkeypatch.setattr(DuckDBRows, "query", note)
    return seen


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The data files that were opened."""
    seen: list[str] = []
    open_file = LocalStore.open

    def note(store: LocalStore, path: str) -> Any:
        if path.endswith(".parquet"):
            seen.append(path)
        return open_file(store, path)

    monkeypatch.setattr(LocalStore, "open", note)
    return seen


@pytest.fixture
def pipeline(tmp_path: Any) -> Pipeline:
    made = make_pipeline(tmp_path, "store")
    stage(made, ROWS)
    return made


def judge_with(pipeline: Pipeline, *checks: dict[str, Any]) -> str:
    give_suite(pipeline, *checks)
    with open_duckdb() as engine:
        [outcome] = judge(pipeline, ["accounts"], None, engine)
    return outcome.message


def test_twenty_checks_read_each_file_once_and_the_rows_once_and_once_for_each_unique_key(
    pipeline: Pipeline, opened: list[str], statements: list[str]
) -> None:
    assert judge_with(pipeline, *CHECKS) == "snapshot 1 passed: 20 checks passed"
    assert len(opened) == len(set(opened)) == 1
    assert ["GROUP BY" in one for one in statements] == [False, True]


def test_samples_of_failed_rows_open_no_file_again(
    pipeline: Pipeline, opened: list[str], statements: list[str]
) -> None:
    bad = [check_of("be_between", column="aid", max_value=n) for n in range(5)]
    assert judge_with(pipeline, *CHECKS[:12], *bad).startswith("snapshot 1 failed: 5 of 20 checks failed")
    assert len(opened) == 1
    # Counted once more for all failed checks together; each sample ends at its tenth row.
    assert sum("LIMIT" not in one for one in statements) == 3
    assert len(statements) == 8
