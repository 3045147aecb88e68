"""The change data feed of a Delta table: one version after the other, none skipped (decision 0016).

It begins with the rows of the table at the first ingest, or after a configured version. Each version is handled as one
landed file whose only offset is the version.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from tidefold.domain.log_state import LogState, Position, TableSpec
from tidefold.errors import CorruptError, InvalidInputError, NotFoundError, RefusedError, StorageError, TidefoldError
from tidefold.sources.api import ParsedFile, UnfitFileError
from tidefold.sources.delta.log import (
    DeltaCommit,
    commit_path,
    first_readable,
    has_feed,
    is_mapped,
    read_commit,
    versions,
)
from tidefold.sources.delta.rows import (
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
from tidefold.sources.feed import Feed
from tidefold.sources.files.base import RowTaker, misfit
from tidefold.sources.files.parquet import misfit_type
from tidefold.sources.landing.completeness import Ending
from tidefold.sources.landing.landing_place import Stamp
from tidefold.sources.landing.listing import LandedFile, Listing
from tidefold.sources.landing.plan import FileTask
from tidefold.sources.landing.problems import FileProblem, report_unfit_schema
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.columnar_changes import OpColumn, Rules, of_values
from tidefold.sources.records.record_types import own_names
from tidefold.storage import open_store
from tidefold.storage.delta_tables import convert_errors, open_table
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
        table, position, commits = self.open_newest(state)
        if position is None and self._from is None:
            return Listing((self.snapshot_file(table), *self.list_torn(table, commits)))
        first = position.next_offset if position else self._from or 0
        if missing := sorted(set(range(first, table.version() + 1)) - set(commits)):
            raise self._version_gone(missing[0], commits)
        files = []
        for version in range(first, table.version() + 1):
            commit = self._read_commit(version)
            files.append(self.version_file(_VERSION, version, table, commit.bytes, (commit.time or 0) / 1e6))
            if not commit.is_whole:
                return Listing(tuple(files))  # The versions after it wait, too.
        return Listing((*files, *self.list_torn(table, commits)))

    def open_newest(self, state: LogState) -> tuple[DeltaTable, Position | None, tuple[int, ...]]:
        """Returns the table at its newest whole version, the position of the log, and the versions with a commit.

        Raises RefusedError (DELTA_SOURCE_REPLACED) if the log has ingested another table, or other commits.
        """
        self._require_plain_log()
        commits = versions(self._store)
        is_torn = bool(commits) and not self._read_commit(commits[-1]).is_whole
        table = self.open_table(commits[-1] - 1 if is_torn else None)
        position, table_id = state.positions[0] if state.positions else None, str(table.metadata().id)
        if position and position.topic != table_id:
            raise self.table_replaced(position, f"is another table now (id {table_id}, was {position.topic})")
        if position and position.next_offset > table.version() + 1:
            raise self.table_replaced(position, f"ends with version {table.version()} now")
        last = position.next_offset - 1 if position else -1
        if position and last in commits and not self._is_ingested(state, table_id, last):
            raise self.table_replaced(position, f"has another version {last} than the one that was ingested")
        return table, position, commits

    def _is_ingested(self, state: LogState, table_id: str, version: int) -> bool:
        """Whether the log has ingested this commit; true if its record is not known, as after a rebuild."""
        checksums = (entry.checksum for entry in reversed(state.landed) if entry.next_offset == version + 1)
        return next(filter(None, checksums), "") in (
            "",
            _name_digest(table_id, version),
            self._read_commit(version).checksum,
        )

    def list_torn(self, table: DeltaTable, commits: Sequence[int]) -> list[LandedFile]:
        """Returns the newest version if its commit is still being written."""
        return [self.version_file(_VERSION, one, table, 1, 0.0) for one in commits[-1:] if one > table.version()]

    def ending(self, file: LandedFile, taken: int) -> Ending:
        if file.name.startswith(_VERSION) and not self._read_commit(file.start).is_whole:
            return Ending(0, torn=True)
        return Ending(file.size)

    def reader(self, shape: TableSpec) -> None:
        """Returns None: a refused row is not read again. Correct it in the table, which makes a new version."""

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        try:
            return self._parse(task, shape, quarantine)
        except NotFoundError as error:
            raise UnfitFileError(
                _problem_of(task, self._version_gone(task.file.start, versions(self._store)))
            ) from error
        except TidefoldError as error:
            failure = self._unreadable(error) if isinstance(error, CorruptError) else error
            raise UnfitFileError(_problem_of(task, failure)) from error
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
            exists = number in versions(self._store)
            checksum = self._read_commit(number).checksum if exists else _name_digest(task.file.topic, number)
        else:
            commit = read_commit(self._store, number)
            rows, checksum = read_changes(Version(self._store, commit, shape)), commit.checksum
        # A column that the file lacks is null.
        columns = {name: rows.column(name) for name in rows.column_names}
        for field in pa.schema(table.schema().to_arrow()):
            columns.setdefault(field.name, pa.nulls(rows.num_rows, field.type))
        rows = pa.table(columns)
        rows = rows.rename_columns(own_names(shape, rows.column_names))
        rows, halves = without_unchanged_keys(rows, shape.key)
        self.check_keys(rows, shape, number)
        taker.take(_add_places(rows, number, self.find_time(number)), range(1, rows.num_rows + 1))
        account.records += halves
        account.ignored += halves
        account.lowest = account.first = account.last = number
        high = max(task.stream.max_order, (number, 1)) if account.changes else task.stream.max_order
        account.stream = account.stream._replace(max_order=high)
        account.low = (number, 0) if account.changes else None
        return ParsedFile(account, taker.to_table(), checksum)

    def check_keys(self, rows: pa.Table, shape: TableSpec, version: int) -> None:
        """Raises RefusedError if inserted rows share a key: only one of them would stay, and a delete takes all."""
        if not shape.key:
            return
        key, names = list(shape.key), [column.name for column in shape.columns if column.name in rows.column_names]
        added = rows.filter(pc.is_in(rows.column(CHANGE), pa.array([INSERT, AFTER]))).select(names)
        counts = added.select(key).group_by(key).aggregate([([], "count_all")])
        again = counts.filter(pc.greater(counts.column("count_all"), 1)).select(key)
        # Arrow neither groups by arrays nor joins them.
        numbered = added.select(key).append_column("row", pa.array(range(added.num_rows), pa.int64()))
        places = numbered.join(again, keys=key, join_type="left semi").column("row")
        forms: dict[str, set[str]] = defaultdict(set)
        for row in added.take(places).to_pylist():
            forms[str({name: row[name] for name in key})].add(repr(row))
        if shared := [own for own, texts in forms.items() if len(texts) > 1]:
            raise RefusedError(
                "DELTA_SOURCE_KEYS",
                f"Version {version} of `{self._address}` has {len(shared):,} keys with different rows, as {shared[0]}. "
                "tidefold cannot tell which row is right.",
            )

    def find_time(self, version: int) -> int | None:
        """Returns when a version was committed, in microseconds: as its commit says, else as its file does."""
        with suppress(NotFoundError):
            if (time := self._read_commit(version).time) is not None:
                return time
        with convert_errors(self._address):
            [file] = DeltaStorageHandler(self._store.uri(""), self._store.options()).get_file_info(
                [commit_path(version)]
            )
        return round(file.mtime.timestamp() * 1e6) if file.mtime else None

    def _read_commit(self, version: int) -> DeltaCommit:
        try:
            return read_commit(self._store, version)
        except msgspec.DecodeError as error:
            raise self._unreadable(error) from error

    def open_table(self, version: int | None = None) -> DeltaTable:
        try:
            self._require_plain_log()
            return open_table(self._store, "", version)
        except TableNotFoundError as error:
            raise NotFoundError("DELTA_SOURCE_MISSING", f"There is no Delta table at `{self._address}`.") from error
        except CorruptError as error:
            raise self._unreadable(error) from error

    def _require_plain_log(self) -> None:
        """Raises StorageError for a link: deltalake follows it, and its errors quote what it cannot parse."""
        if not isinstance(self._store, LocalStore):
            return
        try:
            for entry in self._store.list("_delta_log"):
                with suppress(FileNotFoundError):
                    stat_regular(str(self._store.root), entry.path)
        except UnsafeFileError as error:
            raise self._unreadable(error) from error

    def _check(self, table: DeltaTable, task: FileTask, shape: TableSpec) -> None:
        """Checks that the changes of a version are exactly those of the table. Raises TidefoldError, UnfitFileError."""
        file = task.file
        metadata = table.metadata()
        configuration = {name: str(value) for name, value in metadata.configuration.items()}
        if str(metadata.id) != file.topic:
            raise self.table_replaced(
                Position(file.topic, 0, file.start), f"became another table in version {file.start}"
            )
        if file.name.startswith(_VERSION) and not has_feed(configuration):
            raise InvalidInputError(
                "DELTA_SOURCE_FEED", f"Version {file.start} of `{self._address}` has no change data."
            )
        if is_mapped(configuration):
            raise InvalidInputError(
                "DELTA_SOURCE_MAPPING",
                f"`{self._address}` uses column mapping (delta.columnMapping.mode), which is not supported.",
            )
        schema = pa.schema(table.schema().to_arrow())
        names = own_names(shape, schema.names)
        schema = pa.schema([f.with_name(name) for f, name in zip(schema, names, strict=True)])
        if why := misfit(schema.names, shape, ()) or misfit_type(schema, shape):
            raise UnfitFileError(report_unfit_schema(file.name, why, stops=bool(task.stops)))

    def snapshot_file(self, table: DeltaTable, changed: float = 0.0) -> LandedFile:
        """All rows of the table at its version. changed: when it was committed, in seconds."""
        return self.version_file(SNAPSHOT, table.version(), table, count_bytes(table), changed)

    def version_file(self, kind: str, version: int, table: DeltaTable, size: int, changed: float) -> LandedFile:
        stamp, table_id = Stamp(0, size, changed), str(table.metadata().id)
        return LandedFile(f"{kind}-{version:020d}", self._address, stamp, table_id, 0, version, packed=False)

    def table_replaced(self, position: Position, why: str) -> TidefoldError:
        return RefusedError(
            "DELTA_SOURCE_REPLACED",
            f"`{self._address}` {why}; the log expects version {position.next_offset} of the former table.",
        )

    def _version_gone(self, version: int, numbers: tuple[int, ...]) -> TidefoldError:
        return RefusedError(
            "DELTA_SOURCE_GONE",
            f"The log needs version {version} of `{self._address}`, which was cleaned up. The first version that can "
            f"still be read is {first_readable(self._store, numbers)}.",
        )

    def _unreadable(self, error: Exception) -> TidefoldError:
        why = error.message if isinstance(error, TidefoldError) else str(error).splitlines()[0]
        return StorageError("DELTA_SOURCE_UNREADABLE", f"`{self._address}` cannot be read: {why}.")


def _add_places(rows: pa.Table, version: int, time: int | None) -> pa.Table:
    """The rows with order and offset: in one version deletes come before inserts."""
    count = rows.num_rows
    removes = pc.is_in(rows.column(CHANGE), pa.array([DELETE, BEFORE]))
    added = {
        "_version": pa.repeat(pa.scalar(version, pa.int64()), count),
        "_rank": pc.if_else(removes, pa.scalar(0, pa.int64()), pa.scalar(1, pa.int64())),
        "_offset": pa.array(range(version << _ROWS, (version << _ROWS) + count), pa.int64()),
        "_time": pa.repeat(pa.scalar(time, pa.int64()), count),
    }
    return pa.table({**{name: rows.column(name) for name in rows.column_names}, **added})


def _name_digest(table_id: str, version: int) -> str:
    """Returns what stands for the checksum of a version whose commit was deleted before it was ingested."""
    return hashlib.sha256(f"{table_id}@{version}".encode()).hexdigest()


def count_bytes(table: DeltaTable) -> int:
    """The bytes of a table's files, at least 1."""
    sizes: list[int] = pa.table(table.get_add_actions(flatten=True)).column("size_bytes").to_pylist()
    return 1 + sum(sizes)


def _problem_of(task: FileTask, error: TidefoldError) -> FileProblem:
    return FileProblem(task.file.name, error.code, error.message, error.hint)
