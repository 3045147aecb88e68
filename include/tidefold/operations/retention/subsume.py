"""Retires completed snapshots beyond the newest N, and deletes files that only they need."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State
from tidefold.domain.paths import LogPaths, data_path
from tidefold.domain.retention import log_bounds
from tidefold.domain.wording import count_noun, in_units
from tidefold.errors import MissingFileError
from tidefold.operations.ground.originals import delete_originals, find_owned_originals
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.ground.removal_details import EVERYTHING, Approved, SubsumeDetails, name_snapshot
from tidefold.operations.ground.sweep import KEPT, delete_hidden, find_names
from tidefold.operations.publish.publish_set import finish_set
from tidefold.storage import Store, StoredObject, count_freed, find_sizes


def subsume(pipeline: Pipeline, log: str, plan: bool = False, approved: Approved = EVERYTHING) -> Outcome:
    """Retires the snapshots that the configured retention does not keep. Also finishes an interrupted call.

    With `plan` nothing changes: the outcome lists the snapshots. approved: retire and delete nothing else.
    """
    ledger, approved = pipeline.ledger(log), approved.of(log)
    state = ledger.find()
    if state is None:
        return Outcome(log, Status.NOTHING, "the log has no snapshot yet")
    keep, before = pipeline.config.retention.keep, log_bounds.list_subsumed(state)
    if keep is not None:
        # Readers of the set use the snapshot before until all tables are published.
        shown = finish_set(pipeline, log, plan)
        limit = pipeline.config.retention.log_retention(now())

        def retire(state: LogState) -> LogState:
            unseen = {s.id for s in state.snapshots if name_snapshot(s.id) not in approved}
            return log_bounds.subsume(state, keep, limit, shown | unseen)

        state = retire(state) if plan else ledger.commit(retire)
    deletable = log_bounds.deletable(state, pipeline.config.retention.grace, now())
    swept = tuple(s for s in deletable if name_snapshot(s.id) in approved)
    if swept:
        ledger.require_current(state)
    files = tuple(file for file in find_files_to_delete(pipeline.store, state, swept) if file.path in approved)
    freed = count_freed(pipeline.store, files)
    if swept and not plan:
        delete_hidden(pipeline.store, ledger, state, [file.path for file in files], pipeline.config.retention.threads)
    originals = delete_originals(find_owned_originals(swept), plan)
    if swept and not plan:
        ledger.commit(lambda now: log_bounds.mark_deleted(now, [s.id for s in swept]))
    named = {s.id for s in (*before, *swept)}
    retired = (*swept, *(s for s in log_bounds.list_subsumed(state) if s.id not in named))
    return _describe(state, retired, swept, [file.path for file in files], originals, freed, plan)


def find_files_to_delete(store: Store, state: LogState, retired: Sequence[Snapshot]) -> tuple[StoredObject, ...]:
    """Returns the files that only these retired snapshots need: in their own folders and in the table's folder.

    Files that another snapshot names are left out.
    """
    retired = log_bounds.with_files(retired)
    if not retired:
        return ()
    paths = LogPaths(state.log)
    going = {s.id for s in retired}
    # A snapshot as of an instant shares no file names, and readers of the table see none of its files.
    kept = [s for s in state.snapshots if s.state in KEPT and s.id not in going and not s.as_of]
    needed = find_names(store, state.log, log_bounds.with_files(kept))
    going_names = set[str]()
    for snapshot in retired:
        # Without a manifest the files were deleted: by a call that this ledger does not know, because it is a backup.
        with suppress(MissingFileError):
            going_names |= find_names(store, state.log, [snapshot])
    beside = sorted(data_path(paths.table, name) for name in going_names - needed)
    sizes = find_sizes(store, f"{paths.table}/_data", beside)
    own = [entry for s in retired for entry in store.list(paths.snapshot(s.id), unfinished=True)]
    return (*own, *(StoredObject(path, sizes[path]) for path in beside if path in sizes))


def _describe(
    state: LogState,
    retired: Sequence[Snapshot],
    swept: Sequence[Snapshot],
    files: Sequence[str],
    originals: Sequence[str],
    freed: int,
    plan: bool,
) -> Outcome:
    kept = [s.id for s in state.snapshots if s.state is State.COMPLETED]
    waiting = [s.id for s in log_bounds.with_files(log_bounds.list_subsumed(state)) if s not in swept]
    named = ", ".join(map(str, waiting))
    waits = f"; files of retired snapshots {named} stay for a while (`retention.grace_versions`)" if waiting else ""
    details = SubsumeDetails(
        snapshots=sorted(s.id for s in retired),
        tails=sum(s.kind is SnapshotKind.TAIL for s in retired),
        kept=kept,
        waiting=waiting,
        files=len(files),
        bytes=freed,
        paths=[*files, *originals],
        originals=len(originals),
    )
    if not retired:
        tagged = sum(s in {t.snapshot for t in state.tags} for s in kept)
        message = (
            f"nothing to retire; {count_noun(len(kept), 'completed snapshot')} kept, {tagged} of them tagged{waits}"
        )
        return Outcome(state.log, Status.NOTHING, message, details=details)
    verb = "would retire" if plan else "retired"
    counted = f"{count_noun(len(files), 'file')}, {in_units(freed)}"
    message = f"{verb} {_describe_snapshots(retired)}: {counted}; {len(kept)} kept{waits}"
    if originals:
        message += f"; {count_noun(len(originals), 'file')} of claimed imports"
    return Outcome(state.log, Status.PLANNED if plan else Status.SUBSUMED, message, details=details)


def _describe_snapshots(retired: Sequence[Snapshot]) -> str:
    """Returns a text such as `snapshots 1, 3 and 2 tails`. Tails are only counted, because there may be many."""
    whole = sorted(log_bounds.with_files(retired), key=lambda s: s.id)
    tails = len(retired) - len(whole)
    parts = [f"snapshots {', '.join(str(s.id) for s in whole)}"] if whole else []
    parts += [count_noun(tails, "tail")] if tails else []
    return " and ".join(parts)
