"""The settings of a writer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidefold.errors import InvalidInputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """How a writer batches, retries and waits. Sizes are bytes of Arrow data in memory, times are seconds.

    name: the writer's topic in the ledger. A writer of this name continues where the last one stopped. Two at once are
        detected.
    persist_delay: how long a persist waits for others to share its segment.
    batch_bytes: the size that ends this wait.
    log_bytes: bytes of one log after which it is persisted without a call. A writer keeps up to this much of each log
        in memory, besides what is in flight.
    max_bytes_in_flight: appending blocks while this much is being uploaded.
    attempts: the maximum number of attempts of an upload.
    attempt_timeout: seconds after which another attempt starts (0: never).
    retry_delay: seconds before the next attempt after a transient error.
    close_timeout: seconds that closing waits for running uploads.
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
