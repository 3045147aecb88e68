"""Who has to remove which file: uploads that nobody confirmed yet (C5), and local copies of confirmed ones (C7).

A handle is a file's path in one store. Removing runs on an executor; a failure is a warning and the file is left to
the recovery that reads the intents.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from tidefold.lifecycle.errors import InvalidInputError
from tidefold.storage import Store

_LOGGER = logging.getLogger(__name__)


class Disposal:
    """Removes files in the background."""

    def __init__(self, store: Store, executor: Executor) -> None:
        self._store = store
        self._executor = executor

    def remove(self, handle: str, then: Callable[[], None] | None = None) -> None:
        """Deletes a file and calls `then` if that went well."""
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
    """Uploaded files before they are confirmed: each goes when no log uses it, unless its ownership passed on (C5)."""

    def __init__(self, disposal: Disposal) -> None:
        self._disposal = disposal
        self._lock = threading.Lock()
        self._logs: dict[str, set[str]] = {}

    def start_tracking(self, handle: str, logs: Iterable[str]) -> None:
        """`logs` use this file. Raises InvalidInputError when there is none."""
        users = set(logs)
        if not users:
            raise InvalidInputError("HANDLE_UNUSED", f"No log uses `{handle}`.")
        with self._lock:
            self._logs[handle] = users

    def stop_tracking(self, handle: str) -> frozenset[str]:
        """The file belongs to somebody else from now on; answers the logs that used it."""
        with self._lock:
            return frozenset(self._logs.pop(handle, ()))

    def not_used(self, handle: str, log: str, then: Callable[[], None] | None = None) -> None:
        """The log does not need the file; the last one to say so has it removed, and `then` is called after that."""
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
    """A local file: the highest snapshot of each log that needs it, and the logs that may still come to need it."""

    snapshots: dict[str, int] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)

    @property
    def needed(self) -> bool:
        return bool(self.snapshots or self.waiting)


class LocalRegistry:
    """Local copies by the highest snapshot that uses them (C7).

    Snapshots are numbered within a log and a file may hold change sets of several, so all is told and asked by log; a
    file goes when no log needs it.
    """

    def __init__(self, disposal: Disposal) -> None:
        self._disposal = disposal
        self._lock = threading.Lock()
        self._copies: dict[str, _Copy] = {}

    def register(self, handle: str, log: str, snapshot: int, waiting: Iterable[str] = ()) -> None:
        """The log's snapshot uses the file; the highest one counts. `waiting` logs have not confirmed theirs yet."""
        with self._lock:
            copy = self._copies.setdefault(handle, _Copy())
            copy.waiting.update(waiting)
            copy.waiting.discard(log)
            copy.snapshots[log] = max(snapshot, copy.snapshots.get(log, snapshot))

    def discard_up_to(self, log: str, snapshot: int) -> frozenset[str]:
        """Drops what no snapshot of the log from `snapshot` on uses (never what that one uses); answers what it was."""
        return self._drop(log, lambda highest: highest < snapshot)

    def prune(self, log: str, snapshot: int) -> frozenset[str]:
        """Drops what an aborted snapshot used as the last one; answers what it was."""
        return self._drop(log, lambda highest: highest == snapshot)

    def not_used(self, handle: str, log: str) -> None:
        """A log that had not confirmed its part gives it up."""
        with self._lock:
            copy = self._copies.get(handle)
            if copy is None or log not in copy.waiting:
                return
            copy.waiting.discard(log)
            if copy.needed:
                return
            del self._copies[handle]
        self._disposal.remove(handle)

    def _drop(self, log: str, old: Callable[[int], bool]) -> frozenset[str]:
        with self._lock:
            dropped = [h for h, c in self._copies.items() if log in c.snapshots and old(c.snapshots[log])]
            for handle in dropped:
                del self._copies[handle].snapshots[log]
            gone = [handle for handle in dropped if not self._copies[handle].needed]
            for handle in gone:
                del self._copies[handle]
        for handle in gone:
            self._disposal.remove(handle)
        return frozenset(dropped)
