"""Commits a writer's durable change sets to the ledger of a log. Only this module does so."""

from __future__ import annotations

from collections.abc import Sequence

from tidefold.changelog.writer.pending_change_sets import PendingChangeSet
from tidefold.changelog.writer.upload import Uploaded
from tidefold.domain.ingest.append import IngestedFile, append, check_shape, with_shape
from tidefold.domain.log_state import LandedFileRecord, LogState, Position, TableSpec
from tidefold.domain.uploads import UploadTotals
from tidefold.errors import ConflictError, NotFoundError
from tidefold.ledger import Ledger


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
        at = next(mine, Position(self._writer, 0, 0, ()))
        self.position = at.next_offset
        self._high = at.high
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
            partition=0,
            first_offset=one.place,
            next_offset=end,
            records=one.rows,
            changes=one.rows,
            tombstones=0,
            repeated=0,
            quarantined=0,
            ignored=0,
            sqn=None,
        )
        return IngestedFile(landed, uploaded.written.change_set(high), Position(self._writer, 0, end, high))


def _add_uploads(change_sets: Sequence[PendingChangeSet]) -> UploadTotals:
    """Returns what the uploads of these change sets cost. Those in one segment share its time and its failures."""
    uploaded = [one.uploaded for one in change_sets if one.uploaded is not None]
    segments = {one.path: one for one in uploaded}.values()
    return UploadTotals(
        segments=len(segments),
        bytes=sum(one.bytes for one in uploaded),
        failures=sum(one.failures for one in segments),
        seconds=sum(one.seconds for one in segments),
    )
