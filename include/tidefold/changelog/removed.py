"""Tells change sets that another process removed on purpose from those that are lost or damaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tidefold.domain.log_state import ChangeSet, LogState
from tidefold.errors import ConflictError, CorruptError
from tidefold.ledger import Ledger
from tidefold.storage import Store


def are_replaced(read: Iterable[ChangeSet], state: LogState) -> bool:
    """Whether the log has some of these change sets no more: they were truncated, or rewritten by a compaction."""
    return not _places(read) <= _places(state.change_sets)


@contextmanager
def reads_of(store: Store, log: str, change_sets: Sequence[ChangeSet]) -> Iterator[None]:
    """Within it, these change sets are read. Raises ConflictError if another process removed some of them."""
    try:
        yield
    except CorruptError as error:
        newest = Ledger(store, log).find()
        if newest is None or not are_replaced(change_sets, newest):
            raise
        message = f"Another process folded, compacted or deleted changes of `{log}` while this one read them."
        raise ConflictError("LOG_OVERTAKEN", f"{message} ({error.message})") from None


def _places(change_sets: Iterable[ChangeSet]) -> set[tuple[str, int]]:
    return {(c.location.segment, c.location.ordinal) for c in change_sets}
