"""What processes use, those included that nobody waits for: Spark's Python workers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

# Half a second of a process that ends may be missing.
_INTERVAL = 0.5


@dataclass(slots=True)
class Used:
    """Seconds, and the most bytes at one time; a page that two processes share counts half for each.

    java: of the JVMs. others: of all others. largest: of one of these. load: before and after.
    """

    wall: float = 0.0
    cpu: float = 0.0
    java: int = 0
    others: int = 0
    largest: int = 0
    load: tuple[float, float] = (0.0, 0.0)

    def sample_memory(self, processes: Sequence[psutil.Process]) -> None:
        with suppress(psutil.Error):
            sizes = [(one.name(), one.memory_full_info().pss) for one in processes]
            others = [size for name, size in sizes if name != "java"]
            self.java = max(self.java, sum(size for name, size in sizes if name == "java"))
            self.others, self.largest = max(self.others, sum(others)), max(self.largest, *others, 0)


@contextmanager
def measure_use(*trees: psutil.Process) -> Iterator[Used]:
    """Yields what all processes of the trees use meanwhile. Call `adopt_orphans` first.

    The CPU seconds of a process are those that it had when it was seen last. This process itself does not count.
    """
    ended, used = threading.Event(), Used()
    began, load, before = time.time(), os.getloadavg()[0], _read_cpu(_list(trees))
    seen = dict(before)

    def run() -> None:
        while not ended.wait(_INTERVAL):
            processes = _list(trees)
            seen.update(_read_cpu(processes))
            used.sample_memory(processes)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield used
    finally:
        ended.set()
        thread.join()
        seen.update(_read_cpu(_list(trees)))
        used.wall, used.load = time.time() - began, (load, os.getloadavg()[0])
        used.cpu = sum(seen.values()) - sum(before.values())


def _list(trees: Sequence[psutil.Process]) -> list[psutil.Process]:
    found = {}
    for tree in trees:
        with suppress(psutil.Error):
            found.update({one.pid: one for one in (tree, *tree.children(recursive=True))})
    found.pop(os.getpid(), None)
    return list(found.values())


def _read_cpu(processes: Sequence[psutil.Process]) -> dict[int, float]:
    found = {}
    for process in processes:
        with suppress(psutil.Error):
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found
