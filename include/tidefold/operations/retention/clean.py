"""Deletes files that no log and no process needs: those of dead runs, and all of a dropped log."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from tidefold.changelog.write_intents import Announced, ExpectedFiles, read_announced
from tidefold.domain.external_snapshot import External
from tidefold.domain.log_state import DeletionState, LogState, Snapshot, State
from tidefold.domain.paths import PLANS, LogPaths
from tidefold.domain.retention.local_copies import segment_of
from tidefold.domain.retention.log_bounds import oldest_version
from tidefold.domain.snapshot import point_in_time, transitions
from tidefold.domain.wording import count_noun, in_units
from tidefold.errors import ConflictError, NotFoundError, RefusedError, TidefoldError
from tidefold.operations.ground import recovery
from tidefold.operations.ground.heartbeat import INTERVAL, count_heartbeats
from tidefold.operations.ground.originals import delete_originals, find_owned_originals
from tidefold.operations.ground.outcome import Outcome, Status, for_each_log
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.ground.plan_records import find_plans
from tidefold.operations.ground.removal_details import (
    EVERYTHING,
    Approved,
    CleanDetails,
    CleanStoreDetails,
    DropDetails,
    name_run,
    name_snapshot,
)
from tidefold.operations.ground.sweep import LEFTOVERS, delete_hidden, plan_change_files
from tidefold.operations.local_copies.manage import forget
from tidefold.operations.publish.publish_set import require_alone
from tidefold.operations.retention.old_landed import find_old_landed, find_old_loads
from tidefold.operations.retention.truncate import SegmentUse, plan_orphans, plan_release
from tidefold.sources.kafka.landed import list_landed_files
from tidefold.sources.landing.name_times import natural_order
from tidefold.storage import Store, StoredObject, count_freed, delete_files
from tidefold.storage.safe_files import PATTERN, is_owner_alive

# Stands for the whole store in the outcome, where other outcomes have a log. No log can have this name.
STORE = "(store)"
# How long an attempt at a snapshot as of an instant may make no progress. It keeps the log from being truncated.
_PATIENCE = timedelta(days=1)
_ENDED = (State.DELETED, State.ABORTED)
# Folders beside the configuration whose entries each belong to one process or job.
_FOLDERS = ("spark", "results", "log")
# After this many deleted files, `drop` checks again that the rest still belongs to this log.
_AT_ONCE = 500


def clean(
    pipeline: Pipeline, logs: Sequence[str], plan: bool = False, approved: Approved = EVERYTHING
) -> list[Outcome]:
    """Ends unfinished runs, aborts abandoned attempts as of an instant, then deletes the files of each log's aborted
    attempts.

    An ingest that is only slow loses its work, but no data: its commit is refused, and the next one starts again. The
    first outcome is that of the store, because a run writes for several logs. With `plan` nothing changes.

    approved: end, abort and delete nothing else.
    """
    return [
        *for_each_log([STORE], lambda _: _clean_store(pipeline, plan, approved.of(STORE))),
        *for_each_log(logs, lambda log: _clean_log(pipeline, log, plan, approved.of(log))),
    ]


def _clean_store(pipeline: Pipeline, plan: bool, approved: Approved) -> Outcome:
    runs = [run for run in recovery.find_abandoned(pipeline.store, now()) if name_run(run.run) in approved]
    failed: list[TidefoldError] = []
    announced_files = {run.run: recovery.files_of(pipeline.store, run) for run in runs}
    for run in () if plan else runs:
        try:
            recovery.recover_run(pipeline.store, run)
        except TidefoldError as error:  # Continue with the other runs.
            failed.append(error)
    if failed:
        raise failed[0]
    orphans = [path for path in plan_orphans(pipeline.store, list(pipeline.config.logs)) if path in approved]
    if not plan:
        delete_files(pipeline.store, sorted(orphans), pipeline.config.retention.threads)
    files = sorted({*orphans, *(path for paths in announced_files.values() for path in paths)})
    listed = [_describe_run(run, announced_files[run.run]) for run in runs]
    days = pipeline.config.retention.scratch_days
    left = find_scratch(pipeline.config.path.parent, now(), days)
    scratch = tuple(entry for entry in left if str(entry) in approved)
    edits = [folder for folder in find_old_plans(pipeline.store, now(), days) if folder in approved]
    if not plan:
        remove_scratch(scratch)
        aged = [entry.path for folder in edits for entry in pipeline.store.list(folder, unfinished=True)]
        delete_files(pipeline.store, aged, pipeline.config.retention.threads)
    entries = [*map(str, scratch), *edits] or None
    details = CleanStoreDetails(runs=listed, files=len(files), paths=files, scratch=entries)
    message = "no unfinished run"
    if files or runs:
        counted = f"{count_noun(len(runs), 'unfinished run')}, {count_noun(len(files), 'announced file')}"
        deleted = "would be deleted" if plan else "were deleted"
        message = f"{'would end' if plan else 'ended'} {counted}; those that no log needs {deleted}"
    if entries:
        counted = count_noun(len(entries), "entry", "entries")
        message += f"; {'would remove' if plan else 'removed'} {counted} of scratch folders and plans"
    if not files and not runs and not entries:
        return Outcome(STORE, Status.NOTHING, message, details=details)
    return Outcome(STORE, Status.PLANNED if plan else Status.CLEANED, message, details=details)


def _describe_run(run: Announced, files: Sequence[str]) -> dict[str, Any]:
    logs = dict.fromkeys([*run.logs, *(taking.log for taking in run.takings or ())])
    return {"run": run.run, "logs": list(logs), "written": run.takings is not None, "files": list(files)}


def _clean_log(pipeline: Pipeline, log: str, plan: bool, approved: Approved) -> Outcome:
    ledger = pipeline.ledger(log)
    state = ledger.find()
    if state is None:
        return Outcome(log, Status.NOTHING, "the store has no such log")
    given_up = tuple(one for one in _find_given_up(pipeline, state) if name_snapshot(one.id) in approved)
    # The state as it would be afterwards, because a plan writes nothing.
    state = (
        _abort_attempts(state, given_up)
        if plan or not given_up
        else ledger.commit(partial(_abort_attempts, seen=given_up))
    )
    entry = pipeline.config.logs.get(log)
    plans = (*LEFTOVERS, plan_change_files) if entry and entry.change_feed else LEFTOVERS
    planned = (*(path for plan_of in plans for path in plan_of(pipeline.store, state)), *_find_aged(pipeline, state))
    going = tuple(path for path in planned if path in approved)
    if not plan:
        going = delete_hidden(pipeline.store, ledger, state, going, pipeline.config.retention.threads)
    details = CleanDetails(files=len(going), paths=list(going), aborted=[s.id for s in given_up])
    if not going and not given_up:
        return Outcome(log, Status.NOTHING, "nothing was left behind", details=details)
    message = f"{'would remove' if plan else 'removed'} {count_noun(len(going), 'file')} that nothing needs"
    manifests = sum(path.startswith(f"{LogPaths(log).manifests}/") for path in going)
    message += f", {manifests:,} of them manifests of ended snapshots" if manifests else ""
    if given_up:
        which = ", ".join(f"{s.id} (as of {s.as_of})" for s in given_up)
        message += f"; {'would abort' if plan else 'aborted'} attempts without progress for a day: snapshot {which}"
    return Outcome(log, Status.PLANNED if plan else Status.CLEANED, message, details=details)


def _find_aged(pipeline: Pipeline, state: LogState) -> tuple[str, ...]:
    """Returns old files of the table's Delta log, and old reports."""
    oldest = oldest_version(state)
    files: Sequence[str] = ()
    if oldest:
        from tidefold.delta.published_table import find_old_log_files

        files = find_old_log_files(pipeline.store, state.log, oldest)
    keeps = pipeline.config.retention
    return (
        *files,
        *find_old_landed(pipeline, state, now()),
        *find_old_loads(pipeline, state, now()),
        *find_old_reports(pipeline.store, state, now(), keeps.report_days),
    )


def _find_given_up(pipeline: Pipeline, state: LogState) -> tuple[Snapshot, ...]:
    """Returns the attempts as of an instant that make no progress, as the ledger has them."""
    seen = count_heartbeats(pipeline.store, state.log, state.as_of_attempts)
    return point_in_time.find_given_up(seen, now(), INTERVAL, _PATIENCE)


def _abort_attempts(state: LogState, seen: Sequence[Snapshot]) -> LogState:
    """Aborts attempts that have not changed since they were read. One that has changed is alive."""
    for one in seen:
        if state.snapshot(one.id) == one:
            state = transitions.abort(state, one.id, "it made no progress for a day")
    return state


def find_old_reports(store: Store, state: LogState, instant: str, days: int) -> tuple[str, ...]:
    """Returns reports and verdicts of ended snapshots that were started this many days before an instant (ISO 8601).

    The ledger keeps whether each of them passed.
    """
    limit = datetime.fromisoformat(instant) - timedelta(days=days)
    ended = (s for s in state.snapshots if s.state in _ENDED and datetime.fromisoformat(s.started_at) < limit)
    folders = {f"{LogPaths(state.log).quality(s.id)}/" for s in ended}
    if not folders:
        return ()
    stored = (entry.path for entry in store.list(f"{LogPaths(state.log).folder}/quality"))
    return tuple(path for path in stored if f"{path.rpartition('/')[0]}/" in folders)


def find_scratch(base: Path, instant: str, days: int) -> tuple[Path, ...]:
    """Returns entries of scratch folders that have not changed, with everything below them, for so many days.

    base: the folder of the configuration.
    instant: now, as ISO 8601; a slow clock only delays the deletion. A folder of a live process is never deleted.
    """
    limit = (datetime.fromisoformat(instant) - timedelta(days=days)).timestamp()
    entries = [entry for name in _FOLDERS for entry in _entries(base / "var" / name, "*")]
    entries += [e for e in _entries(Path(tempfile.gettempdir()), PATTERN) if not is_owner_alive(e.name)]
    return tuple(sorted(entry for entry in entries if _is_left(entry, limit)))


def find_old_plans(store: Store, instant: str, days: int) -> list[str]:
    """Returns the folders of plans that nobody has made again for so many days before an instant (ISO 8601)."""
    limit = datetime.fromisoformat(instant) - timedelta(days=days)
    begun = {paths.folder: record.begun_at for paths, record in find_plans(store)}
    return [folder for folder, at in begun.items() if at and datetime.fromisoformat(at) < limit]


def remove_scratch(entries: tuple[Path, ...]) -> None:
    """Deletes entries, and folders with everything in them. Follows no links."""
    for entry in entries:
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(entry.lstat().st_mode):
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()


def _entries(folder: Path, pattern: str) -> Iterator[Path]:
    try:
        yield from folder.glob(pattern)
    except OSError:
        return  # The folder does not exist, or belongs to another user.


def _is_left(entry: Path, limit: float) -> bool:
    """Whether an entry belongs to tidefold, and has not changed since the limit."""
    try:
        if entry.lstat().st_uid != os.getuid():
            return False
        paths = [entry, *(entry.rglob("*") if stat.S_ISDIR(entry.lstat().st_mode) else ())]
        return all(path.lstat().st_mtime < limit for path in paths)
    except OSError:
        return False  # A process may be writing there. The next call checks again.


def drop(pipeline: Pipeline, log: str, plan: bool = True) -> Outcome:
    """Deletes table, snapshots, segments, verdicts, quarantine and the ledger except its last head. `plan` only lists
    them.

    The next call finishes an interrupted drop. Raises RefusedError while an attempt is open, somebody holds a snapshot,
    or the log is in a set.
    """
    hint = f"Remove `{log}` from the set in the configuration first."
    require_alone(pipeline, log, ", whose readers open its table together with the others.", hint)
    ledger = pipeline.ledger(log)
    try:
        state = ledger.read()
    except NotFoundError:
        pipeline.log(log)  # A name that is not configured either is a mistake.
        return Outcome(log, Status.NOTHING, "the store has no such log")
    ledger.require_current(state)
    if state.deletion is DeletionState.GONE:
        return _delete_leftovers(pipeline, state, plan)
    if plan:
        _require_closed(state)
    elif state.deletion is DeletionState.NO:
        state = ledger.commit(_begin_deletion)
    shared, own = files_of_log(pipeline.store, state)
    files = (*shared, *own)
    originals = delete_originals(_find_owned_originals(state), plan)
    details = DropDetails(
        files=len(files),
        bytes=count_freed(pipeline.store, files),
        paths=[*(file.path for file in files), *originals],
        originals=len(originals),
    )
    counted = f"{count_noun(details.files, 'file')}, {in_units(details.bytes or 0)}"
    counted += f"; {count_noun(len(originals), 'file')} of claimed imports" if originals else ""
    lost = _describe_lost_numbers(state)
    if landed := list_landed_files(pipeline.store, LogPaths(log)):
        kept = f"{count_noun(len(landed), 'landed file')} of its topic in `{LogPaths(log).landed}`"
        lost += f"; a new ingest begins with {kept}"
    if plan:
        return Outcome(log, Status.PLANNED, f"would delete {counted}{lost}", details=details)
    _delete(pipeline, state, [file.path for file in shared])
    forget(pipeline, log, [file.path for file in shared if segment_of(file.path)])
    # This head has no pages and stays. The next log of this name continues its epochs and ids.
    gone = ledger.commit(_end_deletion, of_dropped=True)
    # The next log of this name never gives any of these names again.
    last = LogPaths(log).ledger_version(gone.version)
    rest = [file.path for file in own if file.path != last]
    delete_files(pipeline.store, rest, pipeline.config.retention.threads)
    return Outcome(log, Status.DROPPED, f"deleted {counted}{lost}", details=details)


def _describe_lost_numbers(state: LogState) -> str:
    """Returns that a new ingest may make other rows of the same files, if it would number them in another order."""
    names = [entry.name for entry in state.landed]
    if state.names is None or state.names.has_offsets or names == sorted(names, key=natural_order):
        return ""
    return (
        "; a new ingest gives the landed files other numbers, by their names: at equal order the file with the higher "
        "number wins, so rows may differ"
    )


def _find_owned_originals(state: LogState) -> tuple[External, ...]:
    """Returns the originals that the log owns: those of confirmed imports."""
    return find_owned_originals(s for s in state.snapshots if s.state in (State.COMPLETED, State.SUBSUMED))


def _delete(pipeline: Pipeline, state: LogState, paths: Sequence[str]) -> None:
    """Deletes the listed files while the log stays in this state: another drop may win, and a new log may begin."""
    ledger = pipeline.ledger(state.log)
    for begin in range(0, len(paths), _AT_ONCE):
        if ledger.read().version != state.version:
            raise ConflictError(
                "DROPPED_MEANWHILE",
                f"Another command has dropped `{state.log}`, or started it again, at the same time.",
                hint=f"`tidefold status {state.log}` shows the current state.",
            )
        delete_files(pipeline.store, paths[begin : begin + _AT_ONCE], pipeline.config.retention.threads)


def _delete_leftovers(pipeline: Pipeline, gone: LogState, plan: bool) -> Outcome:
    """Deletes the remaining files of a dropped log, except its head and files of a new log of that name."""
    last = LogPaths(gone.log).ledger_version(gone.version)
    files = [file.path for part in files_of_log(pipeline.store, gone) for file in part if file.path != last]
    coming = ExpectedFiles(read_announced(pipeline.store))
    files = [path for path in files if path not in coming]
    if not files:
        return Outcome(gone.log, Status.NOTHING, "the store has no such log")
    if not plan:
        _delete(pipeline, gone, files)
        forget(pipeline, gone.log, ())
    details = DropDetails(files=len(files), paths=files)
    status = Status.PLANNED if plan else Status.DROPPED
    return Outcome(gone.log, status, f"{len(files):,} files of the dropped log were left", details=details)


def _begin_deletion(state: LogState) -> LogState:
    _require_closed(state)
    return replace(state, deletion=DeletionState.GOING)


def _end_deletion(state: LogState) -> LogState:
    if state.deletion is DeletionState.GONE:
        return state
    if state.deletion is DeletionState.NO:
        raise ConflictError(
            "DROPPED_MEANWHILE",
            f"Another command has dropped `{state.log}`, and the log was started again.",
            hint="Nothing of the new log was touched.",
        )
    last = max((s.id for s in state.snapshots), default=state.last_snapshot)
    # The next log of that name refuses results that were meant for this one.
    gone = LogState(state.log, state.shape, state.version, state.epoch, deletion=DeletionState.GONE, last_snapshot=last)
    former = (*state.former, *filter(None, [state.incarnation]))
    return replace(gone, fence=state.fence + 1, generation=state.generation + 1, former=former)


def _require_closed(state: LogState) -> None:
    if state.holds:
        held = ", ".join(f"`{hold.name}` (snapshot {hold.snapshot}: {hold.why})" for hold in state.holds)
        raise RefusedError("DROP_HELD", f"`{state.log}` cannot be dropped while somebody holds it: {held}.")
    for attempt in (*([state.open_attempt] if state.open_attempt else []), *state.as_of_attempts):
        raise RefusedError(
            "ATTEMPT_OPEN",
            f"Run `{attempt.run}` has an open attempt on `{state.log}`: snapshot {attempt.id} is {attempt.state}.",
            hint=f"Wait until it ends, or run `tidefold step abort {state.log} --snapshot {attempt.id}`.",
        )


def files_of_log(store: Store, state: LogState) -> tuple[tuple[StoredObject, ...], tuple[StoredObject, ...]]:
    """Returns the log's files in shared folders and in its own, in the order to delete: the ledger last."""
    paths = LogPaths(state.log)
    segments = {c.location.segment for c in state.change_sets} | set(state.garbage)
    folders = (paths.table, paths.snapshots, f"{PLANS}/{state.log}")
    files = [entry for folder in folders for entry in store.list(folder, unfinished=True)]
    files += plan_release(SegmentUse(store), replace(state, garbage=tuple(sorted(segments)))).unneeded
    own = store.list(paths.folder, unfinished=True)
    ledger = [entry for entry in own if entry.path.startswith(f"{paths.ledger}/")]
    return tuple(files), (*(entry for entry in own if entry not in ledger), *ledger)
