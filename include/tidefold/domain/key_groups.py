"""Key groups and buckets: how keys are distributed, whatever the number of workers (requirement L8).

Also the share of each of several workers when a log is restored or read (L8, L9). Pure.

Shares are ranges of key groups, so they do not depend on an earlier number of buckets or workers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from tidefold.errors import InvalidInputError


@dataclass(frozen=True, slots=True, order=True)
class KeyGroups:
    """An inclusive range of key groups."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last:
            raise InvalidInputError("KEY_GROUPS_INVALID", f"{self.first}-{self.last} is not a range of key groups.")

    def meets(self, other: KeyGroups) -> bool:
        return self.first <= other.last and other.first <= self.last

    def within(self, other: KeyGroups) -> KeyGroups:
        """Returns the key groups that both ranges have. The ranges must overlap."""
        return KeyGroups(max(self.first, other.first), min(self.last, other.last))


def bucket_ranges(key_groups: int, buckets: int) -> tuple[KeyGroups, ...]:
    """Cuts the key groups into `buckets` ranges whose sizes differ by one at most.

    Raises InvalidInputError when there would be an empty bucket.
    """
    if not 1 <= buckets <= key_groups:
        raise InvalidInputError(
            "BUCKETS_INVALID",
            f"{buckets} buckets cannot share {key_groups} key groups.",
            hint="Choose a number of buckets from 1 to the number of key groups.",
        )
    edges = [key_groups * i // buckets for i in range(buckets + 1)]
    return tuple(KeyGroups(low, high - 1) for low, high in pairwise(edges))


_SHARE = re.compile(r"([1-9]\d{0,5})/([1-9]\d{0,5})")


class RedistributionMode(StrEnum):
    """How rows are distributed to several workers, as in Flink's operator state.

    split: each row to exactly one worker.
    union: all rows to each worker, which chooses its own.
    broadcast: all rows to each worker; all workers keep the same rows.
    """

    SPLIT = "split"
    UNION = "union"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True)
class Share:
    """The part of worker `worker` (from 1) of `workers`."""

    worker: int
    workers: int
    distribution: RedistributionMode = RedistributionMode.SPLIT

    @classmethod
    def parse(cls, text: str, distribution: RedistributionMode = RedistributionMode.SPLIT) -> Share:
        """`2/8`: the second of eight. Raises InvalidInputError."""
        found = _SHARE.fullmatch(text)
        if not found or int(found[1]) > int(found[2]):
            raise InvalidInputError(
                "SHARE_INVALID", f"`{text[:40]}` is not a share.", hint="Write it as `2/8`: the second of eight."
            )
        return cls(int(found[1]), int(found[2]), distribution)

    def key_groups(self, count: int) -> KeyGroups | None:
        """Returns which of `count` key groups this worker gets; None: there are more workers than key groups."""
        if self.distribution is not RedistributionMode.SPLIT:
            return KeyGroups(0, count - 1)
        if self.worker > count:
            return None
        return bucket_ranges(count, min(self.workers, count))[self.worker - 1]
