"""A plan that is applied: the rows are those of a log that had the edit from the beginning, whatever is killed when."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from faults.injection import CallFault, Calls
from support.commands import call
from support.effort import THOROUGH, list_moments
from support.faults import Killed
from support.plan_lives import FIRST, LIVES, PLAYED, Life, kill
from support.planned import configure, land, plan, published, random_file, require_applied, run
from tidefold.changelog import write_intents
from tidefold.errors import TidefoldError
from tidefold.operations.ground import recovery
from tidefold.operations.snapshot import confirm as confirming
from tidefold.quality.run.duckdb_rows import DuckDBEngine, open_engines
from tidefold.wiring import open_pipeline


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    with open_engines(1) as lend, lend() as one:
        yield one


@pytest.mark.parametrize("seed", range(LIVES) if THOROUGH else range(FIRST, FIRST + PLAYED))
def test_random_lives_go_on_as_if_the_edit_had_always_been(tmp_path: Path, engine: DuckDBEngine, seed: int) -> None:
    Life(tmp_path, seed, engine).play()


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory, engine: DuckDBEngine) -> tuple[Path, int]:
    """A log with a plan of another key and order, and how many calls its apply makes that change something."""
    folder = tmp_path_factory.mktemp("planned") / "log"
    pipeline = configure(folder)
    r = random.Random(7)
    for number in (1, 2):
        land(folder, f"{'ba'[number - 1]}.csv", *random_file(r, whole=True))
        run(pipeline, f"r{number}", engine)
    pipeline = configure(folder, key="id, line", order="[changed]")
    plan(pipeline, engine)
    shutil.copytree(folder, folder.parent / "template")
    calls = Calls()
    with calls.watching():
        require_applied(pipeline, engine)
    shutil.move(folder, folder.parent / "applied")
    return folder, calls.writes


@pytest.mark.parametrize("fault", [CallFault.DIES_BEFORE, CallFault.DIES_AFTER, CallFault.LOST, CallFault.ERROR_BEFORE])
def test_whatever_call_of_an_apply_fails_the_same_command_goes_on(
    planned: tuple[Path, int], engine: DuckDBEngine, fault: CallFault
) -> None:
    folder, writes = planned
    right = published(open_pipeline(folder.parent / "applied/tidefold.yaml", lambda text: None))
    for at in list_moments(writes, fault)[:: 1 if THOROUGH else 6]:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(folder.parent / "template", folder)
        pipeline = open_pipeline(folder / "tidefold.yaml", lambda text: None)
        shown = published(pipeline)
        with Calls(at, fault).watching(), suppress(Killed, TidefoldError, AssertionError):
            require_applied(pipeline, engine)
        pipeline = open_pipeline(folder / "tidefold.yaml", lambda text: None)
        assert published(pipeline) in (shown, right)
        require_applied(pipeline, engine)
        assert published(pipeline) == right, at
        call("check", "verify", "orders", "--config", str(folder / "tidefold.yaml"))


def test_an_apply_that_is_given_up_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: DuckDBEngine
) -> None:
    pipeline = configure(tmp_path)
    land(tmp_path, "a.csv", *random_file(random.Random(1)))
    run(pipeline, "r1", engine)
    edited = configure(tmp_path, key="id, line")
    plan(edited, engine)
    with pytest.raises(Killed), kill("judge"):
        require_applied(edited, engine)
    pipeline = configure(tmp_path)
    land(tmp_path, "b.csv", *random_file(random.Random(2)))
    monkeypatch.chdir(tmp_path)
    assert "[PLAN_OPEN]" in call("step", "ingest", code=3).output
    call("step", "abort", "orders")
    run(pipeline, "r2", engine)
    undisturbed = configure(tmp_path / "other")
    for number in (1, 2):
        land(tmp_path / "other", f"{'ab'[number - 1]}.csv", *random_file(random.Random(number)))
        run(undisturbed, f"r{number}", engine)
    assert published(pipeline) == published(undisturbed)


@pytest.fixture
def claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: DuckDBEngine) -> Path:
    """A log whose plan was killed before the confirmation of its snapshot."""
    monkeypatch.chdir(tmp_path)
    run_two(tmp_path, engine)
    edited = configure(tmp_path, order="[changed]")
    plan(edited, engine)
    with pytest.raises(Killed), kill("judge"):
        require_applied(edited, engine)
    return tmp_path


def run_two(folder: Path, engine: DuckDBEngine) -> None:
    pipeline = configure(folder)
    for number in (1, 2):
        land(folder, f"{'ba'[number - 1]}.csv", *random_file(random.Random(number), whole=True))
        run(pipeline, f"r{number}", engine)


@pytest.mark.parametrize(
    ("need", "release", "named"),
    [
        (("snapshot", "hold", "orders", "audit", "2", "--reason", "audit"), ("snapshot", "release"), "hold `audit`"),
        (("consumer", "register", "orders", "audit", "--at", "1"), ("consumer", "remove"), "consumer `audit`"),
    ],
)
def test_who_began_to_need_the_former_changes_after_the_claim_keeps_them(
    claimed: Path, need: tuple[str, ...], release: tuple[str, ...], named: str
) -> None:
    shown = published(configure(claimed, order="[changed]"))
    call(*need)
    for words in (("step", "confirm", "orders"), ("plan", "orders", "--apply")):
        said = call(*words, code=3).output
        assert "[PLAN_HELD]" in said
        assert named in said
        assert published(configure(claimed, order="[changed]")) == shown
    call("check", "verify", "orders", "--deep")
    call(*release, "orders", "audit")
    call("step", "confirm", "orders")
    assert published(configure(claimed, order="[changed]")) != shown
    call("check", "verify", "orders", "--deep")


def test_a_plan_that_was_made_again_takes_the_place_of_one_that_was_killed(claimed: Path) -> None:
    assert "`tidefold plan orders --apply` goes on, `tidefold step abort orders` undoes it" in call("status").output
    shutil.rmtree(claimed / "store/plans")
    said = call("step", "confirm", "orders", code=4).output
    assert "[PLAN_MISSING] The plan of `orders` is not at" in said
    call("plan", "orders")
    call("plan", "orders", "--apply")
    call("check", "verify", "orders", "--deep")
    call("run")


def test_a_clean_up_of_a_killed_apply_takes_nothing_from_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: DuckDBEngine
) -> None:
    """It rejects what the first call linked while the second one is between its links and its commit."""
    monkeypatch.chdir(tmp_path)
    run_two(tmp_path, engine)
    edited = configure(tmp_path, order="[changed]")
    plan(edited, engine)
    with pytest.raises(Killed), kill("copy"):
        require_applied(edited, engine)
    [dead] = write_intents.read_announced(edited.store)
    real = confirming.bring_over

    @contextmanager
    def bring_over(*args: Any) -> Iterator[Any]:
        with real(*args) as complete:
            recovery.end_run(edited.store, dead.run, ["orders"], recovery.files_of(edited.store, dead))
            yield complete

    monkeypatch.setattr(confirming, "bring_over", bring_over)
    require_applied(edited, engine)
    call("check", "verify", "orders", "--deep")
