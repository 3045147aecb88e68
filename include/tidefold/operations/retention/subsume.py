"""Retires completed snapshots beyond the newest N, and deletes files that only they need."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State
from tidefold.domain.paths import LogPaths, data_path
from tidefold.domain.retention import protection
from tidefold.domain.wording import count_noun, in_units
from tidefold.errors import MissingFileError
from tidefold.ledger import read_manifest
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.retention.details import SubsumeDetails
from tidefold.operations.retention.file_gc import delete_hidden
from tidefold.operations.savepoint.external import delete_originals, find_owned_originals
from tidefold.operations.sets.publish import finish_set
from tidefold.storage import Store, StoredObject, find_sizes

_WITH_FILES = (State.COMPLETED, State.STAGED, State.SUBSUMED)


def subsume(pipeline: Pipeline, log: str, plan: bool = False) -> Outcome:
    """Retires the snapshots that the configured retention does not keep. Also finishes an interrupted call.

    With `plan` nothing changes: the outcome lists the snapshots.
    """
    ledger = pipeline.ledger(log)
    state = ledger.find()
    if state is None:
        return Outcome(log, Status.NOTHING, "the log has no snapshot yet")
    keep = pipeline.config.retention.keep
    if keep is not None:
        if not plan:
            finish_set(pipeline, log)  # Readers of the set use the snapshot before until all tables are published.
        retire = partial(protection.subsume, keep=keep, log=pipeline.config.retention.log_retention(now()))
        state = retire(state) if plan else ledger.commit(retire)
    retired = protection.deletable(state, pipeline.config.retention.grace, now())
    if retired:
        ledger.require_current(state)
    files = find_files_to_delete(pipeline.store, state, retired)
    if retired and not plan:
        delete_hidden(pipeline.store, ledger, state, [file.path for file in files], pipeline.config.retention.threads)
    originals = delete_originals(find_owned_originals(retired), plan)
    if retired and not plan:
        ledger.commit(lambda now: protection.mark_deleted(now, [s.id for s in retired]))
    return _describe(state, retired, files, originals, plan)


def find_files_to_delete(store: Store, state: LogState, retired: Sequence[Snapshot]) -> tuple[StoredObject, ...]:
    """Returns the files that only these retired snapshots need: in their own folders and in the table's folder.

    Files that another snapshot names are left out.
    """
    retired = protection.with_files(retired)
    if not retired:
        return ()
    paths = LogPaths(state.log)
    going = {s.id for s in retired}
    # A snapshot as of an instant shares no file names, and readers of the table see none of its files.
    kept = [s for s in state.snapshots if s.state in _WITH_FILES and s.id not in going and not s.as_of]
    needed = _find_names(store, state, protection.with_files(kept))
    going_names = set[str]()
    for snapshot in retired:
        # Without a manifest the files were deleted: by a call that this ledger does not know, because it is a backup.
        with suppress(MissingFileError):
            going_names |= _find_names(store, state, [snapshot])
    beside = sorted(data_path(paths.table, name) for name in going_names - needed)
    sizes = find_sizes(store, f"{paths.table}/_data", beside)
    own = [entry for s in retired for entry in store.list(paths.snapshot(s.id), unfinished=True)]
    return (*own, *(StoredObject(path, sizes[path]) for path in beside if path in sizes))


def _find_names(store: Store, state: LogState, snapshots: Sequence[Snapshot]) -> set[str]:
    return {f.name for s in snapshots for f in read_manifest(store, state.log, s).files}


def _describe(
    state: LogState, retired: Sequence[Snapshot], files: Sequence[StoredObject], originals: Sequence[str], plan: bool
) -> Outcome:
    kept = [s.id for s in state.snapshots if s.state is State.COMPLETED]
    details = SubsumeDetails(
        snapshots=[s.id for s in retired],
        tails=sum(s.kind is SnapshotKind.TAIL for s in retired),
        kept=kept,
        files=len(files),
        bytes=sum(file.bytes for file in files),
        paths=[*(file.path for file in files), *originals],
        originals=len(originals),
    )
    if not retired:
        tagged = sum(s in {t.snapshot for t in state.tags} for s in kept)
        message = f"nothing to retire; {len(kept)} completed snapshots are kept, {tagged} of them tagged"
        return Outcome(state.log, Status.NOTHING, message, details=details)
    verb = "would retire" if plan else "retired"
    counted = f"{len(files):,} files, {in_units(details.bytes or 0)}"
    message = f"{verb} {_describe_snapshots(retired)}: {counted}; {len(kept)} kept"
    if originals:
        message += f"; {len(originals):,} files of claimed imports"
    return Outcome(state.log, Status.PLANNED if plan else Status.SUBSUMED, message, details=details)


def _describe_snapshots(retired: Sequence[Snapshot]) -> str:
    """Returns a text such as `snapshots 1, 3 and 2 tails`. Tails are only counted, because there may be many."""
    whole = protection.with_files(retired)
    tails = len(retired) - len(whole)
    parts = [f"snapshots {', '.join(str(s.id) for s in whole)}"] if whole else []
    parts += [count_noun(tails, "tail")] if tails else []
    return " and ".join(parts)
