"""Takes a savepoint: a snapshot outside of the store that belongs to the user (N9)."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from tidefold.compute.runners import in_threads
from tidefold.delta.table_state import build_table
from tidefold.domain.external_snapshot import Layout
from tidefold.domain.key_groups import bucket_ranges
from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.snapshot import transitions
from tidefold.domain.snapshot.savepoint import BEGUN, DELTA_LOG, ROWS, SavedFile, Savepoint, part_path
from tidefold.domain.source_progress_history import positions_at
from tidefold.domain.storage_tier import StorageTier
from tidefold.domain.wording import in_units
from tidefold.errors import NotFoundError, RefusedError, TidefoldError, UnknownOutcomeError
from tidefold.fold.fold_bucket import deal
from tidefold.fold.plan import Address
from tidefold.fold.rewrite import RewriteAction, RewriteDecision
from tidefold.fold.task import FoldTask
from tidefold.ledger import write_description
from tidefold.operations.local_copies.manage import places_of
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.restore.plan import Into, RestorePlan, find_rows, plan_restore
from tidefold.operations.restore.target_location import open_place
from tidefold.operations.savepoint import target as places
from tidefold.operations.savepoint.external import with_originals
from tidefold.operations.savepoint.target import Begun
from tidefold.operations.snapshot.details import ReadSources, SavepointDetails
from tidefold.operations.snapshot.expiry import find_current_limit
from tidefold.operations.snapshot.task_results import decode_results, describe_reads, require_rows
from tidefold.storage import Store

_log = logging.getLogger(__name__)
# Paths of a savepoint are relative to its own address.
_HERE = "."
_NOTE_SECONDS = 5.0
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SavepointRequest:
    """The request for a savepoint.

    snapshot: its id; None: the newest completed one.
    overwrite: replace an unfinished savepoint at the address.
    run: the run that stopped the log for it.
    """

    address: str
    snapshot: int | None = None
    layout: Layout = Layout.NATIVE
    overwrite: bool = False
    run: str = ""


def take_savepoint(pipeline: Pipeline, log: str, wanted: SavepointRequest, note: Note = _log.info) -> Outcome:
    """Writes a completed snapshot to an address outside the store, as its own, verified bytes.

    The description is written last: without it there is no savepoint. A repeated call returns `already`. `note`
    receives lines about the progress. Raises TidefoldError, and deletes the written files.
    """
    state = pipeline.ledger(log).find_current()
    if state is None:
        raise NotFoundError("LOG_UNKNOWN", f"The store has no log `{log}`.", hint=f"`tidefold ingest {log}` starts it.")
    snapshot = _choose_snapshot(state, wanted.snapshot)
    store = open_place(pipeline, wanted.address)
    there = places.savepoint_there(store)
    if there:
        return _already(state, snapshot, wanted, there, store)
    begun = Begun(log, snapshot.id, uuid.uuid4().hex, wanted.run)
    try:
        places.begin(store, begun, wanted.overwrite)
        savepoint, read = _write_savepoint(pipeline, state, snapshot, wanted.layout, store, note)
        places.require_mine(store, begun)
    except (Exception, KeyboardInterrupt):
        _give_up(store, begun)
        raise
    _describe(store, savepoint, begun)
    _remove_mark(store, log)
    return _outcome(savepoint, store, Status.SAVED, read)


def _choose_snapshot(state: LogState, wanted: int | None) -> Snapshot:
    if wanted is None:
        completed = (s for s in reversed(state.snapshots) if s.state is State.COMPLETED)
        newest = next((s for s in completed if s.as_of is None), None)
        if newest is None:
            message = f"`{state.log}` has no completed snapshot yet."
            raise NotFoundError("NOTHING_COMPLETED", message, hint=f"`tidefold run {state.log}` makes one.")
        return newest
    found = transitions.require_readable(state, wanted)
    if found.state is not State.COMPLETED:
        raise RefusedError(
            "WRONG_STATE",
            f"Snapshot {found.id} of `{state.log}` is {found.state}; only completed snapshots can be exported.",
            hint=f"`tidefold history {state.log}` lists them. `tidefold confirm {state.log}` completes a STAGED one.",
        )
    return found


def _already(state: LogState, snapshot: Snapshot, wanted: SavepointRequest, there: Savepoint, store: Store) -> Outcome:
    asked = (wanted.layout, state.log, snapshot.id, snapshot.to_sqn, snapshot.started_at)
    if (there.kind, there.log, there.snapshot, there.sqn, there.instant) == asked:
        _remove_mark(store, state.log)
        return _outcome(there, store, Status.ALREADY)
    raise RefusedError(
        "SAVEPOINT_EXISTS",
        f"{store.address} already contains a savepoint: snapshot {there.snapshot} of `{there.log}`, {there.kind}.",
        hint="Give another address. tidefold never overwrites or deletes savepoints.",
    )


def _write_savepoint(
    pipeline: Pipeline, state: LogState, snapshot: Snapshot, layout: Layout, store: Store, note: Note
) -> tuple[Savepoint, ReadSources]:
    rows = find_rows(state, snapshot, find_current_limit(pipeline, state.log, snapshot))
    target = Into(Address(StorageTier.EXTERNAL, store.address, _HERE), snapshot.id, snapshot.epoch)
    plan = plan_restore(pipeline, rows, with_originals(state, places_of(pipeline, state.log)), target)
    native = layout is Layout.NATIVE
    tasks = plan.tasks if native else _parts(plan)
    results = decode_results(in_threads(_teller(note))(*deal(tasks)))
    require_rows(state.log, rows.rows, results)
    files = tuple(
        SavedFile.of("_data" if native else ROWS, f)
        for f in sorted((f for r in results for f in r.files), key=lambda f: f.name)
    )
    savepoint = Savepoint(
        kind=layout,
        log=state.log,
        snapshot=snapshot.id,
        sqn=snapshot.to_sqn,
        instant=snapshot.started_at,
        rows=sum(f.rows for f in files if not f.hidden),
        shape=plan.shape,
        positions=positions_at(state, snapshot.to_sqn),
        files=files,
        delta_log=(DELTA_LOG,) if native else (),
        cleared=plan.base.cleared if plan.base else (),
        redistribution=plan.base.redistribution if plan.base else None,
    )
    if native:
        store.put_if_absent(DELTA_LOG, build_table(savepoint.manifest)[1])
    return savepoint, describe_reads(tasks, results, plan.base.snapshot if plan.base else None)


def _parts(plan: RestorePlan) -> tuple[FoldTask, ...]:
    """Returns the tasks of the plan, changed so that each writes one file of plain rows."""
    numbers = {b: i for i, b in enumerate(bucket_ranges(plan.shape.key_groups, plan.shape.buckets))}
    rewrite = RewriteDecision(RewriteAction.REWRITE, "a canonical savepoint has plain rows")
    return tuple(
        replace(
            task,
            recipes=tuple(replace(recipe, unchanged=rewrite) for recipe in task.recipes),
            part=part_path(numbers[task.bucket]),
        )
        for task in plan.tasks
    )


def _teller(note: Note) -> Callable[[int, int], None]:
    """Returns a function that reports the progress every few seconds."""
    begun = said = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal said
        if done < total and time.monotonic() - said >= _NOTE_SECONDS:
            said = time.monotonic()
            note(f"savepoint: {done} of {total} buckets written, {said - begun:.0f} s")

    return tell


def _describe(store: Store, savepoint: Savepoint, begun: Begun) -> None:
    try:
        write_description(store, savepoint)
    except UnknownOutcomeError:
        raise  # The description may have been written: a repeated call finds out (I11).
    except (Exception, KeyboardInterrupt):
        _give_up(store, begun)
        raise


def _give_up(store: Store, begun: Begun) -> None:
    try:
        places.give_up(store, begun)
    except TidefoldError as error:
        _log.warning("an unfinished savepoint is left at %s: %s", store.address, error)


def _remove_mark(store: Store, log: str) -> None:
    """Deletes the marker of an unfinished savepoint, because the savepoint is complete."""
    try:
        store.delete([BEGUN])
    except TidefoldError as error:
        _log.warning("`%s` is left beside the savepoint of %s: %s", BEGUN, log, error)


def _outcome(savepoint: Savepoint, store: Store, status: Status, read: ReadSources | None = None) -> Outcome:
    details = SavepointDetails(
        address=store.address,
        kind=savepoint.kind,
        sqn=savepoint.sqn,
        rows=savepoint.rows,
        files=len(savepoint.files),
        bytes=savepoint.bytes,
        positions=[msgspec.to_builtins(p) for p in savepoint.positions],
        read=read,
    )
    message = (
        f"snapshot {savepoint.snapshot}, {savepoint.kind}: {savepoint.rows:,} rows in {len(savepoint.files)} files, "
        f"{in_units(savepoint.bytes)} at {details.address}"
    )
    return Outcome(savepoint.log, status, message, savepoint.snapshot, details=details)
