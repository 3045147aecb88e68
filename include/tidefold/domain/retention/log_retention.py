"""How much of the log stays for backfills."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogRetention:
    """The part of the log that is kept for backfills, whatever the number of snapshots. Times in microseconds.

    since: rows as of each later instant can be made.
    step: the time between two instants that backfills ask for, counted from 1970 UTC.
    """

    since: int
    step: int
