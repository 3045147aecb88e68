"""Where the files and segments of a plan may be, in the order in which a task tries them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidefold.domain.paths import data_path
from tidefold.domain.retention.local_copies import CopyName
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.domain.storage_tier import StorageTier
from tidefold.fold.plan import Address, Input


@dataclass(frozen=True, slots=True)
class SourcePlaces:
    """Addresses for a plan.

    local: the local root of each snapshot that has a copy here.
    segments: the local copies of segments.
    external: originals of imported files, by their sha256.
    """

    store: str
    local: Mapping[int, str] = field(default_factory=dict)
    segments: str | None = None
    external: Mapping[str, Address] = field(default_factory=dict)

    def inputs(self, base: Manifest, files: Sequence[DataFile], *folders: str) -> tuple[Input, ...]:
        """Returns files of a snapshot with all their addresses.

        Local copies come first, its own before others'. Then come these folders of the store, then originals.
        """
        near = sorted(self.local, key=lambda snapshot: (snapshot != base.snapshot, -snapshot))
        copies = [(self.local[snapshot], str(CopyName(base.log, snapshot))) for snapshot in near]
        return tuple(
            Input(
                file,
                (
                    *(Address(StorageTier.LOCAL, root, data_path(folder, file.name)) for root, folder in copies),
                    *(Address(StorageTier.STORE, self.store, data_path(f, file.name)) for f in dict.fromkeys(folders)),
                    *(self.external[key] for key in (file.sha256,) if key in self.external),
                ),
            )
            for file in files
        )

    @property
    def logs(self) -> tuple[Address, ...]:
        """Returns the addresses of segments, in order."""
        near = [] if self.segments is None else [Address(StorageTier.LOCAL, self.segments)]
        return (*near, Address(StorageTier.STORE, self.store))
