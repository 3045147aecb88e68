"""The places where files land, for the suite that runs on each of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tidefold.storage import open_store

# Each is the name of a fixture that gives an empty place.
OBJECT_STORES = ("s3", "azure_landing", "gcs")
PLACES = ("disk", "sftp", *OBJECT_STORES)


class LandingBucket(Protocol):
    """A bucket of a test."""

    @property
    def root(self) -> str:
        """Its address, without a slash at the end."""
        ...

    def put(self, key: str, data: bytes) -> None: ...

    def delete(self, key: str) -> None: ...


@dataclass(frozen=True)
class DiskBucket:
    """A folder of this disk."""

    folder: Path

    @property
    def root(self) -> str:
        return str(self.folder)

    def put(self, key: str, data: bytes) -> None:
        """Writes a new file, which replaces one of this name."""
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        new = self.folder / "new"
        new.write_bytes(data)
        new.replace(path)

    def delete(self, key: str) -> None:
        (self.folder / key).unlink()


def root_of_tables(bucket: LandingBucket) -> str:
    """Where a bucket's Delta tables are read: not over SFTP."""
    return str(bucket.folder) if isinstance(bucket, DiskBucket) else bucket.root


def delta_options(address: str) -> dict[str, str]:
    """The options of deltalake for a table at an address."""
    return open_store(address, Path("/")).options()
