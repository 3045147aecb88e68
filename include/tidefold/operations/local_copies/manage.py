"""Manages local copies during the steps of the life cycle.

No error here fails a step: it is a warning in the log and in the outcome (I15).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.paths import CHANGELOG
from tidefold.domain.retention.local_copies import CopyName, leftover
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.errors import CorruptError, TidefoldError, wrap_unexpected
from tidefold.fold.source_places import SourcePlaces
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.details import LocalCopyDetails
from tidefold.storage.local_copies.copies import copies, copy_snapshot, discard, gaps
from tidefold.storage.local_copies.roots import LocalRoots

_log = logging.getLogger(__name__)


def copy_staged(pipeline: Pipeline, manifest: Manifest, digest: str) -> LocalCopyDetails | None:
    """Makes the local copy of a staged snapshot. None: no local copies are configured.

    Raises CorruptError when copying shows that the primary's own files are not those that were staged.
    """
    if pipeline.local is None:
        return None
    try:
        commit = _prepare(pipeline, manifest)
    except Exception as error:
        return _report_no_copy(manifest, error)
    try:
        copied = copy_snapshot(pipeline.store, pipeline.local, manifest, digest, commit)
    except CorruptError:
        raise
    except Exception as error:
        return _report_no_copy(manifest, error)
    return LocalCopyDetails(**asdict(copied), warning=None)


def _prepare(pipeline: Pipeline, manifest: Manifest) -> bytes:
    """Makes room for the copy within the quota, and returns the commit of its Delta log."""
    # Only who makes a copy loads what these load: `status` is to answer at once.
    from tidefold.delta.table_state import build_table
    from tidefold.operations.local_copies.quota import provide_room

    provide_room(pipeline, manifest)
    # Of the manifest alone: files that snapshots share lie beside the table's, where no Delta log tells of this one.
    return build_table(manifest)[1]


def _report_no_copy(manifest: Manifest, error: Exception) -> LocalCopyDetails:
    return LocalCopyDetails(warning=_warn(f"{manifest.log}: snapshot {manifest.snapshot} has no local copy", error))


def prune(pipeline: Pipeline, log: str, snapshot: int) -> None:
    """Removes the local copy of exactly this aborted snapshot (C7)."""
    if pipeline.local is None:
        return
    try:
        discard(pipeline.local, [CopyName(log, snapshot), CopyName(log, snapshot, ongoing=True)])
    except Exception as error:
        _warn(f"{log}: the local copy of snapshot {snapshot} is left for the next local retention", error)


def clear_leftovers(pipeline: Pipeline, log: str, state: LogState) -> None:
    """Removes, before a snapshot of the log is made, halves of copies that nobody will complete and copies of aborted
    snapshots (L4). `state` is the log's as it was read last.
    """
    if pipeline.local is None:
        return
    try:
        old = [name for name in copies(pipeline.local) if leftover(state, name)]
        if old:
            discard(pipeline.local, old)
            _log.info("%s: removed what was left of local copies: %s", log, ", ".join(map(str, old)))
    except Exception as error:
        _warn(f"{log}: what was left of local copies stays for the next local retention", error)


def forget(pipeline: Pipeline, log: str, segments: Sequence[str]) -> None:
    """Removes the local copies of a dropped log, and of the segments that went with it."""
    if pipeline.local is None:
        return
    try:
        discard(pipeline.local, [name for name in copies(pipeline.local) if name.log == log])
        pipeline.local.delete(segments)
    except Exception as error:
        _warn(f"{log}: local copies are left", error)


def places_of(pipeline: Pipeline, log: str) -> SourcePlaces:
    """Where the files of a log may be read: also in copies that are not whole, for what they have (L7)."""
    store = pipeline.store.uri("")
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
    """Ids of completed snapshots with a copy on this machine, oldest first: `whole` ones may be used, `partial` ones
    lost files.
    """

    whole: tuple[int, ...] = ()
    partial: tuple[int, ...] = ()


def copies_here(pipeline: Pipeline, state: LogState) -> CopiesHere:
    """Returns the completed snapshots of a log that have a copy. A copy that cannot be read does not count, and
    hides no other.
    """
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
    """Ids of the snapshots whose copy on this machine may be used, oldest first."""
    return copies_here(pipeline, state).whole


def _warn(what: str, error: Exception) -> str:
    found = wrap_unexpected(error)
    _log.warning("%s: %s", what, found, exc_info=None if found is error else error)
    return f"{found.code}: {found.message}"
