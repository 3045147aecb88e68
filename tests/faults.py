"""A store that fails at a chosen call: the crash simulator's only tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from tidefold.lifecycle.errors import StorageError, UnknownOutcomeError
from tidefold.storage.local import LocalStore


class Killed(BaseException):
    """The process is gone: nothing may catch this and go on."""


class Fault(StrEnum):
    """What happens at the chosen call."""

    ERROR_BEFORE = "an error before anything happened"
    ERROR_AFTER = "an error after it took effect"
    KILLED_BEFORE = "the process dies before"
    KILLED_AFTER = "the process dies after"


class FaultyStore(LocalStore):
    """Counts the calls that change something; the one numbered `at` fails as told, and with `for_ever` all after it."""

    def __init__(self, root: Path, at: int | None = None, fault: Fault | None = None, for_ever: bool = False) -> None:
        super().__init__(root)
        self.at, self.fault, self.for_ever = at, fault, for_ever
        self.calls = 0

    @contextmanager
    def _call(self) -> Iterator[None]:
        number, self.calls = self.calls, self.calls + 1
        hit = number == self.at or (self.for_ever and self.at is not None and number > self.at)
        if hit and self.fault is Fault.ERROR_BEFORE:
            raise StorageError("STORAGE", f"Call {number} failed.")
        if hit and self.fault is Fault.KILLED_BEFORE:
            raise Killed
        yield
        if hit and self.fault is Fault.ERROR_AFTER:
            raise UnknownOutcomeError("UNKNOWN_OUTCOME", f"The answer of call {number} was lost.")
        if hit and self.fault is Fault.KILLED_AFTER:
            raise Killed

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        if self.calls == self.at and self.fault is Fault.KILLED_BEFORE:
            # A killed writer leaves its half behind.
            half = Path(f"{self._full(path)}.killed.part")
            half.parent.mkdir(parents=True, exist_ok=True)
            half.write_bytes(b"half")
        with self._call(), super().create(path) as stream:
            yield stream

    def link(self, source: str, target: str) -> str:
        with self._call():
            return super().link(source, target)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self._call():
                super().delete([path])

    def sync(self, path: str) -> None:
        with self._call():
            super().sync(path)
