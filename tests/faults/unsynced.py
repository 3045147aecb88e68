"""Loses what was not synced: `python -m faults.unsynced [EVERY]`. Promise I21.

A recorder sees every call of one process that changes files. A power cut may come after each of them. Then every subset
of what was not synced by then may be lost: names in a folder until that folder is synced, the bytes of a file until the
file is synced. Each distinct store that can be left is opened again.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from threading import RLock
from typing import Any
from unittest import mock

from faults.product import (
    LOG,
    Rows,
    acknowledged_state,
    configure,
    land,
    opens_whole,
    rows_landed,
    table_rows,
    tidefold,
)

# Of more operations that are not synced at once, so many are kept or lost together.
_MOST = 6


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the file system.

    act: `name` (a name in a folder), `gone` (a name that is removed), `bytes` (of a file), `folder` (a new folder).
    path: relative to the root; of `bytes` the number of the file.
    file: the number of the file that the name is for.
    """

    act: str
    path: str
    file: int = 0
    new: str = ""


@dataclass
class Step:
    """A change, or a sync of a file (`file`) or of a folder (`folder`), or an acknowledgement (`said`)."""

    change: Change | None = None
    file: int = 0
    folder: str | None = None
    said: Any = None


@dataclass
class Recorder:
    """Records the calls that change files below `root`."""

    root: Path
    steps: list[Step] = field(default_factory=list)
    contents: dict[int, bytes] = field(default_factory=dict)
    known: set[str] = field(default_factory=lambda: {"."})
    numbers: dict[int, int] = field(default_factory=dict)
    lock: RLock = field(default_factory=RLock)

    def _below(self, path: Any) -> str | None:
        """The path relative to the root, of what lies in the store; the root is `.`."""
        full = os.path.abspath(os.fspath(path))
        if full == str(self.root):
            return "."
        below = full.removeprefix(f"{self.root}{os.sep}")
        return below if below != full and below.split(os.sep)[0] == "store" else None

    def _number(self, inode: int, is_new: bool = False) -> int:
        """The number of a file. A file system gives the inode of a removed file to another one."""
        if is_new or inode not in self.numbers:
            self.numbers[inode] = len(self.numbers) + 1 + len(self.steps)
        return self.numbers[inode]

    def _add(self, change: Change) -> None:
        self.steps.append(Step(change))

    def _meet(self, below: str) -> None:
        """Notes a file or folder that another library made."""
        for parent in [*[str(p) for p in reversed(Path(below).parents)][1:], below]:
            if parent in self.known or not (self.root / parent).exists():
                continue
            self.known.add(parent)
            found = (self.root / parent).stat()
            if stat.S_ISDIR(found.st_mode):
                self._add(Change("folder", parent))
            else:
                number = self._number(found.st_ino, is_new=True)
                self._add(Change("name", parent, number))
                self.contents[number] = (self.root / parent).read_bytes()
                self._add(Change("bytes", str(number), number))

    def _after(self, call: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        def act(*arguments: Any, **named: Any) -> Any:
            with self.lock:
                answer = call(*arguments, **named)
                note(answer, *arguments)
                return answer

        return act

    def _opened(self, handle: int, path: Any, flags: int, *_: Any) -> None:
        if flags & os.O_CREAT and isinstance(path, str) and (below := self._below(path)) and below not in self.known:
            self.known.add(below)
            self._add(Change("name", below, self._number(os.fstat(handle).st_ino, is_new=True)))

    def _linked(self, _: Any, source: Any, target: Any) -> None:
        if below := self._below(target):
            self.known.add(below)
            self._add(Change("name", below, self._number(os.stat(target).st_ino)))

    def _unlinked(self, _: Any, path: Any) -> None:
        if below := self._below(path):
            self.known.discard(below)
            self._add(Change("gone", below))

    def _made(self, _: Any, path: Any, *more: Any) -> None:
        if below := self._below(path):
            self.known.add(below)
            self._add(Change("folder", below))

    def _renamed(self, _: Any, source: Any, target: Any) -> None:
        old, new = self._below(source), self._below(target)
        if old and new:
            self.known = {k for k in self.known if k != old} | {new}
            self._add(Change("moved", old, self._number(os.stat(target).st_ino), new))

    def _synced(self, _: Any, handle: int) -> None:
        below = self._below(os.readlink(f"/proc/self/fd/{handle}"))
        found = os.fstat(handle)
        if below is None:
            return
        self._meet(below)
        if stat.S_ISDIR(found.st_mode):
            self.steps.append(Step(folder=below))
        else:
            number = self._number(found.st_ino)
            if number not in self.contents:
                self.contents[number] = Path(f"/proc/self/fd/{handle}").read_bytes()
                self._add(Change("bytes", str(number), number))
            self.steps.append(Step(file=number))

    def acknowledge(self, said: Any) -> None:
        """A command has ended: what it said must outlive a power cut from now on."""
        self.steps.append(Step(said=said))

    @contextmanager
    def recording(self) -> Iterator[None]:
        notes = {
            "open": self._opened,
            "link": self._linked,
            "unlink": self._unlinked,
            "rmdir": self._unlinked,
            "mkdir": self._made,
            "replace": self._renamed,
            "rename": self._renamed,
            "fsync": self._synced,
        }
        patches = [mock.patch.object(os, name, self._after(getattr(os, name), note)) for name, note in notes.items()]
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in patches:
                one.stop()


@dataclass(frozen=True, slots=True)
class Left:
    """What a power cut leaves: names with the numbers of their files (0: a folder), and whose bytes are there."""

    names: frozenset[tuple[str, int]]
    whole: frozenset[int]
    said: Any


def find_left(recorder: Recorder) -> Iterator[Left]:
    """Every distinct store that a power cut after any step can leave, the newest acknowledgement with it."""
    names, whole, pending, said = dict[str, int](), set[int](), list[Change](), None
    seen: set[tuple[frozenset[tuple[str, int]], frozenset[int], int]] = set()
    for step in recorder.steps:
        if step.change:
            pending.append(step.change)
        elif step.file:
            whole |= {c.file for c in pending if c.act == "bytes" and c.file == step.file}
            pending = [c for c in pending if not (c.act == "bytes" and c.file == step.file)]
        elif step.folder is not None:
            lasting = [c for c in pending if c.act != "bytes" and str(Path(c.path).parent) == step.folder]
            names = _apply(names, lasting)
            pending = [c for c in pending if c not in lasting]
        if step.said is not None:
            said = step.said
        for kept in _subsets(pending):
            found = frozenset(_reachable(_apply(names, [c for c in kept if c.act != "bytes"])).items())
            files = {file for _, file in found}
            there = frozenset((whole | {c.file for c in kept if c.act == "bytes"}) & files)
            key = (found, there, hash(repr(said)))
            if key not in seen:
                seen.add(key)
                yield Left(found, there, said)


def _subsets(pending: list[Change]) -> Iterator[list[Change]]:
    """All subsets in their order; of many changes the oldest are kept or lost together."""
    old, new = pending[:-_MOST], pending[-_MOST:]
    for count in range(len(new) + 1):
        for chosen in combinations(new, count):
            yield [*old, *chosen]
            if old:
                yield list(chosen)


def _apply(names: dict[str, int], changes: list[Change]) -> dict[str, int]:
    left = dict(names)
    for one in changes:
        if one.act == "gone":
            left.pop(one.path, None)
        elif one.act == "moved":
            left.pop(one.path, None)
            left[one.new] = one.file
        else:
            left[one.path] = one.file
    return left


def _reachable(names: dict[str, int]) -> dict[str, int]:
    """Without what lies in folders that are lost."""
    folders = {"."}
    left = {}
    for path in sorted(names):
        if str(Path(path).parent) in folders:
            left[path] = names[path]
            if not names[path]:
                folders.add(path)
    return left


def lay_out(left: Left, blobs: Path, root: Path) -> None:
    """Makes the store that is left: files whose bytes were lost are empty."""
    shutil.rmtree(root / "store", ignore_errors=True)
    for path, file in sorted(left.names):
        target = root / path
        if not file:
            target.mkdir(exist_ok=True)
        elif file in left.whole:
            os.link(blobs / str(file), target)
        else:
            target.write_bytes(b"")


@dataclass
class Found:
    """What a run found. `states`: distinct stores that can be left; `opened`: how many of them were looked at."""

    steps: int = 0
    states: int = 0
    opened: int = 0
    continued: int = 0
    wrong: list[str] = field(default_factory=list)


COMMANDS = (
    f"step ingest {LOG}",
    f"step materialize {LOG} --run second",
    f"step quality {LOG}",
    f"step confirm {LOG}",
    f"snapshot hold {LOG} audit 2 --reason why",
    f"retain subsume {LOG}",
    f"retain truncate {LOG}",
)


def play(every: int = 1, continues: int = 10, ends_at_first: bool = False) -> Found:
    """Records a life and opens each `every`th store that a power cut can leave; each `continues`th of these goes on.

    ends_at_first: nothing is opened after a store that is wrong.
    """
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        return _play(Path(folder).resolve(), every, continues, ends_at_first)


def _play(folder: Path, every: int, continues: int, ends_at_first: bool) -> Found:
    root = folder / "case"
    root.mkdir()
    configure(root, local=False)
    land(root, LOG, 0, [(1, "c"), (2, "c"), (3, "c")])
    recorder = Recorder(root)
    shown: list[Rows | None] = [None]
    with recorder.recording():
        _run(root, recorder, f"run {LOG} --run first", shown)
        land(root, LOG, 3, [(1, "u"), (4, "c"), (2, "d")])
        for command in COMMANDS:
            _run(root, recorder, command, shown)
    found, blobs = Found(len(recorder.steps)), folder / "blobs"
    blobs.mkdir()
    for number, data in recorder.contents.items():
        (blobs / str(number)).write_bytes(data)
    for number, left in enumerate(find_left(recorder)):
        found.states += 1
        if number % every == 0:
            found.opened += 1
            lay_out(left, blobs, root)
            wrong = _look(root, left.said, shown, goes_on=found.opened % continues == 1 % continues)
            found.continued += found.opened % continues == 1 % continues
            found.wrong += [f"state {number}, after {left.said}: {one}" for one in wrong]
            if wrong and ends_at_first:
                break
    return found


def _run(root: Path, recorder: Recorder, command: str, shown: list[Rows | None]) -> None:
    said = tidefold(root, command)
    assert said.exit == 0, said.text
    rows = table_rows(str(root / "store" / "tables" / LOG))
    if rows not in shown:
        shown.append(rows)
    recorder.acknowledge((command, acknowledged_state(root, LOG), shown.index(rows)))


def _look(root: Path, said: Any, shown: list[Rows | None], goes_on: bool) -> list[str]:
    """What is wrong with a store after a power cut."""
    _, acknowledged, visible = said or ("", 0, 0)
    wrong = opens_whole(root, LOG, acknowledged)
    table = root / "store" / "tables" / LOG
    rows = table_rows(str(table)) if visible or (table / "_delta_log").is_dir() else None
    if rows not in shown[visible:]:
        wrong.append(f"a reader sees {rows}, and {shown[visible]} was acknowledged")
    if goes_on and not wrong:
        after = tidefold(root, f"run {LOG} --takeover")
        if after.exit or table_rows(str(table)) != rows_landed(root, LOG):
            wrong.append(f"the next run: {after.word}: {after.text[-800:]}")
    return wrong


def main(every: int = 1) -> int:
    from faults.page import record

    began = time.monotonic()
    found = play(every)
    print(
        f"{found.steps} steps, {found.states} states, {found.opened} opened, {found.continued} went on, "
        f"{len(found.wrong)} wrong, {time.monotonic() - began:.0f} s"
    )
    for one in found.wrong[:20]:
        print(one[:1500])
    record(
        "unsynced",
        {"states": found.states, "opened": found.opened, "continued": found.continued, "wrong": len(found.wrong)},
    )
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
