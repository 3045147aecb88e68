"""Takes files of older snapshots into a new one as they are: linked, or copied from another store."""

from __future__ import annotations

import hashlib
import uuid
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import BinaryIO

from tidefold.delta.data_files import require_same
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.paths import DataFileName, data_path
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.errors import AlreadyExistsError, CorruptError
from tidefold.fold.inputs import Inputs
from tidefold.fold.plan import Address, FoldTask
from tidefold.storage import link_data_file
from tidefold.storage.addresses import meeting
from tidefold.storage.cancellation import require_not_cancelled

_CHUNK = 1 << 20


def link_file(
    task: FoldTask, file: DataFile, source: Address, opened: AbstractContextManager[BinaryIO], inputs: Inputs
) -> tuple[DataFile, int]:
    """Links a file that was proved; returns it and the number of bytes that the store copied.

    The file gets a new name if the table's file of the same name is not the one that was proved.
    """
    plan = task.plan
    target = plan.target
    shown = plan.table is None or (source.root, source.path) == (target.root, data_path(plan.table, file.name))
    if not shown:
        unique = uuid.uuid4().hex
        file = replace(file, name=str(DataFileName(file.key_groups, plan.snapshot, plan.epoch, unique, plan.token)))
    file = replace(file, carried=shown and plan.table is not None)
    path = data_path(target.path, file.name)
    if source.root != target.root:
        how = _copy_from_store(task, source, opened, file, path, inputs)
        return (replace(file, carried=True), file.bytes if how == "copy" else 0) if how else (file, 0)
    store = inputs.store(target)
    done = "kept" if source.path == path else link_data_file(store, source.path, path, file.bytes, task.plan.copy)
    return file, file.bytes if done == "copy" and file.carried else 0


def _copy_from_store(
    task: FoldTask,
    source: Address,
    opened: AbstractContextManager[BinaryIO],
    file: DataFile,
    path: str,
    inputs: Inputs,
) -> str:
    """Transfers the file from another store: `link` or `copy` if the stores do it without this process, else empty."""
    if source.where is StorageTier.EXTERNAL and not task.plan.copy:
        shared = meeting(source.root, task.plan.target.root)
        if shared:
            root, below, above = shared
            return inputs.store(replace(source, root=root)).link(f"{below}{source.path}", f"{above}{path}")
    store = inputs.store(task.plan.target)
    try:
        with opened as old, store.create(path) as new:
            _copy_bytes(old, new, file.sha256, source)
    except AlreadyExistsError:
        require_same(store, path, file.sha256)
    return ""


def _copy_bytes(old: BinaryIO, new: BinaryIO, sha256: str, source: Address) -> None:
    digest = hashlib.sha256()
    while chunk := old.read(_CHUNK):
        require_not_cancelled()
        digest.update(chunk)
        new.write(chunk)
    if digest.hexdigest() != sha256:
        raise CorruptError("DATA_FILE_CORRUPT", f"`{source}` changed during the read.", hint="Call again.")
