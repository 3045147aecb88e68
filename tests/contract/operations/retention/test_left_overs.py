"""What killed runs, late tasks and old versions leave goes under retention rules: files of tables, logs and scratch."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from support import timed_rows
from support.pipelines import contents, judge_all, make_pipeline, table_rows
from support.restoring import FIRST, LOG, Rows, configured, cycle, files_of, fold, publish, restore, take
from tidefold.compute.runners import TaskAnswer, TaskWork, in_process
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.paths import DataFileName, LogPaths, data_path
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode
from tidefold.errors import StorageError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.retention.clean import clean, drop
from tidefold.operations.retention.references import tag
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import VerifyRequest, verify
from tidefold.storage.local_store import LocalStore

RUNS = 13
ROWS: Rows = {i: f"{i}" for i in range(RUNS)}
CONFIG = configured(local=False, retention="2", kind="incremental")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions 0 to 12 of a table, of which the newest two snapshots are retained."""
    folder = tmp_path_factory.mktemp("versions")
    pipeline = make_pipeline(folder, CONFIG)
    for number in range(RUNS):
        cycle(pipeline, f"run-{number}", {number: f"{number}"})
    for _ in range(2):
        subsume(pipeline, LOG)
    return folder


@pytest.fixture
def pipeline(template: Path, tmp_path: Path) -> Pipeline:
    shutil.copytree(template, tmp_path / "work")
    return make_pipeline(tmp_path / "work", CONFIG)


def log_of(pipeline: Pipeline) -> Path:
    return Path(pipeline.store.uri(f"tables/{LOG}/_delta_log"))


def commits(pipeline: Pipeline) -> list[int]:
    return sorted(int(path.name.split(".")[0]) for path in log_of(pipeline).glob("*.json"))


def cleaned(pipeline: Pipeline, plan: bool = False) -> Outcome:
    return clean(pipeline, [LOG], plan)[1]


def test_commits_behind_a_checkpoint_go_and_nobody_misses_them(pipeline: Pipeline) -> None:
    assert commits(pipeline) == list(range(RUNS))
    planned = cleaned(pipeline, plan=True)
    assert commits(pipeline) == list(range(RUNS))
    outcome = cleaned(pipeline)
    assert outcome.facts["paths"] == planned.facts["paths"]
    assert commits(pipeline) == [10, 11, 12]
    assert cleaned(pipeline).status == "nothing"
    assert table_rows(pipeline) == ROWS
    uri = pipeline.store.uri(f"tables/{LOG}")
    assert DeltaTable(uri, version=11).to_pyarrow_table().num_rows == RUNS - 1
    assert verify(pipeline, LOG, VerifyRequest(deep=True)).error_code is None
    # Everything goes on: publication, the comparison with the ledger, the return of a snapshot.
    cycle(pipeline, "next", {99: "99"}, KindPolicy.INCREMENTAL)
    assert table_rows(pipeline) == {**ROWS, 99: "99"}
    assert restore(pipeline, RUNS - 1, RestoreMode.SKIP).status == "staged"
    publish(pipeline)
    assert table_rows(pipeline) == {i: f"{i}" for i in range(RUNS - 1)}
    assert commits(pipeline) == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("harm", ["cut", "gone", "no hint", "older hint", "gap"])
def test_without_a_proved_checkpoint_nothing_goes(pipeline: Pipeline, harm: str) -> None:
    log = log_of(pipeline)
    checkpoint, hint = log / f"{10:020d}.checkpoint.parquet", log / "_last_checkpoint"
    before = sorted(path.name for path in log.iterdir())
    if harm == "cut":
        checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    elif harm == "gone":
        checkpoint.unlink()
    elif harm == "no hint":
        hint.unlink()
    elif harm == "older hint":
        hint.write_text('{"version":5,"size":1}')
    else:
        (log / f"{11:020d}.json").unlink()
    after = sorted(path.name for path in log.iterdir())
    cleaned(pipeline)
    assert sorted(path.name for path in log.iterdir()) == after
    assert set(after) <= set(before)


def test_versions_that_somebody_may_still_read_stay(template: Path, tmp_path: Path) -> None:
    """A snapshot that a tag keeps is a version of the table too."""
    config = CONFIG.replace("{snapshots: 2}", "{snapshots: 2, grace_versions: 50}")
    shutil.copytree(template, tmp_path / "work")
    waiting = make_pipeline(tmp_path / "work", config)
    tag(waiting, LOG, "kept", RUNS - 1)
    for number in range(RUNS, RUNS + 12):
        cycle(waiting, f"run-{number}", {number: f"{number}"})
    subsume(waiting, LOG)
    cleaned(waiting)
    assert commits(waiting) == list(range(10, RUNS + 12))
    version = DeltaTable(waiting.store.uri(f"tables/{LOG}"), version=RUNS - 2)
    assert version.to_pyarrow_table().num_rows == RUNS - 1


def test_what_nobody_has_touched_for_days_goes_from_scratch_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, temporary = make_pipeline(tmp_path), tmp_path / "tmp"
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "file").write_text("x")
    places = {
        "old": ["var/spark/spark-1/x/y", "var/results/1.json", "var/log/1.log", "tmp/tidefold-1/a"],
        "new": ["var/spark/spark-2/x/y", "var/results/2.json", "var/log/2.log", "tmp/tidefold-2/a", "tmp/other/a"],
    }
    # As old as the others; its process is alive.
    owned = f"tmp/tidefold-p{os.getpid()}-x"
    places["new"].append(f"{owned}/a")
    for name in (*places["old"], *places["new"]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "var/spark/spark-1/link").symlink_to(secret)
    days_ago = time.time() - 8 * 86_400
    tops = ["var/spark/spark-1", "var/spark/spark-2", "var/results", "var/log", "tmp/tidefold-1", "tmp/other", owned]
    for top in tops:
        for path in (tmp_path / top, *(tmp_path / top).rglob("*")):
            os.utime(path, (days_ago, days_ago), follow_symlinks=False)
    for name in ("var/spark/spark-2/x/y", "var/results/2.json", "var/log/2.log"):
        os.utime(tmp_path / name)
    planned = clean(pipeline, [LOG], plan=True)[0]
    assert [Path(one).name for one in planned.facts["scratch"]] == ["tidefold-1", "1.log", "1.json", "spark-1"]
    assert all((tmp_path / name).exists() for name in places["old"])
    outcome = clean(pipeline, [LOG])[0]
    assert (outcome.status, outcome.facts["scratch"]) == ("cleaned", planned.facts["scratch"])
    assert not any((tmp_path / name).exists() for name in places["old"])
    assert all((tmp_path / name).exists() for name in places["new"])
    assert (secret / "file").exists()
    assert "scratch" not in clean(pipeline, [LOG])[0].facts


def test_reports_and_verdicts_of_ended_snapshots_go_after_their_days(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("verdict-1.json", "report-1.html", "audit-1-2.json", "audit-1-2.html")
    for snapshot in (2, RUNS):  # Deleted, and retained.
        for name in names:
            pipeline.store.put_if_absent(f"{LogPaths(LOG).quality(snapshot)}/{name}", b"{}")

    def there(snapshot: int) -> set[str]:
        return {entry.path.rpartition("/")[2] for entry in pipeline.store.list(LogPaths(LOG).quality(snapshot))}

    cleaned(pipeline)
    assert there(2) == there(RUNS) == {*names}
    later = datetime.now(UTC) + timedelta(days=91)
    monkeypatch.setattr("tidefold.operations.retention.clean.now", later.isoformat)
    # The scratch folders of other processes of this machine stay.
    monkeypatch.setattr("tidefold.operations.retention.clean.PATTERN", "no-folder-of-*-others")
    cleaned(pipeline)
    assert there(2) == set()
    assert pipeline.ledger(LOG).read().snapshot(2) is not None
    assert there(RUNS) == {*names}


def test_a_second_file_of_one_task_in_the_tables_folder_is_cleaned_up(tmp_path: Path) -> None:
    """I22: of a task that ran twice one file counts; the other lies in the table's folder when it was incremental."""
    pipeline = make_pipeline(tmp_path, configured(local=False, retention="2"))
    cycle(pipeline, "run-1", FIRST)
    cycle(pipeline, "run-2", {1: "b"}, KindPolicy.INCREMENTAL)
    [new] = [f for f in files_of(pipeline, 2) if not f.carried]
    stray = str(replace(DataFileName.parse(new.name), unique=uuid.uuid4().hex))
    path = data_path(LogPaths(LOG).table, stray)
    pipeline.store.put_if_absent(path, b"the same rows once more")
    before = {e.path for e in pipeline.store.list(LogPaths(LOG).table)}
    clean(pipeline, [LOG])
    assert {e.path for e in pipeline.store.list(LogPaths(LOG).table)} == before - {path}


def test_clean_goes_on_where_a_manifest_is_lost(tmp_path: Path) -> None:
    """I11, I22: then nothing is deleted of which nobody knows who needs it, and the rest goes."""
    pipeline = make_pipeline(tmp_path, configured(local=False, retention="2"))
    cycle(pipeline, "run-1", FIRST)
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
def test_what_an_attempt_of_a_dropped_log_writes_late_is_cleaned_up(tmp_path: Path, kind: KindPolicy) -> None:
    """I22, C13: its id is not known to the next log of that name, and never will be."""
    pipeline = make_pipeline(tmp_path, configured(local=False, retention="2"))
    cycle(pipeline, "run-1", FIRST)
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


class _BlindStore(LocalStore):
    """Lists nothing any more."""

    def list(self, prefix: str, unfinished: bool = False) -> Any:
        raise StorageError("STORAGE", "A listing failed.")


def test_a_clean_up_deletes_only_what_the_ledger_has_released(tmp_path: Path) -> None:
    """apache/paimon#7710, #3074, #6978: orphan clean-up deletes live data. Strangers' files, an attempt under way and
    the table stay; an unanswered listing deletes nothing.
    """
    pipeline = timed_rows.opened(tmp_path)
    for number in range(4):
        timed_rows.land(tmp_path, 100 * number, [timed_rows.put(i, number, f"{number}") for i in range(20)])
        timed_rows.take(pipeline)
        timed_rows.publish(pipeline, f"run-{number}")
    timed_rows.land(tmp_path, 900, [timed_rows.put(1, 9, "under way")])
    timed_rows.take(pipeline)
    [staged] = materialize(pipeline, [timed_rows.LOG], Fold("run-9"), in_process)
    assert staged.status == "staged"
    for path in ("tables/items/_data/notes.txt", "changelog/stranger.bin", "tables/other/_data/0.parquet"):
        stranger = tmp_path / "store" / path
        stranger.parent.mkdir(parents=True, exist_ok=True)
        stranger.write_bytes(b"not ours")
    before = contents(tmp_path / "store")
    blind = Pipeline(pipeline.config, _BlindStore(tmp_path / "store"))
    assert {outcome.status for outcome in clean(blind, [timed_rows.LOG])} == {"error"}
    assert contents(tmp_path / "store") == before
    clean(pipeline, [timed_rows.LOG])
    assert contents(tmp_path / "store") == before
    subsume(pipeline, timed_rows.LOG)
    truncate(pipeline, timed_rows.LOG)
    judge_all(pipeline, timed_rows.LOG)
    assert confirm(pipeline, timed_rows.LOG, Confirmation(run="run-9")).status == "published"
    assert timed_rows.rows(pipeline)[:2] == [(0, 3, "3"), (1, 9, "under way")]
    assert (tmp_path / "store/tables/items/_data/notes.txt").exists()
    assert (tmp_path / "store/changelog/stranger.bin").exists()
