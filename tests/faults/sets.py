"""Sets with damaged ledgers, pages and tables' marks: what commands say, and what readers of the set get.

`python -m faults.sets` plays all of it and writes docs/contributors/reliability.md; `make fault-matrix` does it, too.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from faults.matrix import DEFECTS, Cell, Matrix
from faults.product import TidefoldError, find_set_version, open_pipeline, small_pages, tidefold
from support.bank_sets import ENDS, LOGS, config, count_records, count_violations, land, make_bank, read_set, replay

# How much of the captured bank lands before each run.
SHARES = (0.0, 0.15, 0.3, 0.45, 0.6)
FIRST = {"accounts": 300, "branches": 2, "tellers": 6, "history": 0, ENDS: 0}
KEEPS_TWO = config().replace("store: store", "store: store\nretention: {snapshots: 2}")


def land_share(root: Path, share: float) -> None:
    land(root, {name: int(first + (count_records(name) - first) * share) for name, first in FIRST.items()})


def versions(root: Path, owner: str = "sets/bank") -> list[Path]:
    return sorted((root / "store" / owner / "ledger").glob("*.json"))


@dataclass(frozen=True, slots=True)
class Life:
    """A set that was published several times.

    root: the folder. old: a copy of it after two versions. points: the position of each number.
    """

    root: Path
    old: Path
    points: dict[int, int]


def make_life(folder: Path) -> Life:
    """Lands the captured bank in shares, and publishes the set after each."""
    root, points = folder / "root", dict[int, int]()
    pipeline = make_bank(root, KEEPS_TWO)
    for number, share in enumerate(SHARES):
        land_share(root, share)
        said = tidefold(root, f"run --run r{number}")
        assert said.exit == 0, said.text
        version = find_set_version(pipeline, "bank")
        points[version.number] = version.position
        if number == 1:
            shutil.copytree(root, folder / "old")
    assert len(points) == len(SHARES)
    assert list((root / "store/sets/bank/pages").glob("*.json"))
    return Life(root, folder / "old", points)


# Damages. Each changes a store, and is given the older copy.


def _behind(count: int) -> Callable[[Path, Path], None]:
    return lambda root, old: [path.unlink() for path in versions(root)[-count:]] and None


def replace_file(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def _change_a_digit(root: Path, old: Path) -> None:
    """The newest version names an older version of one table. It is valid JSON."""
    path = versions(root)[-1]
    document = json.loads(path.read_bytes())
    state = document["state"]
    state["published"]["members"][1]["version"] -= 1
    replace_file(path, json.dumps(document, separators=(",", ":")).encode())


def _named_page(root: Path) -> Path:
    """A page that the newest version names."""
    [name, *_] = json.loads(versions(root)[-1].read_bytes())["pages"]["earlier"]
    return root / f"store/sets/bank/pages/{name}.json"


def _flip_in_page(root: Path, old: Path) -> None:
    path = _named_page(root)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    replace_file(path, bytes(data))


def _lose_page(root: Path, old: Path) -> None:
    _named_page(root).unlink()


def _cut(root: Path, old: Path) -> None:
    path = versions(root)[-1]
    replace_file(path, path.read_bytes()[: path.stat().st_size // 2])


def _misplace(root: Path, old: Path) -> None:
    """An old version is copied as the newest one."""
    newest = versions(root)[-1]
    shutil.copy(versions(root)[2], newest.with_name(f"{int(newest.stem) + 1:010d}.json"))


def _swap_with_a_log(root: Path, old: Path) -> None:
    """The ledger of a log is put where that of the set belongs."""
    shutil.rmtree(root / "store/sets/bank/ledger")
    shutil.copytree(root / "store/logs/tellers/ledger", root / "store/sets/bank/ledger")


def _old(*parts: str) -> Callable[[Path, Path], None]:
    def put_back(root: Path, old: Path) -> None:
        for part in parts:
            shutil.rmtree(root / "store" / part)
            shutil.copytree(old / "store" / part, root / "store" / part)

    return put_back


def _lose(*parts: str) -> Callable[[Path, Path], None]:
    return lambda root, old: [shutil.rmtree(root / "store" / part) for part in parts] and None


def _lose_marks(root: Path, old: Path) -> None:
    """Only the commits of the tables show what the ledger has lost."""
    _behind(3)(root, old)
    for path in (root / "store/tables").glob("*/_delta_log/_tidefold/set-*"):
        path.unlink()


DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "none": lambda root, old: None,
    **{f"behind by {n}": _behind(n) for n in (1, 2, 3, 6)},
    "behind by 3, without marks": _lose_marks,
    "ledger lost": _lose("sets/bank/ledger"),
    "folder lost": _lose("sets"),
    "older copy": _old("sets"),
    "a digit changed": _change_a_digit,
    "cut": _cut,
    "misplaced": _misplace,
    "swapped with a log": _swap_with_a_log,
    "page altered": _flip_in_page,
    "page lost": _lose_page,
    "older logs": _old("logs"),
    "older sets and logs": _old("sets", *(f"logs/{log}/ledger" for log in LOGS)),
}
# Damage of the newest version, or of a page, has no second copy: without a backup the file is moved away first.
MOVED_AWAY = {"cut", "a digit changed", "misplaced", "swapped with a log", "page altered", "page lost"}


def look(root: Path) -> tuple[int, int] | str:
    """Returns number and position of what readers of the set get, or the code of the error that they get.

    Fails if they get a mixture of points.
    """
    pipeline = open_pipeline(root / "tidefold.yaml")
    try:
        version = find_set_version(pipeline, "bank")
        rows = read_set(pipeline)
    except TidefoldError as error:
        return error.code
    assert count_violations(rows) == 0
    assert rows == replay().rows[version.position]
    return version.number, version.position


def copy(life: Life, folder: Path) -> Path:
    root = folder / "copy"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(life.root, root, copy_function=os.link)
    return root


# The others meet every command in tests/contract/ledger/test_set_ledger.py.
PLAYED = (
    *("none", "behind by 1", "behind by 3", "behind by 3, without marks", "ledger lost", "older copy"),
    *("a digit changed", "page lost"),
)
OPERATIONS = {
    "read of a set": "read tellers --set bank --limit 3",
    "run of a set": "run --run next",
}


def _require_named(said: str, cell: Cell) -> None:
    if DEFECTS & set(said.split(", ")) or (said.startswith("exit") and said != "exit 5"):
        cell.failed.append(f"not by name: {said}")


def _seen(now: tuple[int, int] | str, life: Life) -> str:
    if isinstance(now, str):
        return now
    return "the version before" if now[0] == max(life.points) else "a newer version"


def strike(life: Life, folder: Path, command: str, damage: str, cell: Cell) -> None:
    """Damages a set, calls the command, runs, and rebuilds what the run does not mend."""
    root, newest = copy(life, folder), max(life.points)
    DAMAGES[damage](root, life.old)
    before, said = look(root), tidefold(root, command.format(root=root)).word
    after = look(root)
    cell.cases += 1
    cell.says[said] += 1
    cell.reader[_seen(after, life)] += 1
    following = tidefold(root, "run --takeover --run after").word
    cell.next[following] += 1
    for word in (said, following):
        _require_named(word, cell)
    if isinstance(after, str) > isinstance(before, str) or (not isinstance(after, str) and after[0] < newest):
        cell.failed.append(f"the command harmed readers: {before}, then {after}")
    if following != "done":
        for log in LOGS if "logs" in damage else ():
            tidefold(root, f"move rebuild {log} --yes")
        if damage in MOVED_AWAY:
            shutil.rmtree(root / "store/sets/bank/ledger")
        mended = tidefold(root, "move rebuild --set bank --yes").word
        cell.way["rebuild --set" if mended == "done" else mended] += 1
    land_share(root, 1)
    word = tidefold(root, "run --takeover --run end").word
    now = look(root)
    if word != "done" or isinstance(now, str) or now[1] != max(replay().rows):
        cell.failed.append(f"not right in the end: {word}, {now}")


def play(operations: dict[str, str], pick: Callable[[int], bool] = lambda number: True) -> Matrix:
    """Plays the cells of these operations; `pick` chooses cells by their number."""
    cells: Matrix = {}
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as place, small_pages(2):
        folder = Path(place)
        life = make_life(folder)
        todo: dict[tuple[str, str], Callable[[Cell], None]] = {}
        for name, command in operations.items():
            for damage in PLAYED:
                todo[name, damage] = lambda cell, c=command, d=damage: strike(life, folder, c, d, cell)  # type: ignore[misc]
        for number, (key, act) in enumerate(todo.items()):
            if pick(number):
                cells[key] = Cell()
                try:
                    act(cells[key])
                except Exception:
                    cells[key].failed.append(traceback.format_exc(limit=-1))
    logging.disable(logging.NOTSET)
    return cells


def main() -> int:
    from faults.page import write_matrix

    cells = play(OPERATIONS)
    failed = {key: cell.failed for key, cell in cells.items() if cell.failed}
    for key, why in failed.items():
        print(f"{key}: {why[0]}", flush=True)
    print(f"sets: {len(cells)} cells, {len(failed)} failed")
    write_matrix(cells, "sets")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
