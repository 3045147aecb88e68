"""Ends what a run announced and did not bring to its end: every log takes what it was brought, or refuses it for good.

Whoever comes next may do this at any time, also while the run still lives: what it then tells a log was taken already,
or is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from tidefold.changelog import write_intents
from tidefold.changelog.write_intents import Announced, ExpectedFiles, IntentLog, Taking
from tidefold.domain.ingest.append import append, check_shape, give_up, names, with_shape
from tidefold.domain.log_state import DeletionState, LogState
from tidefold.errors import ConflictError, RefusedError, TidefoldError
from tidefold.ledger import Ledger
from tidefold.storage import Store

_log = logging.getLogger(__name__)
# How long a run that wrote and said nothing more is left alone. It only delays: no clock decides that it is dead.
PATIENCE = timedelta(hours=1)


def commit_ingest(ledger: Ledger, taking: Taking) -> None:
    """Tells a log what it was brought. Raises what `append` raises; a log that was dropped meanwhile stays so."""
    ledger.begin(taking.shape, taking.fence)
    ledger.commit(partial(_apply, taking=taking))


def _apply(state: LogState, taking: Taking) -> LogState:
    check_shape(state, taking.shape)
    after = append(with_shape(state, taking.shape), taking.arrivals, taking.fence, taking.rests_on)
    # Told a second time, it is old news.
    is_new = len(after.landed) > len(state.landed)
    return replace(after, landing=taking.landing) if taking.landing is not None and is_new else after


def roll_forward(store: Store, logs: Collection[str]) -> None:
    """Tells these logs, and those beside them, what runs brought them that died before they could.

    What cannot be told waits: a log that is damaged holds up no other, and says so itself.
    """
    try:
        runs = [r for r in write_intents.announced(store) if r.takings and any(t.log in logs for t in r.takings)]
        for run in runs:
            settle(store, run)
    except TidefoldError as error:
        _log.warning("left for later: %s", error)


def find_abandoned(store: Store, instant: str) -> list[Announced]:
    """The runs that have everything said, or that have been silent for long."""
    latest = datetime.fromisoformat(instant) - PATIENCE
    return [
        run
        for run in write_intents.announced(store)
        if run.takings is not None or all(datetime.fromisoformat(i.instant) <= latest for i in run.intents)
    ]


def settle(store: Store, run: Announced) -> None:
    """Rolls the logs of a run forward, or refuses for them; then removes what none of them needs."""
    brought: Mapping[str, Taking] = {taking.log: taking for taking in run.takings or ()}
    waiting = {**{t.log: IntentLog(t.log, t.shape, t.fence) for t in brought.values()}, **run.logs}
    failed = [
        error
        for log, announced in waiting.items()
        if (error := _settled(Ledger(store, log), announced, brought.get(log), ExpectedFiles([run])))
    ]
    if failed:
        raise failed[0]  # The others were told; the run is ended when this one can be.
    end_run(store, run.run, waiting, files_of(store, run))
    _log.info("ended run %s, which died", run.run)


def end_run(store: Store, run: str, logs: Iterable[str], files: Collection[str]) -> None:
    """Removes what none of the logs needs of a run's files, and forgets the run: every log has taken or refused."""
    store.delete(sorted(set(files) - find_needed(store, logs)))
    write_intents.end(store, run)


def files_of(store: Store, run: Announced) -> tuple[str, ...]:
    """The files that a run announced by name, and those, whole or half, that its tasks named themselves."""
    below = (entry.path for folder in run.folders for entry in store.list(folder, unfinished=True))
    return tuple(sorted({*run.files, *below}))


def _settled(ledger: Ledger, announced: IntentLog, taking: Taking | None, files: ExpectedFiles) -> TidefoldError | None:
    try:
        _settle_log(ledger, announced, taking, files)
    except TidefoldError as error:
        return error
    return None


def _settle_log(ledger: Ledger, announced: IntentLog, taking: Taking | None, files: ExpectedFiles) -> None:
    state = ledger.peek(announced.shape)
    if state.fence > announced.fence or state.deletion is not DeletionState.NO:
        return  # Taken before, or refused for good; a log that was dropped stays so.
    if taking:
        try:
            commit_ingest(ledger, taking)
            return
        except (RefusedError, ConflictError) as error:
            _log.info("%s refuses what a run brought: %s", announced.log, error)
        if any(name in files for name in names(ledger.peek(announced.shape))):
            return
    # Also when the log names the files: a writer who has told it of some change sets may come back with the others.
    ledger.begin(announced.shape)
    ledger.commit(lambda now: give_up(now, announced.fence))


def find_needed(store: Store, logs: Iterable[str]) -> set[str]:
    """The segments and quarantine files that these logs name."""
    found: set[str] = set()
    for log in logs:
        state = Ledger(store, log).find()
        found |= names(state) if state else set()
    return found
