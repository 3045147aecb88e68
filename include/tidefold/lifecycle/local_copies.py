"""Names of local copies, and which of them stay. Pure.

One copy of a snapshot is enough here (I18): that of the newest completed one, whatever the primary store retains.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidefold.lifecycle.names import CHANGELOG
from tidefold.lifecycle.values import LogState

_ONGOING = ".ongoing"
_IN_COPY = re.compile(rf"([a-z][a-z0-9_]{{0,62}})/(\d{{10}})({re.escape(_ONGOING)})?/.+")
# A writer that was killed leaves its half under a longer name.
_SEGMENT = re.compile(rf"({CHANGELOG}/.+\.seg)(\.\w+\.part)?")


@dataclass(frozen=True, slots=True)
class CopyName:
    """Folder of the copy of one snapshot, relative to the pipeline's local folder. Until it is complete it has another
    name (L4).
    """

    log: str
    snapshot: int
    ongoing: bool = False

    def __str__(self) -> str:
        return f"{self.log}/{self.snapshot:010d}{_ONGOING if self.ongoing else ''}"

    @property
    def manifest(self) -> str:
        """Written last and removed first: without it there is no copy."""
        return f"{self}/manifest"

    @classmethod
    def of(cls, path: str) -> CopyName | None:
        """The copy that a file belongs to; None for a file that is part of none."""
        found = _IN_COPY.fullmatch(path)
        return cls(found[1], int(found[2]), found[3] is not None) if found else None


def segment_of(path: str) -> str | None:
    """The segment that a file is a copy of, whole or half; None for any other file."""
    found = _SEGMENT.fullmatch(path)
    return found[1] if found and CopyName.of(path) is None else None


def stays(state: LogState | None, name: CopyName) -> bool:
    """Whether local retention leaves a copy: of the newest completed snapshot, and of one that is being judged.

    A copy that is still being written stays as long as its snapshot is open; after that nobody will complete it.
    """
    attempt = state.attempt.id if state and state.attempt else None
    latest = state.latest.id if state and state.latest else None
    return name.snapshot == attempt or (name.snapshot == latest and not name.ongoing)


def segments_needed(state: LogState) -> frozenset[str]:
    """Segments whose local copies still serve the log: its newest completed snapshot did not fold all of them (C7)."""
    return frozenset(change_set.segment for change_set in state.unfolded)
