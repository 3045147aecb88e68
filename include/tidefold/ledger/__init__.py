"""The one truth about a log, beside its data."""

from __future__ import annotations

from tidefold.ledger.descriptions import read_description, write_description
from tidefold.ledger.ledger import Ledger
from tidefold.ledger.manifests import read_manifest, read_manifest_at, write_manifest
from tidefold.ledger.pages import Chunk

__all__ = [
    "Chunk",
    "Ledger",
    "read_description",
    "read_manifest",
    "read_manifest_at",
    "write_description",
    "write_manifest",
]
