"""Scratch folders on this machine that go also when their owner was killed: the next one who comes removes them."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_log = logging.getLogger(__name__)
_LOCK = ".lock"


@contextmanager
def scratch_name(parent: Path, name: str) -> Iterator[Path]:
    """A path below `parent` that is the caller's alone while the context lasts; what killed ones left is removed first.

    The system frees a lock when its owner ends, however that comes: a lock that can be had tells of a dead one.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(parent)
    lock = parent / f"{name}{_LOCK}"
    with lock.open("xb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield parent / name
        finally:
            lock.unlink(missing_ok=True)


def _remove_abandoned(parent: Path) -> None:
    for lock in sorted(parent.glob(f"*{_LOCK}")):
        # Gone meanwhile, or held: its owner lives.
        with suppress(OSError), lock.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(held.fileno()).st_nlink:
                shutil.rmtree(parent / lock.name.removesuffix(_LOCK), ignore_errors=True)
                lock.unlink()
                _log.info("removed what a killed process left: %s", lock.name.removesuffix(_LOCK))
