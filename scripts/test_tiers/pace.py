"""How much CPU time the machine takes for a fixed piece of work while tests run: seconds compare between machines."""

from __future__ import annotations

import hashlib
import statistics
import time
from dataclasses import dataclass, field

_ROUNDS = 30_000
# CPU seconds of that work where the budgets were set, while two lanes ran beside it.
_REFERENCE = 0.0225


@dataclass
class Pace:
    """Times a loop of hashes, as often as it is asked. Other guests of a host slow it as they slow the tests."""

    _taken: list[float] = field(default_factory=list)

    def measure(self) -> None:
        begun, digest = time.thread_time(), b"tidefold"
        for _ in range(_ROUNDS):
            digest = hashlib.sha256(digest).digest()
        self._taken.append(time.thread_time() - begun)

    @property
    def slowness(self) -> float:
        """Returns how many times the CPU seconds of the reference this machine takes; 1 without a measurement."""
        return statistics.fmean(self._taken) / _REFERENCE if self._taken else 1.0
