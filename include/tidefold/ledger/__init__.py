"""The ledgers of logs and sets: their authoritative states, stored beside the data."""

from __future__ import annotations

from tidefold.ledger.ledger import Ledger, SetLedger
from tidefold.ledger.serialization import (
    Items,
    decode_manifest,
    digest_of,
    read_description,
    read_manifest,
    read_manifest_at,
    write_description,
    write_manifest,
)
from tidefold.ledger.state_ledger import ComparedFields, Versions

__all__ = [
    "ComparedFields",
    "Items",
    "Ledger",
    "SetLedger",
    "Versions",
    "decode_manifest",
    "digest_of",
    "read_description",
    "read_manifest",
    "read_manifest_at",
    "write_description",
    "write_manifest",
]
