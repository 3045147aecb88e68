"""Lists that grow, change and are truncated are read back as they were, from few pages. Promises I2, I11, I23."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log2
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from support.builders import SHAPE, arrival
from support.dict_store import DictStore
from support.effort import choose
from tidefold.domain.ingest.append import append
from tidefold.domain.log_state import LogState
from tidefold.ledger import Ledger
from tidefold.ledger.serialization import decode_head
from tidefold.storage import Store, open_store
from tidefold.storage.local_store import LocalStore

Move = Callable[[LogState], LogState]


def grow(count: int) -> Move:
    def move(state: LogState) -> LogState:
        for _ in range(count):
            state = append(state, [arrival(state)])
        return state

    return move


def truncate(count: int) -> Move:
    def move(state: LogState) -> LogState:
        gone, left = state.change_sets[:count], state.change_sets[count:]
        return replace(state, change_sets=left, truncated_to=gone[-1].sqn if gone else state.truncated_to)

    return move


def correct(at: int) -> Move:
    """As a retry of the quarantine corrects the counts of a file."""

    def move(state: LogState) -> LogState:
        if not state.landed:
            return state
        index = at % len(state.landed)
        entry = replace(state.landed[index], ignored=state.landed[index].ignored + 1)
        return replace(state, landed=(*state.landed[:index], entry, *state.landed[index + 1 :]))

    return move


moves = st.one_of(
    st.integers(1, 150).map(grow),
    st.integers(0, 200).map(truncate),
    st.integers(0, 1_000).map(correct),
    st.just(lambda state: replace(state, fence=state.fence + 1)),
)


def names_of(store: Store) -> dict[str, list[str]]:
    head = max(store.list("logs/accounts/ledger"), key=lambda e: e.path)
    return decode_head(head.path, store.read(head.path)).pages


@settings(max_examples=choose(24, 60), deadline=None)
@given(steps=st.lists(st.tuples(moves, st.booleans(), st.booleans()), min_size=1, max_size=14))
def test_every_version_reads_back_as_it_was_written(steps: list[tuple[Move, bool, bool]]) -> None:
    store = DictStore()
    ledger = Ledger(store, "accounts")
    written = {1: ledger.begin(SHAPE)}
    for move, is_new, is_pruned in steps:
        ledger = Ledger(store, "accounts") if is_new else ledger
        done = ledger.commit(move)
        written[done.version] = done
        if is_pruned:
            Ledger(store, "accounts").prune(keep=2)
    kept = [int(e.path.rsplit("/", 1)[1].removesuffix(".json")) for e in store.list("logs/accounts/ledger")]
    for version in kept:
        assert Ledger(store, "accounts").read_version(version) == written[version]


def test_a_page_is_not_written_again_when_what_it_holds_is_truncated(tmp_path: Path) -> None:
    store = open_store("store", tmp_path)
    ledger = Ledger(store, "accounts")
    ledger.begin(SHAPE)
    ledger.commit(grow(1_000))
    before, stored = names_of(store), len(store.list("logs/accounts/pages"))
    done = ledger.commit(truncate(300))
    assert names_of(store) == before
    assert len(store.list("logs/accounts/pages")) == stored
    assert Ledger(store, "accounts").read() == done
    done = Ledger(store, "accounts").commit(truncate(300))
    assert names_of(store)["change_sets"] == before["change_sets"][1:]
    assert Ledger(store, "accounts").read() == done


def test_a_log_of_any_age_has_few_pages(tmp_path: Path) -> None:
    store = open_store("store", tmp_path)
    ledger = Ledger(store, "accounts")
    ledger.begin(SHAPE)
    for step in range(40):
        done = ledger.commit(grow(97))
        done = ledger.commit(truncate(60)) if step % 3 else done
        most = 2 * log2(max(len(done.change_sets), 32) / 32) + 2
        assert len(names_of(store)["change_sets"]) <= most
        assert len(names_of(store)["landed"]) <= log2(len(done.landed) / 32) + 2
    assert Ledger(store, "accounts").read() == done


def test_a_damaged_page_is_replaced_by_a_rebuild_that_makes_it_again(tmp_path: Path) -> None:
    """A page is named by its content, so the rebuilt ledger named the damaged file."""
    store = LocalStore(tmp_path)
    ledger = Ledger(store, "accounts")
    ledger.begin(SHAPE)
    state = ledger.commit(grow(100))
    page = store.list("logs/accounts/pages")[0].path
    data = store.read(page)
    store.delete([page, *(entry.path for entry in store.list("logs/accounts/ledger"))])
    store.put_if_absent(page, data[:-5])
    Ledger(store, "accounts").replace(SHAPE, lambda empty: replace(state, version=empty.version))
    assert Ledger(store, "accounts").read().change_sets == state.change_sets
    assert store.read(page) == data
