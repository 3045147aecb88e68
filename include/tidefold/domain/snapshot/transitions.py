"""The transitions of a snapshot: each takes a state and returns the next one, or raises a typed error.

A transition whose work is already done returns the given state, so the ledger writes no new version (I4).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidefold.domain.ingest.append import never_took
from tidefold.domain.log_state import Drill, LogState, ReadFrom, Snapshot, SnapshotKind, State, Tag, Verdict
from tidefold.domain.retention.tag_names import require_free
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.source_progress import SourceProgress
from tidefold.domain.source_progress_history import continue_from, progress_at
from tidefold.domain.table.schema_evolution import schemas_of
from tidefold.domain.wording import shorten_reason
from tidefold.errors import GateFailedError, InvalidInputError, NotFoundError, RefusedError, SupersededError

_SUPERSEDED = re.compile(r"superseded by attempt (\d+)(?:, which saw no heartbeat after number \d+)?")


@dataclass(frozen=True, slots=True)
class AbortCause:
    """The cause of one abort.

    `text`: for people.
    `superseded_by`: epoch of the attempt that replaced it; None: a person or an error ended it.
    """

    text: str
    superseded_by: int | None = None

    @classmethod
    def supersede(cls, epoch: int, heartbeats: int | None = None) -> AbortCause:
        """Returns the cause for an attempt that the attempt of this epoch replaced.

        heartbeats: how many the newer attempt saw before it took over; None: a person or the same run replaced it.
        """
        seen = "" if heartbeats is None else f", which saw no heartbeat after number {heartbeats}"
        return cls(f"superseded by attempt {epoch}{seen}", epoch)

    @classmethod
    def parse(cls, text: str) -> AbortCause:
        """Parses the text that a ledger stores."""
        parts = _SUPERSEDED.fullmatch(text)
        return cls(text, int(parts[1]) if parts else None)


def stage(state: LogState, manifest: Manifest, digest: str, read: ReadFrom | None = None) -> LogState:
    """Records that all files of the attempt are written and synced.

    digest: sha256 of the stored manifest.
    read: how many bytes were read for it.
    """
    snapshot = require_not_aborted(state, manifest.snapshot)
    if (manifest.epoch, manifest.token) != (snapshot.epoch, snapshot.token):
        raise SupersededError(
            "SUPERSEDED",
            f"Another attempt (epoch {snapshot.epoch}) now makes snapshot {snapshot.id} of `{state.log}`.",
            hint=f"No change is lost: `tidefold step materialize {state.log}` folds them again.",
        )
    if snapshot.state is not State.ONGOING:
        if snapshot.manifest == digest:
            return state
        raise _wrong_state(state, snapshot, "stage", State.ONGOING)
    return state.with_snapshot(with_manifest(snapshot, manifest, digest, read))


def with_manifest(snapshot: Snapshot, manifest: Manifest, digest: str, read: ReadFrom | None = None) -> Snapshot:
    """Returns the staged snapshot with the numbers of its manifest. `digest`: sha256 of the manifest."""
    return replace(
        snapshot,
        state=State.STAGED,
        manifest=digest,
        rows=manifest.rows,
        files=len(manifest.files),
        ties=manifest.ties,
        unresolved=manifest.unresolved,
        unresolved_keys=manifest.unresolved_keys,
        bytes_full=manifest.bytes_full,
        bytes_written=manifest.bytes_written,
        bytes_read=read,
        buckets=manifest.shape.buckets,
    )


def require_staged(state: LogState, snapshot: Snapshot) -> None:
    """Raises RefusedError if this attempt is not staged any more: SUPERSEDED, ABORTED, WRONG_STATE."""
    current = require_not_aborted(state, snapshot.id)
    if (current.state, current.manifest) != (State.STAGED, snapshot.manifest):
        raise _wrong_state(state, current, "judge", State.STAGED)


def record_verdict(state: LogState, snapshot_id: int, verdict: Verdict) -> LogState:
    """Binds a verdict to a staged snapshot. The first verdict of a suite stays; another suite may judge again."""
    snapshot = require_not_aborted(state, snapshot_id)
    if snapshot.verdict and snapshot.verdict.suite == verdict.suite:
        return state
    if snapshot.state is not State.STAGED:
        raise _wrong_state(state, snapshot, "judge", State.STAGED)
    _check_binding(state, snapshot, verdict)
    return state.with_snapshot(replace(snapshot, verdict=verdict))


def _check_binding(state: LogState, snapshot: Snapshot, verdict: Verdict) -> None:
    if verdict.manifest != snapshot.manifest:
        raise RefusedError(
            "VERDICT_FOR_OTHER_FILES",
            f"The verdict was made for other files than those of snapshot {snapshot.id} of `{state.log}`.",
            hint=f"`tidefold step quality {state.log}` judges the staged files.",
        )


def override(state: LogState, snapshot_id: int, by: str, why: str) -> LogState:
    """Overrides the failed verdict of a snapshot. The ledger keeps the name and the reason for ever (I8)."""
    if not by.strip() or not why.strip():
        message = "An override needs both a name and a reason."
        raise InvalidInputError("OVERRIDE_UNNAMED", message)
    snapshot = require_not_aborted(state, snapshot_id)
    if snapshot.state is not State.STAGED:
        raise _wrong_state(state, snapshot, "override", State.STAGED)
    if not snapshot.verdict:
        raise _not_judged(state, snapshot)
    if snapshot.verdict.passed:
        return state  # The verdict is no failure.
    verdict = replace(snapshot.verdict, override_by=shorten_reason(by), override_why=shorten_reason(why))
    return state.with_snapshot(replace(snapshot, verdict=verdict))


def confirm(state: LogState, snapshot_id: int, planned: LogState | None = None) -> LogState:
    """Completes a staged snapshot. Needs a PASS for its files, and the newest completed snapshot as base (I3, I8).

    A snapshot as of an instant gets its tag in the same transition, and needs no base.
    planned: the log in the store of its plan, if the snapshot is that of a plan.
    """
    snapshot = require_not_aborted(state, snapshot_id)
    if snapshot.state is State.COMPLETED:
        return state  # A tail-only snapshot is complete from its beginning.
    if snapshot.state is not State.STAGED:
        raise _wrong_state(state, snapshot, "confirm", State.STAGED)
    if not snapshot.verdict:
        raise _not_judged(state, snapshot)
    _check_binding(state, snapshot, snapshot.verdict)
    if not snapshot.verdict.allows:
        log = state.log
        mend = "Mend the data or the suite, then run the log again. " if snapshot.restored_from is None else ""
        raise GateFailedError(
            "GATE_FAILED",
            f"Snapshot {snapshot.id} of `{state.log}` failed its quality gate: {snapshot.verdict.summary}.",
            hint=f"`tidefold snapshot report {log}` shows why. {mend}"
            f"To publish these rows all the same: `tidefold step confirm {log} --override-by NAME --reason TEXT`; "
            f"if the snapshot was aborted, first `tidefold step materialize {log}` and `tidefold step quality {log}`.",
        )
    if snapshot.as_of:
        return _add_tag(state.with_snapshot(replace(snapshot, state=State.COMPLETED)), snapshot, snapshot.as_of.tag)
    require_published(state)
    latest = state.latest.id if state.latest else None
    if snapshot.base != latest:
        raise SupersededError(
            "BASE_MOVED",
            f"Snapshot {snapshot.id} of `{state.log}` is based on {snapshot.base}, but the newest is {latest}.",
            hint=f"Run `tidefold step abort {state.log}`, then `tidefold step materialize {state.log}`.",
        )
    # The log has the number of buckets of its newest completed snapshot.
    shape = replace(state.shape, buckets=snapshot.buckets or state.shape.buckets)
    completed = replace(snapshot, state=State.COMPLETED)
    if snapshot.reshape:
        return _adopt(state, snapshot, planned).with_snapshot(completed)
    return replace(_continue_from_import(state, snapshot), shape=shape).with_snapshot(completed)


def _add_tag(state: LogState, snapshot: Snapshot, name: str) -> LogState:
    taken = require_free(state, name, snapshot.id)
    return state if taken else replace(state, tags=(*state.tags, Tag(name, snapshot.id)))


def _continue_from_import(state: LogState, snapshot: Snapshot) -> LogState:
    """Continues the log from the end of its first snapshot, if that was imported.

    Nothing changes before the import is completed, so an aborted import leaves nothing behind. In a log with changes,
    files that land later get higher numbers than those of the imported rows.
    """
    if snapshot.external is None:
        return state
    progress = progress_after_import(state, snapshot, snapshot.external.progress)
    if not never_took(state):
        return replace(state, last_file=progress.last_file)
    return continue_from(replace(state, truncated_to=snapshot.to_sqn), progress)


def _adopt(state: LogState, snapshot: Snapshot, planned: LogState | None) -> LogState:
    """Gives the log the table definition, the change sets and the source positions of its plan, in one commit.

    The former change sets cannot be folded under the new definition: they become garbage. Those of the plan get the
    numbers after them, so that no sqn is used twice.
    """
    reshape, after = snapshot.reshape, snapshot.from_sqn
    if reshape is None or planned is None or state.last_sqn != after or planned.last_sqn != snapshot.to_sqn - after:
        raise SupersededError(
            "PLAN_MOVED",
            f"Log `{state.log}` or the plan of its snapshot {snapshot.id} has changed since it was claimed.",
            hint=f"`tidefold step abort {state.log}`, then `tidefold plan {state.log} --apply` again.",
        )
    require_unneeded(state)
    shift = reshape.schemas[-1].id - planned.schema
    change_sets = tuple(
        replace(c, sqn=c.sqn + after, first=None if c.first is None else c.first + after, schema=c.schema + shift)
        for c in planned.change_sets
    )
    landed = tuple(replace(e, sqn=None if e.sqn is None else e.sqn + after) for e in planned.landed)
    former = [c.location.segment for c in state.change_sets] + [e.quarantine for e in state.landed if e.quarantine]
    garbage = dict.fromkeys((*state.garbage, *former))
    return replace(
        state,
        shape=replace(reshape.after, buckets=snapshot.buckets or reshape.after.buckets),
        schemas=(*schemas_of(state), *reshape.schemas),
        change_sets=change_sets,
        landed=landed,
        last_file=planned.last_file,
        positions=planned.positions,
        names=planned.names,
        landing=planned.landing,
        followed_ttl=planned.followed_ttl,
        truncated_to=after,
        lost_from=0,
        fence=state.fence + 1,
        garbage=tuple(garbage),
    )


def require_unneeded(state: LogState, also: Sequence[str] = ()) -> None:
    """Raises RefusedError while somebody needs the change sets of before a plan, which nothing can fold any more.

    also: who else does.
    """
    tails = [s.id for s in state.snapshots if s.kind is SnapshotKind.TAIL and s.state is State.COMPLETED]
    needs = [f"hold `{one.name}`" for one in state.holds]
    needs += [f"consumer `{one.name}`" for one in state.consumers]
    needs += [f"tail-only snapshot {one}" for one in tails]
    needs += [f"snapshot {one.id}, which is made as of an instant" for one in state.as_of_attempts]
    needs += [f"the stop of the log: it was {state.stopped}"] if state.stopped else []
    if needs := [*needs, *also]:
        raise RefusedError(
            "PLAN_HELD",
            f"The changes of `{state.log}` as they were read before are still needed by: {'; '.join(needs)}.",
            hint="Release or remove them; then the plan can be applied.",
        )


def progress_after_import(state: LogState, snapshot: Snapshot, original: SourceProgress) -> SourceProgress:
    """Returns what the log knows of its source with an imported snapshot."""
    if never_took(state) or snapshot.reshape:
        return original
    own = progress_at(state, snapshot.to_sqn)
    return replace(own, last_file=max(own.last_file, original.last_file))


def _not_judged(state: LogState, snapshot: Snapshot) -> RefusedError:
    return RefusedError(
        "NOT_JUDGED",
        f"Snapshot {snapshot.id} of `{state.log}` has no verdict.",
        hint=f"Run `tidefold step quality {state.log}`.",
    )


def record_publication(state: LogState, snapshot_id: int, table_version: int, instant: str = "") -> LogState:
    """Records the table version that shows a completed snapshot to readers, and the time (ISO 8601)."""
    snapshot = require_snapshot(state, snapshot_id)
    if snapshot.published:
        return state
    if snapshot.state is not State.COMPLETED or not snapshot.in_main_lineage:
        raise _wrong_state(state, snapshot, "publish", State.COMPLETED)
    return state.with_snapshot(replace(snapshot, table_version=table_version, published_at=instant))


def forget_table(state: LogState) -> LogState:
    """Records that the published table is lost, with its versions: the newest completed snapshot waits for one."""
    return replace(state, snapshots=tuple(replace(s, table_version=None) for s in state.snapshots))


def abort(state: LogState, snapshot_id: int, reason: str) -> LogState:
    """Undoes an unconfirmed attempt; a completed one is refused."""
    snapshot = require_snapshot(state, snapshot_id)
    if snapshot.state is State.ABORTED:
        return state
    if not snapshot.open:
        raise _wrong_state(state, snapshot, "abort", State.ONGOING, State.STAGED)
    return end_attempt(state, snapshot, shorten_reason(reason))


def end_attempt(state: LogState, snapshot: Snapshot, reason: str) -> LogState:
    """Records that an open attempt is aborted. If it is the restore that stopped the log, the stop ends."""
    stays = state.stays
    ended = replace(state, stopped=None) if stays and stays.run == snapshot.run else state
    return ended.with_snapshot(replace(snapshot, state=State.ABORTED, abort_reason=reason))


def record_drill(state: LogState, snapshot_id: int, drill: Drill) -> LogState:
    """Records the newest restore drill of a snapshot. A snapshot that was retired meanwhile stays unchanged."""
    snapshot = require_snapshot(state, snapshot_id)
    if snapshot.state is not State.COMPLETED:
        return state
    return state.with_snapshot(replace(snapshot, drill=drill))


def require_published(state: LogState) -> None:
    """Raises RefusedError while the newest completed snapshot is not published."""
    latest = state.latest
    if latest and not latest.published:
        raise RefusedError(
            "NOT_PUBLISHED",
            f"Snapshot {latest.id} of `{state.log}` is completed but not yet published.",
            hint=f"`tidefold step confirm {state.log}` publishes it.",
        )


def require_snapshot(state: LogState, snapshot_id: int) -> Snapshot:
    """Returns the snapshot of that id. Raises NotFoundError."""
    snapshot = state.snapshot(snapshot_id)
    if snapshot is None:
        raise NotFoundError(
            "SNAPSHOT_UNKNOWN",
            f"`{state.log}` has no snapshot {snapshot_id}.",
            hint=f"`tidefold snapshot history {state.log}` lists the snapshots.",
        )
    return snapshot


def require_readable(state: LogState, snapshot_id: int) -> Snapshot:
    """Returns the snapshot. Raises NotFoundError if its files are not retained."""
    snapshot = require_snapshot(state, snapshot_id)
    if snapshot.state not in (State.COMPLETED, State.STAGED):
        raise NotFoundError(
            "SNAPSHOT_GONE",
            f"Snapshot {snapshot.id} of `{state.log}` is {snapshot.state}, and its files are no longer retained.",
            hint=f"`tidefold snapshot history {state.log}` shows which snapshots are COMPLETED.",
        )
    return snapshot


def require_not_aborted(state: LogState, snapshot_id: int) -> Snapshot:
    """Returns the snapshot. Raises SupersededError if its attempt was aborted or a newer one replaced it."""
    snapshot = require_snapshot(state, snapshot_id)
    if snapshot.state is State.ABORTED:
        cause = AbortCause.parse(snapshot.abort_reason.rstrip("."))
        raise SupersededError(
            "ABORTED" if cause.superseded_by is None else "SUPERSEDED",
            f"Snapshot {snapshot.id} of `{state.log}` (attempt {snapshot.epoch}) was aborted: {cause.text}.",
            hint=f"No change is lost: `tidefold step materialize {state.log}` folds them again.",
        )
    return snapshot


def _wrong_state(state: LogState, snapshot: Snapshot, verb: str, *needed: State) -> RefusedError:
    wanted = " or ".join(needed)
    return RefusedError(
        "WRONG_STATE",
        f"Cannot {verb} snapshot {snapshot.id} of `{state.log}`: it is {snapshot.state}, not {wanted}.",
        hint=f"`tidefold snapshot history {state.log}` shows the state of every snapshot.",
    )
