"""Truncates the log, and deletes the segments that nothing needs any more."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

from tidefold.changelog.write_intents import ExpectedFiles, read_announced
from tidefold.domain.log_state import ChangeSet, DeletionState, LogState
from tidefold.domain.paths import CHANGELOG, INTENTS, LogPaths
from tidefold.domain.retention import log_bounds
from tidefold.domain.wording import count_noun, in_units
from tidefold.errors import CorruptError, NotFoundError
from tidefold.ledger import Ledger
from tidefold.operations.ground.outcome import Outcome, Status, for_each_log
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


class SegmentUse:
    """Which logs need which segments. Reads each listing, index and ledger at most once.

    A log that is cut afterwards still counts with its old needs: cut all logs first.
    planned: states of logs that are not cut yet, but count as if they were.
    """

    def __init__(self, store: Store, planned: Mapping[str, LogState] | None = None) -> None:
        self._store = store
        self._planned = planned or {}
        self._owners: dict[str, frozenset[str] | None] = {}
        self._change_sets: dict[str, tuple[ChangeSet, ...]] = {}
        self._sure: dict[str, bool] = {}
        self._taken: set[str] = set()

    @cached_property
    def sizes(self) -> Mapping[str, StoredObject]:
        """All segments, listed before what is announced and the ledgers are read."""
        return {entry.path: entry for entry in self._store.list(CHANGELOG)}

    @cached_property
    def on_their_way(self) -> ExpectedFiles:
        return ExpectedFiles(read_announced(self._store))

    def find_owners(self, paths: Sequence[str]) -> dict[str, frozenset[str] | None]:
        """Returns the logs that have change sets in each segment; None: it is damaged."""
        unread = [path for path in paths if path not in self._owners]
        with ThreadPoolExecutor(_READERS) as pool:
            read = pool.map(lambda path: _logs_of(self._store, path), unread)
            self._owners.update(zip(unread, read, strict=True))
        return {path: self._owners[path] for path in paths}

    def find_needed(self, state: LogState, others: Iterable[str]) -> set[str]:
        """Returns segments with change sets of other logs, or that the log itself has committed since its state."""
        told_since = {c.location.segment for c in self._read(state.log) if c.sqn > state.last_sqn}
        return told_since.union(c.location.segment for other in others for c in self._needs_of(other))

    def is_sure(self, log: str) -> bool:
        """Whether the needs of a log are known: its ledger is not lost, damaged or set back (I29)."""
        if log not in self._sure:
            self._sure[log] = Ledger(self._store, log).is_current()
        return self._sure[log]

    def take(self, segments: Iterable[StoredObject]) -> list[StoredObject]:
        """Returns those that no log has taken yet to delete them. Two logs may both cut the last need of a segment."""
        free = [entry for entry in segments if entry.path not in self._taken]
        self._taken.update(entry.path for entry in free)
        return free

    def _needs_of(self, log: str) -> Iterable[ChangeSet]:
        if (cut := self._planned.get(log)) is None:
            return self._read(log)
        return (*cut.change_sets, *(c for c in self._read(log) if c.sqn > cut.last_sqn))

    def _read(self, log: str) -> tuple[ChangeSet, ...]:
        if log not in self._change_sets:
            state = Ledger(self._store, log).find()
            # If two logs are dropped at once, the second must not leave segments that the first has already checked.
            stays = state and state.deletion is DeletionState.NO
            self._change_sets[log] = state.change_sets if state and stays else ()
        return self._change_sets[log]


def plan_release(use: SegmentUse, state: LogState) -> Released:
    """Checks the garbage of the log (I11, I12).

    A segment of an unfinished run stays, because a log may still commit it.
    """
    if not state.garbage:
        return Released((), ())
    waiting = [path for path in state.garbage if path in use.sizes and path not in use.on_their_way]
    owners = use.find_owners(waiting)
    sharing = {path: logs - {state.log} for path, logs in owners.items() if logs is not None}
    needed = use.find_needed(state, sorted(frozenset[str]().union(*sharing.values())))
    unneeded = [path for path in sharing if path not in needed]
    staying = {path for path in unneeded if not all(map(use.is_sure, sharing[path]))}
    gone = [path for path in state.garbage if path not in use.sizes]
    going = tuple(use.sizes[path] for path in unneeded if path not in staying)
    settled = (*gone, *(path for path in sharing if path not in staying))
    return Released(going, settled, tuple(path for path, logs in owners.items() if logs is None))


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
    use = SegmentUse(store)
    return tuple(sorted(path for path, owners in unneeded.items() if all(map(use.is_sure, owners))))


def _logs_of_file(store: Store, path: str) -> frozenset[str] | None:
    """Returns the logs of a segment or a quarantine file, finished or unfinished; None: it is damaged."""
    if path.startswith(f"{CHANGELOG}/"):
        return _logs_of(store, path) if path.endswith(".seg") else frozenset()
    return frozenset({path.split("/")[1]})


def truncate(pipeline: Pipeline, log: str, plan: bool = False, approved: Approved = EVERYTHING) -> Outcome:
    """Truncates the log to its tightest bound. With `plan` nothing changes: the outcome lists what would be deleted.

    Also finishes an interrupted call. approved: truncate no further, and delete no other file.
    """
    cut = _cut(pipeline, log, plan, approved.of(log))
    return _release(pipeline, cut, SegmentUse(pipeline.store), plan) if cut else _tell_empty(log)


def truncate_logs(
    pipeline: Pipeline, logs: Sequence[str], plan: bool = False, approved: Approved = EVERYTHING
) -> list[Outcome]:
    """Truncates each log, as `truncate`. Cuts all of them before it looks for what nothing needs any more."""
    cuts: dict[str, _Cut] = {}

    def cut_one(log: str) -> Outcome:
        if cut := _cut(pipeline, log, plan, approved.of(log)):
            cuts[log] = cut
        return _tell_empty(log)

    outcomes = for_each_log(logs, cut_one)
    use = SegmentUse(pipeline.store, {log: cut.after for log, cut in cuts.items()} if plan else None)
    released = for_each_log(cuts, lambda log: _release(pipeline, cuts[log], use, plan))
    ended = {outcome.log: outcome for outcome in released}
    return [ended.get(outcome.log, outcome) for outcome in outcomes]


@dataclass(frozen=True, slots=True)
class _Cut:
    """bounds: what keeps the rest of the log. approved: what of its garbage may be deleted."""

    before: LogState
    after: LogState
    bounds: tuple[log_bounds.Bound, ...]
    approved: Approved


def _tell_empty(log: str) -> Outcome:
    return Outcome(log, Status.NOTHING, "the log is empty")


def _cut(pipeline: Pipeline, log: str, plan: bool, approved: Approved) -> _Cut | None:
    ledger = pipeline.ledger(log)
    before = ledger.find()
    if before is None:
        return None
    keep, kept_log = pipeline.config.retention.keep, pipeline.config.retention.log_retention(now())

    def cut(state: LogState) -> LogState:
        return log_bounds.truncate(state, keep, kept_log, approved.cut)

    after = cut(before) if plan else ledger.commit(cut)
    return _Cut(before, after, log_bounds.bounds(after, keep, kept_log), approved)


def _release(pipeline: Pipeline, cut: _Cut, use: SegmentUse, plan: bool) -> Outcome:
    state, log = cut.after, cut.after.log
    ledger = pipeline.ledger(log)
    garbage = tuple(path for path in state.garbage if path in cut.approved)
    released = plan_release(use, replace(state, garbage=garbage))
    unneeded = {entry.path: entry.bytes for entry in use.take(released.unneeded)}
    if not plan and unneeded:
        ledger.require_current(state)
    if not plan:
        delete_files(pipeline.store, list(unneeded), pipeline.config.retention.threads)
        ledger.commit(lambda current: log_bounds.forget_garbage(current, released.settled))
        ledger.prune()
        if of_set := pipeline.config.set_of(log):
            pipeline.set_ledger(of_set.name).prune()
    return _describe(cut, unneeded, released.unreadable, plan)


def _describe(cut: _Cut, going: dict[str, int], unreadable: Sequence[str], plan: bool) -> Outcome:
    state, listed, size = cut.after, cut.bounds, sum(going.values())
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
    if state.truncated_to == cut.before.truncated_to and not going:
        return Outcome(state.log, Status.NOTHING, f"nothing to truncate; {holds}", details=details)
    verb = "would cut" if plan else "cut"
    message = (
        f"{verb} up to change set {state.truncated_to}: {count_noun(len(going), 'segment')}, {in_units(size)}; {holds}"
    )
    return Outcome(state.log, Status.PLANNED if plan else Status.TRUNCATED, message, details=details)
