"""Waits while a store is overloaded or out of reach, and sends a request again. One patience belongs to one client."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_log = logging.getLogger(__name__)
# An outage of minutes is common: a restart of a server, or a bucket that divides its partitions under load.
PATIENCE = 300.0
# A store that never answered this process is more likely a wrong address than an outage.
FIRST_PATIENCE = 75.0
# How long a pause may be. The bound doubles with each try, and each pause is random below it.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 20.0
# The pause between two lines about one outage.
_LINE_SECONDS = 15.0


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
        now = self.clock()
        if self._began is None:
            self._began = self._told = now
        patience = self.patience if self._answered else min(self.patience, FIRST_PATIENCE)
        left = patience - (now - min(self._began, request_began))
        if left <= 0:
            return None
        if now - self._told >= _LINE_SECONDS:
            self._told = now
            _log.warning(
                "%s has failed for %.0f s (%s). The request is sent again for %.0f s more.",
                self.service,
                now - self._began,
                reason,
                left,
            )
        return min(left, self.draw() * min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(tries - 1, 16)))
