"""Shows that an attempt is alive, and finds attempts that make no progress.

Only the counter in the ledger is compared. A clock limits how long to watch, but never decides that a process is dead:
a claim over an attempt names the count that was seen, and is refused if the count has changed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from tidefold.domain.log_state import Snapshot, State
from tidefold.domain.snapshot.claim import progress
from tidefold.errors import InvalidInputError, TidefoldError
from tidefold.ledger import Ledger
from tidefold.operations.pipeline import Pipeline

_log = logging.getLogger(__name__)
INTERVAL = 30.0
_AT_ONCE = 8
# With a shorter time, a live attempt looks stalled, and two runs would take over from each other again and again.
LEAST_PATIENCE = 2 * INTERVAL


class Heartbeat:
    """Raises the heartbeat count of the attempts that were added."""

    def __init__(self, ledger: Callable[[str], Ledger]) -> None:
        self._ledger = ledger
        self._attempts: dict[str, int] = {}

    def add(self, log: str, snapshot: int) -> None:
        """Adds an attempt to the heartbeat."""
        self._attempts[log] = snapshot

    def beat(self) -> None:
        """Raises the count of each attempt once, in parallel, because each write to a remote store takes time."""
        attempts = list(self._attempts.items())
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda one: _beat(self._ledger(one[0]), one[1]), attempts))


@contextmanager
def heartbeat(ledger: Callable[[str], Ledger], interval: float = INTERVAL) -> Iterator[Heartbeat]:
    """Beats every `interval` seconds while the work lasts."""
    ended = threading.Event()
    heart = Heartbeat(ledger)

    def beat() -> None:
        while not ended.wait(interval):
            heart.beat()

    thread = threading.Thread(target=beat, name="tidefold-heartbeat", daemon=True)
    thread.start()
    try:
        yield heart
    finally:
        ended.set()
        thread.join()


def _beat(ledger: Ledger, snapshot: int) -> None:
    try:
        ledger.commit(partial(progress, snapshot_id=snapshot))
    except TidefoldError as error:
        # The attempt was superseded, or the store cannot be reached. The working process finds out when it stages.
        _log.warning("the heartbeat could not be written: %s", error)


def find_stalled(
    pipeline: Pipeline,
    logs: Sequence[str],
    run_id: str,
    patience: float,
    wait: Callable[[float], None] = time.sleep,
) -> dict[str, Snapshot]:
    """Returns the open attempts of other runs that made no progress for `patience` seconds, as they were read.

    Waits only if there is an open attempt. Raises InvalidInputError if `patience` is less than two heartbeats.
    """
    if patience < LEAST_PATIENCE:
        raise InvalidInputError(
            "PATIENCE_TOO_SHORT",
            f"A running attempt sends a heartbeat every {INTERVAL:.0f} s, so a wait of {patience:g} s proves nothing.",
            hint=f"Wait {LEAST_PATIENCE:.0f} s or more.",
        )
    seen = {log: found for log in logs if (found := _at_work(pipeline, log, run_id))}
    if not seen:
        return {}
    _log.info("waiting %.0f s for progress of the attempts on %s", patience, ", ".join(seen))
    wait(patience)
    return {log: snapshot for log, snapshot in seen.items() if _at_work(pipeline, log, run_id) == snapshot}


def _at_work(pipeline: Pipeline, log: str, run_id: str) -> Snapshot | None:
    state = pipeline.ledger(log).find()
    attempt = state.open_attempt if state else None
    return attempt if attempt and attempt.state is State.ONGOING and attempt.run != run_id else None
