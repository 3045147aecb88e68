"""Apache Spark, Declarative Pipelines: the tests of AUTO CDC, type 1 (repository apache/spark, sql/pipelines)."""

from __future__ import annotations

from support.neighbours.case import Case, gone, shape
from tidefold.domain.table.table_spec import Engine

SCD1 = shape("id int, value string, seq long", by="seq")
PARTIAL = shape("id int, left string, right string, seq long", engine=Engine.PARTIAL, by="seq")
CITIES = shape("country string, city string, population long, seq long", "country city", by="seq")
HANDLER1, LEAVES = "Scd1ForeachBatchHandlerSuite", "Scd1LeafLevelReconciliationSuite"
SINGLE1 = "AutoCdcScd1SinglePipelineSuite"
TIES = "at equal order the later position counts, whichever kind it is; such ties are counted and listed"

CASES = [
    Case(
        "an upsert that is older than a delete stays away",
        HANDLER1,
        "drops stale microbatch rows using auxiliary tombstones and writes fresh upserts",
        SCD1,
        [[gone(1, at=10)], [(1, "stale", 5), (2, "fresh", 20)]],
        [(2, "fresh", 20)],
    ),
    Case(
        "a newer delete removes the row",
        HANDLER1,
        "persists a newer delete as a tombstone and removes the target row",
        SCD1,
        [[(1, "old", 10)], [gone(1, at=20)]],
        [],
    ),
    Case(
        "several changes of a key in one batch",
        HANDLER1,
        "deduplicates the raw microbatch before merging into the target",
        SCD1,
        [[(1, "old", 10)], [(1, "ignored-older", 15), (1, "newer", 20)]],
        [(1, "newer", 20)],
    ),
    Case(
        "four batches out of order",
        HANDLER1,
        "reconciles out-of-order events when ExcludeColumns hides the sequencing column (batches 1 to 4)",
        SCD1,
        [[(1, "alice", 1), (1, "bob", 3)], [(1, "carol", 2)], [(1, "dave", 4)], [gone(1, at=2)]],
        [(1, "dave", 4)],
    ),
    Case(
        "six batches out of order",
        HANDLER1,
        "reconciles out-of-order events when ExcludeColumns hides the sequencing column (batches 1 to 6)",
        SCD1,
        [
            [(1, "alice", 1), (1, "bob", 3)],
            [(1, "carol", 2)],
            [(1, "dave", 4)],
            [gone(1, at=2)],
            [gone(1, at=5)],
            [(1, "ghost", 4)],
        ],
        [],
    ),
    Case(
        "a newer upsert replaces the row",
        HANDLER1,
        "upserts an existing target row when a higher-sequenced event arrives",
        SCD1,
        [[(1, "alice", 1)], [(1, "bob", 2)]],
        [(1, "bob", 2)],
    ),
    Case(
        "a delete of a key that was never there is remembered",
        HANDLER1,
        "records an aux tombstone for a delete on a nonexistent key without affecting the target",
        SCD1,
        [[gone(99, at=1)], [(99, "older", 0)]],
        [],
    ),
    Case(
        "an upsert that comes late",
        HANDLER1,
        "ignores a late-arriving upsert with a sequence below the target's last upsert",
        SCD1,
        [[(1, "alice", 5)], [(1, "bob", 2)]],
        [(1, "alice", 5)],
    ),
    Case(
        "a delete that comes late",
        HANDLER1,
        "ignores a late-arriving lower-seq delete but still records the aux tombstone",
        SCD1,
        [[(1, "alice", 5)], [gone(1, at=2)]],
        [(1, "alice", 5)],
    ),
    Case(
        "delete and newer upsert in one batch",
        HANDLER1,
        "resolves a within-batch delete and higher-sequenced upsert as an upsert insert",
        SCD1,
        [[gone(1, at=2), (1, "bob", 3)]],
        [(1, "bob", 3)],
    ),
    Case(
        "a key of two columns",
        HANDLER1,
        "treats a composite key as a single identifier and isolates rows by full key",
        CITIES,
        [[("US", "New York", 8_000_000, 1), ("US", "Los Angeles", 4_000_000, 1), ("UK", "London", 9_000_000, 1)]],
        [("UK", "London", 9_000_000, 1), ("US", "Los Angeles", 4_000_000, 1), ("US", "New York", 8_000_000, 1)],
    ),
    Case(
        "other rows stay",
        HANDLER1,
        "leaves unrelated target rows untouched when only one key is updated",
        SCD1,
        [[(1, "alice", 1), (2, "bob", 1)], [(1, "alice-updated", 2)]],
        [(1, "alice-updated", 2), (2, "bob", 1)],
    ),
    Case(
        "upsert, delete, upsert in one run",
        SINGLE1,
        "consecutive upsert, delete, and re-upsert events for the same key in one run converge to the latest event",
        SCD1,
        [[(1, "alice", 1), gone(1, at=2), (1, "alice2", 3)]],
        [(1, "alice2", 3)],
    ),
    Case(
        "upsert and delete of one sequence value",
        LEAVES,
        "collapseMicrobatchRowsPerKey collapses keys into upserts on delete and upsert sequencing ties",
        SCD1,
        [[(1, "upsert", 2), gone(1, at=2)]],
        [],
        [(1, "upsert", 2)],
        TIES,
    ),
    Case(
        "columns from several changes",
        LEAVES,
        "collapseMicrobatchRowsPerKey selects each leaf's latest authoring event",
        PARTIAL,
        [[(1, ..., "right-3", 3), (1, "left-1", "right-1", 1), (1, "left-2", ..., 2)]],
        [(1, "left-2", "right-3", 3)],
    ),
    Case(
        "a null that was given, and one that was not",
        LEAVES,
        "collapseMicrobatchRowsPerKey distinguishes unauthored and authored nulls",
        PARTIAL,
        [[(1, None, "x", 1), (1, ..., ..., 2), (2, "y", None, 1), (2, ..., ..., 2)]],
        [(1, None, "x", 2), (2, "y", None, 2)],
    ),
    Case(
        "a delete takes all columns with it",
        LEAVES,
        "collapseMicrobatchRowsPerKey isolates keys and treats deletes as null-valued events",
        PARTIAL,
        [
            [(1, "before", ..., 1), (2, "other", ..., 1), gone(1, at=2), (2, ..., ..., 2), (1, ..., ..., 3)],
            [(1, "after", ..., 4), (1, ..., ..., 5), (3, "before", ..., 1), gone(3, at=2), (3, ..., ..., 3)],
        ],
        [(1, "after", None, 5), (2, "other", None, 2), (3, None, None, 3)],
    ),
    Case(
        "a delete is the newest of several partial changes",
        LEAVES,
        "collapseMicrobatchRowsPerKey collapses keys whose latest event is a delete into row-wide deletes",
        PARTIAL,
        [[(1, "first", ..., 1), gone(1, at=3), (1, "second", ..., 2), gone(2, at=2)]],
        [],
    ),
]
