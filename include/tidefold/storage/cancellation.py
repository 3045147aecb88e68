"""Ends the writes of a process whose run was cancelled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_cancelled = threading.Event()


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
