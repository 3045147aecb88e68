"""Scratch folders of this process below the machine's folder for temporary files."""

from __future__ import annotations

import os
import re
import tempfile

PATTERN = "tidefold-*"
_OWNED = re.compile(r"tidefold-p(\d+)-.+")


def open_scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder that is removed with its context. Its name says which process owns it."""
    return tempfile.TemporaryDirectory(prefix=f"tidefold-p{os.getpid()}-")


def is_owner_alive(name: str) -> bool:
    """Whether the process that owns a scratch folder is still there. Names that tell no process have no owner."""
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
