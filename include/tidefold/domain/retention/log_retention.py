"""How much of the log stays for backfills."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogRetention:
    """The part of the log that is kept for backfills, whatever the number of snapshots. Times in microseconds.

    since: the rows of every instant after this one can be made.
    step: the time between two instants that backfills ask for, counted from 1970 UTC.
    """

    since: int
    step: int
