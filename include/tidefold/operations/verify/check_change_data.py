"""The files of a published table's change data feed: what its commits name must be there, with the same bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from tidefold.domain.log_state import Snapshot
from tidefold.domain.paths import LogPaths
from tidefold.domain.verify.expected_files import Expected, FileRole, StoredFile, StoredLocation
from tidefold.errors import NotFoundError
from tidefold.storage import Store
from tidefold.typed_json import decode_json


def list_change_files(
    store: Store, log: str, snapshots: Iterable[Snapshot], asked: Collection[int]
) -> tuple[StoredFile, ...]:
    """Returns the change files of the requested snapshots. A commit of an older program names no checksum ("")."""
    versions = {s.table_version: s.id for s in snapshots if s.table_version is not None and s.id in asked}
    return tuple(
        _describe_file(log, version, snapshot, action)
        for version, snapshot in sorted(versions.items())
        for action in _read_change_actions(store, log, version)
    )


def _describe_file(log: str, version: int, snapshot: int, action: Mapping[str, Any]) -> StoredFile:
    place = StoredLocation(f"{LogPaths(log).table}/{action['path']}")
    checksum = (action.get("tags") or {}).get("sha256", "")
    return StoredFile(FileRole.CHANGE_DATA, checksum, action["size"], (Expected(place, (snapshot,)),))


def _read_change_actions(store: Store, log: str, version: int) -> list[Mapping[str, Any]]:
    """Returns none if Delta's retention has deleted the commit, or if it is damaged: no reader finds its feed then.

    The check of the published table reports a damaged commit.
    """
    try:
        lines = store.read(f"{LogPaths(log).table}/_delta_log/{version:020d}.json").splitlines()
        actions = [decode_json(line, dict[str, Any]) for line in lines]
    except (NotFoundError, msgspec.DecodeError):
        return []
    return [action["cdc"] for action in actions if "cdc" in action]
