"""Key groups and buckets: how keys are distributed, whatever the number of workers (requirement L8).

Also the share of each of several workers when a log is restored or read (L8, L9). Pure.

Shares are ranges of key groups, so they do not depend on an earlier number of buckets or workers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from tidefold.errors import InvalidInputError

_SHARE = re.compile(r"([1-9]\d{0,5})/([1-9]\d{0,5})")


@dataclass(frozen=True, slots=True, order=True)
class KeyGroups:
    """An inclusive range of key groups."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last:
            raise InvalidInputError(
                "KEY_GROUPS_INVALID",
                f"`{self.first}-{self.last}` is not a range of key groups.",
                hint="Begin at 0 or above, and end at the first key group or above, as in `0-31`.",
            )

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
        raise InvalidInputError("BUCKETS_INVALID", f"{buckets} buckets cannot share {key_groups} key groups.")
    edges = [key_groups * i // buckets for i in range(buckets + 1)]
    return tuple(KeyGroups(low, high - 1) for low, high in pairwise(edges))


class RedistributionMode(StrEnum):
    """How rows are distributed to several workers, as in Flink's operator state.

    split: each row to exactly one worker.
    union: the rows of all owners to each worker, which chooses its own.
    broadcast: the rows of one owner to each worker: all owners wrote the same. Without owners, all rows to each.
    """

    SPLIT = "split"
    UNION = "union"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True)
class Redistribution:
    """How the rows of a log are distributed to workers. Each snapshot stores it.

    owner: the key column that names the worker that wrote a row; None: rows have no owner.
    """

    mode: RedistributionMode = RedistributionMode.SPLIT
    owner: str | None = None


SPLIT = Redistribution()


@dataclass(frozen=True, slots=True)
class OwnedRows:
    """The rows of one owner: those whose column has this value, written as text."""

    column: str
    value: str


@dataclass(frozen=True, slots=True)
class Share:
    """The part of worker `worker` (from 1) of `workers`.

    distribution: how rows are distributed; None: as the snapshot says.
    """

    worker: int
    workers: int
    distribution: RedistributionMode | None = None

    def __str__(self) -> str:
        return f"{self.worker}/{self.workers}"

    @classmethod
    def parse(cls, text: str, distribution: RedistributionMode | None = None) -> Share:
        """`2/8`: the second of eight. Raises InvalidInputError."""
        parts = _SHARE.fullmatch(text)
        if not parts or int(parts[1]) > int(parts[2]):
            raise InvalidInputError("SHARE_INVALID", f"`{text[:40]}` is not a share.")
        return cls(int(parts[1]), int(parts[2]), distribution)

    def key_groups(self, count: int) -> KeyGroups | None:
        """Returns which of `count` key groups this worker gets; None: there are more workers than key groups."""
        if self.distribution in (RedistributionMode.UNION, RedistributionMode.BROADCAST):
            return KeyGroups(0, count - 1)
        if self.worker > count:
            return None
        return bucket_ranges(count, min(self.workers, count))[self.worker - 1]

    def resolve(self, stored: Redistribution) -> Share:
        """Returns the share with the distribution of the snapshot, unless it has one of its own."""
        return self if self.distribution else replace(self, distribution=stored.mode)

    def find_owner(self, owners: Sequence[str]) -> str | None:
        """Returns the owner whose rows this worker gets in a broadcast: the owners take turns. None: there is none."""
        return owners[(self.worker - 1) % len(owners)] if owners else None
