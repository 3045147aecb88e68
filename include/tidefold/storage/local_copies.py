"""Copies of snapshots on this machine's disks: whole, verified, or not offered (I16, L1).

A copy is made of bytes of its own, never of links: links into the primary store would be one copy on one disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath

import msgspec

from tidefold.lifecycle.errors import CorruptError, NotFoundError, StorageError
from tidefold.lifecycle.local_copies import CopyName
from tidefold.lifecycle.manifest import DataFile, Manifest
from tidefold.lifecycle.names import LogPaths, data_path
from tidefold.lifecycle.values import Snapshot, State
from tidefold.storage.local import LocalStore
from tidefold.storage.store import Entry, Store

_CHUNK = 1 << 20
_COPIERS = 4


def open_local(folder: Path, address: str) -> LocalStore:
    """Where the pipeline whose store has this address keeps its copies: two pipelines never share a folder."""
    name = PurePosixPath(address.rstrip("/")).name[:100]
    return LocalStore(folder / f"{name}-{hashlib.sha256(address.encode()).hexdigest()[:8]}")


def copy_snapshot(primary: Store, local: LocalStore, manifest: Manifest, digest: str) -> int:
    """Makes the local copy of a staged snapshot, whole or not at all; answers its bytes.

    `digest`: sha256 of the manifest. Raises StorageError when the copy cannot be made, CorruptError when the primary's
    files are not those that were staged.
    """
    name = CopyName(manifest.log, manifest.snapshot)
    ongoing = CopyName(manifest.log, manifest.snapshot, ongoing=True)
    try:
        _write(primary, local, ongoing, manifest, digest)
        # Of a store that was here before under this address: its ids began anew.
        discard(local, [name])
        local.rename_folder(str(ongoing), str(name))
        _require_complete(local, name, digest)
    except Exception:
        with suppress(Exception):
            discard(local, [ongoing, name])
        raise
    return manifest.bytes_full


def _write(primary: Store, local: LocalStore, to: CopyName, manifest: Manifest, digest: str) -> None:
    paths = LogPaths(manifest.log)
    source = paths.snapshot(manifest.snapshot)
    discard(local, [to])
    delta = [entry.path for entry in primary.list(f"{source}/_delta_log")]
    with ThreadPoolExecutor(_COPIERS) as pool:
        list(pool.map(lambda file: _copy_data(primary, local, source, str(to), file), manifest.files))
    for path in delta:
        _copy_file(primary, local, path, f"{to}{path.removeprefix(source)}")
    data = primary.read(paths.manifest(manifest.snapshot))
    if hashlib.sha256(data).hexdigest() != digest:
        raise _altered(paths.manifest(manifest.snapshot))
    local.put_if_absent(to.manifest, data)


def _copy_data(primary: Store, local: LocalStore, source: str, target: str, file: DataFile) -> None:
    path = data_path(source, file.name)
    if _copy_file(primary, local, path, data_path(target, file.name)) != (file.bytes, file.sha256):
        raise _altered(path)


def _copy_file(primary: Store, local: LocalStore, source: str, target: str) -> tuple[int, str]:
    """Length and sha256 of what was copied."""
    length, digest = 0, hashlib.sha256()
    with ExitStack() as opened:
        try:
            old = opened.enter_context(primary.open(source))
        except NotFoundError:
            raise _altered(source) from None
        new = opened.enter_context(local.create(target))
        while chunk := old.read(_CHUNK):
            length += len(chunk)
            digest.update(chunk)
            new.write(chunk)
    return length, digest.hexdigest()


def _altered(path: str) -> CorruptError:
    return CorruptError(
        "STAGED_FILE_CHANGED",
        f"`{path}` is not what was staged: it is gone, cut or altered.",
        hint="Check the disk; the next run folds the same changes again.",
    )


def _require_complete(local: LocalStore, name: CopyName, digest: str) -> None:
    # Somebody may have removed files of it while it was being written.
    if not _is_complete(local, name, digest):
        raise StorageError("LOCAL_COPY_INCOMPLETE", f"Files of the local copy `{name}` went while it was made.")


def is_offered(local: LocalStore, log: str, snapshot: Snapshot) -> bool:
    """Whether the snapshot counts and its copy may be used: the very manifest and all its files are there (I16).

    Looks at names and lengths; who reads a file checks its checksum. Raises StorageError.
    """
    counts = snapshot.state is State.COMPLETED and snapshot.manifest is not None
    return counts and _is_complete(local, CopyName(log, snapshot.id), snapshot.manifest or "")


def _is_complete(local: LocalStore, name: CopyName, digest: str) -> bool:
    try:
        data = local.read(name.manifest)
    except NotFoundError:
        return False
    if hashlib.sha256(data).hexdigest() != digest:
        return False
    manifest = msgspec.json.decode(data, type=Manifest)
    sizes = {entry.path: entry.bytes for entry in local.list(str(name))}
    whole = all(sizes.get(data_path(str(name), file.name)) == file.bytes for file in manifest.files)
    return whole and any(path.startswith(f"{name}/_delta_log/") for path in sizes)


def copies(local: LocalStore) -> dict[CopyName, tuple[Entry, ...]]:
    """Every copy of a snapshot with its files, whole or not. Raises StorageError."""
    found: dict[CopyName, list[Entry]] = {}
    # From the root on, so that no link is followed out of it.
    for entry in local.list("", unfinished=True):
        name = CopyName.of(entry.path)
        if name:
            found.setdefault(name, []).append(entry)
    return {name: tuple(entries) for name, entries in found.items()}


def discard(local: LocalStore, names: Iterable[CopyName]) -> None:
    """Removes copies, each manifest first: from then on there is no copy. Raises StorageError."""
    wanted = set(names)
    for name, entries in copies(local).items():
        if name in wanted:
            discard_files(local, [entry.path for entry in entries])
    for name in wanted:
        # What is not there goes with the empty folders around it.
        local.delete([data_path(str(name), "-"), f"{name}/_delta_log/-"])


def discard_files(local: LocalStore, paths: Sequence[str]) -> None:
    """Removes files, of a copy the manifest first. Raises StorageError."""
    local.delete([path for path in paths if path.endswith("/manifest")])
    local.delete(paths)
