"""tidefold as the fault tests use it: the command line, readers of tables, and the names that faults need. No other
file of this folder imports from the package.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as parquet
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from typer.main import get_command
from typer.testing import CliRunner

from support.landing import record
from support.older import older_program as older
from support.twice import WAYS, twice
from tidefold.cli.app import app
from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.errors import StorageError, TidefoldError, UnknownOutcomeError
from tidefold.ledger import serialization
from tidefold.operations.sets.read import find_version as find_set_version
from tidefold.quality.run.gx_import import load
from tidefold.storage import local_store
from tidefold.storage.local_store import LocalStore
from tidefold.wiring import open_pipeline

__all__ = ["LocalStore", "StorageError", "TidefoldError", "UnknownOutcomeError", "find_set_version", "open_pipeline"]

LOGS = ("accounts", "tellers")
LOG, OTHER = LOGS
Rows = dict[int, str | None]
_HEAD = """\
version: 1
store: {store}
retention: {{snapshots: {keep}}}
spark: {{above: 64MiB}}
{local}
logs:
"""
_OF_LOG = """\
  {log}:
    source: {{format: debezium-json, connector: postgresql, path: landing/{log}}}
    key: [id]
    columns: {{id: int, text: string}}
    key_groups: 4
    buckets: 2
    quality: {{max_refused: 1, max_row_drop: 1}}
"""
_COMMAND = get_command(app)
_CODE = re.compile(r"\[([A-Z][A-Z_]+)\]")


@dataclass(frozen=True, slots=True)
class Said:
    """What a command said.

    exit: its exit code.
    codes: the codes of its errors.
    text: its output.
    """

    exit: int
    codes: tuple[str, ...]
    text: str

    @property
    def word(self) -> str:
        return "done" if self.exit == 0 else ", ".join(self.codes) or f"exit {self.exit}"


def configure(root: Path, store: str = "store", keep: int = 2, local: bool = True) -> None:
    """Writes a configuration of two logs and makes their landing folders."""
    copies = "local: {mode: files, path: local}" if local else ""
    text = _HEAD.format(store=store, keep=keep, local=copies) + "".join(_OF_LOG.format(log=log) for log in LOGS)
    for log in LOGS:
        (root / "landing" / log).mkdir(parents=True, exist_ok=True)
    (root / "tidefold.yaml").write_text(text)


def land(root: Path, log: str, first: int, changes: list[tuple[int, str]], broken: bool = False) -> None:
    """Lands one file of changes `(key, operation)`, in one step."""
    lines = []
    for offset, (key, op) in enumerate(changes, first):
        one = record(offset, item=key, op=op, topic=log)
        lines.append(json.dumps(one))
    lines += ["{broken"] if broken else []
    path = root / "landing" / log / f"{log}+0+{first:010d}.jsonl"
    part = path.with_suffix(".part")
    part.write_text("".join(line + "\n" for line in lines))
    part.rename(path)


def rows_landed(root: Path, log: str, end: int | None = None, start: int = 0, onto: Rows | None = None) -> Rows:
    """The rows that all landed changes make, or those with `start` <= offset < `end`, onto other rows."""
    rows = dict(onto or {})
    for path in sorted((root / "landing" / log).glob("*.jsonl")):
        for line in path.read_text().splitlines():
            if line == "{broken":
                continue
            one = json.loads(line)
            if one["offset"] < start or (end is not None and one["offset"] >= end):
                continue
            after = one["value"]["after"]
            rows.pop(one["key"]["id"], None)
            if after is not None:
                rows[after["id"]] = after["text"]
    return rows


def tidefold(root: Path, command: str) -> Said:
    """Runs a command in this process."""
    arguments = command.split()
    # The commands are built once, not for each call.
    with mock.patch("typer.testing._get_command", return_value=_COMMAND):
        result = CliRunner().invoke(app, [*arguments, "--config", str(root / "tidefold.yaml")])
    text = result.output
    codes = tuple(dict.fromkeys(_CODE.findall(text))) if result.exit_code else ()
    return Said(result.exit_code, codes, text)


def state_of(root: Path, log: str = LOG) -> LogState | None:
    """What the ledger of a log says; None when there is no readable one."""
    try:
        return open_pipeline(root / "tidefold.yaml", announce=lambda text: None).ledger(log).find()
    except TidefoldError:
        return None


def forget_syncs_of_folders(patch: pytest.MonkeyPatch) -> None:
    """A store that syncs the commits of tables, and not the folder of their names."""
    sync = local_store._sync
    patch.setattr(local_store, "_sync", lambda full: None if full.endswith("_delta_log") else sync(full))


def acknowledged_state(root: Path, log: str) -> int:
    """The newest version of a log's ledger."""
    state = state_of(root, log)
    return state.version if state else 0


def opens_whole(root: Path, log: str, version: int) -> list[str]:
    """What is wrong with a store: an unreadable ledger, one older than this version, or files that it lacks."""
    try:
        state = open_pipeline(root / "tidefold.yaml", announce=lambda text: None).ledger(log).find()
    except TidefoldError as error:
        return [f"the ledger cannot be read: {error}"]
    found = state.version if state else 0
    if found < version:
        return [f"the ledger has version {found}, and {version} was acknowledged"]
    said = tidefold(root, f"check verify {log}") if state else Said(0, (), "")
    return [said.text] if said.exit else []


def preload() -> None:
    """Loads what commands load when they need it, for processes that are forked from this one."""
    load()
    for name in ("duckdb", "tidefold.quality.run.duckdb_rows", "tidefold.storage.cloud"):
        importlib.import_module(name)


def completed_ids(root: Path) -> frozenset[int]:
    """The snapshots that count by the ledger; none when there is no ledger."""
    state = state_of(root)
    return frozenset(s.id for s in state.snapshots if s.state is State.COMPLETED) if state else frozenset()


def retired_ids(root: Path) -> frozenset[int]:
    """The snapshots that retention has retired."""
    state = state_of(root)
    gone = (State.SUBSUMED, State.DELETED)
    return frozenset(s.id for s in state.snapshots if s.state in gone) if state else frozenset()


def table_rows(uri: str, version: int | None = None, options: dict[str, str] | None = None) -> Rows | None:
    """What a Delta reader sees; None when it gets an error or when there is no table."""
    try:
        table = DeltaTable(uri, version=version, storage_options=options)
        rows: list[dict[str, Any]] = table.to_pyarrow_table().to_pylist() if table.file_uris() else []
    except (DeltaError, OSError, ValueError):
        return None
    assert len({row["id"] for row in rows}) == len(rows), "a key has two rows"
    return {row["id"]: row["text"] for row in rows}


def savepoint_rows(folder: Path) -> Rows:
    """The rows of a native savepoint, read from its data files alone."""
    tables = [parquet.read_table(path, partitioning=None) for path in sorted(folder.rglob("*.parquet"))]
    return {row["id"]: row["text"] for table in tables for row in table.to_pylist() if "text" in row}


@contextmanager
def older_program() -> Iterator[None]:
    """A program that refuses keys above 99."""
    with pytest.MonkeyPatch.context() as patch, older(patch):
        yield


@contextmanager
def tasks_run_twice(way: int) -> Iterator[None]:
    """Every task of ingest and materialize runs twice."""
    runner = twice(list(WAYS)[way % len(WAYS)])
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("tidefold.") and not name.startswith("tidefold.compute"):
                if hasattr(module, "in_process"):
                    stack.enter_context(mock.patch.object(module, "in_process", runner))
                if hasattr(module, "in_threads"):
                    stack.enter_context(mock.patch.object(module, "in_threads", return_value=runner))
        yield


def newest_segment(root: Path) -> str | None:
    """The path of the segment of the newest change set of a log, in the store."""
    state = state_of(root)
    return state.change_sets[-1].location.segment if state and state.change_sets else None


@contextmanager
def small_pages(least: int = 4) -> Iterator[None]:
    """Few items are a page of a ledger already, so that short lives have pages too."""
    with mock.patch.object(serialization, "_LEAST", least):
        yield


@contextmanager
def clock_moved(days: int) -> Iterator[None]:
    """Every clock that the package reads is wrong by some days."""
    by = timedelta(days=days)

    class Moved(datetime):
        @classmethod
        def now(cls, tz=None):  # type: ignore[no-untyped-def]
            return datetime.now(tz) + by

    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("tidefold") and getattr(module, "datetime", None) is datetime:
                stack.enter_context(mock.patch.object(module, "datetime", Moved))
        real = time.time
        stack.enter_context(mock.patch("time.time", side_effect=lambda: real() + by.total_seconds()))
        yield


class LogHistory:
    """Follows one log: every version of its ledger in order, and the rows of each version of its table.

    effects: the ledger version in which a snapshot was staged, published or aborted.
    shown: how many published versions were compared with a plain fold.
    wrong: what does not fit.
    """

    def __init__(self, root: Path, log: str, store: str) -> None:
        self._root, self.log = root, log
        self._pipeline = open_pipeline(root / "tidefold.yaml", announce=lambda text: None)
        self._uri = self._pipeline.store.uri(f"tables/{log}")
        self.version = self.shown = 0
        self._table_version = -1
        self._last: LogState | None = None
        self._offsets: dict[int, tuple[int, int]] = {}
        self._snapshots: dict[int, Snapshot] = {}
        self._rows: dict[int, Rows] = {}
        self.effects: dict[tuple[str, int | None], int] = {}
        self.wrong: list[str] = []

    def advance(self) -> None:
        """Reads what is new."""
        ledger = self._pipeline.ledger(self.log)
        newest = ledger.find()
        if newest is None:
            return
        for version in range(self.version + 1, newest.version + 1):
            self._observe(ledger.read_version(version))
        self._read_table()

    def note_newest(self, path: Path) -> None:
        """Tells the workers the newest snapshot."""
        latest = self._last.latest if self._last else None
        if latest:
            path.write_text(str(latest.id))

    def _observe(self, state: LogState) -> None:
        self.version = state.version
        for landed in state.landed:
            if landed.sqn is not None:
                self._offsets.setdefault(landed.sqn, (landed.first_offset, landed.next_offset))
        for one in state.snapshots:
            self._snapshots[one.id] = one
            self._note_effects(one, state.version)
        for name in ("epoch", "last_sqn", "truncated_to", "last_snapshot", "fence"):
            if self._last and getattr(state, name) < getattr(self._last, name):
                self.wrong.append(f"{self.log}: {name} falls in ledger version {state.version}")
        names = [landed.name for landed in state.landed]
        if len(names) != len(set(names)):
            self.wrong.append(f"{self.log}: a file is taken twice in ledger version {state.version}")
        self._last = state

    def _note_effects(self, one: Snapshot, version: int) -> None:
        effects = {
            "published": one.published,
            "aborted": one.state is State.ABORTED,
            "staged": one.manifest is not None,
        }
        for result in (name for name, is_so in effects.items() if is_so):
            self.effects.setdefault((result, one.id), version)
        if one.published and ("aborted", one.id) in self.effects:
            self.wrong.append(f"{self.log}: snapshot {one.id} is published and aborted (I1)")

    def rows_of(self, snapshot: int) -> Rows:
        """A plain fold of the landed files at the position of a snapshot."""
        if snapshot not in self._rows:
            one = self._snapshots[snapshot]
            source = one.base if one.restored_from is None else one.restored_from
            folds_to = one.to_sqn if one.skipped_from is None else one.skipped_from
            rows = self.rows_of(source) if source else {}
            for sqn in sorted(n for n in self._offsets if one.from_sqn < n <= folds_to):
                start, end = self._offsets[sqn]
                rows = rows_landed(self._root, self.log, end, start, rows)
            self._rows[snapshot] = rows
        return self._rows[snapshot]

    def _read_table(self) -> None:
        shown = {s.table_version: s.id for s in self._snapshots.values() if s.table_version is not None}
        for version in sorted(v for v in shown if v > self._table_version):
            self._table_version = version
            rows = table_rows(self._uri, version, self._pipeline.store.options())
            if rows is None:
                state = self._pipeline.ledger(self.log).find()
                found = state.snapshot(shown[version]) if state else None
                if found and found.state is State.COMPLETED:
                    self.wrong.append(f"{self.log}: version {version} of the table cannot be read")
                continue
            self.shown += 1
            if rows != self.rows_of(shown[version]):
                self.wrong.append(
                    f"{self.log}: version {version} shows {rows}, snapshot {shown[version]} is "
                    f"{self.rows_of(shown[version])}"
                )
