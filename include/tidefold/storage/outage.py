"""How long requests to object stores are repeated, and what the statuses of their answers mean."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tidefold.errors import StoreRefusedError
from tidefold.interruption import is_interrupted

_log = logging.getLogger(__name__)
# An outage of minutes is common: a restart of a server, or a bucket that divides its partitions under load.
PATIENCE = 300.0
# A store that never answered this process is more likely a wrong address than an outage.
FIRST_PATIENCE = 75.0
# Of a command that tests the address.
TEST_PATIENCE = 10.0
# How long a pause may be. The bound doubles with each try, and each pause is random below it.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 20.0
# When the first line about an outage comes, and the pause between two lines.
_FIRST_LINE_SECONDS, _LINE_SECONDS = 4.0, 15.0
# The service does not know the request, for example a conditional write. No try of it ever succeeds.
_UNKNOWN_REQUEST = 501
# How soon a thread sees that the process was interrupted.
_LOOK_SECONDS = 0.25


@dataclass(slots=True)
class _Process:
    """What holds for all requests of this process."""

    first_patience: float = FIRST_PATIENCE


_process = _Process()


def wait(seconds: float) -> bool:
    """Waits. Returns whether the process was interrupted: then a failed request is not sent again."""
    end = time.monotonic() + seconds
    while not is_interrupted() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK_SECONDS))
    return is_interrupted()


@contextmanager
def trying_addresses() -> Iterator[None]:
    """Within it, a store that never answered is given up after TEST_PATIENCE."""
    _process.first_patience = TEST_PATIENCE
    try:
        yield
    finally:
        _process.first_patience = FIRST_PATIENCE


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
    _told: float = float("-inf")

    @property
    def has_answered(self) -> bool:
        """Whether the store ever answered this process."""
        return self._answered

    @contextmanager
    def tell_silence(self) -> Iterator[None]:
        """Tells of a request that waits for the first answer of the store: it may wait for a minute."""
        if self._answered:
            yield
            return
        timer = threading.Timer(_FIRST_LINE_SECONDS, self._tell_silence)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _tell_silence(self) -> None:
        if self._may_tell():
            _log.warning("%s has not answered for %.0f s. The request waits.", self.service, _FIRST_LINE_SECONDS)

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
            outage_began = self._began = now
        patience = self.patience if self._answered else min(self.patience, _process.first_patience)
        seconds = now - min(outage_began, request_began)
        left = patience - seconds
        if left <= 0:
            return None
        pause = min(left, self.draw() * min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(tries - 1, 16)))
        if seconds + pause >= _FIRST_LINE_SECONDS and self._may_tell():
            _log.warning(
                "%s has failed for %.0f s (%s). The request is sent again for %.0f s more.",
                self.service,
                seconds,
                reason,
                left,
            )
        return pause

    def _may_tell(self) -> bool:
        now = self.clock()
        if now - self._told < _LINE_SECONDS:
            return False
        self._told = now
        return True


def may_succeed_later(status: int) -> bool:
    """Whether a service with this HTTP status is overloaded or broken for a while."""
    return (status >= 500 and status != _UNKNOWN_REQUEST) or status in (408, 429)


def is_refusal(status: int) -> bool:
    """Whether a service with this HTTP status refuses for another reason than the condition of a write."""
    return status == _UNKNOWN_REQUEST or (400 <= status < 500 and status not in (408, 409, 412, 429))


def find_unfit(path: str, status: int, service: str) -> StoreRefusedError | None:
    """Returns the error for a service that does not know the request; None: it knows it."""
    if status != _UNKNOWN_REQUEST:
        return None
    return StoreRefusedError(
        "STORE_UNFIT",
        f"`{path}`: the {service} service does not know the request (501 NotImplemented). tidefold needs conditional "
        "writes (If-None-Match).",
        hint="Use a newer version of the server, or another store (docs/how-to/extend.md).",
    )
