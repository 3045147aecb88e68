"""Confirms a judged snapshot, by its manifest or a copy of it, and publishes it to readers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import msgspec

from tidefold.delta.publish import Publication, publish, shorten_log
from tidefold.delta.published_table import Published, TableDescription
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State
from tidefold.domain.paths import LogPaths
from tidefold.domain.retention.local_copies import CopyName
from tidefold.domain.snapshot import claim, transitions
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.errors import AlreadyExistsError, CorruptError, RefusedError
from tidefold.fold.inputs import Inputs, SourcePlaces
from tidefold.fold.plan import Address
from tidefold.ledger import read_manifest, read_manifest_at
from tidefold.ledger.evidence import DECISION_FACT, SET_FACT
from tidefold.operations.local_copies.manage import places_of
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.sets.status import require_alone
from tidefold.operations.snapshot.details import PointInTimeDetails, PublicationDetails

_log = logging.getLogger(__name__)


def read_manifest_or_copy(pipeline: Pipeline, log: str, snapshot: Snapshot) -> Manifest:
    """Returns the manifest that the ledger names. Reads a local copy only if the store has no intact one.

    Raises CorruptError.
    """
    try:
        return read_manifest(pipeline.store, log, snapshot)
    except CorruptError as error:
        places = places_of(pipeline, log)
        if snapshot.id not in places.local:
            raise
        _log.warning("%s: the manifest is read from the local copy: %s", log, error)
        return find_manifest(log, snapshot, places, Inputs({places.store: pipeline.store}))


def find_manifest(log: str, snapshot: Snapshot, places: SourcePlaces, inputs: Inputs) -> Manifest:
    """Returns the manifest that the ledger names. `inputs` records each place that was tried. Raises CorruptError."""
    stored = Address(StorageTier.STORE, places.store, LogPaths(log).manifest(snapshot.id))
    root = places.local.get(snapshot.id)
    copied = () if root is None else (Address(StorageTier.LOCAL, root, CopyName(log, snapshot.id).manifest),)

    def read(address: Address) -> Manifest:
        return read_manifest_at(inputs.store(address), address.path, snapshot)

    return inputs.first(f"manifest {snapshot.id}", 0, (stored, *copied), read)


def describe_publication(pipeline: Pipeline, log: str, snapshot: Snapshot) -> Publication:
    """Returns how a snapshot is published."""
    configured = pipeline.config.logs.get(log)
    if configured is None:
        # Its entry was removed after the snapshot was confirmed.
        return Publication()
    of_set = _describe_point(pipeline, log, snapshot)
    description = TableDescription(
        comment=configured.comment,
        comments=configured.comments,
        change_feed=configured.change_feed,
    )
    if not configured.change_feed:
        return Publication(description, facts=of_set)
    # Only where there is a feed: it needs DuckDB.
    from tidefold.fold.change_feed import write_change_feed

    return Publication(description, partial(write_change_feed, pipeline.store), of_set)


def _describe_point(pipeline: Pipeline, log: str, snapshot: Snapshot) -> dict[str, str]:
    """Returns the point at which the log's set publishes the snapshot; nothing if the log is in no set."""
    chosen = pipeline.config.set_of(log)
    state = pipeline.set_ledger(chosen.name).read() if chosen else None
    version = state.newest if state else None
    member = version.member(log) if version else None
    if state is None or version is None or member is None or member.snapshot != snapshot.id:
        return {}
    return {
        SET_FACT: state.name,
        "tidefold.set.version": str(version.number),
        "tidefold.set.position": str(version.position),
        "tidefold.set.transaction": version.transaction,
        DECISION_FACT: msgspec.json.encode(version).decode(),
    }


def confirm(
    pipeline: Pipeline,
    log: str,
    snapshot: int | None = None,
    run_id: str | None = None,
    override_by: str | None = None,
    why: str | None = None,
    reconcile: bool = False,
) -> Outcome:
    """Confirms a snapshot (by id, by run, or the open one), then publishes it. With `reconcile`, the publication also
    replaces files that other programs committed to the table.

    Raises RefusedError: no passing verdict, superseded, foreign commits in the table. Confirming twice is `already`.
    """
    ledger = pipeline.ledger(log)
    if not ledger.exists():
        return Outcome(log, Status.NOTHING, "nothing was ingested yet")
    chosen = choose_snapshot(ledger.read(), snapshot, run_id)
    if chosen and chosen.as_of:
        return _confirm_point_in_time(pipeline, log, chosen, override_by, why)
    require_alone(
        pipeline,
        log,
        ", whose tables are published together.",
        hint="`tidefold run` or `tidefold confirm` publishes the whole set.",
    )
    rolled = roll_forward(pipeline, log, reconcile)
    if chosen is None or (rolled is not None and chosen.id == rolled):
        if rolled is None:
            require_no_override([log], override_by, why)
            return Outcome(log, Status.NOTHING, "no snapshot waits for confirmation")
        return _outcome(log, Status.PUBLISHED, transitions.require_snapshot(ledger.read(), rolled))
    if chosen.published or chosen.kind is SnapshotKind.TAIL:
        return _outcome(log, Status.ALREADY, chosen)
    let_through(pipeline, log, chosen.id, override_by, why)
    ledger.commit(lambda state: transitions.confirm(state, chosen.id))
    roll_forward(pipeline, log, reconcile)
    return _outcome(log, Status.PUBLISHED, transitions.require_snapshot(ledger.read(), chosen.id))


def require_no_override(logs: Sequence[str], override_by: str | None, why: str | None) -> None:
    """Raises RefusedError (NOTHING_TO_OVERRIDE) if somebody overrides the gate, but no snapshot waits.

    logs: the log, then the others of its set.
    """
    if override_by or why:
        named = " ".join(logs)
        raise RefusedError(
            "NOTHING_TO_OVERRIDE",
            f"No snapshot of `{logs[0]}` waits for confirmation.",
            hint=f"If it was aborted, `tidefold materialize {named}` and `tidefold quality {named}` make it again.",
        )


def let_through(pipeline: Pipeline, log: str, snapshot: int, override_by: str | None, why: str | None) -> None:
    """Records who lets a refused snapshot through, and why, if anybody does."""
    if override_by or why:
        pipeline.ledger(log).commit(lambda state: transitions.override(state, snapshot, override_by or "", why or ""))


def _confirm_point_in_time(
    pipeline: Pipeline, log: str, snapshot: Snapshot, override_by: str | None, why: str | None
) -> Outcome:
    """Confirms a snapshot as of an instant. Its tag keeps it; the table and the log do not change."""
    ledger = pipeline.ledger(log)
    before = snapshot.state in (State.COMPLETED, State.SUBSUMED, State.DELETED)
    if not before:
        let_through(pipeline, log, snapshot.id, override_by, why)
        snapshot = transitions.require_snapshot(
            ledger.commit(lambda state: transitions.confirm(state, snapshot.id)), snapshot.id
        )
    if snapshot.state is State.COMPLETED:
        note_completion(pipeline, log, snapshot.id)
    details = PointInTimeDetails(rows=snapshot.rows, as_of=str(snapshot.as_of), bytes=snapshot.bytes_full)
    tag = snapshot.as_of.tag if snapshot.as_of else ""
    message = f"snapshot {snapshot.id} with {snapshot.rows:,} rows as of {snapshot.as_of} is kept by its tag `{tag}`"
    if snapshot.state is not State.COMPLETED:
        message = f"snapshot {snapshot.id}, as of {snapshot.as_of}, is {snapshot.state} since"
    return Outcome(log, Status.ALREADY if before else Status.COMPLETED, message, snapshot.id, details=details)


def note_completion(pipeline: Pipeline, log: str, snapshot: int) -> None:
    """Records beside the manifest that the snapshot is completed: no table shows it if the ledger is set back."""
    with suppress(AlreadyExistsError):
        pipeline.store.put_if_absent(LogPaths(log).completion(snapshot), b"{}")


def roll_forward(pipeline: Pipeline, log: str, reconcile: bool = False) -> int | None:
    """Publishes the newest completed snapshot if a crash came between its confirmation and its publication (I1).

    Returns its id; None: nothing had to be published.
    """
    ledger = pipeline.ledger(log)
    state = ledger.read()
    latest = state.latest
    if latest is None or latest.published:
        return None
    ledger.require_current(state)
    manifest = read_manifest(pipeline.store, log, latest)
    how = describe_publication(pipeline, log, latest)
    shown = _find_published(pipeline, state)
    version = publish(pipeline.store, manifest, latest.manifest or "", shown, reconcile, how)
    ledger.commit(lambda state: transitions.record_publication(state, latest.id, version, now()))
    _log.info("%s: snapshot %d is version %d of the table", log, latest.id, version)
    shorten_log(pipeline.store, log, version)
    return latest.id


def _find_published(pipeline: Pipeline, state: LogState) -> Published | None:
    """Returns the snapshot that the table shows: the newest published one."""
    last = next((s for s in reversed(state.snapshots) if s.published), None)
    if last is None or last.table_version is None:
        return None
    return Published(read_manifest_or_copy(pipeline, state.log, last), last.table_version)


def choose_snapshot(state: LogState, snapshot: int | None, run_id: str | None) -> Snapshot | None:
    """Returns a snapshot by its id, by its run, or the open one; None: there is none."""
    if snapshot is not None:
        return transitions.require_snapshot(state, snapshot)
    if run_id is not None:
        return claim.of_run(state, run_id)
    return state.open_attempt if state.open_attempt else None


def _outcome(log: str, status: Status, snapshot: Snapshot) -> Outcome:
    if snapshot.kind is SnapshotKind.TAIL:
        return Outcome(log, status, f"snapshot {snapshot.id} is tail-only and complete from its beginning", snapshot.id)
    message = f"snapshot {snapshot.id} with {snapshot.rows:,} rows is version {snapshot.table_version} of the table"
    if snapshot.state is not State.COMPLETED:
        message += f", and {snapshot.state} since"
    details = PublicationDetails(rows=snapshot.rows, table_version=snapshot.table_version, bytes=snapshot.bytes_full)
    return Outcome(log, status, message, snapshot.id, details=details)
