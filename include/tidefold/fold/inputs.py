"""Reads a task's inputs, each from the first address whose bytes match its checksum (I16, I17), and caches changes.

`operations/restore/plan.py` orders the addresses of a restore; a copy on this host comes before them.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.segment import Indexes, read_change_set, slice_key_groups
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import ChangeSet
from tidefold.domain.paths import data_path
from tidefold.domain.retention.local_copies import CopyName
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.errors import CorruptError, NotFoundError, TidefoldError
from tidefold.fold.plan import Address, ChangeSetIndex, Input, PlaceNumbers, Read
from tidefold.storage import Store, compute_sha256, is_lost_by_disk, open_store
from tidefold.storage.local_copies.host_copies import HostCopied, HostCopies, HostFolders
from tidefold.storage.local_store import LocalStore

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
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SourcePlaces:
    """Addresses for a plan.

    local: the local root of each snapshot that has a copy here.
    segments: the local copies of segments.
    external: originals of imported files, by their sha256.
    hosts: how tasks find the copies of their own hosts.
    """

    store: str
    local: Mapping[int, str] = field(default_factory=dict)
    segments: str | None = None
    external: Mapping[str, Address] = field(default_factory=dict)
    hosts: HostFolders | None = None

    def inputs(self, base: Manifest, files: Sequence[DataFile], *folders: str) -> tuple[Input, ...]:
        """Returns files of a snapshot with all their addresses.

        Local copies come first, its own before others'. Then come these folders of the store, then originals.
        """
        nearest = sorted(self.local, key=lambda snapshot: (snapshot != base.snapshot, -snapshot))
        copies = [(self.local[snapshot], str(CopyName(base.log, snapshot))) for snapshot in nearest]
        return tuple(
            Input(
                file,
                (
                    *(Address(StorageTier.LOCAL, root, data_path(folder, file.name)) for root, folder in copies),
                    *(Address(StorageTier.STORE, self.store, data_path(f, file.name)) for f in dict.fromkeys(folders)),
                    *(self.external[key] for key in (file.sha256,) if key in self.external),
                ),
            )
            for file in files
        )

    @property
    def logs(self) -> tuple[Address, ...]:
        """Returns the addresses of segments, in order."""
        local = [] if self.segments is None else [Address(StorageTier.LOCAL, self.segments)]
        return (*local, Address(StorageTier.STORE, self.store))


class ChangeCache:
    """The changes of small change sets that one task has read, for later tasks of the same work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: npt.NDArray[np.bool_] = np.empty(0, np.bool_)
        self._tables: dict[_Kind, pa.Table] = {}
        self.bytes = 0

    def changes(
        self, index: ChangeSetIndex, numbers: PlaceNumbers, bucket: KeyGroups, read: Callable[[ChangeSet], pa.Table]
    ) -> list[tuple[pa.Table, int]]:
        """Returns the changes of change sets for a bucket, joined by schema, each table with the id of its schema.

        index: all change sets of the work.
        numbers: those that are wanted; all of them overlap the bucket.
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
            complete = np.count_nonzero(self._known & index.overlaps(bucket)) == len(numbers)
        wanted = None if complete else pa.array(numbers, pa.int64())
        return [(_of(table, bucket, wanted), schema) for (schema, _), table in tables.items()]

    def _sort(self) -> None:
        for kind, table in self._tables.items():
            self._tables[kind] = table.sort_by("_kg").combine_chunks()

    def _add(self, index: ChangeSetIndex, numbers: PlaceNumbers, read: Callable[[ChangeSet], pa.Table]) -> None:
        by_kind: dict[_Kind, list[pa.Table]] = {}
        places: dict[_Kind, list[int]] = {}
        change_sets = [index.change_sets[number] for number in numbers]
        # All of them first: what is known counts as read, also for the next try after an error.
        tables = list(_read(change_sets, read))
        kind: _Kind | None = None
        for number, change_set, table in zip(numbers.tolist(), change_sets, tables, strict=True):
            # Neighbours are mostly of one kind. To compare two schemas costs a twentieth of the hash of one.
            if kind is None or kind[0] != change_set.schema or not table.schema.equals(kind[1]):
                kind = change_set.schema, table.schema
                some = by_kind.setdefault(kind, [])
                those = places.setdefault(kind, [])
            some.append(table)
            those.append(number)
        for kind, some in by_kind.items():
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
    mine = slice_key_groups(table, bucket)
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
            cache = self._found.pop(work) if work in self._found else ChangeCache()
            self._found[work] = cache
            while len(self._found) > _WORKS or (len(self._found) > 1 and self._bytes() > _MOST):
                self._found.popitem(last=False)
            return cache

    def _bytes(self) -> int:
        return sum(one.bytes for one in self._found.values())


# One a process: it has no other place that outlives a task of Spark's.
_of_process = CachePool()


def changes_for(
    work: Hashable,
    index: ChangeSetIndex,
    numbers: PlaceNumbers,
    bucket: KeyGroups,
    read: Callable[[ChangeSet, KeyGroups | None], pa.Table],
    least: int = MANY,
) -> Iterator[tuple[pa.Table, int]]:
    """Yields the changes for a bucket with the ids of their schemas.

    work: names the work; only its tasks share what was read.
    index: all change sets of the work.
    numbers: those that are wanted; all of them overlap the bucket.
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


class Inputs:
    """Opens the inputs of one task, and records every try in `reads`.

    known: stores that are already open.
    indexes: of segments that other tasks of the work have read, by the root of the store. New ones are added.
    host: the copies on the disks of this host, which are tried first. `copied`: those that the task made.
    """

    def __init__(
        self,
        stores: Mapping[str, Store] | None = None,
        indexes: dict[str, Indexes] | None = None,
        host: HostCopies | None = None,
    ) -> None:
        self.host = host
        self.copied: list[HostCopied] = []
        self.reads: list[Read] = []
        self._stores: dict[str, Store] = dict(stores or {})
        self._indexes: dict[str, Indexes] = {} if indexes is None else indexes

    def store(self, address: Address) -> Store:
        if address.root not in self._stores:
            self._stores[address.root] = _open_store(address)
        return self._stores[address.root]

    def open(self, wanted: Input) -> tuple[Address, AbstractContextManager[BinaryIO]]:
        """Returns an address with intact bytes, and a stream over them. Raises CorruptError, NotFoundError."""
        places = (*self._find_host_copy(wanted.file.sha256), *wanted.addresses)
        address = self.first(wanted.file.name, wanted.file.bytes, places, partial(self._prove, wanted.file))
        return address, self.store(address).open(address.path)

    def _find_host_copy(self, name: str) -> tuple[Address, ...]:
        copy = self.host.find(name) if self.host else None
        return (Address(StorageTier.LOCAL, *copy),) if copy else ()

    def changes(
        self,
        work: Hashable,
        roots: Sequence[Address],
        index: ChangeSetIndex,
        numbers: PlaceNumbers,
        bucket: KeyGroups,
        least: int,
    ) -> Iterator[tuple[pa.Table, int]]:
        """Yields the changes of change sets for a bucket, with the ids of their schemas. See `changes_for`."""
        return changes_for(work, index, numbers, bucket, partial(self._change_set, roots), least)

    def _change_set(self, roots: Sequence[Address], change_set: ChangeSet, bucket: KeyGroups | None) -> pa.Table:
        name = str(change_set.location)

        def read(root: Address) -> pa.Table:
            location = replace(change_set.location, segment=root.path or change_set.location.segment)
            at = replace(change_set, location=location)
            return read_change_set(self.store(root), at, bucket, self._indexes.setdefault(root.root, {}))

        copy = self._find_host_copy(change_set.location.segment.rpartition("/")[2])
        return self.first(name, change_set.location.length, (*copy, *roots), read)

    def first(self, name: str, size: int, addresses: Sequence[Address], act: Callable[[Address], T]) -> T:
        """Returns the result of `act` at the first address where it succeeds. Raises CorruptError if none has the file.

        Raises StorageError if the durable store is not available: another address would not help.
        """
        failed: list[Exception] = []
        tried: list[Read] = []
        for address in addresses:
            begun = time.perf_counter()
            try:
                result = act(address)
            except (TidefoldError, OSError) as error:
                failed.append(error)
                tried.append(self._note(name, address, 0, begun, _why(address, error)))
                continue
            self._note(name, address, size, begun)
            return result
        if len(failed) == 1:
            raise failed[0]
        failures = "; ".join(f"{read.place}: {read.why}" for read in tried)
        raise CorruptError(
            "NO_GOOD_COPY",
            f"No copy of `{name}` can be used: {failures}.",
            hint="Run `tidefold restore` with an older snapshot.",
        )

    def _note(self, name: str, address: Address, size: int, begun: float, why: str = "") -> Read:
        read = Read(name, address.where, str(address), size, time.perf_counter() - begun, why)
        self.reads.append(read)
        return read

    def _prove(self, file: DataFile, address: Address) -> Address:
        """Verifies the checksum, so that silent damage does not live on in new files."""
        with self.store(address).open(address.path) as stream:
            digest = compute_sha256(stream)
        if digest != file.sha256:
            raise CorruptError(
                "DATA_FILE_CORRUPT",
                f"`{address.path}` differs from the file that was confirmed.",
                hint="Put the file back from another copy of the savepoint."
                if address.where is StorageTier.EXTERNAL
                else "`tidefold check verify --repair` repairs it from another copy, if there is one.",
            )
        return address


def _open_store(address: Address) -> Store:
    if address.where is StorageTier.LOCAL:
        return LocalStore(Path(address.root), private=True)
    return open_store(address.root, Path("/"))


def _why(address: Address, error: Exception) -> str:
    """Describes why an address failed. Raises errors that concern the whole durable store."""
    if isinstance(error, NotFoundError):
        return "missing"
    if isinstance(error, CorruptError):
        return "altered" if error.code == "DATA_FILE_CORRUPT" else error.message
    if address.where is StorageTier.STORE and not is_lost_by_disk(error):
        raise error
    return f"unreadable ({error})"
