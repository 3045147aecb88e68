"""Compares the ledger of a log with everything else that the store has of it (I29).

A ledger that was lost, or restored from a backup, would give numbers of existing snapshots a second time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State
from tidefold.errors import OutdatedLedgerError

_PUBLISHABLE = (State.COMPLETED, State.SUBSUMED, State.DELETED)


@dataclass(frozen=True, slots=True)
class ShownSnapshot:
    """The snapshot that the published table shows.

    `manifest`: the sha256 of its manifest, or the beginning of that.
    `version`: the table version whose commit names it; None: an earlier commit named it.
    """

    snapshot: int
    manifest: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was found in the store.

    `table_version`: the newest version of the published table; None: there is no table.
    `shown`: what the table shows, if a commit of tidefold made it newer than the ledger says.
    `manifests`: ids of the snapshots that have a manifest.
    `completed`: ids of the snapshots that the ledger once had as completed, and that no table shows.
    `folders`: ids of the snapshots that have a folder; only listed for a log without any snapshot.
    `is_as_known`: the table shows what the ledger published last, or is about to publish.
    `high_water_marks`: versions that the ledger has reached, as recorded beside the published table.
    """

    table_version: int | None = None
    shown: ShownSnapshot | None = None
    manifests: frozenset[int] = field(default=frozenset())
    completed: frozenset[int] = field(default=frozenset())
    folders: frozenset[int] = field(default=frozenset())
    is_as_known: bool = True
    high_water_marks: tuple[int, ...] = ()


def newest_id(state: LogState) -> int:
    """The highest id of a snapshot that the ledger ever gave; 0: it gave none."""
    return max((s.id for s in state.snapshots), default=state.last_snapshot)


def find_published_version(state: LogState) -> int:
    """The newest version of the table that the ledger knows; -1: none."""
    return max((s.table_version for s in state.snapshots if s.table_version is not None), default=-1)


def needs_high_water_mark(before: LogState, after: LogState) -> bool:
    """Whether only the ledger has this change: no snapshot, manifest or table commit shows it.

    These are ingested changes, compacted change sets, tail-only snapshots, tags, holds, consumers, stops and schemas.
    A truncation needs no mark: no retained snapshot needs what it removes. Without a published table there is no mark.
    """
    if find_published_version(after) < 0:
        return False
    is_cut = before.truncated_to != after.truncated_to
    return _find_unshown(before) != _find_unshown(after) or (not is_cut and before.change_sets != after.change_sets)


def _find_unshown(state: LogState) -> tuple[object, ...]:
    named = (state.tags, state.holds, state.readers, state.stopped)
    # Tail-only snapshots have neither manifest nor files.
    tails = tuple(s.id for s in state.snapshots if s.kind is SnapshotKind.TAIL and s.state is State.COMPLETED)
    return *named, state.positions, state.schemas, state.last_sqn, tails


def require_known(state: LogState, evidence: Evidence) -> None:
    """Raises OutdatedLedgerError if the store shows more than the ledger knows: LEDGER_LOST (a new one) or BEHIND."""
    found = _find_unknown(state, evidence)
    if found is None:
        return
    what = f"Log `{state.log}`: {found}."
    if state.version <= 1:
        raise OutdatedLedgerError("LEDGER_LOST", f"{what} The ledger was lost; nothing was changed.", hint=_hint(state))
    raise OutdatedLedgerError(
        "LEDGER_BEHIND", f"{what} The ledger is older than that; nothing was changed.", hint=_hint(state)
    )


def _hint(state: LogState) -> str:
    return (
        f"Put newer copies of `logs/{state.log}/ledger` and `pages` back, if you have them. Never replace or delete "
        f"`logs/{state.log}/snapshots`: only add files that it lacks. Without a newer copy, `tidefold rebuild "
        f"{state.log}` makes the ledger again. Readers are not affected."
    )


def _find_unknown(state: LogState, evidence: Evidence) -> str | None:
    newest = newest_id(state)
    known = f", but the newest that its ledger knows is {newest}" if newest else ", but its ledger knows none"
    for ids, what in ((evidence.manifests, "a manifest"), (evidence.folders, "a folder")):
        if max(ids, default=0) > newest:
            return f"snapshot {max(ids)} has {what}{known}"
    shown = evidence.shown
    if shown and shown.snapshot > state.last_snapshot and not _is_published(state.snapshot(shown.snapshot), shown):
        return f"the published table shows snapshot {shown.snapshot}{_as_known(state.snapshot(shown.snapshot))}{known}"
    for one in state.snapshots:
        if one.id in evidence.completed and (one.open or one.state is State.ABORTED):
            return f"snapshot {one.id} was completed{_as_known(one)}{known}"
    if max(evidence.high_water_marks, default=0) > state.version:
        reached = max(evidence.high_water_marks)
        return f"its ledger has reached version {reached}, but the newest version in the store is {state.version}"
    return None


def _is_published(snapshot: Snapshot | None, shown: ShownSnapshot) -> bool:
    if snapshot is None or snapshot.state not in _PUBLISHABLE:
        return False
    return (snapshot.manifest or "").startswith(shown.manifest)


def _as_known(snapshot: Snapshot | None) -> str:
    if snapshot is None:
        return ""
    if snapshot.state in _PUBLISHABLE:
        return " with other files than the ledger says"
    return f", which the ledger says is {snapshot.state}"
