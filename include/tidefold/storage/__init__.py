"""The only access to stored bytes."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from tidefold.storage.cloud_address import SCHEMES
from tidefold.storage.local_store import LocalStore
from tidefold.storage.store import (
    SizedStore,
    Store,
    StoredObject,
    compute_sha256,
    count_freed,
    delete_files,
    files_at_once,
    find_sizes,
    is_lost_by_disk,
    link_data_file,
    logs_at_once,
)

__all__ = [
    "SizedStore",
    "Store",
    "StoredObject",
    "compute_sha256",
    "count_freed",
    "delete_files",
    "files_at_once",
    "find_sizes",
    "is_lost_by_disk",
    "link_data_file",
    "logs_at_once",
    "open_store",
]


def open_store(address: str, base: Path) -> Store:
    """Opens the store at an address: a path (relative to `base`), `file:///path`, `s3://bucket/folder`,
    `abfss://container@account.dfs.core.windows.net/folder`, `gs://bucket/folder`, or an address of a
    store that an installed package brings.

    Raises InvalidInputError for any other scheme: only a store whose conditional put is proved can be used.
    """
    scheme = urlsplit(address).scheme
    if scheme == "":
        return LocalStore(base / address)
    if scheme == "file" and address.startswith("file:///"):
        return LocalStore(Path(address.removeprefix("file://")))
    if scheme in SCHEMES:
        # The client is loaded only if it is used.
        from tidefold.storage.cloud import CloudStore

        return CloudStore(address)
    from tidefold.storage.addresses import open_plugin

    return open_plugin(scheme, address)
