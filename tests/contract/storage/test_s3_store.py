"""What only S3 can do to a store: lost answers, refusals, pages, uploads in parts. Promises I2, I11, I23, I26.

The suite that all stores share is in test_store.py. No real S3 was at hand: the server is moto (see s3_server.py).
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.object_stores import race_processes, require_made, run_apart, write_name
from support.person import CONFIG
from support.s3_server import S3Bucket
from tidefold.cli.app import app
from tidefold.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    StoreRefusedError,
    TidefoldError,
    UnknownOutcomeError,
)
from tidefold.storage import SizedStore, Store, cloud, cloud_client, link_data_file, open_store
from tidefold.storage.cloud_address import CloudAddress
from tidefold.storage.cloud_client import PART
from tidefold.storage.outage import PATIENCE
from tidefold.storage.traffic import traffic

HERE = Path("/")


@pytest.fixture
def store(s3: S3Bucket) -> Store:
    return open_store(s3.address, HERE)


def names(store: Store, unfinished: bool = False) -> list[str]:
    return [entry.path for entry in store.list("", unfinished)]


def big(parts: float) -> bytes:
    return os.urandom(1 << 10) * int(parts * (PART >> 10))


# Lost answers


@pytest.mark.usefixtures("patient")
def test_a_put_that_was_sent_twice_has_won_its_race(s3: S3Bucket, store: Store) -> None:
    s3.server.fail("PUT", "/mine", lost=True)
    store.put_if_absent("mine", b"bytes")
    puts = [address for method, address in s3.server.requests() if method == "PUT" and "/mine" in address]
    assert len(puts) == 2  # The second one was answered: taken. By the first one.
    assert store.read("mine") == b"bytes"


@pytest.mark.parametrize("size", [0, 5, 2 * PART + 1])
def test_a_lost_answer_is_settled_by_asking_whose_object_it_is(s3: S3Bucket, store: Store, size: int) -> None:
    s3.server.fail("PUT", "/mine", lost=True)
    data = b"x" * size
    store.put_if_absent("mine", data)
    assert store.read("mine") == data
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("mine", data)


def test_a_lost_answer_that_nobody_can_settle_is_unknown(s3: S3Bucket, store: Store) -> None:
    s3.server.fail("PUT", "/mine", lost=True, times=9)
    s3.server.fail("HEAD", "/mine", status=503, code="SlowDown", times=9)
    with pytest.raises(UnknownOutcomeError):
        store.put_if_absent("mine", b"bytes")
    s3.server.heal()
    assert store.read("mine") == b"bytes"


@pytest.mark.parametrize(("status", "code"), [(500, "InternalError"), (503, "SlowDown"), (408, "RequestTimeout")])
def test_a_put_that_may_still_arrive_is_unknown_though_nothing_is_there(
    s3: S3Bucket, store: Store, status: int, code: str
) -> None:
    s3.server.fail("PUT", "/mine", status=status, code=code, times=9)
    with pytest.raises(UnknownOutcomeError):
        store.put_if_absent("mine", b"bytes")
    s3.server.heal()
    assert names(store) == []


@pytest.mark.usefixtures("patient")
def test_a_refusal_of_the_second_try_says_nothing_of_the_first(s3: S3Bucket, store: Store) -> None:
    s3.server.fail("PUT", "/mine", lost=True)
    s3.server.fail("PUT", "/mine", status=403, code="ExpiredToken")
    store.put_if_absent("mine", b"bytes")
    assert [method for method, _ in s3.server.requests()] == ["PUT", "PUT", "HEAD"]
    assert store.read("mine") == b"bytes"


def test_a_refused_put_is_known_to_be_undone_where_the_name_can_be_looked_at(s3: S3Bucket, store: Store) -> None:
    s3.server.fail("PUT", "/mine", status=403, code="AccessDenied", times=9)
    with pytest.raises(StorageError) as refused:
        store.put_if_absent("mine", b"bytes")
    assert (type(refused.value), refused.value.code) == (StoreRefusedError, "STORE_DENIED")
    s3.server.fail("HEAD", "/mine", status=403, code="AccessDenied")
    with pytest.raises(UnknownOutcomeError) as refused:
        store.put_if_absent("mine", b"bytes")
    assert refused.value.code == "STORE_DENIED"


def test_a_lost_answer_after_a_rival_is_a_lost_race(s3: S3Bucket, store: Store) -> None:
    s3.client.put_object(Bucket=s3.name, Key="a/store/mine", Body=b"bytes")  # The same bytes, another's put.
    s3.server.fail("PUT", "/mine", lost=True, times=9)
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("mine", b"bytes")


def test_a_server_that_is_not_there_is_no_absence(s3: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    store = open_store(s3.address, HERE)
    with pytest.raises(UnknownOutcomeError):
        store.put_if_absent("x", b"")
    for call in (lambda: store.read("x"), lambda: store.list("")):
        with pytest.raises(StorageError) as failed:
            call()
        assert "AWS_ENDPOINT_URL" in failed.value.hint


# Conflicts


def test_a_conflict_with_a_put_under_way_is_sent_again(s3: S3Bucket, store: Store) -> None:
    s3.server.fail("PUT", "/x", status=409, code="ConditionalRequestConflict", times=2)
    store.put_if_absent("x", b"bytes")
    assert store.read("x") == b"bytes"


def test_conflicts_without_end_are_named_and_their_outcome_is_unknown(s3: S3Bucket, store: Store) -> None:
    s3.server.fail("PUT", "/x", status=409, code="ConditionalRequestConflict", times=5)
    with pytest.raises(UnknownOutcomeError) as busy:
        store.put_if_absent("x", b"bytes")
    assert (busy.value.code, busy.value.transient) == ("STORE_CONFLICT", True)


# Refusals are never absence


def _every_call(store: Store) -> dict[str, Callable[[], Any]]:
    def opened() -> None:
        with store.open("there") as stream:
            stream.read()

    return {
        "read": lambda: store.read("there"),
        "read a part": lambda: store.read("there", 1, 2),
        "open": opened,
        "put": lambda: store.put_if_absent("new", b""),
        "put parts": lambda: store.put_if_absent("new", big(1.5)),
        "link": lambda: store.link("there", "copy"),
        "list": lambda: store.list("none"),
        "list unfinished": lambda: store.list("none", unfinished=True),
        "delete": lambda: store.delete(["there"]),
    }


@pytest.mark.parametrize("call", _every_call(None))  # type: ignore[arg-type]
@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (503, "SlowDown")])
def test_refused_is_an_error_of_the_store_whatever_is_asked(
    s3: S3Bucket, store: Store, call: str, status: int, code: str
) -> None:
    store.put_if_absent("there", b"bytes")
    for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        s3.server.fail(method, "/", status=status, code=code, times=99)
    with pytest.raises(StorageError) as failed:
        _every_call(store)[call]()
    assert not isinstance(failed.value, AlreadyExistsError)
    if status == 403:
        assert failed.value.code == "STORE_DENIED"
    assert failed.value.hint
    s3.server.heal()
    assert store.read("there") == b"bytes"


@pytest.mark.parametrize("call", _every_call(None))  # type: ignore[arg-type]
def test_a_missing_bucket_is_not_an_empty_one(s3: S3Bucket, call: str) -> None:
    store = open_store("s3://never-made-bucket/a", HERE)
    with pytest.raises(StorageError) as failed:
        _every_call(store)[call]()
    assert failed.value.code == "STORE_BUCKET_MISSING"


def test_a_read_that_fails_in_the_middle_is_typed_and_the_readers_own_errors_are_left(
    s3: S3Bucket, store: Store
) -> None:
    store.put_if_absent("there", big(1))
    s3.server.fail("GET", "/there", status=403, code="ExpiredToken", times=99)
    with pytest.raises(StorageError, match="ExpiredToken"), store.open("there") as stream:
        stream.read()
    s3.server.heal()
    with pytest.raises(FileNotFoundError), store.open("there"):
        raise FileNotFoundError("of the reader")


def test_a_folder_is_not_opened_as_an_empty_file(store: Store) -> None:
    store.put_if_absent("folder/file", b"bytes")
    with pytest.raises(NotFoundError), store.open("folder"):
        pass


def test_no_credentials_are_named(s3: S3Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_REGION", "eu-central-1")  # Another client than the other tests': one is kept a process.
    for call in (lambda s: s.read("x"), lambda s: s.list(""), lambda s: s.put_if_absent("x", b"")):
        with pytest.raises(StorageError) as failed:
            call(open_store(s3.address, HERE))
        assert failed.value.code == "STORE_CREDENTIALS"


# Lists and deletes of many


@pytest.mark.rotates(3)
def test_more_than_a_page_is_listed_and_deleted_whole(s3: S3Bucket, store: Store) -> None:
    wanted = [f"f/{number:05d}" for number in range(1005)]
    client = s3.client
    for path in wanted:
        client.put_object(Bucket=s3.name, Key=f"a/store/{path}", Body=b"")
    s3.client.put_object(Bucket=s3.name, Key="a/store/f/", Body=b"")  # As browsers of buckets make a folder.
    s3.client.put_object(Bucket=s3.name, Key="a/storeroom", Body=b"")
    assert names(store) == wanted
    s3.server.fail("GET", "continuation-token", status=503, code="SlowDown")
    with pytest.raises(StorageError):
        store.list("f")
    store.delete(wanted)
    assert names(store) == []
    assert s3.client.list_objects_v2(Bucket=s3.name)["KeyCount"] == 2


def test_a_listing_that_breaks_off_is_an_error(s3: S3Bucket, store: Store) -> None:
    """A page that announces more names and does not say where they begin is the end: see test_cloud_store.py."""
    s3.server.fail("GET", "list-type=2", status=200, code="OK", body="<ListBucketResult><IsTruncated>true")
    with pytest.raises(StorageError):
        store.list("")


def test_what_others_write_and_delete_is_seen_at_once(s3: S3Bucket, store: Store) -> None:
    assert names(store) == []
    s3.client.put_object(Bucket=s3.name, Key="a/store/x", Body=b"1")
    assert (names(store), store.read("x")) == (["x"], b"1")
    s3.client.delete_object(Bucket=s3.name, Key="a/store/x")
    assert names(store) == []
    with pytest.raises(NotFoundError):
        store.read("x")


def test_objects_that_were_not_deleted_are_named(s3: S3Bucket, store: Store) -> None:
    refused = "<Error><Key>a/store/two</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    s3.server.fail("POST", "delete", status=200, code="OK", body=f"<DeleteResult>{refused}</DeleteResult>")
    with pytest.raises(StorageError, match=r"a/store/two.*AccessDenied"):
        store.delete(["one", "two"])


def test_an_absent_object_hides_no_other_that_is_to_be_deleted(s3: S3Bucket, store: Store) -> None:
    store.put_if_absent("two", b"")
    absent = "<Error><Key>a/store/one</Key><Code>NoSuchKey</Code><Message>no</Message></Error>"
    s3.server.fail("POST", "delete", status=200, code="OK", body=f"<DeleteResult>{absent}</DeleteResult>", times=2)
    store.delete(["one", "two"])
    assert names(store) == []


def test_sizes_of_few_files_in_a_large_folder_cost_no_listing_of_it(
    s3: S3Bucket, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(store, SizedStore)
    for number in range(6):
        store.put_if_absent(f"f/{number}", b"x" * number)
    monkeypatch.setattr(cloud_client, "PAGE", 2)
    s3.server.heal()
    found = store.find_sizes("f", ["f/1", "f/4", "f/5", "f/absent"])
    assert {path: found.get(path) for path in ("f/1", "f/4", "f/5", "f/absent")} == {
        "f/1": 1,
        "f/4": 4,
        "f/5": 5,
        "f/absent": None,
    }
    assert sorted(method for method, _ in s3.server.requests()) == ["GET", "HEAD", "HEAD", "HEAD"]
    monkeypatch.setattr(cloud_client, "PAGE", 1000)
    s3.server.heal()
    assert store.find_sizes("f", ["f/4", "f/5"])["f/4"] == 4
    assert store.find_sizes("f", []) == {}
    assert [method for method, _ in s3.server.requests()] == ["GET"]


def test_a_refused_look_at_a_file_is_no_absence(s3: S3Bucket, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(store, SizedStore)
    for number in range(3):
        store.put_if_absent(f"f/{number}", b"x")
    monkeypatch.setattr(cloud_client, "PAGE", 1)
    s3.server.fail("HEAD", "/f/2", status=403, code="AccessDenied")
    with pytest.raises(StorageError):
        store.find_sizes("f", ["f/2"])


# Uploads in parts


def test_a_large_stream_that_fails_leaves_no_parts(s3: S3Bucket, store: Store) -> None:
    def write(fail: Callable[[], None]) -> None:
        with store.create("half") as stream:
            stream.write(big(1.5))
            fail()
            stream.write(big(1.5))

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(interrupt)
    with pytest.raises(StorageError):
        write(lambda: s3.server.fail("PUT", "partNumber", status=403, code="AccessDenied", times=9))
    s3.server.heal()
    assert names(store, unfinished=True) == []


def test_an_upload_that_somebody_ended_is_an_error_of_the_store(s3: S3Bucket, store: Store) -> None:
    s3.server.fail("POST", "/x?uploadId=", status=404, code="NoSuchUpload")
    with pytest.raises(StorageError, match="NoSuchUpload"), store.create("x") as stream:
        stream.write(big(1.5))
    assert names(store, unfinished=True) == []


# Links


@pytest.mark.parametrize("size", [0, 1, 12 << 20])
def test_a_link_is_a_copy_in_the_server_with_the_same_bytes(
    s3: S3Bucket, store: Store, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(cloud, "COPIED", 5 << 20)  # The largest one would need an object of gigabytes.
    data = os.urandom(size)
    store.put_if_absent("one", data)
    s3.server.heal()
    assert store.link("one", "two") == "copy"
    passed = [address for method, address in s3.server.requests() if method == "GET"]
    assert bool(passed) == (size > cloud.COPIED)
    assert s3.client.get_object(Bucket=s3.name, Key="a/store/two")["Body"].read() == data
    assert store.link("one", "two") == "kept"
    assert names(store, unfinished=True) == ["one", "two"]


def test_a_link_whose_answer_is_lost_is_settled(s3: S3Bucket, store: Store) -> None:
    store.put_if_absent("one", b"bytes")
    s3.server.fail("POST", "/two?uploadId=", lost=True)
    assert store.link("one", "two") == "copy"
    assert store.read("two") == b"bytes"


def test_a_link_that_fails_leaves_no_parts(s3: S3Bucket, store: Store) -> None:
    store.put_if_absent("one", b"bytes")
    s3.server.fail("PUT", "partNumber", status=403, code="AccessDenied")
    with pytest.raises(StorageError):
        store.link("one", "two")
    assert names(store, unfinished=True) == ["one"]


# Data files: names that only these bytes get


def test_a_data_file_is_copied_with_one_request(s3: S3Bucket, store: Store) -> None:
    store.put_if_absent("one.parquet", b"bytes")
    s3.server.heal()
    assert link_data_file(store, "one.parquet", "two.parquet", 5) == "copy"
    assert [method for method, _ in s3.server.requests()] == ["PUT"]
    assert store.read("two.parquet") == b"bytes"
    assert names(store, unfinished=True) == ["one.parquet", "two.parquet"]


@pytest.mark.parametrize("size", [0, 12 << 20])
def test_an_empty_or_large_data_file_is_copied_as_a_link_is(
    s3: S3Bucket, store: Store, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(cloud, "COPIED", 5 << 20)
    data = os.urandom(size)
    store.put_if_absent("one", data)
    assert link_data_file(store, "one", "two", size) == "copy"
    assert store.read("two") == data


def test_a_copy_whose_answer_is_lost_is_settled_and_one_of_nothing_is_not_found(s3: S3Bucket, store: Store) -> None:
    store.put_if_absent("one", b"bytes")
    s3.server.fail("PUT", "/two", lost=True)
    assert link_data_file(store, "one", "two", 5) == "copy"
    assert store.read("two") == b"bytes"
    with pytest.raises(NotFoundError):
        link_data_file(store, "none", "three", 5)


# Outages


@pytest.fixture
def patient(s3: S3Bucket) -> None:
    """A client that tries again at once, for as long as it likes."""
    outage = cloud_client.connect(CloudAddress.parse(s3.address)[0]).outage
    outage.patience, outage.draw = PATIENCE, lambda: 0.0


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("call", _every_call(None))  # type: ignore[arg-type]
def test_an_outage_is_outlasted_by_every_call(s3: S3Bucket, store: Store, call: str) -> None:
    store.put_if_absent("there", b"bytes")
    s3.server.heal()
    for method in ("GET", "PUT", "POST", "HEAD"):
        s3.server.fail(method, "", status=503, code="SlowDown", times=7)
    _every_call(store)[call]()
    assert len(s3.server.requests()) >= 8


@pytest.mark.usefixtures("patient")
def test_a_refusal_is_not_sent_again(s3: S3Bucket, store: Store) -> None:
    s3.server.heal()
    s3.server.fail("GET", "/x", status=403, code="AccessDenied", times=9)
    with pytest.raises(StorageError):
        store.read("x")
    assert len(s3.server.requests()) == 1


def test_requests_and_bytes_are_counted(s3: S3Bucket, store: Store) -> None:
    before = replace(traffic)
    store.put_if_absent("one", b"12345")
    assert store.read("one") == b"12345"
    assert store.list("") != []
    assert traffic.requests - before.requests == 3
    assert (traffic.sent - before.sent, traffic.received - before.received) == (5, 5)


# Threads and processes


def test_of_many_threads_that_stream_and_link_to_a_name_one_wins(s3: S3Bucket, store: Store) -> None:
    sources = [f"source-{n}" for n in range(8)]
    for source in sources:
        store.put_if_absent(source, source.encode())

    def link(source: str) -> bool:
        try:
            return store.link(source, "race") == "copy"
        except AlreadyExistsError:
            return False

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        linked = [pool.submit(link, source) for source in sources]
        streamed = [pool.submit(write_name, s3.address, "race", n) for n in range(8)]
        assert sum(f.result() for f in [*linked, *streamed]) == 1


@pytest.mark.rotates(3)
def test_of_many_processes_one_wins_each_name(s3: S3Bucket) -> None:
    run_apart(race_processes, s3.address, "spawn")


# Addresses


@pytest.mark.parametrize(
    "address",
    [
        "s3://key:sEcrEt@bucket/x",
        "s3://key:sEc/rEt@bucket/x",
        "s3://key:sEcrEt/x",
        "s3://",
        "s3:bucket",
        "s3:///x",
        "s3://Bucket_1/x",
        "s3://bucket/../x",
        "s3://bucket/a//b",
        "s3://bucket/a?versionId=sEcrEt",
        "s3://bucket/a%20b",
        "s3://bucket/a#b",
        "S3://bucket/a",
    ],
)
def test_an_address_with_a_secret_or_a_trap_is_refused_and_never_repeated(address: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        open_store(address, HERE)
    assert refused.value.code == ("STORE_SECRET" if "@" in address else "STORE_ADDRESS")
    assert "sEc" not in str(refused.value)


@pytest.mark.parametrize("address", ["s3://bucket", "s3://bucket/", "s3://bucket/a/b", "s3://bucket/a/b/"])
def test_the_uri_is_an_address_of_the_same_store(s3: S3Bucket, address: str) -> None:
    store = open_store(address, HERE)
    assert store.uri("") == address.rstrip("/")
    assert open_store(store.uri(""), HERE).uri("x/y") == store.uri("x/y") == f"{address.rstrip('/')}/x/y"


def test_the_options_of_readers_hold_no_secret(s3: S3Bucket, store: Store) -> None:
    options = store.options()
    assert options["aws_endpoint"] == s3.server.url
    assert options["aws_allow_http"] == "true"
    assert "testing" not in str(options)


def test_a_whole_bucket_can_be_a_store(s3: S3Bucket) -> None:
    store = open_store(f"s3://{s3.name}", HERE)
    store.put_if_absent("a/x", b"1")
    assert names(store) == ["a/x"]
    assert s3.client.list_objects_v2(Bucket=s3.name)["Contents"][0]["Key"] == "a/x"


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a/../../out", "a?versionId=1"])
def test_no_call_leaves_the_root(s3: S3Bucket, store: Store, path: str) -> None:
    for call in (
        lambda: store.put_if_absent(path, b""),
        lambda: store.link("one", path),
        lambda: store.list(path),
        lambda: store.delete(["fine", path]),
        lambda: store.uri(path),
    ):
        with pytest.raises(InvalidInputError):
            call()
    assert s3.server.requests() == []


def test_errors_cross_process_borders(s3: S3Bucket, store: Store) -> None:
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        error = pool.submit(store.read, "nothing").exception()
    assert isinstance(error, TidefoldError)
    assert isinstance(error, NotFoundError)


def test_a_service_without_conditional_writes_is_named_at_once(
    s3: S3Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`validate --online` is the command that is made to find it."""
    monkeypatch.delenv("AWS_MAX_ATTEMPTS")
    (tmp_path / "tidefold.yaml").write_text(CONFIG.replace("var/store", s3.address))
    s3.server.fail("PUT", "/probes/", status=501, code="NotImplemented", times=99)
    done = CliRunner().invoke(app, ["validate", "--online", "-c", str(tmp_path / "tidefold.yaml")])
    assert done.exit_code == StoreRefusedError.exit_code, done.output
    assert "STORE_UNFIT" in done.output
    assert "If-None-Match" in done.output
    assert len([1 for method, _ in s3.server.requests() if method == "PUT"]) == 1


def test_a_snapshots_table_whose_commit_lost_its_answer_is_made(s3: S3Bucket, store: Store) -> None:
    s3.server.fail("PUT", "_delta_log/00000000000000000000.json", lost=True)
    require_made(store)


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_hints_name_the_variable_of_the_endpoint_that_is_set(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for other in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "http://127.0.0.1:9/path")
    place = CloudAddress.parse("s3://bucket/a")[0]
    assert all(
        f"{name} " in f"{text} ".replace(",", " ") for text in (place.service.hint, place.service.host, place.doubt)
    )


def test_a_wrong_secret_key_is_no_missing_right(s3: S3Bucket, store: Store) -> None:
    s3.server.fail("GET", "/x", status=403, code="SignatureDoesNotMatch")
    with pytest.raises(StorageError, match="The secret key is wrong") as told:
        store.read("x")
    assert "s3:GetObject" not in told.value.hint


def test_a_wrong_region_names_the_setting_and_is_no_outage(s3: S3Bucket, store: Store) -> None:
    s3.server.fail("GET", "/x", status=400, code="AuthorizationHeaderMalformed")
    with pytest.raises(StorageError, match="S3 refuses") as told:
        store.read("x")
    assert (told.value.hint, told.value.exit_code) == ("Set AWS_REGION.", 2)
