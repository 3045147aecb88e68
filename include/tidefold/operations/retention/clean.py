"""Deletes the files that dead runs left in a store and in scratch folders: files that no log and no process needs."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from tidefold.changelog.write_intents import Announced
from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.paths import JOBS, LogPaths, find_old_jobs
from tidefold.domain.retention.protection import oldest_version
from tidefold.domain.snapshot import point_in_time, transitions
from tidefold.domain.wording import count_noun
from tidefold.errors import TidefoldError
from tidefold.operations.ingest import recovery
from tidefold.operations.outcome import Outcome, Status, for_each_log
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.retention.details import CleanDetails, CleanStoreDetails
from tidefold.operations.retention.file_gc import (
    delete_hidden,
    plan_change_files,
    plan_forgotten,
    plan_halves,
    plan_manifests,
    plan_sweep,
    plan_unnamed,
)
from tidefold.operations.retention.segment_gc import plan_orphans
from tidefold.operations.snapshot.heartbeat import INTERVAL, add_heartbeats
from tidefold.storage import Store, delete_files
from tidefold.storage.scratch import PATTERN, is_owner_alive

# Stands for the whole store in the outcome, where other outcomes have a log. No log can have this name.
STORE = "(store)"
# How long an attempt at a snapshot as of an instant may make no progress. It keeps the log from being truncated.
_PATIENCE = timedelta(days=1)


def clean(pipeline: Pipeline, logs: Sequence[str], plan: bool = False) -> list[Outcome]:
    """Ends unfinished runs, aborts abandoned attempts as of an instant, then deletes the files of each log's aborted
    attempts.

    An ingest that is only slow loses its work, but no data: its commit is refused, and the next one starts again. The
    first outcome is that of the store, because a run writes for several logs. With `plan` nothing changes.
    """
    return [
        *for_each_log([STORE], lambda _: _clean_store(pipeline, plan)),
        *for_each_log(logs, lambda log: _clean_log(pipeline, log, plan)),
    ]


def _clean_store(pipeline: Pipeline, plan: bool) -> Outcome:
    runs = recovery.find_abandoned(pipeline.store, now())
    failed: list[TidefoldError] = []
    announced_files = {run.run: recovery.files_of(pipeline.store, run) for run in runs}
    for run in () if plan else runs:
        try:
            recovery.recover_run(pipeline.store, run)
        except TidefoldError as error:  # Continue with the other runs.
            failed.append(error)
    if failed:
        raise failed[0]
    orphans = plan_orphans(pipeline.store, list(pipeline.config.logs))
    if not plan:
        delete_files(pipeline.store, sorted(orphans), pipeline.config.retention.threads)
    files = sorted({*orphans, *(path for found in announced_files.values() for path in found)})
    listed = [_describe_run(run, announced_files[run.run]) for run in runs]
    days = pipeline.config.retention.scratch_days
    scratch = find_scratch(pipeline.config.path.parent, now(), days)
    listed_jobs = (entry.path for entry in pipeline.store.list(JOBS))
    jobs = find_old_jobs(listed_jobs, datetime.fromisoformat(now()) - timedelta(days=days))
    if not plan:
        remove_scratch(scratch)
        delete_files(pipeline.store, jobs)
    entries = [*map(str, scratch), *jobs] or None
    details = CleanStoreDetails(runs=listed, files=len(files), paths=files, scratch=entries)
    message = "no unfinished run"
    if files or runs:
        counted = f"{count_noun(len(runs), 'unfinished run')}, {len(files):,} announced files"
        deleted = "would be deleted" if plan else "were deleted"
        message = f"{'would end' if plan else 'ended'} {counted}; those that no log needs {deleted}"
    if entries:
        message += f"; {'would remove' if plan else 'removed'} {len(entries):,} entries of scratch folders"
    if not files and not runs and not entries:
        return Outcome(STORE, Status.NOTHING, message, details=details)
    return Outcome(STORE, Status.PLANNED if plan else Status.CLEANED, message, details=details)


def _describe_run(run: Announced, files: Sequence[str]) -> dict[str, Any]:
    logs = dict.fromkeys([*run.logs, *(taking.log for taking in run.takings or ())])
    return {"run": run.run, "logs": list(logs), "written": run.takings is not None, "files": list(files)}


def _clean_log(pipeline: Pipeline, log: str, plan: bool) -> Outcome:
    ledger = pipeline.ledger(log)
    state = ledger.find()
    if state is None:
        return Outcome(log, Status.NOTHING, "the store has no such log")
    given_up = _find_given_up(pipeline, state)
    # The state as it would be afterwards, because a plan writes nothing.
    state = (
        _abort_attempts(state, given_up)
        if plan or not given_up
        else ledger.commit(partial(_abort_attempts, seen=given_up))
    )
    plans = [plan_sweep, plan_forgotten, plan_unnamed, plan_halves, plan_manifests]
    entry = pipeline.config.logs.get(log)
    if entry and entry.change_feed:
        plans.append(plan_change_files)
    going = tuple(path for plan_of in plans for path in plan_of(pipeline.store, state))
    going += _find_aged(pipeline, state)
    if not plan:
        going = delete_hidden(pipeline.store, ledger, state, going, pipeline.config.retention.threads)
    details = CleanDetails(files=len(going), paths=list(going), aborted=[s.id for s in given_up])
    if not going and not given_up:
        return Outcome(log, Status.NOTHING, "nothing was left behind", details=details)
    message = f"would remove {len(going):,} files" if plan else f"removed {len(going):,} files"
    message += " that nothing needs"
    if given_up:
        which = ", ".join(f"{s.id} (as of {s.as_of})" for s in given_up)
        message += f"; {'would abort' if plan else 'aborted'} attempts without progress for a day: snapshot {which}"
    return Outcome(log, Status.PLANNED if plan else Status.CLEANED, message, details=details)


def _find_aged(pipeline: Pipeline, state: LogState) -> tuple[str, ...]:
    """Returns old files of the table's Delta log, and old reports."""
    oldest = oldest_version(state)
    files: Sequence[str] = ()
    if oldest:
        from tidefold.delta.delta_log_retention import find_old_log_files

        files = find_old_log_files(pipeline.store, state.log, oldest)
    return (*files, *find_old_reports(pipeline.store, state, now(), pipeline.config.retention.report_days))


def _find_given_up(pipeline: Pipeline, state: LogState) -> tuple[Snapshot, ...]:
    """Returns the attempts as of an instant that make no progress, as the ledger has them."""
    seen = add_heartbeats(pipeline.store, state.log, state.as_of_attempts)
    dead = {one.id for one in point_in_time.find_given_up(seen, now(), INTERVAL, _PATIENCE)}
    return tuple(one for one in state.as_of_attempts if one.id in dead)


def _abort_attempts(state: LogState, seen: Sequence[Snapshot]) -> LogState:
    """Aborts attempts that have not changed since they were read. One that has changed is alive."""
    for one in seen:
        if state.snapshot(one.id) == one:
            state = transitions.abort(state, one.id, "it made no progress for a day")
    return state


_ENDED = (State.DELETED, State.ABORTED)
# The verdicts beside the reports stay: they are small, and the history of refused snapshots.
_VERDICT = "verdict-"


def find_old_reports(store: Store, state: LogState, instant: str, days: int) -> tuple[str, ...]:
    """Returns reports of ended snapshots that were started this many days before an instant (ISO 8601)."""
    limit = datetime.fromisoformat(instant) - timedelta(days=days)
    ended = (s for s in state.snapshots if s.state in _ENDED and datetime.fromisoformat(s.started_at) < limit)
    folders = {f"{LogPaths(state.log).quality(s.id)}/" for s in ended}
    if not folders:
        return ()
    stored = (entry.path for entry in store.list(f"{LogPaths(state.log).folder}/quality"))
    return tuple(
        path
        for path in stored
        if f"{path.rpartition('/')[0]}/" in folders and not path.rpartition("/")[2].startswith(_VERDICT)
    )


# Folders beside the configuration whose entries each belong to one process or job.
_FOLDERS = ("spark", "results", "log")


def find_scratch(base: Path, instant: str, days: int) -> tuple[Path, ...]:
    """Returns entries of scratch folders that have not changed, with everything below them, for so many days.

    base: the folder of the configuration.
    instant: now, as ISO 8601; a slow clock only delays the deletion. A folder of a live process is never deleted.
    """
    limit = (datetime.fromisoformat(instant) - timedelta(days=days)).timestamp()
    entries = [entry for name in _FOLDERS for entry in _entries(base / "var" / name, "*")]
    entries += [e for e in _entries(Path(tempfile.gettempdir()), PATTERN) if not is_owner_alive(e.name)]
    return tuple(sorted(entry for entry in entries if _is_left(entry, limit)))


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
