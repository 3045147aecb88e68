"""Restores the rows of a snapshot as a separate Delta table (L6, L8), also for trial: the drill.

A marker claims the place first, so that two restores never mix there. Then the restore writes the data files, whose
bytes it verifies, and a description. The Delta log comes last, so that an unfinished restore never looks like a table.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from tidefold import errors
from tidefold.compute.runners import Runner, in_threads
from tidefold.delta.publish import build_table
from tidefold.delta.published_table import COMMIT, delta_state
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.key_groups import KeyGroups, OwnedRows, RedistributionMode, Share
from tidefold.domain.log_state import Drill, LogState, Snapshot, SnapshotKind
from tidefold.domain.paths import data_path
from tidefold.domain.snapshot import transitions
from tidefold.domain.snapshot.claim import require_completed
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.domain.source_progress import NO_PROGRESS
from tidefold.domain.wording import count_noun
from tidefold.fold.plan import Address, FoldResult
from tidefold.fold.tasks import serialize_tasks
from tidefold.operations.ground.outcome import ErrorInfo, Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline, find_current_limit, now
from tidefold.operations.ground.read import ReadRequest, plan_read
from tidefold.operations.ground.snapshot_details import DrillDetails, ExportDetails, ReadSources
from tidefold.operations.local_copies.manage import places_of
from tidefold.operations.restore.plan import Into, RestorePlan, find_rows, plan_restore
from tidefold.operations.restore.target_location import DESCRIPTION, claim_location, clear, open_place
from tidefold.operations.snapshot.task_results import decode_results, describe_reads, find_failed_reads, require_rows
from tidefold.storage import Store, compute_sha256
from tidefold.storage.safe_files import make_private_folder
from tidefold.stored_forms import encode_form

_log = logging.getLogger(__name__)
# The next drill on this machine also deletes scratch folders whose owner was killed.
_LOCK = ".lock"
_READERS = 4


@dataclass(frozen=True, slots=True)
class Description:
    """The description next to the restored table. `key_groups`: the first, the last, and the log's number of them."""

    log: str
    snapshot: int
    sqn: int
    rows: int
    key_groups: tuple[int, int, int]
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Restored:
    """The restored table, and the sources of its rows."""

    manifest: Manifest
    snapshot: Snapshot
    plan: RestorePlan
    results: tuple[FoldResult, ...]

    @property
    def read(self) -> ReadSources:
        own = self.plan.base.snapshot if self.plan.base else self.snapshot.id
        return describe_reads(self.plan.tasks, self.results, own, places=True)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The target of a restore: a store whose root is the table.

    within: only these key groups.
    only: only the rows of this owner.
    drops_expired: leave out rows that have expired by now. A drill verifies all rows.
    """

    store: Store
    within: KeyGroups | None = None
    drops_expired: bool = False
    only: OwnedRows | None = None

    @property
    def address(self) -> str:
        return self.store.address


def restore_to(
    pipeline: Pipeline,
    log: str,
    snapshot: int,
    address: str,
    within: KeyGroups | None = None,
    run: Runner | None = None,
    share: Share | None = None,
) -> Outcome:
    """Writes the rows of a completed snapshot as a Delta table into an absent or empty folder. Changes no ledger.

    share: only the part of one worker, by the redistribution that the snapshot stores.

    Raises InvalidInputError, NotFoundError, RefusedError, StorageError; CorruptError if the rows cannot be restored.
    """
    part = None if share is None else _find_part(pipeline, log, snapshot, share)
    within, only = (part.within, part.only) if part else (within, None)
    into = Elsewhere(open_place(pipeline, address), within, drops_expired=True, only=only)
    made = restore_rows(pipeline, log, snapshot, into, run or in_threads())
    manifest = made.manifest
    details = ExportDetails(
        to=into.address,
        rows=manifest.rows,
        files=len(manifest.files),
        bytes=manifest.bytes_full,
        sqn=manifest.to_sqn,
        key_groups=_groups(manifest, within),
        share=str(share) if share else None,
        redistribution=part.mode if part else None,
        owner=only.value if only else None,
        manifests=find_failed_reads(made.plan.failed),
        read=made.read,
    )
    of = "" if within is None else f" of key groups {within.first} to {within.last}"
    of += "" if part is None else f" for share {share} by {part.mode}"
    rows, files = count_noun(manifest.rows, "row"), count_noun(len(manifest.files), "file")
    message = f"snapshot {snapshot}: {rows}{of} in {files} at {into.address}"
    return Outcome(log, Status.EXPORTED, message, snapshot, details=details)


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of one worker. within: only these key groups. only: only the rows of this owner."""

    mode: RedistributionMode
    within: KeyGroups | None
    only: OwnedRows | None


def _find_part(pipeline: Pipeline, log: str, snapshot: int, share: Share) -> _Part:
    plan = plan_read(pipeline, log, ReadRequest(snapshot=snapshot, share=share))
    if plan.share is None:
        raise errors.RefusedError(
            "SHARE_EMPTY",
            f"Share {share} of `{log}` has no rows: there are {plan.shape.key_groups} key groups for {share.workers} "
            "workers.",
            hint=f"Use at most {plan.shape.key_groups} workers.",
        )
    mode = share.resolve(plan.redistribution).distribution or RedistributionMode.SPLIT
    return _Part(mode, plan.share if mode is RedistributionMode.SPLIT else None, plan.only)


def restore_rows(pipeline: Pipeline, log: str, snapshot: int, into: Elsewhere, run: Runner) -> Restored:
    """Restores the rows, and returns what was made and read. Removes the unfinished table after an error."""
    state = pipeline.ledger(log).read()
    wanted = require_completed(state, snapshot)
    _check_groups(state, into.within)
    target = Into(Address(StorageTier.EXTERNAL, into.address), wanted.id, wanted.epoch)
    rows = find_rows(state, wanted, find_current_limit(pipeline, state, wanted) if into.drops_expired else None)
    rows = replace(rows, only=into.only)
    plan = plan_restore(pipeline, rows, places_of(pipeline, log), target, into.within)
    with claim_location(into.store, f"snapshot {wanted.id} of {log}"):
        results = _results(run(*serialize_tasks(plan.tasks)))
        manifest = _manifest(wanted, plan, [file for result in results for file in result.files], state.log)
        require_rows(log, None if into.within else rows.rows, results)
        _finish(into, manifest)
    return Restored(manifest, wanted, plan, tuple(results))


def _check_groups(state: LogState, within: KeyGroups | None) -> None:
    if within and within.last >= state.shape.key_groups:
        raise errors.InvalidInputError(
            "KEY_GROUPS_INVALID",
            f"`{state.log}` has the key groups 0 to {state.shape.key_groups - 1}, not {within.first} to {within.last}.",
            hint="Give a range within them, such as `--key-groups 0-31`.",
        )


def _results(answers: Sequence[str | errors.TidefoldError]) -> list[FoldResult]:
    for answer in answers:
        if isinstance(answer, errors.NotFoundError):
            # The ledger names the file, so it was lost. That is more than "not found".
            raise errors.CorruptError(
                "FILE_MISSING",
                f"{answer.message} The ledger needs it.",
                hint="Run `tidefold check verify --repair`, or restore the file from a backup.",
            )
    return decode_results(answers)


def _manifest(wanted: Snapshot, plan: RestorePlan, made: Sequence[DataFile], log: str) -> Manifest:
    return Manifest(
        log=log,
        snapshot=wanted.id,
        epoch=wanted.epoch,
        kind=SnapshotKind.FULL,
        base=wanted.base,
        from_sqn=wanted.from_sqn,
        to_sqn=wanted.folds_to,
        shape=plan.shape,
        files=tuple(replace(file, carried=False) for file in sorted(made, key=lambda file: file.name)),
        progress=NO_PROGRESS,
        cleared=plan.base.cleared if plan.base else (),
        schema=wanted.schema,
    )


def _finish(into: Elsewhere, manifest: Manifest) -> None:
    store, groups = into.store, _groups(manifest, into.within)
    files = {f"_data/{file.name}": file.sha256 for file in manifest.files}
    description = Description(manifest.log, manifest.snapshot, manifest.to_sqn, manifest.rows, groups, files)
    store.put_if_absent(DESCRIPTION, msgspec.json.format(encode_form(description)) + b"\n")
    commit = build_table(manifest)[1]
    try:
        store.put_if_absent(COMMIT, commit)
    except errors.UnknownOutcomeError:
        if not _holds(lambda: store.read(COMMIT), commit):
            raise


def _holds(read: Callable[[], bytes], data: bytes) -> bool:
    try:
        return read() == data
    except errors.NotFoundError:
        return False


def _groups(manifest: Manifest, within: KeyGroups | None) -> tuple[int, int, int]:
    count = manifest.shape.key_groups
    return (within.first, within.last, count) if within else (0, count - 1, count)


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
        raise errors.NotFoundError("NOTHING_COMPLETED", message, hint=f"`tidefold run {log}` makes one.")
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
    except errors.CorruptError as error:
        return None, [f"{error.code}: {error.message}"]
    finally:
        _remove(scratch)


def _remove(scratch: Store) -> None:
    try:
        clear(scratch, keep=False)
    except errors.TidefoldError as error:
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
    except errors.NotFoundError:
        return f"{path}: missing"
    return "" if digest == file.sha256 else f"{path}: altered"


def _record_drill(
    pipeline: Pipeline, log: str, snapshot: int, made: Restored | None, wrong: list[str], seconds: float
) -> Outcome:
    read = made.read if made else None
    local, stored = (read.local.bytes, read.store.bytes) if read else (0, 0)
    drill = Drill(now(), round(seconds, 3), local + stored, local, passed=not wrong)
    pipeline.ledger(log).commit(lambda state: transitions.record_drill(state, snapshot, drill))
    details = DrillDetails(
        seconds=drill.seconds,
        bytes=drill.bytes,
        bytes_local=drill.bytes_local,
        rows=made.manifest.rows if made else 0,
        files=len(made.manifest.files) if made else 0,
        passed=drill.passed,
        wrong=wrong,
        read=read,
    )
    if wrong:
        message = f"snapshot {snapshot} cannot be restored as it was: {'; '.join(wrong)}"
        error = ErrorInfo.of(errors.CorruptError("DRILL_FAILED", message))
        return Outcome(log, Status.DAMAGED, message, snapshot, error, details)
    message = f"snapshot {snapshot}: {count_noun(details.rows, 'row')} restored and checked in {drill.seconds:.1f} s"
    return Outcome(log, Status.PASSED, f"{message}; the scratch place is removed", snapshot, details=details)
