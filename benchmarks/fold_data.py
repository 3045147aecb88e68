"""The table and the changes that every way of folding gets, what must come out, and a checksum that sees no order."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from support.pipelines import judge_all
from tidefold.changelog.key_group_hash import key_group_sql
from tidefold.changelog.writer import Changelog
from tidefold.compute.runners import Runner, in_threads
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

COLUMNS = ("id", "amount", "seen", "city", "text")
_CONFIG = """
version: 1
store: store
logs:
  bench:
    key: [id]
    columns: {{id: long, amount: double, seen: timestamp, city: string, text: string}}
    order: arrival
    key_groups: {key_groups}
    buckets: {buckets}
"""
_AT_ONCE = 1_000_000
# Of 100 changed keys so many are deleted; to 100 changed keys come so many new ones, and so many are changed twice.
_DELETES, _INSERTS, _TWICE = 5, 10, 10


@dataclass(frozen=True, slots=True)
class Case:
    """A store with changes that wait, the same changes as Parquet, and the checksum of the rows that must come out."""

    root: Path
    changes: int
    checksum: tuple[int, int]

    @property
    def export_path(self) -> Path:
        return self.root / "changes"


def open_bench(root: Path) -> Pipeline:
    return open_pipeline(root / "tidefold.yaml")


def table_of(root: Path) -> Path:
    """The table that readers see."""
    return root / "store" / LogPaths("bench").table


def begin(root: Path, rows: int, buckets: int = 16, key_groups: int = 128, where: str = "true") -> Path:
    """A store with a table of so many rows of about 100 bytes, half of them not compressible; only of ids `where`, a
    condition in SQL in which `{group}` is the key group.
    """
    root.mkdir()
    (root / "tidefold.yaml").write_text(_CONFIG.format(key_groups=key_groups, buckets=buckets))
    pipeline = open_bench(root)
    where = where.format(group=key_group_sql(pipeline.log("bench").shape))
    with connection() as db, Changelog(pipeline.store) as changelog:
        log = changelog.log("bench", pipeline.log("bench").shape)
        for first in range(0, rows, _AT_ONCE):
            ids = f"SELECT i::BIGINT AS id FROM range({first}, {min(first + _AT_ONCE, rows)}) r(i) WHERE {where}"
            log.append(db.sql(f"SELECT {_row(0)} FROM ({ids})").to_arrow_table())
    fold(pipeline, "first", KindPolicy.FULL, in_threads())
    return root


def fold(pipeline: Pipeline, run: str, kind: KindPolicy, runner: Runner) -> None:
    """From segments on disk to the synced commit that shows the rows; the gate is passed without looking."""
    [outcome] = materialize(pipeline, ["bench"], Fold(run, kind=kind), runner)
    if outcome.error_code:
        raise SystemExit(outcome.message)
    judge_all(pipeline, "bench")
    confirm(pipeline, "bench")


def append(pipeline: Pipeline, tables: list[pa.Table]) -> None:
    """Each table becomes one segment."""
    with Changelog(pipeline.store) as changelog:
        log = changelog.log("bench", pipeline.log("bench").shape)
        for table in tables:
            log.append(table)
            log.persist(0).result()


def case(base: Path, root: Path, rows: int, share: float, segments: int = 16, where: str = "true") -> Case:
    """The base with changes of a `share` of the ids below `rows`, only of those `where`: see `begin`."""
    link_tree(base, root)
    pipeline = open_bench(root)
    where = where.format(group=key_group_sql(pipeline.log("bench").shape))
    with connection() as db:
        table = changes(db, rows, share, 1, where)
        tables = list(_slices(table, segments))
        append(pipeline, tables)
        (root / "changes").mkdir()
        order = 0
        for number, one in enumerate(tables):
            places = pa.arange(order, order + one.num_rows)
            pq.write_table(one.append_column("_o0", places), root / "changes" / f"{number:04d}.parquet")
            order += one.num_rows
        return Case(root, table.num_rows, _compute_expected(db, root))


def changes(db: duckdb.DuckDBPyConnection, rows: int, share: float, seed: int, where: str = "true") -> pa.Table:
    """Changes of about `share` of the keys below `rows`, and some new keys, in random order."""
    new = int(rows * share * _INSERTS / 100)
    db.execute(
        "CREATE OR REPLACE TEMP TABLE changed AS "
        f"SELECT id FROM (SELECT i::BIGINT AS id FROM range({rows + new}) r(i)) "
        f"WHERE (id >= {rows} OR hash(id, {seed}) % 1000000 < {int(share * 1_000_000)}) AND {where}"
    )
    twice = f"SELECT id, 2 AS nth FROM changed WHERE hash(id, {seed}, 2) % 100 < {_TWICE}"
    deleted = f"id < {rows} AND nth = 1 AND hash(id, {seed}, 3) % 100 < {_DELETES}"
    return db.sql(
        f"SELECT ({deleted})::TINYINT AS _op, {_row(seed)} FROM (SELECT id, 1 AS nth FROM changed UNION ALL {twice}) "
        f"ORDER BY nth, hash(id, {seed}, 4)"
    ).to_arrow_table()


def _row(seed: int) -> str:
    """The columns of a row, made from its `id`."""
    return (
        f"id, (hash(id, {seed}) % 10000000 / 100)::DOUBLE AS amount, "
        f"make_timestamptz((1700000000000000 + hash(id, {seed}, 5) % 30000000000000)::BIGINT) AS seen, "
        f"'city ' || (hash(id, {seed}, 6) % 1000) AS city, "
        f"md5((id * 31 + {seed})::VARCHAR) || ' a text that all rows share' AS text"
    )


def _slices(table: pa.Table, count: int) -> Iterator[pa.Table]:
    size = -(-table.num_rows // count)
    return (table.slice(start, size) for start in range(0, table.num_rows, size))


def link_tree(source: Path, target: Path) -> None:
    """A copy that costs no bytes: nobody changes a file of a store, or of a Delta table, in its place."""
    shutil.copytree(source, target, copy_function=os.link)


def connection() -> duckdb.DuckDBPyConnection:
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    db.execute("SET threads = 2")
    db.execute("SET enable_progress_bar = false")
    return db


def files_of(table: Path) -> list[str]:
    return DeltaTable(str(table)).file_uris()


def checksum(table: Path) -> tuple[int, int]:
    """Of the rows of a Delta table, in any order."""
    delta = DeltaTable(str(table))
    with connection() as db:
        if delta.protocol().min_reader_version < 3:
            return checksum_of(db, f"read_parquet({delta.file_uris()})")
        # As a stream: what is held here would count as memory of the ways that come after it.
        rows = QueryBuilder().register("t", delta).execute("SELECT * FROM t")
        db.register("found", pa.RecordBatchReader.from_stream(rows))
        return checksum_of(db, "found")


def checksum_of(db: duckdb.DuckDBPyConnection, rows: str) -> tuple[int, int]:
    [found] = db.sql(
        f"SELECT count(*), sum(hash(id, amount, epoch_us(seen), city, text)::HUGEINT)::HUGEINT FROM {rows}"
    ).fetchall()
    return found


def _compute_expected(db: duckdb.DuckDBPyConnection, root: Path) -> tuple[int, int]:
    """By another way than any of the ways: the last change of each key is found by its number alone."""
    db.execute(
        f"CREATE OR REPLACE TEMP TABLE final AS SELECT * FROM read_parquet('{root}/changes/*.parquet') "
        f"WHERE _o0 IN (SELECT max(_o0) FROM read_parquet('{root}/changes/*.parquet') GROUP BY id)"
    )
    names = ", ".join(COLUMNS)
    kept = f"SELECT {names} FROM read_parquet({files_of(table_of(root))}) WHERE id NOT IN (SELECT id FROM final)"
    return checksum_of(db, f"({kept} UNION ALL SELECT {names} FROM final WHERE _op = 0)")
