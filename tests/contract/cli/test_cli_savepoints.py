"""The verbs of savepoints: help that teaches, what is printed where, exit codes, JSON. No Spark. N8, N9, I26."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.commands import attempt as call
from support.commands import call_json
from support.pipelines import make_pipeline, table_rows
from support.savepoints import THIRD, finish, make, saved_rows
from tidefold.domain.external_snapshot import Layout
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.savepoint import take as operation
from tidefold.storage.addresses import meeting, overlap


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return make(tmp_path_factory.mktemp("savepoints") / "one")


@pytest.fixture
def pipeline(store: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEFOLD_CONFIG", str(store.config.path))
    return store


def test_a_savepoint_is_told_in_one_line_and_in_json(pipeline: Pipeline, tmp_path: Path) -> None:
    done = call("move", "savepoint", "accounts", "--to", "save", "--as", "canonical")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("accounts: saved: snapshot 3, canonical: 37 rows in 4 files, ")
    assert saved_rows(tmp_path / "save", Layout.CANONICAL) == THIRD
    said = call_json("move", "savepoint", "accounts", "--to", "save", "--as", "canonical")
    [outcome] = said["outcomes"]
    assert (said["command"], outcome["result"], outcome["facts"]["sqn"]) == ("move savepoint", "already", 3)
    assert outcome["facts"]["positions"] == [
        {
            "topic": "accounts",
            "partition": 0,
            "next_offset": 49,
            "stream": {
                "max_order": [1, 48],
                "records_at_max": 0,
                "replayed_at_max": None,
                "max_commit_time": None,
                "connector_run": "",
                "columns": [],
                "signalled": [],
                "begun": [],
                "ended": [],
                "early": [],
                "replaced": 0,
                "since": 0,
            },
        }
    ]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "error"),
    [
        (("move", "savepoint", "accounts", "--to", "wasb://bucket/x"), 2, "ADDRESS_SCHEME"),
        (("move", "savepoint", "accounts", "--to", "memory://x"), 2, "ADDRESS_SCHEME"),
        (("move", "savepoint", "accounts", "--to", "x", "--snapshot", "9"), 4, "SNAPSHOT_UNKNOWN"),
        (("move", "savepoint", "accounts", "--to", "x", "--snapshot", "1", "--stop"), 2, "SAVEPOINT_OPTIONS"),
        (("move", "savepoint", "tellers", "--to", "x"), 4, "LOG_UNKNOWN"),
        (("move", "savepoint", "tellers", "--to", "x", "--stop"), 4, "LOG_UNKNOWN"),
        (("move", "savepoint", "accounts", "--to", "x", "--stop", "--reason", " "), 2, "STOP_UNNAMED"),
        (("move", "import", "accounts", "nowhere"), 4, "SAVEPOINT_UNKNOWN"),
        (("move", "resume", "tellers"), 4, "LOG_UNKNOWN"),
    ],
)
def test_mistakes_have_a_code_and_change_nothing(
    pipeline: Pipeline, tmp_path: Path, arguments: tuple[str, ...], exit_code: int, error: str
) -> None:
    before = pipeline.ledger("accounts").read()
    failed = call(*arguments)
    assert (failed.exit_code, f"[{error}]" in failed.stderr) == (exit_code, True), failed.output
    assert not (tmp_path / "x").exists()
    assert pipeline.ledger("accounts").read() == before


def test_an_address_with_credentials_is_refused_and_never_repeated(pipeline: Pipeline) -> None:
    """I26."""
    for arguments in (("move", "savepoint", "accounts", "--to"), ("move", "import", "accounts")):
        failed = call(*arguments, "s3://key:secret@bucket/x")
        assert (failed.exit_code, "STORE_SECRET" in failed.stderr) == (2, True)
        assert "secret@" not in failed.output


def test_an_import_is_staged_without_spark_and_says_what_comes_next(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("move", "savepoint", "accounts", "--to", "save")
    other = make_pipeline(tmp_path / "two")
    monkeypatch.setenv("TIDEFOLD_CONFIG", str(tmp_path / "two/tidefold.yaml"))
    done = call("move", "import", "accounts", "save", "--run", "in")
    assert done.exit_code == 0, done.output
    assert "accounts: staged: snapshot 1: 37 rows" in done.stdout
    assert f"the rows of {tmp_path / 'save'}" in done.stdout
    assert "next: tidefold step quality accounts, then tidefold step confirm accounts" in done.stderr
    assert call("step", "ingest", "accounts").exit_code == 3
    finish(other, "in")
    assert table_rows(other) == THIRD
    [shown] = call_json("snapshot", "history", "accounts")["snapshots"]
    assert shown["external"]["address"] == str(tmp_path / "save")
    assert (shown["external"]["ownership"], shown["external"]["sqn"]) == ("no-claim", 3)


def test_a_long_one_says_how_far_it_is(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation, "_NOTE_SECONDS", 0.0)
    done = call("move", "savepoint", "accounts", "--to", "save")
    assert "savepoint: 3 of 4 buckets written, 0 s" in done.stderr


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("/a/b", "/a/c", ("/", "a/b/", "a/c/")),
        ("s3://x/a", "s3://x/b/c", ("s3://x", "a/", "b/c/")),
        ("s3://x", "s3://x/b", ("s3://x", "", "b/")),
        ("s3://x/a", "s3://y/a", None),
        ("/a", "s3://x/a", None),
        ("gs://a", "gs://a", None),
    ],
)
def test_where_two_stores_meet(one: str, other: str, found: tuple[str, str, str] | None) -> None:
    assert meeting(one, other) == found


def test_one_address_within_another() -> None:
    assert overlap("/a/b", "/a")
    assert overlap("/a", "/a/")
    assert overlap("s3://x", "s3://x/a/b")
    assert not overlap("/a/b", "/a/bc")
    assert not overlap("s3://x/a", "s3://x/b")
