"""The fault matrix: every operation with every fault, then the next run; `python -m faults.matrix [share [operation]]`.

Each case asserts that readers lose nothing by a command, and that the rows are right in the end.
"""

from __future__ import annotations

import logging
import multiprocessing
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from faults.injection import STRIKES_READS, CallFault, Calls, Killed
from faults.product import LOG, Rows, clock_moved, completed_ids, retired_ids, small_pages, tasks_run_twice, tidefold
from faults.stages import LOSSES, OPERATIONS, Operation, Seen, Stage, look, truth

TWICE, CLOCK_BACK, CLOCK_ON = "tasks and command run twice", "clock 400 days back", "clock 4,000 days on"
RESUMERS = ("the same command", "a new run", "a new run on another host")
# So many positions of each call fault, spread over all calls of an operation.
POSITIONS = 4
# With the ledger and the newest commit of the table both lost, nothing proves that this snapshot was ever completed.
UNPROVED = ("rebuild", "table log behind by 1", 4)
DEFECTS = {"UNEXPECTED", "UNFORESEEN"}


@dataclass
class Cell:
    """An operation with a fault.

    cases: how often it was tried.
    says: what the command said, and how often.
    reader: what a reader saw after it.
    next: what the next run did.
    way: the way out, where the next run was not enough.
    failed: what went wrong.
    """

    cases: int = 0
    says: Counter[str] = field(default_factory=Counter)
    reader: Counter[str] = field(default_factory=Counter)
    next: Counter[str] = field(default_factory=Counter)
    way: Counter[str] = field(default_factory=Counter)
    resumers: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)


Matrix = dict[tuple[str, str], Cell]


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """What an operation does when nothing goes wrong: all its calls, those that change something, and what is seen."""

    all: int
    writes: int
    before: Seen
    after: Seen
    completed: frozenset[int]

    @property
    def kept(self) -> dict[int, Rows]:
        """The snapshots that no command of these may harm."""
        same = self.completed & self.before.snapshots.keys() & self.after.snapshots.keys()
        return {n: rows for n in same if (rows := self.before.snapshots[n]) is not None and self.after.snapshots[n]}


class Player:
    """Plays cases of operations on copies of stores."""

    def __init__(self, folder: Path) -> None:
        self.stage = Stage(folder)
        self._known: dict[str, Undisturbed] = {}

    def undisturbed(self, operation: Operation) -> Undisturbed:
        if operation.name not in self._known:
            root = self.stage.begin(operation.begins)
            before, calls = look(root), Calls()
            completed = completed_ids(root) or frozenset(before.snapshots)
            with calls.watching():
                said = self._act(operation)
            assert said == "done", said
            known = Undisturbed(calls.all, calls.writes, before, look(root), completed)
            assert known.kept or operation.drops, "nothing is watched"
            assert known.writes, "nothing is struck"
            self._known[operation.name] = known
        return self._known[operation.name]

    def _act(self, operation: Operation) -> str:
        try:
            return tidefold(self.stage.root, operation.command.format(root=self.stage.root)).word
        except Killed:
            return "died"

    def _next(self, operation: Operation) -> str:
        if operation.then:
            tidefold(self.stage.root, operation.then)
        return tidefold(self.stage.root, f"run {LOG} --takeover").word

    # Faults of calls.

    def positions(self, operation: Operation, fault: CallFault, most: int) -> list[int]:
        known = self.undisturbed(operation)
        calls = known.all if fault in STRIKES_READS else known.writes
        if fault in (CallFault.NO_WRITE, CallFault.NO_ACCESS, CallFault.DISK_FULL):
            most = min(most, 3)
        return sorted({round(i * (calls - 1) / max(1, most - 1)) for i in range(most)}) if calls else []

    def strike(self, operation: Operation, fault: CallFault, at: int, turn: int, cell: Cell) -> None:
        known = self.undisturbed(operation)
        self.stage.begin(operation.begins)
        calls = Calls(at, fault, lambda: self._next(operation))
        with calls.watching():
            said = self._act(operation)
        if calls.has_struck:
            self._conclude(operation, known, said, RESUMERS[turn % len(RESUMERS)], cell)

    def meet(self, operation: Operation, other: Operation, at: int, cell: Cell) -> None:
        """Another operation runs whole while this one waits in a call."""
        known = self.undisturbed(operation)
        self.stage.begin(operation.begins)
        met: list[str] = []
        calls = Calls(at, CallFault.SLOW, lambda: met.append(self._act(other)))
        with calls.watching():
            said = self._act(operation)
        self._require_named(met[0] if met else "done", cell)
        self._conclude(operation, known, said, RESUMERS[0], cell, or_dropped=other.drops)

    # Faults of everything around.

    def play_whole(self, operation: Operation, around: AbstractContextManager[None], often: int, cell: Cell) -> None:
        known = self.undisturbed(operation)
        self.stage.begin(operation.begins)
        with around:
            said = [self._act(operation) for _ in range(often)]
        self._conclude(operation, known, said[0], RESUMERS[0], cell)

    def lose(self, operation: Operation, loss: str, cell: Cell) -> None:
        known = self.undisturbed(operation)
        root = self.stage.begin(operation.begins)
        if not LOSSES[loss](root):
            return
        before = look(root)
        said = self._act(operation)
        cell.cases += 1
        cell.says[said] += 1
        self._require_named(said, cell)
        after = look(root)
        cell.reader[self._seen(known, before, after, operation.drops)] += 1
        self._require_kept(operation, known, before, after, loss, cell)
        did = self._next(operation)
        cell.next[did] += 1
        self._require_named(did, cell)
        self._require_kept(operation, known, after, look(root), loss, cell)
        if self._is_right(operation):
            cell.way["none needed"] += 1
            return
        if did == "done" and look(root).published is not None and said == "done":
            cell.way["rows differ until it is put back"] += 1
        self._find_way_out(operation, loss, cell)

    def _find_way_out(self, operation: Operation, loss: str, cell: Cell) -> None:
        root = self.stage.root
        if "ledger" in loss and tidefold(root, f"move rebuild {LOG} --yes").exit == 0:
            self._next(operation)
            if self._is_right(operation):
                cell.way["rebuild"] += 1
                return
        self.stage.put_back(operation.begins, ledger="ledger" in loss)
        self._act(operation)
        did = self._next(operation)
        if self._is_right(operation):
            cell.way["put it back"] += 1
        else:
            cell.failed.append(f"{loss}: put back, and still not right ({did}): {look(root).published}")

    # What must be true.

    def _conclude(
        self, operation: Operation, known: Undisturbed, said: str, resumer: str, cell: Cell, or_dropped: bool = False
    ) -> None:
        root, drops = self.stage.root, operation.drops or or_dropped
        cell.cases += 1
        cell.says[said] += 1
        cell.resumers[resumer] += 1
        self._require_named(said, cell)
        after = look(root)
        cell.reader[self._seen(known, known.before, after, drops)] += 1
        self._require_rows(known, after, drops, cell)
        if resumer == RESUMERS[2] and (root / "local").exists():
            # Another host has none of the first one's local copies.
            (root / "local").rename(root / "local-of-the-first-host")
        if resumer == RESUMERS[0]:
            self._require_named(self._act(operation), cell)
        did = self._next(operation)
        cell.next[did] += 1
        self._require_named(did, cell)
        if resumer == RESUMERS[2] and did == "NO_GOOD_COPY":
            # A repair whose good copies are local needs the host that has them.
            shutil.rmtree(root / "local", ignore_errors=True)
            (root / "local-of-the-first-host").rename(root / "local")
        if not self._is_right(operation) or did != "done":
            again = (self._act(operation), self._next(operation))
            cell.way["the same command, then a run"] += 1
            if not self._is_right(operation) or again[1] != "done":
                cell.failed.append(f"{said}; {did}; {again}; rows {look(root).published}")
        self._require_rows(known, look(root), drops, cell)

    def _require_named(self, said: str, cell: Cell) -> None:
        # Exit code 5 of `verify` is a report of damage, each with its next step.
        if DEFECTS & set(said.split(", ")) or (said.startswith("exit") and said != "exit 5"):
            cell.failed.append(f"not by name: {said}")

    def _is_right(self, operation: Operation) -> bool:
        rows = look(self.stage.root).published
        refused = operation.begins == "refused" and operation.drops
        return rows == truth(self.stage.root) or (refused and rows == truth(self.stage.root, without_refused=True))

    def _seen(self, known: Undisturbed, before: Seen, after: Seen, drops: bool) -> str:
        if after.published is None:
            return "nothing, on purpose" if drops else "an error, by the fault"
        if after.published == before.published:
            return "the version before"
        return "the new version"

    def _require_rows(self, known: Undisturbed, now: Seen, drops: bool, cell: Cell) -> None:
        root = self.stage.root
        allowed = [known.before.published, known.after.published, truth(root), truth(root, without_refused=True)]
        if now.published not in allowed and not (drops and now.published is None):
            cell.failed.append(f"a reader sees {now.published}")
        if drops:
            return
        self._require_snapshots(known, now, cell)

    def _require_snapshots(self, known: Undisturbed, now: Seen, cell: Cell) -> None:
        if now.other != known.before.other:
            cell.failed.append("the other log's rows changed")
        for number, rows in known.kept.items():
            if now.snapshots.get(number) != rows and number not in retired_ids(self.stage.root):
                cell.failed.append(f"snapshot {number} is lost")

    def _require_kept(
        self, operation: Operation, known: Undisturbed, before: Seen, after: Seen, loss: str, cell: Cell
    ) -> None:
        """What readers could read before a command they can read after it."""
        if before.other != after.other:
            cell.failed.append("the other log's rows changed")
        if operation.drops:
            return
        if before.published is not None and after.published is None:
            cell.failed.append("the command made the table unreadable")
        for number in known.kept:
            if (operation.name, loss, number) == UNPROVED:
                continue
            if before.snapshots.get(number) is not None and after.snapshots.get(number) != before.snapshots[number]:
                cell.failed.append(f"the command harmed snapshot {number}")


def _turn(operation: Operation, fault: CallFault) -> int:
    return OPERATIONS.index(operation) + list(CallFault).index(fault)


def cases(player: Player, operation: Operation, most: int) -> Iterator[tuple[str, Callable[[Cell], None]]]:
    """Every fault of an operation: the name of its column, and what plays it."""
    for fault in CallFault:
        # Neighbouring faults begin with another resumer, so that each fault meets all over the operations.
        for turn, at in enumerate(player.positions(operation, fault, most), _turn(operation, fault)):
            yield fault.value, partial(player.strike, operation, fault, at, turn)
    for way in range(min(most, 4)):
        yield TWICE, lambda cell, way=way: player.play_whole(operation, tasks_run_twice(way), 2, cell)
    yield CLOCK_BACK, lambda cell: player.play_whole(operation, clock_moved(-400), 1, cell)
    yield CLOCK_ON, lambda cell: player.play_whole(operation, clock_moved(4_000), 1, cell)
    for loss in LOSSES:
        yield loss, partial(player.lose, operation, loss)


# Each of these meets each other one, and itself, while it waits in one of three calls.
PAIRED = (
    *("ingest", "materialize", "quality", "confirm", "abort", "restore"),
    *("subsume", "truncate", "clean", "plan", "plan --apply"),
)


def _meetings(player: Player, operation: Operation, most: int) -> Iterator[tuple[str, Callable[[Cell], None]]]:
    for other in (o for o in OPERATIONS if o.name in PAIRED and operation.name in PAIRED):
        for at in player.positions(operation, CallFault.SLOW, min(most, 3)):
            yield f"meets {other.name}", partial(player.meet, operation, other, at)


def play(names: list[str], most: int = POSITIONS, pick: Callable[[int], bool] = lambda number: True) -> Matrix:
    """Plays the rows of these operations; `pick` chooses cases by their number."""
    found: Matrix = {}
    logging.disable(logging.CRITICAL)
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    number = 0
    with tempfile.TemporaryDirectory(dir=place) as folder, small_pages():
        player = Player(Path(folder))
        for operation in (o for o in OPERATIONS if o.name in names):
            for column, act in (*cases(player, operation, most), *_meetings(player, operation, most)):
                number += 1
                if pick(number):
                    cell = found.setdefault((operation.name, column), Cell())
                    _try(act, cell)
    logging.disable(logging.NOTSET)
    return found


def _try(act: Callable[[Cell], None], cell: Cell) -> None:
    try:
        act(cell)
    except Exception:
        cell.failed.append(traceback.format_exc(limit=-3))


def main(most: int = POSITIONS, *only: str) -> int:
    """Plays all operations, or only some, and records their rows."""
    from faults import sets
    from faults.page import write_matrix

    began = time.monotonic()
    names = [operation.name for operation in OPERATIONS if not only or operation.name in only]
    parts = [names[0::4], names[1::4], names[2::4], names[3::4]]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found: Matrix = {}
        for part in pool.imap_unordered(partial(play, most=most), parts, chunksize=1):
            found |= part
    ordered = {key: found[key] for name in names for key in found if key[0] == name}
    failed = {key: cell.failed for key, cell in ordered.items() if cell.failed}
    for key, why in failed.items():
        print(f"{key}: {len(why)} of {ordered[key].cases}: {why[0]}", flush=True)
    total = sum(cell.cases for cell in ordered.values())
    print(f"{len(ordered)} cells, {total:,} cases, {len(failed)} cells failed, {time.monotonic() - began:.0f} s")
    write_matrix(ordered)
    with_sets = not only or "sets" in only
    return (sets.main() if with_sets else 0) or bool(failed)


if __name__ == "__main__":
    _most, *_only = sys.argv[1:] or [POSITIONS]
    sys.exit(main(int(_most), *map(str, _only)))
