"""Copies of snapshots on this machine's disks. A copy is complete and verified, or it is not used (I16, L1).

A copy shares no file with the primary store, because a link into it would be one copy on one disk. Local copies of one
log share their common files.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from tidefold.domain.paths import LogPaths, data_path
from tidefold.domain.retention.local_copies import CopyName
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.errors import CorruptError, NotFoundError, StorageError, TidefoldError
from tidefold.storage.local_copies.roots import LocalRoots
from tidefold.storage.local_store import LocalStore
from tidefold.storage.store import Store, StoredObject, compute_sha256
from tidefold.typed_json import decode_json

_log = logging.getLogger(__name__)
_CHUNK = 1 << 20
_COPIERS = 4
_COMMIT = f"_delta_log/{0:020d}.json"


def open_local(folder: Path, address: str) -> LocalStore:
    """Opens the folder of copies of the pipeline with this store address. Two pipelines never share a folder."""
    return LocalStore(folder / name_pipeline(address), private=True)


def open_roots(folders: Sequence[Path], address: str) -> LocalRoots:
    """Opens the same in each of several folders, which may be on different disks."""
    return LocalRoots([open_local(folder, address) for folder in folders], name_pipeline(address))


def name_pipeline(address: str) -> str:
    """Returns the name of the folder with the copies of the pipeline with this store address."""
    name = PurePosixPath(address.rstrip("/")).name[:100]
    return f"{name}-{hashlib.sha256(address.encode()).hexdigest()[:8]}"


class _ManifestFiles(msgspec.Struct, frozen=True):
    """The part of a stored manifest that local copies need."""

    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class Copied:
    """Bytes of the data files of a copy, by origin: hard links to local copies, their bytes, or the primary's."""

    bytes: int = 0
    linked: int = 0
    from_local: int = 0
    from_primary: int = 0


def copy_snapshot(
    primary: Store, local: LocalRoots, manifest: Manifest, digest: str, commit: bytes, threads: int | None = None
) -> Copied:
    """Makes the local copy of a staged snapshot, completely or not at all.

    Raises StorageError if the copy cannot be made, CorruptError if the primary's files are not those that were staged.

    digest: sha256 of the manifest.
    threads: how many files are copied at once; None: the default.
    """
    name = CopyName(manifest.log, manifest.snapshot)
    ongoing = CopyName(manifest.log, manifest.snapshot, ongoing=True)
    try:
        discard(local, [ongoing])
        copied = _write(primary, local, ongoing, manifest, digest, commit, threads or _COPIERS)
        # An older copy may belong to a former store at this address, whose ids started again.
        discard(local, [name])
        local.rename_folder(str(ongoing), str(name))
        # Another process may have deleted files of it during the write.
        if gaps(local, name, digest) != ():
            raise StorageError(
                "LOCAL_COPY_INCOMPLETE", f"Files of the local copy `{name}` disappeared while tidefold wrote it."
            )
    except Exception:
        with suppress(Exception):
            discard(local, [ongoing, name])
        raise
    return copied


def _write(
    primary: Store, local: LocalRoots, to: CopyName, manifest: Manifest, digest: str, commit: bytes, threads: int
) -> Copied:
    here = _sources(local, to, manifest)

    def provide(file: DataFile) -> str:
        return _provide(primary, local, manifest.data_folder, str(to), file, here.get(file.name, ()))

    with ThreadPoolExecutor(threads) as pool:
        ways = list(pool.map(provide, manifest.files))
    local.put_if_absent(f"{to}/{_COMMIT}", commit)
    path = LogPaths(manifest.log).manifest(manifest.snapshot)
    data = primary.read(path)
    if hashlib.sha256(data).hexdigest() != digest:
        raise _error_of_altered(path)
    local.put_if_absent(to.manifest, data)
    came = dict.fromkeys(("linked", "from_local", "from_primary"), 0)
    for file, way in zip(manifest.files, ways, strict=True):
        came[way] += file.bytes
    return Copied(manifest.bytes_full, **came)


def _sources(local: LocalRoots, to: CopyName, manifest: Manifest) -> dict[str, list[str]]:
    """Returns for each data file its paths in other local copies that name it with the same checksum.

    Paths that can be linked come first, those of the newest snapshot first.
    """
    wanted = {file.name: file for file in manifest.files}
    target = local.root_of(str(to))
    others = {n: e for n, e in copies(local).items() if n.log == to.log and n.snapshot != to.snapshot and not n.ongoing}
    places: dict[str, list[str]] = {}
    for name in sorted(others, key=lambda n: (local.root_of(str(n)) != target, -n.snapshot)):
        sizes = {entry.path: entry.bytes for entry in others[name]}
        for theirs in _read_files(local, name):
            ours, path = wanted.get(theirs.name), data_path(str(name), theirs.name)
            if ours and (ours.sha256, ours.bytes) == (theirs.sha256, sizes.get(path)):
                places.setdefault(ours.name, []).append(path)
    return places


def _read_files(local: LocalRoots, name: CopyName) -> Sequence[DataFile]:
    """Returns the data files that a copy should have; none if they cannot be read."""
    try:
        return decode_json(local.read(name.manifest), _ManifestFiles).files
    except (TidefoldError, OSError, msgspec.MsgspecError):
        return ()


def _provide(primary: Store, local: LocalRoots, source: str, target: str, file: DataFile, here: Iterable[str]) -> str:
    """Puts a data file into a copy. Returns whether by a link, from another local copy, or from the primary store."""
    path, new = data_path(source, file.name), data_path(target, file.name)
    for other in here:
        way = _from_here(local, other, new, file)
        if way:
            return way
    if _copy_file(primary, local, path, new) != (file.bytes, file.sha256):
        raise _error_of_altered(path)
    return "from_primary"


def _from_here(local: LocalRoots, other: str, new: str, file: DataFile) -> str:
    """Returns how a file was copied from another local copy; empty if it was not. A failed try leaves nothing."""
    try:
        if local.root_of(other) != local.root_of(new):
            if _copy_file(local, local, other, new) == (file.bytes, file.sha256):
                return "from_local"
        # Bad bytes must not live on in the next copy.
        elif _digest(local, other) == file.sha256:
            if local.link(other, new) == "link":
                return "linked"
            if _digest(local, new) == file.sha256:
                return "from_local"
        _log.warning("the local file `%s` is damaged and not used", other)
    except (TidefoldError, OSError) as error:
        _log.warning("the local file `%s` is not used: %s", other, error)
    local.delete([new])
    return ""


def _digest(local: LocalRoots, path: str) -> str:
    with local.open(path) as stream:
        return compute_sha256(stream)


def _copy_file(primary: Store, local: LocalRoots, source: str, target: str) -> tuple[int, str]:
    """Returns length and sha256 of the copied bytes."""
    length, digest = 0, hashlib.sha256()
    with ExitStack() as opened:
        try:
            old = opened.enter_context(primary.open(source))
        except NotFoundError:
            raise _error_of_altered(source) from None
        new = opened.enter_context(local.create(target))
        while chunk := old.read(_CHUNK):
            length += len(chunk)
            digest.update(chunk)
            new.write(chunk)
    return length, digest.hexdigest()


def _error_of_altered(path: str) -> CorruptError:
    return CorruptError("STAGED_FILE_CHANGED", f"The staged file `{path}` is missing, cut or altered.")


def gaps(local: LocalRoots, name: CopyName, digest: str) -> tuple[str, ...] | None:
    """Returns the files that a copy lacks, or has with another length.

    None if there is no copy of a snapshot whose manifest has that sha256. Raises StorageError.
    """
    try:
        data = local.read(name.manifest)
    except NotFoundError:
        return None
    if hashlib.sha256(data).hexdigest() != digest:
        return None
    manifest = decode_json(data, _ManifestFiles)
    sizes = {entry.path: entry.bytes for entry in local.list(str(name))}
    expected = {data_path(str(name), file.name): file.bytes for file in manifest.files}
    lacking = [path for path, size in expected.items() if sizes.get(path) != size]
    logged = any(path.startswith(f"{name}/_delta_log/") for path in sizes)
    return tuple(lacking if logged else [*lacking, f"{name}/{_COMMIT}"])


def copies(local: LocalRoots) -> Mapping[CopyName, tuple[StoredObject, ...]]:
    """Returns every copy of a snapshot with its files, complete or not. Raises StorageError."""
    objects: dict[CopyName, list[StoredObject]] = {}
    # From the root on, so that no link is followed out of it.
    for entry in local.list("", unfinished=True):
        name = CopyName.of(entry.path)
        if name:
            objects.setdefault(name, []).append(entry)
    return {name: tuple(entries) for name, entries in objects.items()}


def discard(local: LocalRoots, names: Iterable[CopyName]) -> None:
    """Deletes copies, each manifest first: without it there is no copy. Raises StorageError."""
    wanted = set(names)
    for name, entries in copies(local).items():
        if name in wanted:
            discard_files(local, [entry.path for entry in entries])
    for name in wanted:
        # The path need not exist: the delete also removes the empty folders above it.
        local.delete([data_path(str(name), "-"), f"{name}/_delta_log/-"])


def discard_files(local: LocalRoots, paths: Sequence[str]) -> None:
    """Deletes files, the manifest of a copy first. Raises StorageError."""
    local.delete([path for path in paths if path.endswith("/manifest")])
    local.delete(paths)
