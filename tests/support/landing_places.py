"""Runs tests of landed files on this disk, and with the same files as objects in each object store.

A test writes, removes and renames files on the disk. For an object store its log reads a bucket, and before each
listing of a folder the bucket is made like it: what was written is put, what is gone is deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

from tidefold.config import load
from tidefold.sources.landing.folders import ListedFile
from tidefold.sources.landing.object_folder import ObjectFolder

# The fixtures of their buckets have the same names.
OBJECT_STORES = ("s3", "azure_landing", "gcs")
PLACES = ("disk", *OBJECT_STORES)
# Of tests that are about links, folders or times of a disk.
DISK_ONLY = "disk_only"


class LandingBucket(Protocol):
    """A bucket of a test."""

    @property
    def root(self) -> str:
        """Its address, without a slash at the end."""
        ...

    def put(self, key: str, data: bytes) -> None: ...

    def delete(self, key: str) -> None: ...


@dataclass
class MirroredFolder:
    """A folder of the disk and the bucket that is made like it."""

    root: Path
    bucket: LandingBucket
    known: dict[str, tuple[bytes, float]] = field(default_factory=dict)

    def address_of(self, path: str) -> str:
        """Where a folder of the disk lies in the bucket; a folder elsewhere stays where it is."""
        below = Path(path)
        is_below = below.is_relative_to(self.root) and below != self.root
        return f"{self.bucket.root}/{below.relative_to(self.root)}" if is_below else path

    def mirror(self, address: str) -> None:
        prefix = address.removeprefix(f"{self.bucket.root}/")
        folder = self.root / prefix
        files = [path for path in folder.rglob("*") if path.is_file()]
        found = {str(p.relative_to(self.root)): (p.read_bytes(), p.stat().st_mtime) for p in files}
        if folder.is_dir():
            found[f"{prefix}/.keep"] = (b"", 0.0)
        for key in [key for key in self.known if key.startswith(f"{prefix}/") and key not in found]:
            self.bucket.delete(key)
            del self.known[key]
        for key, content in found.items():
            if self.known.get(key) != content:
                self.bucket.put(key, content[0])
        self.known |= found


def mirror_landing(root: Path, bucket: LandingBucket, monkeypatch: pytest.MonkeyPatch) -> MirroredFolder:
    """From now on logs whose folder lies below `root` read the same files from the bucket."""
    mirrored = MirroredFolder(root, bucket)
    read_source, list_files = load._source, ObjectFolder.list_files

    def read(*given: Any) -> Any:
        source = read_source(*given)
        return source.model_copy(update={"address": mirrored.address_of(source.address)}) if source else None

    def listed(self: ObjectFolder, known: Collection[str] = ()) -> Iterator[ListedFile]:
        mirrored.mirror(self.address)
        return list_files(self, known)

    monkeypatch.setattr(load, "_source", read)
    monkeypatch.setattr(ObjectFolder, "list_files", listed)
    return mirrored
