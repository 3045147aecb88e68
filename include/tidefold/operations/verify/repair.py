"""Repairs a damaged copy of a file from an intact one.

It never writes to the damaged bytes. It makes a new file, verifies it and renames it, so a reader gets one or the
other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from tidefold.domain.storage_tier import StorageTier
from tidefold.domain.verify.expected_files import Copy, DamageKind, StoredFile, StoredLocation
from tidefold.errors import CorruptError, NotFoundError
from tidefold.operations.verify.check_files import Stores, digest_of
from tidefold.storage import Store, is_lost_by_disk

_CHUNK = 1 << 20
_UNFINISHED = ".part"


def repair_file(stores: Stores, file: StoredFile, copies: Iterable[Copy]) -> StoredLocation:
    """Repairs all damaged copies of a file, and returns the location of the copy that it used.

    Raises CorruptError if no other copy is proved to be intact, RefusedError if the store replaces no file.
    """
    listed = tuple(copies)
    source = _prove(stores, file, (copy for copy in listed if copy.harm is None))
    damaged = [copy for copy in listed if copy.damaged]
    for where, store in stores.items():
        for copy in damaged:
            # Names that shared the damaged bytes share the new ones: as many copies as before.
            paths = _paths(copy, where)
            if paths and copy.harm is not DamageKind.MISSING:
                _replace(stores, file.sha256, source, store, paths)
        missing = [path for copy in damaged if copy.harm is DamageKind.MISSING for path in _paths(copy, where)]
        if missing:
            _put_back(stores, file, source, where, missing)
        clear_halves(store, [path for copy in damaged for path in _paths(copy, where)])
    return source


def _paths(copy: Copy, where: StorageTier) -> list[str]:
    return [name.place.path for name in copy.names if name.place.where is where]


def _prove(stores: Stores, file: StoredFile, good: Iterable[Copy]) -> StoredLocation:
    """Returns the first copy whose bytes are read and found right, those of the store first."""
    for copy in sorted(good, key=lambda copy: copy.place.where is StorageTier.LOCAL):
        try:
            if digest_of(stores, copy.place) == file.sha256:
                return copy.place
        except NotFoundError:
            continue
        except OSError as error:
            if not is_lost_by_disk(error):
                raise
    raise CorruptError("NO_GOOD_COPY", "no copy of the file is proved to be intact")


def _put_back(
    stores: Stores, file: StoredFile, source: StoredLocation, where: StorageTier, missing: Sequence[str]
) -> None:
    if where is StorageTier.STORE and source.where is StorageTier.STORE:
        for path in missing:
            stores[where].link(source.path, path)
    else:
        # Local copies are bytes of their own, never links into the store.
        _replace(stores, file.sha256, source, stores[where], missing)


def _replace(stores: Stores, sha256: str, source: StoredLocation, store: Store, paths: Sequence[str]) -> None:
    digest = hashlib.sha256()
    with stores[source.where].open(source.path) as old, store.replace(paths) as new:
        while chunk := old.read(_CHUNK):
            digest.update(chunk)
            new.write(chunk)
        if digest.hexdigest() != sha256:
            raise CorruptError(
                "REPAIR_COPY_CHANGED", f"`{source}` changed while `verify --repair` copied it.", hint="Run it again."
            )


def replace_from(stores: Stores, sha256: str, source: StoredLocation, target: StoredLocation) -> None:
    """Replaces `target` by a copy of `source` if its bytes have that sha256. Otherwise raises CorruptError."""
    _replace(stores, sha256, source, stores[target.where], [target.path])
    clear_halves(stores[target.where], [target.path])


def clear_halves(store: Store, paths: Sequence[str]) -> None:
    """Deletes unfinished files that killed repairs left beside these names."""
    begun = tuple(f"{path}." for path in paths)
    folders = {path.rpartition("/")[0] for path in paths}
    listed = (entry.path for folder in sorted(folders) for entry in store.list(folder, unfinished=True))
    store.delete([path for path in listed if path.startswith(begun) and path.endswith(_UNFINISHED)])
