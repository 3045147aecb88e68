"""Takes a savepoint: a snapshot outside of the store, at an address that is checked, owned by the user (N9)."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tidefold.compute.runners import in_threads
from tidefold.delta.publish import build_table
from tidefold.domain.external_snapshot import Layout, StorageTier
from tidefold.domain.key_groups import bucket_ranges
from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.snapshot import manifest, transitions
from tidefold.domain.source_progress import Position
from tidefold.domain.source_progress_history import progress_at
from tidefold.domain.wording import count_noun, in_units
from tidefold.errors import InvalidInputError, NotFoundError, RefusedError, TidefoldError, UnknownOutcomeError
from tidefold.fold.plan import Address, FoldTask, RewriteAction, RewriteDecision
from tidefold.fold.tasks import serialize_tasks
from tidefold.ledger import read_description, write_description
from tidefold.operations.ground.originals import with_originals
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline, find_current_limit
from tidefold.operations.ground.snapshot_details import ReadSources, SavepointDetails
from tidefold.operations.local_copies.manage import places_of
from tidefold.operations.restore.plan import Into, RestorePlan, find_rows, plan_restore
from tidefold.operations.restore.target_location import open_place
from tidefold.operations.snapshot.task_results import decode_results, describe_reads, require_rows
from tidefold.storage import Store
from tidefold.typed_json import decode_json

# The paths of a finished or unfinished savepoint.
_OURS = re.compile(
    rf"({manifest.FOLDERS})/.+|({re.escape(manifest.DESCRIPTION)}|{re.escape(manifest.BEGUN)})(\..+\.part)?"
)
_log = logging.getLogger(__name__)
# Paths of a savepoint are relative to its own address.
_HERE = "."
_NOTE_SECONDS = 5.0
Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Begun:
    """The mark of an unfinished savepoint.

    token: identifies the call.
    run: the run that stopped the log. Its next call may continue the savepoint.
    """

    log: str
    snapshot: int
    token: str
    run: str = ""


def savepoint_there(store: Store) -> manifest.Savepoint | None:
    """Returns the savepoint that is already at a place. Raises CorruptError if it cannot be read."""
    try:
        return read_description(store)[0]
    except NotFoundError:
        return None


def begin(store: Store, begun: Begun, overwrite: bool) -> None:
    """Marks a free place, or with `overwrite` one with an unfinished savepoint. The run that left it needs no
    `overwrite`.

    Raises RefusedError if the place contains anything else.
    """
    paths = [e.path for e in store.list("", unfinished=True)]
    foreign = next((path for path in paths if not _OURS.fullmatch(path)), None)
    if foreign or (paths and not any(path.startswith(manifest.BEGUN) for path in paths)):
        raise RefusedError(
            "ADDRESS_NOT_EMPTY", f"{store.address} already contains other files, such as `{foreign or paths[0]}`."
        )
    if paths:
        left = _read_begun(store)
        if not overwrite and not (left and begun.run and left.run == begun.run):
            raise RefusedError(
                "SAVEPOINT_UNFINISHED",
                f"The savepoint at {store.address} is unfinished. Its writer stopped, or is still writing.",
            )
        remove(store)
    store.put_if_absent(manifest.BEGUN, msgspec.json.encode(begun))


def _read_begun(store: Store) -> Begun | None:
    try:
        return decode_json(store.read(manifest.BEGUN), Begun)
    except (NotFoundError, msgspec.DecodeError):
        return None


def require_mine(store: Store, begun: Begun) -> None:
    """Raises RefusedError if another call has taken the place meanwhile."""
    if _read_begun(store) != begun:
        raise RefusedError(
            "SAVEPOINT_OVERTAKEN", f"Another call started a savepoint at {store.address} at the same time."
        )


def give_up(store: Store, begun: Begun) -> None:
    """Deletes the written files, unless another call has taken the place."""
    if _read_begun(store) == begun and savepoint_there(store) is None:
        remove(store)


def remove(store: Store) -> None:
    """Deletes an unfinished savepoint; its marker is deleted last."""
    paths = [e.path for e in store.list("", unfinished=True) if _OURS.fullmatch(e.path)]
    store.delete([path for path in paths if not path.startswith(manifest.BEGUN)])
    store.delete([path for path in paths if path.startswith(manifest.BEGUN)])


@dataclass(frozen=True, slots=True)
class SavepointRequest:
    """The request for a savepoint.

    address: where it is written; None: a folder of its own in `snapshots.savepoints`.
    snapshot: its id; None: the newest completed one.
    overwrite: replace an unfinished savepoint at the address.
    run: the run that stopped the log for it.
    """

    address: str | None
    snapshot: int | None = None
    layout: Layout = Layout.NATIVE
    overwrite: bool = False
    run: str = ""


def take_savepoint(pipeline: Pipeline, log: str, wanted: SavepointRequest, note: Notify = _log.info) -> Outcome:
    """Writes a completed snapshot to an address outside the store, as its own, verified bytes.

    The description is written last: without it there is no savepoint. A repeated call returns `already`. `note`
    receives lines about the progress. Raises TidefoldError, and deletes the written files.
    """
    state = pipeline.ledger(log).find_current()
    if state is None:
        hint = f"`tidefold step ingest {log}` starts it."
        raise NotFoundError("LOG_UNKNOWN", f"The store has no log `{log}`.", hint=hint)
    snapshot = _choose_snapshot(state, wanted.snapshot)
    store = open_place(pipeline, wanted.address or _find_default(pipeline, snapshot, wanted.layout, log))
    stored = savepoint_there(store)
    if stored:
        return _already(state, snapshot, wanted, stored, store)
    begun = Begun(log, snapshot.id, uuid.uuid4().hex, wanted.run)
    try:
        begin(store, begun, wanted.overwrite)
        savepoint, read = _write_savepoint(pipeline, state, snapshot, wanted.layout, store, note)
        require_mine(store, begun)
    except (Exception, KeyboardInterrupt):
        _give_up(store, begun)
        raise
    _describe(store, savepoint, begun)
    _remove_mark(store, log)
    outcome = _outcome(savepoint, store, Status.SAVED, read)
    return replace(outcome, message=f"{outcome.message}{''.join(_list_missing(state, snapshot))}")


def _list_missing(state: LogState, snapshot: Snapshot) -> Iterator[str]:
    """Yields what the log has, and the savepoint has not."""
    if snapshot == state.latest and state.unfolded:
        yield f"; without {count_noun(sum(s.rows for s in state.unfolded), 'change')} after the snapshot"
    end = snapshot.to_sqn
    if taken := sum(e.count_retried(end) for e in state.landed if e.sqn is None or e.sqn <= end):
        yield f"; without {count_noun(taken, 'record')} that a retry took later, which a later snapshot has"
    if refused := sum(entry.quarantined for entry in state.landed):
        yield (
            f"; without {count_noun(refused, 'refused record')}, which no import reads again: before a move, "
            f"`tidefold quarantine retry {state.log}`"
        )


def _find_default(pipeline: Pipeline, snapshot: Snapshot, layout: Layout, log: str) -> str:
    """Returns the address of a savepoint that names none. A repeated call gets the same one."""
    folder = pipeline.config.snapshots.savepoints
    if folder is None:
        hint = "Give one with --to, or set `snapshots.savepoints`, in which each savepoint gets a folder."
        raise InvalidInputError("SAVEPOINT_OPTIONS", "The savepoint has no address.", hint=hint)
    base = folder if "://" in folder else str(pipeline.config.path.parent / folder)
    return f"{base}/{log}-{snapshot.id}-{layout}"


def _choose_snapshot(state: LogState, wanted: int | None) -> Snapshot:
    if wanted is None:
        completed = (s for s in reversed(state.snapshots) if s.state is State.COMPLETED)
        newest = next((s for s in completed if s.as_of is None), None)
        if newest is None:
            message = f"`{state.log}` has no completed snapshot yet."
            raise NotFoundError("NOTHING_COMPLETED", message, hint=f"`tidefold run {state.log}` makes one.")
        return newest
    snapshot = transitions.require_readable(state, wanted)
    if snapshot.state is not State.COMPLETED:
        raise RefusedError(
            "WRONG_STATE",
            f"Snapshot {snapshot.id} of `{state.log}` is {snapshot.state}; only completed snapshots can be exported.",
            hint=f"`tidefold snapshot history {state.log}` lists them. `tidefold step confirm` completes a STAGED one.",
        )
    return snapshot


def _already(
    state: LogState, snapshot: Snapshot, wanted: SavepointRequest, stored: manifest.Savepoint, store: Store
) -> Outcome:
    asked = (wanted.layout, state.log, snapshot.id, snapshot.to_sqn, snapshot.started_at)
    if (stored.kind, stored.log, stored.snapshot, stored.sqn, stored.instant) == asked:
        _remove_mark(store, state.log)
        return _outcome(stored, store, Status.ALREADY)
    raise RefusedError(
        "SAVEPOINT_EXISTS",
        f"{store.address} already contains a savepoint: snapshot {stored.snapshot} of `{stored.log}`, {stored.kind}.",
    )


def _write_savepoint(
    pipeline: Pipeline, state: LogState, snapshot: Snapshot, layout: Layout, store: Store, note: Notify
) -> tuple[manifest.Savepoint, ReadSources]:
    rows = find_rows(state, snapshot, find_current_limit(pipeline, state, snapshot))
    target = Into(Address(StorageTier.EXTERNAL, store.address, _HERE), snapshot.id, snapshot.epoch)
    plan = plan_restore(pipeline, rows, with_originals(state, places_of(pipeline, state.log)), target)
    native = layout is Layout.NATIVE
    tasks = plan.tasks if native else _parts(plan)
    results = decode_results(in_threads(_teller(note))(*serialize_tasks(tasks)))
    require_rows(state.log, rows.rows, results)
    files = tuple(
        manifest.SavedFile.of("_data" if native else manifest.ROWS, f)
        for f in sorted((f for r in results for f in r.files), key=lambda f: f.name)
    )
    savepoint = manifest.Savepoint(
        kind=layout,
        log=state.log,
        snapshot=snapshot.id,
        sqn=snapshot.to_sqn,
        instant=snapshot.started_at,
        rows=sum(f.rows for f in files if not f.hidden),
        shape=plan.shape,
        progress=progress_at(state, snapshot.to_sqn),
        files=files,
        delta_log=(manifest.DELTA_LOG,) if native else (),
        cleared=plan.base.cleared if plan.base else (),
        redistribution=plan.base.redistribution if plan.base else None,
    )
    if native:
        store.put_if_absent(manifest.DELTA_LOG, build_table(savepoint.manifest)[1])
    return savepoint, describe_reads(tasks, results, plan.base.snapshot if plan.base else None)


def _parts(plan: RestorePlan) -> tuple[FoldTask, ...]:
    """Returns the tasks of the plan, changed so that each writes one file of plain rows."""
    numbers = {b: i for i, b in enumerate(bucket_ranges(plan.shape.key_groups, plan.shape.buckets))}
    this = uuid.uuid4().hex
    rewrite = RewriteDecision(RewriteAction.REWRITE, "a canonical savepoint has plain rows")
    return tuple(
        replace(
            task,
            recipes=tuple(replace(recipe, unchanged=rewrite) for recipe in task.recipes),
            part=manifest.part_path(numbers[task.bucket], this),
        )
        for task in plan.tasks
    )


def _teller(note: Notify) -> Callable[[int, int], None]:
    """Returns a function that reports the progress every few seconds."""
    begun = told_at = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told_at
        if done < total and time.monotonic() - told_at >= _NOTE_SECONDS:
            told_at = time.monotonic()
            note(f"savepoint: {done} of {total} buckets written, {told_at - begun:.0f} s")

    return tell


def _describe(store: Store, savepoint: manifest.Savepoint, begun: Begun) -> None:
    try:
        write_description(store, savepoint)
    except UnknownOutcomeError:
        raise  # The description may have been written: a repeated call finds out (I11).
    except (Exception, KeyboardInterrupt):
        _give_up(store, begun)
        raise


def _give_up(store: Store, begun: Begun) -> None:
    try:
        give_up(store, begun)
    except TidefoldError as error:
        _log.warning("an unfinished savepoint is left at %s: %s", store.address, error)


def _remove_mark(store: Store, log: str) -> None:
    """Deletes the marker of an unfinished savepoint, because the savepoint is complete."""
    try:
        store.delete([manifest.BEGUN])
    except TidefoldError as error:
        _log.warning("`%s` is left beside the savepoint of %s: %s", manifest.BEGUN, log, error)


def _outcome(savepoint: manifest.Savepoint, store: Store, status: Status, read: ReadSources | None = None) -> Outcome:
    details = SavepointDetails(
        address=store.address,
        kind=savepoint.kind,
        sqn=savepoint.sqn,
        rows=savepoint.rows,
        files=len(savepoint.files),
        bytes=savepoint.bytes,
        positions=[_describe_position(one) for one in savepoint.progress.positions],
        read=read,
    )
    message = (
        f"snapshot {savepoint.snapshot}, {savepoint.kind}: {count_noun(savepoint.rows, 'row')} in "
        f"{count_noun(len(savepoint.files), 'file')}, "
        f"{in_units(savepoint.bytes)} at {details.address}"
    )
    return Outcome(savepoint.log, status, message, savepoint.snapshot, details=details)


def _describe_position(position: Position) -> dict[str, Any]:
    """The fields of a position with their names, also those that are stored as a list."""
    fields: dict[str, Any] = msgspec.to_builtins(position)
    return {**fields, "stream": position.stream._asdict()}
