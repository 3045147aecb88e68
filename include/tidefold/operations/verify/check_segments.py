"""Checks the segments that a log needs, in the store and in the local copies, and repairs one from the other."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from tidefold.changelog.segment import check_pieces, ends_whole
from tidefold.domain.log_state import ChangeSet
from tidefold.domain.storage_tier import StorageTier
from tidefold.domain.verify.expected_files import Copy, DamageKind, Expected, FileRole, StoredFile, StoredLocation
from tidefold.errors import CorruptError, NotFoundError
from tidefold.ledger import Ledger
from tidefold.operations.verify.check_files import Progress, Stores, Tell, digest_of, is_read
from tidefold.operations.verify.repair import replace_from
from tidefold.storage import is_lost_by_disk

_READERS = 4


def segment_files(change_sets: Iterable[ChangeSet]) -> dict[StoredFile, tuple[ChangeSet, ...]]:
    """Returns each segment with the change sets of the log in it. A local copy of it may exist."""
    inside: dict[str, list[ChangeSet]] = {}
    for change_set in change_sets:
        inside.setdefault(change_set.location.segment, []).append(change_set)
    return {_segment_file(path): tuple(found) for path, found in inside.items()}


def _segment_file(path: str) -> StoredFile:
    names = (Expected(StoredLocation(path), ()), Expected(StoredLocation(path, StorageTier.LOCAL), (), required=False))
    return StoredFile(FileRole.SEGMENT, "", None, names)


def examine_segments(
    stores: Stores,
    segments: Mapping[StoredFile, tuple[ChangeSet, ...]],
    *,
    deep: bool | Container[StoredFile],
    tell: Tell,
) -> dict[StoredFile, tuple[Copy, ...]]:
    """Returns all copies of each segment. Raises StorageError if a store is not available.

    deep: read the bytes; otherwise check only presence and minimal length. A set of files: read only these.
    """
    names = [(file, name) for file in segments for name in file.names if name.place.where in stores]
    folders = {StoredLocation(name.place.path.rpartition("/")[0], name.place.where) for _, name in names}
    sizes = {
        StoredLocation(entry.path, folder.where): entry.bytes
        for folder in sorted(folders)
        for entry in stores[folder.where].list(folder.path)
    }
    progress = Progress(
        tell, sum(c.location.length for file, name in names for c in segments[file] if name.place in sizes)
    )

    def look(file: StoredFile, name: Expected) -> Copy | None:
        if name.place not in sizes:
            return Copy((name,), DamageKind.MISSING) if name.required else None
        harm = _harm(stores, name.place, sizes[name.place], segments[file], is_read(file, deep))
        progress.add(sum(c.location.length for c in segments[file]))
        return Copy((name,), harm)

    with ThreadPoolExecutor(_READERS) as pool:
        copies = list(pool.map(lambda one: look(*one), names))
    seen: dict[StoredFile, list[Copy]] = {file: [] for file in segments}
    for (file, _), copy in zip(names, copies, strict=True):
        seen[file] += [copy] if copy else []
    return {file: tuple(found) for file, found in seen.items()}


def _harm(
    stores: Stores, place: StoredLocation, size: int, change_sets: tuple[ChangeSet, ...], deep: bool
) -> DamageKind | None:
    if size < max(c.location.offset + c.location.length for c in change_sets):
        return DamageKind.CUT
    store = stores[place.where]
    try:
        if deep:
            check_pieces(store, place.path, change_sets)
    except NotFoundError:
        return DamageKind.MISSING
    except CorruptError:
        return DamageKind.ALTERED if ends_whole(store, place.path) else DamageKind.CUT
    except OSError as error:
        if not is_lost_by_disk(error):
            raise
        return DamageKind.UNREADABLE
    return None


def repair_segment(stores: Stores, file: StoredFile, copies: Iterable[Copy]) -> StoredLocation:
    """Repairs the damaged copies of a segment from a copy that is right for every log in it, and returns its location.

    Raises CorruptError if there is none, RefusedError if the store replaces no file.
    """
    listed = tuple(copies)
    for copy in listed:
        digest = None if copy.harm else _prove(stores, copy.place)
        if digest:
            for damaged in listed:
                if damaged.harm:
                    replace_from(stores, digest, copy.place, damaged.place)
            return copy.place
    raise CorruptError("NO_GOOD_COPY", "no copy of the file is proved to be intact")


def _prove(stores: Stores, place: StoredLocation) -> str | None:
    """Returns the sha256 of a segment if it matches the ledgers of all logs in it; otherwise None."""
    try:
        digest = digest_of(stores, place)
        # Only the ledgers know their change sets: the footer cannot prove itself.
        for log in dict.fromkeys(entry.log for entry in check_pieces(stores[place.where], place.path, ())):
            state = Ledger(stores[StorageTier.STORE], log).find()
            theirs = [c for c in state.change_sets if c.location.segment == place.path] if state else []
            check_pieces(stores[place.where], place.path, theirs)
    except (CorruptError, NotFoundError):
        return None
    return digest
