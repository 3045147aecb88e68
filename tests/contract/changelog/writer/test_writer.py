"""The changelog writer on a local disk, with real threads, and through crashes. Requirements C1-C9; I11, I19, I21."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.faults import Fault, FaultyStore, Killed
from support.processes import FORK, alone
from support.writing import SHAPE, make_changelog, paths, rows
from tidefold.changelog import write_intents
from tidefold.changelog.reader import ChangelogReader
from tidefold.changelog.segment import read_index
from tidefold.changelog.writer.changelog import Changelog
from tidefold.changelog.writer.settings import WriterSettings
from tidefold.errors import ConflictError, TidefoldError
from tidefold.ledger import Ledger
from tidefold.storage import Store, open_store
from tidefold.storage.local_store import LocalStore


def ids(store: Store, log: str) -> list[int]:
    """Everything in the log, by its place in the writer's stream."""
    read = [row for table in ChangelogReader(store, log).tables() for row in table.to_pylist()]
    return [row["id"] for row in sorted(read, key=lambda row: row["_offset"])]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store("store", tmp_path)


def test_many_small_logs_make_few_segments_and_each_is_complete(store: Store, tmp_path: Path) -> None:
    """C2, C3, with the real threads and timer."""
    local = open_store("local", tmp_path)
    with Changelog(store, local=local, keeps_copies=True) as changelog:
        for number in range(60):
            changelog.log(f"log_{number:02d}", SHAPE).append(rows(*range(number, number + 20)))
    assert len(paths(store)) <= 5
    assert paths(store) == paths(local)
    for number in range(60):
        assert ids(store, f"log_{number:02d}") == list(range(number, number + 20))
    for path in paths(store):
        logs = [entry.log for entry in read_index(store, path)]
        assert logs == sorted(logs)
        assert store.read(path) == local.read(path)


def test_the_persist_delay_ends_a_wait_without_a_flush(store: Store) -> None:
    """C3: with the real timer."""
    with Changelog(store, WriterSettings(persist_delay=0.01)) as changelog:
        log = changelog.log("a", SHAPE)
        log.append(rows(1))
        assert log.persist(0).result(30).bytes > 0


def test_more_than_may_be_in_flight_passes_through(store: Store) -> None:
    """C3: with real threads: appending blocks and goes on, and nothing is lost."""
    settings = WriterSettings(log_bytes=2_000, batch_bytes=2_000, max_bytes_in_flight=4_000)
    with Changelog(store, settings) as changelog:
        log = changelog.log("a", SHAPE)
        for number in range(0, 5_000, 50):
            log.append(rows(*range(number, number + 50)))
        assert changelog.metrics.bytes_in_flight < 4_000 + 10_000
    assert ids(store, "a") == list(range(5_000))
    assert list(write_intents.read_announced(store)) == []


def test_logs_may_be_written_from_many_threads(store: Store) -> None:
    with Changelog(store) as changelog, ThreadPoolExecutor(8) as threads:

        def write(number: int) -> None:
            log = changelog.log(f"log_{number}", SHAPE)
            for part in range(3):
                log.append(rows(*range(part * 10, part * 10 + 10)))
                log.flush()

        list(threads.map(write, range(8)))
    for number in range(8):
        assert ids(store, f"log_{number}") == list(range(30))


def _rival(root: str, start: threading.Barrier, results: multiprocessing.Queue[str]) -> None:
    store = LocalStore(Path(root))
    log = make_changelog(store).log("a", SHAPE)
    log.append(rows(*range(5)))
    log.persist(0).result(0)
    start.wait(60)
    try:
        log.flush()
        results.put("confirmed")
    except ConflictError:
        results.put("refused")


def _race(root: str) -> list[str]:
    start, results = FORK.Barrier(3), FORK.Queue()
    processes = [FORK.Process(target=_rival, args=(root, start, results)) for _ in range(3)]
    for process in processes:
        process.start()
    outcomes = sorted(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)
    return outcomes


@pytest.mark.rotates(3)
def test_of_processes_with_one_name_exactly_one_confirms(tmp_path: Path) -> None:
    """I20: the ledger decides."""
    assert alone(_race, str(tmp_path)) == ["confirmed", "refused", "refused"]
    assert ids(LocalStore(tmp_path), "a") == list(range(5))


SOURCE = list(range(40))


def run(store: Store) -> None:
    """A program that writes its source to two logs, ten changes a time, going on where each log stands."""
    with make_changelog(store, settings={"persist_delay": 1.0, "batch_bytes": 1 << 20}) as changelog:
        logs = [changelog.log("a", SHAPE), changelog.log("b", SHAPE)]
        while any(log.offset < len(SOURCE) for log in logs):
            for log in logs:
                log.append(rows(*SOURCE[log.offset : log.offset + 10]))
            changelog.flush()


def test_how_many_calls_a_run_makes(tmp_path: Path) -> None:
    store = FaultyStore(tmp_path / "store")
    run(store)
    assert 20 <= store.calls < 100
    assert len(paths(store)) == 4


ERRORS, DEATHS = [Fault.ERROR_BEFORE, Fault.ERROR_AFTER], [Fault.KILLED_BEFORE, Fault.KILLED_AFTER]


# The dead do nothing any more: each later call dies, too.
@pytest.mark.rotates(6)
@pytest.mark.parametrize(
    ("fault", "for_ever"), [*((f, e) for f in ERRORS for e in (False, True)), *((f, True) for f in DEATHS)]
)
def test_after_any_failing_call_the_next_run_completes_the_log(tmp_path: Path, fault: Fault, for_ever: bool) -> None:
    """I19, I11: every call that changes something fails in turn; nothing is lost, nothing comes twice, and what a dead
    writer left is announced.
    """
    for at in itertools.count():
        root = tmp_path / f"{at}"
        broken = FaultyStore(root, at, fault, for_ever)
        failed = False
        try:
            run(broken)
        except (TidefoldError, Killed):
            failed = True
        if broken.calls <= at:
            break
        store = LocalStore(root)
        check_nothing_unannounced(store)
        run(store)
        assert (ids(store, "a"), ids(store, "b")) == (SOURCE, SOURCE), (at, failed)
        check_nothing_unannounced(store)
    assert at >= 20


def check_nothing_unannounced(store: Store) -> None:
    """A segment is in a ledger or announced: else nobody would ever find and remove it (I22)."""
    announced = {file for one in write_intents.read_announced(store) for file in one.files}
    named = set()
    for log in ("a", "b"):
        state = Ledger(store, log).find()
        named |= {one.location.segment for one in state.change_sets} if state else set()
    assert set(paths(store)) <= named | announced


def test_a_confirmed_flush_survives_the_death_of_the_process(tmp_path: Path) -> None:
    """I21: the process ends without closing anything."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=_die_after_flush, args=(str(tmp_path), results))
    process.start()
    assert results.get(timeout=120) == "flushed"
    process.join(60)
    store = LocalStore(tmp_path)
    assert ids(store, "a") == [1, 2]
    check_nothing_unannounced(store)
    again = make_changelog(store).log("a")
    assert again.offset == 2


def _die_after_flush(root: str, results: multiprocessing.Queue[str]) -> None:
    log = Changelog(LocalStore(Path(root))).log("a", SHAPE)
    log.append(rows(1, 2))
    log.flush()
    log.append(rows(3))
    log.persist(log.next_sqn - 1).result(60)
    results.put("flushed")
    results.close()
    results.join_thread()
    multiprocessing.current_process().kill()  # type: ignore[attr-defined]


@pytest.mark.parametrize("at", range(3))
def test_a_local_disk_that_fails_costs_only_copies(store: Store, tmp_path: Path, at: int) -> None:
    """C6, L2, I15."""
    local = FaultyStore(tmp_path / "local", at, Fault.ERROR_BEFORE)
    with make_changelog(store, local=local, keeps_copies=True) as changelog:
        log = changelog.log("a", SHAPE)
        for number in range(4):
            log.append(rows(number))
            log.flush()
    assert ids(store, "a") == [0, 1, 2, 3]
    assert len(paths(local)) == 3
