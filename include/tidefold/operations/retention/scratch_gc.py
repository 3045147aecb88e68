"""Finds and deletes files of ended processes in scratch folders of this machine, after days without a change."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from tidefold.storage.scratch import PATTERN, is_owner_alive

# Folders beside the configuration whose entries each belong to one process or job.
_FOLDERS = ("spark", "results", "log")


def find_scratch(base: Path, instant: str, days: int) -> tuple[Path, ...]:
    """Returns entries of scratch folders that have not changed, with everything below them, for so many days.

    base: the folder of the configuration.
    instant: now, as ISO 8601; a slow clock only delays the deletion. A folder of a live process is never deleted.
    """
    limit = (datetime.fromisoformat(instant) - timedelta(days=days)).timestamp()
    entries = [entry for name in _FOLDERS for entry in _entries(base / "var" / name, "*")]
    entries += [e for e in _entries(Path(tempfile.gettempdir()), PATTERN) if not is_owner_alive(e.name)]
    return tuple(sorted(entry for entry in entries if _is_left(entry, limit)))


def remove_scratch(entries: tuple[Path, ...]) -> None:
    """Deletes entries, and folders with everything in them. Follows no links."""
    for entry in entries:
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(entry.lstat().st_mode):
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()


def _entries(folder: Path, pattern: str) -> Iterator[Path]:
    try:
        yield from folder.glob(pattern)
    except OSError:
        return  # The folder does not exist, or belongs to another user.


def _is_left(entry: Path, limit: float) -> bool:
    """Whether an entry belongs to tidefold, and has not changed since the limit."""
    try:
        if entry.lstat().st_uid != os.getuid():
            return False
        paths = [entry, *(entry.rglob("*") if stat.S_ISDIR(entry.lstat().st_mode) else ())]
        return all(path.lstat().st_mtime < limit for path in paths)
    except OSError:
        return False  # A process may be writing there. The next call checks again.
