"""Measures one way of folding: seconds, bytes and files written, memory; and checks what it made."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import statistics
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pyarrow as pa

from fold_data import Case, checksum, link_tree, table_of
from tables import seconds, spread

_INTERVAL = 0.05


@dataclass(slots=True)
class Use:
    """What a process tree used: peak bytes of the JVM and of all others (a page that two share counts twice), and
    seconds of CPU time.
    """

    java: int = 0
    others: int = 0
    cpu: float = 0.0

    def sample(self, tree: psutil.Process) -> None:
        java = others = 0
        for process in _processes(tree):
            try:
                size = process.memory_info().rss
                if process.name() == "java":
                    java += size
                elif not process.exe().endswith("/java"):
                    # What a thread of the JVM has just forked shows the memory of the JVM as its own.
                    others += size
            except psutil.Error:
                continue
        self.java, self.others = max(self.java, java), max(self.others, others)


@dataclass(slots=True)
class Way:
    """A way of folding: `act` folds the changes of a case into the copy of its store at a path, `prepare` is not timed.

    `alone`: it runs in a new process; `process`: the one that it runs in otherwise. `checked` tells another way to read
    the result than its active files. `folder`: the name of that of its copy; none: another each time, as processes that
    live on keep what they read of a snapshot.
    """

    name: str
    act: Callable[[Path, Case], object]
    prepare: Callable[[Path], object] = lambda root: None
    alone: bool = False
    checked: Callable[[Path], tuple[int, int]] = lambda root: checksum(table_of(root))
    process: Callable[[], psutil.Process] = psutil.Process
    folder: str = ""
    seconds: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    use: list[Use] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def line(self, best: float) -> str:
        java, others = max(m.java for m in self.use), max(m.others for m in self.use)
        memory = f"{others / 1e6:,.0f} MB" + (f" + JVM {java / 1e6:,.0f} MB" if java else "")
        cpu = statistics.median(use.cpu for use in self.use)
        written = f"{statistics.median(self.bytes) / 1e6:,.1f} MB | {statistics.median(self.files):,.0f}"
        return (
            f"| {self.name} | {self.median:,.3g} s | {spread(self.seconds)} | {self.median / best:,.2f} | "
            f"{cpu:,.3g} s | {written} | {memory} |"
        )


def measure(way: Way, case: Case, scratch: Path) -> None:
    """Runs the way once on a copy. Raises SystemExit when other rows came out than should."""
    root = scratch / (way.folder or uuid.uuid4().hex)
    link_tree(case.root, root)
    way.prepare(root)
    before = _inodes(root)
    os.sync()
    taken, use = _alone(way, root, case) if way.alone else _here(way, root, case)
    new = [size for inode, size in _inodes(root).items() if inode not in before]
    # The rows of every run are checked, outside of the time.
    if way.checked(root) != case.checksum:
        raise SystemExit(f"{way.name}: other rows than the changes make")
    pa.default_memory_pool().release_unused()
    way.seconds.append(taken)
    way.bytes.append(sum(new))
    way.files.append(len(new))
    way.use.append(use)
    shutil.rmtree(root)


def sync_new(root: Path, before: set[Path]) -> None:
    """What a way's library wrote and did not sync, and the folders that name it."""
    new = all_files(root) - before
    for path in sorted(new | {path.parent for path in new}):
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def all_files(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.is_file()}


def _inodes(root: Path) -> dict[int, int]:
    found = [path.stat() for path in all_files(root)]
    return {one.st_ino: one.st_size for one in found}


def _here(way: Way, root: Path, case: Case) -> tuple[float, Use]:
    use = Use()
    with sample_use(use, way.process()):
        taken = seconds(lambda: way.act(root, case))
    return taken, use


@contextmanager
def sample_use(use: Use, tree: psutil.Process) -> Iterator[None]:
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(_INTERVAL):
            use.sample(tree)

    thread = threading.Thread(target=run)
    thread.start()
    begun = _cpu(tree)
    try:
        yield
        use.cpu = _cpu(tree) - begun
    finally:
        ended.set()
        thread.join()


def _processes(tree: psutil.Process) -> Iterator[psutil.Process]:
    """A process and all below it, but not the peers, which run in sessions of their own."""
    with suppress(ProcessLookupError, psutil.NoSuchProcess):
        session = os.getsid(tree.pid)
        for process in (tree, *tree.children(recursive=True)):
            with suppress(ProcessLookupError):
                if os.getsid(process.pid) == session:
                    yield process


def _cpu(tree: psutil.Process) -> float:
    """Seconds of CPU time so far, of live processes and of the children that they have waited for."""
    found = 0.0
    for process in _processes(tree):
        with suppress(psutil.Error):
            times = process.cpu_times()
            found += times.user + times.system + times.children_user + times.children_system
    return found


def _alone(way: Way, root: Path, case: Case) -> tuple[float, Use]:
    """In a new process, whose imports are done before the clock starts: its peak is that of the way alone."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(theirs, way.act, root, case))
    process.start()
    theirs.close()
    taken, use = ours.recv()
    process.join()
    return taken, use


def _child(answer: Connection, act: Callable[[Path, Case], object], root: Path, case: Case) -> None:
    use = Use()
    with sample_use(use, psutil.Process()):
        taken = seconds(lambda: act(root, case))
    answer.send((taken, use))
