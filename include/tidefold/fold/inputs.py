"""Reads the inputs of a task, each from the first address whose bytes match the recorded checksum (I16, I17)."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

import pyarrow as pa

from tidefold.changelog.segment import Indexes, read_change_set
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import ChangeSet
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.domain.storage_tier import StorageTier
from tidefold.errors import CorruptError, NotFoundError, TidefoldError
from tidefold.fold.change_cache import changes_for
from tidefold.fold.change_set_index import ChangeSetIndex, Numbers
from tidefold.fold.plan import Address, Input
from tidefold.fold.task import Read
from tidefold.storage import Store, compute_sha256, is_lost_by_disk, open_store
from tidefold.storage.local_store import LocalStore

T = TypeVar("T")


def _open_store(address: Address) -> Store:
    if address.where is StorageTier.LOCAL:
        return LocalStore(Path(address.root), private=True)
    return open_store(address.root, Path("/"))


class Inputs:
    """Opens the inputs of one task, and records every try in `reads`.

    known: stores that are already open.
    indexes: of segments that other tasks of the work have read, by the root of the store. New ones are added.
    """

    def __init__(self, known: Mapping[str, Store] | None = None, indexes: dict[str, Indexes] | None = None) -> None:
        self.reads: list[Read] = []
        self._stores: dict[str, Store] = dict(known or {})
        self._indexes: dict[str, Indexes] = {} if indexes is None else indexes

    def store(self, address: Address) -> Store:
        if address.root not in self._stores:
            self._stores[address.root] = _open_store(address)
        return self._stores[address.root]

    def open(self, wanted: Input) -> tuple[Address, AbstractContextManager[BinaryIO]]:
        """Returns an address with intact bytes, and a stream over them. Raises CorruptError, NotFoundError."""
        address = self.first(wanted.file.name, wanted.file.bytes, wanted.addresses, partial(self._prove, wanted.file))
        return address, self.store(address).open(address.path)

    def changes(
        self,
        work: Hashable,
        roots: Sequence[Address],
        index: ChangeSetIndex,
        numbers: Numbers,
        bucket: KeyGroups,
        least: int,
    ) -> Iterator[tuple[pa.Table, int]]:
        """Yields the changes of change sets for a bucket, with the ids of their schemas. See `changes_for`."""
        return changes_for(work, index, numbers, bucket, partial(self._change_set, roots), least)

    def _change_set(self, roots: Sequence[Address], change_set: ChangeSet, bucket: KeyGroups | None) -> pa.Table:
        name = str(change_set.location)

        def read(root: Address) -> pa.Table:
            return read_change_set(self.store(root), change_set, bucket, self._indexes.setdefault(root.root, {}))

        return self.first(name, change_set.location.length, roots, read)

    def first(self, name: str, size: int, addresses: Sequence[Address], act: Callable[[Address], T]) -> T:
        """Returns the result of `act` at the first address where it succeeds. Raises CorruptError if none has the file.

        Raises StorageError if the durable store is not available: another address would not help.
        """
        failed: list[Exception] = []
        tried: list[Read] = []
        for address in addresses:
            begun = time.perf_counter()
            try:
                found = act(address)
            except (TidefoldError, OSError) as error:
                failed.append(error)
                tried.append(self._note(name, address, 0, begun, _why(address, error)))
                continue
            self._note(name, address, size, begun)
            return found
        if len(failed) == 1:
            raise failed[0]
        said = "; ".join(f"{read.place}: {read.why}" for read in tried)
        raise CorruptError(
            "NO_GOOD_COPY",
            f"No copy of `{name}` can be used: {said}.",
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
                else "`tidefold verify --repair` repairs it from another copy, if there is one.",
            )
        return address


def _why(address: Address, error: Exception) -> str:
    """Describes why an address failed. Raises errors that concern the whole durable store."""
    if isinstance(error, NotFoundError):
        return "missing"
    if isinstance(error, CorruptError):
        return "altered" if error.code == "DATA_FILE_CORRUPT" else error.message
    if address.where is StorageTier.STORE and not is_lost_by_disk(error):
        raise error
    return f"unreadable ({error})"
