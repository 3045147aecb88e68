"""The commit times, at the source, of the changes in a change set and in a snapshot. Pure.

Instants are microseconds since 1970 UTC, as a change set has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

# Later than every instant: the commit time of a snapshot that has a change without a commit time.
NEVER = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CommitTimeRange:
    """The first and the last commit time of the changes of a change set, and how many are without one."""

    first: int | None
    last: int | None
    without: int = 0


@dataclass(frozen=True, slots=True)
class AsOf:
    """The instant of a snapshot that has only the changes committed before it.

    head: the newest completed snapshot when it began, whose change sets it uses.
    """

    at: int
    head: int | None = None

    def __str__(self) -> str:
        return format_instant(self.at)

    @property
    def tag(self) -> str:
        """The name of the tag that keeps the snapshot."""
        return tag_of(self.at)


def iso_instant(microseconds: int | None) -> str | None:
    """An instant as ISO 8601; None if it is not known or no calendar has it."""
    try:
        return None if microseconds is None else (_EPOCH + timedelta(microseconds=microseconds)).isoformat()
    except OverflowError:
        return None


def merge_ranges(times: Iterable[CommitTimeRange | None]) -> CommitTimeRange | None:
    """Returns the range of several change sets together; None if the range of one of them is not known."""
    first: list[int] = []
    last: list[int] = []
    without = 0
    for one in times:
        if one is None:
            return None
        first += [] if one.first is None else [one.first]
        last += [] if one.last is None else [one.last]
        without += one.without
    return CommitTimeRange(min(first, default=None), max(last, default=None), without)


def latest_commit_time(below: Sequence[int | None], times: Iterable[CommitTimeRange | None]) -> int | None:
    """Returns the last commit time of the changes in a snapshot; None: not known.

    below: the last commit times of the snapshots that it is built on; NEVER: one has a change without a commit time.
    times: the commit times of the change sets that are folded onto them.
    """
    whole = merge_ranges(times)
    if whole is None or None in below:
        return None
    last = [] if whole.last is None else [whole.last]
    instants = [one for one in below if one is not None]
    return NEVER if whole.without else max([*instants, *last], default=None)


def micros(instant: str) -> int:
    """Returns an instant (ISO 8601, with its zone) as a number; NEVER if the text is not an instant."""
    try:
        return (datetime.fromisoformat(instant) - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, TypeError):
        return NEVER


def format_instant(at: int) -> str:
    """`2026-11-05T00:00:00Z`, with as many digits after the seconds as it needs."""
    return (_EPOCH + timedelta(microseconds=at)).isoformat().replace("+00:00", "Z")


def next_second(at: int) -> int:
    """Returns the first whole second at or after an instant."""
    return -(-at // 1_000_000) * 1_000_000


def tag_of(at: int) -> str:
    """Returns `as-of-2026-11-05`, or `as-of-2026-11-05T06-30-00` if the instant is not midnight."""
    day, _, time = format_instant(at).removesuffix("Z").partition("T")
    return f"as-of-{day}" if time == "00:00:00" else f"as-of-{day}T{time.replace(':', '-')}"
