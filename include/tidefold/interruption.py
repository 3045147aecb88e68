"""Whether somebody interrupted this process. Waits end then, and no error hides it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Interruption:
    """A handler of signals sets a plain field: a lock could be taken."""

    is_interrupted: bool = False


_interruption = _Interruption()


def interrupt() -> None:
    """Records that somebody interrupted this process, for all of its threads and for the rest of its life."""
    _interruption.is_interrupted = True


def is_interrupted() -> bool:
    return _interruption.is_interrupted


def raise_if_interrupted(error: Exception) -> None:
    """Raises KeyboardInterrupt in the place of an error that a library made of it. DuckDB does so."""
    if _interruption.is_interrupted:
        raise KeyboardInterrupt from error
