"""Proves for one log of a set which points of the source's log it has completely. Pure. Decisions 0048 and 0051."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tidefold.domain.sets.progress import Cut, LogProgress, RecordRun, SignalledSnapshot, TransactionEnd

NEWEST = 2**63 - 1
_NO_TRANSACTIONS = "the connector writes it with `provide.transaction.metadata: true`"


def may_follow(run: RecordRun, runs: Sequence[RecordRun], position: int) -> bool:
    """Whether a transaction without an END comes after the position. If not, the source sent an earlier one again."""
    if not run.is_early:
        return run.after >= position
    # It was committed no later than the commit before a later transaction.
    until = next((one.after for one in runs if one.offset > run.offset and one.after > run.after), None)
    return until is None or until > position


@dataclass(frozen=True, slots=True)
class PlacedEnd:
    """An END with a position, its own or one that the records of the set's tables show."""

    end: TransactionEnd
    position: int


class EndProof(Enum):
    """What proves that a table has all records of a transaction."""

    COUNT = "the count of its END"
    LATER = "a later record"
    EITHER = "the count of its END, or a later record"


class LogProver:
    """Proves for one log which points it has completely."""

    def __init__(
        self,
        progress: LogProgress,
        ends: Sequence[PlacedEnd],
        proofs: Mapping[str, EndProof],
        released: Mapping[int, int],
    ) -> None:
        """`released`: the position at which snapshots by signal had ended, by the offset of the newest of them."""
        self._log, self._released = progress, released
        self._positions = {one.end.id: one.position for one in ends}
        self._indexes = {one.end.id: index for index, one in enumerate(ends)}
        first = progress.first_transaction
        self._first = self._positions.get(first.transaction or "") if first else None
        if progress.is_adopted and first and self._first is not None:
            # What was ingested before the log came into the set ends before its first new transaction.
            ends = ends[next(i for i, one in enumerate(ends) if one.end.id == first.transaction) :]
        held = [
            (one.position, why)
            for one in ends
            if (why := self._explain_end(one, proofs.get(one.end.id, EndProof.COUNT)))
        ]
        self._missing, self._reasons = [position for position, _ in held], [why for _, why in held]

    def _explain_end(self, one: PlacedEnd, proof: EndProof) -> str:
        """Returns why it is not proved that all records of a transaction have landed; empty: it is."""
        end = one.end
        is_counted = self._log.seen.get(end.id, 0) >= end.counts.get(self._log.table, 0)
        if is_counted and proof is not EndProof.LATER:
            return ""
        if proof is not EndProof.COUNT and self._has_later_than(one):
            return ""
        if not is_counted:
            return f"records of {end.name} have not landed"
        return f"no record after {end.name} has landed, and the connector was killed while it sent that transaction"

    def _has_later_than(self, one: PlacedEnd) -> bool:
        """Whether all records up to one of a later transaction have landed. A topic keeps its order."""
        own = self._indexes[one.end.id]
        for run in self._log.runs:
            if run.offset >= self._log.unbroken_to:
                return False
            index = self._indexes.get(run.transaction or "")
            if index > own if index is not None else self._is_later(run, one.position):
                return True
        return False

    def has_all_to(self, position: int) -> bool:
        """Whether all records of all transactions up to this position have landed."""
        return not self.find_gap(position)

    def find_gap(self, position: int) -> str:
        """Returns why this position is not proved; empty: it is."""
        return self._find_gap_at_start(position) or self.find_held(position)[1] or self._find_gap_in_records(position)

    def _find_gap_at_start(self, position: int) -> str:
        log, snapshot = self._log, self._log.snapshot
        if log.untracked is not None and not (log.is_adopted and self._is_before_first(log.untracked)):
            return f"the record at offset {log.untracked} has no transaction; {_NO_TRANSACTIONS}"
        if log.is_adopted:
            if log.first_offset is not None and log.first_offset != log.taken_to:
                return f"the records from offset {log.taken_to} on have not landed"
            if self._first is None or self._first > position:
                return "it was ingested before it came into the set, and it takes part from its next transaction on"
        if not log.is_fresh or (snapshot and snapshot.last <= position):
            return ""
        if snapshot:
            return "its initial snapshot is newer"
        if log.first_offset is None:
            return "" if log.may_be_empty else "nothing of it has landed"
        if log.first_offset > 0:
            return f"the records before offset {log.first_offset} have not landed"
        return ""

    def find_held(self, position: int) -> tuple[SignalledSnapshot | None, str]:
        """Returns the first snapshot by signal whose rows are not those of this position, and why; None: none."""
        log = self._log
        # A complete one has every row, so it replaces one in which the connector was killed.
        whole = max((one.position for one in log.signalled if one.is_whole and one.position <= position), default=-1)
        is_joining = log.is_fresh and log.snapshot is None and not log.may_be_empty
        for one in log.signalled:
            past = min(((offset, end) for offset, end in self._released.items() if offset >= one.offset), default=None)
            if (is_joining or one.position <= position) and (past is None or past[1] > position):
                until = f"it had ended at position {past[1]}" if past else "no record shows when it ended"
                return one, f"a snapshot by signal begins at offset {one.offset}, and {until}"
            if one.position <= position and not one.is_whole and one.position >= whole:
                return one, (
                    f"the snapshot by signal from offset {one.offset} on has not landed completely; if the connector "
                    "was killed in it, signal it again"
                )
        return None, ""

    def _is_before_first(self, offset: int) -> bool:
        first = self._log.first_transaction
        return first is not None and offset < first.offset

    def _find_gap_in_records(self, position: int) -> str:
        snapshot, replaced = self._log.snapshot, -1
        if snapshot and snapshot.first <= position:
            if not snapshot.is_whole or snapshot.last > position:
                return "its initial snapshot has not landed completely"
            # The rows of a snapshot contain all transactions before it.
            replaced = snapshot.last
        at = bisect_right(self._missing, replaced)
        if at < len(self._missing) and self._missing[at] <= position:
            return self._reasons[at]
        return ""

    def cut_at(self, log: str, position: int) -> Cut:
        """Returns the cut after the last record before the first one that comes after this position."""
        later = next((run for run in self._log.runs if self._is_later(run, position)), None)
        if later is None:
            return Cut(log, self._log.next_offset)
        return Cut(log, later.before, later.offset if later.offset < later.before else None)

    def _is_later(self, run: RecordRun, position: int) -> bool:
        if run.transaction is None:
            return run.after > position
        end = self._positions.get(run.transaction)
        return may_follow(run, self._log.runs, position) if end is None else end > position
