"""Compares the ledger of a log with all else that the store has of it, and makes it again from that (I29).

A ledger that was lost, or restored from a backup, would give numbers of existing snapshots a second time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidefold.domain.log_state import DeletionState, LogState, Snapshot, SnapshotKind, State, Stopped, Tag
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.snapshot.transitions import with_manifest
from tidefold.domain.source_progress import SourceProgress
from tidefold.domain.source_progress_history import continue_from, progress_at
from tidefold.domain.table.types import TableColumns
from tidefold.errors import OutdatedLedgerError

_PUBLISHABLE = (State.COMPLETED, State.SUBSUMED, State.DELETED)
UNDECIDED = "the ledger was rebuilt: the table never showed this snapshot, and its verdict is not known"


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


def describe_table(state: LogState, evidence: Evidence) -> str:
    """Returns what is wrong with the published table, and the next step; empty: it is what the ledger published."""
    version = find_published_version(state)
    if version < 0 or not state.latest:
        return ""
    if evidence.table_version is None:
        return f"its published table is missing. {hint_to_rebuild(state.log)}"
    if evidence.is_as_known:
        return ""
    if evidence.table_version < version:
        return (
            f"its published table is older than the ledger: version {evidence.table_version}, not {version}. Put the "
            f"newer `tables/{state.log}/_delta_log` back"
        )
    return (
        f"another program committed version {evidence.table_version} of its table, which readers see: "
        f"`tidefold check verify {state.log}` compares it with snapshot {state.latest.id}"
    )


def hint_to_rebuild(log: str) -> str:
    """Returns the next step for a table that is missing."""
    return f"Mount its disk. If it was deleted, `tidefold move rebuild {log} --table` makes it again"


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
    named = (state.tags, state.holds, state.consumers, state.stopped)
    # Tail-only snapshots have neither manifest nor files.
    tails = tuple(s.id for s in state.snapshots if s.kind is SnapshotKind.TAIL and s.state is State.COMPLETED)
    return *named, state.positions, state.schemas, state.last_sqn, tails


def require_known(state: LogState, evidence: Evidence) -> None:
    """Raises OutdatedLedgerError if the store shows more than the ledger knows: LEDGER_LOST (a new one) or BEHIND."""
    unknown = _find_unknown(state, evidence)
    if unknown is None:
        return
    what = f"Log `{state.log}`: {unknown}."
    if state.version <= 1:
        raise OutdatedLedgerError("LEDGER_LOST", f"{what} The ledger was lost; nothing was changed.", hint=_hint(state))
    raise OutdatedLedgerError(
        "LEDGER_BEHIND", f"{what} The ledger is older than that; nothing was changed.", hint=_hint(state)
    )


def _hint(state: LogState) -> str:
    return (
        f"Put newer copies of `logs/{state.log}/ledger` and `pages` back, if you have them. Never replace or delete "
        f"`logs/{state.log}/snapshots`: only add files that it lacks. Without a newer copy, `tidefold move rebuild "
        f"{state.log}` makes the ledger again. Readers are not affected."
    )


def _find_unknown(state: LogState, evidence: Evidence) -> str | None:
    newest = newest_id(state)
    end = f", but the newest that its ledger knows is {newest}" if newest else ", but its ledger knows none"
    for ids, what in ((evidence.manifests, "a manifest"), (evidence.folders, "a folder")):
        if max(ids, default=0) > newest:
            return f"snapshot {max(ids)} has {what}{end}"
    shown = evidence.shown
    if shown and shown.snapshot > state.last_snapshot and not _is_published(state.snapshot(shown.snapshot), shown):
        return f"the published table shows snapshot {shown.snapshot}{_as_known(state.snapshot(shown.snapshot))}{end}"
    for one in state.snapshots:
        if one.id in evidence.completed and (one.open or one.state is State.ABORTED):
            return f"snapshot {one.id} was completed{_as_known(one)}{end}"
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


@dataclass(frozen=True, slots=True)
class Proof:
    """A snapshot that the store still shows.

    `manifest`: as it is stored.
    `digest`: the sha256 of the manifest.
    `table_version`: the version of the published table whose commit shows the snapshot; None: no commit shows it.
    `is_completed`: the lost ledger had it as completed, although no table shows it.
    """

    manifest: Manifest
    digest: str
    table_version: int | None = None
    is_completed: bool = False


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The state that can be proved, and the information that is lost, for people."""

    state: LogState
    unknown: tuple[str, ...]


def rebuild(
    base: LogState,
    proofs: Sequence[Proof],
    incarnation: str,
    segments: Collection[str] | None = None,
    unproved: Collection[int] = (),
    marked: TableColumns | None = None,
) -> Rebuilt:
    """Continues the log from `base`, the newest ledger state that is left (empty: none), with all that is proved.

    Attempts under the old ledger can commit nothing any more.

    `segments`: those in the store. If a segment that waits to be folded is missing, all waiting changes are ingested
    again.
    `unproved`: snapshots without a manifest whose files are in the store: they were not deleted.
    `marked`: columns that no snapshot has.
    """
    proved = {proof.manifest.snapshot: proof for proof in proofs}
    recorded = _record_all(base, proved, unproved)
    newest = max((s for s in recorded if s.table_version is not None), key=lambda s: s.id, default=None)
    manifest = proved[newest.id].manifest if newest and newest.id in proved else None
    proved_columns = TableColumns(manifest.shape, manifest.schemas) if manifest else None
    all_columns = filter(None, (proved_columns, marked, TableColumns(base.shape, base.schemas)))
    columns = max(all_columns, key=lambda one: len(one.schemas))
    state = replace(
        base,
        snapshots=recorded,
        tags=_tags(base, recorded),
        holds=tuple(h for h in base.holds if _is_completed(recorded, h.snapshot)),
        epoch=max([base.epoch, *(p.manifest.epoch for p in proofs)]),
        shape=columns.shape,
        schemas=columns.schemas,
        fence=base.fence + 1,
        incarnation=incarnation,
        deletion=DeletionState.NO,
    )
    if newest and not state.stopped:
        state = replace(state, stopped=_find_stop(newest, recorded))
    unknown = [*_list_forgotten_references(base, state), *_unknown_verdicts(base, proofs)]
    unknown += [_describe_unproved(base, one) for one in sorted(unproved)]
    if newest is None or (base.last_sqn >= newest.to_sqn and _has_segments(base, newest, segments)):
        # The old ledger reaches at least to the newest snapshot. The next ingest reads later changes from the source.
        return Rebuilt(state, tuple(unknown))
    unknown += [*_list_forgotten_changes(base, newest), *_list_forgotten_decisions(base)]
    # A snapshot without a manifest is in the ledger that is left, which knows its positions.
    progress = manifest.progress if manifest else progress_at(base, newest.to_sqn)
    return Rebuilt(_cut(state, newest, progress), tuple(unknown))


def _find_stop(newest: Snapshot, recorded: Sequence[Snapshot]) -> Stopped | None:
    """Returns the stop of a log whose newest snapshot went back: whether its rows were to stay is lost."""
    passed = [s for s in recorded if s.id < newest.id and s.table_version is not None and s.to_sqn > newest.to_sqn]
    if newest.restored_from is None or not passed:
        return None
    why = f"snapshot {newest.id} went back to {newest.restored_from}, and whether its rows stay is lost"
    return Stopped(newest.run, "rebuild", why, "", "")


def _list_forgotten_references(base: LogState, state: LogState) -> list[str]:
    """Returns the tags, holds and decisions that the rebuilt ledger does not have."""
    is_empty = not (base.snapshots or base.change_sets or base.landed)
    since = "" if is_empty else f" made after version {base.version} of the ledger"
    gone = [f"tag {tag.name} of snapshot {tag.snapshot}" for tag in base.tags if tag not in state.tags]
    gone += [f"hold {hold.name} of snapshot {hold.snapshot}" for hold in base.holds if hold not in state.holds]
    every = "all tags, holds, consumers, stops and `settle` decisions"
    stopped = state.stopped if state.stopped != base.stopped else None
    stops = [f"{stopped.why}: the log is stopped until `tidefold move resume {state.log}`"] if stopped else []
    return [*gone, *stops, f"{every}{since}; set the tags, holds, consumers and stops again"]


def _list_forgotten_changes(base: LogState, newest: Snapshot) -> list[str]:
    """Returns the change sets that are lost because the log has a gap up to the newest published snapshot."""
    first, last = base.truncated_to + 1, newest.to_sqn
    if last < first:
        return []
    covered = f"up to {min(base.last_sqn, last)}" if base.last_sqn >= first else "none of them"
    return [
        f"change sets {first} to {last}, for `explain`, `restore --log-position replay`, `as-of` and `read --since`. "
        f"The table has their rows. The ledger that is left names {covered}, and a log with a gap cannot be replayed. "
        "The next `tidefold retain clean` deletes their segments: to keep these files, copy `changelog/` first"
    ]


def _list_forgotten_decisions(base: LogState) -> list[str]:
    """Returns what the ledger that is left has on landed files and consumers, and a cut log has not."""
    settled = [f"`{entry.name}`: {note}" for entry in base.landed for note in entry.settled]
    decisions = [f"`settle` decisions ({'; '.join(settled)})"] if settled else []
    decisions += [f"consumer {one.name} at change set {one.sqn}" for one in base.consumers]
    refused = (
        "refused records, and changes of `quarantine retry` after the newest snapshot: to read them, land the bytes of "
        "their files under other names (`append`, `aggregate`: their records alone). The counts of quarantined records "
        "and ingested files begin again"
    )
    return [*decisions, refused]


def _has_segments(base: LogState, newest: Snapshot, segments: Collection[str] | None) -> bool:
    waiting = base.change_sets_in(newest.to_sqn, base.last_sqn)
    return segments is None or all(c.location.segment in segments for c in waiting)


def _describe_unproved(base: LogState, snapshot: int) -> str:
    folder = LogPaths(base.log).snapshot(snapshot)
    added = f"add its manifest to `{LogPaths(base.log).about(snapshot)}` from any copy"
    if base.snapshot(snapshot):
        return f"the manifest of snapshot {snapshot}; its files stay, and it counts as completed: {added}"
    return f"snapshot {snapshot}: it has files, and no manifest. `{folder}` stays: {added} first, or move it away"


def _record_all(base: LogState, proved: Mapping[int, Proof], unproved: Collection[int]) -> tuple[Snapshot, ...]:
    ids = sorted({s.id for s in base.snapshots} | set(proved))
    records = (_record(base.snapshot(i), proved.get(i), i in unproved) for i in ids)
    # The base of a snapshot may be unknown.
    kept = set(ids)
    return tuple(
        replace(
            s,
            base=s.base if s.base in kept else None,
            restored_from=s.restored_from if s.restored_from in kept else None,
            as_of=replace(s.as_of, head=s.as_of.head if s.as_of.head in kept else None) if s.as_of else None,
        )
        for s in records
        if s
    )


def _record(record: Snapshot | None, proof: Proof | None, has_files: bool) -> Snapshot | None:
    """Returns a snapshot as far as it is proved."""
    if proof is None:
        # A retired one lost its files before its manifest. This one was not retired: its manifest was lost.
        return record if has_files and record and record.state is State.COMPLETED else record and _without_files(record)
    if record and record.manifest == proof.digest and not record.open:
        return record if proof.table_version is None else replace(record, table_version=proof.table_version)
    manifest = proof.manifest
    assert manifest.claim is not None
    is_counted = proof.table_version is not None or proof.is_completed
    return replace(
        with_manifest(manifest.claim, manifest, proof.digest),
        state=State.COMPLETED if is_counted else State.ABORTED,
        abort_reason="" if is_counted else UNDECIDED,
        table_version=proof.table_version,
        verdict=record.verdict if record and record.manifest == proof.digest else None,
    )


def _without_files(record: Snapshot) -> Snapshot:
    """Returns a snapshot without a manifest: it was retired in the meantime, or never staged."""
    if record.open:
        return replace(record, state=State.ABORTED, abort_reason=UNDECIDED)
    if record.state in (State.COMPLETED, State.SUBSUMED):
        return replace(record, state=State.DELETED)
    return record


def _tags(base: LogState, recorded: Sequence[Snapshot]) -> tuple[Tag, ...]:
    """Returns the tags of retained snapshots; a snapshot as of an instant gets its own tag."""
    kept = tuple(tag for tag in base.tags if _is_completed(recorded, tag.snapshot))
    named = {tag.name for tag in kept}
    as_of = (Tag(s.as_of.tag, s.id) for s in recorded if s.as_of and s.state is State.COMPLETED)
    return (*kept, *(tag for tag in as_of if tag.name not in named))


def _is_completed(recorded: Sequence[Snapshot], snapshot: int) -> bool:
    return any(s.id == snapshot and s.state is State.COMPLETED for s in recorded)


def _unknown_verdicts(base: LogState, proofs: Sequence[Proof]) -> list[str]:
    judged = {s.id for s in base.snapshots if s.verdict}
    without = sorted(p.manifest.snapshot for p in proofs if p.manifest.snapshot not in judged)
    return [f"the verdicts of snapshots {', '.join(map(str, without))}"] if without else []


def _cut(state: LogState, newest: Snapshot, progress: SourceProgress) -> LogState:
    """Continues the log from the end of the newest snapshot, with the source positions there."""
    cut = replace(
        state,
        change_sets=(),
        truncated_to=newest.to_sqn,
        lost_from=_find_lost(state, newest),
        # The change sets of tails are no longer known.
        snapshots=tuple(_without_tail(s) for s in state.snapshots),
        consumers=(),
    )
    return continue_from(cut, progress)


def _find_lost(state: LogState, newest: Snapshot) -> int:
    """Returns the first change set up to the newest snapshot that no `truncate` deleted; 0: there is none."""
    first = state.lost_from or state.truncated_to + 1
    return first if first <= newest.to_sqn else 0


def _without_tail(snapshot: Snapshot) -> Snapshot:
    is_tail = snapshot.kind == "tail" and snapshot.state is State.COMPLETED
    return replace(snapshot, state=State.DELETED) if is_tail else snapshot
