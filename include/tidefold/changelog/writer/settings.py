"""What can be set about a writer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidefold.errors import InvalidInputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """How a writer batches, retries and waits. Sizes are bytes of Arrow data in memory, times are seconds.

    `name` is the writer's topic in the ledger: whoever opens a log under it goes on where the last one of that name
    stopped, and two at once are found out. `persist_delay` is how long a persist waits for others to share its
    segment, `batch_bytes` what ends the wait; `log_bytes` of one log are persisted before anybody asks, so a writer
    holds up to that much of each log besides what is in flight.
    Appending blocks while `max_bytes_in_flight` are on their way. An upload is tried `attempts` times, each again
    after `attempt_timeout` (0: never) or, after an error that may pass, after `retry_delay`. Closing waits
    `close_timeout` for uploads that still run.
    """

    name: str = "writer"
    compress: bool = True
    persist_delay: float = 0.01
    batch_bytes: int = 32 * _MB
    log_bytes: int = 8 * _MB
    max_bytes_in_flight: int = 128 * _MB
    attempts: int = 3
    attempt_timeout: float = 30.0
    retry_delay: float = 0.5
    threads: int = 2
    close_timeout: float = 60.0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise _invalid(
                "name", self.name, "1 to 128 letters, digits, `.`, `_`, `-`, beginning with one of the first two"
            )
        for field in ("log_bytes", "max_bytes_in_flight", "attempts", "threads"):
            if getattr(self, field) < 1:
                raise _invalid(field, getattr(self, field), "a number from 1")
        for field in ("persist_delay", "batch_bytes", "attempt_timeout", "retry_delay", "close_timeout"):
            if getattr(self, field) < 0:
                raise _invalid(field, getattr(self, field), "a number from 0")
        if self.batch_bytes > self.max_bytes_in_flight:
            # Else a batch could wait for its size while nothing more may come.
            raise _invalid("batch_bytes", self.batch_bytes, f"at most max_bytes_in_flight ({self.max_bytes_in_flight})")


def _invalid(field: str, value: object, wanted: str) -> InvalidInputError:
    return InvalidInputError("WRITER_SETTING", f"`{field}` cannot be {value!r}.", hint=f"Use {wanted}.")
