"""The change data feed of a Delta table: one version after the other, none skipped (decision 0016).

It begins with the rows of the table at the first ingest, or after a configured version. Each version is handled as one
landed file whose only offset is the version.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.domain.log_state import LogState, Position, TableSpec
from tidefold.errors import InvalidInputError, NotFoundError, RefusedError, TidefoldError
from tidefold.sources.api import ParsedFile, UnfitFileError
from tidefold.sources.delta.log import DeltaCommit, DeltaLog, commit_path, open_source
from tidefold.sources.delta.rows import (
    AFTER,
    BEFORE,
    CHANGE,
    DELETE,
    INSERT,
    read_changes,
    snapshot_rows,
    without_unchanged_keys,
)
from tidefold.sources.delta.source_version import (
    SourceVersion,
    find_first_readable,
    find_first_with_feed,
    read_files,
    read_version,
)
from tidefold.sources.feed import Feed
from tidefold.sources.files.base import RowTaker
from tidefold.sources.files.columns import explain_columns, misfit
from tidefold.sources.files.parquet import describe_types, explain_types, find_types, find_unfit_types
from tidefold.sources.landing.completeness import Ending
from tidefold.sources.landing.landing_place import Stamp
from tidefold.sources.landing.listing import LandedFile, Listing
from tidefold.sources.landing.plan import FileTask
from tidefold.sources.landing.problems import FileProblem, report_unfit_schema
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.columnar_changes import OpColumn, Rules
from tidefold.sources.records.columnar_values import convert_values
from tidefold.sources.records.record_types import own_names
from tidefold.storage.identity import read_instant

SNAPSHOT, _VERSION = "snapshot", "version"
# `replaced: accept`
ACCEPT = "accept"
_DROP = "`tidefold retain drop LOG --yes` (it deletes table and snapshots), then `tidefold run LOG`"
# A row's offset: its version, and its number there.
_ROWS = 32
_RULES = Rules(
    op=OpColumn(CHANGE, (INSERT, AFTER), (DELETE, BEFORE)), offset="_offset", order=("_version", "_rank"), time="_time"
)


class DeltaFeed:
    """`format: delta-cdf`. if_replaced: the next step if the table was made again; None: that of the error."""

    if_replaced: str | None = None

    def __init__(self, feed: Feed) -> None:
        self._address = feed.path
        self._from: int | None = feed.options.get("from_version")
        self._accepts_replaced: bool = feed.options.get("replaced") == ACCEPT
        self._store = open_source(feed.path)

    def listing(self, state: LogState) -> Listing:
        """Raises NotFoundError for a missing table, RefusedError if it was replaced or its next version was deleted."""
        log, table, position = self.open_newest(state)
        if position is None and self._from is None:
            return Listing((self.snapshot_file(log, table), *self.list_torn(log, table)))
        first = position.next_offset if position else self._from or 0
        if missing := sorted(set(range(first, table.version + 1)) - set(log.versions)):
            raise self._version_gone(missing[0], log)
        files = []
        for version in range(first, table.version + 1):
            commit = log.read_commit(version)
            files.append(self.version_file(_VERSION, version, table, commit.bytes, (commit.time or 0) / 1e6))
            if not commit.is_whole:
                return Listing(tuple(files))  # The versions after it wait, too.
        return Listing((*files, *self.list_torn(log, table)))

    def open_newest(self, state: LogState) -> tuple[DeltaLog, SourceVersion, Position | None]:
        """Returns the log of the table, its newest whole version, and the position of the log.

        Raises RefusedError (DELTA_SOURCE_REPLACED) if the log has ingested another table, or other commits.
        """
        log = DeltaLog(self._store)
        newest = -1 if log.newest is None else log.newest
        is_torn = newest in log.versions and not log.read_commit(newest).is_whole
        if newest < is_torn:
            raise NotFoundError("DELTA_SOURCE_MISSING", f"There is no Delta table at `{self._address}`.")
        table = self._read_version(log, newest - is_torn)
        position = state.positions[0] if state.positions else None
        if position and position.topic != table.id and not self._accepts_replaced:
            raise self.table_replaced(
                position, f"is another table now (id {table.id}, was {position.topic})", self.if_replaced
            )
        if position:
            table = replace(table, id=position.topic)  # The log goes on under the first id.
        if position and position.next_offset > table.version + 1:
            raise self.table_replaced(position, f"ends with version {table.version} now")
        last = position.next_offset - 1 if position else -1
        if position and last in log.versions and not _is_ingested(state, position.topic, log, last):
            raise self.table_replaced(position, f"has another version {last} than the one that was ingested")
        return log, table, position

    def _read_version(self, log: DeltaLog, version: int) -> SourceVersion:
        try:
            return read_version(log, version)
        except NotFoundError as error:
            raise self._version_gone(version, log) from error

    def list_torn(self, log: DeltaLog, table: SourceVersion) -> list[LandedFile]:
        """Returns the newest version if its commit is still being written."""
        newest = [one for one in log.versions[-1:] if one > table.version]
        return [self.version_file(_VERSION, version, table, 1, 0.0) for version in newest]

    def ending(self, file: LandedFile, taken: int) -> Ending:
        if file.name.startswith(_VERSION) and not DeltaLog(self._store).read_commit(file.start).is_whole:
            return Ending(0, torn=True)
        return Ending(file.size)

    def reader(self, shape: TableSpec) -> None:
        """Returns None: a refused row is not read again. Correct it in the table, which makes a new version."""

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        log = DeltaLog(self._store)
        try:
            return self._parse(log, task, shape, quarantine)
        except NotFoundError as error:
            raise UnfitFileError(_problem_of(task, self._version_gone(task.file.start, log))) from error
        except TidefoldError as error:
            raise UnfitFileError(_problem_of(task, error)) from error

    def _parse(self, log: DeltaLog, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        number = task.file.start
        # First: the log remembers the commit that it read last.
        commit = log.read_commit(number) if number in log.versions else None
        table = read_version(log, number)
        self._check(log, table, task, shape)
        taker = RowTaker(task.file, shape, _RULES, convert_values, quarantine)
        account = taker.account
        if task.file.name.startswith(SNAPSHOT):
            rows = snapshot_rows(self._store, table, read_files(log, number))
            rows = rows.append_column(CHANGE, pa.repeat(pa.scalar(INSERT), rows.num_rows))
        else:
            rows = read_changes(log, commit or log.read_commit(number), table)
        rows = rows.rename_columns(own_names(shape, rows.column_names))
        rows, halves = without_unchanged_keys(rows, shape.key)
        self.check_keys(rows, shape, number)
        taker.take(_add_places(rows, number, self.find_time(number, commit)), range(1, rows.num_rows + 1))
        account.records += halves
        account.ignored += halves
        account.lowest = account.first = account.last = number
        high = max(task.stream.max_order, (number, 1)) if account.changes else task.stream.max_order
        account.stream = account.stream._replace(max_order=high)
        account.low = (number, 0) if account.changes else None
        checksum = commit.checksum if commit else _name_digest(task.file.topic, number)
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

    def find_time(self, version: int, commit: DeltaCommit | None) -> int | None:
        """Returns when a version was committed, in microseconds: as its commit says, else as its file does."""
        if commit is not None and commit.time is not None:
            return commit.time
        instant = read_instant(self._store, commit_path(version))
        return None if instant is None else round(instant * 1e6)

    def _check(self, log: DeltaLog, table: SourceVersion, task: FileTask, shape: TableSpec) -> None:
        """Checks that the changes of a version are exactly those of the table. Raises TidefoldError, UnfitFileError."""
        file = task.file
        if table.id != file.topic and not self._accepts_replaced:
            place, became = Position(file.topic, 0, file.start), f"became another table after version {file.start}"
            raise self.table_replaced(place, became, self.find_start(log))
        if file.name.startswith(_VERSION) and not table.has_feed:
            raise self._no_feed(log, table)
        names = own_names(shape, table.schema.names)
        schema = pa.schema([f.with_name(name) for f, name in zip(table.schema, names, strict=True)])
        unfit, why = find_unfit_types(schema, shape), misfit(schema.names, shape, ())
        if why or unfit:
            # A column of null is one that no type fits.
            types = find_types(schema) | {field.name: "" for field in schema if pa.types.is_null(field.type)}
            hint = explain_columns(names, shape, (), types=types) if why else ""
            hint = " ".join(filter(None, (hint, explain_types(unfit) if unfit else "")))
            problem = report_unfit_schema(file.name, why or describe_types(unfit), stops=bool(task.stops))
            raise UnfitFileError(replace(problem, hint=hint))

    def _no_feed(self, log: DeltaLog, table: SourceVersion) -> TidefoldError:
        why = f"Version {table.version} of `{self._address}` has no change data."
        return InvalidInputError(
            "DELTA_SOURCE_FEED",
            why,
            hint=self.find_start(log) if read_version(log, max(log.versions)).has_feed else None,
        )

    def find_start(self, log: DeltaLog) -> str:
        """Returns where the log can begin again, as a next step."""
        if self._from is None:
            return f"Start the log again: {_DROP}, which begins with the rows that the table has now."
        readable, newest = find_first_readable(log), read_version(log, max(log.versions))
        start = "Leave `from_version` out."
        if readable is not None and newest.has_feed:
            first = max(readable, find_first_with_feed(log, newest))
            start = f"Set `from_version: {first}`, the first version of this table that has changes, or leave it out."
        return f"{start} A log with data starts again: {_DROP}."

    def snapshot_file(self, log: DeltaLog, table: SourceVersion, changed: float = 0.0) -> LandedFile:
        """All rows of the table at its version. changed: when it was committed, in seconds."""
        size = 1 + sum(file.size or 0 for file in read_files(log, table.version))
        return self.version_file(SNAPSHOT, table.version, table, size, changed)

    def version_file(self, kind: str, version: int, table: SourceVersion, size: int, changed: float) -> LandedFile:
        stamp = Stamp(0, size, changed)
        return LandedFile(f"{kind}-{version:020d}", self._address, stamp, table.id, 0, version, packed=False)

    def table_replaced(self, position: Position, why: str, hint: str | None = None) -> TidefoldError:
        return RefusedError(
            "DELTA_SOURCE_REPLACED",
            f"`{self._address}` {why}; the log expects version {position.next_offset} of the former table.",
            hint=hint,
        )

    def _version_gone(self, version: int, log: DeltaLog) -> TidefoldError:
        first = find_first_readable(log)
        still = f"The first version that can still be read is {first}." if first is not None else "None can be read."
        return RefusedError(
            "DELTA_SOURCE_GONE",
            f"The log needs version {version} of `{self._address}`, which was cleaned up. {still}",
            hint=self.find_start(log),
        )


def _is_ingested(state: LogState, table_id: str, log: DeltaLog, version: int) -> bool:
    """Whether the log has ingested this commit; true if its record is not known, as after a rebuild."""
    checksums = (entry.checksum for entry in reversed(state.landed) if entry.next_offset == version + 1)
    return next(filter(None, checksums), "") in (
        "",
        _name_digest(table_id, version),
        log.read_commit(version).checksum,
    )


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


def _problem_of(task: FileTask, error: TidefoldError) -> FileProblem:
    return FileProblem(task.file.name, error.code, error.message, error.hint)
