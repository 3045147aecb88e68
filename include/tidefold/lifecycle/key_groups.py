"""Key groups and buckets: how keys are spread, independent of how many workers there are (requirement L8)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tidefold.lifecycle.errors import InvalidInputError


@dataclass(frozen=True, slots=True, order=True)
class KeyGroups:
    """An inclusive range of key groups."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last:
            raise InvalidInputError("KEY_GROUPS_INVALID", f"{self.first}-{self.last} is no range of key groups.")

    def meets(self, other: KeyGroups) -> bool:
        return self.first <= other.last and other.first <= self.last

    def within(self, other: KeyGroups) -> KeyGroups:
        """What both ranges have; they must meet."""
        return KeyGroups(max(self.first, other.first), min(self.last, other.last))


def bucket_ranges(key_groups: int, buckets: int) -> tuple[KeyGroups, ...]:
    """Cuts the key groups into `buckets` ranges whose sizes differ by one at most.

    Raises InvalidInputError when there would be an empty bucket.
    """
    if not 1 <= buckets <= key_groups:
        raise InvalidInputError(
            "BUCKETS_INVALID",
            f"{buckets} buckets cannot share {key_groups} key groups.",
            hint="Choose a bucket count from 1 to the number of key groups.",
        )
    edges = [key_groups * i // buckets for i in range(buckets + 1)]
    return tuple(KeyGroups(low, high - 1) for low, high in pairwise(edges))
