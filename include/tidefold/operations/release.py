"""Which segments may go that a log needs no more: those that no other log in them needs, or may still come to need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tidefold.changelog.intents import announced
from tidefold.changelog.segment import read_index
from tidefold.ledger import Ledger
from tidefold.lifecycle.errors import NotFoundError
from tidefold.lifecycle.names import CHANGELOG
from tidefold.lifecycle.values import LogState
from tidefold.storage import Entry, Store

_READERS = 8


@dataclass(frozen=True, slots=True)
class Released:
    """`unneeded`: files to delete. `settled`: all paths that the log may forget, because they go, are gone, or are
    another log's to delete.
    """

    unneeded: tuple[Entry, ...]
    settled: tuple[str, ...]


def plan_release(store: Store, state: LogState) -> Released:
    """Looks at the log's garbage. Raises CorruptError when it cannot be told which logs need a segment (I11, I12).

    A segment that a run announced and has not ended with waits: a log may still be told of it.
    """
    if not state.garbage:
        return Released((), ())
    sizes = {entry.path: entry for entry in store.list(CHANGELOG)}
    on_their_way = {path for run in announced(store) for path in run.files}
    waiting = [path for path in state.garbage if path in sizes and path not in on_their_way]
    with ThreadPoolExecutor(_READERS) as pool:
        sharing = dict(zip(waiting, pool.map(lambda path: _logs_of(store, path), waiting), strict=True))
    needed = _needed(store, state.log, sharing)
    gone = [path for path in state.garbage if path not in sizes]
    unneeded = tuple(sizes[path] for path in waiting if path not in needed)
    return Released(unneeded, (*gone, *waiting))


def _logs_of(store: Store, segment: str) -> frozenset[str]:
    try:
        return frozenset(entry.log for entry in read_index(store, segment))
    except NotFoundError:
        return frozenset()


def _needed(store: Store, log: str, sharing: Mapping[str, frozenset[str]]) -> set[str]:
    """The segments that other logs still have change sets in."""
    others: Sequence[str] = sorted(frozenset().union(*sharing.values()) - {log})
    found: set[str] = set()
    for other in others:
        state = Ledger(store, other).find()
        found |= {change_set.segment for change_set in state.change_sets} if state else set()
    return found
