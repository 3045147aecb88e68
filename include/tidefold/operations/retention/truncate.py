"""Truncates the log, and deletes the segments that nothing needs any more."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from tidefold.changelog.write_intents import ExpectedFiles, read_announced
from tidefold.domain.log_state import ChangeSet, DeletionState, LogState
from tidefold.domain.paths import CHANGELOG, INTENTS, LogPaths
from tidefold.domain.retention import log_bounds
from tidefold.domain.wording import in_units
from tidefold.errors import CorruptError, NotFoundError
from tidefold.ledger import Ledger
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.ground.recovery import find_needed
from tidefold.operations.ground.removal_details import EVERYTHING, Approved, TruncateDetails
from tidefold.storage import Store, StoredObject, delete_files

_log = logging.getLogger(__name__)
_READERS = 8
# Folders of files that runs write: segments and quarantine files, finished or unfinished.
_OWN = re.compile(r".+\.(seg|jsonl)(\.[^/]+\.part)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Released:
    """The result for the garbage of a log.

    unneeded: files to delete.
    settled: all paths that the log may forget: they are or will be deleted, or another log will delete them.
    unreadable: damaged segments, which stay because it is unknown which logs need them (I11).
    """

    unneeded: tuple[StoredObject, ...]
    settled: tuple[str, ...]
    unreadable: tuple[str, ...] = ()


def plan_release(store: Store, state: LogState) -> Released:
    """Checks the garbage of the log (I11, I12).

    A segment of an unfinished run stays, because a log may still commit it.
    """
    if not state.garbage:
        return Released((), ())
    sizes = {entry.path: entry for entry in store.list(CHANGELOG)}
    on_their_way = ExpectedFiles(read_announced(store))
    waiting = [path for path in state.garbage if path in sizes and path not in on_their_way]
    with ThreadPoolExecutor(_READERS) as pool:
        owners = list(zip(waiting, pool.map(lambda path: _logs_of(store, path), waiting), strict=True))
    sharing = {path: logs for path, logs in owners if logs is not None}
    needed = _find_needed(store, state, sharing)
    unneeded = {path: logs - {state.log} for path, logs in sharing.items() if path not in needed}
    unsure = _find_unsure(store, unneeded.values())
    staying = {path for path, logs in unneeded.items() if logs & unsure}
    gone = [path for path in state.garbage if path not in sizes]
    going = tuple(sizes[path] for path in unneeded if path not in staying)
    settled = (*gone, *(path for path in sharing if path not in staying))
    return Released(going, settled, tuple(path for path, logs in owners if logs is None))


def _find_unsure(store: Store, sharing: Iterable[frozenset[str]]) -> frozenset[str]:
    """Returns those logs whose needs are unknown: their ledger is lost, damaged, or was set back (I29)."""
    return frozenset(log for log in frozenset[str]().union(*sharing) if not Ledger(store, log).is_current())


def _logs_of(store: Store, segment: str) -> frozenset[str] | None:
    """Returns the logs that have change sets in a segment; None: it is damaged."""
    # Few segments have to be read for this, and most runs read none.
    from tidefold.changelog.segment import read_index

    try:
        return frozenset(entry.log for entry in read_index(store, segment))
    except NotFoundError:
        return frozenset()
    except CorruptError as error:
        _log.warning("kept: %s", error)
        return None


def _find_needed(store: Store, state: LogState, sharing: Mapping[str, frozenset[str]]) -> set[str]:
    """Returns segments that still have change sets of other logs, or that the log has committed meanwhile."""
    others: Sequence[str] = sorted(frozenset().union(*sharing.values()) - {state.log})
    told_since = {c.location.segment for c in _change_sets(store, state.log) if c.sqn > state.last_sqn}
    return told_since.union(c.location.segment for other in others for c in _change_sets(store, other))


def _change_sets(store: Store, log: str) -> tuple[ChangeSet, ...]:
    state = Ledger(store, log).find()
    # If two logs are dropped at the same time, the second must not leave segments that the first has already checked.
    return state.change_sets if state and state.deletion is DeletionState.NO else ()


def plan_orphans(store: Store, logs: Sequence[str]) -> tuple[str, ...]:
    """Returns files that no log names or will ever name: their runs were rejected, but wrote them later.

    A stored file that is no longer announced belongs to an ended run: all its logs have committed or rejected it.
    logs: known logs, whose quarantine folders are checked too.
    """
    folders = [CHANGELOG, *(LogPaths(log).quarantine for log in logs)]
    found_there = (entry.path for folder in folders for entry in store.list(folder, unfinished=True))
    stored = [path for path in found_there if _OWN.fullmatch(path)]
    # Read after the files were listed. A run that ended meanwhile has committed to its logs, which are read last.
    on_their_way = ExpectedFiles(read_announced(store))
    alone = [p for p in stored if not p.startswith(f"{INTENTS}/") and p not in on_their_way]
    needed = find_needed(store, logs)
    unknown = [path for path in alone if path not in needed]
    rest = {path: owners for path in unknown if (owners := _logs_of_file(store, path)) is not None}
    others = frozenset[str]().union(*rest.values())
    needed_files = find_needed(store, others - set(logs))
    unneeded = {path: owners for path, owners in rest.items() if path not in needed_files}
    unsure = _find_unsure(store, unneeded.values())
    return tuple(sorted(path for path, owners in unneeded.items() if not owners & unsure))


def _logs_of_file(store: Store, path: str) -> frozenset[str] | None:
    """Returns the logs of a segment or a quarantine file, finished or unfinished; None: it is damaged."""
    if path.startswith(f"{CHANGELOG}/"):
        return _logs_of(store, path) if path.endswith(".seg") else frozenset()
    return frozenset({path.split("/")[1]})


def truncate(pipeline: Pipeline, log: str, plan: bool = False, approved: Approved = EVERYTHING) -> Outcome:
    """Truncates the log to its tightest bound. With `plan` nothing changes: the outcome lists what would be deleted.

    Also finishes an interrupted call. approved: truncate no further, and delete no other file.
    """
    approved = approved.of(log)
    ledger = pipeline.ledger(log)
    before = ledger.find()
    if before is None:
        return Outcome(log, Status.NOTHING, "the log is empty")
    keep, kept_log = pipeline.config.retention.keep, pipeline.config.retention.log_retention(now())

    def cut(state: LogState) -> LogState:
        return log_bounds.truncate(state, keep, kept_log, approved.cut)

    state = cut(before) if plan else ledger.commit(cut)
    released = plan_release(pipeline.store, replace(state, garbage=tuple(p for p in state.garbage if p in approved)))
    if not plan and released.unneeded:
        ledger.require_current(state)
    if not plan:
        delete_files(pipeline.store, [entry.path for entry in released.unneeded], pipeline.config.retention.threads)
        ledger.commit(lambda current: log_bounds.forget_garbage(current, released.settled))
        ledger.prune()
        if of_set := pipeline.config.set_of(log):
            pipeline.set_ledger(of_set.name).prune()
    unneeded = {entry.path: entry.bytes for entry in released.unneeded}
    return _describe(before, state, unneeded, released.unreadable, log_bounds.bounds(state, keep, kept_log), plan)


def _describe(
    before: LogState,
    state: LogState,
    going: dict[str, int],
    unreadable: Sequence[str],
    listed: tuple[log_bounds.Bound, ...],
    plan: bool,
) -> Outcome:
    size = sum(going.values())
    details = TruncateDetails(
        truncated_to=state.truncated_to,
        bounds=listed,
        files=len(going),
        bytes=size,
        paths=sorted(going),
        unreadable=list(unreadable) or None,
    )
    holds = f"held by {listed[0].name} at {listed[0].sqn}: {listed[0].why}" if listed else "nothing was folded yet"
    if unreadable:
        holds += f"; {len(unreadable)} damaged segments stay, because it is unknown which logs need them"
    if state.truncated_to == before.truncated_to and not going:
        return Outcome(state.log, Status.NOTHING, f"nothing to truncate; {holds}", details=details)
    verb = "would cut" if plan else "cut"
    message = f"{verb} up to change set {state.truncated_to}: {len(going):,} segments, {in_units(size)}; {holds}"
    return Outcome(state.log, Status.PLANNED if plan else Status.TRUNCATED, message, details=details)
