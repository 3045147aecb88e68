"""Delta tables that Spark makes with the features of Delta: a case is its steps, and what tidefold must say to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

TYPES = "id INT, a INT, f FLOAT, d DECIMAL(9,2), text STRING, part STRING"
_ROWS = "cast({0} + id AS INT), cast(id AS INT), cast(id / 2 AS FLOAT), cast(id AS DECIMAL(9,2)), concat('t', id)"
FILL = f"INSERT INTO {{t}} SELECT {_ROWS.format(0)}, concat('p ', id % 2) FROM range(12)"
MORE = "INSERT INTO {t} BY NAME SELECT cast(100 + id AS INT) AS id FROM range(5)"
UPDATE, DELETE = "UPDATE {t} SET text = 'new' WHERE id IN (3, 5)", "DELETE FROM {t} WHERE id IN (4, 7)"
REKEY, AGAIN = "UPDATE {t} SET id = id + 50 WHERE id = 8", "DELETE FROM {t} WHERE id IN (9, 102)"
WORK = (FILL, UPDATE, DELETE, REKEY, MORE, AGAIN)
SOME = (FILL, UPDATE, DELETE)
# A second time: keys that are there already would be there twice.
LATER = ("UPDATE {t} SET d = d + 1 WHERE id < 3", "DELETE FROM {t} WHERE id IN (10, 103)", REKEY.replace("8", "6"))
SWAP = "UPDATE {t} SET id = CASE id WHEN 1 THEN 2 ELSE 1 END WHERE id IN (1, 2)"
MERGE = (
    "MERGE INTO {t} t USING (SELECT cast(5 AS INT) AS id, 'm' AS text UNION ALL SELECT 60, 'n' UNION ALL SELECT 0, 'd' "
    "UNION ALL SELECT 61, 'q') s ON t.id = s.id WHEN MATCHED AND s.text = 'd' THEN DELETE "
    "WHEN MATCHED AND s.text = 'z' THEN UPDATE SET a = 0 WHEN MATCHED THEN UPDATE SET text = s.text "
    "WHEN NOT MATCHED AND s.text = 'q' THEN INSERT (id, a) VALUES (s.id, 7) "
    "WHEN NOT MATCHED THEN INSERT (id, text) VALUES (s.id, s.text) "
    "WHEN NOT MATCHED BY SOURCE AND t.id = 11 THEN DELETE "
    "WHEN NOT MATCHED BY SOURCE AND t.id = 10 THEN UPDATE SET text = 'alone'"
)
SAME, OPTIMIZE, TRUNCATE = "UPDATE {t} SET text = text WHERE id < 4", "OPTIMIZE {t}", "TRUNCATE TABLE {t}"
ALL = (*WORK, SWAP, MERGE, SAME, OPTIMIZE, "DELETE FROM {t} WHERE id = 1")
OVERWRITE = f"INSERT OVERWRITE {{t}} SELECT {_ROWS.format(200)}, 'over' FROM range(3)"
FEED, NO_FEED = "'delta.enableChangeDataFeed' = 'true'", "'delta.enableChangeDataFeed' = 'false'"
NAMES, IDS = "'delta.columnMapping.mode' = 'name'", "'delta.columnMapping.mode' = 'id'"
VECTORS, WIDE = "'delta.enableDeletionVectors' = 'true'", "'delta.enableTypeWidening' = 'true'"
OFTEN, V2 = "'delta.checkpointInterval' = '2'", "'delta.checkpointPolicy' = 'v2'"
ROW_IDS, TIMES = "'delta.enableRowTracking' = 'true'", "'delta.enableInCommitTimestamps' = 'true'"
STATELESS = "'delta.dataSkippingNumIndexedCols' = '0'"
RENAME = "ALTER TABLE {t} RENAME COLUMN text TO `other text`"
OTHER = ("UPDATE {t} SET `other text` = 'newer' WHERE id IN (1, 3)", *LATER)
DROP = ("ALTER TABLE {t} DROP COLUMN f", "DELETE FROM {t} WHERE id = 1", "UPDATE {t} SET a = 9 WHERE id = 2")
ADD = ("ALTER TABLE {t} ADD COLUMN more STRING", "UPDATE {t} SET more = 'm' WHERE id = 2")
WIDEN = tuple(
    f"ALTER TABLE {{t}} ALTER COLUMN {column} TYPE {wider}"
    for column, wider in (("a", "BIGINT"), ("f", "DOUBLE"), ("d", "DECIMAL(14,4)"), ("id", "BIGINT"))
)
LARGE = ("INSERT INTO {t} BY NAME SELECT 3000000000 AS id, 4000000000 AS a", "DELETE FROM {t} WHERE id = 2")
REPLACE = (
    f"CREATE OR REPLACE TABLE {{t}} USING delta TBLPROPERTIES ({FEED}) AS SELECT cast(1 AS INT) AS id, 'r' AS text"
)
EMPTY = ("DELETE FROM {t} WHERE id = 12345", "UPDATE {t} SET a = 1 WHERE id = 12345")
RESTORE = (
    "RESTORE TABLE {t} TO VERSION AS OF 2",
    "DELETE FROM {t} WHERE id = 3",
    "RESTORE TABLE {t} TO VERSION AS OF 4",
)
GONE, REPLACED, NO_CHANGES = "DELTA_SOURCE_GONE", "DELTA_SOURCE_REPLACED", "DELTA_SOURCE_FEED"
UNFIT, OUTSIDE, TWICE = "LANDED_SCHEMA", "PATH_OUTSIDE_ROOT", "DELTA_SOURCE_KEYS"


def alter(*properties: str) -> str:
    """Returns the step that sets properties of the table."""
    return f"ALTER TABLE {{t}} SET TBLPROPERTIES ({', '.join(properties)})"


MAP = alter("'delta.minReaderVersion' = '2'", "'delta.minWriterVersion' = '5'", NAMES)
UNMAP = alter("'delta.columnMapping.mode' = 'none'")


@dataclass(frozen=True)
class Case:
    """A table.

    steps: SQL, with `{t}` for its name. A step that begins with `!` is a name in `lab/delta_tables/steps.py`.
    types: of its columns; empty: the first step makes it.
    refused: the code by which a way of reading ends, of `steps`, `extract`, `once` and `init`; the others end well.
    aliases: names that the table gives columns of the log, each with that of the log.
    is_short: `make test` has it, too: its rows are compared in each version.
    """

    steps: Sequence[str] = WORK
    properties: Sequence[str] = ()
    types: str = TYPES
    partition: str = ""
    clause: str = ""
    key: str = "id"
    refused: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    folder: str = "table"
    has_feed: bool = True
    is_short: bool = False

    def list_steps(self) -> list[str]:
        """Returns all statements, with `{t}` for the name of the table."""
        properties = [FEED, *self.properties] if self.has_feed else self.properties
        by = f"PARTITIONED BY ({self.partition})" if self.partition else self.clause
        made = f" TBLPROPERTIES ({', '.join(properties)})" if properties else ""
        create = [f"CREATE TABLE {{t}} ({self.types}) USING delta {by}{made}"] if self.types else []
        return [*create, *self.steps]


def _typed(kind: str, *values: str, key: str = "id", partition: str = "", more: Sequence[str] = ()) -> Case:
    """A table with a column `v` of a type, and these values in it, two of which leave."""
    rows = ", ".join(f"({number}, {value})" for number, value in enumerate(values))
    return Case(
        (
            f"INSERT INTO {{t}} VALUES {rows}",
            "UPDATE {t} SET id = id + 100 WHERE id = 1",
            "DELETE FROM {t} WHERE id = 2",
            *more,
        ),
        types=f"id INT, v {kind}",
        key=key,
        partition=partition,
    )


def _partitioned(kind: str, *values: str) -> Case:
    """The same, with `v` as partition: rows move to another one, and the table has vectors."""
    move = f"UPDATE {{t}} SET v = {values[0]} WHERE id = 3"
    made = _typed(kind, *values, partition="v", more=(move, "DELETE FROM {t} WHERE id = 4"))
    return Case(made.steps, (VECTORS,), made.types, "v")


def _named(*names: str) -> Case:
    """A table with columns of these names."""
    columns = ", ".join(f"`{name}` INT" for name in names)
    values = ", ".join(str(number) for number in range(len(names)))
    steps = (
        f"INSERT INTO {{t}} VALUES (1, {values}), (2, {values})",
        f"UPDATE {{t}} SET `{names[0]}` = 7 WHERE id = 1",
    )
    reserved = {name: f"c{number}" for number, name in enumerate(names)}
    return Case((*steps, "DELETE FROM {t} WHERE id = 2"), types=f"id INT, {columns}", aliases=reserved)


def _mapped(case: Case) -> Case:
    return Case(case.steps, (NAMES,), case.types, key=case.key, aliases=case.aliases)


OTHER_TEXT = {"other text": "text"}
_TEXTS = ("null", "'b c'", "'ä/ö'", "'x=1'", "'100%'", "'a%20b'", "'q\"uo:te'", "' padded '", "'__x__'")
_MOMENTS = ("'0001-01-03 00:00:00'", "'1582-10-04 12:00:00'", "'9999-12-31 23:59:59.999999'", "'2024-02-29 01:02:03.4'")

CASES: dict[str, Case] = {
    # What changes rows.
    "plain": Case(ALL, is_short=True),
    "vectors": Case(ALL, (VECTORS,), is_short=True),
    "vectors, REORG, RESTORE, INSERT OVERWRITE": Case(
        (*WORK, "REORG TABLE {t} APPLY (PURGE)", "DELETE FROM {t} WHERE id = 0", RESTORE[2], AGAIN, OVERWRITE),
        (VECTORS,),
    ),
    "vectors and an added column": Case((*WORK, *ADD, "DELETE FROM {t} WHERE id = 1"), (VECTORS,), is_short=True),
    "vectors and partitions": Case(
        (*ALL, "UPDATE {t} SET part = null WHERE id = 2"), (VECTORS,), partition="part", is_short=True
    ),
    "partitions": Case((*ALL, "UPDATE {t} SET part = 'p 1' WHERE id = 2"), partition="part", is_short=True),
    "vectors later": Case((*SOME, alter(VECTORS), *LATER)),
    "RESTORE": Case((*SOME, *RESTORE)),
    "RESTORE with vectors": Case((*SOME, *RESTORE), (VECTORS,), is_short=True),
    "empty commits": Case((*SOME, *EMPTY, "COMMENT ON TABLE {t} IS 'x'", alter("'own' = 'x'"), *LATER)),
    "TRUNCATE and DELETE of all": Case((*SOME, TRUNCATE, FILL, "DELETE FROM {t}", FILL)),
    "INSERT OVERWRITE": Case((*SOME, OVERWRITE, *LATER)),
    "overwritten partitions": Case((*SOME, "!dynamic overwrite", "!replaceWhere", *LATER), partition="part"),
    "OPTIMIZE and ZORDER": Case(
        (*SOME, OPTIMIZE, *LATER, "OPTIMIZE {t} ZORDER BY (a)", "DELETE FROM {t} WHERE id = 0")
    ),
    "files rewritten without a change of data": Case((*SOME, "!rewrite", *LATER)),
    "no statistics": Case(WORK, (VECTORS, STATELESS)),
    "streams": Case(("!stream append", "!stream append", "!stream complete", "!stream append")),
    "a commit of many files": Case((FILL, "!many files", "DELETE FROM {t} WHERE id % 7 = 0"), (VECTORS,)),
    # What the log of the table is made of.
    "checkpoints": Case(ALL, (OFTEN,), partition="part"),
    "checkpoints of version 2": Case(WORK, (VECTORS, V2, OFTEN), is_short=True),
    "checkpoints of several parts": Case((FILL, "!parts", MORE, DELETE, *LATER), (OFTEN,)),
    "the defaults of Databricks": Case(WORK, (VECTORS, V2, ROW_IDS), is_short=True),
    "compacted commits": Case((*SOME, "!compact log", *LATER)),
    "old commits are deleted after each step": Case(
        tuple(chain(*((one, "!forget") for one in WORK))), (OFTEN,), refused={"once": GONE}
    ),
    "in-commit timestamps": Case(SOME, (TIMES,)),
    "in-commit timestamps later": Case((*SOME, alter(TIMES), *LATER)),
    "row tracking": Case(WORK, (ROW_IDS, VECTORS)),
    "row tracking later": Case((*SOME, alter(ROW_IDS), *LATER)),
    "clustered": Case((*SOME, OPTIMIZE, *LATER, "OPTIMIZE {t} FULL"), clause="CLUSTER BY (a)"),
    "VACUUM of 0 hours": Case((*SOME, "!vacuum", *LATER, "!vacuum", AGAIN), refused={"once": GONE}),
    # Mapping and widening.
    "mapping by name": Case((*SOME, RENAME, *OTHER, *DROP), (NAMES,), aliases=OTHER_TEXT, is_short=True),
    "mapping by id": Case(
        (*SOME, RENAME, *OTHER, *DROP), (IDS, VECTORS), partition="part", aliases=OTHER_TEXT, is_short=True
    ),
    "mapping later": Case((*SOME, MAP, *LATER, RENAME, *OTHER), aliases=OTHER_TEXT, is_short=True),
    "mapping later, with vectors": Case((*SOME, MAP, *LATER, RENAME, *OTHER), (VECTORS,), aliases=OTHER_TEXT),
    "mapping off again": Case((*SOME, UNMAP, *LATER), (NAMES,), is_short=True),
    "mapping and partitions renamed": Case(
        (*SOME, "ALTER TABLE {t} RENAME COLUMN part TO place", *LATER),
        (NAMES, VECTORS),
        partition="part",
        aliases={"place": "part"},
    ),
    "mapping: a column dropped and added with another type": Case(
        (*SOME, "ALTER TABLE {t} DROP COLUMN f", "ALTER TABLE {t} ADD COLUMN f STRING", *LATER),
        (NAMES,),
        refused=dict.fromkeys(("steps", "extract", "once"), UNFIT),
        is_short=True,
    ),
    "mapping: names change places": Case(
        (
            *SOME,
            "ALTER TABLE {t} RENAME COLUMN a TO x",
            "ALTER TABLE {t} RENAME COLUMN part TO y",
            "ALTER TABLE {t} RENAME COLUMN x TO b",
            *LATER,
        ),
        (NAMES,),
        aliases={"x": "a", "b": "a", "y": "part"},
    ),
    "Iceberg compatibility": Case(
        WORK, (NAMES, "'delta.enableIcebergCompatV2' = 'true'", "'delta.universalFormat.enabledFormats' = ''")
    ),
    "widening": Case((*SOME, *WIDEN, *LATER, *LARGE, OPTIMIZE, "DELETE FROM {t} WHERE id = 11"), (WIDE,)),
    "widening later": Case((*SOME, alter(WIDE), *WIDEN, *LATER, *LARGE)),
    "widening off again": Case((*SOME, *WIDEN, alter(WIDE.replace("true", "false")), *LATER, *LARGE), (WIDE,)),
    "widening, vectors and mapping": Case(
        (*SOME, *WIDEN, RENAME, *OTHER, *LARGE, OPTIMIZE, "DELETE FROM {t} WHERE id = 11"),
        (WIDE, VECTORS, NAMES),
        aliases=OTHER_TEXT,
    ),
    "widening, vectors and mapping in few steps": Case(
        (FILL, DELETE, WIDEN[0], WIDEN[3], RENAME, OTHER[0], LARGE[0], OPTIMIZE),
        (WIDE, VECTORS, NAMES),
        aliases=OTHER_TEXT,
        is_short=True,
    ),
    "widening to other kinds of numbers": Case(
        (FILL, "ALTER TABLE {t} ALTER COLUMN a TYPE DOUBLE", "UPDATE {t} SET a = 0.5 WHERE id = 1"),
        (WIDE,),
        refused=dict.fromkeys(("steps", "extract", "once"), UNFIT),
    ),
    "widening of a partition": Case(
        (
            "INSERT INTO {t} VALUES (1, 1), (2, 2), (3, null)",
            "ALTER TABLE {t} ALTER COLUMN v TYPE BIGINT",
            "INSERT INTO {t} VALUES (4, 5000000000)",
            "UPDATE {t} SET v = 9 WHERE id = 1",
            "DELETE FROM {t} WHERE id = 2",
        ),
        (WIDE, VECTORS),
        "id INT, v INT",
        "v",
    ),
    "widening of dates": Case(
        (
            "INSERT INTO {t} VALUES (1, date'2024-01-01'), (2, date'2020-02-29')",
            "ALTER TABLE {t} ALTER COLUMN v TYPE TIMESTAMP_NTZ",
            "DELETE FROM {t} WHERE id = 2",
        ),
        (WIDE, "'delta.feature.timestampNtz' = 'supported'"),
        "id INT, v DATE",
        refused=dict.fromkeys(("steps", "extract", "once"), UNFIT),
    ),
    # Columns.
    "generated, identity and default columns": Case(
        (
            "INSERT INTO {t} (id, a) VALUES (1, 1), (2, 2)",
            "UPDATE {t} SET a = 5 WHERE id = 1",
            "DELETE FROM {t} WHERE id = 2",
        ),
        ("'delta.feature.allowColumnDefaults' = 'supported'",),
        "id INT, a INT, g INT GENERATED ALWAYS AS (a + 1), i BIGINT GENERATED ALWAYS AS IDENTITY, e INT DEFAULT 5",
    ),
    "checks, not null, varchar": Case(
        (
            "ALTER TABLE {t} ADD CONSTRAINT pos CHECK (id >= 0)",
            "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')",
            "UPDATE {t} SET v = 'c' WHERE id = 1",
            "DELETE FROM {t} WHERE id = 2",
        ),
        types="id INT NOT NULL, v VARCHAR(5)",
    ),
    "timestamps": _typed("TIMESTAMP", *(f"timestamp{one}" for one in _MOMENTS), "null"),
    "timestamps without zone": _typed("TIMESTAMP_NTZ", *(f"timestamp_ntz{one}" for one in _MOMENTS), "null"),
    "dates": _typed("DATE", "date'0001-01-01'", "date'1582-10-04'", "date'1582-10-15'", "date'9999-12-31'", "null"),
    "doubles": _typed("DOUBLE", "double('NaN')", "double('-Infinity')", "-0.0D", "1e300D", "null"),
    "floats": _typed("FLOAT", "float('NaN')", "float('Infinity')", "float('-0.0')", "0.1F", "null"),
    "binary": _typed("BINARY", "X'00FF'", "X''", "X'0A'", "null"),
    "booleans": _typed("BOOLEAN", "true", "false", "null", "true"),
    "narrow numbers": _typed("TINYINT", "-128", "127", "0", "null"),
    "short numbers": _typed("SMALLINT", "-32768", "32767", "0", "null"),
    "decimals": _typed("DECIMAL(38,18)", "-0.05", "12345678901234567890.123456789012345678", "0", "null"),
    "arrays": _typed("ARRAY<STRING>", "array('a', null)", "array()", "array('b')", "null"),
    "columns that no log has": Case(
        (
            "INSERT INTO {t} SELECT 1, 'a', named_struct('x', 1), map('a', 1), array(named_struct('x', 1)), "
            "parse_json('1')",
            "INSERT INTO {t} SELECT 2, 'b', null, null, null, null",
            "UPDATE {t} SET text = 'c' WHERE id = 1",
            "DELETE FROM {t} WHERE id = 2",
        ),
        types="id INT, text STRING, s STRUCT<x: INT>, m MAP<STRING, INT>, l ARRAY<STRUCT<x: INT>>, v VARIANT",
    ),
    "odd names": _named(
        "ümlaut", "UPPER", "a-b", "a:b", "a.b", "a/b", "1st", "select", "_version", "_time", "_offset", "_rank"
    ),
    "names with blanks, mapped": _mapped(_named("a b", "a,b", "a=b", "{c}", "d(e)", "f;g")),
    # Partitions.
    "partitions of texts": _partitioned("STRING", *_TEXTS),
    "partitions of dates": _partitioned(
        "DATE", "date'0001-01-01'", "date'2024-02-29'", "null", "date'9999-12-31'", "null"
    ),
    "partitions of timestamps": _partitioned("TIMESTAMP", *(f"timestamp{one}" for one in _MOMENTS), "null"),
    "partitions of timestamps without zone": _partitioned(
        "TIMESTAMP_NTZ", *(f"timestamp_ntz{one}" for one in _MOMENTS), "null"
    ),
    "partitions of doubles": _partitioned("DOUBLE", "1e10D", "double('NaN')", "-0.5D", "double('-Infinity')", "null"),
    "partitions of floats": _partitioned("FLOAT", "1e10F", "0.1F", "-0.5F", "float('Infinity')", "null"),
    "partitions of decimals": _partitioned("DECIMAL(9,2)", "-0.05", "0.00", "1234567.89", "-1", "null"),
    "partitions of booleans": _partitioned("BOOLEAN", "true", "false", "null", "true", "null"),
    "partitions of bigints": _partitioned("BIGINT", "-1", "9223372036854775807", "0", "5", "null"),
    "partitions of tinyints": _partitioned("TINYINT", "-128", "127", "0", "5", "null"),
    "partitions of two columns, mapped": Case(
        (*SOME, "UPDATE {t} SET part = 'ä b' WHERE a < 3", *LATER), (NAMES, VECTORS), partition="part, a"
    ),
    # Keys.
    "keys of texts": Case(
        (
            "INSERT INTO {t} VALUES ('a', 1), ('ä', 2), ('', 3), ('A', 4)",
            "UPDATE {t} SET id = 'b' WHERE v = 1",
            "DELETE FROM {t} WHERE id = 'A'",
        ),
        types="id STRING, v INT",
    ),
    "keys of timestamps": Case(
        (
            "INSERT INTO {t} VALUES (timestamp'2024-01-01 00:00:00.000001', 1), (timestamp'1969-12-31 23:59:59', 2)",
            "UPDATE {t} SET v = 7",
            "DELETE FROM {t} WHERE id < '1970-01-01'",
        ),
        types="id TIMESTAMP, v INT",
    ),
    "keys of decimals": Case(
        (
            "INSERT INTO {t} VALUES (1.10, 1), (-0.01, 2), (3, 3)",
            "UPDATE {t} SET id = 9.99 WHERE v = 1",
            "DELETE FROM {t} WHERE id < 0",
        ),
        types="id DECIMAL(9,2), v INT",
    ),
    "keys of two columns, one a partition": Case(
        (
            "INSERT INTO {t} VALUES (1, 'a', 1), (1, 'b', 2), (2, 'a', 3)",
            "UPDATE {t} SET part = 'c' WHERE v = 1",
            "DELETE FROM {t} WHERE v = 2",
            "UPDATE {t} SET v = 8 WHERE id = 2",
        ),
        (VECTORS,),
        "id INT, part STRING, v INT",
        "part",
        key="id, part",
    ),
    "keys that are there twice": Case(
        ("INSERT INTO {t} VALUES (1, 'a'), (1, 'b'), (2, 'c')", "DELETE FROM {t} WHERE text = 'b'"),
        types="id INT, text STRING",
        refused={"steps": TWICE, "once": TWICE, "extract": "EXTRACT_KEYS"},
    ),
    # What the feed cannot tell.
    "the feed begins later": Case(
        (*SOME, alter(FEED), *LATER), has_feed=False, refused={"steps": NO_CHANGES, "once": NO_CHANGES}
    ),
    "the feed is off for a while": Case(
        (*SOME, alter(NO_FEED), "DELETE FROM {t} WHERE id = 0", alter(FEED), *LATER),
        (),
        refused={"steps": NO_CHANGES, "once": NO_CHANGES},
    ),
    "replaced": Case((*SOME, REPLACE), (VECTORS,), refused={"steps": REPLACED, "once": REPLACED}, is_short=True),
    "made again each day": Case(
        ("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')", REPLACE, REPLACE.replace("'r'", "'s'")),
        types="id INT, text STRING",
        refused={"steps": REPLACED, "once": REPLACED},
    ),
    "dropped and made again": Case(
        (*SOME, "!drop", f"CREATE TABLE {{t}} ({TYPES}) USING delta TBLPROPERTIES ({FEED})", FILL),
        refused={"steps": REPLACED, "extract": REPLACED},
    ),
    "overwritten with other types": Case(
        (FILL, "!other types"), refused=dict.fromkeys(("steps", "extract", "once"), UNFIT)
    ),
    # The newest version has no file of the other table any more.
    "shallow clone": Case(
        ("!shallow clone", *LATER), types="", refused=dict.fromkeys(("steps", "extract", "once"), OUTSIDE)
    ),
    # Folders.
    "folder: blanks and umlauts": Case(SOME, (VECTORS,), folder="ä b/täble"),
    "folder: signs": Case(SOME, (VECTORS,), folder="a+b#c&d/[e]{f}"),
    "folder: decomposed umlauts": Case(SOME, (VECTORS,), folder="a\u0308/table"),
}
