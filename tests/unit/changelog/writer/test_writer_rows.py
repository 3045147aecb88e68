"""What may be appended, and what becomes of it. Requirements C1, S1; promise I28."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from support.builders import SHAPE as POSTGRESQL
from support.writing import SHAPE
from tidefold.changelog.schema import change_schema
from tidefold.changelog.writer.rows_to_arrow import change_table, highest
from tidefold.domain.log_state import Column, TableSpec
from tidefold.errors import InvalidInputError

NOON = datetime(2026, 3, 4, 12)


def wide(type_: str) -> TableSpec:
    return TableSpec(("id",), (Column("id", "int"), Column("v", type_)), "arrival", 16, 4)


def refusal(changes: Any, shape: TableSpec = SHAPE) -> str:
    with pytest.raises(InvalidInputError) as wrong:
        change_table(changes, shape, 0, 0)
    assert wrong.value.code == "CHANGES_INVALID"
    assert wrong.value.hint
    str(wrong.value).encode()  # Can be printed.
    return wrong.value.message


def test_rows_get_every_system_column() -> None:
    table = change_table([{"id": 1, "text": "a"}, {"_op": "delete", "id": 2}], SHAPE, 10, 77)
    assert table.schema == change_schema(SHAPE)
    assert table.to_pylist() == [
        {
            "_op": 0,
            "_kg": 0,
            "_o0": 10,
            "_partition": 0,
            "_offset": 10,
            "_ts": 77,
            "_absent": None,
            "id": 1,
            "text": "a",
        },
        {
            "_op": 1,
            "_kg": 0,
            "_o0": 11,
            "_partition": 0,
            "_offset": 11,
            "_ts": 77,
            "_absent": None,
            "id": 2,
            "text": None,
        },
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


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("int", 19.99),
        ("int", 2.0),
        ("int", True),
        ("int", "3"),
        ("int", Decimal(2)),
        ("int", 2**31),
        ("long", 1.5),
        ("float", 1e300),
        ("float", 1e-300),
        ("float", 2**24 + 1),
        ("float", True),
        ("double", 2**53 + 1),
        ("double", "1.5"),
        ("double", Decimal("1.5")),
        ("string", 7),
        ("string", b"x"),
        ("string", NOON.date()),
        ("boolean", 1),
        ("boolean", "true"),
        ("date", NOON),
        ("date", datetime(2026, 3, 4)),  # Midnight is an instant too.
        ("date", 3),
        ("date", "2026-03-04"),
        ("timestamp", NOON.date()),
        ("timestamp", 3),
        ("timestamp", "2026-03-04 12:00"),
    ],
)
def test_a_value_of_another_kind_is_refused_in_rows_and_in_tables(type_: str, value: Any, bare: bool) -> None:
    """I28: the same rules for both; column, change and value are named."""
    if bare:
        changes: Any = pa.table({"id": pa.array([1, 2], pa.int32()), "v": pa.array([None, value])})
    else:
        changes = [{"id": 1, "v": None}, {"id": 2, "v": value}]
    message = refusal(changes, wide(type_))
    assert "`v` of change 1 is " in message
    assert f"does not fit {type_}" in message
    assert repr(value)[:37] in message


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize(
    ("type_", "given", "taken"),
    [
        ("int", 2**31 - 1, 2**31 - 1),
        ("long", 3, 3),
        ("double", 2**53, 2.0**53),
        ("double", 1.5, 1.5),
        ("float", 2**24, 2.0**24),
        ("float", 1.5, 1.5),
        ("float", 0.0, 0.0),
        ("float", float("inf"), float("inf")),
        ("string", "\u00e4", "\u00e4"),
        ("boolean", True, True),
        ("date", date(2026, 3, 4), date(2026, 3, 4)),
        ("timestamp", NOON, NOON.replace(tzinfo=UTC)),
        ("timestamp", NOON.replace(tzinfo=timezone(timedelta(hours=2))), datetime(2026, 3, 4, 10, tzinfo=UTC)),
    ],
)
def test_what_widens_without_loss_is_taken(type_: str, given: Any, taken: Any, bare: bool) -> None:
    rows = [{"id": 1, "v": given}, {"id": 2, "v": None}]
    changes: Any = pa.Table.from_pylist(rows) if bare else rows
    assert change_table(changes, wide(type_), 0, 0)["v"].to_pylist() == [taken, None]


def test_a_float_is_rounded_to_its_precision_in_rows_and_in_tables() -> None:
    rows = [{"id": 1, "v": 19.99}]
    for changes in (rows, pa.Table.from_pylist(rows)):
        assert change_table(changes, wide("float"), 0, 0)["v"].to_pylist() == [pytest.approx(19.99, rel=1e-7)]


def test_whole_numbers_and_fractions_may_stand_in_one_column() -> None:
    rows = [{"id": 1, "v": 1}, {"id": 2, "v": 1.5}]
    assert change_table(rows, wide("double"), 0, 0)["v"].to_pylist() == [1.0, 1.5]
    assert "`v` of change 1 is 9007199254740993 (int)" in refusal([rows[1], {"id": 2, "v": 2**53 + 1}], wide("double"))


@pytest.mark.parametrize(
    ("type_", "column"),
    [
        ("timestamp", pa.array([1_000, None], pa.timestamp("ns"))),
        ("timestamp", pa.array([1, None], pa.timestamp("s", tz="Europe/Berlin"))),
        ("date", pa.array([86_400_000, None], pa.date64())),
        ("string", pa.array(["a", None], pa.large_string())),
        ("string", pa.array(["a", None], pa.string_view())),
        ("string", pa.array(["a", None]).dictionary_encode()),
        ("int", pa.array([1, None], pa.uint64())),
        ("date", pa.nulls(2)),
    ],
)
def test_columns_of_other_widths_are_taken(type_: str, column: pa.Array) -> None:
    given = pa.table({"id": [1, 2], "v": column})
    taken = change_table(given, wide(type_), 0, 0)["v"]
    assert taken.null_count == column.null_count
    assert taken.type == change_schema(wide(type_)).field("v").type


@pytest.mark.parametrize(
    ("type_", "column"),
    [
        ("timestamp", pa.array([1_000, 1], pa.timestamp("ns"))),
        ("timestamp", pa.array([0, 2**62], pa.timestamp("s"))),
        ("date", pa.array([0, 5], pa.date64())),
        ("long", pa.array([0, 2**63], pa.uint64())),
        ("int", pa.array(["a", "b"]).dictionary_encode()),
    ],
)
def test_a_column_that_would_lose_something_is_refused(type_: str, column: pa.Array) -> None:
    number = 0 if pa.types.is_dictionary(column.type) else 1
    assert f"`v` of change {number} is " in refusal(pa.table({"id": [1, 2], "v": column}), wide(type_))


def test_an_empty_column_of_another_kind_is_refused() -> None:
    given = pa.table({"id": [1], "v": pa.nulls(1, pa.string())})
    assert "`v` is a column of string, not of int" in refusal(given, wide("int"))


def test_an_instant_with_nanoseconds_is_refused() -> None:
    """Instants of pandas are datetimes, and hold more, or nothing."""

    class Nanoseconds(datetime):
        nanosecond = 1

    class Nothing(datetime):
        def __eq__(self, other: object) -> bool:
            return False

        __hash__ = datetime.__hash__

    for kind in (Nanoseconds, Nothing):
        changes = [{"id": 1, "v": NOON}, {"id": 2, "v": kind(2026, 3, 4)}]
        assert "`v` of change 1 is " in refusal(changes, wide("timestamp"))


def test_keys_instants_and_orders_are_whole_numbers() -> None:
    """A key that is cut off would be another row's."""
    assert "`id` of change 0 is 2.7 (float)" in refusal({"id": 2.7, "text": "a"})
    assert "`id` of change 1 is 4.9 (float)" in refusal([{"id": 1, "text": "a"}, {"_op": "delete", "id": 4.9}])
    assert "`_ts` of change 0 is 1.7 (float)" in refusal({"id": 1, "text": "a", "_ts": 1.7})
    assert "`_ts` of change 0 is '5' (string)" in refusal(pa.table({"id": [1], "text": ["a"], "_ts": ["5"]}))
    assert "`_o1` of change 0 is 0.5" in refusal({"id": 1, "text": "a", "_o0": 1, "_o1": 0.5}, POSTGRESQL)
    assert "`id` of change 1 is null" in refusal([{"id": 1, "text": "a"}, {"id": None, "text": "a"}])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (None, "None is no changes"),
        (5, "5 is no changes"),
        ([None], "Change 0 is None (NoneType), no mapping"),
        ("ab", "Change 0 is 'a' (str), no mapping"),
        ([{"id": 1, "text": "\ud800"}], "`text` of change 0 is '\\ud800' (str)"),
        ([{"\ud800": 1}], "'\\ud800' is no column"),
        ([{"_op": "merge", "id": 1}], "`_op` of change 0 is 'merge'"),
        ([{"id": 1, "text": "a", "_op": 0}, {"_op": True, "id": 1}], "`_op` of change 1 is True"),
        ([{"_op": 1.0, "id": 1}], "`_op` of change 0 is 1.0"),
        ([{"_op": [1], "id": 1}], "`_op` of change 0 is [1]"),
        ([{"id": 1, "text": "a"}, {"id": 2}], "Change 1 has no `text`"),
        ([{"id": 1, "text": ["x" * 1000]}], "..."),
        (pa.table({"id": [1, 2], "text": ["a", "b"], "_op": ["delete", "merge"]}), "`_op` of change 1 is 'merge'"),
        (pa.table({"id": [1, 2], "text": ["a", "b"], "_op": [0, 2]}), "`_op` of change 1 is 2"),
        (pa.table([[1], ["a"], ["b"]], names=["id", "text", "text"]), "`text` is there twice"),
    ],
)
def test_the_refusal_says_what_is_wrong(changes: Any, said: str) -> None:
    message = refusal(changes)
    assert said in message
    assert len(message) < 200


@pytest.mark.parametrize("changes", [[], pa.table({}), iter([])])
def test_no_change_is_taken_by_a_log_with_an_order_of_its_own(changes: Any) -> None:
    table = change_table(changes, POSTGRESQL, 0, 0)
    assert (table.num_rows, table.schema) == (0, change_schema(POSTGRESQL))
