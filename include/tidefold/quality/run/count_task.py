"""The work of a task that counts: a few shares of a snapshot's files, in one database of DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tidefold.changelog.duckdb_connections import open_database, open_stream
from tidefold.changelog.key_group_hash import key_group_sql, quote_name
from tidefold.changelog.schema import table_schema
from tidefold.delta.deletion_vectors import Places
from tidefold.domain.log_state import TableSpec
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.errors import CorruptError, StorageError, TidefoldError
from tidefold.quality.run.count_memory import Counts, ShareAnswer, ShareWork
from tidefold.quality.run.counts import Count, not_computed, query_counts, query_groups
from tidefold.quality.run.file_rows import file_rows
from tidefold.storage import Store, open_store
from tidefold.storage.safe_files import open_scratch

if TYPE_CHECKING:
    import duckdb

JUDGE_AGAIN = "`tidefold step abort` the snapshot and materialize again; the published table is untouched."
# The column with the number of a row's file: no column of a log begins so.
FILE = "_file"
# Of one task; above it DuckDB writes to the worker's disk.
_MEMORY = 512 << 20


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
                numbers = [int(number) for number in task.split()]
                with database.cursor() as connection:
                    joint = _ShareCounter(self, store, connection).count_jointly(numbers)
                for number in numbers:
                    # Its temporary tables end with it.
                    with database.cursor() as connection:
                        counter = _ShareCounter(self, store, connection)
                        answers.append(joint.get(number) or counter.count(self.shares[number]))
            except StorageError:
                raise
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
        counts = self.work.counts
        whole: list[Counts | None] = []
        gone: list[Counts | None] = []
        for number, one in enumerate(share.files):
            if one.whole:
                self._load(f"rows_{number}", one.file, self._whole_columns)
                self._prove_buckets(f"rows_{number}", [one.file])
            unknown = [counts[place] for place in one.unknown]
            if unknown:
                self._load(f"gone_{number}", one.file, _columns_of(unknown), one.gone)
            whole.append(self._ask(counts, f"FROM rows_{number}") if one.whole else None)
            gone.append(self._ask(unknown, f"FROM gone_{number}") if unknown else None)
        duplicates = self._count_duplicates(share) if self.work.duplicates else ((), None)
        return ShareAnswer(tuple(whole), tuple(gone), *duplicates)

    def count_jointly(self, numbers: Sequence[int]) -> dict[int, ShareAnswer]:
        """Counts the shares of which new files alone are read in full, in one table: a table costs more than few rows.

        If a key is there twice, or something cannot be counted, each share is counted for itself: nothing is returned.
        """
        import duckdb

        plain = {number: self.work.shares[number] for number in numbers if self.work.shares[number].is_plain}
        files = [one.file for share in plain.values() for one in share.files if one.whole]
        new_keys: list[list[pa.RecordBatch]] = [[] for _ in plain]
        if len(plain) < 2:
            return {}
        try:
            self._fill("joint", self._name(self._whole_columns), self._read_new([*plain.values()], new_keys), FILE)
            self._prove_buckets("joint", files, FILE)
            duplicates: Counts = ()
            if self.work.duplicates:
                names = self._name(_columns_of(self.work.duplicates))
                self._fill("near", names, self._read_near([*plain.values()], new_keys, names))
                rows = f"SELECT {', '.join(map(quote_name, names))} FROM"
                duplicates = self._ask(self.work.duplicates, f"{rows} joint", f"{rows} near{self._match('joint')}")
            whole = query_groups(self.work.counts, "joint", FILE, self._query)
        except (duckdb.Error, TidefoldError) as error:
            if isinstance(error, CorruptError):
                raise
            return {}
        counted = iter([whole.get(at, (0,) * len(self.work.counts)) for at in range(len(files))])
        made = ((tuple(next(counted) if one.whole else None for one in share.files), share) for share in plain.values())
        answers = [ShareAnswer(counts, (None,) * len(share.files), None, duplicates) for counts, share in made]
        return {} if any(duplicates) else dict(zip(plain, answers, strict=True))

    def _read_new(
        self, shares: Sequence[ShareWork], new_keys: Sequence[list[pa.RecordBatch]]
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the new files with the number of their file. new_keys: gets the keys of each share."""
        at, names = 0, self._name(self._whole_columns)
        for share, keys in zip(shares, new_keys, strict=True):
            for one in (one for one in share.files if one.whole):
                for rows in file_rows(self.store, self.work.folder, one.file, self.work.shape, names):
                    keys.append(rows.select(self.work.shape.spread_key[:1]))
                    yield rows.append_column(FILE, pa.repeat(pa.scalar(at, pa.int32()), rows.num_rows))
                at += 1

    def _read_near(
        self, shares: Sequence[ShareWork], new_keys: Sequence[list[pa.RecordBatch]], names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the other files that may have the key of a new row of their share."""
        for share, keys in zip(shares, new_keys, strict=True):
            for one in share.files if keys else ():
                if not one.whole:
                    wanted = pa.Table.from_batches(keys)
                    yield from file_rows(self.store, self.work.folder, one.file, self.work.shape, names, keys=wanted)

    def _count_duplicates(self, share: ShareWork) -> tuple[Counts | None, Counts | None]:
        """Returns the duplicates among all rows, and among those whose key a new row has."""
        columns = _columns_of(self.work.duplicates)
        key, names = self.work.shape.spread_key, ", ".join(map(quote_name, sorted(columns)))
        fresh = [f"SELECT {names} FROM rows_{number}" for number in share.fresh]
        kept = [number for number in range(len(share.files)) if number not in share.fresh]
        matched, new_keys = "", None
        if share.clean is not None and any(share.files[number].file.rows for number in share.fresh):
            self.connection.execute(f"CREATE TEMP TABLE fresh AS {' UNION ALL '.join(fresh)}")
            matched = self._match("fresh")
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
        names = self._name(columns)
        self._fill(
            table,
            names,
            file_rows(self.store, self.work.folder, file, self.work.shape, names, only, new_keys),
            matched=matched,
        )

    @property
    def _whole_columns(self) -> set[str]:
        """The columns of a file that is counted in full."""
        work = self.work
        return {*_columns_of(work.counts), *_columns_of(work.duplicates), *work.shape.spread_key}

    def _name(self, columns: Set[str]) -> list[str]:
        """Returns the columns in the order of the table. A count of rows needs a column, too."""
        schema = table_schema(self.work.shape)
        return [name for name in schema.names if name in columns] or schema.names[:1]

    def _fill(
        self, table: str, names: Sequence[str], batches: Iterable[pa.RecordBatch], number: str = "", matched: str = ""
    ) -> None:
        """Makes a table of these columns. `number`: the last column, of whole numbers."""
        schema = table_schema(self.work.shape)
        fields = [schema.field(name).with_nullable(True) for name in names]
        fields += [pa.field(number, pa.int32())] if number else []
        with open_stream(pa.schema(fields), batches) as rows:
            self.connection.register("arriving", rows)
            self.connection.execute(f"CREATE TEMP TABLE {table} AS SELECT * FROM arriving{matched}")
        self.connection.unregister("arriving")

    def _match(self, fresh: str) -> str:
        """Returns the join that keeps rows whose key a row of the table `fresh` has."""
        names = map(quote_name, self.work.shape.spread_key)
        same = " AND ".join(f"kept.{name} IS NOT DISTINCT FROM {fresh}.{name}" for name in names)
        return f" AS kept SEMI JOIN {fresh} ON {same}"

    def _query(self, sql: str, values: list[Any]) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, values).fetchall()

    def _ask(self, counts: Sequence[Count], *rows: str) -> Counts:
        return query_counts(counts, f"({' UNION ALL '.join(rows)})", self._query)

    def _prove_buckets(self, table: str, files: Sequence[DataFile], number: str = "0") -> None:
        """Raises CorruptError if a row lies in a file whose key groups are not those of its key.

        number: what tells the file of a row.
        """
        shape = self.work.shape
        if not is_countable_key(shape):
            return
        keyed = " AND ".join(f"{quote_name(name)} IS NOT NULL" for name in shape.spread_key)
        groups = f"SELECT {number} AS number, {key_group_sql(shape)} AS key_group FROM {table} WHERE {keyed}"
        spans = f"SELECT number, min(key_group), max(key_group) FROM ({groups}) GROUP BY number"
        for at, first, last in self._query(spans, []):
            file, span = files[at], files[at].key_groups
            if not span.first <= first <= last <= span.last:
                raise CorruptError(
                    "STAGED_ROWS_MISPLACED",
                    f"Rows of key groups {first} to {last} lie in the file `{file.name}` of `{self.work.folder}`, "
                    f"which is for key groups {span.first} to {span.last}.",
                    hint=JUDGE_AGAIN,
                )


def _columns_of(counts: Iterable[Count]) -> set[str]:
    return {name for one in counts for name in one.columns}


def is_countable_key(shape: TableSpec) -> bool:
    """Whether equal keys lie in one bucket. 0.0 and -0.0 are equal, and need not."""
    types = {column.name: column.type for column in shape.columns}
    return bool(shape.key) and not any(types[name] in ("float", "double") for name in shape.spread_key)
