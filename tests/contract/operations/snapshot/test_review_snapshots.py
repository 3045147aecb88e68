"""What a review of snapshots, restores and local copies found: each test failed before it was mended."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from support.faults import Killed
from support.pipelines import CONFIG, judge_all, make_pipeline, put, table_rows, with_log_shape
from support.restoring import LOG, configured, cycle, files_of, flip, fold, names_of, publish, take
from support.s3_server import S3Bucket
from tidefold.compute.runners import TaskAnswer, TaskWork, in_process
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.paths import DataFileName, LogPaths, data_path
from tidefold.domain.retention import log_bounds
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint
from tidefold.errors import CorruptError, StorageError
from tidefold.ledger import read_manifest
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, read_rows
from tidefold.operations.requests import Fold, Restore
from tidefold.operations.restore.export import Trial, drill, restore_to
from tidefold.operations.retention.clean import clean, drop
from tidefold.operations.retention.subsume import find_files_to_delete
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

ROWS = {i: f"a {i}" for i in range(40)}


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return make_pipeline(tmp_path, configured(local=False, retention="2"))


def test_a_rescale_that_was_aborted_is_still_to_be_made(pipeline: Pipeline) -> None:
    """L8, I13: an attempt that was refused leaves no trace in what the log knows of its buckets."""
    cycle(pipeline, "run-1", ROWS)
    wider = with_log_shape(pipeline, buckets=8)
    assert fold(wider, "run-2", KindPolicy.FULL).facts["buckets"] == 8
    abort(wider, LOG, "not now")
    assert wider.ledger(LOG).read().shape.buckets == 4
    assert fold(wider, "run-3", KindPolicy.FULL).status == "staged"
    publish(wider)
    assert wider.ledger(LOG).read().shape.buckets == 8


def test_auto_makes_a_rescale_after_one_was_aborted(tmp_path: Path) -> None:
    """L8, N7: `auto` chooses by the buckets that the table has, not by those of an aborted attempt."""
    pipeline = make_pipeline(tmp_path, configured(local=False, copy_files="always"))
    cycle(pipeline, "run-1", ROWS)
    wider = with_log_shape(pipeline, buckets=8)
    take(wider, {1: "b"})
    assert fold(wider, "run-2", KindPolicy.AUTO).facts["buckets"] == 8
    abort(wider, LOG, "not now")
    assert fold(wider, "run-3", KindPolicy.AUTO).facts["buckets"] == 8


def test_a_file_that_was_cut_after_it_was_judged_is_not_published(pipeline: Pipeline) -> None:
    """N3, I8: the files of an incremental snapshot lie in the table's folder and nowhere else."""
    cycle(pipeline, "run-1", ROWS)
    take(pipeline, {1: "b"})
    fold(pipeline, "run-2", KindPolicy.INCREMENTAL)
    judge_all(pipeline)
    [new] = [f for f in files_of(pipeline, 2) if not f.carried]
    [path] = names_of(pipeline, 2, new.name)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CorruptError):
        confirm(pipeline, LOG)
    assert table_rows(pipeline) == ROWS


KEYS = {
    "boolean": [True, False],
    "int": [0, -1, 5, 2**31 - 1],
    "long": [0, -1, 2**62],
    "string": ["", "a", "\u00e4\U0001f600", "x" * 300],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
    "timestamp": [
        datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2026, 1, 1, 1, 1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC),
    ],
}  # fmt: skip


@pytest.mark.rotates(3)
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type_survive_a_rescale(tmp_path: Path, kind: str) -> None:
    """L8: the key group of a row in a data file is that of the change which brought it."""
    config = CONFIG.replace("columns: {id: int, text: string}", f"columns: {{id: {kind}, text: string}}")
    pipeline = make_pipeline(tmp_path, config)
    rows = {key: f"{n}" for n, key in enumerate(KEYS[kind])}
    put(pipeline, [{"id": key, "text": text} for key, text in rows.items()])
    assert fold(pipeline, "run-1").status == "staged"
    publish(pipeline)

    def read(snapshot: int) -> dict[object, str]:
        found = [r for b in read_rows(pipeline, LOG, ReadRequest(snapshot=snapshot))[1] for r in b.to_pylist()]
        assert len(found) == len(rows)
        return {row["id"]: row["text"] for row in found}

    before = read(1)
    for number, buckets in enumerate((1, 16, 3), 2):
        wider = with_log_shape(pipeline, buckets=buckets)
        assert fold(wider, f"run-{number}", KindPolicy.FULL).facts["buckets"] == buckets
        publish(wider)
        assert read(number) == before


def test_what_a_restore_may_fall_back_on_is_not_retired_under_it(pipeline: Pipeline) -> None:
    """I10, I12, I14: the rows of a damaged snapshot are made from an older one whose file is taken over by its name; a
    clean-up that was planned meanwhile must not remove it.
    """
    wide = with_log_shape(pipeline, buckets=8)
    cycle(wide, "run-1", ROWS)
    cycle(pipeline, "run-2", {}, KindPolicy.FULL)  # The same rows in other files: four buckets.
    cycle(pipeline, "run-3", {i: f"c {i}" for i in range(40)})
    cycle(pipeline, "run-4", {i: f"d {i}" for i in range(40)})
    going: list[str] = []

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        wanted = pipeline.ledger(LOG).commit(lambda state: log_bounds.subsume(state, 2))
        retired = log_bounds.deletable(wanted, pipeline.config.retention.grace, "2030-01-01T00:00:00+00:00")
        going.extend(e.path for e in find_files_to_delete(pipeline.store, wanted, retired))
        return in_process(work, tasks)

    for file in files_of(pipeline, 2):
        for path in names_of(pipeline, 2, file.name):
            path.unlink()
    asking = Restore("back", RestorePoint(2, RestoreMode.SKIP), kind=KindPolicy.INCREMENTAL)
    [outcome] = materialize(pipeline, [LOG], asking, run)
    assert outcome.status == "staged", outcome
    publish(pipeline)
    pipeline.store.delete(going)
    assert table_rows(pipeline) == ROWS


def test_a_second_file_of_one_task_in_the_tables_folder_is_cleaned_up(pipeline: Pipeline) -> None:
    """I22: of a task that ran twice one file counts; the other lies in the table's folder when it was incremental."""
    cycle(pipeline, "run-1", ROWS)
    cycle(pipeline, "run-2", {1: "b"}, KindPolicy.INCREMENTAL)
    [new] = [f for f in files_of(pipeline, 2) if not f.carried]
    stray = str(replace(DataFileName.parse(new.name), unique=uuid.uuid4().hex))
    path = data_path(LogPaths(LOG).table, stray)
    pipeline.store.put_if_absent(path, b"the same rows once more")
    before = {e.path for e in pipeline.store.list(LogPaths(LOG).table)}
    clean(pipeline, [LOG])
    assert {e.path for e in pipeline.store.list(LogPaths(LOG).table)} == before - {path}


def test_a_drill_of_an_incremental_snapshot_with_a_lost_file_is_recorded(pipeline: Pipeline, tmp_path: Path) -> None:
    """L6: that its rows cannot be had is what a drill is to find out, whatever the error is called."""
    for number in (1, 2):
        cycle(pipeline, f"run-{number}", dict.fromkeys(range(40), f"{number}"), KindPolicy.INCREMENTAL)
    truncate(pipeline, LOG)
    names_of(pipeline, 1, files_of(pipeline, 1)[0].name)[0].unlink()
    outcome = drill(pipeline, LOG, 1, trial=Trial(str(tmp_path / "drill")))
    assert outcome.error_code == "DRILL_FAILED"
    drilled = pipeline.ledger(LOG).read().snapshots[0].drill
    assert drilled is not None
    assert not drilled.passed


@pytest.mark.parametrize("full", [False, True])
def test_a_vacuum_of_somebody_else_leaves_incremental_snapshots(pipeline: Pipeline, full: bool) -> None:
    """N3: what the newest table version does not show any more belongs to older snapshots."""
    cycle(pipeline, "run-1", ROWS, KindPolicy.INCREMENTAL)
    cycle(pipeline, "run-2", dict.fromkeys(range(40), "b"), KindPolicy.INCREMENTAL)
    table = DeltaTable(pipeline.store.uri(LogPaths(LOG).table))
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)
    _, batches = read_rows(pipeline, LOG, ReadRequest(snapshot=1))
    assert {row["id"]: row["text"] for batch in batches for row in batch.to_pylist()} == ROWS


def test_the_same_run_that_asks_for_another_kind_is_refused(pipeline: Pipeline) -> None:
    """I4: `--kind full` is something else than what is configured."""
    incremental = pipeline.config.snapshots.model_copy(update={"kind": KindPolicy.INCREMENTAL})
    configured_so = replace(pipeline, config=pipeline.config.model_copy(update={"snapshots": incremental}))
    take(pipeline, ROWS)
    assert fold(configured_so, "run-1").facts["kind"] == "incremental"
    assert fold(configured_so, "run-1", KindPolicy.FULL).error_code == "RUN_CHANGED"


def test_a_recipe_that_cannot_be_followed_leaves_no_file_in_the_place(pipeline: Pipeline, tmp_path: Path) -> None:
    """L6, L8: of a bucket that two files of an older snapshot would make one was copied when the other proved bad."""
    cycle(with_log_shape(pipeline, buckets=8), "run-1", ROWS)
    cycle(pipeline, "run-2", {}, KindPolicy.FULL)  # The same rows in other files: four buckets.
    for file in files_of(pipeline, 2):
        for path in names_of(pipeline, 2, file.name):
            path.unlink()
    flip(names_of(pipeline, 1, files_of(pipeline, 1)[1].name)[0])
    outcome = restore_to(pipeline, LOG, 2, str(tmp_path / "there"))
    assert outcome.facts["rows"] == len(ROWS)
    shown = DeltaTable(str(tmp_path / "there")).get_add_actions().column("path").to_pylist()
    assert {f"_data/{path.name}" for path in (tmp_path / "there" / "_data").iterdir()} == set(shown)


@pytest.mark.parametrize("how", ["killed", "failed"])
def test_a_retry_on_the_next_day_drops_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """I6, I24, N10: the limit is fixed when the run begins, as the docs say, whenever it is tried again."""
    columns = "columns: {id: int, text: string, at: date}\n    ttl: {column: at, days: 10}"
    pipeline = make_pipeline(tmp_path, CONFIG.replace("columns: {id: int, text: string}", columns, 1))
    put(pipeline, [{"id": day, "text": "a", "at": date(2026, 1, day)} for day in range(1, 31)])
    monkeypatch.setattr("tidefold.operations.snapshot.fold.now", lambda: "2026-01-30T23:59:00+00:00")

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        if how == "killed":
            raise Killed
        return [StorageError("STORAGE", "The disk is full.") for _ in tasks]

    with suppress(Killed):
        materialize(pipeline, [LOG], Fold("run-1"), run)
    monkeypatch.setattr("tidefold.operations.snapshot.fold.now", lambda: "2026-01-31T00:01:00+00:00")
    assert fold(pipeline, "run-1").facts["rows"] == 11
    snapshots = pipeline.ledger(LOG).read().snapshots
    assert len({snapshot.expire for snapshot in snapshots}) == 1


def test_where_links_are_copies_an_incremental_snapshot_copies_nothing(s3: S3Bucket, tmp_path: Path) -> None:
    """N2, N5: after a full one every file lies in the table's folder already; none is copied, or sent twice."""
    pipeline = make_pipeline(tmp_path, CONFIG.replace("store: store\n", f"store: {s3.address}\n"))
    cycle(pipeline, "run-1", ROWS)
    take(pipeline, {1: "b"})
    s3.server.heal()
    outcome = fold(pipeline, "run-2", KindPolicy.INCREMENTAL)
    assert outcome.facts["files_carried"] == 3
    requests = [method for method, address in s3.server.requests() if ".parquet" in address and "/tables/" in address]
    assert requests.count("PUT") == 1
    assert requests.count("POST") == 0
    publish(pipeline)
    assert table_rows(pipeline) == {**ROWS, 1: "b"}


def test_half_a_restore_names_all_newer_folders_at_once(pipeline: Pipeline, tmp_path: Path) -> None:
    """It took a run for each of them, with no word of why."""
    cycle(pipeline, "run-1", ROWS)
    store = tmp_path / "store"
    for name in ("logs", "tables", "changelog"):
        shutil.copytree(store / name, tmp_path / "old" / name)
    for number in (2, 3):
        take(pipeline, {number: "newer"})
        fold(pipeline, f"run-{number}", KindPolicy.FULL)
        publish(pipeline)
    for name in ("logs", "tables", "changelog"):
        shutil.rmtree(store / name)
        shutil.move(tmp_path / "old" / name, store / name)
    again = open_pipeline(tmp_path / "tidefold.yaml")
    take(again, {2: "again"})
    refused = fold(again, "run-4", KindPolicy.FULL)
    assert refused.error_code == "NAME_TAKEN"
    assert refused.error is not None
    folders = re.findall(r"`(0\d+)`", refused.error.hint)
    assert folders == ["0000000002", "0000000003"]
    for folder in folders:
        shutil.rmtree(store / "snapshots" / LOG / folder, ignore_errors=True)
    assert fold(again, "run-5", KindPolicy.FULL).status == "staged"


def test_a_table_file_that_was_altered_is_not_shared(s3: S3Bucket, tmp_path: Path) -> None:
    """I14, N3: the same where links are copies: a file that is not proved is refused."""
    pipeline = make_pipeline(tmp_path, CONFIG.replace("store: store\n", f"store: {s3.address}\n"))
    cycle(pipeline, "run-1", ROWS)
    take(pipeline, {1: "b"})
    state = pipeline.ledger(LOG).read()
    for file in read_manifest(pipeline.store, LOG, state.snapshots[0]).files:
        key = f"a/store/{data_path(LogPaths(LOG).table, file.name)}"
        s3.client.put_object(Bucket=s3.name, Key=key, Body=b"x" * file.bytes)
    assert fold(pipeline, "run-2", KindPolicy.INCREMENTAL).error_code == "NAME_TAKEN"
    assert fold(pipeline, "run-3", KindPolicy.FULL).status == "staged"


def test_clean_goes_on_where_a_manifest_is_lost(pipeline: Pipeline) -> None:
    """I11, I22: then nothing is deleted of which nobody knows who needs it, and the rest goes."""
    cycle(pipeline, "run-1", ROWS)
    Path(pipeline.store.uri(LogPaths(LOG).manifest(1))).unlink()
    take(pipeline, {1: "b"})
    before = {e.path for e in pipeline.store.list("tables")}
    # A zombie's file, after its attempt failed for want of the manifest.
    assert fold(pipeline, "run-2").error_code == "FILE_MISSING"
    late = data_path(LogPaths(LOG).snapshot(2), "late.parquet")
    pipeline.store.put_if_absent(late, b"late")
    [_, outcome] = clean(pipeline, [LOG])
    assert outcome.facts["paths"] == [late]
    assert {e.path for e in pipeline.store.list("tables")} == before


@pytest.mark.parametrize("kind", [KindPolicy.FULL, KindPolicy.INCREMENTAL])
def test_what_an_attempt_of_a_dropped_log_writes_late_is_cleaned_up(pipeline: Pipeline, kind: KindPolicy) -> None:
    """I22, C13: its id is not known to the next log of that name, and never will be."""
    cycle(pipeline, "run-1", ROWS)
    take(pipeline, {1: "b"})

    lates: list[str] = []

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        attempt = pipeline.ledger(LOG).read().open_attempt
        assert attempt
        name = DataFileName(KeyGroups(0, 3), attempt.id, attempt.epoch, uuid.uuid4().hex, attempt.token)
        folder = LogPaths(LOG).snapshot(2) if kind is KindPolicy.FULL else LogPaths(LOG).table
        lates.append(data_path(folder, str(name)))
        abort(pipeline, LOG, "not wanted")
        drop(pipeline, LOG, plan=False)
        cycle(pipeline, "run-1", dict.fromkeys(range(40), "new"))
        pipeline.store.put_if_absent(lates[0], b"late")
        return [StorageError("STORAGE", "late") for _ in tasks]

    assert materialize(pipeline, [LOG], Fold("run-2", kind=kind), run)[0].error_code
    [late] = lates
    assert late in {e.path for e in pipeline.store.list("")}
    before = {e.path for e in pipeline.store.list("tables")} | {e.path for e in pipeline.store.list("snapshots")}
    clean(pipeline, [LOG])
    after = {e.path for e in pipeline.store.list("tables")} | {e.path for e in pipeline.store.list("snapshots")}
    assert after == before - {late}
    assert table_rows(pipeline) == dict.fromkeys(range(40), "new")
