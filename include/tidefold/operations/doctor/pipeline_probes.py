"""Reads the state of the store, landing folders and suites of a configuration. Writes scratch objects to the store."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tidefold.config import Config
from tidefold.domain.snapshot.select_kind import MARKED_SHARE
from tidefold.errors import NotFoundError, RefusedError, TidefoldError
from tidefold.ledger import Ledger, SetLedger
from tidefold.operations.ground.outcome import ErrorInfo
from tidefold.operations.quality.suites import find_suite_errors
from tidefold.sources.landing.folders import folder_at
from tidefold.storage import Store, open_store
from tidefold.storage.identity import measure_skew, probe, read_identity, require_identity

# The most files to check in one folder, so that the doctor ends in time.
MOST_FILES = 20_000


@dataclass(frozen=True, slots=True)
class StoreProbe:
    """The result of the test of a store.

    is_there: whether the store exists. The first run creates a new one.
    done: the steps that it passed.
    configured_id: the id in the configuration; None: there is none.
    error: why it cannot be used; None: it can.
    """

    address: str
    is_there: bool = True
    done: tuple[str, ...] = ()
    store_id: str | None = None
    configured_id: str | None = None
    error: ErrorInfo | None = None


def probe_store(config: Config) -> StoreProbe:
    """Writes, reads, lists, copies and deletes scratch objects. Does not create a missing store."""
    store = open_store(config.store, config.path.parent)
    result = StoreProbe(store.address, configured_id=config.store_id)
    try:
        if config.store_id:
            require_identity(store, config.store_id)
        elif (missing := _find_missing_folder(result.address)) is not None:
            return StoreProbe(result.address, is_there=False, error=_require_writable(missing))
        return StoreProbe(result.address, True, probe(store), read_identity(store), config.store_id)
    except TidefoldError as error:
        return StoreProbe(result.address, configured_id=config.store_id, error=ErrorInfo.of(error))


def _find_missing_folder(address: str) -> Path | None:
    """Returns the folder of a local store if it does not exist."""
    folder = Path(address)
    return folder if folder.is_absolute() and not folder.exists() else None


def _require_writable(folder: Path) -> ErrorInfo | None:
    above = next(parent for parent in folder.parents if parent.exists())
    if os.access(above, os.W_OK | os.X_OK):
        return None
    message = f"The store {folder} cannot be created: {above} is not writable."
    return ErrorInfo.of(RefusedError("STORE_NOT_WRITABLE", message, hint=f"Give this user the right to write {above}."))


@dataclass(frozen=True, slots=True)
class ClockSkew:
    """How far the clock of the store is ahead of this machine's, in seconds.

    seconds: the difference; None: the store does not report when an object was written, or there is no store.
    error: why it could not be measured.
    """

    seconds: float | None = None
    error: ErrorInfo | None = None


def probe_clock(config: Config) -> ClockSkew:
    """Writes a scratch object and compares the time that the store gives it."""
    store = open_store(config.store, config.path.parent)
    if _find_missing_folder(store.address):
        return ClockSkew()
    try:
        return ClockSkew(measure_skew(store))
    except TidefoldError as error:
        return ClockSkew(error=ErrorInfo.of(error))


@dataclass(frozen=True, slots=True)
class LandingProbe:
    """The landing folder of a log, on a disk or in a bucket.

    unsafe: entries that tidefold does not read, such as links, each with its kind.
    error: why it cannot be read; empty: it can.
    files: how many files were checked. `is_all`: whether these are all files.
    """

    log: str
    address: str
    is_there: bool = True
    unsafe: tuple[tuple[str, str], ...] = ()
    error: str = ""
    files: int = 0
    is_all: bool = True


def probe_landing(config: Config) -> list[LandingProbe]:
    """Lists the landing folder of each log that has one. Reads no file."""
    return [_look_at(log.id, log.landing) for log in config.logs.values() if log.landing]


def _look_at(log: str, address: str) -> LandingProbe:
    unsafe: list[tuple[str, str]] = []
    files = 0
    try:
        for file in folder_at(address).list_files():
            if files == MOST_FILES:
                return LandingProbe(log, address, unsafe=tuple(unsafe), files=files, is_all=False)
            files += 1
            if file.unsafe:
                unsafe.append((file.name, file.unsafe.kind))
            elif "://" not in address and not os.access(f"{address}/{file.name}", os.R_OK):
                return LandingProbe(log, address, error=f"`{file.name}` is not readable.", files=files)
    except NotFoundError:
        is_file = Path(address).exists()
        return LandingProbe(log, address, is_there=is_file, error="it is not a folder." if is_file else "")
    except TidefoldError as error:
        return LandingProbe(log, address, error=error.message, files=files)
    return LandingProbe(log, address, unsafe=tuple(unsafe), files=files)


def probe_suites(config: Config) -> dict[str, ErrorInfo | None]:
    """Returns what is wrong with the suite of each log; None: nothing."""
    return {log: ErrorInfo.of(error) if error else None for log, error in find_suite_errors(config).items()}


@dataclass(frozen=True, slots=True)
class WaitingFiles:
    """Landed files that no ingest has seen.

    count: their number. `seconds`: how long ago the oldest of them was changed.
    table: what is wrong with the published table of the log; empty: nothing.
    error: why they could not be counted.
    """

    log: str
    count: int = 0
    seconds: float = 0.0
    table: str = ""
    error: ErrorInfo | None = None


def probe_waiting_files(config: Config) -> list[WaitingFiles]:
    """Compares the landing folder of each log with its ledger. Writes nothing."""
    store = open_store(config.store, config.path.parent)
    if _find_missing_folder(store.address):
        return []
    waiting = []
    for log in config.logs.values():
        if log.landing:
            try:
                waiting.append(_count_waiting(store, log.id, log.landing))
                if of_set := config.set_of(log.id):
                    SetLedger(store, of_set.name, of_set.logs).read()
            except NotFoundError:
                waiting.append(WaitingFiles(log.id))
            except TidefoldError as error:
                waiting.append(WaitingFiles(log.id, error=ErrorInfo.of(error)))
    return waiting


@dataclass(frozen=True, slots=True)
class RewrittenRows:
    """The newest snapshot of a log without deletion vectors.

    changes: how many changes it folded. rows: how many rows it has.
    written: the bytes that its run wrote. expected: about so many it would have written with deletion vectors.
    """

    log: str
    changes: int
    rows: int
    written: int
    expected: int


def probe_rewritten_rows(config: Config) -> list[RewrittenRows]:
    """Returns the newest snapshots whose few changes deletion vectors would mark. Leaves out unreadable ledgers."""
    store = open_store(config.store, config.path.parent)
    if _find_missing_folder(store.address):
        return []
    found = []
    for log in config.logs.values():
        if log.deletion_vectors or not log.shape.marks_rows:
            continue
        with suppress(TidefoldError):
            state = Ledger(store, log.id).find_current()
            latest = state.latest if state else None
            if state and latest and latest.parent is not None and state.truncated_to <= latest.from_sqn:
                changes = sum(one.rows for one in state.change_sets_in(latest.from_sqn, latest.folds_to))
                expected = latest.bytes_full * changes // max(latest.rows, 1)
                if changes <= latest.rows * MARKED_SHARE:
                    found.append(RewrittenRows(log.id, changes, latest.rows, latest.bytes_written, expected))
    return found


def _count_waiting(store: Store, log: str, address: str) -> WaitingFiles:
    """Counts files that are newer than all ingested ones. The ledger may have forgotten the names of older files."""
    ledger = Ledger(store, log)
    state = ledger.find_current()
    table = ledger.find_table_problem(state) if state else ""
    names = {entry.name for entry in state.landed} | {p.file for p in state.landing.listed} if state else set[str]()
    newest = max((entry.changed for entry in state.landed), default=0.0) if state else 0.0
    listed = islice(folder_at(address).list_files(), MOST_FILES)
    times = [file.stamp.changed for file in listed if file.name not in names and file.stamp.changed > newest]
    return WaitingFiles(log, len(times), max(time.time() - min(times, default=time.time()), 0.0), table)
