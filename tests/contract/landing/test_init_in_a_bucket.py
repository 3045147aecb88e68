"""`init` from files that landed in S3: where it proposes the store, and which steps its errors name."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from support.s3_server import S3Bucket
from tidefold.cli.app import app
from tidefold.config import load_config

LINE = b'{"id": 1, "text": "a"}\n{"id": 2, "text": "b"}\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_the_store_is_proposed_beside_the_landed_files_and_nothing_is_written_there(s3: S3Bucket) -> None:
    """Fault: tables of landed files in S3 went to the disk of whoever called `init`."""
    s3.put("a/landing/items/one.jsonl", LINE)
    s3.server.heal()
    done = call("init", f"{s3.root}/a/landing")
    assert done.exit_code == 0, done.stderr
    assert not [request for request in s3.server.requests() if request[0] not in ("GET", "HEAD")]
    config = load_config(Path("tidefold.yaml"))
    assert (config.store, config.store_id) == (f"{s3.root}/a/tidefold", None)
    assert not Path("var/store").exists()
    assert call("validate", "--online").exit_code == 0


def test_the_store_is_never_in_the_landing_place(s3: S3Bucket) -> None:
    s3.put("tidefold/one.jsonl", LINE)
    for place, store in ((s3.root, "var/store"), (f"{s3.root}/tidefold/", f"{s3.root}/tidefold-store")):
        assert call("init", place).exit_code == 0
        assert load_config(Path("tidefold.yaml")).store == store
        Path("tidefold.yaml").unlink()


@pytest.mark.parametrize("place", ["s3://{bucket}/empty", "s3://no-such-bucket/a", "no-folder"])
def test_an_error_names_the_argument(s3: S3Bucket, place: str) -> None:
    """Fault: the step was to check `source.path` of a file that does not exist yet."""
    failed = call("init", place.format(bucket=s3.name))
    assert "DIR" in failed.stderr
    assert "source.path" not in failed.stderr


@pytest.mark.parametrize("place", ["s3:/bucket/a", "gs:/bucket/a", "abfs:/container/a"])
def test_one_slash_makes_no_path_of_an_address(s3: S3Bucket, place: str) -> None:
    assert "[STORE_ADDRESS]" in call("init", place).stderr
