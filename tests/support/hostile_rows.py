"""Rows with hostile values of every type, and every expectation that makes sense for them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidefold.changelog.schema import table_schema
from tidefold.domain.log_state import Column, TableSpec
from tidefold.quality.suite.check import Check

VALUES: dict[str, list[Any]] = {
    "long": [0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)],
    "int": [0, 1, -1, 2**31 - 1, -(2**31)],
    "double": [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 1e308, 5e-324],
    "float": [0.0, -0.0, 0.5, math.nan, math.inf, -math.inf],
    "decimal(38,0)": [Decimal(0), Decimal(10**38 - 1), Decimal(-(10**38) + 1)],
    "decimal(38,38)": [Decimal(0), Decimal("0." + "9" * 38), Decimal("-0." + "9" * 38)],
    "decimal(12,2)": [Decimal("0.00"), Decimal("0.10"), Decimal("9999999999.99")],
    "string": ["", " ", "a", "A", "ab", "a\n", "a\r\n", "a\u2028", "\u00e4", "a\u0308", "\U0001f600", "a\x00b", "\t"],
    "boolean": [True, False],
    "date": [date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(1899, 12, 31), date(9999, 12, 31)],
    "timestamp": [
        datetime(1, 1, 1, tzinfo=UTC), datetime(1899, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(2026, 3, 29, 1, 30, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    ],
    "binary": [b"", b"\x00", b"a", b"\xff"],
}  # fmt: skip
SHAPE = TableSpec(
    ("id",), (Column("id", "long"), *(Column(f"c{n}", t) for n, t in enumerate(VALUES))), "arrival", 16, 4
)
NAMES = {type_: f"c{number}" for number, type_ in enumerate(VALUES)}
PATTERNS = (
    *(
        "^a$",
        "a.",
        "^.$",
        r"\s",
        r"^\S*$",
        r"^\w+$",
        r"\d",
        "^(a|A)b?$",
        "[a-z]{1,2}",
        "^[^a]*$",
        r"a\z",
        r"\.",
        "a+?b",
    ),
)


def random_rows(seed: int, count: int = 60) -> pa.Table:
    chance = random.Random(seed)
    columns: dict[str, list[Any]] = {"id": list(range(count))}
    for type_, name in NAMES.items():
        columns[name] = [None if chance.random() < 0.1 else chance.choice(VALUES[type_]) for _ in range(count)]
    return pa.table(columns, pa.schema([field.with_nullable(True) for field in table_schema(SHAPE)]))


def all_checks(seed: int, count: int = 60) -> Iterator[Check]:
    """Every expectation that the engine without a JVM judges, on every type for which it makes sense."""
    chance = random.Random(seed)
    for type_, name in NAMES.items():
        column = {"column": name}
        yield Check(f"null {type_}", "expect_column_values_to_not_be_null", column)
        yield Check(f"unique {type_}", "expect_column_values_to_be_unique", {**column, "mostly": 0.5})
        other = chance.choice(list(NAMES.values()))
        pair = {"column_list": [name, other] if other != name else [name, "id"]}
        yield Check(f"pair {type_}", "expect_compound_columns_to_be_unique", pair)
        usual = [v for v in VALUES[type_] if _is_bound(v)]
        if type_ not in ("string", "boolean", "binary"):
            low, high = sorted(chance.sample(usual, 2))
            bounds = {"min_value": _plain(low), "max_value": _plain(high)}
            yield Check(f"range {type_}", "expect_column_values_to_be_between", {**column, **bounds})
        if type_ in ("long", "int", "double", "string", "boolean", "date"):
            values = [_plain(v) for v in chance.sample(usual, min(2, len(usual)))]
            yield Check(f"set {type_}", "expect_column_values_to_be_in_set", {**column, "value_set": values})
            yield Check(f"not in set {type_}", "expect_column_values_to_not_be_in_set", {**column, "value_set": values})
    text = {"column": NAMES["string"]}
    yield Check("lengths", "expect_column_value_lengths_to_be_between", {**text, "min_value": 1, "max_value": 2})
    yield Check("long", "expect_column_value_lengths_to_be_between", {**text, "min_value": 1, "strict_min": True})
    yield Check("length", "expect_column_value_lengths_to_equal", {**text, "value": 2})
    for pattern in PATTERNS:
        arguments = {"column": NAMES["string"], "regex": pattern}
        yield Check(f"matches {pattern}", "expect_column_values_to_match_regex", arguments)
    yield Check("rows", "expect_table_row_count_to_be_between", {"min_value": count, "max_value": count})
    yield Check("rows", "expect_table_row_count_to_equal", {"value": count + 1})


def _is_bound(value: Any) -> bool:
    """Whether Spark can compare with it: it raises for dates of year 1, and misses instants of it by some hours."""
    return value.year > 1 if isinstance(value, date) else not isinstance(value, float) or math.isfinite(value)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value
