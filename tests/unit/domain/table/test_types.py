"""Column types: their text, their encodings, and what decides a key group. Promises I25, I28."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidefold.changelog.key_group_hash import with_key_groups
from tidefold.changelog.schema import arrow_type, change_schema
from tidefold.changelog.writer.rows_to_arrow import fit_column, fit_values
from tidefold.domain.table.table_spec import Column, TableSpec
from tidefold.domain.table.types import Type, canonical, encodings_of, parse_type
from tidefold.errors import InvalidInputError


@pytest.mark.parametrize(
    ("text", "parsed", "arrow"),
    [
        ("long", Type("long"), pa.int64()),
        ("binary", Type("binary"), pa.binary()),
        ("decimal(12,2)", Type("decimal", 12, 2), pa.decimal128(12, 2)),
        ("decimal(38,38)", Type("decimal", 38, 38), pa.decimal128(38, 38)),
        ("array<string>", Type("array", element=Type("string")), pa.list_(pa.string())),
        ("array<decimal(5,0)>", Type("array", element=Type("decimal", 5, 0)), pa.list_(pa.decimal128(5, 0))),
    ],
)
def test_a_type_is_parsed_and_has_its_arrow_type(text: str, parsed: Type, arrow: pa.DataType) -> None:
    assert parse_type(text) == parsed
    assert arrow_type(text) == arrow


@pytest.mark.parametrize(
    "text",
    [
        *("", "Long", "bigint", "decimal", "decimal(0,0)", "decimal(39,2)", "decimal(5,6)", "decimal(5,-1)"),
        *("decimal(05,2)", "decimal(5, 2)", "array<>", "array<x>", "array<array<int>>", "array<int", "map<int,int>"),
    ],
)
def test_what_is_no_type_says_why(text: str) -> None:
    with pytest.raises(ValueError, match=r"types are|precision|array of arrays"):
        parse_type(text)


def test_blanks_are_not_part_of_a_type_and_encodings_of_an_array_are_its_elements() -> None:
    assert canonical("array< decimal(5, 2) >") == "array<decimal(5,2)>"
    assert encodings_of(parse_type("array<date>")) == ("days", "iso", "any")
    assert encodings_of(parse_type("array<binary>")) == ("base64", "base64url", "hex")


def groups(type_: str, values: list[Any]) -> list[int]:
    shape = TableSpec(("k",), (Column("k", type_),), "arrival", 32768, 1)
    rows = pa.Table.from_pylist([{"k": v} for v in values], schema=change_schema(shape))
    found: list[int] = with_key_groups(rows, shape).column("_kg").to_pylist()
    return found


def test_the_key_group_of_a_decimal_does_not_depend_on_its_scale() -> None:
    """I25: a wider type gives the same key group, so a widened column keeps its rows together."""
    values = [Decimal(v) for v in ("0", "1", "-1", "100", "-100", "12300")]
    assert len(set(groups("decimal(12,0)", values))) == len(values)
    for wider in ("decimal(12,2)", "decimal(38,10)"):
        assert groups(wider, values) == groups("decimal(12,0)", values)
    halves = [Decimal("0.5"), Decimal("-0.05"), Decimal("10.10")]
    assert groups("decimal(12,2)", halves) == groups("decimal(30,9)", halves)


@pytest.mark.parametrize(
    ("type_", "fits", "refused"),
    [
        ("decimal(5,2)", [Decimal("1.5"), 2, None, Decimal("-999.99")], [Decimal("1.505"), 1000, 1.5, True, "1"]),
        ("binary", [b"a", b"", None], ["a", 1, [1]]),
        ("array<int>", [[1, None], [], None, (2,)], [[1.5], "ab", [True], [2**31], 5]),
        ("array<string>", [["a"]], [[1], ["a", 1]]),
    ],
)
def test_values_that_are_appended_fit_without_loss_or_are_refused(
    type_: str, fits: list[Any], refused: list[Any]
) -> None:
    fitted = fit_values("c", fits, arrow_type(type_))
    assert fitted.type == arrow_type(type_)
    assert fitted.to_pylist() == [list(v) if isinstance(v, tuple) else v for v in fits]
    for value in refused:
        with pytest.raises(InvalidInputError, match=r"`c` of change 1 is .* does not fit"):
            fit_values("c", [None, value], arrow_type(type_))


def test_columns_of_tables_fit_without_loss_or_are_refused() -> None:
    money = arrow_type("decimal(5,2)")
    assert fit_column("c", pa.chunked_array([[7, -999]]), money).to_pylist() == [Decimal(7), Decimal(-999)]
    assert fit_column("c", pa.chunked_array([[[1]]]), pa.list_(pa.int32())).to_pylist() == [[1]]
    for column, type_ in (([1, 1000], money), ([Decimal("0"), Decimal("0.001")], money), ([b""], pa.string())):
        with pytest.raises(InvalidInputError):
            fit_column("c", pa.chunked_array([column]), type_)
