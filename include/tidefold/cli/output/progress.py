"""Lines that report the progress of long work every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

_SECONDS = 5.0


class ProgressLine:
    """Prints how many bytes are read."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._last = clock()

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._clock() - self._last >= _SECONDS:
            self._last = self._clock()
            self._say(f"{what}: {self.describe(done, total)}")

    def describe(self, done: int, total: int) -> str:
        from tidefold.domain.wording import in_units

        return f"{in_units(done)} of {in_units(total)} read"


class BucketLine(ProgressLine):
    """Prints how many buckets of a log are done."""

    def describe(self, done: int, total: int) -> str:
        return f"{done:,} of {total:,} buckets done"
