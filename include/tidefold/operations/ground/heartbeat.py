"""Shows that an attempt is alive, and finds attempts that make no progress.

A working process counts its heartbeats in `logs/<log>/heartbeat.json`. The file is a hint and no part of a ledger
version. Only the count is compared. A clock limits how long to watch, but never decides that a process is dead: a claim
over an attempt is refused if the count has changed, and it is committed through the ledger.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec

from tidefold.domain.log_state import Snapshot, State
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import WatchedAttempt
from tidefold.errors import InvalidInputError, NotFoundError, TidefoldError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.storage import Store
from tidefold.typed_json import decode_json

_log = logging.getLogger(__name__)
INTERVAL = 30.0
_AT_ONCE = 8
# With a shorter time, a live attempt looks stalled, and two runs would take over from each other again and again.
LEAST_PATIENCE = 2 * INTERVAL
# A fold and a few backfills may work on one log at the same time. Entries of older attempts are dropped.
_ATTEMPTS = 8


class _Beats(msgspec.Struct, frozen=True):
    """How many heartbeats one attempt has sent. `token` separates it from an attempt of a ledger that was lost."""

    snapshot: int
    epoch: int
    token: str
    count: int

    def belongs_to(self, attempt: Snapshot) -> bool:
        return (self.snapshot, self.epoch, self.token) == (attempt.id, attempt.epoch, attempt.token)


class _HeartbeatFile(msgspec.Struct, frozen=True):
    attempts: tuple[_Beats, ...] = ()


def count_heartbeats(store: Store, log: str, attempts: Sequence[Snapshot]) -> tuple[WatchedAttempt, ...]:
    """Returns the attempts with their heartbeats. One request; none without an attempt."""
    if not attempts:
        return ()
    sent = _read(store, log).attempts
    return tuple(WatchedAttempt(one, sum(s.count for s in sent if s.belongs_to(one))) for one in attempts)


def _read(store: Store, log: str) -> _HeartbeatFile:
    try:
        return decode_json(store.read(LogPaths(log).heartbeat), _HeartbeatFile)
    except (NotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return _HeartbeatFile()


class Heartbeat:
    """Counts the heartbeats of the attempts that were added."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._attempts: dict[str, Snapshot] = {}
        self._count = 0

    def add(self, log: str, attempt: Snapshot) -> None:
        """Adds an attempt to the heartbeat."""
        self._attempts[log] = attempt

    def beat(self) -> None:
        """Writes the count of each attempt once, in parallel, because each write to a remote store takes time."""
        self._count += 1
        attempts = list(self._attempts.items())
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda one: self._beat(*one), attempts))

    def _beat(self, log: str, attempt: Snapshot) -> None:
        try:
            _write(self._store, log, attempt, self._count)
        except TidefoldError as error:
            _log.warning("the heartbeat could not be written: %s", error)


def _write(store: Store, log: str, attempt: Snapshot, count: int) -> None:
    """Writes the count. If another process writes at the same moment, one of both counts waits for its next beat."""
    others = [one for one in _read(store, log).attempts if not one.belongs_to(attempt)]
    mine = _Beats(attempt.id, attempt.epoch, attempt.token, count)
    newest = sorted([*others, mine], key=lambda one: one.epoch)[-_ATTEMPTS:]
    path = LogPaths(log).heartbeat
    store.delete([path])
    store.put_if_absent(path, msgspec.json.encode(_HeartbeatFile(tuple(newest))))


@contextmanager
def heartbeat(store: Store, interval: float = INTERVAL) -> Iterator[Heartbeat]:
    """Beats every `interval` seconds while the work lasts."""
    ended = threading.Event()
    heart = Heartbeat(store)

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


def find_stalled(
    pipeline: Pipeline,
    logs: Sequence[str],
    run_id: str,
    patience: float,
    wait: Callable[[float], None] = time.sleep,
) -> dict[str, WatchedAttempt]:
    """Returns the open attempts of other runs that made no progress for `patience` seconds, as they were seen.

    Waits only if there is an open attempt. Raises InvalidInputError if `patience` is less than two heartbeats.
    """
    if patience < LEAST_PATIENCE:
        raise InvalidInputError(
            "PATIENCE_TOO_SHORT",
            f"A running attempt sends a heartbeat every {INTERVAL:.0f} s, so a wait of {patience:g} s proves nothing.",
            hint=f"Wait {LEAST_PATIENCE:.0f} s or more.",
        )
    seen = {log: attempt for log in logs if (attempt := _find_at_work(pipeline, log, run_id))}
    if not seen:
        return {}
    _log.info("waiting %.0f s for progress of the attempts on %s", patience, ", ".join(seen))
    wait(patience)
    return {log: watched for log, watched in seen.items() if _find_at_work(pipeline, log, run_id) == watched}


def _find_at_work(pipeline: Pipeline, log: str, run_id: str) -> WatchedAttempt | None:
    state = pipeline.ledger(log).find()
    attempt = state.open_attempt if state else None
    if attempt is None or attempt.state is not State.ONGOING or attempt.run == run_id:
        return None
    return count_heartbeats(pipeline.store, log, [attempt])[0]
