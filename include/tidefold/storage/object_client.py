"""What the clients of all object stores share: errors of the Store port, patience, and writes to free names only."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from tidefold.errors import StorageError, TidefoldError, UnknownOutcomeError
from tidefold.storage.store import make_taken_error

_log = logging.getLogger(__name__)
# An outage of minutes is common: a restart of a server, or a bucket that divides its partitions under load.
PATIENCE = 300.0
# A store that never answered this process is more likely a wrong address than an outage.
FIRST_PATIENCE = 75.0
# How long a pause may be. The bound doubles with each try, and each pause is random below it.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 20.0
# The pause between two lines about one outage.
_LINE_SECONDS = 15.0
T = TypeVar("T")
# Files of one log that are copied, checked, read or deleted at once.
REQUESTS_AT_ONCE = 64
# The service does not know the request, for example a conditional write. No try of it ever succeeds.
_UNKNOWN_REQUEST = 501
_cancelled = threading.Event()


def find_patience() -> float:
    """Returns how many seconds an outage may last. AWS_MAX_ATTEMPTS replaces this patience by a number of tries."""
    return 0.0 if os.environ.get("AWS_MAX_ATTEMPTS") else PATIENCE


@dataclass(slots=True)
class Outage:
    """Decides how long to wait after a failed request. It knows of all requests of one client.

    patience: how many seconds an outage may last.
    clock: returns seconds; never set back.
    draw: returns a random number from 0 to 1. Without it, all clients would come back at the same moment.
    service: the name of the store in lines about an outage.
    """

    patience: float = field(default_factory=find_patience)
    clock: Callable[[], float] = time.monotonic
    draw: Callable[[], float] = random.random
    service: str = "S3"
    _answered: bool = False
    _began: float | None = None
    _told: float = 0.0

    def end(self) -> None:
        """Records that the store answered a request."""
        self._answered, self._began = True, None

    def begin_request(self) -> float:
        """Returns the instant from which the patience with this request counts."""
        return self.clock()

    def choose_pause(self, request_began: float, tries: int, reason: str) -> float | None:
        """Returns how many seconds to wait before the next try; None: the patience has ended.

        request_began: from `begin_request`.
        tries: how often the request failed so far, from 1.
        reason: the error, for the line that reports the outage.
        """
        now, outage_began = self.clock(), self._began  # Another thread may end the outage meanwhile.
        if outage_began is None:
            outage_began = self._began = self._told = now
        patience = self.patience if self._answered else min(self.patience, FIRST_PATIENCE)
        left = patience - (now - min(outage_began, request_began))
        if left <= 0:
            return None
        if now - self._told >= _LINE_SECONDS:
            self._told = now
            _log.warning(
                "%s has failed for %.0f s (%s). The request is sent again for %.0f s more.",
                self.service,
                now - outage_began,
                reason,
                left,
            )
        return min(left, self.draw() * min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(tries - 1, 16)))


def may_succeed_later(status: int) -> bool:
    """Whether a service with this HTTP status is overloaded or broken for a while."""
    return (status >= 500 and status != _UNKNOWN_REQUEST) or status in (408, 429)


def is_refusal(status: int) -> bool:
    """Whether a service with this HTTP status refuses for another reason than the condition of a write."""
    return status == _UNKNOWN_REQUEST or (400 <= status < 500 and status not in (408, 409, 412, 429))


def find_unfit(path: str, status: int, service: str) -> StorageError | None:
    """Returns the error for a service that does not know the request; None: it knows it."""
    if status != _UNKNOWN_REQUEST:
        return None
    return StorageError(
        "STORE_UNFIT",
        f"`{path}`: the {service} service does not know the request (501 NotImplemented). tidefold needs conditional "
        "writes (If-None-Match).",
        hint="Use a newer version of the server, or another store (docs/how-to/extend.md).",
    )


class ObjectClient(ABC):
    """One bucket of an object store. Its requests raise the errors of the service's own client library.

    failures: those errors.
    """

    failures: ClassVar[tuple[type[Exception], ...]]

    @abstractmethod
    def as_ours(self, path: str, error: Exception) -> TidefoldError:
        """Returns the error to raise for a failed request about a path."""

    @abstractmethod
    def find_put_mark(self, key: str) -> str | None:
        """Returns the mark of the put that made an object, "" for a foreign object; None if it does not exist."""

    @abstractmethod
    def name_failure(self, error: BaseException) -> str:
        """Returns the service's code of an error; "" without an answer."""

    @abstractmethod
    def status_of(self, error: BaseException) -> int:
        """Returns the HTTP status of an answer; 0 without an answer."""

    def refuses(self, error: BaseException) -> bool:
        """Whether the service refused for another reason than the condition. A lost, earlier try may have succeeded."""
        return is_refusal(self.status_of(error))

    def was_sent(self, error: BaseException) -> bool:
        """Whether the service may have seen the request at all."""
        return True

    def blocks_name(self, error: BaseException) -> bool:
        """Whether the service refuses writes to a name that has no object."""
        return False

    def name_doubt(self, error: BaseException, reason: TidefoldError) -> str:
        """Returns the error code for a write whose outcome is not known."""
        return reason.code if self.refuses(error) else "UNKNOWN_OUTCOME"

    @contextmanager
    def translate_errors(self, path: str) -> Iterator[None]:
        """Converts errors. Raises NotFoundError only if the service reported that the object itself is absent (I23)."""
        try:
            yield
        except TidefoldError:
            raise
        except self.failures as error:
            raise self.as_ours(path, error) from error

    def resolve_put(self, key: str, path: str, mark: str, error: Exception) -> bool:
        """Finds out the outcome of a write that failed. Returns True if this very put made the object.

        Returns False if there is no object, and the service refuses the name all the same. Otherwise raises the known
        outcome: AlreadyExistsError, UnknownOutcomeError, StorageError.
        """
        if not self.was_sent(error):
            raise self.as_ours(path, error) from error
        try:
            stored = self.find_put_mark(key)
        except self.failures:
            raise self._make_unknown(path, error) from error
        if stored == mark:
            return True
        if self.refuses(error):
            raise self.as_ours(path, error) from error
        if stored is None and self.blocks_name(error):
            return False
        if stored is None:  # Absence proves nothing: the lost request may still arrive.
            raise self._make_unknown(path, error) from error
        raise make_taken_error(path) from error

    def _make_unknown(self, path: str, error: Exception) -> UnknownOutcomeError:
        reason = self.as_ours(path, error)
        failure = self.name_failure(error) or type(error).__name__
        message = f"Whether `{path}` was written is not known ({failure})."
        return UnknownOutcomeError(self.name_doubt(error, reason), message, hint=reason.hint)


async def gather(items: Sequence[str], act: Callable[[str], Awaitable[T]]) -> list[T]:
    """Awaits an action for each item, some at the same time."""
    free = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def limit(item: str) -> T:
        async with free:
            return await act(item)

    return await asyncio.gather(*map(limit, items))


async def insist(
    outage: Outage,
    act: Callable[[], Awaitable[T]],
    failures: tuple[type[Exception], ...],
    is_transient: Callable[[BaseException], bool],
    name: Callable[[BaseException], str],
) -> T:
    """Sends a request, and sends it again while the store is overloaded or out of reach.

    name: returns the service's code of an error, for the line that reports an outage.
    """
    began, tries = outage.begin_request(), 0
    while True:
        try:
            answer = await act()
        except failures as error:
            if not is_transient(error):
                outage.end()  # The service answered, or the request cannot be sent at all.
                raise
            tries += 1
            pause = outage.choose_pause(began, tries, name(error) or type(error).__name__)
            if pause is None:
                raise
            await asyncio.sleep(pause)
            continue
        outage.end()
        return answer


class CancelledWriteError(BaseException):
    """The run was cancelled while a file was written. No task catches it."""


@contextmanager
def cancel_writes() -> Iterator[None]:
    """Within it, each further write of this process raises CancelledWriteError."""
    _cancelled.set()
    try:
        yield
    finally:
        _cancelled.clear()


def require_not_cancelled() -> None:
    """Raises CancelledWriteError if the run was cancelled. Called before a block of a file is written."""
    if _cancelled.is_set():
        raise CancelledWriteError
