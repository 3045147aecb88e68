"""Many operating system processes confirm snapshots of one log, and one wakes after its epoch was taken.

Promises I3, I7, I20.
"""

from __future__ import annotations

import os
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path

import msgspec
import pytest

from support.builders import SHAPE, arrival
from support.effort import choose
from support.processes import FORK, alone
from support.simulated import create_snapshot_table, publish, rows_of_table
from tidefold.delta.publish import provide_new_files
from tidefold.delta.published_table import Published
from tidefold.domain.ingest.append import append
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State, Verdict
from tidefold.domain.paths import DataFileName, LogPaths, data_path
from tidefold.domain.snapshot import claim, transitions
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.domain.source_progress import NO_PROGRESS
from tidefold.errors import ConflictError, RefusedError, SupersededError
from tidefold.ledger import Ledger, read_manifest, write_manifest
from tidefold.storage import Store
from tidefold.storage.local_store import LocalStore

LOG, PROCESSES, CONFIRMS = "accounts", 8, choose(8, 25)
INSTANT = "2026-01-01T00:00:00+00:00"


def _claimed(ledger: Ledger, run: str, takeover: bool = False) -> Snapshot | None:
    """This run's attempt. Refused while another's is open: then it is tried again."""
    asked = claim.Claim(run, "fold", SnapshotKind.FULL, INSTANT, takeover)
    return claim.find_by_run(ledger.commit(partial(claim.claim, request=asked)), run)


def _staged(store: Store, ledger: Ledger, mine: Snapshot) -> None:
    """Folds: the rows are the sqns of the change sets, so that each of them is seen once, or not at all."""
    state = ledger.read()
    base = state.snapshot(mine.base) if mine.base is not None else None
    rows = rows_of_table(store, LogPaths(LOG).snapshot(base.id)) if base else {}
    for one in state.change_sets_in(mine.from_sqn, mine.folds_to):
        assert one.sqn not in rows
        rows[one.sqn] = f"folded by snapshot {mine.id}"
    data, span = msgspec.json.encode(rows), KeyGroups(0, 15)
    name = str(DataFileName(span, mine.id, mine.epoch, f"{mine.epoch:032x}", mine.token))
    store.put_if_absent(data_path(LogPaths(LOG).snapshot(mine.id), name), data)
    files = (DataFile(name, len(data), len(rows), "00", span, "{}"),)
    manifest = Manifest(
        LOG,
        mine.id,
        mine.epoch,
        SnapshotKind.FULL,
        mine.base,
        mine.from_sqn,
        mine.to_sqn,
        SHAPE,
        files,
        NO_PROGRESS,
        token=mine.token,
    )
    create_snapshot_table(store, manifest)
    provide_new_files(store, manifest)
    ledger.commit(partial(transitions.stage, manifest=manifest, digest=write_manifest(store, manifest)))


def _confirmed(store: Store, ledger: Ledger, number: int) -> None:
    def passed(state: LogState) -> LogState:
        verdict = Verdict(
            True,
            "suite",
            transitions.require_not_aborted(state, number).manifest or "",
            "verdict.json",
            "1 of 1 checks",
        )
        return transitions.record_verdict(state, number, verdict)

    ledger.commit(passed)
    ledger.commit(partial(transitions.confirm, snapshot_id=number))
    _rolled_forward(store, ledger)


def _rolled_forward(store: Store, ledger: Ledger) -> None:
    """As `operations.confirm.roll_forward`: whoever comes first publishes."""
    state = ledger.read()
    latest = state.latest
    if latest is None or latest.published:
        return
    last = next((s for s in reversed(state.snapshots) if s.published), None)
    shown = Published(read_manifest(store, LOG, last), last.table_version or 0) if last else None
    version = publish(store, read_manifest(store, LOG, latest), latest.manifest or "", shown)
    ledger.commit(partial(transitions.record_publication, snapshot_id=latest.id, table_version=version))


def _work(root: str, number: int, begin: Barrier) -> None:
    """Appends one change set and brings it, and what others appended, into a confirmed snapshot, some times."""
    store = LocalStore(Path(root))
    ledger = Ledger(store, LOG)
    begin.wait()
    for turn in range(CONFIRMS):
        _again(lambda: ledger.commit(lambda state: append(state, [arrival(state, 1)])))
        _again(lambda run=f"{number}-{turn}": _cycle(store, ledger, run))


def _cycle(store: Store, ledger: Ledger, run: str) -> bool:
    """Whether this run has a confirmed snapshot now."""
    _rolled_forward(store, ledger)
    mine = _claimed(ledger, run)
    if mine is None:
        # Others folded everything: there is something for this run to do after one more change.
        ledger.commit(lambda state: append(state, [arrival(state, 1)]))
        return False
    if mine.state is State.ONGOING:
        _staged(store, ledger, mine)
    _confirmed(store, ledger, mine.id)
    return True


def _again(act) -> None:  # type: ignore[no-untyped-def]
    """Until it is done: what is refused because of others is tried again, as a scheduler would."""
    while True:
        try:
            if act() is not False:
                return
        except (RefusedError, ConflictError):
            os.sched_yield()  # Lets the others go on.


def _zombie(root: str, asleep, awake, found) -> None:  # type: ignore[no-untyped-def]
    """Claims, sleeps while its epoch is taken, wakes, and tries everything that it would have done next."""
    store = LocalStore(Path(root))
    ledger = Ledger(store, LOG)
    mine = _claimed(ledger, "zombie")
    assert mine
    asleep.set()
    awake.wait()
    refused = 0
    for act in (lambda: _staged(store, ledger, mine), lambda: _confirmed(store, ledger, mine.id)):
        try:
            act()
        except SupersededError:
            refused += 1
    found.put((mine.id, refused))


@pytest.mark.rotates(3)
def test_eight_processes_and_a_zombie_confirm_one_after_the_other(tmp_path: Path) -> None:
    dead, refused = alone(_play, str(tmp_path))
    assert refused == 2
    store = LocalStore(tmp_path)
    _check(store, Ledger(store, LOG).read(), dead)


def _play(root: str) -> tuple[int, int]:
    """Returns the zombie's attempt, and how many of its steps were refused."""
    store = LocalStore(Path(root))
    ledger = Ledger(store, LOG)
    ledger.begin(SHAPE)
    ledger.commit(lambda state: append(state, [arrival(state, 1)]))
    asleep, awake, found = FORK.Event(), FORK.Event(), FORK.Queue()
    zombie = FORK.Process(target=_zombie, args=(root, asleep, awake, found))
    zombie.start()
    asleep.wait()
    begin = FORK.Barrier(PROCESSES)
    workers = [FORK.Process(target=_work, args=(root, n, begin)) for n in range(PROCESSES)]
    taken = _claimed(ledger, "taken over", takeover=True)
    assert taken
    for worker in workers:
        worker.start()
    # The zombie wakes in the middle of all that.
    awake.set()
    _staged(store, ledger, taken)
    _confirmed(store, ledger, taken.id)
    for process in (*workers, zombie):
        process.join()
    assert [process.exitcode for process in (*workers, zombie)] == [0] * (PROCESSES + 1)
    dead, refused = found.get()
    return dead, refused


def _check(store: Store, state: LogState, dead: int) -> None:
    confirmed = [s for s in state.snapshots if s.state is State.COMPLETED]
    assert len(confirmed) == PROCESSES * CONFIRMS + 1
    assert len({s.run for s in confirmed}) == len(confirmed)
    assert [s.id for s in state.snapshots if s.state is State.ABORTED] == [dead]
    assert [s.table_version for s in confirmed] == list(range(len(confirmed)))
    ends = [0, *(s.to_sqn for s in confirmed)]
    assert [s.from_sqn for s in confirmed] == ends[:-1]
    assert [s.base for s in confirmed] == [None, *(s.id for s in confirmed[:-1])]
    rows = rows_of_table(store, LogPaths(LOG).table)
    assert sorted(rows) == list(range(1, state.last_sqn + 1))
    assert state.last_sqn >= PROCESSES * CONFIRMS + 1
    folded = {s.id: range(s.from_sqn + 1, s.to_sqn + 1) for s in confirmed}
    assert all(rows[sqn] == f"folded by snapshot {number}" for number, sqns in folded.items() for sqn in sqns)
