"""What is recorded of a restore drill."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Drill:
    """The newest trial restore of a snapshot: when it was (ISO 8601, for people), how long it took, how many bytes were
    read, how many of them from copies on that machine, and whether all was as recorded.
    """

    instant: str
    seconds: float
    bytes: int
    bytes_local: int
    passed: bool
