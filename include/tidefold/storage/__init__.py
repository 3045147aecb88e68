"""The only access to stored bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tidefold.errors import InvalidInputError
from tidefold.storage.azure.address import SCHEMES as AZURE_SCHEMES
from tidefold.storage.gcs.address import SCHEME as GCS_SCHEME
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
    "require_extra",
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
    if scheme in ("s3", *AZURE_SCHEMES, GCS_SCHEME) and os.environ.get("TIDEFOLD_OBSTORE"):
        from tidefold.storage.cloud import CloudStore

        return CloudStore(address)
    if scheme == "s3":
        # The client is loaded only if it is used.
        from tidefold.storage.s3.store import S3Store

        return S3Store(address)
    if scheme in AZURE_SCHEMES:
        with require_extra("azure", "Azure"):
            from tidefold.storage.azure.store import AzureStore
        return AzureStore(address)
    if scheme == GCS_SCHEME:
        with require_extra("gcs", "Google Cloud Storage"):
            from tidefold.storage.gcs.store import GcsStore
        return GcsStore(address)
    from tidefold.storage.addresses import open_plugin

    return open_plugin(scheme, address)


@contextmanager
def require_extra(extra: str, place: str) -> Iterator[None]:
    """Converts the error of a client that is not installed. Raises InvalidInputError, which names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            "STORE_EXTRA",
            f"Folders in {place} need the package `{error.name}`, which is not installed.",
            hint=f'Install it: `pip install "tidefold[{extra}]"`, also where Spark\'s tasks run.',
        ) from error
