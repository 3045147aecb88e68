"""Checks every copy of a file: whether it exists, has its length, and has its checksum. It changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tidefold.domain.storage_tier import StorageTier
from tidefold.domain.verify.expected_files import Copy, DamageKind, Expected, StoredFile, StoredLocation
from tidefold.errors import NotFoundError
from tidefold.storage import Store, compute_sha256, is_lost_by_disk

Stores = Mapping[StorageTier, Store]
# Receives how many bytes were read so far, and how many there are to read.
Tell = Callable[[int, int], None]
_READERS = 4


@dataclass(frozen=True, slots=True)
class _Found:
    """The names of one existing copy, and its length in bytes."""

    file: StoredFile
    names: tuple[Expected, ...]
    bytes: int


def examine(
    stores: Stores,
    files: Iterable[StoredFile],
    *,
    deep: bool | Container[StoredFile] = True,
    tell: Tell = lambda done, total: None,
) -> dict[StoredFile, tuple[Copy, ...]]:
    """Returns all copies of each file. A copy with several names is read once.

    Raises StorageError if a store is not available.

    deep: read the bytes; otherwise check only presence and length. A set of files: read only these.
    """
    wanted = tuple(files)
    sizes = _sizes(stores, wanted)
    missing = {file: [Copy((n,), DamageKind.MISSING) for n in file.names if _lacks(n, sizes)] for file in wanted}
    found = [copy for file in wanted for copy in _check_copy(stores, file, sizes)]
    progress = Progress(tell, sum(copy.bytes for copy in found if is_read(copy.file, deep)))
    with ThreadPoolExecutor(_READERS) as pool:
        harms = list(pool.map(lambda copy: _harm(stores, copy, is_read(copy.file, deep), progress), found))
    copies: dict[StoredFile, list[Copy]] = {file: [] for file in wanted}
    for copy, harm in zip(found, harms, strict=True):
        copies[copy.file].append(Copy(copy.names, harm))
    return {file: (*copies[file], *missing[file]) for file in wanted}


def is_read(file: StoredFile, deep: bool | Container[StoredFile]) -> bool:
    """Whether the bytes of a file are read too."""
    return deep if isinstance(deep, bool) else file in deep


class Progress:
    """Adds up what several threads have read, and reports it."""

    def __init__(self, tell: Tell, total: int) -> None:
        self._tell, self._total, self._done = tell, total, 0
        self._lock = threading.Lock()

    def add(self, read: int) -> None:
        with self._lock:
            self._done += read
            self._tell(self._done, self._total)


def _lacks(name: Expected, sizes: Mapping[StoredLocation, int]) -> bool:
    return name.required and name.place not in sizes


def _sizes(stores: Stores, files: Sequence[StoredFile]) -> dict[StoredLocation, int]:
    """Returns the lengths of the files in the folders of these files: one listing for each folder."""
    folders = {StoredLocation(n.place.path.rpartition("/")[0], n.place.where) for file in files for n in file.names}
    return {
        StoredLocation(entry.path, folder.where): entry.bytes
        for folder in sorted(folders)
        for entry in stores[folder.where].list(folder.path)
    }


def _check_copy(stores: Stores, file: StoredFile, sizes: Mapping[StoredLocation, int]) -> list[_Found]:
    by_identity: dict[str, list[Expected]] = {}
    for name in file.names:
        if name.place in sizes:
            try:
                identity = stores[name.place.where].identity(name.place.path)
            except NotFoundError:
                continue  # Deleted since it was listed: the ledger shows why.
            by_identity.setdefault(identity, []).append(name)
    return [_Found(file, tuple(names), sizes[names[0].place]) for names in by_identity.values()]


def _harm(stores: Stores, copy: _Found, deep: bool, progress: Progress) -> DamageKind | None:
    expected = copy.file.bytes
    if expected is not None and copy.bytes != expected:
        return DamageKind.CUT if copy.bytes < expected else DamageKind.ALTERED
    if not deep:
        return None
    place = copy.names[0].place
    try:
        digest = digest_of(stores, place)
    except NotFoundError:
        return DamageKind.MISSING
    except OSError as error:
        if not is_lost_by_disk(error):
            raise
        return DamageKind.UNREADABLE
    progress.add(copy.bytes)
    return None if digest == copy.file.sha256 else DamageKind.ALTERED


def digest_of(stores: Stores, place: StoredLocation) -> str:
    """Returns the sha256 of a file."""
    with stores[place.where].open(place.path) as stream:
        return compute_sha256(stream)


def still_named(copies: Iterable[Copy], named: Collection[StoredLocation]) -> tuple[Copy, ...]:
    """Returns the copies without names that nothing needs any more: such a file was deleted on purpose."""
    kept = (Copy(tuple(n for n in c.names if n.place in named), c.harm) if c.harm else c for c in copies)
    return tuple(copy for copy in kept if copy.names)
