"""Rows, changes and what is kept beside rows in a newer schema: no value becomes null, none another one (S5)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidefold.changelog.key_group_hash import with_key_groups
from tidefold.changelog.schema import (
    CLEAR,
    DELETE,
    UPSERT,
    Aligner,
    arrow_type,
    change_schema,
    convert_column,
    sidecar_schema,
)
from tidefold.domain.table.table_spec import COLUMNS, Column, Engine, Merge, TableSpec
from tidefold.domain.table.types import Schema
from tidefold.errors import RefusedError

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NIGHT = datetime(2026, 1, 31, tzinfo=UTC)


def through(values: list[Any], *types: str) -> list[Any]:
    given = pa.chunked_array([pa.array(values, arrow_type(types[0]))])
    found = convert_column(given, "n", types)
    assert found.type == arrow_type(types[-1])
    return list(found.to_pylist())


@pytest.mark.parametrize(
    ("types", "values", "became"),
    [
        (("int", "long"), [1, None, -(2**31)], [1, None, -(2**31)]),
        (("int", "decimal(12,2)"), [2**31 - 1, None], [Decimal("2147483647.00"), None]),
        (("long", "decimal(19,0)"), [2**63 - 1], [Decimal(2**63 - 1)]),
        (("float", "double"), [0.5, None], [0.5, None]),
        (("decimal(4,2)", "decimal(6,4)"), [Decimal("99.99")], [Decimal("99.9900")]),
        (("date", "timestamp"), [date(2026, 1, 31), None, date(1, 1, 1)], [NIGHT, None, datetime(1, 1, 1, tzinfo=UTC)]),
        (("array<int>", "array<long>"), [[1, None], None, []], [[1, None], None, []]),
        (("long", "int"), [5, None], [5, None]),
        (("decimal(12,2)", "int"), [Decimal("5.00")], [5]),
        (("decimal(6,4)", "decimal(4,2)"), [Decimal("99.9900")], [Decimal("99.99")]),
        (("double", "float"), [0.5, float("inf")], [0.5, float("inf")]),
        (("timestamp", "date"), [NIGHT], [date(2026, 1, 31)]),
        (("long", "int", "long"), [2**40], [2**40]),
        (("long", "int", "decimal(12,0)"), [5], [Decimal(5)]),
        (("int", "string"), [5, None], ["5", None]),
        (("int", "decimal(12,2)", "string"), [5], ["5.00"]),
        (("decimal(10,7)", "string"), [Decimal("0.0000001"), None], ["0.0000001", None]),
        (("boolean", "string"), [True, False], ["true", "false"]),
        (("double", "string"), [0.1, 1e300], ["0.1", "1e+300"]),
        (("date", "string"), [date(2026, 1, 31)], ["2026-01-31"]),
        (("timestamp", "string"), [NOON], ["2026-01-31T12:00:00.000000Z"]),
    ],
)
def test_values_that_fit_stay_what_they_are(types: tuple[str, ...], values: list[Any], became: list[Any]) -> None:
    assert through(values, *types) == became
    assert through([], *types) == []


@pytest.mark.parametrize(
    ("types", "values", "bad"),
    [
        (("long", "int"), [1, 2**31], "2147483648"),
        (("decimal(12,2)", "int"), [Decimal("5.50")], "5.50"),
        (("decimal(19,0)", "long"), [Decimal("9223372036854775808")], "9223372036854775808"),
        (("decimal(6,4)", "decimal(4,2)"), [Decimal("0.0001")], "0.0001"),
        (("decimal(6,2)", "decimal(4,2)"), [Decimal("100.00")], "100.00"),
        (("double", "float"), [0.1], "0.1"),
        (("double", "float"), [1e300], "1e+300"),
        (("timestamp", "date"), [NIGHT, NOON], "12:00:00"),
        (("array<long>", "array<int>"), [[1], [2**40]], "1099511627776"),
        (("long", "int", "string"), [2**40], "1099511627776"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_and_never_null(
    types: tuple[str, ...], values: list[Any], bad: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        through(values, *types)
    assert refused.value.code == "VALUE_UNFIT"
    assert bad in refused.value.message
    assert f"type of `n` back to {types[0]}" in refused.value.hint


def test_nan_stays_nan() -> None:
    [value] = through([float("nan")], "double", "float")
    assert value != value


OLD = TableSpec(("id",), (Column("id", "int"), Column("n", "int"), Column("gone", "string")), "postgresql", 16, 4)
NEW = TableSpec(
    ("number",),
    (Column("more", "int", default="7"), Column("number", "long"), Column("n", "long")),
    "postgresql",
    16,
    4,
)
SCHEMAS = (Schema(1, OLD.columns, (1, 2, 3)), Schema(2, NEW.columns, (4, 1, 2)))


def changes(shape: TableSpec, *rows: dict[str, Any]) -> pa.Table:
    system = {"_kg": 0, "_o0": 1, "_o1": 1, "_partition": 0, "_offset": 0, "_ts": 0}
    return pa.Table.from_pylist([{**system, **row} for row in rows], schema=change_schema(shape))


def test_changes_of_an_older_schema() -> None:
    """A delete says nothing of other columns than its key, so it brings no value of a new one."""
    given = changes(
        OLD, {"_op": UPSERT, "id": 1, "n": 5, "gone": "x"}, {"_op": DELETE, "id": 2}, {"_op": CLEAR, "_kg": 3}
    )
    found = Aligner(NEW, 2, SCHEMAS).changes(given, 1)
    assert found.schema == change_schema(NEW)
    assert found.select(["_op", "number", "n", "more"]).to_pylist() == [
        {"_op": UPSERT, "number": 1, "n": 5, "more": 7},
        {"_op": DELETE, "number": 2, "n": None, "more": None},
        {"_op": CLEAR, "number": None, "n": None, "more": None},
    ]
    assert found.column("_absent").null_count == 3
    assert Aligner(NEW, 2, SCHEMAS).changes(found, 2) is found


@pytest.mark.parametrize("engine", [Engine.PARTIAL, Engine.AGGREGATE])
def test_an_older_change_says_nothing_of_a_column_that_came_later(engine: Engine) -> None:
    """Absent is not null: what a newer change gave the column stays, whichever is folded first."""
    old = TableSpec(("id",), OLD.columns, "postgresql", 16, 4, merge=Merge(engine))
    columns = (Column("id", "int"), Column("m", "int"), Column("more", "int"))
    schemas = (Schema(1, OLD.columns, (1, 2, 3)), Schema(2, columns, (1, 2, 4)))
    new = TableSpec(("id",), columns, "postgresql", 16, 4, merge=Merge(engine))
    given = changes(old, {"_op": UPSERT, "id": 1, "_absent": ["n", "gone"]}, {"_op": UPSERT, "id": 2, "n": 1})
    found = Aligner(new, 2, schemas).changes(given, 1)
    assert found.column("_absent").to_pylist() == [["m", "more"], ["more"]]
    assert found.column("more").to_pylist() == [None, None]


def rows_in(shape: TableSpec, *rows: dict[str, Any]) -> list[pa.RecordBatch]:
    names = {name for row in rows for name in row}
    schema = pa.schema([(c.name, arrow_type(c.type)) for c in shape.columns if c.name in names])
    return list(pa.Table.from_pylist([*rows], schema=schema).to_batches())


def test_rows_of_an_older_schema() -> None:
    aligner = Aligner(NEW, 2, SCHEMAS)
    assert (aligner.must_rewrite(1), aligner.names(1)) == (True, ["id", "n"])
    batches = rows_in(OLD, {"id": 1, "n": 5, "gone": "x"}, {"id": 2, "n": None, "gone": None})
    found = pa.Table.from_batches(aligner.rows(iter(batches), 1))
    assert found.to_pylist() == [{"more": 7, "number": 1, "n": 5}, {"more": 7, "number": 2, "n": None}]


def test_a_file_that_lacks_a_column_has_none_of_its_values() -> None:
    shape = TableSpec(("id",), (*OLD.columns, Column("more", "long")), "postgresql", 16, 4)
    schemas = (SCHEMAS[0], Schema(2, shape.columns, (1, 2, 3, 4)))
    aligner = Aligner(shape, 2, schemas)
    assert not aligner.must_rewrite(1)
    batches = rows_in(OLD, {"id": 1, "n": 5, "gone": "x"})
    for schema in (1, 2):
        [row] = pa.Table.from_batches(aligner.rows(iter(batches), schema)).to_pylist()
        assert row == {"id": 1, "n": 5, "gone": "x", "more": None}


def test_a_column_of_a_former_name_is_not_shown_under_it_again() -> None:
    """A name that was dropped and is added again is another column: the values of the first never come back."""
    middle = Schema(2, (OLD.columns[0],), (1,))
    again = Schema(3, OLD.columns, (1, 4, 5))
    aligner = Aligner(OLD, 3, (SCHEMAS[0], middle, again))
    assert aligner.must_rewrite(1)
    [row] = pa.Table.from_batches(aligner.rows(iter(rows_in(OLD, {"id": 1, "n": 5, "gone": "x"})), 1)).to_pylist()
    assert row == {"id": 1, "n": None, "gone": None}
    [change] = aligner.changes(changes(OLD, {"_op": UPSERT, "id": 1, "n": 5, "gone": "x"}), 1).to_pylist()
    assert (change["id"], change["n"], change["gone"]) == (1, None, None)


def test_what_is_kept_beside_rows_follows_the_names() -> None:
    merge = Merge(Engine.PARTIAL)
    columns = (Column("id", "int"), Column("at", "int"), Column("n", "int"), Column("gone", "int"))
    old = TableSpec(("id",), columns, COLUMNS, 16, 4, ("at",), merge)
    columns = (Column("number", "long"), Column("at", "int"), Column("m", "int"), Column("gone", "int"))
    new = TableSpec(("number",), columns, COLUMNS, 16, 4, ("at",), merge)
    schemas = (Schema(1, old.columns, (1, 2, 3, 4)), Schema(2, new.columns, (1, 2, 3, 5)))
    kept = [{"id": 1, "_column": name, "_order": [1, 0, i]} for i, name in enumerate(("", "+", "n", "gone", "at"))]
    found = Aligner(new, 2, schemas).align_sidecar(pa.Table.from_pylist(kept, schema=sidecar_schema(old)), 1)
    assert found.schema == sidecar_schema(new)
    assert [(row["number"], row["_column"], row["_order"][-1]) for row in found.to_pylist()] == [
        (1, "", 0), (1, "+", 1), (1, "m", 2), (1, "at", 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        ("int", "long", [-5, 0, 2**31 - 1]), ("int", "decimal(12,2)", [-5, 0, 100, 2**31 - 1]),
        ("long", "decimal(20,0)", [10**18, -1]), ("decimal(4,0)", "decimal(9,0)", [Decimal(100), Decimal(0)]),
        ("decimal(4,2)", "decimal(9,4)", [Decimal("10.10"), Decimal("0.00"), Decimal("-0.50")]),
    ],
)  # fmt: skip
def test_a_wider_key_stays_in_its_key_group(old: str, new: str, values: list[Any]) -> None:
    """Key groups are for ever (C5): the same number has the same one under every type that a key may be widened to."""
    groups = []
    for type_ in (old, new):
        shape = TableSpec(("id",), (Column("id", type_),), "postgresql", 128, 4)
        found = through(values, old, type_)
        table = pa.table({"id": pa.array(found, arrow_type(type_)), "_kg": pa.nulls(len(values), pa.uint16())})
        groups.append(with_key_groups(table, shape).column("_kg").to_pylist())
    assert groups[0] == groups[1]
