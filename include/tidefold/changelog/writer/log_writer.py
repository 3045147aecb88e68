"""The writer of one log (C1): appends, persists, confirms and discards changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from tidefold.changelog.writer.pending_change_sets import (
    LedgerCommitter,
    Pending,
    PendingChangeSet,
    Persisted,
    Stage,
    Waiter,
)
from tidefold.changelog.writer.rows_to_arrow import Buffer, Changes, change_table, highest
from tidefold.changelog.writer.segment_ownership import SegmentOwnership
from tidefold.changelog.writer.settings import WriterSettings
from tidefold.changelog.writer.upload_scheduler import Uploaded, UploadPart, UploadScheduler, UploadTask
from tidefold.domain.log_state import TableSpec
from tidefold.errors import ConflictError, InvalidInputError, RefusedError, SupersededError

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Means:
    """What all logs of a writer share. `now` returns microseconds since 1970."""

    settings: WriterSettings
    scheduler: UploadScheduler
    custody: SegmentOwnership
    now: Callable[[], int]
    local: bool


class LogWriter:
    """Change sets of one log, numbered from 0 since it was opened. For one thread at a time.

    Changes share a change set until the caller calls `next_sqn` or `persist`, or there are enough of them. Only changes
    for which `confirm` (or `flush`) has returned are in the log.
    """

    def __init__(self, confirming: LedgerCommitter, means: Means) -> None:
        self.log = confirming.log
        self._confirming = confirming
        self._means = means
        self._shape = confirming.shape
        self._offset = confirming.position
        self._lock = threading.Lock()
        self._pending = Pending()
        self._buffer = Buffer()
        self._failure: Exception | None = None
        self._closed = False

    @property
    def shape(self) -> TableSpec:
        return self._shape

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def offset(self) -> int:
        """Returns the number of changes that all writers of this name have appended to the log."""
        return self._offset

    def append(self, changes: Changes) -> int:
        """Accepts changes (a table, rows, or one row) and returns the sqn of their change set.

        Blocks while too much is in flight. Raises InvalidInputError for changes that do not fit the log. Raises the
        error of the last upload if changes that could not be uploaded fill the allowed memory.
        """
        self._check_open()
        table = change_table(changes, self._shape, self._offset, self._means.now())
        with self._lock:
            self._check_room()
            sqn = self._pending.next
            self._buffer.add(table)
            self._offset += table.num_rows
        if self._buffer.bytes >= self._means.settings.log_bytes:
            self._send(self._pending.lowest)
        return sqn

    @property
    def next_sqn(self) -> int:
        """Returns the sqn of the next change set. Changes that were appended before this call are below it."""
        with self._lock:
            self._roll_over()
            return self._pending.next

    def persist(self, from_sqn: int) -> Future[Persisted]:
        """Makes everything from there on durable in segments. The future returns the locations, or raises the error.

        Sends again what an earlier upload failed to write. Raises InvalidInputError for truncated changes.
        """
        self._check_open()
        future: Future[Persisted] = Future()
        with self._lock:
            self._roll_over()
            self._pending.check_persist(self.log, from_sqn)
            self._pending.waiters.append(Waiter(from_sqn, self._pending.next, future))
        self._send(from_sqn)
        self._answer()
        return future

    def confirm(self, from_sqn: int, to_sqn: int, snapshot: int) -> None:
        """Commits the durable change sets `from_sqn` <= sqn < `to_sqn` to the ledger, and skips those that it already
        has.

        Local copies then belong to `snapshot`, and those that only older snapshots use are deleted (C9). Raises
        RefusedError (not durable, or a gap), ConflictError (another writer of this name), SupersededError (rejected by
        a recovery: append these changes again), StorageError (confirm again: a repetition changes nothing).
        """
        self._check_open()
        with self._lock:
            self._pending.check_confirm(self.log, from_sqn, to_sqn)
            chosen = self._pending.among(from_sqn, to_sqn)
        # Alone, because it may have been committed in other company: each is either in the ledger or not.
        for one in chosen:
            if one.stage is Stage.IN_DOUBT:
                self._commit([one])
        self._commit([one for one in chosen if one.stage is Stage.UPLOADED])
        places = [one.uploaded for one in chosen if one.uploaded is not None]
        dropped = self._means.custody.keep_locally(places, self.log, snapshot)
        with self._lock:
            self._pending.without_local(dropped)
        self._release(places)

    def _commit(self, todo: list[PendingChangeSet]) -> None:
        if not todo:
            return
        with self._lock:
            self._pending.move(todo, Stage.IN_DOUBT)
        try:
            numbers = self._confirming.commit(todo)
        except (RefusedError, ConflictError) as error:
            # Certain: the ledger does not have them.
            with self._lock:
                self._pending.move(todo, Stage.UPLOADED)
            if isinstance(error, SupersededError):
                raise self._recover() from error
            raise
        with self._lock:
            self._pending.note_confirmed(numbers)
        self._means.custody.release_confirmed(one.uploaded for one in todo if one.uploaded is not None)

    def _recover(self) -> SupersededError:
        """Discards everything after a recovery has taken this writer for dead.

        It also discards what was appended since, so that repeated changes do not come after newer ones.
        """
        self._confirming.refresh()
        with self._lock:
            self._roll_over()
            first, end = self._pending.first_unconfirmed, self._pending.next
            self._offset = self._confirming.position
        self.truncate(end)
        return SupersededError(
            "CHANGE_SETS_GIVEN_UP",
            f"Change sets {first} to {end - 1} of log `{self.log}` were confirmed too late: a recovery rejected them. "
            "None of them is in the log.",
            hint=f"Append every change again from offset {self._offset} on. The writer continues there.",
        )

    def reset(self, from_sqn: int, to_sqn: int, snapshot: int) -> None:
        """Deletes the local copies of an aborted snapshot. The change sets stay, and can be persisted and confirmed."""
        with self._lock:
            if from_sqn > to_sqn:
                raise InvalidInputError("SQN_UNKNOWN", f"{from_sqn} to {to_sqn} is not a range of change sets.")
            self._pending.without_local(self._means.custody.copies.prune(self.log, snapshot))

    def subsume(self, snapshot: int) -> None:
        """Deletes the local copies that only snapshots below this one use. Its own stay."""
        with self._lock:
            self._pending.without_local(self._means.custody.copies.discard_up_to(self.log, snapshot))

    def truncate(self, to_sqn: int) -> None:
        """Forgets the change sets below `to_sqn`. Unconfirmed ones are discarded, and their uploads deleted."""
        with self._lock:
            self._roll_over()
            if to_sqn > self._pending.next:
                raise InvalidInputError("SQN_UNKNOWN", f"Log `{self.log}` has no change set {to_sqn} to truncate to.")
            self._pending.lowest = max(self._pending.lowest, to_sqn)
            below = self._pending.among(0, to_sqn)
        self._give_up(below)

    def truncate_and_close(self, from_sqn: int) -> None:
        """Discards the change sets from there on and closes. Unconfirmed ones before it are lost too."""
        with self._lock:
            ended = (Stage.CONFIRMED, Stage.IN_DOUBT)
            lost = [c.sqn for c in self._pending.among(0, from_sqn) if c.stage not in ended]
        if lost:
            _LOGGER.warning("Log `%s`: change sets %d to %d were never confirmed", self.log, lost[0], lost[-1])
        self.close()

    def flush(self, snapshot: int | None = None) -> None:
        """Persists and confirms everything appended so far. Raises the errors of `persist` and `confirm`.

        snapshot: the one that local copies are for; None: the next one after the newest that the ledger knows.
        """
        with self._means.scheduler.collecting():
            future = self.begin_flush()
        self.end_flush(future, snapshot)

    def begin_flush(self) -> Future[Persisted]:
        """Runs the first half of a flush, so that many logs can share segments."""
        return self.persist(self._first_kept())

    def end_flush(self, future: Future[Persisted], snapshot: int | None = None) -> None:
        persisted = future.result()
        number = self._confirming.next_snapshot if snapshot is None else snapshot
        self.confirm(persisted.from_sqn, persisted.to_sqn, number)
        with self._lock:
            # Local copies of the tail are kept until a snapshot has folded it.
            self._pending.forget(self._confirming.materialized if self._means.local else None)

    def close(self) -> None:
        """Discards what is not confirmed and deletes its uploads. A second close does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._buffer.take()
            everything = self._pending.among(0, self._pending.next)
        self._give_up(everything)

    def _first_kept(self) -> int:
        with self._lock:
            return next(iter(self._pending.change_sets), self._pending.next)

    def _check_open(self) -> None:
        if self._closed:
            raise RefusedError("WRITER_CLOSED", f"The writer of log `{self.log}` is closed.", hint="Open it again.")

    def _check_room(self) -> None:
        if self._failure is not None:
            held = sum(c.bytes for c in self._pending.change_sets.values() if c.stage is Stage.WAITING)
            if held >= self._means.settings.max_bytes_in_flight:
                raise self._failure

    def _roll_over(self) -> None:
        """Makes a change set of the changes since the last one."""
        table = self._buffer.take()
        if table is not None:
            self._pending.add(table, self._offset - table.num_rows, highest(table, self._shape))

    def _send(self, from_sqn: int) -> None:
        """Sends the waiting change sets from there on. It may block, so it holds no lock: ending uploads need it."""
        with self._lock:
            self._roll_over()
            sending = self._pending.send(from_sqn, self._confirming.fence)
        if not sending:
            return
        parts = tuple(UploadPart(self.log, c.place, self._shape, c.fence, c.table) for c in sending)
        sent = {c.place: c.sqn for c in sending}
        size = sum(c.bytes for c in sending)
        done, failed = partial(self._complete, sent), partial(self._fail, frozenset(sent.values()))
        self._means.scheduler.submit(UploadTask(parts, size, done, failed))

    def _complete(self, sent: Mapping[int, int], results: Sequence[Uploaded]) -> None:
        with self._lock:
            self._failure = None
            unwanted = self._pending.note_uploaded(results, sent)
        self._release(unwanted)
        self._answer()

    def _fail(self, sent: frozenset[int], error: Exception) -> None:
        with self._lock:
            self._failure = error
            self._pending.move([c for c in self._pending.change_sets.values() if c.sqn in sent], Stage.WAITING)
            lost = [w for w in self._pending.waiters if any(w.covers(sqn) for sqn in sent)]
            self._pending.waiters = [w for w in self._pending.waiters if w not in lost]
        for waiter in lost:
            waiter.future.set_exception(error)

    def _give_up(self, chosen: Iterable[PendingChangeSet]) -> None:
        """Forgets change sets. Those in doubt may be in the ledger, so their segment and its intent stay (I11)."""
        with self._lock:
            removed = self._pending.remove(chosen)
        doubted = {c.uploaded.path for c in removed if c.uploaded and c.stage is Stage.IN_DOUBT}
        self._release([c.uploaded for c in removed if c.uploaded and c.uploaded.path not in doubted])
        self._answer()

    def _release(self, places: Iterable[Uploaded]) -> None:
        """Reports segments in which no change set of the log waits any more."""
        for path, uploaded in {one.path: one for one in places}.items():
            with self._lock:
                used = self._pending.uses(path)
            if not used:
                self._means.custody.through(uploaded, self.log)

    def _answer(self) -> None:
        with self._lock:
            answers = self._pending.ready(self.log)
        for waiter, answer in answers:
            if isinstance(answer, Exception):
                waiter.future.set_exception(answer)
                continue
            if self._means.local and answer.local is None:
                without = next(one.path for one in answer.change_sets if one.local is None)
                _LOGGER.info("Log `%s`: no local result, `%s` has no local copy", self.log, without)
            waiter.future.set_result(answer)
