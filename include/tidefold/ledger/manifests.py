"""Manifests of snapshots: stored once under their id, named by the ledger by their sha256."""

from __future__ import annotations

import msgspec

from tidefold.ledger.documents import checked, decode, digest_of, read_named
from tidefold.lifecycle.integrity import check_manifest
from tidefold.lifecycle.manifest import Manifest
from tidefold.lifecycle.names import LogPaths
from tidefold.lifecycle.values import Snapshot
from tidefold.storage import Store


def read_manifest(store: Store, log: str, snapshot: Snapshot) -> Manifest:
    """The manifest that the ledger names; CorruptError when its bytes are not those that were staged."""
    return read_manifest_at(store, LogPaths(log).manifest(snapshot.id), snapshot)


def read_manifest_at(store: Store, path: str, snapshot: Snapshot) -> Manifest:
    """The same from another place, such as a local copy."""
    return check_manifest(
        decode(path, checked(path, read_named(store, path), snapshot.manifest or ""), Manifest), snapshot
    )


def write_manifest(store: Store, manifest: Manifest) -> str:
    """Stores a manifest under its snapshot's id, once, and answers its sha256."""
    data = msgspec.json.encode(manifest)
    store.put_if_absent(LogPaths(manifest.log).manifest(manifest.snapshot), data)
    return digest_of(data)
