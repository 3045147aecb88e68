"""Ends unfinished ingest runs: commits the results of each to its logs, or rejects them permanently.

Any process may do this at any time, even while the run is still alive. A later commit of the run then finds its results
committed or rejected.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from tidefold.changelog import write_intents
from tidefold.changelog.write_intents import Announced, ExpectedFiles, IntentLog, Taking
from tidefold.domain.ingest.append import append, check_shape, give_up, names, with_shape
from tidefold.domain.ingest.quarantine_retry import require_rows
from tidefold.domain.log_state import DeletionState, LogState
from tidefold.errors import ConflictError, RefusedError, StoreUnusableError, TidefoldError
from tidefold.ledger import Ledger
from tidefold.storage import Store

_log = logging.getLogger(__name__)
# A run without results is left alone for this time. This only delays recovery: no decision depends on a clock.
PATIENCE = timedelta(hours=1)


def commit_ingest(ledger: Ledger, taking: Taking) -> None:
    """Commits a run's results to one log. Raises the errors of `append`. A dropped log stays dropped."""

    def apply(state: LogState) -> LogState:
        check_shape(state, taking.shape)
        after = append(with_shape(state, taking.shape), taking.arrivals, taking.fence, taking.rests_on, taking.uploads)
        # A repeated commit has no news about the landing folder.
        is_new = len(after.landed) > len(state.landed)
        if is_new and taking.left_out is not None:
            require_rows(state, taking.left_out)
        after = replace(after, folders=taking.folders or state.folders)
        return replace(after, landing=taking.landing) if taking.landing is not None and is_new else after

    ledger.begin(taking.shape, taking.fence)
    ledger.commit(apply)


def roll_forward(store: Store, logs: Collection[str]) -> None:
    """Commits the recorded results of dead runs, to these logs and to the other logs of the same runs.

    Results that cannot be committed wait: a damaged log does not stop the others, and its own commands report it.
    Raises StoreUnusableError.
    """
    try:
        runs = [r for r in write_intents.read_announced(store) if r.takings and any(t.log in logs for t in r.takings)]
        for run in runs:
            recover_run(store, run)
    except StoreUnusableError:
        raise
    except TidefoldError as error:
        _log.warning("left for later: %s", error)


def find_abandoned(store: Store, instant: str) -> list[Announced]:
    """Returns the runs that have recorded their results, and those without results for a long time."""
    latest = datetime.fromisoformat(instant) - PATIENCE
    return [
        run
        for run in write_intents.read_announced(store)
        if run.takings is not None or all(datetime.fromisoformat(i.instant) <= latest for i in run.intents)
    ]


def recover_run(store: Store, run: Announced) -> None:
    """Commits or rejects a run's results for each of its logs, then deletes the files that no log needs."""
    brought: Mapping[str, Taking] = {taking.log: taking for taking in run.takings or ()}
    waiting = {**{t.log: IntentLog(t.log, t.shape, t.fence) for t in brought.values()}, **run.logs}
    errors = []
    for log, announced in waiting.items():
        try:
            _recover_log(Ledger(store, log), announced, brought.get(log), ExpectedFiles([run]))
        except TidefoldError as error:
            errors.append(error)
    if errors:
        raise errors[0]  # The other logs are done. The run stays unfinished until this log can be done.
    end_run(store, run.run, waiting, files_of(store, run))
    _log.info("ended run %s, which died", run.run)


def end_run(store: Store, run: str, logs: Iterable[str], files: Collection[str]) -> None:
    """Deletes the run's files that no log needs, and its announcement. All its logs have committed or rejected them."""
    store.delete(sorted(set(files) - find_needed(store, logs)))
    write_intents.end(store, run)


def files_of(store: Store, run: Announced) -> tuple[str, ...]:
    """Returns the files that a run announced by name, and all finished and unfinished files in its folders."""
    below = (entry.path for folder in run.folders for entry in store.list(folder, unfinished=True))
    return tuple(sorted({*run.files, *below}))


def _recover_log(ledger: Ledger, announced: IntentLog, taking: Taking | None, files: ExpectedFiles) -> None:
    state = ledger.peek(announced.shape)
    if state.fence > announced.fence or state.deletion is not DeletionState.NO:
        return  # Already committed or rejected; a dropped log stays dropped.
    if taking:
        try:
            commit_ingest(ledger, taking)
            return
        except (RefusedError, ConflictError) as error:
            _log.info("%s rejects the results of a run: %s", announced.log, error)
        if any(name in files for name in names(ledger.peek(announced.shape))):
            return
    # Reject even if the log names the files: a writer that has committed some change sets may still commit the others.
    ledger.begin(announced.shape)
    ledger.commit(lambda now: give_up(now, announced.fence))


def find_needed(store: Store, logs: Iterable[str]) -> set[str]:
    """Returns the segments and quarantine files that these logs name."""
    needed: set[str] = set()
    for log in logs:
        state = Ledger(store, log).find()
        needed |= names(state) if state else set()
    return needed
