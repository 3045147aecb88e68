"""Apache Paimon: the tests of its merge engines (repository apache/paimon).

Paimon takes every null of a partial update for "nothing said"; here such a value is absent (`...`), a null is a null.
"""

from __future__ import annotations

from support.neighbours.case import Case, gone, shape
from tidefold.domain.table.table_spec import Engine, Group

PAIRS = shape("a int, b long", "a", by="b")
FIRST = shape("a int, b int, c string", "a", Engine.FIRST)
FIRST_OF_TWO = shape("a int, b int, c string", "a b", Engine.FIRST)
T = shape("j int, k int, a int, b int, c string", "j k", Engine.PARTIAL)
SEVEN = shape("f0 int, f1 int, f2 int, f3 int, f4 int, f5 int, f6 int", "f0", Engine.PARTIAL)
GROUPS = shape(
    "k int, a int, b int, g_1 int, c int, d int, g_2 int",
    "k",
    Engine.PARTIAL,
    groups=[Group(("a", "b", "g_1"), ("g_1",)), Group(("c", "d", "g_2"), ("g_2",))],
)
WIDE_GROUPS = shape(
    "f0 int, f1 int, f2 int, f3 int, f4 int, f5 int, f6 int, f7 int, f8 int",
    "f0",
    Engine.PARTIAL,
    groups=[Group(("f1", "f2", "f3", "f4"), ("f3", "f4")), Group(("f5", "f6", "f7", "f8"), ("f7", "f8"))],
)
TABLE, FUNCTION = "PrimaryKeyFileStoreTableTest", "PartialUpdateMergeFunctionTest"
FIRST_ROW, PARTIAL = "FirstRowITCase", "PartialUpdateITCase"

CASES = [
    Case(
        "a sequence field decides, not what came last",
        TABLE,
        "testSequenceField",
        PAIRS,
        [[(10, 200), (10, 100), (11, 101)], [(11, 55)]],
        [(10, 200), (11, 101)],
    ),
    Case(
        "deletes and upserts of a key in one batch (merge engine deduplicate)",
        TABLE,
        "testStreamingFullChangelog (the table after its fourth commit)",
        shape("pt int, a int, b long", "pt a"),
        [
            [(1, 10, 110), (1, 20, 120), (2, 10, 210), (2, 20, 220), gone(2, 10)],
            [(1, 30, 130), (1, 40, 140), (2, 30, 230), (2, 40, 240)],
            [gone(1, 40), (2, 40, 241)],
            [(1, 20, 121), (1, 30, 131), (2, 30, 231)],
            [gone(1, 20), (1, 30, 132), (1, 40, 141), gone(2, 20), (2, 20, 221), gone(2, 20), (2, 40, 242)],
        ],
        [(1, 10, 110), (1, 30, 132), (1, 40, 141), (2, 30, 231), (2, 40, 242)],
    ),
    Case("the first row stays", FIRST_ROW, "testBatchQuery", FIRST, [[(1, 1, "1"), (1, 2, "2")]], [(1, 1, "1")]),
    Case(
        "the first row stays over several batches",
        FIRST_ROW,
        "testStreamingRead",
        FIRST,
        [
            [(1, 1, "1"), (2, 2, "2"), (1, 3, "3"), (1, 4, "4")],
            [(i, i, str(i)) for i in (1, 2)] + [(1, 3, "3")] + [(i, i, str(i)) for i in range(3, 8)],
            [(7, 7, "8"), (8, 8, "8")],
        ],
        [(i, i, str(i)) for i in range(1, 9)],
    ),
    Case(
        "the first row of a key of two columns",
        FIRST_ROW,
        "testLocalMerge",
        FIRST_OF_TWO,
        [[(1, 1, "1"), (1, 1, "2"), (2, 3, "3")]],
        [(1, 1, "1"), (2, 3, "3")],
    ),
    Case(
        "partial changes in one batch",
        PARTIAL,
        "testMergeInMemory",
        T,
        [[(1, 2, 3, ..., "5"), (1, 2, ..., 6, ...)]],
        [(1, 2, 3, 6, "5")],
    ),
    Case(
        "partial changes in three batches",
        PARTIAL,
        "testMergeRead",
        T,
        [[(1, 2, 3, ..., ...)], [(1, 2, 4, 5, ...)], [(1, 2, 4, ..., "6")]],
        [(1, 2, 4, 5, "6")],
    ),
    Case(
        "partial changes of two keys in six batches",
        PARTIAL,
        "testMergeCompaction",
        T,
        [
            [(1, 2, 3, ..., ...)],
            [(1, 2, 4, 5, ...)],
            [(1, 2, 4, ..., "6")],
            [(1, 3, ..., 1, "1")],
            [(1, 3, 2, 3, ...)],
            [(1, 3, ..., 4, ...)],
        ],
        [(1, 2, 4, 5, "6"), (1, 3, 2, 4, "1")],
    ),
    Case(
        "a null in a partial update",
        PARTIAL,
        "testMergeInMemory (the nulls given as nulls)",
        T,
        [[(1, 2, 3, None, "5"), (1, 2, None, 6, None)]],
        [(1, 2, None, 6, None)],
        [(1, 2, 3, 6, "5")],
        "a null that a change gives is a value; only what is absent stays as it was",
    ),
    Case(
        "one column is left out",
        FUNCTION,
        "testUpdateNonNull",
        SEVEN,
        [[(1, 1, 1, 1, 1, 1, 1), (1, 2, 2, 2, 2, 2, ...)]],
        [(1, 2, 2, 2, 2, 2, 1)],
    ),
    Case(
        "a group whose sequence is null is not touched",
        PARTIAL,
        "testSequenceGroup (first two inserts)",
        GROUPS,
        [[(1, 1, 1, 1, 1, 1, 1)], [(1, 2, 2, 2, 2, 2, None)]],
        [(1, 2, 2, 2, 1, 1, 1)],
    ),
    Case(
        "a group with an older sequence is not touched",
        PARTIAL,
        "testSequenceGroup (first three inserts)",
        GROUPS,
        [[(1, 1, 1, 1, 1, 1, 1)], [(1, 2, 2, 2, 2, 2, None)], [(1, 3, 3, 1, 3, 3, 3)]],
        [(1, 2, 2, 2, 3, 3, 3)],
    ),
    Case(
        "within a group a null is a value",
        PARTIAL,
        "testSequenceGroup (all inserts)",
        GROUPS,
        [
            [(1, 1, 1, 1, 1, 1, 1)],
            [(1, 2, 2, 2, 2, 2, None)],
            [(1, 3, 3, 1, 3, 3, 3)],
            [(1, 3, 3, 3, 2, 2, None)],
            [(1, 4, 4, 4, 2, 2, None)],
            [(1, 5, 5, 3, 5, None, 4)],
        ],
        [(1, 4, 4, 4, 5, None, 4)],
    ),
    Case(
        "a group with two sequence columns, one of them null",
        FUNCTION,
        "testMultiSequenceFields (null sequence field)",
        WIDE_GROUPS,
        [[(1, None, None, None, None, 1, 1, 1, 3), (1, 2, 2, None, None, 2, 2, 1, 3)]],
        [(1, None, None, None, None, 2, 2, 1, 3)],
    ),
    Case(
        "groups with two sequence columns",
        FUNCTION,
        "testMultiSequenceFields (before the deletes)",
        WIDE_GROUPS,
        [[(1, 1, 1, 1, 1, 1, 1, 1, 3), (1, 2, 2, 2, 2, 2, 1, 1, None), (1, 1, 3, 1, 3, 3, 3, 3, 2)]],
        [(1, 2, 2, 2, 2, 3, 3, 3, 2)],
    ),
]
