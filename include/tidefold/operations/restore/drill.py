"""The restore drill: restores a snapshot into a scratch folder, checks, measures and records it, deletes it (L6).

The next drill on this machine also deletes scratch folders whose owner was killed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tidefold.compute.runners import Runner, in_threads
from tidefold.delta.table_state import build_table, delta_state
from tidefold.domain.log_state import Drill
from tidefold.domain.paths import data_path
from tidefold.domain.snapshot import transitions
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.errors import CorruptError, NotFoundError, TidefoldError
from tidefold.operations.outcome import ErrorInfo, Outcome, Status
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.restore.export import Elsewhere, Restored, restore_rows
from tidefold.operations.restore.target_location import clear, open_place
from tidefold.operations.snapshot.details import DrillDetails
from tidefold.storage import Store, compute_sha256
from tidefold.storage.safe_files import make_private_folder

_log = logging.getLogger(__name__)
_LOCK = ".lock"


@contextmanager
def scratch_name(parent: Path, name: str) -> Iterator[Path]:
    """Yields a path below `parent` that only the caller uses. First deletes the scratch folders of killed processes.

    The system releases a lock when its owner ends, however that happens. So a free lock means a dead owner.
    """
    make_private_folder(parent)
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
        # The lock was deleted meanwhile, or is held by a live process.
        with suppress(OSError), lock.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(held.fileno()).st_nlink:
                shutil.rmtree(parent / lock.name.removesuffix(_LOCK), ignore_errors=True)
                lock.unlink()
                _log.info("deleted the scratch folder of a killed process: %s", lock.name.removesuffix(_LOCK))


_READERS = 4


@dataclass(frozen=True, slots=True)
class Trial:
    """How a drill runs: scratch folder or address (None: `var/drill` by the configuration), task runner, clock."""

    scratch: str | None = None
    run: Runner | None = None
    clock: Callable[[], float] = time.perf_counter


def drill(pipeline: Pipeline, log: str, snapshot: int | None = None, trial: Trial | None = None) -> Outcome:
    """Restores a snapshot (default: the newest completed one), verifies every byte of the result, and records the
    outcome.

    The outcome is an error (exit code 5) if the rows cannot be restored or differ from the recorded ones. Raises
    NotFoundError, RefusedError, InvalidInputError or StorageError if nothing was tried; then nothing is recorded.
    """
    latest = pipeline.ledger(log).read().latest
    if snapshot is None and latest is None:
        message = f"`{log}` has no completed snapshot that could be restored."
        raise NotFoundError("NOTHING_COMPLETED", message, hint=f"`tidefold run {log}` makes one.")
    chosen, how = snapshot or (latest.id if latest else 0), trial or Trial()
    begun = how.clock()
    made, wrong = _try_restore(pipeline, log, chosen, how)
    return _record_drill(pipeline, log, chosen, made, wrong, how.clock() - begun)


def drill_newest(pipeline: Pipeline, log: str, trial: Trial | None = None) -> Outcome:
    """Does the same for a schedule over all logs. A log without a snapshot is `nothing`, not an error."""
    state = pipeline.ledger(log).find()
    if state is None or state.latest is None:
        return Outcome(log, Status.NOTHING, "no snapshot is completed yet")
    return drill(pipeline, log, trial=trial)


def _try_restore(pipeline: Pipeline, log: str, snapshot: int, how: Trial) -> tuple[Restored | None, list[str]]:
    """Returns what could be restored, and what is wrong with it. Empties the scratch folder."""
    name = f"{log}-{snapshot}-{uuid.uuid4().hex[:12]}"
    if how.scratch:
        return _try_restore_at(pipeline, log, snapshot, how, f"{how.scratch.rstrip('/')}/{name}")
    with scratch_name(pipeline.config.path.parent / "var" / "drill", name) as place:
        return _try_restore_at(pipeline, log, snapshot, how, str(place))


def _try_restore_at(
    pipeline: Pipeline, log: str, snapshot: int, how: Trial, place: str
) -> tuple[Restored | None, list[str]]:
    scratch = open_place(pipeline, place)
    try:
        made = restore_rows(pipeline, log, snapshot, Elsewhere(scratch), how.run or in_threads())
        return made, list(_faults(scratch, made.manifest))
    except CorruptError as error:
        return None, [f"{error.code}: {error.message}"]
    finally:
        _remove(scratch)


def _remove(scratch: Store) -> None:
    try:
        clear(scratch, keep=False)
    except TidefoldError as error:
        _log.warning("the scratch place of the drill, %s, could not be removed: %s", scratch.address, error)


def _faults(scratch: Store, manifest: Manifest) -> Iterator[str]:
    """Yields the differences between the restored table and what was written: by checksums, and by what readers see."""
    with ThreadPoolExecutor(_READERS) as pool:
        yield from filter(None, pool.map(lambda file: _fault(scratch, file), manifest.files))
    shown = delta_state(scratch, "")
    if shown is None or shown != build_table(manifest)[0]:
        yield "_delta_log: readers do not see the restored files"


def _fault(scratch: Store, file: DataFile) -> str:
    path = data_path("", file.name)
    try:
        with scratch.open(path) as stream:
            digest = compute_sha256(stream)
    except NotFoundError:
        return f"{path}: missing"
    return "" if digest == file.sha256 else f"{path}: altered"


def _record_drill(
    pipeline: Pipeline, log: str, snapshot: int, made: Restored | None, wrong: list[str], seconds: float
) -> Outcome:
    read = made.read if made else None
    local, stored = (read.local.bytes, read.store.bytes) if read else (0, 0)
    found = Drill(now(), round(seconds, 3), local + stored, local, passed=not wrong)
    pipeline.ledger(log).commit(lambda state: transitions.record_drill(state, snapshot, found))
    details = DrillDetails(
        seconds=found.seconds,
        bytes=found.bytes,
        bytes_local=found.bytes_local,
        rows=made.manifest.rows if made else 0,
        files=len(made.manifest.files) if made else 0,
        passed=found.passed,
        wrong=wrong,
        read=read,
    )
    if wrong:
        message = f"snapshot {snapshot} cannot be restored as it was: {'; '.join(wrong)}"
        error = ErrorInfo.of(CorruptError("DRILL_FAILED", message))
        return Outcome(log, Status.DAMAGED, message, snapshot, error, details)
    message = f"snapshot {snapshot}: {details.rows:,} rows restored and checked in {found.seconds:.1f} s"
    return Outcome(log, Status.PASSED, f"{message}; the scratch place is removed", snapshot, details=details)
