"""The changelog writer: a context manager through which a program appends changes to logs, without Spark or Airflow."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from tidefold.changelog.writer.log_writer import LogWriter, Means
from tidefold.changelog.writer.pending_change_sets import LedgerCommitter, Persisted
from tidefold.changelog.writer.retry import ThreadTimer, Timer
from tidefold.changelog.writer.segment_ownership import SegmentOwnership, SegmentUploader
from tidefold.changelog.writer.settings import Metrics, MetricsSnapshot, WriterSettings
from tidefold.changelog.writer.upload_scheduler import UploadScheduler
from tidefold.domain.log_state import TableSpec
from tidefold.domain.paths import check_log_id
from tidefold.domain.table.table_spec import ARRIVAL, POSTGRESQL
from tidefold.domain.table.table_spec_validation import check
from tidefold.errors import RefusedError, TidefoldError, wrap_unexpected
from tidefold.ledger import Ledger
from tidefold.storage import Store


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Changelog:
    """Writers of any number of logs that share segments, threads and back-pressure.

    Leaving the context without an error flushes everything. Leaving it with an error discards what was not confirmed,
    and deletes its uploads.

    local: a store for optional local copies, on this machine's disks.
    keeps_copies: local copies stay when the writer closes, because the local retention of a pipeline owns them.
    """

    def __init__(
        self,
        store: Store,
        settings: WriterSettings | None = None,
        *,
        local: Store | None = None,
        keeps_copies: bool = False,
        clock: Callable[[], datetime] = _utc_now,
        timer: Timer | None = None,
        executor: Executor | None = None,
    ) -> None:
        """Opens the writer.

        clock: returns instants for people.
        timer: measures delays.
        executor: runs uploads. All three are for tests.
        """
        self.settings = settings or WriterSettings()
        self._store = store
        self._local = local is not None
        self._keeps_copies = keeps_copies
        self._clock = clock
        self._timer = timer or ThreadTimer()
        self._own = ExitStack()
        self._uploads = executor or self._pool(self.settings.threads, "changelog-upload", wait=False)
        self._metrics = Metrics()
        disposal = executor or self._pool(1, "changelog-disposal", wait=True)
        self._custody = SegmentOwnership(store, local, disposal, clock)
        self._uploader = SegmentUploader(
            store, local, self._custody, self._metrics, self._timer.now, compress=self.settings.compress
        )
        self._scheduler = UploadScheduler(self._uploader, self.settings, self._uploads, self._timer, self._metrics)
        self._logs: dict[str, LogWriter] = {}
        self._closed = False

    def log(self, log: str, shape: TableSpec | None = None) -> LogWriter:
        """Returns the writer of a log, the same one each time. `shape` may be left out for an existing log.

        Raises InvalidInputError for an invalid table definition, NotFoundError for an unknown log without one,
        RefusedError for an open writer with another one.
        """
        if self._closed:
            raise RefusedError("WRITER_CLOSED", "The changelog writer is closed.", hint="Open a new one.")
        if shape is not None:
            check(shape, (POSTGRESQL, ARRIVAL))
        writer = self._logs.get(check_log_id(log))
        if writer is None or writer.closed:
            confirming = LedgerCommitter(Ledger(self._store, log), log, self.settings.name, shape)
            means = Means(self.settings, self._scheduler, self._custody, self._micros, self._local)
            writer = self._logs[log] = LogWriter(confirming, means)
        elif shape is not None and shape != writer.shape:
            message = f"The writer of log `{log}` is open with another table definition."
            raise RefusedError("SHAPE_CHANGED", message, hint="Leave out `shape`, or close that writer first.")
        return writer

    def flush(self) -> None:
        """Persists and confirms everything that was appended to all logs, which share segments.

        An error of one log does not stop the others. The first error is raised, and its notes name the others.
        """
        errors: list[TidefoldError] = []
        with self._scheduler.collecting():
            begun = [(log, future) for log in self._open_logs() if (future := _begin_flush(log, errors)) is not None]
        for log, future in begun:
            try:
                log.end_flush(future)
            except Exception as error:
                errors.append(wrap_unexpected(error))
        if errors:
            for other in errors[1:]:
                errors[0].add_note(str(other))
            raise errors[0]

    @property
    def metrics(self) -> MetricsSnapshot:
        """Returns the current metrics of the writer."""
        return self._metrics.read()

    def close(self) -> None:
        """Discards what is not confirmed, waits for running uploads, and deletes what they wrote.

        Deletes the local copies too, unless a pipeline keeps them.
        """
        if self._closed:
            return
        self._closed = True
        for log in self._open_logs():
            log.close()
        self._scheduler.close()
        self._timer.close()
        self._custody.close()
        if not self._keeps_copies:
            self._custody.copies.dispose()
        self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None and not self._closed:
                self.flush()
        finally:
            self.close()

    def _open_logs(self) -> list[LogWriter]:
        return [log for log in self._logs.values() if not log.closed]

    def _micros(self) -> int:
        return int(self._clock().timestamp() * 1_000_000)

    def _pool(self, threads: int, name: str, *, wait: bool) -> Executor:
        pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._own.callback(pool.shutdown, wait=wait)
        return pool


def _begin_flush(log: LogWriter, errors: list[TidefoldError]) -> Future[Persisted] | None:
    try:
        return log.begin_flush()
    except Exception as error:
        errors.append(wrap_unexpected(error))
        return None
