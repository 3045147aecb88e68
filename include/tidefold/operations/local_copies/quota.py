"""The quota of local copies. Older copies make room for the copy of a snapshot, but not for that of a segment."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from tidefold.domain.log_state import LogState
from tidefold.domain.retention.local_copies import (
    CopyName,
    LocalFile,
    PlannedCopy,
    bytes_on_disk,
    plan_eviction,
    segment_of,
    stays,
)
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.errors import StorageError, TidefoldError, wrap_unexpected
from tidefold.ledger import Ledger
from tidefold.operations.local_copies.inventory import Seen, find_unneeded, look
from tidefold.operations.pipeline import Pipeline
from tidefold.storage import Store
from tidefold.storage.local_copies.copies import discard_files

_log = logging.getLogger(__name__)


def provide_room(pipeline: Pipeline, manifest: Manifest) -> None:
    """Deletes copies until the copy of this snapshot fits, but only copies that `clean-local` would delete too.

    Raises StorageError (LOCAL_QUOTA) if that is not enough; then nothing is deleted.
    """
    local, quota = pipeline.local, pipeline.config.local.quota_bytes
    if local is None or quota is None:
        return
    seen = look(pipeline.store, local)
    going = list(_removable(pipeline.store, seen))
    name = CopyName(manifest.log, manifest.snapshot)
    # An older copy under the same id is deleted in any case before the new one is made.
    may_go = {file for copy in going for file in copy}
    kept = [f for f in seen.files if not _is_of(f, name) and f not in may_go]
    wanted = PlannedCopy(name, local.root_of(str(name)), {file.name: file.bytes for file in manifest.files})
    room = plan_eviction(quota, wanted, kept, [copy for copy in going if not _is_of(copy[0], name)])
    if not room.fits:
        raise StorageError(
            "LOCAL_QUOTA",
            f"Local copies use {room.used:,} bytes of their quota of {quota:,}, and this one needs {room.needed:,}.",
            hint="Raise `local.quota`: two copies of each table should fit.",
        )
    for copy in room.going:
        discard_files(local, [file.path for file in copy])
        _log.info("removed %s from the local copies to keep their quota", copy[0].path)


def _is_of(file: LocalFile, name: CopyName) -> bool:
    found = CopyName.of(file.path)
    return found is not None and (found.log, found.snapshot) == (name.log, name.snapshot)


def _removable(store: Store, seen: Seen) -> Iterator[tuple[LocalFile, ...]]:
    """Yields what `clean-local` would delete: unfinished and old copies first, the oldest first, then segments."""
    states = {log: _state(store, log) for log in {name.log for name in seen.snapshots}}
    for name in sorted(seen.snapshots, key=lambda n: (not n.ongoing, n.snapshot, n.log)):
        known, state = states[name.log]
        if known and not stays(state, name):
            yield seen.snapshots[name]
    for segment in find_unneeded(store, seen.segments):
        yield segment.files


def _state(store: Store, log: str) -> tuple[bool, LogState | None]:
    """Returns whether the state of the log is known, and the state."""
    try:
        return True, Ledger(store, log).find()
    except TidefoldError:
        return False, None


def without_room(pipeline: Pipeline) -> str:
    """Returns why segments get no local copy now: the quota is used up. Empty: they get one."""
    local, quota = pipeline.local, pipeline.config.local.quota_bytes
    if local is None or quota is None:
        return ""
    try:
        used = bytes_on_disk(f for f in local.files() if CopyName.of(f.path) or segment_of(f.path))
    except Exception as error:
        # The writer of the copy will report the error.
        _log.warning("local copies cannot be looked at: %s", wrap_unexpected(error))
        return ""
    return f"LOCAL_QUOTA: Local copies use {used:,} bytes of their quota of {quota:,}." if used >= quota else ""
