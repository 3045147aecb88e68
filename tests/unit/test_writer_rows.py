"""What may be appended, and what becomes of it. Requirements C1, S1; promise I28."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from builders import SHAPE as POSTGRESQL
from tidefold.changelog.columns import change_schema
from tidefold.lifecycle.errors import InvalidInputError
from tidefold.writer.rows import change_table, highest
from writing import SHAPE


def test_rows_get_every_system_column() -> None:
    table = change_table([{"id": 1, "text": "a"}, {"_op": "delete", "id": 2}], SHAPE, 10, 77)
    assert table.schema == change_schema(SHAPE)
    assert table.to_pylist() == [
        {"_op": 0, "_kg": 0, "_o0": 10, "_partition": 0, "_offset": 10, "_ts": 77, "id": 1, "text": "a"},
        {"_op": 1, "_kg": 0, "_o0": 11, "_partition": 0, "_offset": 11, "_ts": 77, "id": 2, "text": None},
    ]


def test_one_row_is_enough() -> None:
    assert change_table({"id": 1, "text": None}, SHAPE, 0, 0).num_rows == 1


@pytest.mark.parametrize("changes", [[], pa.table({"id": pa.array([], pa.int64()), "text": pa.array([], pa.string())})])
def test_no_change_is_no_row(changes: Any) -> None:
    assert change_table(changes, SHAPE, 0, 0).num_rows == 0


def test_a_table_is_taken_as_it_is() -> None:
    given = pa.table({"text": ["a", None], "id": pa.array([1, 2], pa.int64()), "_ts": [5, None]})
    table = change_table(given, SHAPE, 3, 77)
    assert table.schema == change_schema(SHAPE)
    assert (table["id"].to_pylist(), table["_ts"].to_pylist()) == ([1, 2], [5, 77])


@pytest.mark.parametrize("op", [["upsert", "delete"], [0, 1]])
def test_a_delete_fills_only_the_key(op: list[Any]) -> None:
    table = change_table(pa.table({"id": [1, 2], "text": ["a", "b"], "_op": op}), SHAPE, 0, 0)
    assert (table["_op"].to_pylist(), table["text"].to_pylist()) == ([0, 1], ["a", None])


def test_deletes_need_no_other_column() -> None:
    table = change_table(pa.table({"id": [1], "_op": ["delete"]}), SHAPE, 0, 0)
    assert table["text"].to_pylist() == [None]


def test_a_log_with_an_order_of_its_own_brings_it() -> None:
    given = [{"id": 1, "text": "a", "_o0": 7, "_o1": 1}, {"id": 1, "text": "b", "_o0": 9, "_o1": 0}]
    table = change_table(given, POSTGRESQL, 0, 0)
    assert (table["_o0"].to_pylist(), table["_o1"].to_pylist()) == ([7, 9], [1, 0])


def test_the_highest_order_is_compared_number_by_number() -> None:
    given = [{"id": 1, "text": "a", "_o0": o0, "_o1": o1} for o0, o1 in [(1, 99), (2, 3), (2, 5), (0, 100)]]
    assert highest(change_table(given, POSTGRESQL, 0, 0), POSTGRESQL) == (2, 5)


@pytest.mark.parametrize(
    "changes",
    [
        [{"id": 1}],
        [{"text": "a"}],
        [{"id": None, "text": "a"}],
        [{"id": 1, "text": "a", "other": 1}],
        [{"id": "one", "text": "a"}],
        [{"id": 2**40, "text": "a"}],
        [{"id": 1, "text": 5}],
        [{"_op": "merge", "id": 1, "text": "a"}],
        [{"_op": 2, "id": 1, "text": "a"}],
        [{"_op": None, "id": 1, "text": "a"}],
        [{"_op": "delete"}],
        [{"id": 1, "text": "a", "_o0": 1}],
        [{"id": 1, "text": "a", "_offset": 1}],
        [{"id": 1, "text": "a"}, {"id": 2}],
        [{"id": 1, "text": "a", "_ts": "noon"}],
        pa.table({"id": [1]}),
        pa.table({"id": [1, None], "text": ["a", "b"]}),
        pa.table({"id": [1.5], "text": ["a"]}),
        pa.table({"id": [2**40], "text": ["a"]}),
        pa.table({"id": [1, 2], "text": ["a", "b"], "_op": ["upsert", None]}),
        pa.table({"id": [1], "text": ["a"], "_op": [0.5]}),
    ],
)
def test_what_does_not_fit_the_log_is_refused(changes: Any) -> None:
    """I28: nothing is guessed, filled up or cut off."""
    with pytest.raises(InvalidInputError) as wrong:
        change_table(changes, SHAPE, 0, 0)
    assert wrong.value.code == "CHANGES_INVALID"
    assert wrong.value.hint


def test_an_order_that_is_missing_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        change_table([{"id": 1, "text": "a"}], POSTGRESQL, 0, 0)
