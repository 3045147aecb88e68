"""Counts bad rows on Spark: each task loads the files of a few buckets into DuckDB and runs the same queries.

Great Expectations asks for counts in SQL. A count over all rows is the sum of the counts of disjoint shares of them.
Equal keys lie in one bucket, so duplicates of a key do, too: each task proves that its rows belong to its buckets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidefold.changelog.duckdb_connection import connect
from tidefold.changelog.key_group_hash import key_group_sql, quote_name
from tidefold.changelog.schema import table_schema
from tidefold.compute.runners import Runner
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import TableSpec
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.errors import CorruptError, TidefoldError
from tidefold.quality.run.expectations import not_computed
from tidefold.quality.run.staged_rows import JUDGE_AGAIN, file_rows
from tidefold.storage import open_store
from tidefold.storage.scratch import open_scratch

if TYPE_CHECKING:
    import duckdb

# The table that all queries read.
TABLE = "tidefold_rows"
# Of one task; above it DuckDB writes to the worker's disk.
_MEMORY = 512 << 20
_UNIQUE = frozenset({"expect_column_values_to_be_unique", "expect_compound_columns_to_be_unique"})


@dataclass(frozen=True, slots=True)
class Query:
    """A query that returns one row of counts.

    values: of its parameters.
    """

    sql: str
    values: tuple[Any, ...]


# The counts of a query, in order. None: there was no row to sum.
CountRow = tuple[int | None, ...]
# Answers queries over the rows of a snapshot.
Count = Callable[[Sequence["Query"]], Sequence[CountRow]]


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """The work of Spark's tasks: a task is the number of a share, and returns one row of counts for each query."""

    address: str
    folder: str
    shape: TableSpec
    shares: tuple[tuple[DataFile, ...], ...]
    queries: tuple[Query, ...]

    def __call__(self, task: str) -> str:
        import duckdb

        files = self.shares[int(task)]
        with open_scratch() as scratch, connect(_MEMORY, scratch) as connection:
            try:
                connection.register("arriving", self._read(files))
                connection.execute(f"CREATE TABLE {TABLE} AS SELECT * FROM arriving")
                # A check reads these rows, no other file, and loads nothing.
                connection.execute("SET enable_external_access = false")
                self._prove_buckets(connection, files)
                rows = [connection.execute(q.sql, list(q.values)).fetchone() or () for q in self.queries]
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                raise not_computed("all of the log", str(error)) from error
        return json.dumps([[None if count is None else int(count) for count in row] for row in rows])

    def _read(self, files: Sequence[DataFile]) -> pa.RecordBatchReader:
        """Returns the rows with the columns of the queries and of the key."""
        store, schema = open_store(self.address, Path("/")), table_schema(self.shape)
        # Great Expectations quotes every name.
        text = " ".join(query.sql for query in self.queries)
        asked = [n for n in schema.names if n in self.shape.spread_key or quote_name(n) in text]
        # A count of rows needs a column, too.
        fields = [schema.field(name).with_nullable(True) for name in asked or schema.names[:1]]
        batches = (b for f in files for b in file_rows(store, self.folder, f, self.shape, [one.name for one in fields]))
        return pa.RecordBatchReader.from_batches(pa.schema(fields), batches)

    def _prove_buckets(self, connection: duckdb.DuckDBPyConnection, files: Sequence[DataFile]) -> None:
        """Raises CorruptError if a row lies in a file whose key groups are not those of its key."""
        if not is_countable_key(self.shape):
            return
        keyed = " AND ".join(f"{quote_name(name)} IS NOT NULL" for name in self.shape.spread_key)
        groups = f"SELECT {key_group_sql(self.shape)} AS key_group FROM {TABLE} WHERE {keyed}"
        [(first, last)] = connection.execute(f"SELECT min(key_group), max(key_group) FROM ({groups})").fetchall()
        span = KeyGroups(min(f.key_groups.first for f in files), max(f.key_groups.last for f in files))
        if first is not None and not span.first <= first <= last <= span.last:
            raise CorruptError(
                "STAGED_ROWS_MISPLACED",
                f"Rows of key groups {first} to {last} lie in files of `{self.folder}` for key groups {span.first} to "
                f"{span.last}, for example in `{files[0].name}`.",
                hint=JUDGE_AGAIN,
            )


def can_count(type_: str, kwargs: Mapping[str, Any], shape: TableSpec) -> bool:
    """Whether the counts of an expectation are sums over buckets. Other counts than those of duplicates always are."""
    columns = kwargs.get("column_list") or [kwargs.get("column")]
    return type_ not in _UNIQUE or (is_countable_key(shape) and set(shape.spread_key) <= set(columns))


def is_countable_key(shape: TableSpec) -> bool:
    """Whether equal keys lie in one bucket. 0.0 and -0.0 are equal, and need not."""
    types = {column.name: column.type for column in shape.columns}
    return bool(shape.key) and not any(types[name] in ("float", "double") for name in shape.spread_key)


def deal_buckets(manifest: Manifest) -> tuple[tuple[DataFile, ...], ...]:
    """Returns the files in shares that have no key group in common, the largest first."""
    shares: list[list[DataFile]] = []
    last = -1
    for file in sorted(manifest.shown, key=lambda f: (f.key_groups.first, f.key_groups.last)):
        if not shares or file.key_groups.first > last:
            shares.append([])
        shares[-1].append(file)
        last = max(last, file.key_groups.last)
    return tuple(sorted(map(tuple, shares), key=lambda share: -sum(file.bytes for file in share)))


def bucket_counter(address: str, manifest: Manifest, runner: Runner) -> Count:
    """Returns what answers queries over the shown rows of a snapshot. It raises TidefoldError."""

    def count(queries: Sequence[Query]) -> list[CountRow]:
        shares = deal_buckets(manifest)
        work = BucketCounts(address, manifest.home, manifest.shape, shares, tuple(queries))
        answers = []
        for answer in runner(work, [str(number) for number in range(len(shares))]):
            if isinstance(answer, TidefoldError):
                raise answer
            answers.append(json.loads(answer))
        return [tuple(map(_add, zip(*rows, strict=True))) for rows in zip(*answers, strict=True)]

    return count


def _add(counts: Sequence[int | None]) -> int | None:
    there = [count for count in counts if count is not None]
    return sum(there) if there else None
