"""The ledger of a log: the authoritative state, stored beside the data."""

from __future__ import annotations

from tidefold.ledger.ledger import Compared, Ledger, Versions
from tidefold.ledger.pages import Chunk
from tidefold.ledger.serialization import (
    decode_manifest,
    digest_of,
    read_description,
    read_manifest,
    read_manifest_at,
    write_description,
    write_manifest,
)

__all__ = [
    "Chunk",
    "Compared",
    "Ledger",
    "Versions",
    "decode_manifest",
    "digest_of",
    "read_description",
    "read_manifest",
    "read_manifest_at",
    "write_description",
    "write_manifest",
]
