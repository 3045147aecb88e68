"""A plan that is applied: the rows are those of a log that had the edit from the beginning, whatever is killed when."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from faults.injection import CallFault, Calls
from support.commands import call
from support.effort import THOROUGH, list_moments
from support.faults import Killed
from support.planned import FIRST, configure, land, plan, random_file, random_shape, rows, run
from support.planned import apply as apply_made
from tidefold.errors import TidefoldError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.plan import apply as applying
from tidefold.operations.quality import judge as judging
from tidefold.operations.snapshot import confirm as confirming
from tidefold.operations.snapshot import materialize as making
from tidefold.quality.run.duckdb_rows import DuckDBEngine, open_engines
from tidefold.wiring import open_pipeline

STEPS = ("claim", "stage", "judge", "copy", "confirm")


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    with open_engines(1) as lend, lend() as one:
        yield one


@contextmanager
def kill(at: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends the process behind this step."""

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    def die_at_second(real: Callable[..., Any]) -> Callable[..., Any]:
        calls: list[None] = []

        def act(*args: Any, **how: Any) -> Any:
            calls.append(None)
            return die() if len(calls) == 2 else real(*args, **how)

        return act

    with monkeypatch.context() as patch:
        if at == "claim":
            patch.setattr(making, "stage", die)
        if at == "stage":
            patch.setattr(judging, "judge_case", die)
        if at == "judge":
            patch.setattr(applying, "confirm", die)
        if at == "copy":
            real = confirming.bring_over

            @contextmanager
            def bring(*args: Any) -> Iterator[Any]:
                manager = real(*args)
                manager.__enter__()
                raise Killed
                yield

            patch.setattr(confirming, "bring_over", bring)
        if at == "confirm":
            patch.setattr(confirming, "roll_forward", die_at_second(confirming.roll_forward))
        yield


def apply(pipeline: Pipeline, engine: DuckDBEngine) -> list[str]:
    outcomes = apply_made(pipeline, engine)
    assert not any(outcome.error for outcome in outcomes), [outcome.message for outcome in outcomes]
    return [str(outcome.status) for outcome in outcomes]


@pytest.mark.parametrize("seed", range(300) if THOROUGH else range(FIRST, FIRST + 5))
def test_random_lives_go_on_as_if_the_edit_had_always_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: DuckDBEngine, seed: int
) -> None:
    r = random.Random(seed)
    before, after = random_shape(r), random_shape(r)
    live, reference = tmp_path / "live", tmp_path / "reference"
    old, undisturbed = configure(live, **before), configure(reference, **after)
    number = 0

    def step(*pipelines: Pipeline) -> None:
        nonlocal number
        number += 1
        name, feed = f"{r.choice('abcdef')}-{number}.csv", random_file(r)
        for folder in (live, reference):
            land(folder, name, *feed)
        for pipeline in pipelines:
            run(pipeline, f"r{number}", engine)

    for _ in range(r.randint(1, 3)):
        step(old, undisturbed)
    edited = configure(live, **after)
    plan(edited, engine)
    if r.random() < 0.3:  # The log goes on as it was, while the plan waits.
        step(configure(live, **before), undisturbed)
        edited = configure(live, **after)
        assert apply_made(edited, engine)[0].error_code == "PLAN_BEHIND"
        plan(edited, engine)
    at = STEPS[seed % len(STEPS)]
    shown = rows(configure(live, **before))
    with pytest.raises(Killed), kill(at, monkeypatch):
        apply(edited, engine)
    if at == "confirm":
        run(configure(live, **after), "next", engine)  # The next run publishes what was confirmed.
    else:
        assert published(configure(live, **before)) == shown
        apply(configure(live, **after), engine)
    edited = configure(live, **after)
    assert published(edited) == published(undisturbed)
    for _ in range(r.randint(1, 2)):
        step(edited, undisturbed)
        assert published(edited) == published(undisturbed)
    monkeypatch.chdir(live)
    call("check", "verify", "orders")


def published(pipeline: Pipeline) -> list[tuple[tuple[str, str], ...]]:
    from tidefold.operations.ground.read import read_rows

    _, batches = read_rows(pipeline, "orders")
    return sorted(tuple((n, str(v)) for n, v in row.items()) for batch in batches for row in batch.to_pylist())


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory, engine: DuckDBEngine) -> tuple[Path, int]:
    """A log with a plan of another key and order, and how many calls its apply makes that change something."""
    folder = tmp_path_factory.mktemp("planned") / "log"
    pipeline = configure(folder)
    r = random.Random(7)
    for number in (1, 2):
        land(folder, f"{'ba'[number - 1]}.csv", *random_file(r), ("U", 1, 1, "x", *["2026-11-01 00:00:00"] * 2))
        run(pipeline, f"r{number}", engine)
    pipeline = configure(folder, key="id, line", order="[changed]")
    plan(pipeline, engine)
    shutil.copytree(folder, folder.parent / "template")
    calls = Calls()
    with calls.watching():
        apply(pipeline, engine)
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
            apply(pipeline, engine)
        pipeline = open_pipeline(folder / "tidefold.yaml", lambda text: None)
        assert published(pipeline) in (shown, right)
        apply(pipeline, engine)
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
    with pytest.raises(Killed), kill("judge", monkeypatch):
        apply(edited, engine)
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
