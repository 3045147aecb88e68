"""Tracks segments from their announcement until every log in them has confirmed or discarded its part (C5, C7, C9).

Each segment is its own intent. The intent ends after the last log has settled, and after the file was deleted if no log
confirmed it. So every file that a killed writer leaves behind is announced.

The module decides who deletes which file: uploads that no log has confirmed yet (C5), and local copies of confirmed
ones (C7). A handle is the path of a file in one store. Deletes run on an executor. If one fails, tidefold logs a
warning, and the recovery that reads the intents deletes the file.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import datetime

import pyarrow as pa

from tidefold.changelog import write_intents
from tidefold.changelog.key_group_hash import with_key_groups
from tidefold.changelog.write_intents import Intent, IntentLog
from tidefold.changelog.writer.settings import Metrics
from tidefold.changelog.writer.upload_scheduler import Uploaded, UploadPart, upload
from tidefold.domain.log_state import TableSpec
from tidefold.domain.uploads import UploadTotals
from tidefold.errors import InvalidInputError, UnknownOutcomeError
from tidefold.storage import Store

_LOGGER = logging.getLogger(__name__)
Clock = Callable[[], datetime]


class DeferredDelete:
    """Deletes files in the background."""

    def __init__(self, store: Store, executor: Executor) -> None:
        self._store = store
        self._executor = executor

    def remove(self, handle: str, then: Callable[[], None] | None = None) -> None:
        """Deletes a file and calls `then` if that succeeds."""
        try:
            self._executor.submit(self._remove, handle, then)
        except RuntimeError:  # The executor was shut down: now or never.
            self._remove(handle, then)

    def _remove(self, handle: str, then: Callable[[], None] | None) -> None:
        try:
            self._store.delete([handle])
            if then is not None:
                then()
        except Exception as error:
            _LOGGER.warning("`%s` is not needed and could not be removed: %s", handle, error)


class TaskRegistry:
    """Uploaded files that are not confirmed. A file is deleted when no log uses it, unless its owner changed (C5)."""

    def __init__(self, disposal: DeferredDelete) -> None:
        self._disposal = disposal
        self._lock = threading.Lock()
        self._logs: dict[str, set[str]] = {}

    def start_tracking(self, handle: str, logs: Iterable[str]) -> None:
        """Records that `logs` use this file. Raises InvalidInputError if there is none."""
        users = set(logs)
        if not users:
            raise InvalidInputError("HANDLE_UNUSED", f"The list of logs that use `{handle}` is empty.")
        with self._lock:
            self._logs[handle] = users

    def stop_tracking(self, handle: str) -> frozenset[str]:
        """Passes the ownership of the file on. Returns the logs that used it."""
        with self._lock:
            return frozenset(self._logs.pop(handle, ()))

    def not_used(self, handle: str, log: str, then: Callable[[], None] | None = None) -> None:
        """Records that the log does not need the file. After the last log the file is deleted, and `then` is called."""
        with self._lock:
            users = self._logs.get(handle)
            if users is None:
                return
            users.discard(log)
            if users:
                return
            del self._logs[handle]
        self._disposal.remove(handle, then)

    def tracks(self, handle: str) -> bool:
        with self._lock:
            return handle in self._logs


@dataclass(slots=True)
class _Copy:
    """A local file: the highest snapshot of each log that needs it, and the logs that may still need it."""

    snapshots: dict[str, int] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)

    @property
    def is_needed(self) -> bool:
        return bool(self.snapshots or self.waiting)


class LocalRegistry:
    """Local copies by the highest snapshot that uses them (C7).

    Snapshots are numbered within a log, and a file may have change sets of several logs. So everything is recorded by
    log, and a file is deleted when no log needs it.
    """

    def __init__(self, disposal: DeferredDelete) -> None:
        self._disposal = disposal
        self._lock = threading.Lock()
        self._copies: dict[str, _Copy] = {}

    def register(self, handle: str, log: str, snapshot: int, waiting: Iterable[str] = ()) -> None:
        """Records that the log's snapshot uses the file; the highest counts. `waiting` logs have not confirmed yet."""
        with self._lock:
            copy = self._copies.setdefault(handle, _Copy())
            copy.waiting.update(waiting)
            copy.waiting.discard(log)
            copy.snapshots[log] = max(snapshot, copy.snapshots.get(log, snapshot))

    def discard_up_to(self, log: str, snapshot: int) -> frozenset[str]:
        """Drops and returns the files that no snapshot of the log from `snapshot` on uses."""
        return self._drop(log, lambda highest: highest < snapshot)

    def prune(self, log: str, snapshot: int) -> frozenset[str]:
        """Drops and returns the files whose last user was an aborted snapshot."""
        return self._drop(log, lambda highest: highest == snapshot)

    def dispose(self) -> None:
        """Drops all files, including those that others still use."""
        with self._lock:
            handles, self._copies = list(self._copies), {}
        for handle in handles:
            self._disposal.remove(handle)

    def not_used(self, handle: str, log: str) -> None:
        """Records that a log discards its unconfirmed part."""
        with self._lock:
            copy = self._copies.get(handle)
            if copy is None or log not in copy.waiting:
                return
            copy.waiting.discard(log)
            if copy.is_needed:
                return
            del self._copies[handle]
        self._disposal.remove(handle)

    def _drop(self, log: str, old: Callable[[int], bool]) -> frozenset[str]:
        with self._lock:
            dropped = [h for h, c in self._copies.items() if log in c.snapshots and old(c.snapshots[log])]
            for handle in dropped:
                del self._copies[handle].snapshots[log]
            gone = [handle for handle in dropped if not self._copies[handle].is_needed]
            for handle in gone:
                del self._copies[handle]
        for handle in gone:
            self._disposal.remove(handle)
        return frozenset(dropped)


class SegmentOwnership:
    """Counts who still needs which segment, in the primary store and in the local one.

    copies: the local copies of confirmed segments.
    """

    def __init__(self, store: Store, local: Store | None, executor: Executor, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._primary_files = DeferredDelete(store, executor)
        self._tasks = TaskRegistry(self._primary_files)
        local_files = DeferredDelete(local if local is not None else store, executor)
        self._local_tasks = TaskRegistry(local_files)
        self.copies = LocalRegistry(local_files)
        self._lock = threading.Lock()
        self._runs: dict[str, tuple[str, set[str]]] = {}
        self._doubtful: list[str] = []

    def announce(self, parts: Sequence[UploadPart]) -> str:
        """Announces the logs of a new segment, and returns its path. Raises the errors of the store."""
        run, now = uuid.uuid4().hex, self._clock()
        path = f"changelog/{now:%Y-%m-%d}/{run}.seg"
        logs = tuple({p.log: IntentLog(p.log, p.shape, p.fence) for p in parts}.values())
        with self._lock:
            self._runs[path] = (run, {one.log for one in logs})
        try:
            write_intents.begin(self._store, Intent(run, 0, now.isoformat(), logs, (path,)))
        except Exception:
            self._forget(path)
            raise
        return path

    def note_failure(self, path: str, error: Exception) -> None:
        """Records that the segment was not written. After an unknown outcome it may exist, and is checked later."""
        if isinstance(error, UnknownOutcomeError):
            with self._lock:
                self._doubtful.append(path)
        else:
            self._forget(path)

    def track(self, uploaded: Sequence[Uploaded]) -> None:
        """Records that the segment exists, and no ledger owns it yet."""
        logs = {one.log for one in uploaded}
        self._tasks.start_tracking(uploaded[0].path, logs)
        if uploaded[0].local is not None:
            self._local_tasks.start_tracking(uploaded[0].local, logs)

    def release_confirmed(self, uploaded: Iterable[Uploaded]) -> None:
        """Records that change sets are in their ledger, which now owns the segment."""
        for path in {one.path for one in uploaded}:
            self._tasks.stop_tracking(path)

    def keep_locally(self, uploaded: Iterable[Uploaded], log: str, snapshot: int) -> frozenset[str]:
        """Passes local copies on, then drops those that only older snapshots use. Returns the dropped ones (C9)."""
        for local in {one.local for one in uploaded if one.local is not None}:
            self.copies.register(local, log, snapshot, self._local_tasks.stop_tracking(local))
        return self.copies.discard_up_to(log, snapshot)

    def through(self, uploaded: Uploaded, log: str) -> None:
        """Records that the log has settled its part. After the last log, an unconfirmed file is deleted."""
        path = uploaded.path
        if uploaded.local is not None:
            self._local_tasks.not_used(uploaded.local, log)
            self.copies.not_used(uploaded.local, log)
        with self._lock:
            _, logs = self._runs.get(path, ("", set()))
            logs.discard(log)
            last = not logs
        if self._tasks.tracks(path):
            self._tasks.not_used(path, log, lambda: self._forget(path))
        elif last:
            self._forget(path)

    def close(self) -> None:
        """Checks files again whose writing had an unknown outcome."""
        with self._lock:
            doubtful, self._doubtful = self._doubtful, []
        for path in doubtful:
            self._primary_files.remove(path, lambda path=path: self._forget(path))  # type: ignore[misc]

    def _forget(self, path: str) -> None:
        """Ends the intent of a segment. If that fails, the next recovery ends it."""
        with self._lock:
            run, _ = self._runs.pop(path, ("", set()))
        if not run:
            return
        try:
            write_intents.end(self._store, run)
        except Exception as error:
            _LOGGER.warning("The intent of `%s` could not be ended: %s", path, error)


class SegmentUploader:
    """Writes a batch into a segment, and tracks its ownership."""

    def __init__(
        self,
        store: Store,
        local: Store | None,
        custody: SegmentOwnership,
        metrics: Metrics,
        now: Callable[[], float],
        *,
        compress: bool,
    ) -> None:
        self._store = store
        self._local = local
        self._custody = custody
        self._metrics = metrics
        self._now = now
        self._compress = compress
        self._lock = threading.Lock()
        self._failed: dict[str, int] = {}

    def upload(self, parts: Sequence[UploadPart]) -> list[Uploaded]:
        self._metrics.upload_begun()
        begun = self._now()
        try:
            uploaded = self._write(parts)
        except Exception:
            self._metrics.upload_failed()
            self._count_failure({part.log for part in parts})
            raise
        seconds = self._now() - begun
        self._metrics.latency.add(seconds)
        self._metrics.size.add(sum(one.bytes for one in uploaded))
        with self._lock:
            failures = {log: self._failed.pop(log, 0) for log in {one.log for one in uploaded}}
        waiting, _ = self._metrics.queue()
        costs = {
            log: UploadTotals.of_upload(
                sum(one.bytes for one in uploaded if one.log == log), failed, seconds, len(failures), waiting
            )
            for log, failed in failures.items()
        }
        return [replace(one, cost=costs[one.log]) for one in uploaded]

    def _count_failure(self, logs: Iterable[str]) -> None:
        with self._lock:
            for log in logs:
                self._failed[log] = self._failed.get(log, 0) + 1

    def _write(self, parts: Sequence[UploadPart]) -> list[Uploaded]:
        tables = _with_key_groups(parts)
        path = self._custody.announce(parts)
        try:
            named = ((part.log, table) for part, table in zip(parts, tables, strict=True))
            uploaded = upload(self._store, self._local, path, named, compress=self._compress)
        except Exception as error:
            self._custody.note_failure(path, error)
            raise
        self._custody.track(uploaded)
        return uploaded

    def discard(self, uploaded: Sequence[Uploaded]) -> None:
        for one in {one.log: one for one in uploaded}.values():
            self._custody.through(one, one.log)


def _with_key_groups(parts: Sequence[UploadPart]) -> list[pa.Table]:
    """Returns the tables of the parts with their key groups; logs of one table definition are computed together."""
    by_shape: dict[TableSpec, list[int]] = {}
    for index, part in enumerate(parts):
        by_shape.setdefault(part.shape, []).append(index)
    filled: dict[int, pa.Table] = {}
    for shape, indexes in by_shape.items():
        keys = pa.concat_tables([parts[i].table.select(["_kg", *shape.key]) for i in indexes])
        groups, start = with_key_groups(keys, shape).column("_kg"), 0
        for i in indexes:
            table = parts[i].table
            filled[i] = table.set_column(
                table.schema.get_field_index("_kg"), table.schema.field("_kg"), groups.slice(start, table.num_rows)
            )
            start += table.num_rows
    return [filled[i] for i in range(len(parts))]
