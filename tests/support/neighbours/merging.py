"""MERGE of Delta Lake and Apache Iceberg, and the merge modes of Apache Hudi.

A target that the published test begins with comes as a batch of its own. Expressions of a MERGE (`SET value = s.value +
3`) are no changes and are left out: only tests whose changes bring whole rows are here.
"""

from __future__ import annotations

from support.neighbours.case import Case, gone, shape
from tidefold.domain.table.table_spec import Engine

PAIRS = shape("id int, value int")
FIRST = shape("id int, value int", engine=Engine.FIRST)
TEXTS = shape("id string, value int")
NUMBERS = shape("id long")
DEPARTMENTS = shape("id int, dep string")
PRICES = shape("id int, name string, price double, ts long", by="ts")
DELTA, ICEBERG, HUDI = "MergeIntoSuiteBase", "TestMerge", "TestMergeModeEventTimeOrdering"
ONE_ROW = "a key has one row"
REDUCED = "changes of a key are reduced to the last one first; none is an error"

CASES = [
    Case(
        "update and insert of whole rows",
        DELTA,
        "star syntax - basic star expansion",
        TEXTS,
        [[("a", 1), ("b", 2)], [("a", 10), ("c", 30)]],
        [("a", 10), ("b", 2), ("c", 30)],
    ),
    Case(
        "deletes of every second row",
        DELTA,
        "special character in path - matched delete",
        NUMBERS,
        [[(i,) for i in range(10)], [gone(i) for i in range(0, 10, 2)]],
        [(i,) for i in range(1, 10, 2)],
    ),
    Case(
        "two source rows for one target row",
        DELTA,
        "Negative case - more than one source rows match the same target row",
        PAIRS,
        [[(2, 2), (1, 4)], [(1, 1), (0, 3), (1, 5)]],
        [(0, 3), (1, 5), (2, 2)],
        "error: multiple source rows matched",
        REDUCED,
    ),
    Case(
        "deletes and inserts, each twice",
        DELTA,
        "extended syntax - delete + insert with multiple matches for both",
        PAIRS,
        [[(1, 1), (2, 2)], [gone(1), gone(1), (3, 30), (3, 300)]],
        [(2, 2), (3, 300)],
        [(2, 2), (3, 30), (3, 300)],
        ONE_ROW,
    ),
    Case(
        "only inserts of what is not there",
        DELTA,
        "extended syntax - insert only merge",
        FIRST,
        [[(1, 1), (2, 2)], [(0, 0), (1, 10), (3, 30)]],
        [(0, 0), (1, 1), (2, 2), (3, 30)],
    ),
    Case(
        "only inserts, a new key twice",
        DELTA,
        "extended syntax - insert only merge with multiple matches",
        FIRST,
        [[(1, 1), (2, 2)], [(0, 0), (1, 10), (1, 100), (3, 30), (3, 300)]],
        [(0, 0), (1, 1), (2, 2), (3, 30)],
        [(0, 0), (1, 1), (2, 2), (3, 30), (3, 300)],
        ONE_ROW,
    ),
    Case(
        "inserts into an empty table",
        ICEBERG,
        "testMergeIntoEmptyTargetInsertAllNonMatchingRows",
        DEPARTMENTS,
        [[(1, "emp-id-1"), (2, "emp-id-2"), (3, "emp-id-3")]],
        [(1, "emp-id-1"), (2, "emp-id-2"), (3, "emp-id-3")],
    ),
    Case(
        "update, delete and insert in one batch",
        ICEBERG,
        "testMergeWithMatchedAndNotMatchedClauses",
        DEPARTMENTS,
        [[(1, "emp-id-one"), (6, "emp-id-6")], [(2, "emp-id-2"), (1, "emp-id-1"), gone(6)]],
        [(1, "emp-id-1"), (2, "emp-id-2")],
    ),
    Case(
        "a delete beside a row with a null",
        ICEBERG,
        "testMergeWithOnlyDeleteNullUnmatchedValues",
        PAIRS,
        [[(1, 2), (6, None)], [gone(1)]],
        [(6, None)],
    ),
    Case(
        "two source rows for one target row (Iceberg)",
        ICEBERG,
        "testMergeWithOneMatchingBranchButMultipleSourceRowsForTargetRow (all clauses update or insert)",
        DEPARTMENTS,
        [[(1, "emp-id-one"), (6, "emp-id-6")], [(1, "on"), (1, "off"), (10, "on")]],
        [(1, "off"), (6, "emp-id-6"), (10, "on")],
        "error: a single row from the target table matched multiple rows of the source table",
        REDUCED,
    ),
    Case(
        "at equal event time what came later counts",
        HUDI,
        "table with EVENT_TIME_ORDERING (inserts with the same ts)",
        PRICES,
        [[(1, "A", 10.0, 100), (2, "B", 20.0, 100)], [(1, "A_equal", 60.0, 100), (2, "B_equal", 70.0, 100)]],
        [(1, "A_equal", 60.0, 100), (2, "B_equal", 70.0, 100)],
    ),
    Case(
        "an older event time does not count, a newer one does",
        HUDI,
        "table with EVENT_TIME_ORDERING (ts 99, 98, 101, 102)",
        PRICES,
        [
            [(1, "A_equal", 50.0, 100), (2, "B_equal", 70.0, 100)],
            [(1, "A", 30.0, 99), (2, "B", 40.0, 99)],
            [(1, "A_equal", 50.0, 98)],
            [(1, "A", 30.0, 101), (2, "B", 40.0, 101)],
            [(1, "A", 50.0, 102)],
        ],
        [(1, "A", 50.0, 102), (2, "B", 40.0, 101)],
    ),
    Case(
        "deletes and updates with older, equal and newer event time",
        HUDI,
        "merge operations with EVENT_TIME_ORDERING for mor table",
        PRICES,
        [
            [(i, name, 10.0 * i, 100) for i, name in enumerate(("A0", "A", "B", "C", "D", "E", "F"))],
            [gone(0, at=100), gone(1, at=101), gone(2, at=99)],
            [(4, "D2", 45.0, 101), (5, "E2", 55.0, 99), (6, "F2", 65.0, 100)],
            [(7, "G", 70.0, 99), (8, "H", 80.0, 99)],
        ],
        [
            (2, "B", 20.0, 100),
            (3, "C", 30.0, 100),
            (4, "D2", 45.0, 101),
            (5, "E", 50.0, 100),
            (6, "F2", 65.0, 100),
            (7, "G", 70.0, 99),
            (8, "H", 80.0, 99),
        ],
    ),
]
