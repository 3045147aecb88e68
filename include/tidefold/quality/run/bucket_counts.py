"""The rows of staged files, and counts of bad ones on Spark: each task runs the queries on a few buckets.

Great Expectations asks for counts in SQL. A count over all rows is the sum of the counts of disjoint shares of them.
Equal keys lie in one bucket, so duplicates of a key do, too: each task proves that its rows belong to its buckets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.changelog.key_group_hash import connect, key_group_sql, quote_name
from tidefold.changelog.schema import table_schema
from tidefold.compute.runners import Runner
from tidefold.delta.data_files import without_deleted
from tidefold.delta.published_table import active_files
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import SnapshotKind, TableSpec
from tidefold.domain.paths import data_path
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.errors import CorruptError, TidefoldError
from tidefold.quality.run.expectations import not_computed
from tidefold.storage import Store, open_store
from tidefold.storage.delta_tables import convert_errors, open_table
from tidefold.storage.safe_files import open_scratch

if TYPE_CHECKING:
    import duckdb

# It does not use `format("delta")`, by measurement (docs/quality.md). Delta takes row counts from the statistics in
# its log. If its schema declares a column NOT NULL, Spark replaces `IS NULL` by false, so a null key would pass.
JUDGE_AGAIN = "`tidefold abort` the snapshot and materialize again; the published table is untouched."


def check_files(store: Store, manifest: Manifest) -> None:
    """Raises CorruptError unless manifest, staged Delta table and disk agree on every file's name and size."""
    folder = manifest.home
    wanted = {data_path("", f.name).lstrip("/"): f.bytes for f in manifest.files}
    if manifest.kind is SnapshotKind.FULL:
        shown = {data_path("", f.name).lstrip("/"): f.bytes for f in manifest.shown}
        _compare(manifest, "its Delta table", shown, _active_files(store, folder))
    stored = {e.path.removeprefix(f"{folder}/"): e.bytes for e in store.list(data_path(folder, "").rstrip("/"))}
    # No reader reads other files next to those of the table: they are harmless garbage of a killed attempt.
    _compare(manifest, "the store", wanted, {path: size for path, size in stored.items() if path in wanted})


def file_rows(
    store: Store, folder: str, file: DataFile, shape: TableSpec, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one file that are not deleted, every column nullable and of its current type.

    columns: those that are read; None: all.
    """
    wanted = [f for f in table_schema(shape) if columns is None or f.name in columns]
    schema = pa.schema([field.with_nullable(True) for field in wanted])
    with store.open(data_path(folder, file.name)) as stream:
        parquet = pq.ParquetFile(stream)
        present = [name for name in schema.names if name in parquet.schema_arrow.names]
        for rows in without_deleted(parquet.iter_batches(columns=present), file):
            yield _fill_columns(rows, schema)


def _fill_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Adds null columns for those that are newer than the file."""
    present = set(rows.schema.names)
    columns = [
        rows.column(field.name).cast(field.type) if field.name in present else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _active_files(store: Store, folder: str) -> dict[str, int]:
    try:
        with convert_errors(folder):
            return active_files(open_table(store, folder))
    except CorruptError as error:
        message = f"The staged table `{folder}` cannot be read: {error.message}."
        raise CorruptError("STAGED_TABLE_UNREADABLE", message, hint=JUDGE_AGAIN) from error


def _compare(manifest: Manifest, where: str, wanted: dict[str, int], present: dict[str, int]) -> None:
    differing = sorted(path for path in wanted.keys() | present.keys() if wanted.get(path) != present.get(path))
    if differing:
        raise CorruptError(
            "STAGED_FILES_DIFFER",
            f"The manifest of snapshot {manifest.snapshot} of `{manifest.log}` and {where} differ in {len(differing)} "
            f"files. The first is `{differing[0]}`.",
            hint=JUDGE_AGAIN,
        )


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
CountRows = Callable[[Sequence["Query"]], Sequence[CountRow]]


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


def bucket_counter(address: str, manifest: Manifest, runner: Runner) -> CountRows:
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
    counted = [count for count in counts if count is not None]
    return sum(counted) if counted else None
