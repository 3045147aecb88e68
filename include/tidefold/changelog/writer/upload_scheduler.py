"""Collects change sets of many logs and uploads them as few segments (C3), each upload as a value.

A batch is sent when its oldest task has waited for the persist delay, or when the batch is large enough. While too many
bytes are in flight, callers wait until an upload ends, with or without success.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.segment import WrittenChangeSet, write_parts
from tidefold.changelog.writer.retry import Cancel, RetryingExecutor, RetryPolicy, Timer
from tidefold.changelog.writer.settings import Metrics, WriterSettings
from tidefold.domain.log_state import TableSpec
from tidefold.domain.uploads import NO_UPLOADS, UploadTotals
from tidefold.errors import InvalidInputError, RefusedError
from tidefold.storage import Store
from tidefold.storage.mirrored_stream import create_duplicating

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A change set that was uploaded.

    written: the change set and its location in the primary store.
    place: its first offset in the stream of its writer.
    local: path of the local copy of the segment, which has the same offsets; None: there is none.
    cost: what the upload of its segment cost its log.
    """

    written: WrittenChangeSet
    place: int
    local: str | None = None
    cost: UploadTotals = NO_UPLOADS

    @property
    def log(self) -> str:
        return self.written.log

    @property
    def path(self) -> str:
        """Returns the path of its segment."""
        return self.written.location.segment

    @property
    def bytes(self) -> int:
        """Returns its size in the segment."""
        return self.written.location.length


def upload(
    primary: Store, local: Store | None, path: str, parts: Iterable[tuple[str, pa.Table]], *, compress: bool = True
) -> list[Uploaded]:
    """Writes a new segment and returns the location of each part, in the given order.

    The parts must be sorted by log, then by `_offset`, and have at least one row. Raises InvalidInputError if they are
    not, and the errors of the primary store. Then no file is left. Errors of the local store are never raised.
    """
    places: list[int] = []
    with create_duplicating(primary, local, path) as stream:
        written = write_parts(stream, path, _in_order(parts, places), compress=compress)
        if not written:
            raise InvalidInputError("SEGMENT_EMPTY", "A segment must have at least one change set.")
    return [Uploaded(w, place, stream.local_path) for w, place in zip(written, places, strict=True)]


def _in_order(parts: Iterable[tuple[str, pa.Table]], places: list[int]) -> Iterator[tuple[str, pa.Table]]:
    """Passes the parts on, and records the first offset of each."""
    before: tuple[str, int] | None = None
    for log, table in parts:
        if table.num_rows == 0:
            raise InvalidInputError("PART_EMPTY", f"A part of log `{log}` has no change.")
        span = pc.min_max(table.column("_offset"))
        first, last = span["min"].as_py(), span["max"].as_py()
        if before is not None and (log, first) <= before:
            raise InvalidInputError(
                "PARTS_UNSORTED",
                f"Log `{log}` from offset {first} comes after log `{before[0]}` up to offset {before[1]}.",
            )
        before = (log, last)
        places.append(first)
        yield log, table


@dataclass(frozen=True, slots=True)
class UploadPart:
    """One change set to upload: its log, its first offset in the writer's stream, and its rows."""

    log: str
    place: int
    shape: TableSpec
    fence: int
    table: pa.Table


@dataclass(frozen=True, slots=True)
class UploadTask:
    """Change sets of one log that are persisted together. Exactly one of `done` and `failed` is called, once."""

    parts: tuple[UploadPart, ...]
    bytes: int
    done: Callable[[Sequence[Uploaded]], None]
    failed: Callable[[Exception], None]


class Uploader(Protocol):
    """Writes parts, sorted by log and offset, into one segment. Returns the results in the same order."""

    def upload(self, parts: Sequence[UploadPart]) -> list[Uploaded]: ...

    def discard(self, uploaded: Sequence[Uploaded]) -> None:
        """Deletes a segment that another attempt has made unnecessary."""
        ...


class UploadScheduler:
    """Uploads tasks in batches, with retries and back-pressure. Safe to use from many threads."""

    def __init__(
        self, uploader: Uploader, settings: WriterSettings, executor: Executor, timer: Timer, metrics: Metrics
    ) -> None:
        policy = RetryPolicy(settings.attempts, settings.attempt_timeout, settings.retry_delay)
        self._uploader = uploader
        self._settings = settings
        self._timer = timer
        self._metrics = metrics
        self._retrying = RetryingExecutor(policy, executor, timer, metrics)
        self._changed = threading.Condition()
        self._waiting: list[UploadTask] = []
        self._waiting_bytes = 0
        self._in_flight = 0
        self._batches = 0
        self._collecting = 0
        self._due: Cancel | None = None
        self._closed = False
        metrics.queue = self._queue

    def submit(self, task: UploadTask) -> None:
        """Accepts a task; blocks while too much is in flight. After the end it fails the task with RefusedError."""
        try:
            with self._changed:
                # A task may exceed the rest: else one that is larger than the limit could never go.
                self._changed.wait_for(lambda: self._closed or self._in_flight < self._settings.max_bytes_in_flight)
                if self._closed:
                    raise _error_of_closed()
                self._in_flight += task.bytes
                self._waiting.append(task)
                self._waiting_bytes += task.bytes
                full = not self._settings.persist_delay or self._waiting_bytes >= self._settings.batch_bytes
                if not full and self._due is None and not self._collecting:
                    self._due = self._timer.call_later(self._settings.persist_delay, self.hurry)
        except BaseException as error:
            # Also if the wait was interrupted: only this call knows the task.
            task.failed(error if isinstance(error, Exception) else _error_of_interrupt(error))
            raise
        if full:
            self.hurry()

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Within this context no delay ends, so that tasks of many logs share segments. Leaving it sends what waits."""
        with self._changed:
            self._collecting += 1
        try:
            yield
        finally:
            with self._changed:
                self._collecting -= 1
            self.hurry()

    def hurry(self) -> None:
        """Sends what waits now, in one segment."""
        with self._changed:
            tasks = self._drain()
            if not tasks:
                return
            self._batches += 1
        self._metrics.batch_size.add(len(tasks))
        batch = _Batch(tasks, self._uploader, self._end_batch)
        try:
            self._retrying.execute(batch)
        except RuntimeError:
            batch.fail(_error_of_closed())

    def close(self) -> None:
        """Fails what was not sent, then waits for the running uploads, at most `close_timeout` seconds."""
        with self._changed:
            self._closed = True
            tasks = self._drain()
            self._in_flight -= sum(task.bytes for task in tasks)
            self._changed.notify_all()
        for task in tasks:
            task.failed(_error_of_closed())
        self._retrying.close()
        with self._changed:
            if not self._changed.wait_for(lambda: self._batches == 0, self._settings.close_timeout):
                _LOGGER.warning("%d uploads still run; what they write is removed when they end", self._batches)

    def _drain(self) -> list[UploadTask]:
        tasks, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if self._due is not None:
            self._due()
            self._due = None
        return tasks

    def _end_batch(self, size: int) -> None:
        with self._changed:
            self._batches -= 1
            self._in_flight -= size
            self._changed.notify_all()

    def _queue(self) -> tuple[int, int]:
        with self._changed:
            return len(self._waiting), self._in_flight


class _Batch:
    """The tasks that share one segment."""

    def __init__(self, tasks: Sequence[UploadTask], uploader: Uploader, ended: Callable[[int], None]) -> None:
        self._tasks = tasks
        self._uploader = uploader
        self._end_batch = ended
        parts = [part for task in tasks for part in task.parts]
        self._parts = sorted(parts, key=lambda part: (part.log, part.place))

    def attempt(self) -> list[Uploaded]:
        return self._uploader.upload(self._parts)

    def discard(self, result: list[Uploaded]) -> None:
        self._uploader.discard(result)

    def complete(self, result: list[Uploaded]) -> None:
        by_place = {(uploaded.log, uploaded.place): uploaded for uploaded in result}
        self._tell(lambda task: task.done([by_place[part.log, part.place] for part in task.parts]))

    def fail(self, error: Exception) -> None:
        self._tell(lambda task: task.failed(error))

    def _tell(self, answer: Callable[[UploadTask], None]) -> None:
        # Free the room first: a notified caller may be waiting for it.
        self._end_batch(sum(task.bytes for task in self._tasks))
        for task in self._tasks:
            try:
                answer(task)
            except Exception:
                _LOGGER.exception("A log could not take the answer to its upload")


def _error_of_closed() -> RefusedError:
    return RefusedError("WRITER_CLOSED", "The writer was closed before the upload.", hint="Append the changes again.")


def _error_of_interrupt(error: BaseException) -> RefusedError:
    message = f"The wait for running uploads was interrupted ({type(error).__name__})."
    return RefusedError("WRITER_INTERRUPTED", message)
