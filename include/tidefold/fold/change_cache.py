"""Reads small change sets once for all tasks of a process, because every bucket needs a few rows of each."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.segment import of_key_groups
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import ChangeSet
from tidefold.fold.change_set_index import ChangeSetIndex, Numbers

# From this number of change sets on, finding the parts of one bucket costs more than reading all of them whole.
MANY = 64
# Limits in compressed bytes of a process and of one change set; as Arrow they take several times as much. Beyond them
# each task finds its own parts. The third number is Arrow's overhead for each change set, which does not count.
_MOST, _SMALL, _FRAME = 16 << 20, 1 << 20, 1_536
_WORKS = 1_000
# How many are read at the same time, and how many are joined at once.
_READERS, _RUN = 8, 1_000
_NUMBER = "_number"
# The id of a schema of the log, and the schema of the change set.
_Kind = tuple[int, pa.Schema]


class ChangeCache:
    """The changes of small change sets that one task has read, for later tasks of the same work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: npt.NDArray[np.bool_] = np.empty(0, np.bool_)
        self._tables: dict[_Kind, pa.Table] = {}
        self.bytes = 0

    def changes(
        self, index: ChangeSetIndex, numbers: Numbers, bucket: KeyGroups, read: Callable[[ChangeSet], pa.Table]
    ) -> list[tuple[pa.Table, int]]:
        """Returns the changes of change sets for a bucket, joined by schema, each table with the id of its schema.

        index: all change sets of the work.
        numbers: those that are wanted; all of them are near the bucket.
        read: returns all changes of a change set. Its errors are raised.
        """
        with self._lock:
            if not len(self._known):
                self._known = np.zeros(len(index.change_sets), np.bool_)
            missing = numbers[~self._known[numbers]]
            for start in range(0, len(missing), _RUN):
                self._add(index, missing[start : start + _RUN], read)
            if len(missing):
                self._sort()
                self.bytes += int(np.sum(_count_kept_bytes(index.lengths[missing])))
            tables = dict(self._tables)
            complete = np.count_nonzero(self._known & index.is_near(bucket)) == len(numbers)
        wanted = None if complete else pa.array(numbers, pa.int64())
        return [(_of(table, bucket, wanted), schema) for (schema, _), table in tables.items()]

    def _sort(self) -> None:
        for kind, table in self._tables.items():
            self._tables[kind] = table.sort_by("_kg").combine_chunks()

    def _add(self, index: ChangeSetIndex, numbers: Numbers, read: Callable[[ChangeSet], pa.Table]) -> None:
        found: dict[_Kind, list[pa.Table]] = {}
        places: dict[_Kind, list[int]] = {}
        change_sets = [index.change_sets[number] for number in numbers]
        # All of them first: what is known counts as read, also for the next try after an error.
        tables = list(_read(change_sets, read))
        kind: _Kind | None = None
        for number, change_set, table in zip(numbers.tolist(), change_sets, tables, strict=True):
            # Neighbours are mostly of one kind. To compare two schemas costs a twentieth of the hash of one.
            if kind is None or kind[0] != change_set.schema or not table.schema.equals(kind[1]):
                kind = change_set.schema, table.schema
                some = found.setdefault(kind, [])
                those = places.setdefault(kind, [])
            some.append(table)
            those.append(number)
        for kind, some in found.items():
            repeated = np.repeat(places[kind], [len(table) for table in some])
            numbered = pa.concat_tables(some).append_column(_NUMBER, pa.array(repeated))
            before = [self._tables[kind]] if kind in self._tables else []
            self._tables[kind] = pa.concat_tables([*before, numbered]).combine_chunks()
        self._known[numbers] = True


def _read(change_sets: Sequence[ChangeSet], read: Callable[[ChangeSet], pa.Table]) -> Iterator[pa.Table]:
    """Yields the tables in order. Each reader thread reads many: handing one over takes as long as reading it."""
    size = -(-len(change_sets) // _READERS)
    parts = [change_sets[start : start + size] for start in range(0, len(change_sets), size)]
    with ThreadPoolExecutor(_READERS) as pool:
        for tables in pool.map(lambda part: [read(one) for one in part], parts):
            yield from tables


def _of(table: pa.Table, bucket: KeyGroups, wanted: pa.Array | None) -> pa.Table:
    mine = of_key_groups(table, bucket)
    if wanted is not None:
        mine = mine.filter(pc.is_in(mine.column(_NUMBER), wanted))
    return mine.drop_columns(_NUMBER)


def _count_kept_bytes(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns how many compressed bytes the cache keeps of change sets of these lengths."""
    return np.maximum(lengths - _FRAME, 0)


class CachePool:
    """The caches of recent works, because the tasks of several logs come mixed.

    Another work reads everything again, and so finds damage that happened since.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[Hashable, ChangeCache] = OrderedDict()

    def of(self, work: Hashable) -> ChangeCache:
        """Returns the cache of a work, and drops the least recently used ones."""
        with self._lock:
            found = self._found.pop(work) if work in self._found else ChangeCache()
            self._found[work] = found
            while len(self._found) > _WORKS or (len(self._found) > 1 and self._bytes() > _MOST):
                self._found.popitem(last=False)
            return found

    def _bytes(self) -> int:
        return sum(one.bytes for one in self._found.values())


# One a process: it has no other place that outlives a task of Spark's.
_of_process = CachePool()


def changes_for(
    work: Hashable,
    index: ChangeSetIndex,
    numbers: Numbers,
    bucket: KeyGroups,
    read: Callable[[ChangeSet, KeyGroups | None], pa.Table],
    least: int = MANY,
) -> Iterator[tuple[pa.Table, int]]:
    """Yields the changes for a bucket with the ids of their schemas.

    work: names the work; only its tasks share what was read.
    index: all change sets of the work.
    numbers: those that are wanted; all of them are near the bucket.
    read: returns the changes of a change set for a bucket, or all of them for None.
    least: fewer change sets than this are not read whole; 1 if tasks for all buckets need them.
    """
    is_small = index.lengths[numbers] <= _SMALL
    small = numbers[is_small]
    if len(small) < least or int(np.sum(_count_kept_bytes(index.lengths[small]))) > _MOST:
        alone = numbers
    else:
        alone = numbers[~is_small]
        yield from _of_process.of(work).changes(index, small, bucket, lambda c: read(c, None))
    for number in alone:
        change_set = index.change_sets[number]
        yield read(change_set, bucket), change_set.schema
