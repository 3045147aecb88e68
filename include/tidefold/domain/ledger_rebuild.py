"""Makes the state of a log again from what its snapshots prove, after its ledger was lost or set back. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tidefold.domain.ingest.stop_resume import REBUILT
from tidefold.domain.log_state import DeletionState, LogState, Snapshot, State, Stopped, Tag
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.snapshot.transitions import with_manifest
from tidefold.domain.source_progress_history import accounts_of

UNDECIDED = "the ledger was rebuilt: the table never showed this snapshot, and its verdict is not known"


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
    base: LogState, proofs: Sequence[Proof], incarnation: str, instant: str, segments: Collection[str] | None = None
) -> Rebuilt:
    """Continues the log from `base`, the newest ledger state that is left (empty: none), with all that is proved.

    Attempts under the old ledger can commit nothing any more. If the source positions are lost, the log is stopped.

    `segments`: those in the store. If a segment that waits to be folded is missing, all waiting changes are ingested
    again.
    """
    proved = {proof.manifest.snapshot: proof for proof in proofs}
    recorded = _record_all(base, proved)
    newest = max((s for s in recorded if s.table_version is not None), key=lambda s: s.id, default=None)
    manifest = proved[newest.id].manifest if newest and newest.id in proved else None
    state = replace(
        base,
        snapshots=recorded,
        tags=_tags(base, recorded),
        holds=tuple(h for h in base.holds if _is_completed(recorded, h.snapshot)),
        epoch=max([base.epoch, *(p.manifest.epoch for p in proofs)]),
        shape=manifest.shape if manifest else base.shape,
        schemas=max(base.schemas, manifest.schemas if manifest else (), key=len),
        fence=base.fence + 1,
        incarnation=incarnation,
        deletion=DeletionState.NO,
    )
    unknown = [*_list_forgotten_references(base, state), *_unknown_verdicts(base, proofs)]
    if newest is None or (base.last_sqn >= newest.to_sqn and _has_segments(base, newest, segments)):
        # The old ledger reaches at least to the newest snapshot. The next ingest reads later changes from the source.
        return Rebuilt(state, tuple(unknown))
    unknown += [*_list_forgotten_changes(base, newest), *_list_forgotten_decisions(base)]
    return Rebuilt(_cut(state, newest, manifest, instant), tuple(unknown))


def _list_forgotten_references(base: LogState, state: LogState) -> list[str]:
    """Returns the tags, holds and decisions that the rebuilt ledger does not have."""
    is_empty = not (base.snapshots or base.change_sets or base.landed)
    since = "" if is_empty else f" made after version {base.version} of the ledger"
    gone = [f"tag {tag.name} of snapshot {tag.snapshot}" for tag in base.tags if tag not in state.tags]
    gone += [f"hold {hold.name} of snapshot {hold.snapshot}" for hold in base.holds if hold not in state.holds]
    every = "all tags, holds, consumers and `settle` decisions"
    return [*gone, f"{every}{since}; set the tags, holds and consumers again"]


def _list_forgotten_changes(base: LogState, newest: Snapshot) -> list[str]:
    """Returns the change sets that are lost because the log has a gap up to the newest published snapshot."""
    first, last = base.truncated_to + 1, newest.to_sqn
    if last < first:
        return []
    known = f"up to {min(base.last_sqn, last)}" if base.last_sqn >= first else "none of them"
    return [
        f"change sets {first} to {last}, for `explain`, `restore --log-position replay`, `as-of` and `read --since`. "
        f"The table has their rows. The ledger that is left names {known}, and a log with a gap cannot be replayed. "
        "The next `tidefold clean` deletes their segments: to keep these files, copy `changelog/` first"
    ]


def _list_forgotten_decisions(base: LogState) -> list[str]:
    """Returns what the ledger that is left has on landed files and consumers, and a cut log has not."""
    settled = [f"`{entry.name}`: {note}" for entry in base.landed for note in entry.settled]
    found = [f"`settle` decisions ({'; '.join(settled)})"] if settled else []
    found += [f"consumer {one.name} at change set {one.sqn}" for one in base.readers]
    return [*found, "quarantined records and ingested files: their counts begin again"]


def _has_segments(base: LogState, newest: Snapshot, segments: Collection[str] | None) -> bool:
    waiting = base.change_sets_in(newest.to_sqn, base.last_sqn)
    return segments is None or all(c.location.segment in segments for c in waiting)


def _record_all(base: LogState, proved: Mapping[int, Proof]) -> tuple[Snapshot, ...]:
    ids = sorted({s.id for s in base.snapshots} | set(proved))
    found = (_record(base.snapshot(i), proved.get(i)) for i in ids)
    # The base of a snapshot may be unknown.
    known = set(ids)
    return tuple(
        replace(
            s,
            base=s.base if s.base in known else None,
            restored_from=s.restored_from if s.restored_from in known else None,
            as_of=replace(s.as_of, head=s.as_of.head if s.as_of.head in known else None) if s.as_of else None,
        )
        for s in found
        if s
    )


def _record(known: Snapshot | None, proof: Proof | None) -> Snapshot | None:
    """Returns a snapshot as far as it is proved."""
    if proof is None:
        return known and _without_files(known)
    if known and known.manifest == proof.digest and not known.open:
        return known if proof.table_version is None else replace(known, table_version=proof.table_version)
    manifest = proof.manifest
    claim = manifest.claim or _claim_of(manifest)
    is_counted = proof.table_version is not None or proof.is_completed
    return replace(
        with_manifest(claim, manifest, proof.digest),
        state=State.COMPLETED if is_counted else State.ABORTED,
        abort_reason="" if is_counted else UNDECIDED,
        table_version=proof.table_version,
        verdict=known.verdict if known and known.manifest == proof.digest else None,
    )


def _without_files(known: Snapshot) -> Snapshot:
    """Returns a snapshot without a manifest: it was retired in the meantime, or never staged."""
    if known.open:
        return replace(known, state=State.ABORTED, abort_reason=UNDECIDED)
    if known.state in (State.COMPLETED, State.SUBSUMED):
        return replace(known, state=State.DELETED)
    return known


def _claim_of(manifest: Manifest) -> Snapshot:
    """Returns what a manifest of an older program contains about the claim."""
    return Snapshot(
        id=manifest.snapshot,
        epoch=manifest.epoch,
        run=REBUILT,
        request="",
        kind=manifest.kind,
        state=State.ONGOING,
        base=manifest.base,
        from_sqn=manifest.from_sqn,
        to_sqn=manifest.to_sqn,
        started_at="",
        schema=manifest.schema,
        token=manifest.token,
    )


def _tags(base: LogState, recorded: Sequence[Snapshot]) -> tuple[Tag, ...]:
    """Returns the tags of retained snapshots; a snapshot as of an instant gets its own tag."""
    kept = tuple(tag for tag in base.tags if _is_completed(recorded, tag.snapshot))
    named = {tag.name for tag in kept}
    as_of = (Tag(s.as_of.tag, s.id) for s in recorded if s.as_of and s.state is State.COMPLETED)
    return (*kept, *(tag for tag in as_of if tag.name not in named))


def _is_completed(recorded: Sequence[Snapshot], snapshot: int) -> bool:
    return any(s.id == snapshot and s.state is State.COMPLETED for s in recorded)


def _unknown_verdicts(base: LogState, proofs: Sequence[Proof]) -> list[str]:
    known = {s.id for s in base.snapshots if s.verdict}
    without = sorted(p.manifest.snapshot for p in proofs if p.manifest.snapshot not in known)
    return [f"the verdicts of snapshots {', '.join(map(str, without))}"] if without else []


def _cut(state: LogState, newest: Snapshot, manifest: Manifest | None, instant: str) -> LogState:
    """Continues the log from the end of the newest snapshot, if its manifest has the source positions."""
    positions = manifest.positions if manifest else None
    stopped = state.stopped
    if positions is None:
        why = f"the source positions at snapshot {newest.id} are not known"
        stopped = Stopped(REBUILT, "tidefold rebuild", why, "", instant)
    return replace(
        state,
        change_sets=(),
        truncated_to=newest.to_sqn,
        lost_from=_find_lost(state, newest),
        positions=positions or (),
        landed=accounts_of(positions or ()),
        # The change sets of tails are no longer known.
        snapshots=tuple(_without_tail(s) for s in state.snapshots),
        readers=(),
        stopped=stopped,
    )


def _find_lost(state: LogState, newest: Snapshot) -> int:
    """Returns the first change set up to the newest snapshot that no `truncate` deleted; 0: there is none."""
    first = state.lost_from or state.truncated_to + 1
    return first if first <= newest.to_sqn else 0


def _without_tail(snapshot: Snapshot) -> Snapshot:
    is_tail = snapshot.kind == "tail" and snapshot.state is State.COMPLETED
    return replace(snapshot, state=State.DELETED) if is_tail else snapshot
