"""Publishes the newest completed snapshot of a log, by its manifest or a copy of it."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tidefold.delta.publish import Publication, publish, shorten_log
from tidefold.delta.published_table import Published, TableDescription, require_untouched
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.log_state import LogState, Snapshot
from tidefold.domain.paths import LogPaths
from tidefold.domain.retention.local_copies import CopyName
from tidefold.domain.snapshot import transitions
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.errors import AlreadyExistsError, CorruptError
from tidefold.fold.inputs import Inputs, SourcePlaces
from tidefold.fold.plan import Address
from tidefold.ledger import read_manifest, read_manifest_at
from tidefold.ledger.evidence import DECISION_FACT, SET_FACT
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.local_copies.manage import places_of
from tidefold.storage.delta_tables import convert_errors, open_table
from tidefold.stored_forms import encode_form

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
        comment=configured.comment, comments=configured.comments, change_feed=configured.change_feed
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
        DECISION_FACT: encode_form(version).decode(),
    }


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
    how = replace(describe_publication(pipeline, log, latest), reconcile=reconcile)
    shown = _find_published(pipeline, state)
    version = publish(pipeline.store, manifest, latest.manifest or "", shown, how)
    ledger.commit(lambda state: transitions.record_publication(state, latest.id, version, now()))
    _log.info("%s: snapshot %d is version %d of the table", log, latest.id, version)
    shorten_log(pipeline.store, log, version)
    return latest.id


def require_as_published(pipeline: Pipeline, state: LogState) -> None:
    """Raises RefusedError (FOREIGN_COMMIT) if readers see what another program committed since the last publication.

    Raises CorruptError if the table is missing. One request, and more only if the table has versions of others.
    """
    ledger = pipeline.ledger(state.log)
    if not ledger.has_foreign_commits(state):
        return
    # A commit of tidefold that the ledger does not know is another error.
    ledger.require_current(state)
    shown = _find_published(pipeline, state)
    if shown is None:
        return
    path = LogPaths(state.log).table
    with convert_errors(path):
        require_untouched(pipeline.store, open_table(pipeline.store, path), shown.manifest, shown, waits=False)


def _find_published(pipeline: Pipeline, state: LogState) -> Published | None:
    """Returns the snapshot that the table shows: the newest published one."""
    last = next((s for s in reversed(state.snapshots) if s.published), None)
    if last is None or last.table_version is None:
        return None
    return Published(read_manifest_or_copy(pipeline, state.log, last), last.table_version)
