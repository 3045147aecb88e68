"""Divides the logs of a pipeline into pages, so that a view reads a bounded number of ledgers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
# Lines of one page, and ledgers that one page reads at most to find them.
LINES, LEDGERS = 50, 500
# Each ledger takes a moment to read, also from a disk.
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which logs a reader asks for.

    name: a part of their names.
    attention: only those that are not in order.
    start: how many of the logs with that name come before the page.
    """

    name: str = ""
    attention: bool = False
    start: int = 0

    def choose(self, logs: Sequence[str]) -> list[str]:
        """Returns the logs with that name."""
        return [log for log in logs if self.name in log]


@dataclass(frozen=True, slots=True)
class LogPage(Generic[T]):
    """The lines of a page.

    start, end: the part of the logs that was read, from `start` up to `end`.
    count: how many logs have that name.
    configured: how many logs there are.
    """

    query: LogQuery
    lines: list[T] = field(default_factory=list)
    start: int = 0
    end: int = 0
    count: int = 0
    configured: int = 0

    @property
    def is_divided(self) -> bool:
        """Whether there is more to see than this page."""
        return self.configured > LINES

    @property
    def has_next(self) -> bool:
        return self.end < self.count

    @property
    def previous(self) -> int | None:
        """Where the page before this one starts; None: this is the first, or it is not known."""
        if not self.start:
            return None
        return 0 if self.query.attention else max(0, self.start - LINES)


def read_page(
    logs: Sequence[str], query: LogQuery, at_once: int, read: Callable[[str], T], wanted: Callable[[T], bool]
) -> LogPage[T]:
    """Reads logs in their order until the page is full, and at most LEDGERS.

    at_once: how many logs the store handles at the same time.
    read: returns the line of a log. It does not raise.
    wanted: whether a line is shown.
    """
    chosen = query.choose(logs)
    start = end = min(query.start, len(chosen))
    most = min(len(chosen), start + LEDGERS)
    lines: list[T] = []
    with ThreadPoolExecutor(max(_AT_ONCE, at_once)) as pool:
        while end < most and len(lines) < LINES:
            block = chosen[end : min(most, end + LINES)]
            for line in pool.map(read, block):
                end += 1
                if wanted(line):
                    lines.append(line)
                if len(lines) == LINES:
                    break
    return LogPage(query, lines, start, end, len(chosen), len(logs))
