"""What every commit of tidefold to a Delta table contains: file actions, facts and transactions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from deltalake import CommitProperties, Transaction
from deltalake.transaction import AddAction

from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.ledger.evidence import ATTEMPT_FACT, EPOCH_FACT, MANIFEST_FACT, SNAPSHOT_FACT, transactions_of

NO_FACTS: Mapping[str, str] = MappingProxyType({})


def make_add_action(file: DataFile) -> AddAction:
    """Returns the action that adds a data file to a table."""
    return AddAction(f"_data/{file.name}", file.bytes, {}, get_millis(), True, file.stats)


def get_millis() -> int:
    """Returns the current time of a file action. It is only information: no decision depends on it."""
    return int(time.time() * 1000)


def list_facts(manifest: Manifest, digest: str) -> dict[str, str]:
    """Returns the facts by which tidefold recognizes its commits."""
    return {
        SNAPSHOT_FACT: str(manifest.snapshot),
        MANIFEST_FACT: digest,
        EPOCH_FACT: str(manifest.epoch),
        "tidefold.sqn": str(manifest.to_sqn),
        **({ATTEMPT_FACT: manifest.token} if manifest.token else {}),
    }


def list_transactions(manifest: Manifest, digest: str) -> dict[str, int]:
    """Returns the transactions that the table keeps for good; none for the table of a snapshot."""
    return transactions_of(manifest.log, manifest.snapshot, manifest.epoch, digest) if digest else {}


def make_properties(manifest: Manifest, digest: str, further: Mapping[str, str] = NO_FACTS) -> CommitProperties:
    """Returns the properties of a commit through deltalake: facts and transactions."""
    facts: dict[str, Any] = {**list_facts(manifest, digest), **further}
    kept = [Transaction(app, version) for app, version in list_transactions(manifest, digest).items()]
    # Never retried by the library: a conflict means that ledger and table are read again first.
    return CommitProperties(custom_metadata=facts, max_commit_retries=0, app_transactions=kept)
