"""The change data feed of a Delta table: one version after the other, none skipped (decision 0016).

It begins with the rows of the table at the first ingest, or after a configured version. Each version is handled as one
landed file whose only offset is the version.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from tidefold.domain.log_state import Column, LogState, Position, TableSpec
from tidefold.errors import CorruptError, InvalidInputError, NotFoundError, RefusedError, StorageError, TidefoldError
from tidefold.sources.api import Feed, Listing, ParsedFile, UnfitFileError
from tidefold.sources.delta.log import (
    DeltaCommit,
    FileAction,
    commit_path,
    first_readable,
    has_feed,
    is_mapped,
    read_commit,
    versions,
)
from tidefold.sources.files.base import RowTaker, misfit
from tidefold.sources.files.parquet import instants, misfit_type
from tidefold.sources.landing.completeness import Ending
from tidefold.sources.landing.folders import Stamp
from tidefold.sources.landing.listing import LandedFile
from tidefold.sources.landing.plan import FileTask
from tidefold.sources.landing.problems import FileProblem, report_unfit_schema
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.columnar_changes import OpColumn, Rules, of_text, of_values
from tidefold.sources.records.record_types import own_names
from tidefold.storage import Store, open_store
from tidefold.storage.delta_tables import convert_errors, open_table
from tidefold.storage.local_store import LocalStore
from tidefold.storage.safe_files import UnsafeFileError, stat_regular

# An absolute path or an address.
_ELSEWHERE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
CHANGE = "_change_type"
INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_preimage", "update_postimage"


@dataclass(frozen=True, slots=True)
class Version:
    """A version to read."""

    store: Store
    commit: DeltaCommit
    shape: TableSpec

    def table(self, version: int) -> DeltaTable:
        """The table as it was at a version."""
        return open_table(self.store, "", version)


def snapshot_rows(table: DeltaTable, store: Store) -> pa.Table:
    """All rows of a table at one version, in no order. Raises TidefoldError for a file outside its folder.

    The store opens the files, and not deltalake: that one follows links, and a link may replace a file after any check.
    """
    schema, live = pa.schema(table.schema().to_arrow()), _find_live_rows(table)
    parts = [schema.empty_table()]
    for action in pa.table(table.get_add_actions()).to_pylist():
        name = unquote(action["path"])
        if _ELSEWHERE.match(name) or ".." in name.split("/"):
            raise InvalidInputError(
                "PATH_OUTSIDE_ROOT",
                f"`{name}` is outside the Delta table.",
                hint="It may be a shallow clone. Copy the table with its files.",
            )
        rows = _read_file(store, name)
        rows = rows.filter(_mask(live[name], rows)) if name in live else rows
        values, count = action.get("partition") or {}, rows.num_rows
        columns = {
            field.name: rows.column(field.name).cast(field.type)
            if field.name in rows.column_names
            else pa.repeat(pa.scalar(values.get(field.name), field.type), count)
            for field in schema
        }
        parts.append(pa.table(columns, schema=schema))
    return pa.concat_tables(parts)


def _read_file(store: Store, name: str) -> pa.Table:
    with pq.ParquetFile(pa.BufferReader(store.read(name)), coerce_int96_timestamp_unit="us") as file:
        return instants(file, file.read())


def read_changes(version: Version) -> pa.Table:
    """The changes of a version, with their kind in `_change_type`, always in the same order.

    Raises NotFoundError if a file was deleted.
    """
    commit = version.commit
    if commit.changes:
        parts = [_rows(version, action, None) for action in sorted(commit.changes, key=lambda a: a.name)]
    elif commit.has_vectors:
        parts = list(_by_vectors(version))
    else:
        gone = (_rows(version, action, DELETE) for action in sorted(commit.removed, key=lambda a: a.name))
        parts = [*gone, *(_rows(version, action, INSERT) for action in sorted(commit.added, key=lambda a: a.name))]
    if not parts:
        return pa.table({CHANGE: pa.array([], pa.string())})
    return pa.concat_tables(parts, promote_options="permissive")


def without_unchanged_keys(rows: pa.Table, key: Sequence[str]) -> tuple[pa.Table, int]:
    """The rows without the preimages of updates, and how many these were.

    A preimage whose key no postimage has stays: the update changed the key, so it deletes the old one.
    """
    kinds = rows.column(CHANGE)
    # A column without chunks ends the process in `indices_nonzero` of pyarrow 18 to 21.
    old = pc.indices_nonzero(pc.equal(kinds, BEFORE).combine_chunks())
    if not len(old) or not key:
        return rows, 0
    new = rows.filter(pc.equal(kinds, AFTER)).select(list(key))
    marked = rows.take(old).select(list(key)).append_column("row", old)
    stay = set(marked.join(new, keys=list(key), join_type="left anti").column("row").to_pylist())
    gone = set(old.to_pylist()) - stay
    return rows.filter(pa.array([row not in gone for row in range(rows.num_rows)], pa.bool_())), len(gone)


def _rows(version: Version, action: FileAction, kind: str | None) -> pa.Table:
    """The rows of one file; `kind` None: the file has it."""
    rows = _read_file(version.store, action.name)
    columns = {name: rows.column(name) for name in rows.column_names}
    types = {name: column for column in version.shape.columns for name in (*column.aliases, column.name)}
    for name, text in (action.partition_values or {}).items():
        if name in types:
            columns[name] = _repeat_value(text, types[name], rows.num_rows)
    if kind is not None:
        columns[CHANGE] = pa.repeat(pa.scalar(kind), rows.num_rows)
    return pa.table(columns)


def _repeat_value(text: str | None, column: Column, count: int) -> pa.Array:
    """The value of a partition column, for all rows of a file."""
    value = None if text in (None, "") else text
    values, unfit = of_text(pa.array([value.encode() if value else None], pa.binary()), column)
    if len(unfit):
        raise ValueError(f"partition column {column.name} contains {text!r}, which is not a {column.type}")
    return pa.repeat(values[0], count)


def _by_vectors(version: Version) -> Iterator[pa.Table]:
    """Rows that are live in one of the two versions only, file by file."""
    commit = version.commit
    before = _find_live_rows(version.table(commit.version - 1)) if commit.version else {}
    after = _find_live_rows(version.table(commit.version))
    removed = {action.name: action for action in commit.removed}
    added = {action.name: action for action in commit.added}
    for name in sorted({*removed, *added}):
        rows = _rows(version, added.get(name) or removed[name], None)
        if CHANGE in rows.column_names:
            # Spark leaves it, without values, in data files that an update or a merge wrote.
            rows = rows.drop_columns(CHANGE)
        old = _mask(before.get(name, []), rows) if name in removed else _none(rows)
        new = _mask(after.get(name, []), rows) if name in added else _none(rows)
        for kind, mask in ((DELETE, pc.and_not(old, new)), (INSERT, pc.and_not(new, old))):
            live = rows.filter(mask)
            yield live.append_column(CHANGE, pa.repeat(pa.scalar(kind), live.num_rows))


def _find_live_rows(table: DeltaTable) -> dict[str, list[bool]]:
    """For each file with a deletion vector, which of its rows are live."""
    vectors = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all().to_pylist()
    root = table.table_uri.removeprefix("file://").rstrip("/")
    names = (row["filepath"].removeprefix("file://").removeprefix(root).lstrip("/") for row in vectors)
    return {unquote(name): row["selection_vector"] for name, row in zip(names, vectors, strict=True)}


def _mask(live: list[bool], rows: pa.Table) -> pa.Array:
    """A vector may be shorter than the file; the remaining rows are live."""
    return pa.array([*live, *([True] * (rows.num_rows - len(live)))], pa.bool_())


def _none(rows: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(value=False), rows.num_rows)


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
        commits = self._list_versions()
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
        known = (entry.checksum for entry in reversed(state.landed) if entry.next_offset == version + 1)
        checksum = next(filter(None, known), "")
        return checksum in ("", _name_digest(table_id, version), self._read_commit(version).checksum)

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
        names = [column.name for column in shape.columns if column.name in rows.column_names]
        added = rows.filter(pc.is_in(rows.column(CHANGE), pa.array([INSERT, AFTER]))).select(names)
        keys = added.group_by(names).aggregate([]).group_by(list(shape.key)).aggregate([([], "count_all")])
        twice = keys.filter(pc.greater(keys.column("count_all"), 1)).select(list(shape.key))
        if shape.key and twice.num_rows:
            raise RefusedError(
                "DELTA_SOURCE_KEYS",
                f"Version {version} of `{self._address}` has {twice.num_rows:,} keys with different rows, as "
                f"{twice.slice(0, 1).to_pylist()[0]}. tidefold cannot tell which row is right.",
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

    def _list_versions(self) -> tuple[int, ...]:
        try:
            self._require_plain_log()
            return versions(self._store)
        except UnsafeFileError as error:
            raise self._unreadable(error) from error

    def open_table(self, version: int | None = None) -> DeltaTable:
        try:
            self._require_plain_log()
            return open_table(self._store, "", version)
        except TableNotFoundError as error:
            raise NotFoundError("DELTA_SOURCE_MISSING", f"There is no Delta table at `{self._address}`.") from error
        except (CorruptError, UnsafeFileError) as error:
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
