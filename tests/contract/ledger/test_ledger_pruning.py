"""A ledger whose oldest versions are removed under slow readers and writers. Promises I2, I11, I20, I23.

A put of version n+1 counts only if n is still there; a stray one is told from those that count by the chain of digests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from model.world import small_pages
from support.builders import SHAPE, appended, arrival
from support.dict_store import DictStore
from tidefold.domain.ingest.append import append
from tidefold.domain.log_state import Consumer, LogState
from tidefold.domain.paths import LogPaths
from tidefold.domain.retention import references
from tidefold.errors import AlreadyExistsError, UnknownOutcomeError
from tidefold.ledger import Ledger
from tidefold.storage import Store, open_store
from tidefold.storage.local_store import LocalStore


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store("store", tmp_path) if request.param == "local" else DictStore()


def tick(state: LogState) -> LogState:
    return replace(state, fence=state.fence + 1)


def advance(store: Store, versions: int) -> None:
    ledger = Ledger(store, "accounts")
    ledger.begin(SHAPE)
    for _ in range(versions):
        ledger.commit(tick)


def versions(store: Store) -> list[int]:
    return [int(e.path.rsplit("/", 1)[1].removesuffix(".json")) for e in store.list(LogPaths("accounts").ledger)]


def test_the_newest_are_kept_and_read_as_before(store: Store) -> None:
    advance(store, 20)
    before = Ledger(store, "accounts").read()
    assert Ledger(store, "accounts").prune(keep=5) == 16
    assert versions(store) == [17, 18, 19, 20, 21]
    assert Ledger(store, "accounts").read() == before
    assert Ledger(store, "accounts").prune(keep=5) == 0
    assert Ledger(store, "accounts").commit(tick).version == 22


def test_pages_go_with_the_versions_that_alone_named_them(store: Store) -> None:
    ledger = Ledger(store, "accounts")
    ledger.begin(SHAPE)
    for _ in range(70):
        ledger.commit(lambda now: append(now, [arrival(now)]))
    # A page changes when what it holds is cut: the old one is named by old versions only.
    ledger.commit(lambda now: replace(now, change_sets=now.change_sets[40:], truncated_to=40))
    for _ in range(5):
        ledger.commit(tick)
    before, pages = ledger.read(), len(store.list("logs/accounts/pages"))
    assert ledger.prune(keep=3) > 60
    assert Ledger(store, "accounts").read() == before
    assert len(store.list("logs/accounts/pages")) < pages
    for version in versions(store):
        Ledger(store, "accounts").read_version(version)


@contextmanager
def asleep(store: Store, meanwhile: Callable[[], None]) -> Iterator[None]:
    """Everything happens between the moment in which a writer knows what to put and the put itself."""
    real, woken = type(store).put_if_absent, []

    def put(self: Store, path: str, data: bytes) -> None:
        if "/ledger/" in path and not woken:
            woken.append(path)
            meanwhile()
        real(self, path, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(store), "put_if_absent", put)
        yield


def test_a_writer_that_slept_while_his_place_was_pruned_counts_once_and_loses_nothing(store: Store) -> None:
    advance(store, 3)
    newest = 0

    def meanwhile() -> None:
        nonlocal newest
        advance(store, 10)
        Ledger(store, "accounts").prune(keep=4)
        newest = Ledger(store, "accounts").read().fence

    with asleep(store, meanwhile):
        state = Ledger(store, "accounts").commit(tick)
    # His number was free. He moved again from the newest state; the stray version is no part of the chain.
    assert (state.fence, state.version) == (newest + 1, newest + 2)
    assert Ledger(store, "accounts").read() == state
    assert 5 in versions(store)
    Ledger(store, "accounts").prune(keep=4)
    assert versions(store) == [12, 13, 14, 15]


def test_pages_that_a_stray_version_names_stay_for_the_writer_who_moves_again(store: Store) -> None:
    """He sleeps before his put while his place is pruned; woken, he names the same pages in a version that counts."""

    def meanwhile() -> None:
        for _ in range(4):
            others = Ledger(store, "accounts")
            others.commit(lambda state: references.register(state, Consumer("x", len(state.consumers))))
            others.commit(lambda state: references.unregister(state, "x"))
        Ledger(store, "accounts").prune(keep=2)

    with small_pages():
        Ledger(store, "accounts").begin(SHAPE)
        for _ in range(3):
            Ledger(store, "accounts").commit(appended)
        with asleep(store, meanwhile):
            state = Ledger(store, "accounts").commit(appended)
        assert Ledger(store, "accounts").prune(keep=2)
        assert Ledger(store, "accounts").read() == state


def test_one_that_begins_a_log_after_its_beginning_was_pruned_begins_nothing(store: Store) -> None:
    def meanwhile() -> None:
        advance(store, 10)
        Ledger(store, "accounts").prune(keep=4)

    with asleep(store, meanwhile):
        state = Ledger(store, "accounts").begin(SHAPE)
    assert state.fence == 10


def test_a_writer_whose_version_counted_and_was_followed_by_many_is_told_so(store: Store) -> None:
    """The put is done and its writer sleeps before he looks whether the one before is still there."""
    advance(store, 3)
    real = Ledger._require_counted

    def slow(self: Ledger, version: int, digest: str) -> None:
        advance(store, 6)
        Ledger(store, "accounts").prune(keep=6)
        real(self, version, digest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "_require_counted", slow)
        patch.setattr(Ledger, "_require_counted", once(slow, real))
        state = Ledger(store, "accounts").commit(tick)
    assert state.version == 5
    assert Ledger(store, "accounts").read().fence == 10


def once(first, then):  # type: ignore[no-untyped-def]
    calls = []

    def call(*arguments):  # type: ignore[no-untyped-def]
        calls.append(1)
        return (first if len(calls) == 1 else then)(*arguments)

    return call


def test_when_nothing_is_left_to_tell_by_the_outcome_is_unknown(store: Store) -> None:
    advance(store, 3)
    real = Ledger._require_counted

    def slow(self: Ledger, version: int, digest: str) -> None:
        advance(store, 20)
        Ledger(store, "accounts").prune(keep=3)
        real(self, version, digest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "_require_counted", once(slow, real))
        with pytest.raises(UnknownOutcomeError) as unknown:
            Ledger(store, "accounts").commit(tick)
    assert unknown.value.code == "LEDGER_UNKNOWN"
    assert Ledger(store, "accounts").read().fence == 24


def test_a_reader_that_slept_while_his_version_was_pruned_reads_the_newest(store: Store) -> None:
    advance(store, 3)
    ledger = Ledger(store, "accounts")
    real = Ledger.read_version

    def slow(self: Ledger, version: int) -> LogState:
        advance(store, 10)
        Ledger(store, "accounts").prune(keep=4)
        return real(self, version)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "read_version", once(slow, real))
        assert ledger.read().fence == 13


def test_pruning_that_is_killed_at_any_call_is_finished_by_the_next(tmp_path: Path) -> None:
    class Dying(LocalStore):
        left = 0

        def delete(self, paths: list[str]) -> None:
            for path in paths:
                if self.left == 0:
                    raise KeyboardInterrupt
                self.left -= 1
                super().delete([path])

    for calls in range(30):
        root = tmp_path / str(calls)
        plain = LocalStore(root)
        advance(plain, 30)
        dying = Dying(root)
        dying.left = calls
        with suppress(KeyboardInterrupt):
            Ledger(dying, "accounts").prune(keep=5)
        kept = versions(plain)
        assert kept == list(range(kept[0], 32)), "a contiguous prefix goes, in ascending order"
        Ledger(plain, "accounts").prune(keep=5)
        assert versions(plain) == [27, 28, 29, 30, 31]
        assert Ledger(plain, "accounts").read().fence == 30


def test_two_that_prune_at_once_do_no_harm(store: Store) -> None:
    advance(store, 20)
    real = type(store).delete
    nested: list[int] = []

    def delete(self: Store, paths: list[str]) -> None:
        if not nested:
            nested.append(1)
            Ledger(store, "accounts").prune(keep=5)
        real(self, paths)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(store), "delete", delete)
        Ledger(store, "accounts").prune(keep=8)
    assert versions(store) == [17, 18, 19, 20, 21]


def test_a_lost_race_stays_a_lost_race(store: Store) -> None:
    advance(store, 1)
    ledger = Ledger(store, "accounts")
    state = ledger.read()
    advance(store, 1)
    with pytest.raises(AlreadyExistsError):
        ledger._put(replace(tick(state), version=state.version + 1))
