"""Manages local copies during the steps of the life cycle.

No error here fails a step: it is a warning in the log and in the outcome (I15).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.paths import CHANGELOG
from tidefold.domain.retention.local_copies import CopyName, leftover
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.errors import CorruptError, TidefoldError, wrap_unexpected
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.details import LocalCopyDetails
from tidefold.storage.local_copies.copies import copies, copy_snapshot, discard, gaps
from tidefold.storage.local_copies.roots import LocalRoots

if TYPE_CHECKING:
    from tidefold.fold.source_places import SourcePlaces

_log = logging.getLogger(__name__)


def copy_staged(pipeline: Pipeline, manifest: Manifest, digest: str) -> LocalCopyDetails | None:
    """Makes the local copy of a staged snapshot. Returns None if no local copies are configured.

    Raises CorruptError if the files in the store are not those that were staged.
    """
    if pipeline.local is None:
        return None
    try:
        # Imported here, because `status` must not load these modules.
        from tidefold.delta.table_state import build_table
        from tidefold.operations.local_copies.quota import provide_room

        provide_room(pipeline, manifest)
        # Made from the manifest, because shared files are in the table's folder, whose Delta log does not have this
        # snapshot.
        commit = build_table(manifest)[1]
    except Exception as error:
        return _report_no_copy(manifest, error)
    try:
        copied = copy_snapshot(pipeline.store, pipeline.local, manifest, digest, commit, pipeline.config.local.threads)
    except CorruptError:
        raise
    except Exception as error:
        return _report_no_copy(manifest, error)
    return LocalCopyDetails(**asdict(copied), warning=None)


def _report_no_copy(manifest: Manifest, error: Exception) -> LocalCopyDetails:
    return LocalCopyDetails(warning=_warn(f"{manifest.log}: snapshot {manifest.snapshot} has no local copy", error))


def prune(pipeline: Pipeline, log: str, snapshot: int) -> None:
    """Removes the local copy of exactly this aborted snapshot (C7)."""
    if pipeline.local is None:
        return
    try:
        discard(pipeline.local, [CopyName(log, snapshot), CopyName(log, snapshot, ongoing=True)])
    except Exception as error:
        _warn(f"{log}: the local copy of snapshot {snapshot} stays until the next `tidefold clean-local`", error)


def clear_leftovers(pipeline: Pipeline, log: str, state: LogState) -> None:
    """Deletes abandoned copies and copies of aborted snapshots (L4), before a snapshot is made. `state`: the newest."""
    if pipeline.local is None:
        return
    try:
        old = [name for name in copies(pipeline.local) if leftover(state, name)]
        if old:
            discard(pipeline.local, old)
            _log.info("%s: deleted left-over local copies: %s", log, ", ".join(map(str, old)))
    except Exception as error:
        _warn(f"{log}: left-over local copies stay until the next `tidefold clean-local`", error)


def forget(pipeline: Pipeline, log: str, segments: Sequence[str]) -> None:
    """Deletes the local copies of a dropped log, and of its deleted segments."""
    if pipeline.local is None:
        return
    try:
        discard(pipeline.local, [name for name in copies(pipeline.local) if name.log == log])
        pipeline.local.delete(segments)
    except Exception as error:
        _warn(f"{log}: local copies are left", error)


def places_of(pipeline: Pipeline, log: str) -> SourcePlaces:
    """Returns where the files of a log may be read. Incomplete copies serve the files that they have (L7)."""
    from tidefold.fold.source_places import SourcePlaces

    store = pipeline.store.address
    if pipeline.local is None:
        return SourcePlaces(store)
    try:
        here = [name for name in copies(pipeline.local) if name.log == log and not name.ongoing]
    except TidefoldError as error:
        _warn(f"{log}: local copies cannot be looked at", error)
        return SourcePlaces(store)
    roots = {name.snapshot: pipeline.local.root_of(str(name)) for name in here}
    return SourcePlaces(store, roots, pipeline.local.root_of(CHANGELOG))


@dataclass(frozen=True, slots=True)
class CopiesHere:
    """Ids of completed snapshots with a local copy, oldest first: `whole` ones are usable, `partial` ones not."""

    whole: tuple[int, ...] = ()
    partial: tuple[int, ...] = ()


def copies_here(pipeline: Pipeline, state: LogState) -> CopiesHere:
    """Returns the completed snapshots of a log that have a copy. Ignores copies that cannot be read."""
    if pipeline.local is None:
        return CopiesHere()
    try:
        there = {name.snapshot for name in copies(pipeline.local) if name.log == state.log and not name.ongoing}
    except TidefoldError as error:
        _warn(f"{state.log}: local copies cannot be looked at", error)
        return CopiesHere()
    known = [s for s in state.snapshots if s.id in there and s.state is State.COMPLETED]
    lacking = {s.id: _find_missing(pipeline.local, state.log, s) for s in known}
    return CopiesHere(
        tuple(i for i, paths in lacking.items() if paths == ()), tuple(i for i, paths in lacking.items() if paths)
    )


def _find_missing(local: LocalRoots, log: str, snapshot: Snapshot) -> tuple[str, ...] | None:
    try:
        return gaps(local, CopyName(log, snapshot.id), snapshot.manifest or "")
    except TidefoldError as error:
        _warn(f"{log}: the local copy of snapshot {snapshot.id} cannot be looked at", error)
        return None


def snapshots_here(pipeline: Pipeline, state: LogState) -> tuple[int, ...]:
    """Returns the ids of the snapshots whose copy on this machine may be used, oldest first."""
    return copies_here(pipeline, state).whole


def _warn(what: str, error: Exception) -> str:
    found = wrap_unexpected(error)
    _log.warning("%s: %s", what, found, exc_info=None if found is error else error)
    return f"{found.code}: {found.message}"
