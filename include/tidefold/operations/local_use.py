"""What local copies take on this machine's disks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidefold.lifecycle.errors import TidefoldError
from tidefold.lifecycle.local_copies import CopyName, LocalFile, bytes_on_disk, segment_of
from tidefold.operations.pipeline import Pipeline

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RootUse:
    """A root, the bytes that copies of this pipeline take in it, and why it cannot be looked at, if it cannot."""

    path: str
    bytes: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class LocalUse:
    """Bytes on disk: a file that copies share by hard links counts once. `logs`: of the snapshots of each log,
    `segments`: of the copies of segments, which logs share.
    """

    bytes: int
    quota: int | None
    roots: tuple[RootUse, ...]
    logs: Mapping[str, int]
    segments: int


def _absent(path: str) -> str | None:
    """A folder that is not there is one in which no copy was made yet, or the empty place of a disk that is away."""
    return None if Path(path).is_dir() else "it is not there; is its disk mounted? The next copy makes it anew"


def local_use(pipeline: Pipeline) -> LocalUse | None:
    """What lies in the roots that can be looked at; None while local copies are disabled."""
    local = pipeline.local
    if local is None:
        return None
    files: list[LocalFile] = []
    snapshots: dict[str, list[LocalFile]] = {}
    try:
        for file in local.files():
            name = CopyName.of(file.path)
            if name:
                snapshots.setdefault(name.log, []).append(file)
            if name or segment_of(file.path):
                files.append(file)
    except TidefoldError as error:
        _log.warning("local copies cannot be looked at: %s", error)
    return LocalUse(
        bytes=bytes_on_disk(files),
        quota=pipeline.config.local.quota_bytes,
        roots=tuple(
            RootUse(
                path, bytes_on_disk(f for f in files if f.root == path), local.unreadable.get(path) or _absent(path)
            )
            for path in (str(root.root) for root in local.roots)
        ),
        logs={log: bytes_on_disk(found) for log, found in sorted(snapshots.items())},
        segments=bytes_on_disk(f for f in files if segment_of(f.path)),
    )
