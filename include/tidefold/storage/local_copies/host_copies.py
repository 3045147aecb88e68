"""Copies on the disks of one host of a cluster. Its tasks write and read them, each by its name (L5).

A host's folder is its index: `<root>/<pipeline>/_hosts/<host>/<log>/<snapshot>/<name>`. The name is the sha256 of a
data file, or the name of a segment; the snapshot is the attempt that wrote it (0: an ingest). No error fails a task.
`fold/inputs.py` tries them first.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

import msgspec

from tidefold.domain.paths import HOSTS, host_path, record_path
from tidefold.domain.retention.local_copies import CopyName, bytes_on_disk
from tidefold.errors import AlreadyExistsError, StorageError, TidefoldError, wrap_unexpected
from tidefold.storage.local_copies.copies import copies, name_pipeline
from tidefold.storage.local_copies.roots import LocalRoots
from tidefold.storage.local_store import LocalStore
from tidefold.storage.mirrored_stream import create_duplicating
from tidefold.storage.store import Store, StoredObject
from tidefold.typed_json import decode_json

_log = logging.getLogger(__name__)
_HOST = "TIDEFOLD_HOST"
_VISITED = "visited"


class HeldCopies(msgspec.Struct, frozen=True):
    """The copies of a log on a host after the newest attempt that had a task there."""

    snapshot: int = 0
    files: int = 0
    bytes: int = 0


class HostRecord(msgspec.Struct, frozen=True):
    """What a host holds, as its newest task told. A hint, overwritten.

    names: by which Spark may know the host.
    """

    host: str
    names: tuple[str, ...]
    logs: dict[str, HeldCopies] = {}


def read_hosts(store: Store) -> tuple[HostRecord, ...]:
    """Returns the records of all hosts that ever had a copy. Leaves out what cannot be read."""
    newest = {path.rpartition("/")[0]: path for path in sorted(entry.path for entry in store.list(HOSTS))}
    records = []
    for path in newest.values():
        with suppress(TidefoldError, msgspec.MsgspecError):
            records.append(decode_json(store.read(path), HostRecord))
    return tuple(records)


def write_host(store: Store, record: HostRecord) -> None:
    """Replaces the record of a host: at any moment there is one. Raises StorageError."""
    folder = host_path(record.host)
    older = sorted(entry.path for entry in store.list(folder))
    number = int(PurePosixPath(older[-1]).stem) + 1 if older else 1
    with suppress(TidefoldError):  # Another task of the host wrote what it saw at the same moment.
        store.put_if_absent(record_path(folder, number), msgspec.json.encode(record))
        store.delete(older)


@dataclass(frozen=True, slots=True)
class HostFolders:
    """What a task must know to use the copies of its host.

    store: the address of the store that has the originals.
    folders: on every host.
    quota: maximum bytes on one host.
    names: of each known host, by which Spark may know it.
    needed: the names of the copies of the log that stay. None: all of them.
    dropped: logs that exist no more.
    """

    store: str
    folders: tuple[str, ...]
    quota: int | None = None
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needed: tuple[str, ...] | None = None
    dropped: tuple[str, ...] = ()

    def prefer(self, bucket: str, present: Set[str]) -> tuple[str, ...]:
        """Returns the names of the host that makes a bucket, the same for each fold while the hosts are the same.

        present: Spark's names of the hosts with executors. If one of them is new, none is preferred: it gets a share.
        """
        here = [host for host, names in self.names.items() if not present.isdisjoint(names)]
        if not present <= {name for host in here for name in self.names[host]}:
            return ()
        ranked = max(here, key=lambda host: hashlib.sha256(f"{host} {bucket}".encode()).digest(), default="")
        return self.names.get(ranked, ())


@dataclass(frozen=True, slots=True)
class HostCopied:
    """The copies that a task made on its host. `error`: why it made one less."""

    host: str
    files: int = 0
    bytes: int = 0
    error: str = ""


def identify_host() -> str:
    """Returns the stable name of this host: that of the environment or, without one, the machine's."""
    return re.sub(r"[^A-Za-z0-9-]", "-", os.environ.get(_HOST) or socket.gethostname())[:100]


class HostCopies:
    """The copies on the host of this process, as they were when this was made, and those that it adds."""

    def __init__(self, folders: HostFolders) -> None:
        self.host = identify_host()
        self._folders = folders
        self._visited: set[CopyName] = set()
        # Why a file of the primary store, which is being written, has no copy; empty: it has one.
        self._errors: dict[str, str] = {}
        self._paths: dict[str, str] = {}
        pipeline = name_pipeline(folders.store)
        stores = (LocalStore(Path(f) / pipeline / "_hosts" / self.host, private=True) for f in folders.folders)
        self._local = LocalRoots(tuple(stores), pipeline)
        try:
            paths = (entry.path for files in copies(self._local).values() for entry in files)
            self._paths = {path.rpartition("/")[2]: path for path in paths}
        except Exception as error:
            self._warn(error)

    def find(self, name: str) -> tuple[str, str] | None:
        """Returns the root and the path of a copy, if this host has it."""
        path = self._paths.get(name)
        return (self._local.root_of(path), path) if path else None

    def _visit(self, store: Store, name: CopyName) -> None:
        """Cleans up once for each attempt, before its first copy: whatever dies later, the record names the host."""
        if name in self._visited:
            return
        self._visited.add(name)
        try:
            mark = f"{name}/{_VISITED}"
            if any(entry.path == mark for entry in copies(self._local).get(name, ())):
                return  # By another process of this host.
            self.remove(store, name, self.find_retired(name))
            with suppress(AlreadyExistsError):  # Another thread or process was here at the same moment.
                self._local.put_if_absent(mark, b"")
        except Exception as error:
            self._warn(error)

    def remove(self, store: Store, name: CopyName, retired: Sequence[StoredObject]) -> None:
        """Removes these copies and marks, and writes the record of this host. Raises StorageError."""
        self._local.delete([entry.path for entry in retired])
        self.record(store, name)

    def find_retired(self, name: CopyName) -> list[StoredObject]:
        """Returns the copies and marks that the log of an attempt needs no more. Raises StorageError."""
        return [e for one, files in copies(self._local).items() for e in files if self._retires(one, e, name)]

    def record(self, store: Store, name: CopyName) -> None:
        """Writes the record of this host, which an attempt visits."""
        try:
            write_host(store, HostRecord(self.host, _names_for_spark(), _count(copies(self._local), name)))
        except Exception as error:
            self._warn(error)

    def _retires(self, copy: CopyName, entry: StoredObject, name: CopyName) -> bool:
        needed, base = self._folders.needed, entry.path.rpartition("/")[2]
        older = needed is not None and copy.log == name.log and copy.snapshot < name.snapshot and base not in needed
        return older or copy.log in self._folders.dropped

    @contextmanager
    def create(self, primary: Store, name: CopyName, path: str) -> Iterator[BinaryIO]:
        """Opens a stream to a new file of the primary store, and beside it to a copy with a working name."""
        self._visit(primary, name)
        local = None
        try:
            self._require_room()
            local = self._local
        except Exception as error:
            self._errors[path] = self._warn(error)
        with create_duplicating(primary, local, path, _working(name, path)) as stream:
            yield cast(BinaryIO, stream)
        self._errors.setdefault(path, self._warn(stream.local_error) if stream.local_error else "")

    def keep(self, name: CopyName, path: str, size: int, finals: Collection[str]) -> HostCopied:
        """Gives the finished copy of a file its names, or deletes it if it has no room."""
        error, work = self._errors.pop(path, ""), _working(name, path)
        try:
            if not error:
                self._require_room()
                for final in finals:
                    self._local.link(work, final)
                    self._paths[final.rpartition("/")[2]] = final
            self._local.delete([work])
        except Exception as failure:
            error = self._warn(failure)
            with suppress(Exception):
                self._local.delete([work])
        return HostCopied(self.host, error=error) if error else HostCopied(self.host, 1, size)

    def _require_room(self) -> None:
        quota = self._folders.quota
        if quota is not None and (used := bytes_on_disk(self._local.files())) > quota:
            message = f"Local copies on {self.host} would use {used:,} bytes of their quota of {quota:,}."
            raise StorageError("LOCAL_QUOTA", message, hint="Raise `local.quota`.")

    def _warn(self, error: Exception) -> str:
        failure = wrap_unexpected(error)
        _log.warning("no local copy on %s: %s", self.host, failure)
        return f"{failure.code}: {failure.message}"


def _names_for_spark() -> tuple[str, ...]:
    """Returns the names that Spark was told or, if it was told none, those that it finds."""
    told = {os.environ.get("SPARK_LOCAL_HOSTNAME", ""), os.environ.get("SPARK_LOCAL_IP", "")} - {""}
    if not told:
        told = {socket.gethostname()}
        with suppress(OSError):
            told.add(socket.gethostbyname(socket.gethostname()))
    return tuple(sorted(told))


def is_mark(entry: StoredObject) -> bool:
    """Whether this is the mark of an attempt's visit, and no copy."""
    return entry.path.endswith(f"/{_VISITED}")


def _working(name: CopyName, path: str) -> str:
    return f"{name}/{path.rpartition('/')[2]}.new"


def _count(kept: Mapping[CopyName, Sequence[StoredObject]], visit: CopyName) -> dict[str, HeldCopies]:
    held = {visit.log: HeldCopies(visit.snapshot)}
    for name, entries in kept.items():
        before = held.get(name.log, HeldCopies())
        files = [entry for entry in entries if not is_mark(entry)]
        held[name.log] = HeldCopies(
            max(before.snapshot, name.snapshot), before.files + len(files), before.bytes + sum(f.bytes for f in files)
        )
    return held
