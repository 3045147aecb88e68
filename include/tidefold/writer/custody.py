"""Segments from their announcement until every log in them is settled: confirmed, or given up (C5, C7, C9).

Each segment is an intent of its own. It ends after the last log is through, and after the file was removed if none of
them confirmed it: so what a killed writer leaves behind is always announced.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from datetime import datetime

import duckdb
import pyarrow as pa

from tidefold.changelog import intents
from tidefold.changelog.intents import Intent, IntentLog
from tidefold.changelog.key_group import connect, with_key_groups
from tidefold.changelog.upload import Uploaded, upload
from tidefold.lifecycle.errors import UnknownOutcomeError
from tidefold.lifecycle.values import Shape
from tidefold.storage import Store
from tidefold.writer.metrics import Metrics
from tidefold.writer.registry import Disposal, LocalRegistry, TaskRegistry
from tidefold.writer.scheduler import Part

_LOGGER = logging.getLogger(__name__)
Clock = Callable[[], datetime]


class Custody:
    """Keeps count of who still needs which segment, in the primary store and in the local one."""

    def __init__(self, store: Store, local: Store | None, executor: Executor, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._primary_files = Disposal(store, executor)
        self._tasks = TaskRegistry(self._primary_files)
        local_files = Disposal(local if local is not None else store, executor)
        self._local_tasks = TaskRegistry(local_files)
        self._copies = LocalRegistry(local_files)
        self._lock = threading.Lock()
        self._runs: dict[str, tuple[str, set[str]]] = {}
        self._doubtful: list[str] = []

    def announce(self, parts: Sequence[Part]) -> str:
        """Says which logs a new segment will be of, and answers its path. Raises what the store raises."""
        run, now = uuid.uuid4().hex, self._clock()
        path = f"changelog/{now:%Y-%m-%d}/{run}.seg"
        logs = tuple({p.log: IntentLog(p.log, p.shape, p.fence) for p in parts}.values())
        with self._lock:
            self._runs[path] = (run, {one.log for one in logs})
        try:
            intents.begin(self._store, Intent(run, 0, now.isoformat(), logs, (path,)))
        except Exception:
            self._forget(path)
            raise
        return path

    def failed(self, path: str, error: Exception) -> None:
        """The segment was not written. After an unknown outcome it may be there, or come: it is looked after later."""
        if isinstance(error, UnknownOutcomeError):
            with self._lock:
                self._doubtful.append(path)
        else:
            self._forget(path)

    def written(self, uploaded: Sequence[Uploaded]) -> None:
        """The segment is there, and belongs to nobody yet."""
        logs = {one.log for one in uploaded}
        self._tasks.start_tracking(uploaded[0].path, logs)
        if uploaded[0].local is not None:
            self._local_tasks.start_tracking(uploaded[0].local, logs)

    def confirmed(self, uploaded: Iterable[Uploaded]) -> None:
        """Change sets are in their ledger: it owns the segment from now on."""
        for path in {one.path for one in uploaded}:
            self._tasks.stop_tracking(path)

    def kept_locally(self, uploaded: Iterable[Uploaded], log: str, snapshot: int) -> frozenset[str]:
        """Passes local copies on, then drops those that only older snapshots use; answers the dropped ones (C9)."""
        for local in {one.local for one in uploaded if one.local is not None}:
            self._copies.register(local, log, snapshot, self._local_tasks.stop_tracking(local))
        return self._copies.discard_up_to(log, snapshot)

    def subsumed(self, log: str, snapshot: int) -> frozenset[str]:
        return self._copies.discard_up_to(log, snapshot + 1)

    def pruned(self, log: str, snapshot: int) -> frozenset[str]:
        return self._copies.prune(log, snapshot)

    def through(self, uploaded: Uploaded, log: str) -> None:
        """The log has settled all it has in this segment. What nobody confirmed is removed with the last log."""
        path = uploaded.path
        if uploaded.local is not None:
            self._local_tasks.not_used(uploaded.local, log)
            self._copies.not_used(uploaded.local, log)
        with self._lock:
            _, logs = self._runs.get(path, ("", set()))
            logs.discard(log)
            last = not logs
        if self._tasks.tracks(path):
            self._tasks.not_used(path, log, lambda: self._forget(path))
        elif last:
            self._forget(path)

    def close(self) -> None:
        """Looks once more after files whose writing had an unknown outcome."""
        with self._lock:
            doubtful, self._doubtful = self._doubtful, []
        for path in doubtful:
            self._primary_files.remove(path, lambda path=path: self._forget(path))  # type: ignore[misc]

    def _forget(self, path: str) -> None:
        """Ends the intent of a segment. What cannot be ended is left to the next recovery."""
        with self._lock:
            run, _ = self._runs.pop(path, ("", set()))
        if not run:
            return
        try:
            intents.end(self._store, run)
        except Exception as error:
            _LOGGER.warning("The intent of `%s` could not be ended: %s", path, error)


class SegmentUploader:
    """Writes a batch into a segment, under the care of a custody."""

    def __init__(
        self,
        store: Store,
        local: Store | None,
        custody: Custody,
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
        self._own = threading.local()
        self._opened = ExitStack()

    def upload(self, parts: Sequence[Part]) -> list[Uploaded]:
        self._metrics.upload_begun()
        begun = self._now()
        try:
            uploaded = self._write(parts)
        except Exception:
            self._metrics.upload_failed()
            raise
        self._metrics.latency.add(self._now() - begun)
        self._metrics.size.add(sum(one.bytes for one in uploaded))
        return uploaded

    def _write(self, parts: Sequence[Part]) -> list[Uploaded]:
        tables = _with_key_groups(parts, self._connection())
        path = self._custody.announce(parts)
        try:
            named = ((part.log, table) for part, table in zip(parts, tables, strict=True))
            uploaded = upload(self._store, self._local, path, named, compress=self._compress)
        except Exception as error:
            self._custody.failed(path, error)
            raise
        self._custody.written(uploaded)
        return uploaded

    def discard(self, uploaded: Sequence[Uploaded]) -> None:
        for one in {one.log: one for one in uploaded}.values():
            self._custody.through(one, one.log)

    def close(self) -> None:
        self._opened.close()

    def _connection(self) -> duckdb.DuckDBPyConnection:
        """This thread's own: opening one takes longer than a small batch."""
        if not hasattr(self._own, "connection"):
            self._own.connection = self._opened.enter_context(connect())
        connection: duckdb.DuckDBPyConnection = self._own.connection
        return connection


def _with_key_groups(parts: Sequence[Part], connection: duckdb.DuckDBPyConnection) -> list[pa.Table]:
    """The tables of the parts with their key groups; logs of one shape are asked for together."""
    by_shape: dict[Shape, list[int]] = {}
    for index, part in enumerate(parts):
        by_shape.setdefault(part.shape, []).append(index)
    filled: dict[int, pa.Table] = {}
    for shape, indexes in by_shape.items():
        keys = pa.concat_tables([parts[i].table.select(["_kg", *shape.key]) for i in indexes])
        groups, start = with_key_groups(keys, shape, connection).column("_kg"), 0
        for i in indexes:
            table = parts[i].table
            filled[i] = table.set_column(
                table.schema.get_field_index("_kg"), table.schema.field("_kg"), groups.slice(start, table.num_rows)
            )
            start += table.num_rows
    return [filled[i] for i in range(len(parts))]
