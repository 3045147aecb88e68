"""Fakes for tests of the changelog writer: a timer and an executor that wait for the test, a store that breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, BinaryIO

from support.dict_store import DictStore
from tidefold.changelog.writer.changelog import Changelog
from tidefold.changelog.writer.segment_ownership import SegmentOwnership
from tidefold.changelog.writer.settings import WriterSettings
from tidefold.domain.log_state import Column, TableSpec
from tidefold.errors import StorageError
from tidefold.storage import Store

SHAPE = TableSpec(("id",), (Column("id", "int"), Column("text", "string")), "arrival", 16, 4)
INSTANT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


class FakeTimer:
    """Time moves only when the test moves it. Then the due calls run, in order."""

    def __init__(self) -> None:
        self.time = 0.0
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def now(self) -> float:
        return self.time

    def call_later(self, delay: float, act: Callable[[], None]) -> Callable[[], None]:
        call = (self.time + delay, act)
        self.calls.append(call)
        return lambda: self.calls.remove(call) if call in self.calls else None

    def close(self) -> None:
        self.calls.clear()

    def move(self, seconds: float) -> None:
        self.time += seconds
        while due := sorted((call for call in self.calls if call[0] <= self.time), key=lambda call: call[0]):
            self.calls.remove(due[0])
            due[0][1]()


class InlineExecutor(Executor):
    """Runs submitted work at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class ManualExecutor(Executor):
    """Keeps submitted work until the test runs it."""

    def __init__(self) -> None:
        self.work: list[Callable[[], Any]] = []
        self.down = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self.work.append(lambda: fn(*args, **kwargs))
        return Future()

    def run(self) -> None:
        while self.work:
            self.work.pop(0)()


class BreakingStore(DictStore):
    """Fails on request: at `open`, `write`, `tell` (a wrong position), `close` of new files, or `delete`.

    `times` limits how often, and `error` is the error. Only files below `below` are affected.
    """

    def __init__(self, below: str = "") -> None:
        super().__init__()
        self.at: str | None = None
        self.error: BaseException = StorageError("STORAGE", "The disk is full.")
        self.times: int | None = None
        self.below = below
        self.created: list[str] = []
        self.ended_by: list[BaseException] = []

    def breaks(self, at: str, error: BaseException | None = None, times: int | None = None) -> None:
        self.at, self.times = at, times
        self.error = error or StorageError("STORAGE", "The disk is full.")

    def hit(self, at: str, path: str = "") -> bool:
        if at != self.at or self.times == 0 or not path.startswith(self.below):
            return False
        self.times = None if self.times is None else self.times - 1
        return True

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        if self.hit("open", path):
            raise self.error
        self.created.append(path)
        try:
            with super().create(path) as stream:
                yield _Stream(stream, self, path)  # type: ignore[misc]
                if self.hit("close", path):
                    raise self.error
        except BaseException as error:
            self.ended_by.append(error)
            raise

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            if self.hit("delete", path):
                raise self.error
            super().delete([path])


class _Stream:
    def __init__(self, stream: BinaryIO, store: BreakingStore, path: str) -> None:
        self._stream, self._store, self._path = stream, store, path

    def write(self, data: bytes) -> int:
        if self._store.hit("write", self._path):
            self._stream.write(data[: len(data) // 2])
            raise self._store.error
        return self._stream.write(data)

    def tell(self) -> int:
        return self._stream.tell() - (1 if self._store.hit("tell", self._path) else 0)

    def flush(self) -> None:
        self._stream.flush()


def paths(store: Store, folder: str = "changelog") -> list[str]:
    """Returns the files below a folder; of the changelog only segments."""
    found = [entry.path for entry in store.list(folder)]
    return [path for path in found if path.endswith(".seg")] if folder == "changelog" else found


def rows(*ids: int, text: str = "a") -> list[dict[str, Any]]:
    return [{"id": i, "text": text} for i in ids]


def make_changelog(store: Store, **given: Any) -> Changelog:
    """Returns a changelog that does everything at once in the caller's thread, unless configured otherwise."""
    settings = {
        "persist_delay": 0.0,
        "attempts": 1,
        "attempt_timeout": 0.0,
        "close_timeout": 0.0,
        **given.pop("settings", {}),
    }
    given = {"timer": FakeTimer(), "executor": InlineExecutor(), "clock": lambda: INSTANT, **given}
    return Changelog(store, WriterSettings(**settings), **given)


def make_custody(store: Store, local: Store | None = None) -> SegmentOwnership:
    return SegmentOwnership(store, local, InlineExecutor(), lambda: INSTANT)
