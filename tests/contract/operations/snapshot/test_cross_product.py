"""Kinds, restore modes, local copies, layouts, takeovers, deletion vectors and engines together: N7, N8, N9, L5, I5.

Flink's ResumeCheckpointManuallyITCase. Every two values of two columns meet in at least one case; the test of the list
proves it. Also: no operation leaves an open file behind.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from support.interleaved import run_then
from support.pipelines import CONFIG, copy_pipeline, judge_all, make_pipeline, put
from support.savepoints import bring_in, save
from tidefold.changelog.schema import DELETE, MERGE
from tidefold.compute.runners import TaskAnswer, TaskWork, in_process
from tidefold.domain.external_snapshot import Layout, Ownership
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.errors import StorageError
from tidefold.fold.merge import merge as merge_module
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.inspect.status import status
from tidefold.operations.local_copies.manage import retain_local
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import verify

ENGINES = {
    "last": "last",
    "first": "first",
    "partial": "partial",
    "aggregate": "{engine: aggregate, aggregates: {n: sum}}",
    "history": "history",
    "append": "append",
}
FACTORS: dict[str, tuple[Any, ...]] = {
    "engine": tuple(ENGINES),
    "claim": tuple(Ownership),
    "layout": tuple(Layout),
    "copies": (False, True),
    "takeover": (False, True),
    "vectors": (False, True),
}
Case = dict[str, Any]


def pairs_of(case: Case) -> set[tuple[tuple[str, Any], ...]]:
    return set(combinations(case.items(), 2))


def pairwise() -> list[Case]:
    """Takes, of all combinations, the one with the most new pairs, until every pair was taken."""
    everything = [dict(zip(FACTORS, values, strict=True)) for values in product(*FACTORS.values())]
    left = set().union(*map(pairs_of, everything))
    chosen: list[Case] = []
    while left:
        best = max(everything, key=lambda case: len(pairs_of(case) & left))
        chosen.append(best)
        left -= pairs_of(best)
    return chosen


CASES = pairwise()


def test_every_two_values_meet() -> None:
    met = set().union(*map(pairs_of, CASES))
    for one, two in combinations(FACTORS, 2):
        assert {((one, a), (two, b)) for a, b in product(FACTORS[one], FACTORS[two])} <= met
    assert len(CASES) < 25


def test_the_page_lists_the_cases() -> None:
    """docs/contributors/flink.md; the expected lines are in the message."""
    lines = [f"| {' | '.join(str(value) for value in (*FACTORS,))} |"]
    lines += ["|---" * len(FACTORS) + "|"]
    lines += [f"| {' | '.join(_describe(value) for value in case.values())} |" for case in CASES]
    page = (Path(__file__).parents[4] / "docs/contributors/flink.md").read_text()
    assert "\n".join(lines) in page, "\n".join(lines)


def _describe(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def configured(case: Case, copies: bool) -> str:
    merge = f"    merge: {ENGINES[case['engine']]}\n    deletion_vectors: {str(case['vectors']).lower()}\n"
    text = CONFIG.replace("columns: {id: int, text: string}", "columns: {id: int, text: string, n: long}", 1)
    text = text.replace("    key_groups: 16\n", f"{merge}    key_groups: 16\n", 1)
    if case["engine"] == "append":
        text = text.replace("    key: [id]\n", "", 1)
    local = "local: {mode: files, path: local}\n" if copies else ""
    return text.replace("store: store\n", f"store: store\n{local}")


def changes_of(step: int, engine: str) -> list[dict[str, Any]]:
    """Ten changes of each step: new keys, keys of former steps, and a delete where the engine has deletes."""
    op = {"_op": MERGE} if engine == "aggregate" else {}
    found = [{"id": (step * 7 + i * 3) % 25, "text": f"{step}.{i}", "n": step * 10 + i, **op} for i in range(10)]
    gone = [{"id": step, "text": None, "n": None, "_op": DELETE}] if engine in ("last", "history", "aggregate") else []
    return [{**row, "_ts": step * 1_000_000} for row in (*found, *gone)]


def take(pipeline: Pipeline, run: str, kind: KindPolicy, takeover: bool = False) -> None:
    """Makes, judges and publishes a snapshot; with a takeover it is that of a second coordinator."""

    def overtake() -> None:
        asking = Fold(f"{run}-other", takeover=True, kind=kind)
        materialize(make_again(pipeline), ["accounts"], asking, in_process)

    runner = run_then(overtake) if takeover else in_process
    [outcome] = materialize(pipeline, ["accounts"], Fold(run, kind=kind), runner)
    assert outcome.error_code == ("SUPERSEDED" if takeover else None), outcome
    judge_all(pipeline)
    assert confirm(pipeline, "accounts").status == "published"


def make_again(pipeline: Pipeline) -> Pipeline:
    """The same pipeline in another process, as far as it concerns this one."""
    folder = pipeline.config.path.parent
    return make_pipeline(folder, (folder / "tidefold.yaml").read_text())


def rows(pipeline: Pipeline, what: What = What.TABLE) -> list[dict[str, Any]]:
    _, batches = read_rows(pipeline, "accounts", ReadRequest(what))
    found = [row for batch in batches for row in batch.to_pylist()]
    return sorted(found, key=lambda row: [(value is not None, str(value)) for value in row.values()])


@pytest.fixture(scope="module")
def plain_rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """By engine: the rows of one plain fold of the changes of all six steps."""
    found = {}
    for engine in ENGINES:
        plain = make_pipeline(
            tmp_path_factory.mktemp("plain"), configured({"engine": engine, "vectors": False}, copies=False)
        )
        for step in range(6):
            put(plain, changes_of(step, engine))
        take(plain, "run", KindPolicy.FULL)
        found[engine] = rows(plain)
    return found


@pytest.fixture(scope="module")
def first_half(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Path]:
    """A pipeline with three snapshots; it is made once for the cases of an engine with or without vectors."""
    made: dict[tuple[str, bool], Path] = {}

    def make(case: Case) -> Path:
        engine, vectors = case["engine"], case["vectors"]
        if (engine, vectors) not in made:
            folder = made[engine, vectors] = tmp_path_factory.mktemp("first")
            pipeline = make_pipeline(folder, configured(case, copies=False))
            for step, kind in enumerate((KindPolicy.FULL, KindPolicy.INCREMENTAL, KindPolicy.FULL)):
                put(pipeline, changes_of(step, engine))
                take(pipeline, f"run-{step}", kind)
        return made[engine, vectors]

    return make


@pytest.mark.rotates(6)
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(str(value) for value in case.values()))
def test_full_incremental_full_across_an_import(
    case: Case,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first_half: Callable[[Case], Path],
    plain_rows: dict[str, list[dict[str, Any]]],
) -> None:
    """The rows are those of one plain fold of all changes."""
    monkeypatch.setattr(merge_module, "MARKED_SHARE", 10.0)  # So that rows are marked wherever they can be.
    engine, takeover = case["engine"], case["takeover"]
    one = copy_pipeline(first_half(case), tmp_path / "one")
    assert save(one, tmp_path / "save", case["layout"]).status == "saved"

    two = make_pipeline(tmp_path / "two", configured(case, case["copies"]))
    bring_in(two, tmp_path / "save", case["claim"])
    assert rows(two) == rows(one)
    for step, kind in enumerate((KindPolicy.INCREMENTAL, KindPolicy.FULL, KindPolicy.INCREMENTAL), 3):
        put(two, changes_of(step, engine))
        take(two, f"run-{step}", kind, takeover and step == 4)

    assert rows(two) == rows(two, What.LIVE) == plain_rows[engine]
    assert verify(two, "accounts").status == "whole"


def fail_midway(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
    """The last task fails after the others have written their files."""
    return [*in_process(work, tasks[:-1]), StorageError("STORE_FULL", "The disk is full.")]


@pytest.mark.parametrize("kind", [KindPolicy.FULL, KindPolicy.INCREMENTAL])
def test_a_failed_attempt_leaves_no_file_at_once(tmp_path: Path, kind: KindPolicy) -> None:
    """N6: in the store and in local copies, before any other command runs."""
    pipeline = make_pipeline(tmp_path, configured(CASES[0] | {"engine": "last"}, copies=True))
    put(pipeline, changes_of(0, "last"))
    take(pipeline, "run-0", KindPolicy.FULL)
    put(pipeline, changes_of(1, "last"))

    def written() -> set[str]:
        folders = [tmp_path / "store/tables", tmp_path / "store/snapshots", tmp_path / "local"]
        return {str(path) for folder in folders for path in folder.rglob("*") if path.is_file()}

    before = written()
    [failed] = materialize(pipeline, ["accounts"], Fold("run-1", kind=kind), fail_midway)
    assert failed.error_code == "STORE_FULL"
    assert written() == before


@pytest.mark.rotates(6)
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are counted on Linux")
def test_a_thousand_operations_leave_no_file_open(tmp_path: Path) -> None:
    """L2, N6: file descriptors and mapped files of the store and of local copies, also after operations that fail."""
    pipeline = make_pipeline(tmp_path, configured(CASES[0] | {"engine": "last"}, copies=True))
    for step in range(3):
        put(pipeline, changes_of(step, "last"))
        take(pipeline, f"run-{step}", KindPolicy.INCREMENTAL)

    def open_files() -> list[str]:
        gc.collect()
        mapped = {line.split(maxsplit=5)[5] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        opened = [os.readlink(link) for link in links if os.path.exists(link)]
        return sorted(path for path in (*opened, *mapped) if str(tmp_path) in path)

    assert open_files() == []
    for number in range(250):
        rows(pipeline)
        status(pipeline, ["accounts"])
        retain_local(pipeline, ["accounts"], plan=True)
        batches = read_rows(pipeline, "accounts", ReadRequest(What.LOG))[1]
        next(batches)
        batches.close()
        if number % 50 == 0:
            put(pipeline, changes_of(number, "last"))
            [failed] = materialize(pipeline, ["accounts"], Fold(f"fails-{number}"), fail_midway)
            assert failed.error_code == "STORE_FULL"
    assert open_files() == []
