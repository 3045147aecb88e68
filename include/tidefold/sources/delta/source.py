"""The change data feed of a Delta table: one version after the other, none skipped (decision 0016).

It begins with the rows of the table at the first ingest, or after a configured version. Each version is handled as one
landed file whose only offset is the version.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidefold.domain.log_state import LogState, Position, TableSpec
from tidefold.errors import InvalidInputError, NotFoundError, RefusedError, StorageError, TidefoldError
from tidefold.sources.api import Feed, Listing, ParsedFile, UnfitFileError
from tidefold.sources.delta.changes import (  # fmt: skip
    AFTER,
    BEFORE,
    CHANGE,
    DELETE,
    INSERT,
    Version,
    read_changes,
    snapshot_rows,
    without_unchanged_keys,
)
from tidefold.sources.delta.log import first_readable, has_feed, is_mapped, read_commit, versions
from tidefold.sources.files.base import RowTaker, misfit
from tidefold.sources.files.parquet import misfit_type
from tidefold.sources.ingest.accounting import FilePosition
from tidefold.sources.ingest.plan import FileTask
from tidefold.sources.landing.completeness import Ending
from tidefold.sources.landing.folders import Stamp
from tidefold.sources.landing.listing import LandedFile
from tidefold.sources.landing.problems import FileProblem, report_unfit_schema
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.column_aliases import own_names
from tidefold.sources.records.columnar_changes import OpColumn, Rules, of_values
from tidefold.storage import open_store
from tidefold.storage.local_store import LocalStore
from tidefold.storage.safe_files import UnsafeFileError, stat_regular

SNAPSHOT, _VERSION = "snapshot", "version"
# A row's offset: its version, and its number there.
_ROWS = 32
_RULES = Rules(
    op=OpColumn(CHANGE, (INSERT, AFTER), (DELETE, BEFORE)), offset="_offset", order=("_version", "_rank"), time="_time"
)


class DeltaFeed:
    """`format: delta-cdf`."""

    def __init__(self, feed: Feed) -> None:
        self._address = feed.path
        self._from: int | None = feed.options.get("from_version")
        # No link below the table's folder is followed.
        store = open_store(feed.path, Path("/"))
        self._store = LocalStore(store.root, private=True) if isinstance(store, LocalStore) else store

    def listing(self, state: LogState) -> Listing:
        """Raises NotFoundError for a missing table, RefusedError if it was replaced or its next version was deleted."""
        table = self.open_table()
        known = state.positions[0] if state.positions else None
        table_id = str(table.metadata().id)
        if known and known.topic != table_id:
            raise self.table_replaced(known, f"is another table now (id {table_id}, was {known.topic})")
        if known and known.next_offset > table.version() + 1:
            raise self.table_replaced(known, f"ends with version {table.version()} now")
        there = versions(self._store)
        if known is None and self._from is None:
            return Listing((self.version_file(SNAPSHOT, table.version(), table_id, count_bytes(table), 0.0),))
        first = known.next_offset if known else self._from or 0
        if missing := sorted(set(range(first, table.version() + 1)) - set(there)):
            raise self._version_gone(missing[0], there)
        try:
            commits = [read_commit(self._store, version) for version in range(first, table.version() + 1)]
        except msgspec.DecodeError as error:
            raise self._unreadable(error) from error
        files = (self.version_file(_VERSION, c.version, table_id, c.bytes, (c.time or 0) / 1e6) for c in commits)
        return Listing(tuple(files))

    def ending(self, file: LandedFile, taken: int) -> Ending:
        return Ending(file.size)

    def reader(self, shape: TableSpec, place: FilePosition) -> None:
        """Returns None: a refused row is not read again. Correct it in the table, which makes a new version."""

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        try:
            return self._parse(task, shape, quarantine)
        except NotFoundError as error:
            raise UnfitFileError(
                _problem_of(task, self._version_gone(task.file.start, versions(self._store)))
            ) from error
        except TidefoldError as error:
            raise UnfitFileError(_problem_of(task, error)) from error
        except (DeltaError, pa.ArrowException, msgspec.DecodeError, OSError, ValueError) as error:
            raise UnfitFileError(_problem_of(task, self._unreadable(error))) from error

    def _parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        number = task.file.start
        table = self.open_table(number)
        self._check(table, task, shape)
        taker = RowTaker(task.file, shape, _RULES, of_values, quarantine)
        account = taker.account
        if task.file.name.startswith(SNAPSHOT):
            rows = snapshot_rows(table, self._store)
            rows = rows.append_column(CHANGE, pa.repeat(pa.scalar(INSERT), rows.num_rows))
            checksum, time = hashlib.sha256(f"{task.file.topic}@{number}".encode()).hexdigest(), None
        else:
            commit = read_commit(self._store, number)
            rows = read_changes(Version(self._store, commit, shape))
            checksum, time = commit.checksum, commit.time
        # A column that the file lacks is null.
        columns = {name: rows.column(name) for name in rows.column_names}
        for field in pa.schema(table.schema().to_arrow()):
            columns.setdefault(field.name, pa.nulls(rows.num_rows, field.type))
        rows = pa.table(columns)
        rows = rows.rename_columns(own_names(shape, rows.column_names))
        rows, halves = without_unchanged_keys(rows, shape.key)
        taker.take(_add_places(rows, number, time), range(1, rows.num_rows + 1))
        account.records += halves
        account.ignored += halves
        account.lowest = account.first = account.last = number
        high = max(task.stream.max_order, (number, 1)) if account.changes else task.stream.max_order
        account.stream = account.stream._replace(max_order=high)
        account.low = (number, 0) if account.changes else None
        return ParsedFile(account, taker.to_table(), checksum)

    def open_table(self, version: int | None = None) -> DeltaTable:
        try:
            self._require_plain_log()
            return DeltaTable(self._store.uri(""), version=version, storage_options=self._store.options() or None)
        except TableNotFoundError as error:
            raise NotFoundError(
                "DELTA_SOURCE_MISSING",
                f"There is no Delta table at `{self._address}`.",
                hint="Correct `source.table`.",
            ) from error
        except (DeltaError, UnsafeFileError) as error:
            raise self._unreadable(error) from error

    def _require_plain_log(self) -> None:
        """Raises UnsafeFileError for a link: deltalake follows it, and its errors quote what it cannot parse."""
        if not isinstance(self._store, LocalStore):
            return
        for entry in self._store.list("_delta_log"):
            with suppress(FileNotFoundError):
                stat_regular(str(self._store.root), entry.path)

    def _check(self, table: DeltaTable, task: FileTask, shape: TableSpec) -> None:
        """Checks that the changes of a version are exactly those of the table. Raises TidefoldError, UnfitFileError."""
        file = task.file
        metadata = table.metadata()
        configuration = {name: str(value) for name, value in metadata.configuration.items()}
        if str(metadata.id) != file.topic:
            raise self.table_replaced(
                Position(file.topic, 0, file.start, ()), f"became another table in version {file.start}"
            )
        if file.name.startswith(_VERSION) and not has_feed(configuration):
            raise InvalidInputError(
                "DELTA_SOURCE_FEED",
                f"Version {file.start} of `{self._address}` has no change data.",
                hint="Set `delta.enableChangeDataFeed = true`. Then run `tidefold drop` and `tidefold ingest`.",
            )
        if is_mapped(configuration):
            raise InvalidInputError(
                "DELTA_SOURCE_MAPPING",
                f"`{self._address}` uses column mapping (delta.columnMapping.mode), which is not supported.",
                hint="Feed the log from a table without column mapping.",
            )
        schema = pa.schema(table.schema().to_arrow())
        names = own_names(shape, schema.names)
        schema = pa.schema([f.with_name(name) for f, name in zip(schema, names, strict=True)])
        if why := misfit(schema.names, shape, ()) or misfit_type(schema, shape):
            raise UnfitFileError(report_unfit_schema(file.name, why, stops=bool(task.stops)))

    def version_file(self, kind: str, version: int, table_id: str, size: int, changed: float) -> LandedFile:
        stamp = Stamp(0, size, changed)
        return LandedFile(f"{kind}-{version:020d}", self._address, stamp, table_id, 0, version, gzip=False)

    def table_replaced(self, known: Position, why: str) -> TidefoldError:
        return RefusedError(
            "DELTA_SOURCE_REPLACED",
            f"`{self._address}` {why}; the log expects version {known.next_offset} of the former table.",
            hint="Restore the former table, or start the log again with `tidefold drop` and `tidefold ingest`.",
        )

    def _version_gone(self, version: int, there: tuple[int, ...]) -> TidefoldError:
        return RefusedError(
            "DELTA_SOURCE_GONE",
            f"The log needs version {version} of `{self._address}`, which was cleaned up. The first version that can "
            f"still be read is {first_readable(self._store, there)}.",
            hint="tidefold skips no version. Run `tidefold drop` and `tidefold ingest` to start the log again from the "
            "current rows of the table, and keep more of the table's history.",
        )

    def _unreadable(self, error: Exception) -> TidefoldError:
        why = str(error).splitlines()[0]
        return StorageError("DELTA_SOURCE_UNREADABLE", f"`{self._address}` cannot be read: {why}.")


def _add_places(rows: pa.Table, version: int, time: int | None) -> pa.Table:
    """The rows with order and offset: in one version deletes come before inserts."""
    count = rows.num_rows
    removes = pc.is_in(rows.column(CHANGE), pa.array([DELETE, BEFORE]))
    given = {
        "_version": pa.repeat(pa.scalar(version, pa.int64()), count),
        "_rank": pc.if_else(removes, pa.scalar(0, pa.int64()), pa.scalar(1, pa.int64())),
        "_offset": pa.array(range(version << _ROWS, (version << _ROWS) + count), pa.int64()),
        "_time": pa.repeat(pa.scalar(time, pa.int64()), count),
    }
    return pa.table({**{name: rows.column(name) for name in rows.column_names}, **given})


def count_bytes(table: DeltaTable) -> int:
    """The bytes of a table's files, at least 1."""
    sizes: list[int] = pa.table(table.get_add_actions(flatten=True)).column("size_bytes").to_pylist()
    return 1 + sum(sizes)


def _problem_of(task: FileTask, error: TidefoldError) -> FileProblem:
    return FileProblem(task.file.name, error.code, error.message, error.hint)
