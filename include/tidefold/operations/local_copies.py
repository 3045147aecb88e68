"""What happens to local copies beside the steps of the life cycle. Nothing here fails a step: what goes wrong is a
warning in the log and in the outcome (I15).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from tidefold.fold.plan import Places
from tidefold.lifecycle.errors import CorruptError, TidefoldError, unforeseen
from tidefold.lifecycle.local_copies import CopyName
from tidefold.lifecycle.manifest import Manifest
from tidefold.lifecycle.values import LogState
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.storage.local_copies import copies, copy_snapshot, discard, is_offered

_log = logging.getLogger(__name__)


def with_copy(pipeline: Pipeline, manifest: Manifest, digest: str, staged: Outcome) -> Outcome:
    """The outcome of a staged snapshot after its local copy was made, or could not be made.

    Raises CorruptError when copying shows that the primary's own files are not those that were staged.
    """
    if pipeline.local is None:
        return staged
    try:
        copied = copy_snapshot(pipeline.store, pipeline.local, manifest, digest)
    except CorruptError:
        raise
    except Exception as error:
        why = _warned(f"{staged.log}: snapshot {manifest.snapshot} has no local copy", error)
        return _said(staged, f"no local copy: {why}", {"bytes": 0, "warning": why})
    return _said(staged, "with a local copy", {"bytes": copied, "warning": None})


def _said(outcome: Outcome, text: str, local: dict[str, object]) -> Outcome:
    return replace(outcome, message=f"{outcome.message}; {text}", facts={**outcome.facts, "local": local})


def prune(pipeline: Pipeline, log: str, snapshot: int) -> None:
    """Removes the local copy of exactly this aborted snapshot (C7)."""
    if pipeline.local is None:
        return
    try:
        discard(pipeline.local, [CopyName(log, snapshot), CopyName(log, snapshot, ongoing=True)])
    except Exception as error:
        _warned(f"{log}: the local copy of snapshot {snapshot} is left for the next local retention", error)


def forget(pipeline: Pipeline, log: str, segments: Sequence[str]) -> None:
    """Removes the local copies of a dropped log, and of the segments that went with it."""
    if pipeline.local is None:
        return
    try:
        discard(pipeline.local, [name for name in copies(pipeline.local) if name.log == log])
        pipeline.local.delete(segments)
    except Exception as error:
        _warned(f"{log}: local copies are left", error)


def places_of(pipeline: Pipeline, log: str) -> Places:
    """Where the files of a log may be read: also in copies that are not whole, for what they have (L7)."""
    store = pipeline.store.uri("")
    if pipeline.local is None:
        return Places(store)
    try:
        here = [name for name in copies(pipeline.local) if name.log == log and not name.ongoing]
    except TidefoldError as error:
        _warned(f"{log}: local copies cannot be looked at", error)
        return Places(store)
    root = str(pipeline.local.root)
    return Places(store, {name.snapshot: root for name in here}, root)


def snapshots_here(pipeline: Pipeline, state: LogState) -> tuple[int, ...]:
    """Ids of the snapshots whose copy on this machine may be used, oldest first."""
    if pipeline.local is None:
        return ()
    try:
        there = {name.snapshot for name in copies(pipeline.local) if name.log == state.log and not name.ongoing}
        known = [s for s in state.snapshots if s.id in there]
        return tuple(s.id for s in known if is_offered(pipeline.local, state.log, s))
    except TidefoldError as error:
        _warned(f"{state.log}: local copies cannot be looked at", error)
        return ()


def _warned(what: str, error: Exception) -> str:
    found = unforeseen(error)
    _log.warning("%s: %s", what, found, exc_info=None if found is error else error)
    return f"{found.code}: {found.message}"
