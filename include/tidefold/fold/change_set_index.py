"""Finds the change sets of a bucket. A plan asks once for each bucket, so the search must not cost a Python loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import ChangeSet

Numbers = npt.NDArray[np.intp]


class ChangeSetIndex:
    """Change sets by number, with their key groups and compressed lengths as arrays."""

    def __init__(self, change_sets: Sequence[ChangeSet]) -> None:
        self.change_sets = tuple(change_sets)
        self.lengths = np.array([c.location.length for c in change_sets], np.int64)
        self._first = np.array([c.key_groups.first for c in change_sets], np.int64)
        self._last = np.array([c.key_groups.last for c in change_sets], np.int64)

    def is_near(self, bucket: KeyGroups) -> npt.NDArray[np.bool_]:
        """Returns for each change set whether it may have changes for a bucket."""
        return (self._first <= bucket.last) & (self._last >= bucket.first)

    def near(self, bucket: KeyGroups) -> Numbers:
        """Returns the numbers of the change sets that may have changes for a bucket."""
        return np.flatnonzero(self.is_near(bucket))

    def estimate_bytes(self, numbers: Numbers, bucket: KeyGroups) -> int:
        """Estimates how many bytes of these change sets are for a bucket. Each must be near it."""
        first, last = self._first[numbers], self._last[numbers]
        overlap = np.minimum(last, bucket.last) - np.maximum(first, bucket.first) + 1
        return int(np.sum(self.lengths[numbers] * (overlap / (last - first + 1))))
