"""CPU seconds of this process, of children that have ended, and of children that still run (Linux; elsewhere without
these).
"""

from __future__ import annotations

import ctypes
import os
import resource
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Makes processes whose parent ends children of this one, so that their CPU seconds are counted here (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def measure_tree() -> float:
    """Returns the CPU seconds of this process and of all that it started, ended or not."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    return seconds + sum(map(measure_running, _list_children(os.getpid())))


def measure_running(pid: int) -> float:
    """Returns the CPU seconds of a process that runs, and of all that it started."""
    try:
        # The command's name, in parentheses, may hold spaces. Fields 14 to 17 of the file: utime to cstime.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
    except OSError:
        return 0.0
    return sum(map(int, fields)) / _TICKS + sum(map(measure_running, _list_children(pid)))


def _list_children(pid: int) -> list[int]:
    children: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            children.extend(map(int, thread.read_text().split()))
    return children
