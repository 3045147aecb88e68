"""The scope of a verification: snapshots whose files must exist, their local copies, and the change sets of the log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidefold.domain.log_state import ChangeSet, DeletionState, LogState, Snapshot, SnapshotKind
from tidefold.domain.snapshot.transitions import require_readable
from tidefold.domain.verify.expected_files import list_kept
from tidefold.errors import TidefoldError
from tidefold.operations.pipeline import Pipeline
from tidefold.storage.local_copies.copies import copies


@dataclass(frozen=True, slots=True)
class Scope:
    """What a verification checks.

    kept: all snapshots whose files must exist.
    asked: ids of the requested snapshots.
    local: the snapshots with a copy on this machine.
    warning: why local copies, or some of their roots, cannot be checked.
    blind: no local copy can be checked.
    """

    state: LogState
    kept: tuple[Snapshot, ...]
    asked: frozenset[int]
    local: frozenset[int]
    change_sets: tuple[ChangeSet, ...]
    warning: str = ""
    blind: bool = False


def scope_of(pipeline: Pipeline, state: LogState, snapshot: int | None) -> Scope:
    """Returns the scope of the whole log, or of one snapshot. Raises NotFoundError if that one is not retained."""
    if state.deletion is not DeletionState.NO:
        return Scope(state, (), frozenset(), frozenset(), ())
    there = list_kept(state)
    asked, change_sets = frozenset(s.id for s in there), state.change_sets
    if snapshot is not None:
        asked, change_sets = _of_one(state, snapshot)
    local, warning, blind = _local(pipeline, state.log, there)
    return Scope(state, there, asked, local, change_sets, warning, blind)


def _of_one(state: LogState, snapshot: int) -> tuple[frozenset[int], tuple[ChangeSet, ...]]:
    found = require_readable(state, snapshot)
    if found.kind is not SnapshotKind.TAIL or found.base is None:
        return frozenset({found.id}), ()
    return frozenset({found.base}), state.change_sets_in(found.from_sqn, found.to_sqn)


def _local(pipeline: Pipeline, log: str, there: Iterable[Snapshot]) -> tuple[frozenset[int], str, bool]:
    if pipeline.local is None:
        return frozenset(), "", True
    ids = {s.id for s in there}
    try:
        # Without a manifest there is no copy, because it is written last and deleted first.
        found = {n for n, files in copies(pipeline.local).items() if any(f.path == n.manifest for f in files)}
    except TidefoldError as error:
        return frozenset(), f"local copies cannot be looked at: {error.code}: {error.message}", True
    left_out = [
        f"local copies in `{root}` cannot be looked at: {why}" for root, why in pipeline.local.unreadable.items()
    ]
    here = frozenset(n.snapshot for n in found if n.log == log and not n.ongoing and n.snapshot in ids)
    return here, "; ".join(left_out), False
