"""Many small change sets, read once for all tasks of a process: every bucket wants a few rows of each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.lifecycle.key_groups import KeyGroups
from tidefold.lifecycle.values import ChangeSet

# Of few change sets each task finds its own slices. So many that are that small cost more to find than to read whole.
MANY, SMALL = 64, 1 << 16
# What a process keeps of one work at most, in compressed bytes: as Arrow they are several times as many.
_MOST = 16 << 20
# So many are read side by side, and put together at once.
_READERS, _RUN = 8, 1_000
_NUMBER = "_number"


class Gathered:
    """The changes of small change sets that a task has read, for the tasks after it of the same `work`.

    Another work reads anew what it needs, and so finds what was damaged since.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin(None)

    def changes(
        self, work: Hashable, change_sets: Sequence[ChangeSet], bucket: KeyGroups, read: Callable[[ChangeSet], pa.Table]
    ) -> list[tuple[pa.Table, int]]:
        """The changes of these change sets for a bucket, put together by schema, whose id is beside them.

        `read` gives all changes of a change set. Raises what it raises.
        """
        with self._lock:
            if work != self._work:
                self._begin(work)
            missing = [c for c in change_sets if c not in self._numbers]
            for start in range(0, len(missing), _RUN):
                self._add(missing[start : start + _RUN], read)
            tables, numbers = dict(self._tables), [self._numbers[c] for c in change_sets]
            complete = len(numbers) == len(self._numbers)
        wanted = None if complete else pa.array(numbers, pa.int64())
        return [(_of(table, bucket, wanted), schema) for (schema, _), table in tables.items()]

    def _begin(self, work: Hashable) -> None:
        self._work = work
        self._numbers: dict[ChangeSet, int] = {}
        self._tables: dict[tuple[int, pa.Schema], pa.Table] = {}

    def _add(self, change_sets: Sequence[ChangeSet], read: Callable[[ChangeSet], pa.Table]) -> None:
        with ThreadPoolExecutor(_READERS) as pool:
            tables = list(pool.map(read, change_sets))
        found: dict[tuple[int, pa.Schema], list[pa.Table]] = {}
        for change_set, table in zip(change_sets, tables, strict=True):
            number = self._numbers[change_set] = len(self._numbers)
            numbered = table.append_column(_NUMBER, pa.repeat(pa.scalar(number, pa.int64()), len(table)))
            found.setdefault((change_set.schema, table.schema), []).append(numbered)
        for kind, some in found.items():
            before = [self._tables[kind]] if kind in self._tables else []
            self._tables[kind] = pa.concat_tables([*before, *some]).combine_chunks()


def _of(table: pa.Table, bucket: KeyGroups, wanted: pa.Array | None) -> pa.Table:
    groups = table.column("_kg")
    mine = pc.and_(pc.greater_equal(groups, bucket.first), pc.less_equal(groups, bucket.last))
    if wanted is not None:
        mine = pc.and_(mine, pc.is_in(table.column(_NUMBER), wanted))
    return table.filter(mine).drop_columns(_NUMBER)


# One a process: it has no other place that outlives a task of Spark's.
_of_process = Gathered()


def changes_for(
    work: Hashable,
    change_sets: Sequence[ChangeSet],
    bucket: KeyGroups,
    read: Callable[[ChangeSet, KeyGroups | None], pa.Table],
) -> Iterator[tuple[pa.Table, int]]:
    """The changes for a bucket with the ids of their schemas. `read` gives those of a change set for a bucket, or all
    of them for None. `work` names what is done: only its tasks share what was read.
    """
    small = [c for c in change_sets if c.length <= SMALL]
    if len(small) < MANY or sum(c.length for c in small) > _MOST:
        small = []
    else:
        yield from _of_process.changes(work, small, bucket, lambda c: read(c, None))
    gathered = set(small)
    for change_set in change_sets:
        if change_set not in gathered:
            yield read(change_set, bucket), change_set.schema
