"""Reads the manifest of a snapshot: from the store, or from a local copy."""

from __future__ import annotations

import logging

from tidefold.domain.log_state import Snapshot
from tidefold.domain.paths import LogPaths
from tidefold.domain.retention.local_copies import CopyName
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.storage_tier import StorageTier
from tidefold.errors import CorruptError
from tidefold.fold.inputs import Inputs
from tidefold.fold.plan import Address
from tidefold.fold.source_places import SourcePlaces
from tidefold.ledger import read_manifest, read_manifest_at
from tidefold.operations.local_copies.manage import places_of
from tidefold.operations.pipeline import Pipeline

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
