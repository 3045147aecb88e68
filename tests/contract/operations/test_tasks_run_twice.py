"""A task that the engine runs twice gives the same outcome as once, for every job (I35)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support import restoring, savepoints
from support.faults import check_nothing_left_over
from support.landing import land, make_landing, offsets, quarantined, record, state_of
from support.pipelines import CONFIG, contents, judge_all, make_pipeline, put, rows_of, snapshot_rows, table_rows
from support.twice import WAYS, Zombies, twice
from tidefold.changelog import write_intents
from tidefold.changelog.schema import DELETE
from tidefold.changelog.segment import read_change_set
from tidefold.compute.runners import Runner, in_process
from tidefold.domain.external_snapshot import Layout, Ownership
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import State
from tidefold.domain.paths import INTENTS, LogPaths
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.errors import StorageError
from tidefold.fold.inputs import ChangeCache
from tidefold.fold.plan import ChangeSetIndex
from tidefold.operations.ground import recovery
from tidefold.operations.ground.originals import open_address
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.local_copies.manage import retain_local
from tidefold.operations.requests import Fold, Import, Restore
from tidefold.operations.restore import export
from tidefold.operations.retention.clean import clean
from tidefold.operations.savepoint import take
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize

EACH_WAY = pytest.mark.parametrize("way", WAYS)


def check_store_is_tidy(pipeline: Pipeline) -> None:
    """Every segment and quarantine file is named by the log, and no run is announced any more."""
    state = state_of(pipeline)
    named = {c.location.segment for c in state.change_sets} | {e.quarantine for e in state.landed if e.quarantine}
    folders = ["changelog", LogPaths("items").quarantine]
    assert {e.path for folder in folders for e in pipeline.store.list(folder, unfinished=True)} == named


def land_three(root: Path) -> None:
    land(root, 0, [record(0), record(1), "{bad"])
    land(root, 3, [record(3), record(4)])
    land(root, 3, [record(3), record(4), record(5)], "json")  # Overlaps: it is read in a second round.


@EACH_WAY
def test_an_ingest_takes_every_file_once_and_leaves_nothing(tmp_path: Path, way: str) -> None:
    pipeline = make_landing(tmp_path)
    land_three(tmp_path)
    [outcome] = ingest(pipeline, ["items"], twice(way))
    assert (outcome.status, outcome.error_code) == ("taken", None)
    assert (outcome.facts["changes"], outcome.facts["quarantined"]) == (5, 1)
    assert offsets(pipeline) == [0, 1, 3, 4, 5]
    assert len(quarantined(pipeline)) == 1
    check_store_is_tidy(pipeline)
    assert ingest(pipeline, ["items"], in_process)[0].status == "nothing"


def test_a_copy_that_ends_after_its_run_leaves_garbage_that_clean_finds(tmp_path: Path) -> None:
    pipeline, zombies = make_landing(tmp_path), Zombies()
    land_three(tmp_path)
    assert ingest(pipeline, ["items"], zombies)[0].status == "taken"
    before = contents(tmp_path / "store")
    assert all(isinstance(answer, str) for answer in zombies.awake())
    assert contents(tmp_path / "store").keys() > before.keys()
    planned = clean(pipeline, ["items"], plan=True)[0].facts["paths"]
    assert set(planned) == contents(tmp_path / "store").keys() - before.keys()
    clean(pipeline, ["items"])
    assert contents(tmp_path / "store") == before


def test_what_a_living_run_writes_is_left_alone(tmp_path: Path) -> None:
    """While its tasks work, and after they have ended, until the run has told its logs."""
    pipeline = make_landing(tmp_path)
    land_three(tmp_path)

    def disturbed(work: Any, tasks: Any) -> Any:
        answers = twice("the first answer is lost")(work, tasks)
        before = contents(tmp_path / "store")
        assert any(path.endswith(".seg") for path in before)
        clean(pipeline, ["items"])
        recovery.roll_forward(pipeline.store, ["items"])
        assert contents(tmp_path / "store") == before
        return answers

    assert ingest(pipeline, ["items"], disturbed)[0].status == "taken"
    assert offsets(pipeline) == [0, 1, 3, 4, 5]
    check_store_is_tidy(pipeline)


@pytest.mark.parametrize("brought", [False, True], ids=["before it said what it brings", "after"])
def test_a_run_that_died_is_ended_and_all_names_of_its_tasks_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brought: bool
) -> None:
    pipeline = make_landing(tmp_path)
    land_three(tmp_path)

    class Killed(BaseException):
        pass

    def dies(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(*((recovery, "commit_ingest") if brought else (write_intents, "bring")), dies)
        with pytest.raises(Killed):
            ingest(pipeline, ["items"], twice("the first answer is lost"))
    half = pipeline.store.uri(next(e.path for e in pipeline.store.list("changelog") if e.path.endswith(".seg")))
    Path(f"{half}.0123.part").write_bytes(b"half")
    monkeypatch.setattr(recovery, "PATIENCE", -timedelta(hours=1))
    clean(pipeline, ["items"])
    if brought:
        assert offsets(pipeline) == [0, 1, 3, 4, 5]
        check_store_is_tidy(pipeline)
    else:
        assert not pipeline.store.list("changelog", unfinished=True)
        assert ingest(pipeline, ["items"], in_process)[0].facts["changes"] == 5


def test_a_task_that_fails_after_it_wrote_leaves_nothing(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    land_three(tmp_path)

    def loses(work: Any, tasks: Any) -> Any:
        in_process(work, tasks)
        return [StorageError("STORAGE", "the executor was lost") for _ in tasks]

    assert ingest(pipeline, ["items"], loses)[0].error_code == "STORAGE"
    assert not contents(tmp_path / "store")
    assert ingest(pipeline, ["items"], in_process)[0].status == "taken"


def test_an_intent_that_names_its_files_is_ended(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    pipeline.store.put_if_absent(
        f"{INTENTS}/old/000000.json",
        b'{"format":7,"run":"old","number":0,"instant":"2020-01-01T00:00:00+00:00","logs":[],"files":["changelog/a/b.seg"]}',
    )
    pipeline.store.put_if_absent("changelog/a/b.seg", b"whole")
    pipeline.store.put_if_absent("changelog/a/b.seg.12.part", b"half")
    [run] = write_intents.read_announced(pipeline.store)
    expected = write_intents.ExpectedFiles([run])
    assert "changelog/a/b.seg" in expected
    assert "changelog/a/b.seg.12.part" in expected
    assert "changelog/a/c.seg" not in expected
    clean(pipeline, ["items"])
    clean(pipeline, ["items"])
    assert not pipeline.store.list("changelog", unfinished=True)


@EACH_WAY
def test_local_copies_of_segments_are_those_that_the_log_names(tmp_path: Path, way: str) -> None:
    pipeline = make_landing(tmp_path)
    config = tmp_path / "tidefold.yaml"
    config.write_text(config.read_text().replace("store: store", "store: store\nlocal: {mode: files, path: local}"))
    pipeline = savepoints.make_pipeline(tmp_path, config.read_text())
    land_three(tmp_path)
    [outcome] = ingest(pipeline, ["items"], twice(way))
    assert (outcome.status, outcome.facts["no_local_copy"]) == ("taken", [])
    retain_local(pipeline, ["items"])
    named = {c.location.segment for c in state_of(pipeline).change_sets}
    copies = {path.split("/", 1)[1] for path in contents(tmp_path / "local") if path.endswith(".seg")}
    assert copies == named


BEFORE = {i: f"a {i}" for i in range(40)}
AFTER = {**{i: f"a {i}" for i in range(5, 40)}, 7: "b 7", 99: "b 99"}
KINDS = {
    "full": "",
    "incremental": "snapshots: {kind: incremental}",
    "copies": "snapshots: {copy_files: always}",
    "local copies": "local: {mode: files, path: local}",
    "vectors": "snapshots: {kind: incremental}",
}


@pytest.mark.rotates(6)
@EACH_WAY
@pytest.mark.parametrize("kind", KINDS)
def test_a_fold_gives_the_same_rows_and_clean_leaves_only_what_a_manifest_names(
    tmp_path: Path, kind: str, way: str
) -> None:
    config = CONFIG.replace("store: store", f"store: store\n{KINDS[kind]}")
    if kind == "vectors":
        config = config.replace("buckets: 4", "buckets: 4\n    deletion_vectors: true")
    pipeline = make_pipeline(tmp_path, config)
    put(pipeline, [{"id": i, "text": text} for i, text in BEFORE.items()])
    _cycle(pipeline, "run-1", twice(way))
    changes: list[dict[str, Any]] = [{"id": i, "text": None, "_op": DELETE} for i in range(5)]
    put(pipeline, [*changes, {"id": 7, "text": "b 7"}, {"id": 99, "text": "b 99"}])
    _cycle(pipeline, "run-2", twice(way))
    assert table_rows(pipeline) == AFTER
    clean(pipeline, ["accounts"])
    completed = [s.id for s in pipeline.ledger("accounts").read().snapshots if s.state is State.COMPLETED]
    assert completed == [1, 2]
    check_nothing_left_over(pipeline, completed)
    assert table_rows(pipeline) == AFTER
    if kind in ("full", "copies"):
        assert snapshot_rows(pipeline, 1) == BEFORE


def _cycle(pipeline: Pipeline, run: str, runner: Runner) -> None:
    [outcome] = materialize(pipeline, ["accounts"], Fold(run), runner)
    assert outcome.status == "staged", outcome
    judge_all(pipeline)
    assert confirm(pipeline, "accounts", Confirmation(run=run)).status == "published"


@pytest.mark.parametrize("when", ["staged", "published", "aborted"])
def test_a_fold_task_that_ends_late_changes_nothing(tmp_path: Path, when: str) -> None:
    pipeline, zombies = make_pipeline(tmp_path), Zombies()
    put(pipeline, [{"id": i, "text": text} for i, text in BEFORE.items()])
    _cycle(pipeline, "run-1", in_process)
    put(pipeline, [{"id": 7, "text": "b 7"}])
    [outcome] = materialize(pipeline, ["accounts"], Fold("run-2"), zombies)
    assert outcome.status == "staged"
    completed = [1, 2]
    if when == "staged":
        zombies.awake()
    judge_all(pipeline)
    if when == "aborted":
        abort(pipeline, "accounts", "refused", run_id="run-2")
        completed = [1]
    else:
        assert confirm(pipeline, "accounts", Confirmation(run="run-2")).status == "published"
    zombies.awake()
    assert table_rows(pipeline) == (BEFORE if when == "aborted" else BEFORE | {7: "b 7"})
    clean(pipeline, ["accounts"])
    check_nothing_left_over(pipeline, completed)
    assert table_rows(pipeline) == (BEFORE if when == "aborted" else BEFORE | {7: "b 7"})


@pytest.mark.rotates(6)
@EACH_WAY
@pytest.mark.parametrize("damaged", [False, True], ids=["whole", "with a lost file"])
def test_a_restore_gives_the_same_rows(tmp_path: Path, way: str, damaged: bool) -> None:
    pipeline = make_pipeline(tmp_path, restoring.configured(local=False))
    for number, batch in enumerate(restoring.BATCHES):
        restoring.cycle(pipeline, f"run-{number}", batch)
    if damaged:
        for path in (tmp_path / "store/snapshots/accounts/0000000002/_data").iterdir():
            path.unlink()
            (tmp_path / "store/tables/accounts/_data" / path.name).unlink()
            break
    asking = Restore("back", RestorePoint(2, RestoreMode.REPLAY))
    [outcome] = materialize(pipeline, ["accounts"], asking, twice(way))
    assert outcome.status == "staged", outcome
    restoring.publish(pipeline)
    assert table_rows(pipeline) == restoring.SECOND


@pytest.mark.rotates(6)
@EACH_WAY
@pytest.mark.parametrize("layout", Layout)
def test_savepoints_imports_and_restores_to_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, layout: Layout
) -> None:
    """Their tasks run in this process, once; they would bear an engine that runs them twice."""
    for module in (export, take):
        monkeypatch.setattr(module, "in_threads", lambda *_: twice(way))
    pipeline = savepoints.make(tmp_path / "one")
    assert savepoints.save(pipeline, tmp_path / "saved", layout).status == "saved"
    if layout is Layout.NATIVE:
        assert rows_of(str(tmp_path / "saved")) == savepoints.THIRD
    assert export.restore_to(pipeline, "accounts", 2, str(tmp_path / "there")).status == "exported"
    assert rows_of(str(tmp_path / "there")) == savepoints.SECOND
    for mode in (Ownership.NO_CLAIM, Ownership.LEGACY):
        other = make_pipeline(tmp_path / f"other-{mode.name}")
        asking = Import("in", open_address(str(tmp_path / "saved")).uri(""), mode)
        [outcome] = materialize(other, ["accounts"], asking, twice(way))
        assert outcome.status == "staged", outcome
        savepoints.finish(other, "in")
        assert table_rows(other) == savepoints.THIRD


def test_a_try_that_failed_half_way_does_not_take_rows_from_the_next_one(tmp_path: Path) -> None:
    """The tries share a process, and with it what it has read of small change sets."""
    pipeline = make_pipeline(tmp_path)
    for number in range(20):
        put(pipeline, [{"id": number, "text": f"t {number}"}])
    state = pipeline.ledger("accounts").read()
    gathered, failed = ChangeCache(), False

    def read(change_set: Any) -> Any:
        nonlocal failed
        if change_set.sqn == 18 and not failed:
            failed = True
            raise StorageError("STORAGE", "no answer")
        return read_change_set(pipeline.store, change_set)

    everything, index = KeyGroups(0, 15), ChangeSetIndex(state.change_sets)
    with pytest.raises(StorageError):
        gathered.changes(index, index.find_overlapping(everything), everything, read)
    found = gathered.changes(index, index.find_overlapping(everything), everything, read)
    assert sum(len(table) for table, _ in found) == 20
