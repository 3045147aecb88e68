"""Every call to a store fails in turn while a savepoint is written, imported, or deleted with its snapshot: nothing is
half visible, and after the next call nothing is left over. I1, I11, I12, I13, I19, I22.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from support.effort import list_moments
from support.faults import Fault, FaultyStore, Killed, check_nothing_left_over
from support.pipelines import contents, judge_all, make_pipeline, table_rows
from support.savepoints import THIRD, bring, changed, cycle, make, save, saved_rows, snapshot_rows
from tidefold.domain.external_snapshot import Layout, Ownership
from tidefold.domain.log_state import SnapshotKind, State
from tidefold.domain.paths import LogPaths, data_path
from tidefold.domain.snapshot.manifest import BEGUN, DESCRIPTION
from tidefold.errors import RefusedError, TidefoldError
from tidefold.fold import inputs
from tidefold.ledger import read_description, read_manifest
from tidefold.operations.ground import originals as external
from tidefold.operations.ground.originals import open_address
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.retention.clean import drop
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.storage import Store, open_store


class _Joint(FaultyStore):
    """A store around the one that fails, through which links go: its calls are counted as that one's."""

    def __init__(self, root: Path, faulty: FaultyStore) -> None:
        super().__init__(root)
        self._call = faulty._call  # type: ignore[method-assign]


@contextmanager
def opened(faulty: FaultyStore) -> Iterator[None]:
    """Whoever opens the store at that address, driver or task, gets the one that fails."""

    def open_one(address: str, base: Path) -> Store:
        root = base / address
        if root != faulty.root and faulty.root.is_relative_to(root):
            return _Joint(root, faulty)
        return faulty if root == faulty.root else open_store(address, base)

    with mock.patch.object(inputs, "open_store", open_one), mock.patch.object(external, "open_store", open_one):
        yield


def calls_of(root: Path, act: Callable[[], object]) -> int:
    store = FaultyStore(root)
    with opened(store):
        act()
    return store.calls


@pytest.mark.rotates(6)
@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("fault", list(Fault))
def test_a_savepoint_is_whole_or_none(tmp_path: Path, layout: Layout, fault: Fault) -> None:
    pipeline, address = make(tmp_path / "one"), tmp_path / "save"
    count = calls_of(address, lambda: save(pipeline, address, layout))
    assert count >= 7
    for at in range(count):
        shutil.rmtree(address)
        with opened(FaultyStore(address, at=at, fault=fault)), suppress(Killed, TidefoldError):
            save(pipeline, address, layout)
        _check_half(address, fault)
        assert save(pipeline, address, layout, overwrite=True).status in ("saved", "already")
        savepoint, _ = read_description(open_address(str(address)))
        named = {f.path for f in savepoint.files} | {*savepoint.delta_log, DESCRIPTION}
        assert set(contents(address)) == named
        assert saved_rows(address, layout) == THIRD


def _check_half(address: Path, fault: Fault) -> None:
    """With a description everything is there; without one, a killed call alone leaves anything."""
    store = open_address(str(address))
    there = {e.path for e in store.list("", unfinished=True)}
    if DESCRIPTION in there:
        assert {f.path for f in read_description(store)[0].files} <= there
        return
    if fault in (Fault.ERROR_BEFORE, Fault.ERROR_AFTER):
        assert not there
    elif there:
        assert any(path.startswith(BEGUN) for path in there)


def test_half_a_savepoint_is_not_overwritten_unasked(tmp_path: Path) -> None:
    pipeline, address = make(tmp_path / "one"), tmp_path / "save"
    with opened(FaultyStore(address, at=3, fault=Fault.KILLED_AFTER)), pytest.raises(Killed):
        save(pipeline, address)
    before = contents(address)
    with pytest.raises(RefusedError) as refused:
        save(pipeline, address)
    assert refused.value.code == "SAVEPOINT_UNFINISHED"
    assert contents(address) == before
    # Nor is it imported.
    assert bring(make_pipeline(tmp_path / "two"), address).error_code == "SAVEPOINT_UNKNOWN"


def importing(pipeline: Pipeline, address: Path, mode: Ownership) -> None:
    outcome = bring(pipeline, address, mode, "in")
    if outcome.error_code:
        raise TidefoldError(outcome.error_code, outcome.message)
    attempt = pipeline.ledger("accounts").read().open_attempt
    if attempt and attempt.state is State.STAGED:
        judge_all(pipeline)
    confirm(pipeline, "accounts", Confirmation(run="in"))


def on(folder: Path, store: FaultyStore) -> Pipeline:
    return replace(make_pipeline(folder), store=store)


@pytest.mark.rotates(6)
@pytest.mark.parametrize(
    ("mode", "layout", "fault"),
    [
        *((Ownership.NO_CLAIM, Layout.NATIVE, fault) for fault in Fault),
        *((Ownership.CLAIM, Layout.NATIVE, fault) for fault in Fault),
        (Ownership.NO_CLAIM, Layout.CANONICAL, Fault.KILLED_AFTER),
        (Ownership.LEGACY, Layout.CANONICAL, Fault.KILLED_BEFORE),
    ],
)
def test_an_import_ends_as_if_nothing_had_happened(
    tmp_path: Path, mode: Ownership, layout: Layout, fault: Fault
) -> None:
    address, folder = tmp_path / "save", tmp_path / "two"
    save(make(tmp_path / "one"), address, layout)
    before = contents(address)
    root = folder / "store"
    whole = FaultyStore(root)
    with opened(whole):
        importing(on(folder, whole), address, mode)
    assert whole.calls > 12
    for at in list_moments(whole.calls, fault):
        shutil.rmtree(folder)
        store = FaultyStore(root, at=at, fault=fault)
        with opened(store), suppress(Killed, TidefoldError):
            importing(on(folder, store), address, mode)
        _check_import(make_pipeline(folder), address, mode)
        assert contents(address) == before


def _check_import(recovered: Pipeline, address: Path, mode: Ownership) -> None:
    importing(recovered, address, mode)
    state = recovered.ledger("accounts").read()
    assert state.latest
    assert [s.id for s in state.snapshots if s.state is State.COMPLETED] == [state.latest.id]
    assert (state.truncated_to, state.positions[0].next_offset, len(state.landed)) == (3, 49, 1)
    assert table_rows(recovered) == snapshot_rows(recovered, state.latest.id) == THIRD
    if state.latest.kind is SnapshotKind.FULL:
        check_nothing_left_over(recovered, [state.latest.id])
        return
    table = LogPaths("accounts").table
    files = {data_path(table, f.name) for f in read_manifest(recovered.store, "accounts", state.latest).files}
    stored = [e.path for top in ("snapshots", "tables") for e in recovered.store.list(top, unfinished=True)]
    assert {path for path in stored if "/_delta_log/" not in path} == files


@pytest.mark.parametrize("fault", list(Fault))
def test_the_deletion_of_a_claimed_original_is_finished_by_the_next_call(tmp_path: Path, fault: Fault) -> None:
    """Until the description goes, as the last, it says what else is to go."""
    address = tmp_path / "save"
    save(make(tmp_path / "one"), address)
    pipeline = make_pipeline(tmp_path / "two")
    importing(pipeline, address, Ownership.CLAIM)
    changed(pipeline, THIRD, {1: "x"})
    cycle(pipeline, "run-2")
    for name in ("two", "save"):
        shutil.copytree(tmp_path / name, tmp_path / f"{name}-kept")
    count = len(contents(address))
    for at in range(count):
        for name in ("two", "save"):
            shutil.rmtree(tmp_path / name)
            shutil.copytree(tmp_path / f"{name}-kept", tmp_path / name)
        again = make_pipeline(tmp_path / "two")
        with opened(FaultyStore(address, at=at, fault=fault)), pytest.raises((Killed, TidefoldError)):
            drop(again, "accounts", plan=False)
        left = set(contents(address))
        assert DESCRIPTION in left or not left
        drop(again, "accounts", plan=False)
        assert contents(address) == {}
        assert again.ledger("accounts").find() is None
