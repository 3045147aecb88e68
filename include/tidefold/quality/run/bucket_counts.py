"""The rows of staged files, and counts of bad ones on Spark: each task counts in a few buckets.

A count over all rows is the sum of the counts of disjoint shares of them.
Equal keys lie in one bucket, so duplicates of a key do, too: each task proves that its rows belong to its buckets.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.changelog.duckdb_connections import open_database
from tidefold.changelog.key_group_hash import key_group_sql, quote_name
from tidefold.changelog.schema import table_schema
from tidefold.compute.runners import Runner, in_process
from tidefold.delta.deletion_vectors import Places, without_deleted
from tidefold.delta.published_table import active_files
from tidefold.domain.log_state import SnapshotKind, TableSpec
from tidefold.domain.paths import data_path
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.errors import CorruptError, TidefoldError
from tidefold.fold.merge.arrow_merge import rows_of
from tidefold.quality.run import count_memory
from tidefold.quality.run.cost import Reuse
from tidefold.quality.run.count_memory import (
    CountMemory,
    Counts,
    ShareAnswer,
    ShareWork,
    StoredCount,
    StoredCounts,
    Turn,
)
from tidefold.quality.run.counts import Count, CountRows, not_computed, query_counts
from tidefold.storage import Store, open_store
from tidefold.storage.delta_tables import convert_errors, open_table
from tidefold.storage.safe_files import open_scratch
from tidefold.typed_json import decode_json

if TYPE_CHECKING:
    import duckdb

# It does not use `format("delta")`, by measurement (decision 0007). Delta takes row counts from the
# statistics in its log. If its schema declares a column NOT NULL, Spark replaces `IS NULL` by false, so a null
# key would pass.
JUDGE_AGAIN = "`tidefold step abort` the snapshot and materialize again; the published table is untouched."
# Of one task; above it DuckDB writes to the worker's disk.
_MEMORY = 512 << 20
# A task takes several shares up to so many rows.
_TASK_ROWS = 500_000


def check_files(store: Store, manifest: Manifest) -> None:
    """Raises CorruptError unless manifest, staged Delta table and disk agree on every file's name and size."""
    folder = manifest.data_folder
    wanted = {data_path("", f.name).lstrip("/"): f.bytes for f in manifest.files}
    if manifest.kind is SnapshotKind.FULL:
        shown = {data_path("", f.name).lstrip("/"): f.bytes for f in manifest.shown}
        _compare(manifest, "its Delta table", shown, _active_files(store, folder))
    stored = {e.path.removeprefix(f"{folder}/"): e.bytes for e in store.list(data_path(folder, "").rstrip("/"))}
    # No reader reads other files next to those of the table: they are harmless garbage of a killed attempt.
    _compare(manifest, "the store", wanted, {path: size for path, size in stored.items() if path in wanted})


def file_rows(
    store: Store,
    folder: str,
    file: DataFile,
    shape: TableSpec,
    columns: Sequence[str] | None = None,
    only: Places | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one file that are not deleted, every column nullable and of its current type.

    columns: those that are read; None: all.
    only: the places of the rows that are read instead. Row groups without such a row are not read.
    """
    wanted = [f for f in table_schema(shape) if columns is None or f.name in columns]
    schema = pa.schema([field.with_nullable(True) for field in wanted])
    with store.open(data_path(folder, file.name)) as stream:
        parquet = pq.ParquetFile(stream)
        written = parquet.schema_arrow.names
        # Without any column Arrow takes no rows, but a file that is older than all wanted columns has some.
        present = [name for name in schema.names if name in written] or written[:1]
        batches = without_deleted(parquet.iter_batches(columns=present), file)
        for rows in batches if only is None else _take_rows(parquet, present, only):
            yield _fill_columns(rows, schema)


def _take_rows(parquet: pq.ParquetFile, columns: Sequence[str], wanted: Places) -> Iterator[pa.RecordBatch]:
    start = 0
    for group in range(parquet.num_row_groups):
        end = start + parquet.metadata.row_group(group).num_rows
        first, last = np.searchsorted(wanted, np.array([start, end], np.uint64))
        if first < last:
            yield from parquet.read_row_group(group, columns).take(wanted[first:last] - np.uint64(start)).to_batches()
        start = end


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


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """The work of Spark's tasks: a task is the numbers of some shares, and returns their `ShareAnswer`s as JSON.

    counts: of single rows. duplicates: of rows with equal keys.
    """

    address: str
    folder: str
    shape: TableSpec
    shares: tuple[ShareWork, ...]
    counts: tuple[Count, ...]
    duplicates: tuple[Count, ...]

    def __call__(self, task: str) -> str:
        import duckdb

        store = open_store(self.address, Path("/"))
        answers = []
        with open_scratch() as scratch, open_database(_MEMORY, scratch) as database:
            # A check reads these rows, no other file, and loads nothing.
            database.execute("SET enable_external_access = false")
            try:
                for number in task.split():
                    # Its temporary tables end with it.
                    with database.cursor() as connection:
                        answers.append(_ShareCounter(self, store, connection).count(self.shares[int(number)]))
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                raise not_computed("all of the log", str(error)) from error
        return msgspec.json.encode(answers).decode()


@dataclass(frozen=True, slots=True)
class _ShareCounter:
    """Counts one share in a connection of its own: each file is a temporary table."""

    work: BucketCounts
    store: Store
    connection: duckdb.DuckDBPyConnection

    def count(self, share: ShareWork) -> ShareAnswer:
        counts, keys = self.work.counts, _columns_of(self.work.duplicates)
        whole: list[Counts | None] = []
        gone: list[Counts | None] = []
        for number, one in enumerate(share.files):
            if one.whole:
                self._load(f"rows_{number}", one.file, {*_columns_of(counts), *keys, *self.work.shape.spread_key})
                self._prove_bucket(f"rows_{number}", one.file)
            unknown = [counts[place] for place in one.unknown]
            if unknown:
                self._load(f"gone_{number}", one.file, _columns_of(unknown), one.gone)
            whole.append(self._ask(counts, f"FROM rows_{number}") if one.whole else None)
            gone.append(self._ask(unknown, f"FROM gone_{number}") if unknown else None)
        duplicates = self._count_duplicates(share, keys) if self.work.duplicates else ((), None)
        return ShareAnswer(tuple(whole), tuple(gone), *duplicates)

    def _count_duplicates(self, share: ShareWork, columns: set[str]) -> tuple[Counts | None, Counts | None]:
        """Returns the duplicates among all rows, and among those whose key a new row has."""
        key, names = self.work.shape.spread_key, ", ".join(map(quote_name, sorted(columns)))
        fresh = [f"SELECT {names} FROM rows_{number}" for number in share.fresh]
        kept = [number for number in range(len(share.files)) if number not in share.fresh]
        matched, new_keys = "", None
        if share.clean is not None and any(share.files[number].file.rows for number in share.fresh):
            self.connection.execute(f"CREATE TEMP TABLE fresh AS {' UNION ALL '.join(fresh)}")
            same = (f"kept.{quote_name(name)} IS NOT DISTINCT FROM fresh.{quote_name(name)}" for name in key)
            matched = f" AS kept SEMI JOIN fresh ON {' AND '.join(same)}"
            new_keys = self.connection.sql(f"SELECT DISTINCT {quote_name(key[0])} FROM fresh").to_arrow_table()
        for number in kept if share.reads_keys else ():
            if not share.files[number].whole:
                self._load(f"rows_{number}", share.files[number].file, columns, matched=matched, new_keys=new_keys)
        joined = share.clean
        if matched:
            near = (f"SELECT {names} FROM rows_{number}{matched}" for number in kept)
            joined = self._ask(self.work.duplicates, *fresh, *near)
        if joined is not None and not share.again:
            return None, joined
        rest = (f"SELECT {names} FROM rows_{number}" for number in kept)
        return self._ask(self.work.duplicates, *fresh, *rest), joined

    def _load(
        self,
        table: str,
        file: DataFile,
        columns: Set[str],
        only: Places | None = None,
        matched: str = "",
        new_keys: pa.Table | None = None,
    ) -> None:
        """Makes a table of the rows of a file.

        only: of those at these places.
        matched: of those that this join keeps.
        new_keys: of those with one of these values of the key's first column, in a tenth of the join's time.
        """
        schema = table_schema(self.work.shape)
        # A count of rows needs a column, too.
        names = [name for name in schema.names if name in columns] or schema.names[:1]
        fields = [schema.field(name).with_nullable(True) for name in names]
        batches = file_rows(self.store, self.work.folder, file, self.work.shape, names, only)
        if new_keys is not None:
            batches = (rows.take(pa.array(rows_of(rows, new_keys))) for rows in batches)
        self.connection.register("arriving", pa.RecordBatchReader.from_batches(pa.schema(fields), batches))
        self.connection.execute(f"CREATE TEMP TABLE {table} AS SELECT * FROM arriving{matched}")
        self.connection.unregister("arriving")

    def _ask(self, counts: Sequence[Count], *rows: str) -> Counts:
        return query_counts(counts, f"({' UNION ALL '.join(rows)})", lambda *q: self.connection.execute(*q).fetchall())

    def _prove_bucket(self, table: str, file: DataFile) -> None:
        """Raises CorruptError if a row lies in a file whose key groups are not those of its key."""
        shape, span = self.work.shape, file.key_groups
        if not is_countable_key(shape):
            return
        keyed = " AND ".join(f"{quote_name(name)} IS NOT NULL" for name in shape.spread_key)
        groups = f"SELECT {key_group_sql(shape)} AS key_group FROM {table} WHERE {keyed}"
        [(first, last)] = self.connection.execute(f"SELECT min(key_group), max(key_group) FROM ({groups})").fetchall()
        if first is not None and not span.first <= first <= last <= span.last:
            raise CorruptError(
                "STAGED_ROWS_MISPLACED",
                f"Rows of key groups {first} to {last} lie in the file `{file.name}` of `{self.work.folder}`, which is "
                f"for key groups {span.first} to {span.last}.",
                hint=JUDGE_AGAIN,
            )


def _columns_of(counts: Iterable[Count]) -> set[str]:
    return {name for one in counts for name in one.columns}


def can_count(count: Count, shape: TableSpec) -> bool:
    """Whether a count is the sum over buckets. Other counts than those of duplicates always are."""
    return not count.same or (is_countable_key(shape) and set(shape.spread_key) <= set(count.same))


def is_countable_key(shape: TableSpec) -> bool:
    """Whether equal keys lie in one bucket. 0.0 and -0.0 are equal, and need not."""
    types = {column.name: column.type for column in shape.columns}
    return bool(shape.key) and not any(types[name] in ("float", "double") for name in shape.spread_key)


def group_files(manifest: Manifest) -> tuple[tuple[DataFile, ...], ...]:
    """Returns the files in shares that have no key group in common, the largest first."""
    shares: list[list[DataFile]] = []
    last = -1
    for file in sorted(manifest.shown, key=lambda f: (f.key_groups.first, f.key_groups.last)):
        if not shares or file.key_groups.first > last:
            shares.append([])
        shares[-1].append(file)
        last = max(last, file.key_groups.last)
    return tuple(sorted(map(tuple, shares), key=lambda share: -sum(file.bytes for file in share)))


def bucket_counter(address: str, manifest: Manifest, runner: Runner, memory: CountMemory | None = None) -> CountRows:
    """Returns what answers queries over the shown rows of a snapshot. It raises TidefoldError.

    memory: what is taken over from the base, and left for the next snapshot.
    """

    def count(counts: Sequence[Count]) -> list[int]:
        of_rows, of_keys = (tuple(c for c in counts if bool(c.same) is keys) for keys in (False, True))
        key = count_memory.key_of(counts, manifest.shape)
        recalled = memory.recall(key) if memory and manifest.rows else None
        files = group_files(manifest)

        def run(recalled: count_memory.Recalled | None) -> tuple[tuple[count_memory.ShareCounts, ...], Reuse, Turn]:
            works, turn = count_memory.plan_counts(files, recalled, of_rows)
            work = BucketCounts(address, manifest.data_folder, manifest.shape, works, of_rows, of_keys)
            return _count_shares(work, runner), count_memory.measure_reuse(works, recalled), turn

        try:
            shares, reuse, turn = run(recalled)
        except count_memory.CountsDifferError as error:
            assert memory is not None
            shares, reuse, turn = run(None)
            reuse = replace(reuse, snapshot=memory.base, differs=str(error))
        if memory:
            memory.reuse = reuse
            asked = tuple(map(StoredCount.of, counts))
            memory.counts = StoredCounts(key, manifest.snapshot, turn, shares, asked)
        rows = count_memory.add_counts(counts for share in shares for _, counts in share.files)
        keys = count_memory.add_counts(share.duplicates for share in shares)
        answered = dict(zip([*of_rows, *of_keys], [*rows, *keys], strict=True))
        return [answered[one] for one in counts]

    return count


def find_wrong_count(address: str, manifest: Manifest, stored: StoredCounts, names: Container[str]) -> str:
    """Counts the shares again whose largest file is named, and returns which stored count is wrong; empty: none is.

    Raises TidefoldError.
    """
    counts = [one.count for one in stored.asked]
    if stored.key != count_memory.key_of(counts, manifest.shape):
        return ""  # Of another version: no gate takes them over.
    works = count_memory.plan_recount(group_files(manifest), stored, manifest, names)
    of_rows, of_keys = (tuple(c for c in counts if bool(c.same) is keys) for keys in (False, True))
    try:
        _count_shares(BucketCounts(address, manifest.data_folder, manifest.shape, works, of_rows, of_keys), in_process)
    except count_memory.CountsDifferError as error:
        return str(error)
    return ""


def _count_shares(work: BucketCounts, runner: Runner) -> tuple[count_memory.ShareCounts, ...]:
    tasks = _group_shares(work.shares)
    answers: dict[int, ShareAnswer] = {}
    for numbers, answer in zip(tasks, runner(work, [" ".join(map(str, task)) for task in tasks]), strict=True):
        if isinstance(answer, TidefoldError):
            raise answer
        answers |= zip(numbers, decode_json(answer, tuple[ShareAnswer, ...]), strict=True)
    return tuple(count_memory.combine(one, answers.get(number)) for number, one in enumerate(work.shares))


def _group_shares(works: Sequence[ShareWork]) -> list[list[int]]:
    """Returns the numbers of the shares of each task: few of little work, because its database takes 30 ms of CPU."""
    tasks: list[list[int]] = []
    read = 0
    for number, work in enumerate(works):
        # Keys alone take a tenth of the time.
        rows = sum(one.file.rows // (1 if one.whole else 10) for one in work.files)
        if work.is_idle:
            continue
        if not tasks or read + rows > _TASK_ROWS:
            tasks.append([])
            read = 0
        tasks[-1].append(number)
        read += rows
    return tasks
