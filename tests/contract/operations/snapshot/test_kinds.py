"""Full and incremental snapshots: N1-N5, N7, N10, L8; promises I5, I10, I12, I14, I22; age limits too.

All on real Delta tables. What a kept snapshot holds is compared with a dict after every step, and every full one is
read alone by plain deltalake and Polars.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.faults import Killed
from support.interleaved import run_then
from support.pipelines import CONFIG, judge_all, make_pipeline, put, rows_of, snapshot_rows, table_rows, with_log_shape
from support.planning import pending
from support.restoring import files_of, names_of
from tidefold.changelog.schema import DELETE
from tidefold.compute.runners import Runner, TaskAnswer, TaskWork, in_process
from tidefold.domain.log_state import Snapshot, SnapshotKind, State
from tidefold.domain.paths import LogPaths, data_path
from tidefold.domain.retention.log_bounds import with_files
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint
from tidefold.errors import CorruptError
from tidefold.fold.merge import merge
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, read_rows
from tidefold.operations.local_copies.manage import retain_local
from tidefold.operations.requests import Fold, Restore
from tidefold.operations.retention.clean import clean
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import verify

Rows = dict[int, str | None]
LOCAL = "store: store\nlocal: {mode: files, path: local}\nretention: {snapshots: 3}"


def fold(pipeline: Pipeline, run: str, kind: KindPolicy | None = None, runner: Runner = in_process) -> Outcome:
    [outcome] = materialize(pipeline, ["accounts"], Fold(run, kind=kind), runner)
    return outcome


def cycle(pipeline: Pipeline, run: str, kind: KindPolicy | None = None) -> Outcome:
    outcome = fold(pipeline, run, kind)
    assert outcome.status == "staged", outcome
    judge_all(pipeline)
    confirm(pipeline, "accounts", Confirmation(run=run))
    return outcome


def kept(pipeline: Pipeline) -> list[Snapshot]:
    state = pipeline.ledger("accounts").find()
    return [s for s in with_files(state.snapshots if state else ()) if s.state is State.COMPLETED]


def rows_in(pipeline: Pipeline, snapshot: int) -> Rows:
    _, batches = read_rows(pipeline, "accounts", ReadRequest(snapshot=snapshot))
    return {row["id"]: row["text"] for batch in batches for row in batch.to_pylist()}


def stored(pipeline: Pipeline, snapshot: int) -> list[str]:
    return [e.path for e in pipeline.store.list(LogPaths("accounts").snapshot(snapshot))]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = make_pipeline(tmp_path)
    put(made, [{"id": i, "text": f"a {i}"} for i in range(40)])
    return made


def test_an_incremental_snapshot_writes_only_what_changed_and_has_no_folder(pipeline: Pipeline) -> None:
    """N2, N3, N5: it shares the files of its confirmed base, and says what it is and what it cost."""
    cycle(pipeline, "run-1")
    put(pipeline, [{"id": 1, "text": "b"}])
    outcome = cycle(pipeline, "run-2", KindPolicy.INCREMENTAL)
    first, second = kept(pipeline)
    assert (second.kind, outcome.facts["kind"], outcome.facts["because"]) == (
        "incremental",
        "incremental",
        "the configuration or the call names this kind",
    )
    assert stored(pipeline, 2) == []
    before, after = (read_manifest(pipeline.store, "accounts", s) for s in (first, second))
    shared = {f.name for f in before.files} & {f.name for f in after.files}
    assert len(shared) == 3
    assert second.bytes_full == after.bytes_full > second.bytes_written
    assert second.bytes_written == sum(f.bytes for f in after.files if f.name not in shared) > 0
    assert table_rows(pipeline) == rows_in(pipeline, 2) == {i: "b" if i == 1 else f"a {i}" for i in range(40)}
    # It pins a version of the table, which plain readers can travel to.
    table = DeltaTable(pipeline.store.uri(LogPaths("accounts").table), version=second.table_version)
    assert {row["id"]: row["text"] for row in table.to_pyarrow_table().to_pylist()} == rows_in(pipeline, 2)


def test_a_full_one_after_incremental_ones_stands_alone(pipeline: Pipeline, tmp_path: Path) -> None:
    """N4: all others and the table are deleted by hand."""
    cycle(pipeline, "run-1")
    for number, kind in ((2, KindPolicy.INCREMENTAL), (3, KindPolicy.INCREMENTAL), (4, KindPolicy.FULL)):
        put(pipeline, [{"id": number, "text": "b"}])
        cycle(pipeline, f"run-{number}", kind)
    rows = table_rows(pipeline)
    for folder in ("tables", "logs", "changelog", "snapshots/accounts/0000000001"):
        shutil.rmtree(tmp_path / "store" / folder)
    assert snapshot_rows(pipeline, 4) == rows


def test_a_full_one_on_request_when_nothing_is_new(pipeline: Pipeline) -> None:
    """N4: as Flink takes a full checkpoint when asked; and without a JVM. The setting alone makes none."""
    cycle(pipeline, "run-1", KindPolicy.INCREMENTAL)
    assert fold(pipeline, "run-2", KindPolicy.INCREMENTAL).status == "nothing"
    assert fold(pipeline, "run-3").status == "nothing"  # As configured: a schedule makes nothing new of nothing.
    assert pending(pipeline, ["accounts"], Fold("run-4", kind=KindPolicy.FULL)) == []
    outcome = cycle(pipeline, "run-4", KindPolicy.FULL)
    assert (outcome.facts["files_carried"], outcome.facts["bytes_written"]) == (4, 0)
    assert snapshot_rows(pipeline, 2) == table_rows(pipeline)
    again = cycle(pipeline, "run-5", KindPolicy.FULL)
    assert (again.snapshot, again.facts["files_carried"], again.facts["bytes_written"]) == (3, 4, 0)
    assert snapshot_rows(pipeline, 3) == table_rows(pipeline)
    assert fold(pipeline, "run-5", KindPolicy.FULL).snapshot == 3, "the same run has it"
    assert fold(pipeline, "run-6").status == "nothing"


def test_an_attempt_that_was_aborted_leaves_no_file_in_the_table(pipeline: Pipeline) -> None:
    """N3, N6, I13, I14: an incremental attempt writes into the table's folder; nothing of it is shared or stays."""
    from tidefold.operations.snapshot.abort import abort

    cycle(pipeline, "run-1")
    before = [e.path for e in pipeline.store.list("tables/accounts/_data")]
    put(pipeline, [{"id": 1, "text": "b"}])
    staged = fold(pipeline, "run-2", KindPolicy.INCREMENTAL)
    written = {e.path for e in pipeline.store.list("tables/accounts/_data")} - set(before)
    assert len(written) == 1
    abort(pipeline, "accounts", "not wanted")
    assert [e.path for e in pipeline.store.list("tables/accounts/_data")] == before
    cycle(pipeline, "run-3", KindPolicy.INCREMENTAL)
    again = read_manifest(pipeline.store, "accounts", kept(pipeline)[-1])
    assert not {data_path("tables/accounts", f.name) for f in again.files} & written
    assert staged.snapshot == 2


def test_bytes_of_its_own_on_request(tmp_path: Path) -> None:
    """`copy_files: always`: table and snapshots share no bytes, and the snapshot says what that cost."""
    pipeline = make_pipeline(tmp_path, CONFIG.replace("store: store", "store: store\nsnapshots: {copy_files: always}"))
    put(pipeline, [{"id": i, "text": f"a {i}"} for i in range(40)])
    cycle(pipeline, "run-1")
    put(pipeline, [{"id": 1, "text": "b"}])
    outcome = cycle(pipeline, "run-2")
    files = list(tmp_path.rglob("*.parquet"))
    assert {f.stat().st_nlink for f in files} == {1}
    assert outcome.facts["bytes_written"] == outcome.facts["bytes_full"]
    assert 0 < outcome.facts["bytes_copied"] < outcome.facts["bytes_full"]
    assert snapshot_rows(pipeline, 2) == table_rows(pipeline)


# Rescale: the number of buckets


def test_the_same_run_that_asks_for_another_kind_is_refused(pipeline: Pipeline) -> None:
    """I4: `--kind full` is something else than what is configured."""
    incremental = pipeline.config.snapshots.model_copy(update={"kind": KindPolicy.INCREMENTAL})
    configured_so = replace(pipeline, config=pipeline.config.model_copy(update={"snapshots": incremental}))
    assert fold(configured_so, "run-1").facts["kind"] == "incremental"
    assert fold(configured_so, "run-1", KindPolicy.FULL).error_code == "RUN_CHANGED"


def test_a_file_that_was_cut_after_it_was_judged_is_not_published(pipeline: Pipeline) -> None:
    """N3, I8: the files of an incremental snapshot lie in the table's folder and nowhere else."""
    cycle(pipeline, "run-1")
    put(pipeline, [{"id": 1, "text": "b"}])
    fold(pipeline, "run-2", KindPolicy.INCREMENTAL)
    judge_all(pipeline)
    [new] = [f for f in files_of(pipeline, 2) if not f.carried]
    [path] = names_of(pipeline, 2, new.name)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CorruptError):
        confirm(pipeline, "accounts")
    assert table_rows(pipeline) == {i: f"a {i}" for i in range(40)}


# Rows that are too old

AGED = CONFIG.replace("columns: {id: int, text: string}", "columns: {id: int, text: string, at: timestamp}").replace(
    "    buckets: 4\n", "    buckets: 4\n    ttl: {column: at, days: 30}\n", 1
)


@pytest.mark.parametrize("kind", ["timestamp", "date"])
def test_rows_that_are_too_old_go_in_a_full_snapshot_and_in_a_restore(tmp_path: Path, kind: str) -> None:
    """N10: also in buckets that no change is for; one without an age stays; an incremental one drops nothing."""
    from datetime import UTC, datetime, timedelta

    pipeline = make_pipeline(tmp_path, AGED.replace("at: timestamp", f"at: {kind}"))
    now = datetime.now(UTC)

    def days_ago(days: int) -> object:
        found = now - timedelta(days=days)
        return found if kind == "timestamp" else found.date()

    young = {i: days_ago(1) for i in range(40)}
    old = {i: days_ago(40) for i in range(40, 60)}
    put(
        pipeline,
        [{"id": i, "text": "a", "at": at} for i, at in (young | old).items()] + [{"id": 99, "text": "a", "at": None}],
    )
    cycle(pipeline, "run-1", KindPolicy.INCREMENTAL)
    assert len(rows_in(pipeline, 1)) == 61
    put(pipeline, [{"id": 1, "text": "b", "at": days_ago(1)}])
    outcome = cycle(pipeline, "run-2", KindPolicy.FULL)
    assert outcome.facts["expired"] == 20
    assert set(rows_in(pipeline, 2)) == {*range(40), 99}
    assert fold(pipeline, "run-2b").status == "nothing"
    assert read_manifest(pipeline.store, "accounts", kept(pipeline)[-1]).expired == 20
    [restored] = materialize(pipeline, ["accounts"], Restore("back", RestorePoint(1, RestoreMode.SKIP)), in_process)
    assert restored.facts["expired"] == 20
    judge_all(pipeline)
    confirm(pipeline, "accounts", Confirmation(run="back"))
    assert set(rows_in(pipeline, 3)) == {*range(40), 99}
    put(pipeline, [{"id": 100, "text": "old when it came", "at": days_ago(31)}])
    assert cycle(pipeline, "run-4").facts["expired"] == 1
    # The horizon is frozen in the plan, so that a retry drops the same rows (I24).
    assert kept(pipeline)[-1].expire is not None


# The choice by cost


def test_auto_says_why(pipeline: Pipeline) -> None:
    """On a disk where links cost nothing it makes full ones; where each costs a copy, it counts."""
    outcome = fold(pipeline, "run-1", KindPolicy.AUTO)
    assert (outcome.facts["kind"], outcome.facts["because"]) == (
        SnapshotKind.FULL, "there is no snapshot yet whose files could be shared",
    )  # fmt: skip
    judge_all(pipeline)
    confirm(pipeline, "accounts", Confirmation(run="run-1"))
    put(pipeline, [{"id": 1, "text": "b"}])
    assert "links" in cycle(pipeline, "run-2", KindPolicy.AUTO).facts["because"]
    config = pipeline.config.model_copy(
        update={"snapshots": pipeline.config.snapshots.model_copy(update={"copy_files": "always", "full_every": 2})}
    )
    costly = replace(pipeline, config=config)
    chosen = []
    for number in range(3, 8):
        put(costly, [{"id": 1, "text": f"b {number}"}])
        outcome = cycle(costly, f"run-{number}", KindPolicy.AUTO)
        chosen.append((outcome.facts["kind"], outcome.facts["because"].split(" ")[0]))
    assert [kind for kind, _ in chosen] == ["incremental", "incremental", "full", "incremental", "incremental"]
    put(costly, [{"id": i, "text": "c"} for i in range(40)])
    outcome = fold(costly, "run-8", KindPolicy.AUTO)
    assert outcome.facts["kind"] == "full"


# Twenty steps at random


@dataclass
class Walk:
    """A log's life as a user's schedule would make it, beside a dict of what must be there."""

    pipeline: Pipeline
    rows: Rows = field(default_factory=dict)
    expected: dict[int, Rows] = field(default_factory=dict)
    steps: int = 0

    def change(self, seed: int) -> None:
        changes: list[dict[str, object]] = []
        for i in range(seed % 7 + 1):
            key = (seed * 31 + i * 17) % 40
            if (seed + i) % 4 == 0:
                changes.append({"id": key, "text": None, "_op": DELETE})
                self.rows.pop(key, None)
            else:
                changes.append({"id": key, "text": f"{seed}.{i}"})
                self.rows[key] = f"{seed}.{i}"
        put(self.pipeline, changes)

    def take(self, kind: KindPolicy, how: str) -> None:
        run = f"run-{self.steps}"
        runner: Runner = {"alone": in_process, "overtaken": run_then(self._overtake), "killed": self._killed}[how]
        try:
            outcome = fold(self.pipeline, run, kind, runner)
        except Killed:
            outcome = None
        if outcome is None or outcome.error_code:
            # Another coordinator, on its own view of the store, took over or comes now.
            other = replace(self.pipeline)
            [outcome] = materialize(
                other, ["accounts"], Fold(f"other-{self.steps}", takeover=True, kind=kind), in_process
            )
        if outcome.status == "nothing":
            return
        assert outcome.status in ("staged", "already"), outcome
        judge_all(self.pipeline)
        confirm(self.pipeline, "accounts")
        self.expected[kept(self.pipeline)[-1].id] = dict(self.rows)

    def _overtake(self) -> None:
        asking = Fold(f"overtaker-{self.steps}", takeover=True)
        materialize(replace(self.pipeline), ["accounts"], asking, in_process)

    def _killed(self, work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        in_process(work, tasks[: len(tasks) // 2 + 1])
        raise Killed

    def restore(self, which: int) -> None:
        found = kept(self.pipeline)
        if not found:
            return
        wanted = found[which % len(found)]
        asking = Restore(f"back-{self.steps}", RestorePoint(wanted.id, RestoreMode.SKIP))
        [outcome] = materialize(self.pipeline, ["accounts"], asking, in_process)
        assert outcome.status == "staged", outcome
        judge_all(self.pipeline)
        confirm(self.pipeline, "accounts")
        self.rows = dict(self.expected[wanted.id])
        self.expected[kept(self.pipeline)[-1].id] = dict(self.rows)

    def rescale(self, buckets: int) -> None:
        self.pipeline = with_log_shape(self.pipeline, buckets=buckets)

    def tidy(self) -> None:
        for act in (subsume, truncate):
            act(self.pipeline, "accounts")
        retain_local(self.pipeline, ["accounts"])
        clean(self.pipeline, ["accounts"])

    def check(self) -> None:
        if not self.expected:
            return
        newest = max(self.expected)
        assert table_rows(self.pipeline) == self.expected[newest]
        for snapshot in kept(self.pipeline):
            assert rows_in(self.pipeline, snapshot.id) == self.expected[snapshot.id]


# A walk takes seconds: one that fails is told as it is, not made smaller.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
STEPS = st.one_of(
    st.tuples(st.just("change"), st.integers(0, 1000)),
    st.tuples(st.just("take"), st.sampled_from(KindPolicy), st.sampled_from(["alone", "alone", "overtaken", "killed"])),
    st.tuples(st.just("restore"), st.integers(0, 10)),
    st.tuples(st.just("rescale"), st.sampled_from([1, 3, 4, 8])),
    st.tuples(st.just("tidy")),
)


@pytest.mark.rotates(6)
@pytest.mark.parametrize("copies", [False, True], ids=["without copies", "with local copies"])
@pytest.mark.parametrize("vectors", [False, True], ids=["files", "deletion vectors"])
def test_twenty_steps_at_random(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, copies: bool, vectors: bool
) -> None:
    """N7: full, incremental, full, with a second coordinator that takes over at any step."""
    # So that rows are marked wherever they can be.
    monkeypatch.setattr(merge, "MARKED_SHARE", 10.0)

    @settings(max_examples=choose(5, 12), deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
    @given(st.lists(STEPS, min_size=20, max_size=20))
    def walk(steps: list[tuple[object, ...]]) -> None:
        folder = tmp_path_factory.mktemp("walk")
        config = CONFIG.replace("store: store", LOCAL if copies else "store: store\nretention: {snapshots: 3}")
        life = Walk(with_log_shape(make_pipeline(folder, config), deletion_vectors=vectors))
        for step, *given_to in steps:
            life.steps += 1
            act: Callable[..., None] = getattr(life, str(step))
            act(*given_to)
            life.check()
        assert verify(life.pipeline, "accounts").error is None if life.expected else True
        fulls = [s.id for s in kept(life.pipeline) if s.kind is SnapshotKind.FULL]
        for folder_name in ("tables", "logs", "changelog"):
            shutil.rmtree(folder / "store" / folder_name, ignore_errors=True)
        for wanted in fulls:
            alone = folder / "store/snapshots/accounts" / f"{wanted:010d}"
            assert rows_of(str(alone)) == life.expected[wanted]
        shutil.rmtree(folder)

    walk()
