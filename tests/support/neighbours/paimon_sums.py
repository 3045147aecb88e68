"""Apache Paimon: the tests of its merge engine `aggregation` (repository apache/paimon)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

from support.neighbours.case import Case, shape
from tidefold.domain.table.table_spec import Engine

BOOLEANS = shape("j int, k int, a boolean, b boolean", "j k", Engine.AGGREGATE, functions="a bool_or, b bool_and")
LINES = shape("j int, k int, a array<string>", "j k", Engine.AGGREGATE, functions="a list")
LAST = shape("j int, k int, a int, i date", "j k", Engine.AGGREGATE)
LAST_GIVEN = shape("j int, k int, a int, b int, i date", "j k", Engine.AGGREGATE, functions="a last, b last, i last")
_SEVEN = "a int, b decimal(4,2), e long, h double, i date, l timestamp, n string"
_NAMES = "abehiln"
LEAST = shape(f"j int, k int, {_SEVEN}", "j k", Engine.AGGREGATE, functions=", ".join(f"{n} min" for n in _NAMES))
MOST = shape(f"j int, k int, {_SEVEN}", "j k", Engine.AGGREGATE, functions=", ".join(f"{n} max" for n in _NAMES))
SUMS = shape("j int, k int, a int, b decimal(4,2), e long", "j k", Engine.AGGREGATE, functions="a sum, b sum, e sum")
PRODUCTS = shape("j int, k int, a int, e long", "j k", Engine.AGGREGATE, functions="a product, e product")
FIRSTS = shape("k int, a int, c string", "k", Engine.AGGREGATE, functions="c first")
FIRST_NULL = shape("k int, a int, b string", "k", Engine.AGGREGATE, functions="b first")
LOCAL = shape("k int, v int, d int", "k d", Engine.AGGREGATE, functions="v sum")
ORDERED_SUM = shape("pk int, seq int, v int", "pk", Engine.AGGREGATE, by="seq", functions="seq max, v sum")
COLLECT = shape("id int, f0 array<string>", "id", Engine.AGGREGATE, functions="f0 list")
PRE = "PreAggregationITCase"
MARCH = (date(2020, 1, 1), date(2020, 1, 2), date(2022, 1, 2))
TIMES = tuple(datetime(*at, tzinfo=UTC) for at in ((2021, 1, 1, 1, 1, 1), (2022, 1, 1, 1, 1, 1), (2022, 1, 1, 2, 0, 0)))
THREE = [
    (1, 2, None, Decimal("1.01"), 1_000, 1.11, MARCH[0], TIMES[0], "aaa"),
    (1, 2, 2, Decimal("1.10"), 100_000, 1.21, MARCH[1], TIMES[1], "bbb"),
    (1, 2, 3, Decimal("10.00"), 10_000_000, -1.11, MARCH[2], TIMES[2], "ccc"),
]

CASES = [
    Case(
        "bool_or and bool_and, with a null",
        PRE,
        "BoolOrAndAggregation.testMergeInMemory",
        BOOLEANS,
        [[(1, 2, True, True), (1, 2, None, None), (1, 2, False, False)]],
        [(1, 2, True, False)],
    ),
    Case(
        "bool_or and bool_and over several batches",
        PRE,
        "BoolOrAndAggregation.testMergeCompaction",
        BOOLEANS,
        [
            [(1, 2, True, True)],
            [(1, 2, None, None)],
            [(1, 2, False, False)],
            [(1, 3, False, True)],
            [(1, 3, None, None)],
            [(1, 3, False, True)],
        ],
        [(1, 2, True, False), (1, 3, False, True)],
    ),
    Case(
        "texts one after the other",
        PRE,
        "ListAggAggregation.testMergeRead",
        LINES,
        [[(1, 2, ["first line"])], [(1, 2, None)], [(1, 2, ["second line"])]],
        [(1, 2, ["first line", "second line"])],
        [(1, 2, "first line,second line")],
        "there is no `listagg`; `list` keeps the parts as an array",
    ),
    Case(
        "last_value is a column without a function",
        PRE,
        "LastValueAggregation.testMergeCompaction",
        LAST,
        [
            [(1, 2, None, MARCH[0])],
            [(1, 2, 2, MARCH[1])],
            [(1, 2, 3, None)],
            [(1, 3, 3, MARCH[0])],
            [(1, 3, 2, None)],
            [(1, 3, None, MARCH[2])],
        ],
        [(1, 2, 3, None), (1, 3, None, MARCH[2])],
    ),
    Case(
        "last_non_null_value is `last`",
        PRE,
        "LastNonNullValueAggregation.testMergeCompaction",
        LAST_GIVEN,
        [
            [(1, 2, None, 3, MARCH[0])],
            [(1, 2, 2, None, MARCH[1])],
            [(1, 2, 3, 5, None)],
            [(1, 3, 3, 4, MARCH[0])],
            [(1, 3, 2, 6, None)],
            [(1, 3, None, None, MARCH[2])],
        ],
        [(1, 2, 3, 5, MARCH[1]), (1, 3, 2, 6, MARCH[2])],
    ),
    Case(
        "min of seven types",
        PRE,
        "MinAggregation.testMergeInMemory",
        LEAST,
        [THREE],
        [(1, 2, 2, Decimal("1.01"), 1_000, -1.11, MARCH[0], TIMES[0], "aaa")],
    ),
    Case(
        "max of seven types, in three batches",
        PRE,
        "MaxAggregation.testMergeRead",
        MOST,
        [[row] for row in THREE],
        [(1, 2, 3, Decimal("10.00"), 10_000_000, 1.21, MARCH[2], TIMES[2], "ccc")],
    ),
    Case(
        "sums, a null adds nothing (sums of float and double are refused by name)",
        PRE,
        "SumAggregation.testMergeInMemory",
        SUMS,
        [[(row[0], row[1], row[2], row[3], row[4]) for row in THREE]],
        [(1, 2, 5, Decimal("12.11"), 10_101_000)],
    ),
    Case(
        "products (of whole numbers only)",
        PRE,
        "ProductAggregation.testMergeInMemory",
        PRODUCTS,
        [[(row[0], row[1], row[2], row[4]) for row in THREE]],
        [(1, 2, 6, 1_000_000_000_000_000)],
    ),
    Case(
        "first_non_null_value is `first`",
        PRE,
        "FirstValueAggregation.testMergeRead",
        FIRSTS,
        [[(1, 1, None)], [(1, 2, "1")], [(2, 1, "2")], [(2, 2, "22")]],
        [(1, 2, "1"), (2, 2, "2")],
    ),
    Case(
        "first_value that was null",
        PRE,
        "FirstValueAggregation.testMergeRead (column b)",
        FIRST_NULL,
        [[(1, 1, None)], [(1, 2, "1")], [(2, 1, "2")], [(2, 2, "22")]],
        [(1, 2, "1"), (2, 2, "2")],
        [(1, 2, None), (2, 2, "2")],
        "`first` takes the first value that is not null; a function that keeps a null is missing",
    ),
    Case(
        "a sum for a key of two columns",
        PRE,
        "BasicAggregateITCase.testLocalMerge",
        LOCAL,
        [[(1, 1, 1), (2, 1, 1), (1, 2, 1)]],
        [(1, 3, 1), (2, 1, 1)],
    ),
    Case(
        "a sum in a table with a sequence field",
        PRE,
        "BasicAggregateITCase.testSequenceFieldWithDefaultAgg",
        ORDERED_SUM,
        [[(0, 1, 1)], [(0, 2, 2)]],
        [(0, 2, 3)],
    ),
    Case(
        "arrays one after the other",
        PRE,
        "CollectAggregationITCase.testAggWithoutDistinct",
        COLLECT,
        [
            [(1, None), (2, ["A", "B", "B"]), (3, ["car", "watch"])],
            [(1, ["paimon", "paimon"]), (2, ["A", "B", "C"]), (3, None)],
        ],
        [(1, ["paimon", "paimon"]), (2, ["A", "B", "B", "A", "B", "C"]), (3, ["car", "watch"])],
    ),
    Case(
        "arrays, each element once",
        PRE,
        "CollectAggregationITCase.testAggWithDistinct",
        COLLECT,
        [[(1, None), (2, ["A", "B"])], [(1, ["paimon", "paimon"]), (2, ["A", "B", "C"])]],
        [(1, ["paimon", "paimon"]), (2, ["A", "B", "A", "B", "C"])],
        [(1, ["paimon"]), (2, ["A", "B", "C"])],
        "`list` keeps repeats; there is no function for distinct ones",
    ),
]
