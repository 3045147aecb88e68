"""What a snapshot consists of, as it is stored once and never changed."""

from __future__ import annotations

from dataclasses import dataclass

from tidefold.lifecycle.key_groups import KeyGroups
from tidefold.lifecycle.names import LogPaths
from tidefold.lifecycle.values import Kind, Shape


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a snapshot. `stats` is the Delta statistics document; `carried`: taken over from the base."""

    name: str
    bytes: int
    rows: int
    sha256: str
    key_groups: KeyGroups
    stats: str
    carried: bool = False


@dataclass(frozen=True, slots=True)
class Manifest:
    """THE snapshot: its files and what they were made of. Immutable; the ledger names it by its sha256."""

    log: str
    snapshot: int
    epoch: int
    kind: Kind
    base: int | None
    from_sqn: int
    to_sqn: int
    shape: Shape
    files: tuple[DataFile, ...]

    @property
    def home(self) -> str:
        """Folder whose `_data/` holds the files: a full snapshot's own, else the table's, which many snapshots share."""
        paths = LogPaths(self.log)
        return paths.snapshot(self.snapshot) if self.kind is Kind.FULL else paths.table

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)

    @property
    def bytes_full(self) -> int:
        return sum(f.bytes for f in self.files)

    @property
    def bytes_written(self) -> int:
        return sum(f.bytes for f in self.files if not f.carried)
