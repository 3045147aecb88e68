"""Parses landed files into segments: the tasks of a round, and the work of one, of one or more logs."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import msgspec
import pyarrow as pa

from tidefold.changelog.segment import WrittenChangeSet, write_parts
from tidefold.changelog.write_intents import Intent, IntentLog, begin
from tidefold.changelog.writer.retry import run_attempts
from tidefold.changelog.writer.settings import Metrics
from tidefold.compute.runners import Runner
from tidefold.domain.log_state import TableSpec
from tidefold.domain.paths import CHANGELOG
from tidefold.domain.retention.local_copies import CopyName
from tidefold.domain.source_progress import NO_POSITION, StreamPosition
from tidefold.domain.uploads import NO_UPLOADS, ONCE, RetryPolicy, UploadTotals
from tidefold.errors import InvalidInputError, StorageError, TidefoldError, WireError, to_wire, wrap_unexpected
from tidefold.interruption import raise_if_interrupted
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.local_copies.inventory import without_room
from tidefold.sources.api import ParsedFile, SchemaStopError, Source, UnfitFileError, source_of
from tidefold.sources.feed import Feed
from tidefold.sources.landing.plan import FileTask
from tidefold.sources.landing.problems import FileProblem, report_schema_stop
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.accounting import Account
from tidefold.sources.records.change_batches import fill_key_groups, spread_by_file, with_commit_times
from tidefold.storage import Store, open_store
from tidefold.storage.local_copies.host_copies import HostCopies, HostFolders
from tidefold.storage.local_store import LocalStore
from tidefold.storage.mirrored_stream import create_duplicating
from tidefold.typed_json import decode_json

_log = logging.getLogger(__name__)
# The most and the least bytes to parse of a task. Between them each core gets so many tasks.
TASK_BYTES, _LEAST_BYTES, _TASKS_PER_CORE = 64 << 20, 2 << 20, 2
# Parts below this size share a task and a segment with other logs, so that many small logs make few files.
_SMALL = 8 << 20


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
    local: the folder for a local copy of the segment, or how its host finds it; None: no copy.
    no_copy: why there is no copy.
    policy: how often it is tried.
    queue: how many tasks of its round are sent before it.
    """

    store: str
    segments: str
    logs: tuple[LogFiles, ...]
    local: str | HostFolders | None = None
    no_copy: str = ""
    policy: RetryPolicy = ONCE
    queue: int = 0

    @property
    def weight(self) -> int:
        return sum(one.weight for one in self.logs)


@dataclass(frozen=True, slots=True)
class FileResult:
    """The result of one file.

    problem: what ends its partition after the taken records.
    account: its counts; None: nothing was taken.
    checksum: of all bytes up to `until`.
    quarantine: the path of the refused records of its task; None: there are none.
    next_offset, stream: what its reader knew of the partition.
    part, numbers: which part of the file it is; see ParsedFile.
    more: the change sets of further parts.
    """

    name: str
    problem: FileProblem | None = None
    account: Account | None = None
    checksum: str = ""
    written: WrittenChangeSet | None = None
    quarantine: str | None = None
    next_offset: int = 0
    stream: StreamPosition = NO_POSITION
    part: int = 0
    numbers: int = 0
    more: tuple[WrittenChangeSet, ...] = ()


@dataclass(frozen=True, slots=True)
class Parsed:
    """What was read of one log.

    files: a result for each file, in the order of the task, up to the first problem of a partition.
    error: an unexpected error. Nothing of this log counts; the other logs of the task are not affected.
    no_copies: for each segment without a local copy, why.
    uploads: what the uploads cost.
    """

    log: str
    files: tuple[FileResult, ...] = ()
    error: WireError | None = None
    no_copies: tuple[str, ...] = ()
    uploads: UploadTotals = NO_UPLOADS

    def __add__(self, other: Parsed) -> Parsed:
        no_copies = (*self.no_copies, *other.no_copies)
        uploads = self.uploads + other.uploads
        return Parsed(self.log, (*self.files, *other.files), self.error or other.error, no_copies, uploads)


@dataclass
class _Parsing:
    """One log's files while they are parsed.

    changed: the files that have changes: a clear before a refused row is one that no account counts.
    """

    part: LogFiles
    quarantine: QuarantineWriter
    results: list[FileResult] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)
    error: WireError | None = None

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        try:
            for table in fill_key_groups(self._file_tables(), self.part.shape):
                yield self.part.log, table
        except Exception as error:
            raise_if_interrupted(error)
            _log.exception("`%s` cannot be parsed.", self.part.log)
            if (own := self.part.feed.own) and not isinstance(error, TidefoldError):
                error = InvalidInputError("SOURCE_FAILED", f"Source `{own}` failed: {type(error).__name__}: {error}.")
            self.error = to_wire(wrap_unexpected(error))

    def _file_tables(self) -> Iterator[pa.Table]:
        """One table at a time, so that the task holds the changes of one file only."""
        source, shape = source_of(self.part.feed), self.part.shape
        stopped: set[int | str] = set()
        for task in self.part.files:
            file = task.file
            if file.queue in stopped:
                continue
            parsed, problem = self._parse(source, task)
            if problem:
                stopped.add(file.queue)
            result = FileResult(file.name, problem, next_offset=task.next_offset, stream=task.stream, part=task.part)
            if parsed is not None:
                result = replace(result, account=parsed.account, checksum=parsed.checksum, numbers=parsed.numbers)
            self.results.append(result)
            if parsed is not None and parsed.table is not None:
                self.changed.add(file.name)
                table = with_commit_times(parsed.table, shape, self.part.feed, task.horizon)
                yield spread_by_file(table, file.name) if file.is_numbered and not shape.key else table

    def _parse(self, source: Source, task: FileTask) -> tuple[ParsedFile | None, FileProblem | None]:
        """What can be taken of a file, and what ends its partition there."""
        mark = self.quarantine.mark()
        try:
            return source.parse(task, self.part.shape, self.quarantine), None
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

    def finish(self, store: Store, written: Iterable[WrittenChangeSet], no_copy: str) -> Parsed:
        """Stores the refused records, and joins each file with its change set."""
        mine = [one for one in written if one.log == self.part.log]
        quarantine = None
        try:
            quarantine = None if self.error else self.quarantine.store(store, self.part.quarantine)
        except StorageError as error:
            self.error = to_wire(error)
        if self.error:
            files: tuple[FileResult, ...] = ()
        else:
            change_sets = iter(mine)
            files = tuple(
                replace(one, quarantine=quarantine, written=next(change_sets) if one.name in self.changed else None)
                for one in self.results
            )
        uploads = UploadTotals(segments=int(bool(mine)), bytes=sum(one.location.length for one in mine))
        return Parsed(self.part.log, files, self.error, (no_copy,) if mine and no_copy else (), uploads)


def parse(text: str) -> str:
    """Runs a ParseTask and returns what it read of each log, both as JSON. Tries again after an error that may pass.

    An attempt writes at most one segment, and one quarantine file for each log.
    """
    task = decode_json(text, ParseTask)
    store = open_store(task.store, Path("/"))
    metrics = Metrics()
    results = run_attempts(task.policy, lambda: _parse_once(store, task), lambda late: _discard(store, late), metrics)
    measured, batch = metrics.read(), sum(one.uploads.segments for one in results)

    def count(one: Parsed) -> Parsed:
        if not one.uploads.segments:
            return one
        size = one.uploads.bytes
        cost = UploadTotals.of_upload(size, measured.failures, measured.latency.high, batch, task.queue)
        return replace(one, uploads=cost)

    return msgspec.json.encode([count(one) for one in results]).decode()


def _discard(store: Store, late: Sequence[Parsed]) -> None:
    """Deletes what an attempt wrote that succeeded too late. What stays is deleted at the end of the run."""
    files = [file for parsed in late for file in parsed.files]
    segments = {file.written.location.segment for file in files if file.written}
    store.delete(segments | {file.quarantine for file in files if file.quarantine})


def _parse_once(store: Store, task: ParseTask) -> list[Parsed]:
    with ExitStack() as opened:
        parsings = [_Parsing(part, opened.enter_context(QuarantineWriter())) for part in task.logs]
        tables = chain.from_iterable(parsing.tables() for parsing in parsings)
        first = next(tables, None)
        segment = f"{task.segments}/{uuid.uuid4().hex}.seg"
        written: list[WrittenChangeSet] = []
        no_copy = ""
        if first:
            written, no_copy = write_segment_with_copy(store, task.local, segment, chain([first], tables))
            no_copy = no_copy or task.no_copy
        return [parsing.finish(store, written, no_copy) for parsing in parsings]


def write_segment_with_copy(
    store: Store, local: str | HostFolders | None, segment: str, parts: Iterable[tuple[str, pa.Table]]
) -> tuple[list[WrittenChangeSet], str]:
    """Writes the segment and its local copy, if there is a folder for it; returns why there is no copy."""
    if isinstance(local, HostFolders):
        return _write_segment_on_host(store, HostCopies(local), segment, iter(parts))
    copies = LocalStore(Path(local), private=True) if local else None
    with create_duplicating(store, copies, segment) as stream:
        written = write_parts(stream, segment, parts)
    return written, f"{wrap_unexpected(stream.local_error)}" if stream.local_error else ""


def _write_segment_on_host(
    store: Store, host: HostCopies, segment: str, parts: Iterator[tuple[str, pa.Table]]
) -> tuple[list[WrittenChangeSet], str]:
    """Writes the segment, and a copy for each of its logs: the fold of a log removes its own."""
    first = next(parts)
    name = CopyName(first[0], 0)
    with host.create(store, name, segment) as stream:
        written = write_parts(stream, segment, chain([first], parts))
    finals = {f"{CopyName(one.log, 0)}/{segment.rpartition('/')[2]}" for one in written}
    copied = host.keep(name, segment, sum(one.location.length for one in written), finals)
    host.record(store, name)
    return written, copied.error


@dataclass
class IngestRun:
    """One call of ingest.

    id: the name of its announcements and of its folders.
    rounds: how many rounds it has announced.
    folders: the folders that its tasks wrote segments or refused records to.
    """

    id: str
    rounds: int = 0
    folders: set[str] = field(default_factory=set)

    def announce(self, store: Store, logs: Sequence[IntentLog], *folders: str) -> None:
        """Announces a round that writes to these folders, before it writes. Raises StorageError."""
        begin(store, Intent(self.id, self.rounds, now(), tuple(logs), folders=folders))
        self.rounds += 1

    def segment_folder(self, pipeline: Pipeline) -> tuple[str, str | HostFolders | None, str]:
        """Returns the folder for segments, that for local copies (None: no copies), and why there are none."""
        segments = f"{CHANGELOG}/{now()[:10]}/{self.id}"
        if pipeline.hosts:
            return segments, pipeline.hosts, ""
        no_copy = without_room(pipeline)
        return segments, pipeline.local.root_of(segments) if pipeline.local and not no_copy else None, no_copy


def parse_round(
    pipeline: Pipeline, run: IngestRun, parts: Sequence[LogFiles], logs: Sequence[IntentLog], runner: Runner
) -> dict[str, Parsed]:
    """Parses files of these logs in one round of tasks. Returns what was read of each log.

    A task that fails is an error of its logs. Raises StorageError if the segments cannot be announced; then nothing was
    written.
    """
    tasks = _pack(pipeline, run, parts)
    segments = {task.segments for task in tasks}
    run.announce(pipeline.store, logs, *segments, *sorted({part.quarantine for part in parts}))
    run.folders |= segments
    _log.info("parsing %d files in %d tasks", sum(len(part.files) for part in parts), len(tasks))
    answers = [
        answer
        for some in _limit_in_flight(tasks, pipeline.config.uploads.in_flight)
        for answer in runner(parse, [msgspec.json.encode(task).decode() for task in some])
    ]
    results: dict[str, Parsed] = {}
    for task, answer in zip(tasks, answers, strict=True):
        if isinstance(answer, TidefoldError):
            parsed = [Parsed(part.log, error=to_wire(answer)) for part in task.logs]
        else:
            parsed = decode_json(answer, list[Parsed])
        for part, result in zip(task.logs, parsed, strict=True):
            results[part.log] = results[part.log] + result if part.log in results else result
            if result.error or any(file.quarantine for file in result.files):
                run.folders.add(part.quarantine)
    return results


def find_task_bytes(weight: int, cores: int) -> int:
    """Returns the bytes to parse of one task of a round. cores: that work for it; 0: not known."""
    return max(_LEAST_BYTES, min(TASK_BYTES, weight // (_TASKS_PER_CORE * cores))) if cores else TASK_BYTES


def _pack(pipeline: Pipeline, run: IngestRun, parts: Sequence[LogFiles]) -> list[ParseTask]:
    """Makes one task for each large part and joint tasks for small parts of different logs; the largest task first."""
    uploads = pipeline.config.uploads
    small = uploads.batch or _SMALL
    groups: list[list[LogFiles]] = [[part] for part in parts if part.weight >= small]
    weight = max(small, TASK_BYTES)
    for part in sorted((p for p in parts if p.weight < small), key=lambda p: p.log):
        # Two parts of one log never share a segment, because their change sets would be out of order.
        if weight + part.weight > small or groups[-1][-1].log == part.log:
            groups.append([])
            weight = 0
        groups[-1].append(part)
        weight += part.weight
    if not groups:
        return []
    segments, local, no_copy = run.segment_folder(pipeline)
    tasks = [
        ParseTask(pipeline.store.address, segments, tuple(group), local, no_copy, uploads.policy) for group in groups
    ]
    return [replace(task, queue=n) for n, task in enumerate(sorted(tasks, key=lambda task: -task.weight))]


def _limit_in_flight(tasks: Sequence[ParseTask], limit: int | None) -> Iterator[list[ParseTask]]:
    """Yields the tasks in groups that are read and uploaded at once. A larger task goes alone. None: no limit."""
    group: list[ParseTask] = []
    for task in tasks:
        if group and limit is not None and sum(one.weight for one in group) + task.weight > limit:
            yield group
            group = []
        group.append(task)
    if group:
        yield group
