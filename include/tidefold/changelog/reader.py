"""Reads the change sets of a log in order, from the ledger and the segments, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tidefold.changelog.removed import are_replaced
from tidefold.changelog.segment import Indexes, read_change_set
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import ChangeSet, LogState
from tidefold.errors import CorruptError, NotFoundError, RefusedError
from tidefold.ledger import Ledger
from tidefold.storage import Store


class ChangelogReader:
    """Iterates over (change set, its changes) after the sqn `since`, up to the end of the log when the iteration began.

    Each iteration reads the ledger again. Raises NotFoundError if the log does not exist, RefusedError if change sets
    after `since` were truncated or compacted with earlier ones, CorruptError if a segment was altered.
    """

    def __init__(self, store: Store, log: str, since: int = 0, key_groups: KeyGroups | None = None) -> None:
        self._store = store
        self._ledger = Ledger(store, log)
        self._since = since
        self._key_groups = key_groups

    def __iter__(self) -> Iterator[tuple[ChangeSet, pa.Table]]:
        state = self._state()
        self._check(state)
        indexes: Indexes = {}
        for change_set in state.change_sets:
            if change_set.sqn > self._since:
                yield change_set, self._read(change_set, indexes)

    def tables(self) -> Iterator[pa.Table]:
        """Yields the changes alone, one table for each change set."""
        return (table for _, table in self)

    def _state(self) -> LogState:
        try:
            return self._ledger.read()
        except NotFoundError as error:
            hint = "Check the name and the store. The first flush of a writer begins a log, or the first ingest."
            raise NotFoundError(error.code, error.message, hint=hint) from None

    def _check(self, state: LogState) -> None:
        if self._since < state.truncated_to:
            raise _cut(state, self._since)
        for change_set in state.change_sets:
            if change_set.begin <= self._since < change_set.sqn:
                raise RefusedError(
                    "LOG_COMPACTED",
                    f"Change sets {change_set.begin} to {change_set.sqn} of log `{state.log}` were compacted into one. "
                    f"Change set {self._since + 1} cannot be read alone.",
                    hint=f"Read the changes since {change_set.begin - 1}, or since {change_set.sqn}.",
                )

    def _read(self, change_set: ChangeSet, indexes: Indexes) -> pa.Table:
        try:
            return read_change_set(self._store, change_set, self._key_groups, indexes)
        except CorruptError:
            # If the change set was truncated or compacted meanwhile, it is not damaged.
            state = self._state()
            if change_set.sqn <= state.truncated_to:
                raise _cut(state, change_set.sqn - 1) from None
            if are_replaced([change_set], state):
                message = f"Change set {change_set.sqn} of log `{state.log}` was rewritten during the read."
                raise RefusedError("LOG_COMPACTED", message, hint="Read again.") from None
            raise


def _cut(state: LogState, since: int) -> RefusedError:
    first = state.change_sets[0].sqn if state.change_sets else None
    remaining = f"the first one left is {first}" if first is not None else "no change set is left"
    return RefusedError(
        "LOG_CUT",
        f"Log `{state.log}` was {state.cut_reason} to change set {state.truncated_to}: "
        f"{since + 1} is deleted, {remaining}.",
        hint=f"Read a snapshot first. Then read the changes since {state.truncated_to}.",
    )
