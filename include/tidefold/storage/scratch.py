"""Scratch folders of this process below the machine's folder for temporary files."""

from __future__ import annotations

import os
import re
import tempfile

PATTERN = "tidefold-*"
_OWNED = re.compile(r"tidefold-p(\d+)-.+")


def open_scratch() -> tempfile.TemporaryDirectory[str]:
    """Returns a folder that is deleted with its context. Its name contains the process that owns it."""
    return tempfile.TemporaryDirectory(prefix=f"tidefold-p{os.getpid()}-")


def is_owner_alive(name: str) -> bool:
    """Whether the process that owns a scratch folder still exists. A name without a process has no owner."""
    owned = _OWNED.fullmatch(name)
    if owned is None:
        return False
    try:
        os.kill(int(owned[1]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
