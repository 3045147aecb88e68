"""The change sets that a log's writer still knows, who waits for each, and their commit to the ledger.

Pure bookkeeping, without I/O or a lock. The log's writer holds a lock around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa

from tidefold.changelog.writer.upload_scheduler import Uploaded
from tidefold.domain.ingest.append import IngestedFile, append, check_shape, with_shape
from tidefold.domain.log_state import LandedFileRecord, LogState, Position, TableSpec
from tidefold.domain.source_progress import StreamPosition
from tidefold.domain.uploads import NO_UPLOADS, UploadTotals
from tidefold.errors import ConflictError, InvalidInputError, NotFoundError, RefusedError
from tidefold.ledger import Ledger


class Stage(Enum):
    """The stage of a change set. IN_DOUBT: the answer of the ledger to its commit was lost."""

    WAITING = "waiting"
    SENDING = "sending"
    UPLOADED = "uploaded"
    IN_DOUBT = "in doubt"
    CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True)
class PendingChangeSet:
    """One change set of the writer.

    place: its first offset.
    sqn: its number since the log was opened.
    fence: the fence of the log when it was sent.
    """

    sqn: int
    place: int
    rows: int
    high: tuple[int, ...]
    table: pa.Table | None
    stage: Stage = Stage.WAITING
    uploaded: Uploaded | None = None
    fence: int = 0
    ledger_sqn: int = 0

    @property
    def bytes(self) -> int:
        return self.table.nbytes if self.table is not None else 0


@dataclass(frozen=True, slots=True)
class Persisted:
    """What a persist made durable: the change sets `from_sqn` <= sqn < `to_sqn`, in order.

    local: the paths of their local copies, only if every change set has one (C8).
    bytes: the size of the primary parts.
    """

    log: str
    from_sqn: int
    to_sqn: int
    change_sets: tuple[Uploaded, ...]
    local: tuple[str, ...] | None

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.change_sets)


@dataclass(frozen=True, slots=True)
class Waiter:
    """A caller that waits until a range is durable."""

    from_sqn: int
    to_sqn: int
    future: Future[Persisted]

    def covers(self, sqn: int) -> bool:
        return self.from_sqn <= sqn < self.to_sqn


class Pending:
    """Change sets by sqn, in order, and the waiters for them. `lowest` is the first that was not truncated."""

    def __init__(self) -> None:
        self.lowest = 0
        self.next = 0
        self.change_sets: dict[int, PendingChangeSet] = {}
        self.waiters: list[Waiter] = []

    def add(self, table: pa.Table, place: int, high: tuple[int, ...]) -> None:
        self.change_sets[self.next] = PendingChangeSet(self.next, place, table.num_rows, high, table)
        self.next += 1

    def among(self, from_sqn: int, to_sqn: int) -> list[PendingChangeSet]:
        return [c for c in self.change_sets.values() if from_sqn <= c.sqn < to_sqn]

    def move(self, chosen: Iterable[PendingChangeSet], stage: Stage) -> None:
        """Moves change sets to a stage. Those that were forgotten meanwhile stay forgotten."""
        for one in chosen:
            if one.sqn in self.change_sets:
                self.change_sets[one.sqn] = replace(self.change_sets[one.sqn], stage=stage)

    def send(self, from_sqn: int, fence: int) -> list[PendingChangeSet]:
        """Returns the waiting change sets from there on, and marks them as being sent under this fence."""
        waiting = [c for c in self.among(from_sqn, self.next) if c.stage is Stage.WAITING]
        sent = [replace(one, stage=Stage.SENDING, fence=fence) for one in waiting]
        self.change_sets.update({one.sqn: one for one in sent})
        return sent

    def note_uploaded(self, results: Sequence[Uploaded], sent: Mapping[int, int]) -> list[Uploaded]:
        """Records the locations of change sets. Returns the results whose change set was discarded meanwhile.

        sent: the sqn of each place. Places repeat after a recovery, sqns never do.
        """
        unwanted = []
        for result in results:
            one = self.change_sets.get(sent[result.place])
            if one is None or one.stage is not Stage.SENDING:
                unwanted.append(result)
            else:
                self.change_sets[one.sqn] = replace(one, table=None, stage=Stage.UPLOADED, uploaded=result)
        return unwanted

    def note_confirmed(self, numbers: Mapping[int, int]) -> None:
        """Records that the ledger has these, with its numbers."""
        for sqn, number in numbers.items():
            if sqn in self.change_sets:
                one = self.change_sets[sqn]
                self.change_sets[sqn] = replace(one, stage=Stage.CONFIRMED, ledger_sqn=number)

    def forget(self, materialized: int | None) -> None:
        """Drops the first confirmed change sets, up to the last that the ledger has folded (None: all confirmed)."""
        for sqn, one in list(self.change_sets.items()):
            folded = materialized is None or one.ledger_sqn <= materialized
            if one.stage is not Stage.CONFIRMED or not folded:
                return
            del self.change_sets[sqn]
            self.lowest = sqn + 1

    @property
    def first_unconfirmed(self) -> int:
        return next((c.sqn for c in self.change_sets.values() if c.stage is not Stage.CONFIRMED), self.next)

    def remove(self, chosen: Iterable[PendingChangeSet]) -> list[PendingChangeSet]:
        return [self.change_sets.pop(one.sqn) for one in chosen if one.sqn in self.change_sets]

    def uses(self, path: str) -> bool:
        """Whether a change set that is not settled is in this segment."""
        settled = Stage.CONFIRMED
        return any(c.uploaded and c.uploaded.path == path for c in self.change_sets.values() if c.stage is not settled)

    def without_local(self, handles: frozenset[str]) -> None:
        """Forgets these local copies, which are deleted."""
        for sqn, one in self.change_sets.items():
            if one.uploaded and one.uploaded.local in handles:
                gone = replace(one.uploaded, local=None)
                self.change_sets[sqn] = replace(one, uploaded=gone)

    def ready(self, log: str) -> list[tuple[Waiter, Persisted | Exception]]:
        """Removes and returns the waiters whose result is known."""
        answers = [(waiter, self._answer(log, waiter)) for waiter in self.waiters]
        self.waiters = [waiter for waiter, answer in answers if answer is None]
        return [(waiter, answer) for waiter, answer in answers if answer is not None]

    def _answer(self, log: str, waiter: Waiter) -> Persisted | Exception | None:
        change_sets = self.among(waiter.from_sqn, waiter.to_sqn)
        if len(change_sets) < waiter.to_sqn - waiter.from_sqn:
            return refuse_truncated(log, waiter.from_sqn, self.lowest)
        uploaded = tuple(one.uploaded for one in change_sets if one.uploaded is not None)
        if len(uploaded) < len(change_sets):
            return None
        local = tuple(one.local for one in uploaded if one.local is not None)
        return Persisted(log, waiter.from_sqn, waiter.to_sqn, uploaded, local if len(local) == len(uploaded) else None)

    def check_persist(self, log: str, from_sqn: int) -> None:
        """Raises InvalidInputError unless everything from there on is known."""
        if from_sqn > self.next:
            raise _unknown(log, from_sqn, self.next)
        if from_sqn < self.lowest or len(self.among(from_sqn, self.next)) < self.next - from_sqn:
            raise refuse_truncated(log, from_sqn, self.lowest)

    def check_confirm(self, log: str, from_sqn: int, to_sqn: int) -> None:
        """Raises InvalidInputError (invalid range) or RefusedError (not durable, or a gap after the confirmed ones)."""
        if not 0 <= from_sqn <= to_sqn <= self.next:
            raise _unknown(log, f"{from_sqn} to {to_sqn}", self.next)
        for one in self.among(0, to_sqn):
            if one.sqn < from_sqn and one.stage is not Stage.CONFIRMED:
                # The ledger takes a writer's stream in order: this one could never be confirmed after.
                raise RefusedError(
                    "CONFIRM_GAP",
                    f"Change set {one.sqn} of log `{log}` comes before {from_sqn} and is not confirmed.",
                    hint=f"Confirm from {one.sqn}. Or discard that change set: truncate to {from_sqn} first.",
                )
            if one.sqn >= from_sqn and one.uploaded is None:
                message = f"Change set {one.sqn} of log `{log}` is not durable."
                raise RefusedError("NOT_PERSISTED", message)


def refuse_truncated(log: str, sqn: int, lowest: int) -> InvalidInputError:
    message = f"Change set {sqn} of log `{log}` was truncated or rejected."
    return InvalidInputError("SQN_TRUNCATED", message, hint=f"Use a number from {lowest} on.")


def _unknown(log: str, wanted: object, upper: int) -> InvalidInputError:
    message = f"The writer of log `{log}` has no {wanted}; its next change set is {upper}."
    return InvalidInputError("SQN_UNKNOWN", message, hint="Use what `append` and `next_sqn` returned.")


class LedgerCommitter:
    """The ledger of one log, as the writer named `writer` last read it."""

    def __init__(self, ledger: Ledger, log: str, writer: str, shape: TableSpec | None) -> None:
        state = ledger.find()
        if state is None and shape is None:
            message = f"The store has no log `{log}`."
            raise NotFoundError("LOG_UNKNOWN", message, hint="Give its table definition: the first confirm creates it.")
        if state is not None and shape is not None:
            check_shape(state, shape)
        self.log = log
        self.shape: TableSpec = shape if shape is not None else state.shape  # type: ignore[union-attr]
        self._ledger = ledger
        self._writer = writer
        self._begun = state is not None
        self._look(state or ledger.peek(self.shape))

    def _look(self, state: LogState) -> None:
        mine = (p for p in state.positions if (p.topic, p.partition) == (self._writer, 0))
        at = next(mine, Position(self._writer, 0, 0))
        self.position = at.next_offset
        self._high = at.stream.max_order
        self.fence = state.fence
        self.materialized = state.latest.to_sqn if state.latest else 0
        self.next_snapshot = max((s.id for s in state.snapshots), default=state.last_snapshot) + 1

    def refresh(self) -> None:
        """Reads the ledger again."""
        state = self._ledger.find()
        if state is not None:
            self._look(state)

    def commit(self, change_sets: Sequence[PendingChangeSet]) -> dict[int, int]:
        """Appends uploaded change sets to the log and returns the sqn of each in the ledger. Repeating it changes
        nothing.

        Raises SupersededError, ConflictError (another writer of this name), and StorageError if the outcome is unknown.
        """
        arrivals = self._arrivals(change_sets)
        fence = min(one.fence for one in change_sets)
        if not self._begun:
            self._ledger.begin(self.shape, fence)
            self._begun = True
        try:
            uploads = _add_uploads(change_sets)
            state = self._ledger.commit(lambda state: self._take(state, arrivals, fence, uploads))
        except ConflictError as error:
            if error.code != "OFFSETS_TAKEN":
                raise
            raise self._overtaken() from error
        # Others have appended little since, so a search from the end finds them at once.
        names = {arrival.landed.name: one.sqn for arrival, one in zip(arrivals, change_sets, strict=True)}
        numbers: dict[int, int] = {}
        for landed in reversed(state.landed):
            if landed.topic == self._writer and landed.name in names and landed.sqn is not None:
                numbers[names[landed.name]] = landed.sqn
            if len(numbers) == len(names):
                break
        self._look(state)
        return numbers

    def _overtaken(self) -> ConflictError:
        return ConflictError(
            "OFFSETS_TAKEN",
            f"Another writer named `{self._writer}` appended to log `{self.log}` at the same time.",
            hint="Nothing was appended. Close this writer, open it again and append from its `offset` on. Programs "
            "that run at the same time need different writer names.",
        )

    def _take(self, state: LogState, arrivals: Sequence[IngestedFile], fence: int, uploads: UploadTotals) -> LogState:
        # Another process may have started the log, or started it again, since the last read.
        check_shape(state, self.shape)
        return append(with_shape(state, self.shape), arrivals, fence=fence, uploads=uploads)

    def _arrivals(self, change_sets: Sequence[PendingChangeSet]) -> list[IngestedFile]:
        arrivals, high = [], self._high
        for one in change_sets:
            high = max(high, one.high)
            assert one.uploaded is not None
            arrivals.append(self._arrival(one, one.uploaded, high))
        return arrivals

    def _arrival(self, one: PendingChangeSet, uploaded: Uploaded, high: tuple[int, ...]) -> IngestedFile:
        end = one.place + one.rows
        landed = LandedFileRecord(
            number=0,
            name=f"{self._writer}+0+{one.place:010d}",
            length=uploaded.bytes,
            checksum=uploaded.written.location.checksum,
            topic=self._writer,
            first_offset=one.place,
            next_offset=end,
            records=one.rows,
            changes=one.rows,
        )
        position = Position(self._writer, 0, end, StreamPosition(high))
        return IngestedFile(landed, uploaded.written.change_set(high), position)


def _add_uploads(change_sets: Sequence[PendingChangeSet]) -> UploadTotals:
    """Returns what the uploads of these change sets cost. Those in one segment share its time and its failures."""
    uploaded = [one.uploaded for one in change_sets if one.uploaded is not None]
    costs = sum((one.cost for one in {one.path: one for one in uploaded}.values()), NO_UPLOADS)
    return replace(costs, bytes=sum(one.bytes for one in uploaded))
