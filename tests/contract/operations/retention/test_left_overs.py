"""What killed runs and old versions leave goes under retention rules: files of Delta logs, scratch folders."""

from __future__ import annotations

import os
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from support.pipelines import make_pipeline, table_rows
from support.restoring import LOG, Rows, configured, cycle, publish, restore
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.retention.clean import clean
from tidefold.operations.retention.references import tag
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.verify.verify import Asked, verify

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
    assert verify(pipeline, LOG, Asked(deep=True)).error_code is None
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
