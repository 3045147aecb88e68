"""Makes the calls of every local store of this process fail."""

from __future__ import annotations

import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest import mock

from faults.product import LocalStore, StorageError, UnknownOutcomeError
from support.faults import Killed


class CallFault(StrEnum):
    """What happens at the chosen call of the store."""

    ERROR_BEFORE = "error before"
    ERROR_AFTER = "error after it took effect"
    LOST = "lost answer"
    DIES_BEFORE = "dies before"
    DIES_HALF = "dies half way"
    DIES_AFTER = "dies after"
    SLOW = "slow"
    DISK_FULL = "disk full"
    NO_WRITE = "may not write"
    NO_ACCESS = "may not read or write"


# Faults that also strike calls that change nothing; the others count changes only.
STRIKES_READS = (CallFault.ERROR_BEFORE, CallFault.NO_ACCESS)
_LASTING = (CallFault.DISK_FULL, CallFault.NO_WRITE, CallFault.NO_ACCESS)
_DEATHS = (CallFault.DIES_BEFORE, CallFault.DIES_HALF, CallFault.DIES_AFTER)
_READS = ("read", "list", "identity")
_WRITES = ("put_if_absent", "link", "sync", "rename_folder")
_STREAMS = ("create", "replace")


class Calls:
    """Counts calls, and strikes the one numbered `at` with a fault; a lasting fault strikes all after it too.

    meanwhile: what another process does while the chosen call is slow.
    """

    def __init__(
        self, at: int | None = None, fault: CallFault | None = None, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        self.at, self.fault, self.meanwhile = at, fault, meanwhile
        self.all = self.writes = 0
        self.is_dead = self.has_struck = False
        self._lock = threading.Lock()
        self._thread = threading.local()
        self._aside = False

    @contextmanager
    def watching(self) -> Iterator[Calls]:
        """Every store of the process is struck within this."""
        with ExitStack() as stack:
            for name in (*_READS, *_WRITES):
                stack.enter_context(mock.patch.object(LocalStore, name, self._plain(name, name in _READS)))
            for name in _STREAMS:
                stack.enter_context(mock.patch.object(LocalStore, name, self._stream(name)))
            stack.enter_context(mock.patch.object(LocalStore, "open", self._opened()))
            stack.enter_context(mock.patch.object(LocalStore, "delete", self._delete()))
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            try:
                yield self
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    # One call.

    def _is_inner(self) -> bool:
        return self._aside or getattr(self._thread, "depth", 0) > 0

    @contextmanager
    def _inner(self) -> Iterator[None]:
        self._thread.depth = getattr(self._thread, "depth", 0) + 1
        try:
            yield
        finally:
            self._thread.depth -= 1

    def _begin(self, is_read: bool) -> CallFault | None:
        """The fault that strikes this call after it took effect; raises what strikes it before."""
        if self.is_dead:
            raise Killed
        fault = self._number(is_read)
        if fault is None:
            return None
        self.has_struck = True
        if fault is CallFault.SLOW:
            self._aside = True
            try:
                self.meanwhile()
            finally:
                self._aside = False
            return None
        if fault is CallFault.DISK_FULL:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            return None
        if fault is CallFault.DIES_BEFORE:
            self._die()
        if fault in (CallFault.NO_WRITE, CallFault.NO_ACCESS):
            raise _error("Permission denied.")
        if fault is CallFault.ERROR_BEFORE:
            raise _error("The call failed.")
        return fault

    def _number(self, is_read: bool) -> CallFault | None:
        with self._lock:
            counted, own = self.all, self.writes
            self.all += 1
            self.writes += not is_read
        if self.fault is None or self.at is None or (is_read and self.fault not in STRIKES_READS):
            return None
        number = counted if self.fault in STRIKES_READS else own
        return self.fault if number == self.at or (number > self.at and self.fault in _LASTING) else None

    def _end(self, fault: CallFault | None) -> None:
        if fault is CallFault.ERROR_AFTER:
            raise _error("The call failed.")
        if fault is CallFault.LOST:
            raise UnknownOutcomeError("UNKNOWN_OUTCOME", "The answer of the call was lost.")
        if fault in _DEATHS:
            self._die()

    def _die(self) -> None:
        self.is_dead = True
        raise Killed

    # The calls.

    def _plain(self, name: str, is_read: bool) -> Callable[..., Any]:
        original = getattr(LocalStore, name)

        def call(store: LocalStore, *arguments: Any, **named: Any) -> Any:
            if self._is_inner():
                return original(store, *arguments, **named)
            fault = self._begin(is_read)
            if fault is CallFault.DIES_HALF:
                self._leave_half(store, arguments[-1] if name == "rename_folder" else arguments[0])
            with self._inner():
                result = original(store, *arguments, **named)
            self._end(fault)
            return result

        return call

    def _opened(self) -> Callable[..., Any]:
        original = LocalStore.open

        @contextmanager
        def call(store: LocalStore, path: str) -> Iterator[Any]:
            if not self._is_inner():
                self._begin(is_read=True)
            with original(store, path) as stream:
                yield stream

        return call

    def _stream(self, name: str) -> Callable[..., Any]:
        original = getattr(LocalStore, name)

        @contextmanager
        def call(store: LocalStore, target: Any) -> Iterator[Any]:
            if self._is_inner():
                with original(store, target) as stream:
                    yield stream
                return
            fault = self._begin(is_read=False)
            opened = original(store, target)
            with self._inner():
                stream = opened.__enter__()
            try:
                yield stream
                if fault is CallFault.DIES_HALF:
                    self._leave_half(store, target if isinstance(target, str) else target[-1])
            except BaseException:
                with self._inner():
                    opened.__exit__(*sys.exc_info())
                raise
            with self._inner():
                opened.__exit__(None, None, None)
            self._end(fault)

        return call

    def _delete(self) -> Callable[..., Any]:
        original = LocalStore.delete

        def call(store: LocalStore, paths: Any) -> None:
            if self._is_inner():
                return original(store, paths)
            for path in paths:
                fault = self._begin(is_read=False)
                with self._inner():
                    original(store, [path])
                self._end(fault)
            return None

        return call

    def _leave_half(self, store: LocalStore, path: str) -> None:
        half = Path(f"{store.root / path}.{'d' * 32}.part")
        half.parent.mkdir(parents=True, exist_ok=True)
        half.write_bytes(b"half")
        self._die()


def _error(text: str) -> StorageError:
    return StorageError("STORAGE", text, hint="Call again.")
