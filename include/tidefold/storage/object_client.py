"""What the clients of all object stores share: errors of the Store port, patience, and writes to free names only."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, TypeVar

from tidefold.errors import TidefoldError, UnknownOutcomeError
from tidefold.storage.patience import Outage
from tidefold.storage.store import make_taken_error

T = TypeVar("T")
# Files of one log that are copied, checked, read or deleted at once.
REQUESTS_AT_ONCE = 64


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
    def refuses(self, error: BaseException) -> bool:
        """Whether the service refused for another reason than the condition. A lost, earlier try may have succeeded."""

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

    def settle(self, key: str, path: str, mark: str, error: Exception) -> bool:
        """Finds out the outcome of a write that failed. Returns True if this very put made the object.

        Returns False if there is no object, and the service refuses the name all the same. Otherwise raises the known
        outcome: AlreadyExistsError, UnknownOutcomeError, StorageError.
        """
        if not self.was_sent(error):
            raise self.as_ours(path, error) from error
        try:
            found = self.find_put_mark(key)
        except self.failures:
            raise self._make_unknown(path, error) from error
        if found == mark:
            return True
        if self.refuses(error):
            raise self.as_ours(path, error) from error
        if found is None and self.blocks_name(error):
            return False
        if found is None:  # Absence proves nothing: the lost request may still arrive.
            raise self._make_unknown(path, error) from error
        raise make_taken_error(path) from error

    def _make_unknown(self, path: str, error: Exception) -> UnknownOutcomeError:
        reason = self.as_ours(path, error)
        said = self.name_failure(error) or type(error).__name__
        message = f"Whether `{path}` was written is not known ({said})."
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
