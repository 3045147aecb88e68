"""The gate without a JVM over real staged tables, as tests/spark/test_quality_gate.py on Spark. Promises I8, I23."""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.staging import ROWS, Row, make_pipeline, stage
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot import transitions
from tidefold.errors import CorruptError, StorageError, SupersededError
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.quality import judge as judge_module
from tidefold.operations.quality.judge import Case, judge
from tidefold.quality.run.duckdb_rows import open_duckdb
from tidefold.wiring import Pipeline


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Two logs with empty suites."""
    return make_pipeline(tmp_path, "store")


def judge_one(pipeline: Pipeline, log: str = "accounts") -> Outcome:
    with open_duckdb() as engine:
        [outcome] = judge(pipeline, [log], None, engine)
    return outcome


def staged_file(pipeline: Pipeline) -> Path:
    [entry] = [e for e in pipeline.store.list("snapshots") if e.path.endswith(".parquet")]
    return Path(pipeline.store.uri(entry.path))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS, "snapshot 1 passed: 3 checks passed"),
        ([], "snapshot 1 passed: 3 checks passed"),
        ([*ROWS, (7, 1, "again")], "snapshot 1 failed: 1 of 3 checks failed: aid unique (2 duplicates)"),
        ([*ROWS, (None, 1, "keyless")], "snapshot 1 failed: 1 of 3 checks failed: aid not null (1 null)"),
    ],
    ids=["good", "empty", "duplicate key", "null key"],
)
def test_rows_are_judged(pipeline: Pipeline, rows: list[Row], message: str) -> None:
    stage(pipeline, rows)
    assert judge_one(pipeline).message == message


def test_a_compound_key_is_judged_as_a_whole(pipeline: Pipeline) -> None:
    stage(pipeline, [(1, 1, "a"), (1, 2, "b"), (2, 1, "c")], "pairs")
    assert judge_one(pipeline, "pairs").message == "snapshot 1 passed: 4 checks passed"
    pipeline.ledger("pairs").commit(lambda state: transitions.abort(state, 1, "next"))
    stage(pipeline, [(1, 1, "a"), (1, 1, "b"), (2, None, "c")], "pairs", "run-2")
    message = judge_one(pipeline, "pairs").message
    assert message == "snapshot 2 failed: 2 of 4 checks failed: aid, bid unique (2 duplicates); bid not null (1 null)"


def test_logs_of_one_run_are_judged_one_after_the_other(pipeline: Pipeline) -> None:
    """They share one database and one context of Great Expectations."""
    stage(pipeline, ROWS)
    stage(pipeline, [(1, 1, "a"), (1, 1, "b")], "pairs")
    with open_duckdb() as engine:
        judged = judge(pipeline, ["accounts", "pairs"], None, engine)
    assert [(outcome.log, outcome.status, outcome.error) for outcome in judged] == [
        ("accounts", "passed", None),
        ("pairs", "failed", None),
    ]


def test_rows_are_counted_in_the_files_not_in_the_manifest(pipeline: Pipeline) -> None:
    stage(pipeline, ROWS, alter=lambda file: replace(file, rows=101, stats='{"numRecords": 101}'))
    message = judge_one(pipeline).message
    assert message == "snapshot 1 failed: 1 of 3 checks failed: row count of manifest 100, not 101"


def test_a_damaged_file_is_an_error_and_never_a_pass(pipeline: Pipeline) -> None:
    stage(pipeline, ROWS)
    file = staged_file(pipeline)
    good = file.read_bytes()
    file.write_bytes(good[:-1])
    assert judge_one(pipeline).error_code == "STAGED_FILES_DIFFER"
    file.write_bytes(good[:4] + bytes(len(good) - 8) + good[-4:])
    assert judge_one(pipeline).error_code == "STAGED_ROWS_UNREADABLE"
    file.write_bytes(good)
    assert judge_one(pipeline).status == "passed"


def test_a_process_that_judged_ends_in_silence(pipeline: Pipeline) -> None:
    """DuckDB's bindings report on standard error what somebody keeps alive to the end.

    SQLAlchemy cannot be imported in it: verdicts, samples and reports need none.
    """
    stage(pipeline, ROWS)
    stage(pipeline, [(1, 1, "a"), (1, 1, "b")], "pairs")
    program = (
        "import sys; sys.modules |= dict.fromkeys(('sqlalchemy', 'duckdb_engine'));"
        "from pathlib import Path; from tidefold.wiring import open_pipeline;"
        "from tidefold.operations.quality.judge import judge;"
        "from tidefold.quality.run.duckdb_rows import open_duckdb;"
        f"pipeline = open_pipeline(Path({str(pipeline.config.path)!r}));\n"
        "with open_duckdb() as engine:\n"
        "    print(*(one.status for one in judge(pipeline, ['accounts', 'pairs'], None, engine)))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("passed failed\n", "")
    [page] = [one.path for one in pipeline.store.list("logs/pairs/quality") if one.path.endswith("html")]
    assert b"aid=1, bid=1" in pipeline.store.read(page)


@pytest.mark.parametrize("code", ["ABORTED", "SUPERSEDED"])
@pytest.mark.parametrize("lost", ["a data file", "the table's log", "the manifest"])
def test_files_that_another_run_deletes_under_the_gate_are_no_damage(
    pipeline: Pipeline, code: str, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run takes the snapshot over while it is judged, and deletes its files."""
    stage(pipeline, ROWS)
    paths = LogPaths("accounts")
    folders = {"a data file": "_data", "the table's log": "_delta_log", "the manifest": "manifest"}
    cause = "by hand" if code == "ABORTED" else "superseded by attempt 2"
    find = judge_module.find

    def take_over(*arguments: Any) -> Any:
        below = [*pipeline.store.list(paths.snapshots), *pipeline.store.list(paths.manifests)]
        pipeline.store.delete([entry.path for entry in below if folders[lost] in entry.path])
        pipeline.ledger("accounts").commit(lambda state: transitions.abort(state, 1, cause))
        if lost == "the manifest":
            read_manifest(pipeline.store, "accounts", arguments[1].snapshot)
        return find(*arguments)

    monkeypatch.setattr(judge_module, "find", take_over)
    outcome = judge_one(pipeline)
    assert (outcome.error_code, outcome.error and outcome.error.exit_code) == (code, 3)


def test_a_manifest_that_another_run_deletes_before_the_gate_is_no_damage(pipeline: Pipeline) -> None:
    stage(pipeline, ROWS)
    case = judge_module.prepare(pipeline, "accounts", None)
    assert isinstance(case, Case)
    pipeline.store.delete([LogPaths("accounts").manifest(1)])
    with pytest.raises(CorruptError, match="is missing"):
        judge_module.weigh(pipeline, case)
    pipeline.ledger("accounts").commit(lambda state: transitions.abort(state, 1, "superseded by attempt 2"))
    with pytest.raises(SupersededError):
        judge_module.weigh(pipeline, case)


def test_a_full_disk_for_scratch_files_is_an_error_of_storage() -> None:
    """Fault matrix, a run of an imported log: the disk was full when the gate began, and nothing named the error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(StorageError, match=r"a scratch folder of the gate: .*File too large"), open_duckdb():
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
