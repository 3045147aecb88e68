"""`validate --online`: what the store must do is seen, or what failed is named. Promises I2, I23, I26."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from support.gcs_server import GcsBucketOfTest
from support.pipelines import CONFIG, make_pipeline
from support.s3_server import S3Bucket
from tidefold.cli.app import app
from tidefold.errors import AlreadyExistsError, StorageError, StoreRefusedError
from tidefold.storage import open_store
from tidefold.storage.cloud_client import CloudBucket
from tidefold.storage.identity import probe
from tidefold.storage.local_store import LocalStore


@pytest.fixture
def validate(tmp_path: Path) -> Callable[..., Result]:
    def call(store: str, *arguments: str) -> Result:
        make_pipeline(tmp_path, CONFIG.replace("store: store", f"store: {store}"))
        return CliRunner().invoke(app, ["validate", "--online", "-c", str(tmp_path / "tidefold.yaml"), *arguments])

    return call


def test_a_store_on_disk_and_in_s3_is_found_fit_and_left_empty(
    validate: Callable[..., Result], s3: S3Bucket, tmp_path: Path
) -> None:
    for address in ("store", s3.address):
        done = validate(address)
        assert done.exit_code == 0, done.stderr
        assert "refuse a second put" in done.stdout
        assert open_store(address, tmp_path).list("", unfinished=True) == []
        assert "refuse to copy over it" in json.loads(validate(address, "--format", "json").stdout)["done"]


def test_a_store_in_azure_is_found_fit_and_left_empty(
    validate: Callable[..., Result], azure: str, tmp_path: Path
) -> None:
    done = validate(azure)
    assert done.exit_code == 0, done.stderr
    assert "refuse to copy over it" in json.loads(validate(azure, "--format", "json").stdout)["done"]
    assert open_store(azure, tmp_path).list("", unfinished=True) == []


def test_a_store_in_google_cloud_storage_is_found_fit_and_left_empty(
    validate: Callable[..., Result], gcs: GcsBucketOfTest, tmp_path: Path
) -> None:
    done = validate(gcs.address)
    assert done.exit_code == 0, done.stderr
    assert "refuse to copy over it" in json.loads(validate(gcs.address, "--format", "json").stdout)["done"]
    assert open_store(gcs.address, tmp_path).list("", unfinished=True) == []


def test_offline_asks_no_store(s3: S3Bucket, tmp_path: Path) -> None:
    make_pipeline(tmp_path, CONFIG.replace("store: store", "store: s3://no-such-bucket/a"))
    assert CliRunner().invoke(app, ["validate", "-c", str(tmp_path / "tidefold.yaml")]).exit_code == 0
    assert s3.server.requests() == []


@pytest.mark.parametrize(
    ("fault", "step", "code", "hint"),
    [
        (("GET", "list-type=2"), "list", "STORE_DENIED", "s3:ListBucket"),
        (("PUT", "/one"), "put", "STORE_DENIED", "s3:PutObject"),
        (("GET", "/one"), "read back", "STORE_DENIED", "s3:GetObject"),
        (("POST", "delete"), "delete", "STORE_DENIED", "s3:DeleteObject"),
    ],
)
def test_a_missing_right_is_named_with_the_next_step(
    validate: Callable[..., Result], s3: S3Bucket, fault: tuple[str, str], step: str, code: str, hint: str
) -> None:
    s3.server.fail(*fault, status=403, code="AccessDenied", times=1)
    failed = validate(s3.address)
    assert failed.exit_code == StoreRefusedError.exit_code
    assert f"error [{code}] The store failed at `{step}`" in failed.stderr
    assert hint in failed.stderr
    assert open_store(s3.address, Path("/")).list("") == []


def test_a_bucket_that_is_not_there_is_named(validate: Callable[..., Result], s3: S3Bucket) -> None:
    failed = validate("s3://no-such-bucket/a")
    assert (failed.exit_code, "error [STORE_BUCKET_MISSING]" in failed.stderr) == (StoreRefusedError.exit_code, True)


class Overwrites(LocalStore):
    """As an S3 that does not know If-None-Match."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.delete([path])
        super().put_if_absent(path, data)


class CopiesOver(LocalStore):
    def link(self, source: str, target: str, copy: bool = False) -> str:
        try:
            return super().link(source, target, copy)
        except AlreadyExistsError:
            return "copy"


class Forgets(LocalStore):
    def list(self, folder: str, unfinished: bool = False) -> Any:
        return []


@pytest.mark.parametrize(
    ("kind", "step"),
    [(Overwrites, "refuse a second put"), (CopiesOver, "refuse to copy over it"), (Forgets, "list what is there")],
)
def test_a_store_that_breaks_its_promise_is_unfit(kind: type[LocalStore], step: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=step) as unfit:
        probe(kind(tmp_path))
    assert unfit.value.code == "STORE_UNFIT"


def test_an_s3_that_forgets_metadata_is_unfit(s3: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CloudBucket, "find_mark", lambda bucket, key: "")
    with pytest.raises(StorageError, match="tell its own put") as unfit:
        probe(open_store(s3.address, Path("/")))
    assert unfit.value.code == "STORE_UNFIT"


def of_landing(tmp_path: Path, place: str, *arguments: str) -> Result:
    text = CONFIG.replace("store: store", "store: here").replace("path: landing/accounts", f"path: {place}")
    make_pipeline(tmp_path, text)
    return CliRunner().invoke(app, ["validate", "--online", "-c", str(tmp_path / "tidefold.yaml"), *arguments])


def test_an_error_stands_alone_and_a_warning_is_told_once(tmp_path: Path) -> None:
    """Fault: warnings were printed before the error, and a missing folder twice."""
    (tmp_path / "here").touch()
    failed = of_landing(tmp_path, "landing/later")
    assert failed.stderr.startswith("error [")
    assert "warning" not in failed.stderr
    (tmp_path / "here").unlink()
    fine = of_landing(tmp_path, "landing/later")
    assert fine.stderr.count("landing/later") == 1
    assert f"warning: accounts: the landing folder {tmp_path}/landing/later does not exist yet." in fine.stderr


def test_landing_places_are_listed(s3: S3Bucket, tmp_path: Path) -> None:
    """Fault: a landing place in a bucket that does not exist was found valid."""
    failed = of_landing(tmp_path, "s3://no-such-bucket/a")
    assert "error [STORE_BUCKET_MISSING] The landing place of accounts" in failed.stderr
    assert "`no-such-bucket`" in failed.stderr
    assert "correct its name" in failed.stderr
    empty = of_landing(tmp_path, f"{s3.root}/landing")
    assert (empty.exit_code, "warning: accounts: There is no object below" in empty.stderr) == (0, True)
    s3.put("landing/a.jsonl", b"")
    there = of_landing(tmp_path, f"{s3.root}/landing")
    assert "Landing places that can be listed: accounts, tellers" in there.stdout
    s3.server.fail("GET", "list-type=2", status=403, code="AccessDenied", times=9)
    denied = of_landing(tmp_path, f"{s3.root}/landing")
    assert "error [STORE_DENIED] The landing place of accounts" in denied.stderr


def test_one_outage_is_told_once(tmp_path: Path, s3: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: each step of a run, each log and its alarms told the same outage."""
    make_pipeline(tmp_path, CONFIG.replace("store: store", f"store: {s3.address}"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    failed = CliRunner().invoke(app, ["run", "-c", str(tmp_path / "tidefold.yaml")])
    assert failed.exit_code == StorageError.exit_code
    assert failed.output.count("does not answer") == 1
    shown = CliRunner().invoke(app, ["status", "-c", str(tmp_path / "tidefold.yaml")])
    assert [shown.output.count(said) for said in ("accounts: [", "tellers: [", "Call again")] == [1, 1, 2]
