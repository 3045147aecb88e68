"""The stores that operations begin with, made by the command line, and what can be damaged in them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from faults.injection import CallFault, Calls, Killed
from faults.product import (
    LOG,
    LOGS,
    OTHER,
    Rows,
    Said,
    configure,
    land,
    newest_segment,
    older_program,
    rows_landed,
    state_of,
    table_rows,
    tidefold,
)

# Each lands at once as one file: changes `(key, operation)`, and whether it has a line that nobody can read.
BATCHES: tuple[tuple[list[tuple[int, str]], bool], ...] = (
    ([(0, "c"), (1, "c"), (2, "c"), (3, "c")], False),
    ([(1, "u"), (2, "d"), (4, "c")], True),
    ([(0, "u"), (5, "c")], False),
    ([(3, "d"), (6, "c")], False),
    ([(4, "u"), (2, "c"), (5, "d")], False),
    ([(1, "u"), (7, "c")], False),
)
PUBLISHED = 4


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the matrix.

    name: its heading on the page.
    begins: the store that it begins with.
    command: the command line, without the configuration.
    drops: whether readers lose the table on purpose.
    then: a command that follows before the next run, if there is one.
    """

    name: str
    begins: str
    command: str
    drops: bool = False
    then: str = ""


OPERATIONS = (
    Operation("ingest", "landed", f"step ingest {LOG}"),
    Operation("materialize", "taken", f"step materialize {LOG} --run r"),
    Operation("quality", "staged", f"step quality {LOG}"),
    Operation("confirm", "judged", f"step confirm {LOG}"),
    Operation("run", "landed", f"run {LOG} --run r"),
    Operation("abort", "staged", f"step abort {LOG}"),
    Operation("subsume", "landed", f"retain subsume {LOG}"),
    Operation("truncate", "subsumed", f"retain truncate {LOG}"),
    Operation("clean", "dead", "retain clean"),
    Operation("restore", "landed", f"restore {LOG} 3 --log-position replay --run r"),
    Operation("restore --to", "landed", f"move export {LOG} 3 --to {{root}}/restored"),
    Operation("tag", "landed", f"snapshot tag {LOG} 3 kept"),
    Operation("hold", "landed", f"snapshot hold {LOG} kept 3 --reason audit"),
    Operation("quarantine retry", "refused", f"quarantine retry {LOG}"),
    Operation("compact-log", "waiting", f"retain compact {LOG}"),
    Operation("drop", "landed", f"retain drop {LOG} --yes", drops=True),
    Operation("rebuild", "ledger lost", f"move rebuild {LOG} --yes"),
    Operation("savepoint", "landed", f"move savepoint {LOG} --to {{root}}/savepoint"),
    Operation("import", "saved", f"move import {LOG} {{root}}/saved --run r"),
    Operation("plan", "edited", f"plan {LOG}", then=f"plan {LOG} --apply"),
    Operation("plan --apply", "planned", f"plan {LOG} --apply"),
    Operation("verify --repair", "damaged", f"check verify {LOG} --repair"),
    Operation("run of a rebuilt log", "rebuilt", f"run {LOG} --run r"),
    Operation("run of an imported log", "imported", f"run {LOG} --run r"),
)


@dataclass
class Stage:
    """Makes and keeps stores; each case works on a copy at one path, since local copies belong to a store's address."""

    folder: Path
    made: dict[str, Path] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.folder / "case"

    def begin(self, name: str) -> Path:
        """A fresh copy of a store. Its files share bytes with the template: nothing is ever changed in place."""
        if name not in self.made:
            self._make(name)
        self._copy(self.made[name], self.root)
        return self.root

    def _make(self, name: str) -> None:
        onto, act = _MAKERS[name]
        if onto is None:
            shutil.rmtree(self.root, ignore_errors=True)
            self.root.mkdir(parents=True)
        else:
            self.begin(onto)
        act(self.root)
        template = self.folder / name.replace(" ", "-")
        self._copy(self.root, template)
        self.made[name] = template

    def _copy(self, source: Path, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, copy_function=os.link)

    def put_back(self, name: str, ledger: bool) -> None:
        """Puts the files back that are not there any more, as from a backup; with `ledger`, that one as a whole."""
        template = self.made[name]
        if ledger:
            shutil.rmtree(self.root / "store/logs" / LOG / "ledger", ignore_errors=True)
        for source in (*(template / "store").rglob("*"), *(template / "local").rglob("*")):
            target = self.root / source.relative_to(template)
            is_wanted = ledger or f"logs/{LOG}/ledger/" not in str(source)
            if is_wanted and source.is_file() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(source, target)


def _ok(root: Path, command: str) -> Said:
    said = tidefold(root, command)
    assert said.exit == 0, said.text
    return said


def land_batch(root: Path, number: int, logs: Sequence[str] = LOGS) -> None:
    changes, broken = BATCHES[number]
    for log in logs:
        land(root, log, number * 10, changes, broken)


def _published(root: Path) -> None:
    configure(root)
    for number in range(PUBLISHED):
        land_batch(root, number)
        _ok(root, "run")


def _landed(root: Path) -> None:
    land_batch(root, PUBLISHED, [LOG])


def _two_wait(root: Path) -> None:
    _ok(root, f"step ingest {LOG}")
    land_batch(root, PUBLISHED + 1, [LOG])
    _ok(root, f"step ingest {LOG}")


def _dead(root: Path) -> None:
    """An abort that died before it deleted the files of its attempt."""
    calls = Calls(1, CallFault.DIES_BEFORE)
    try:
        with calls.watching():
            tidefold(root, f"step abort {LOG}")
    except Killed:
        return


def _refused(root: Path) -> None:
    land(root, LOG, PUBLISHED * 10, [(100, "c"), (8, "c")])
    with older_program():
        _ok(root, f"step ingest {LOG}")
    _ok(root, f"run {LOG}")


def _ledger_lost(root: Path) -> None:
    shutil.rmtree(root / "store/logs" / LOG / "ledger")


def _rebuilt(root: Path) -> None:
    _ledger_lost(root)
    _ok(root, f"move rebuild {LOG} --yes")
    _landed(root)


def _imported(root: Path) -> None:
    for step in (f"move import {LOG} {root}/saved --run i", f"step quality {LOG}", f"step confirm {LOG}"):
        _ok(root, step)
    _landed(root)


def _edited(root: Path) -> None:
    """An edit that the log refuses, and that changes no row."""
    config = root / "tidefold.yaml"
    text = config.read_text()
    config.unlink()  # Other stores share its bytes.
    config.write_text(text.replace("key_groups: 4", "key_groups: 8", 1))


def _damaged(root: Path) -> None:
    """The bytes of one file of the newest snapshot are cut, in the store, under each of its names."""
    path = sorted(_files_of_newest(root))[0]
    data = path.read_bytes()[:-20]
    names = list((root / "store").rglob(path.name))
    for name in names:
        name.unlink()
    path.write_bytes(data)
    for name in names:
        if name != path:
            os.link(path, name)


def _files_of_newest(root: Path) -> list[Path]:
    state = state_of(root)
    assert state
    assert state.latest
    return list((root / "store/snapshots" / LOG / f"{state.latest.id:010d}").rglob("_data/*.parquet"))


_Maker = tuple[str | None, Callable[[Path], object]]
_MAKERS: dict[str, _Maker] = {
    "published": (None, _published),
    "landed": ("published", _landed),
    "taken": ("landed", lambda root: _ok(root, f"step ingest {LOG}")),
    "staged": ("taken", lambda root: _ok(root, f"step materialize {LOG} --run r")),
    "judged": ("staged", lambda root: _ok(root, f"step quality {LOG}")),
    "subsumed": ("landed", lambda root: _ok(root, f"retain subsume {LOG}")),
    "waiting": ("landed", _two_wait),
    "dead": ("staged", _dead),
    "refused": ("published", _refused),
    "ledger lost": ("landed", _ledger_lost),
    "saved": ("published", lambda root: _ok(root, f"move savepoint {LOG} --to {root}/saved")),
    "edited": ("landed", _edited),
    "planned": ("edited", lambda root: _ok(root, f"plan {LOG}")),
    "damaged": ("landed", _damaged),
    "rebuilt": ("published", _rebuilt),
    "imported": ("saved", _imported),
}


# What can be lost. Each removes something and says whether there was anything to remove.


def _remove(paths: Sequence[Path]) -> bool:
    for path in paths:
        path.unlink()
    return bool(paths)


def _ledger_versions(root: Path) -> list[Path]:
    folder = root / "store/logs" / LOG / "ledger"
    return sorted(folder.iterdir()) if folder.exists() else []


def _behind(count: int) -> Callable[[Path], bool]:
    def remove(root: Path) -> bool:
        versions = _ledger_versions(root)
        return _remove(versions[-count:]) if len(versions) > count else False

    return remove


def _newest(pattern: str) -> Callable[[Path], bool]:
    return lambda root: _remove(sorted(root.glob(pattern), key=_number)[-1:])


def _number(path: Path) -> tuple[int, str]:
    """Folders and files of snapshots sort by number."""
    return max((int(part) for part in path.with_suffix("").parts if part.isdecimal()), default=0), path.name


def _newest_segment(root: Path) -> bool:
    path = newest_segment(root)
    return _remove([root / "store" / path]) if path else False


def _page(root: Path) -> bool:
    return _remove(sorted((root / "store/logs" / LOG / "pages").glob("*"))[:1])


def _data_file(where: str) -> Callable[[Path], bool]:
    def remove(root: Path) -> bool:
        state = state_of(root)
        if not state or not state.latest:
            return False
        name = sorted(_files_of_newest(root))[0].name
        own = f"store/snapshots/{LOG}/{state.latest.id:010d}/_data"
        folder = f"store/tables/{LOG}/_data" if where == "table" else own
        return _remove([path for path in [root / folder / name] if path.exists()])

    return remove


def _table_log(root: Path) -> bool:
    return _remove([p for p in (root / f"store/tables/{LOG}/_delta_log").rglob("*") if p.is_file()])


LOSSES: dict[str, Callable[[Path], bool]] = {
    **{f"ledger behind by {n}": _behind(n) for n in (1, 2, 3, 4, 6, 9)},
    "ledger lost": lambda root: _remove(_ledger_versions(root)),
    "page lost": _page,
    "manifest lost": _newest(f"store/logs/{LOG}/snapshots/*/manifest"),
    "segment lost": _newest_segment,
    "data file of the table lost": _data_file("table"),
    "data file of a snapshot lost": _data_file("snapshot"),
    "table log lost": _table_log,
    "table log behind by 1": _newest(f"store/tables/{LOG}/_delta_log/*.json"),
    "local copies lost": lambda root: _remove([p for p in (root / "local").rglob("*") if p.is_file()]),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What readers see: the published rows, the rows of each full snapshot by id, and the other log's."""

    published: Rows | None
    snapshots: dict[int, Rows | None]
    other: Rows | None


def look(root: Path) -> Seen:
    folder = root / "store/snapshots" / LOG
    paths = sorted(folder.iterdir()) if folder.exists() else []
    rows = {int(path.name): table_rows(str(path)) for path in paths}
    store = root / "store/tables"
    return Seen(table_rows(str(store / LOG)), rows, table_rows(str(store / OTHER)))


def truth(root: Path, without_refused: bool = False) -> Rows:
    rows = rows_landed(root, LOG)
    return {key: text for key, text in rows.items() if key < 100} if without_refused else rows
