"""Checks every copy of a file (exists, length, content), and repairs a damaged one from a good one."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tidefold.changelog.segment import check_pieces, ends_whole
from tidefold.delta.deletion_vectors import vector_file
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.verify.expected_files import Copy, DamageKind, Expected, FileRole, StoredFile, StoredLocation
from tidefold.errors import CorruptError, NotFoundError
from tidefold.ledger import Ledger
from tidefold.operations.verify.check_delta_tables import Stores, copy_in_manifest, examine_logs, rewrite_log
from tidefold.storage import Store, compute_sha256, is_lost_by_disk

# Receives how many bytes were read so far, and how many there are to read.
TellBytes = Callable[[int, int], None]
_READERS = 4
# It never writes to the damaged bytes. It makes a new file, verifies it and renames it, so a reader gets one or the
# other.
_CHUNK = 1 << 20
_UNFINISHED = ".part"


@dataclass(frozen=True, slots=True)
class _StoredCopy:
    """The names of one existing copy, and its length in bytes."""

    file: StoredFile
    names: tuple[Expected, ...]
    bytes: int


def examine(
    stores: Stores,
    files: Iterable[StoredFile],
    *,
    deep: bool | Container[StoredFile] = True,
    tell: TellBytes = lambda done, total: None,
) -> dict[StoredFile, tuple[Copy, ...]]:
    """Returns all copies of each file. A copy with several names is read once.

    Raises StorageError if a store is not available.

    deep: read the bytes; otherwise check only presence and length. A set of files: read only these.
    """
    wanted = tuple(files)
    copies = {file: list[Copy]() for file in wanted} | examine_logs(stores, wanted)
    listed = [file for file in wanted if file.part is not FileRole.DELTA_LOG]
    sizes = _sizes(stores, listed)
    present = [copy for file in listed for copy in _list_copies(stores, file, sizes)]
    progress = _Progress(tell, sum(copy.file.read_bytes or copy.bytes for copy in present if _is_read(copy.file, deep)))
    with ThreadPoolExecutor(_READERS) as pool:
        harms = list(pool.map(lambda copy: _harm(stores, copy, _is_read(copy.file, deep), progress), present))
    for copy, harm in zip(present, harms, strict=True):
        copies[copy.file].append(Copy(copy.names, harm))
    for file in listed:
        absent = (name for name in file.names if name.required and name.place not in sizes)
        copies[file] += [Copy((name,), DamageKind.MISSING) for name in absent]
        copies[file] += [copy_in_manifest(file.manifest)] if file.manifest else []
    return {file: tuple(every) for file, every in copies.items()}


def _is_read(file: StoredFile, deep: bool | Container[StoredFile]) -> bool:
    """Whether the bytes of a file are read too."""
    return deep if isinstance(deep, bool) else file in deep


class _Progress:
    """Adds up what several threads have read, and reports it."""

    def __init__(self, tell: TellBytes, total: int) -> None:
        self._tell, self._total, self._done = tell, total, 0
        self._lock = threading.Lock()

    def add(self, read: int) -> None:
        with self._lock:
            self._done += read
            self._tell(self._done, self._total)


def _sizes(stores: Stores, files: Sequence[StoredFile]) -> dict[StoredLocation, int]:
    """Returns the lengths of the files in the folders of these files: one listing for each folder."""
    folders = {StoredLocation(n.place.path.rpartition("/")[0], n.place.where) for file in files for n in file.names}
    return {
        StoredLocation(entry.path, folder.where): entry.bytes
        for folder in sorted(folders)
        if folder.where in stores
        for entry in stores[folder.where].list(folder.path)
    }


def _list_copies(stores: Stores, file: StoredFile, sizes: Mapping[StoredLocation, int]) -> list[_StoredCopy]:
    by_identity: dict[str, list[Expected]] = {}
    for name in file.names:
        if name.place in sizes:
            try:
                identity = stores[name.place.where].identity(name.place.path)
            except NotFoundError:
                continue  # Deleted since it was listed: the ledger shows why.
            by_identity.setdefault(identity, []).append(name)
    return [_StoredCopy(file, tuple(names), sizes[names[0].place]) for names in by_identity.values()]


def _harm(stores: Stores, copy: _StoredCopy, deep: bool, progress: _Progress) -> DamageKind | None:
    harm = copy.file.check_length(copy.bytes)
    if harm or not deep:
        return harm
    try:
        harm = _read_through(stores, copy.file, copy.names[0].place)
    except NotFoundError:
        return DamageKind.MISSING
    except OSError as error:
        if not is_lost_by_disk(error):
            raise
        return DamageKind.UNREADABLE
    progress.add(copy.file.read_bytes or copy.bytes)
    return harm


def _read_through(stores: Stores, file: StoredFile, place: StoredLocation) -> DamageKind | None:
    if not file.change_sets:
        return None if _digest_of(stores, place) == file.sha256 else DamageKind.ALTERED
    store = stores[place.where]
    try:
        check_pieces(store, place.path, file.change_sets)
    except CorruptError:
        return DamageKind.ALTERED if ends_whole(store, place.path) else DamageKind.CUT
    return None


def _digest_of(stores: Stores, place: StoredLocation) -> str:
    with stores[place.where].open(place.path) as stream:
        return compute_sha256(stream)


def still_named(copies: Iterable[Copy], named: Collection[StoredLocation]) -> tuple[Copy, ...]:
    """Returns the copies without names that nothing needs any more: such a file was deleted on purpose."""
    kept = (Copy(tuple(n for n in c.names if n.place in named), c.harm) if c.harm else c for c in copies)
    return tuple(copy for copy in kept if copy.names)


def repair_file(stores: Stores, file: StoredFile, copies: Iterable[Copy]) -> StoredLocation:
    """Repairs all damaged copies of a file, and returns the location of the copy that it used.

    Raises CorruptError if no other copy is proved to be intact, RefusedError if the store replaces no file.
    """
    listed = tuple(copies)
    damaged = [copy for copy in listed if copy.damaged]
    good = [copy.place for copy in listed if copy.harm is None]
    if file.manifest:
        for copy in damaged:
            _make_again(stores[copy.place.where], copy.place, file, file.manifest)
        source = good[0]
    else:
        source, digest = _prove(stores, file, good)
        _replace_copies(stores, digest, source, damaged)
    for where, store in stores.items():
        _clear_halves(store, [path for copy in damaged for path in _paths(copy, where)])
    return source


def _make_again(store: Store, place: StoredLocation, file: StoredFile, manifest: Manifest) -> None:
    if file.vector is None:
        rewrite_log(store, place, manifest)
        return
    with store.replace([place.path]) as stream:
        stream.write(vector_file(file.vector))


def _replace_copies(stores: Stores, digest: str, source: StoredLocation, damaged: Sequence[Copy]) -> None:
    for where, store in stores.items():
        for copy in damaged:
            # Names that shared the damaged bytes share the new ones: as many copies as before.
            paths = _paths(copy, where)
            if paths and copy.harm is not DamageKind.MISSING:
                _replace(stores, digest, source, store, paths)
        missing = [path for copy in damaged if copy.harm is DamageKind.MISSING for path in _paths(copy, where)]
        if missing and where is source.where is StorageTier.STORE:
            for path in missing:
                store.link(source.path, path)
        elif missing:
            # Local copies are bytes of their own, never links into the store.
            _replace(stores, digest, source, store, missing)


def _paths(copy: Copy, where: StorageTier) -> list[str]:
    return [name.place.path for name in copy.names if name.place.where is where]


def _prove(stores: Stores, file: StoredFile, good: Iterable[StoredLocation]) -> tuple[StoredLocation, str]:
    """Returns the first copy whose bytes are read and found right, those of the store first, and its sha256."""
    for place in sorted(good, key=lambda place: place.where is StorageTier.LOCAL):
        try:
            digest = _digest_of(stores, place)
            if _is_right_segment(stores, place) if file.change_sets else digest == file.sha256:
                return place, digest
        except NotFoundError:
            continue
        except OSError as error:
            if not is_lost_by_disk(error):
                raise
    raise CorruptError("NO_GOOD_COPY", "no copy of the file is proved to be intact", hint="")


def _is_right_segment(stores: Stores, place: StoredLocation) -> bool:
    """Whether a segment matches the ledgers of all logs in it: the footer cannot prove itself."""
    try:
        for log in dict.fromkeys(entry.log for entry in check_pieces(stores[place.where], place.path, ())):
            state = Ledger(stores[StorageTier.STORE], log).find()
            theirs = [c for c in state.change_sets if c.location.segment == place.path] if state else []
            check_pieces(stores[place.where], place.path, theirs)
    except CorruptError:
        return False
    return True


def _replace(stores: Stores, sha256: str, source: StoredLocation, store: Store, paths: Sequence[str]) -> None:
    digest = hashlib.sha256()
    with stores[source.where].open(source.path) as old, store.replace(paths) as new:
        while chunk := old.read(_CHUNK):
            digest.update(chunk)
            new.write(chunk)
        if digest.hexdigest() != sha256:
            raise CorruptError("REPAIR_COPY_CHANGED", f"`{source}` changed while `verify --repair` copied it.")


def _clear_halves(store: Store, paths: Sequence[str]) -> None:
    """Deletes unfinished files that killed repairs left beside these names."""
    begun = tuple(f"{path}." for path in paths)
    folders = {path.rpartition("/")[0] for path in paths}
    listed = (entry.path for folder in sorted(folders) for entry in store.list(folder, unfinished=True))
    store.delete([path for path in listed if path.startswith(begun) and path.endswith(_UNFINISHED)])
