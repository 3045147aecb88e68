"""The work of one Spark task of an ingest: it parses landed files of one or more logs into a segment."""

from __future__ import annotations

import traceback
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa

from tidefold.changelog.duckdb_connection import connect
from tidefold.changelog.segment import WrittenChangeSet, write_parts
from tidefold.changelog.writer.metrics import Metrics
from tidefold.changelog.writer.retry import run_attempts
from tidefold.domain.log_state import TableSpec
from tidefold.domain.uploads import NO_UPLOADS, ONCE, RetryPolicy, UploadTotals
from tidefold.errors import StorageError, WireError, to_wire, wrap_unexpected
from tidefold.sources.api import Feed, ParsedFile, SchemaStopError, Source, UnfitFileError
from tidefold.sources.ingest.accounting import Account
from tidefold.sources.ingest.change_batches import fill_key_groups, with_commit_times
from tidefold.sources.ingest.plan import FileTask
from tidefold.sources.landing.problems import FileProblem, report_schema_stop
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.registry import source_of
from tidefold.storage import Store, open_store
from tidefold.storage.local_store import LocalStore
from tidefold.storage.mirrored_stream import create_duplicating
from tidefold.typed_json import decode_json


@dataclass(frozen=True, slots=True)
class LogFiles:
    """Files of one log, in offset order within each partition.

    quarantine: the folder in which the task writes refused records, under a name of its own.
    """

    log: str
    feed: Feed
    shape: TableSpec
    quarantine: str
    files: tuple[FileTask, ...]

    @property
    def weight(self) -> int:
        return sum(f.weight for f in self.files)


@dataclass(frozen=True, slots=True)
class ParseTask:
    """The work of one task. The engine may run it twice, so it writes under names of its own (I35).

    store: the store's address.
    segments: the folder in the store in which the task writes its segment.
    logs: sorted by name.
    local: the folder for a local copy of the segment; None: no copy.
    no_copy: why there is no copy.
    policy: how often it is tried.
    """

    store: str
    segments: str
    logs: tuple[LogFiles, ...]
    local: str | None = None
    no_copy: str = ""
    policy: RetryPolicy = ONCE

    @property
    def weight(self) -> int:
        return sum(one.weight for one in self.logs)


@dataclass(frozen=True, slots=True)
class FileResult:
    """The result of one file.

    problem: what ends its partition after the taken records.
    account: its counts; None: nothing was taken.
    checksum: of all bytes up to `until`.
    """

    name: str
    problem: FileProblem | None = None
    account: Account | None = None
    checksum: str = ""
    written: WrittenChangeSet | None = None


@dataclass(frozen=True, slots=True)
class LogResult:
    """The results of one log: one for each file, in the order of the task, up to the first problem of a partition.

    quarantine: the path of the refused records; None: there are none.
    error: an unexpected error. Nothing of this log counts; the other logs of the task are not affected.
    no_copy: why the segment has no local copy, if it should have one.
    uploads: what the upload cost.
    """

    log: str
    files: tuple[FileResult, ...]
    quarantine: str | None
    error: WireError | None = None
    no_copy: str = ""
    uploads: UploadTotals = NO_UPLOADS


@dataclass
class _Parsing:
    """One log's files while they are parsed."""

    given: LogFiles
    quarantine: QuarantineWriter
    results: list[FileResult] = field(default_factory=list)
    # The files that have changes: a clear before a refused row is one that no account counts.
    changed: set[str] = field(default_factory=set)
    error: WireError | None = None

    def tables(self, connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, pa.Table]]:
        try:
            for table in fill_key_groups(self._file_tables(), self.given.shape, connection):
                yield self.given.log, table
        except Exception as error:
            traceback.print_exc()
            self.error = to_wire(wrap_unexpected(error))

    def _file_tables(self) -> Iterator[pa.Table]:
        """One table at a time, so that the task holds the changes of one file only."""
        source = source_of(self.given.feed)
        stopped: set[int | str] = set()
        for file_task in self.given.files:
            file = file_task.file
            if file.queue in stopped:
                continue
            parsed, problem = self._parse(source, file_task)
            if problem:
                stopped.add(file.queue)
            if parsed is None:
                self.results.append(FileResult(file.name, problem=problem))
                continue
            self.results.append(FileResult(file.name, problem, parsed.account, parsed.checksum))
            if parsed.table is not None:
                self.changed.add(file.name)
                yield with_commit_times(parsed.table, self.given.shape, self.given.feed)

    def _parse(self, source: Source, task: FileTask) -> tuple[ParsedFile | None, FileProblem | None]:
        """What can be taken of a file, and what ends its partition there."""
        mark = self.quarantine.mark()
        try:
            return source.parse(task, self.given.shape, self.quarantine), None
        except UnfitFileError as unfit:
            self.quarantine.drop_after(mark)
            return None, unfit.problem
        except SchemaStopError as stop:
            self.quarantine.drop_after(mark)
            problem = report_schema_stop(
                task.file.name, stop.line, stop.refused.reason, stop.refused.detail, stop.refused.brings
            )
            if not stop.records:
                return None, problem
            parsed, unfit_ = self._parse(source, replace(task, stops=(), most=stop.records))
            return parsed, unfit_ or problem

    def result(self, store: Store, written: list[WrittenChangeSet], no_copy: str) -> LogResult:
        """Stores the refused records, and joins each file with its change set."""
        mine = [one for one in written if one.log == self.given.log]
        path = f"{self.given.quarantine}/{uuid.uuid4().hex}.jsonl"
        try:
            refused = self.error is None and self.quarantine.store(store, path)
        except StorageError as error:
            self.error, refused = to_wire(error), False
        files = () if self.error else tuple(_with_written(self.results, mine, self.changed))
        uploads = UploadTotals(segments=int(bool(mine)), bytes=sum(one.location.length for one in mine))
        path_ = path if refused else None
        return LogResult(self.given.log, files, path_, self.error, no_copy if mine else "", uploads)


def parse(text: str) -> str:
    """Runs a ParseTask and returns its LogResults, both as JSON. Tries again after an error that may pass.

    An attempt writes at most one segment, and one quarantine file for each log.
    """
    task = decode_json(text, ParseTask)
    store = open_store(task.store, Path("/"))
    metrics = Metrics()
    results = run_attempts(task.policy, lambda: _parse_once(store, task), lambda late: _discard(store, late), metrics)
    found = metrics.read()
    cost = UploadTotals(failures=found.failures, seconds=found.latency.high)
    return msgspec.json.encode(
        [replace(r, uploads=r.uploads + cost) if r.uploads.segments else r for r in results]
    ).decode()


def _discard(store: Store, late: Sequence[LogResult]) -> None:
    """Deletes what an attempt wrote that succeeded too late. What stays is deleted at the end of the run."""
    segments = {f.written.location.segment for result in late for f in result.files if f.written}
    store.delete([*segments, *(result.quarantine for result in late if result.quarantine)])


def _parse_once(store: Store, task: ParseTask) -> list[LogResult]:
    with ExitStack() as opened:
        parsings = [_Parsing(given, opened.enter_context(QuarantineWriter())) for given in task.logs]
        connection = opened.enter_context(connect())
        tables = chain.from_iterable(parsing.tables(connection) for parsing in parsings)
        first = next(tables, None)
        segment = f"{task.segments}/{uuid.uuid4().hex}.seg"
        written: list[WrittenChangeSet] = []
        no_copy = ""
        if first:
            written, no_copy = write_segment_with_copy(store, task.local, segment, chain([first], tables))
            no_copy = no_copy or task.no_copy
        return [parsing.result(store, written, no_copy) for parsing in parsings]


def write_segment_with_copy(
    store: Store, local: str | None, segment: str, parts: Iterable[tuple[str, pa.Table]]
) -> tuple[list[WrittenChangeSet], str]:
    """Writes the segment and its local copy, if there is a folder for it; returns why there is no copy."""
    copies = LocalStore(Path(local), private=True) if local else None
    with create_duplicating(store, copies, segment) as stream:
        written = write_parts(stream, segment, parts)
    return written, f"{wrap_unexpected(stream.local_error)}" if stream.local_error else ""


def _with_written(
    results: list[FileResult], written: list[WrittenChangeSet], changed: Collection[str]
) -> Iterator[FileResult]:
    ordinals = iter(written)
    for result in results:
        if result.name in changed:
            yield replace(result, written=next(ordinals))
        else:
            yield result
