"""Shows that an attempt is alive, and finds attempts that make no progress.

Only the ledger's counter is compared. A clock decides how long to watch, never that a process is dead: a claim over an
attempt names the count that was seen, and is refused if it has moved.
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
# Whoever looks for a shorter time takes an attempt for stalled that lives, and both begin again and again.
LEAST_PATIENCE = 2 * INTERVAL


class Heartbeat:
    """Raises the progress of the attempts that were added."""

    def __init__(self, ledger: Callable[[str], Ledger]) -> None:
        self._ledger = ledger
        self._attempts: dict[str, int] = {}

    def add(self, log: str, snapshot: int) -> None:
        """From now on this attempt is shown to live."""
        self._attempts[log] = snapshot

    def beat(self) -> None:
        """Once for each attempt; side by side, since on a far store each takes a moment."""
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
        # Superseded, or the store is away: whoever does the work finds out when he stages it.
        _log.warning("no sign of life: %s", error)


def find_stalled(
    pipeline: Pipeline,
    logs: Sequence[str],
    run_id: str,
    patience: float,
    wait: Callable[[float], None] = time.sleep,
) -> dict[str, Snapshot]:
    """The attempts of other runs that are being made and showed no progress for `patience` seconds, as they were seen.

    Waits only when there is such an attempt. Raises InvalidInputError when `patience` is less than two heartbeats.
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
    _log.info("waiting %.0f s for signs of life of %s", patience, ", ".join(seen))
    wait(patience)
    return {log: snapshot for log, snapshot in seen.items() if _at_work(pipeline, log, run_id) == snapshot}


def _at_work(pipeline: Pipeline, log: str, run_id: str) -> Snapshot | None:
    state = pipeline.ledger(log).find()
    attempt = state.open_attempt if state else None
    return attempt if attempt and attempt.state is State.ONGOING and attempt.run != run_id else None
