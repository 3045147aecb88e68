"""What object stores other than S3 do to landed files: replaced objects, odd names, refusals. Promises I23, I26, I30.

What all places share runs on a disk and in each store: see `place`. S3 has test_landing_in_s3.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from support.landing import record, text_of
from support.landing_places import OBJECT_STORES, LandingBucket
from tidefold.cli.app import app
from tidefold.compute.runners import Answer, Work, in_process
from tidefold.config import ConfigError, load_config
from tidefold.errors import InvalidInputError
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.inspect.waiting import measure_waiting
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.sources.landing import object_folder
from tidefold.sources.landing.folders import folder_at
from tidefold.sources.landing.name_ranges import split_names
from tidefold.wiring import open_pipeline

CSV = "{format: csv, path: '%s'}\n    order: [seq]\n    columns: {id: int, text: string, seq: long}"
HEAD = "id,text,seq\n"
PREFIX = "landing/items"


@pytest.fixture(params=[name for name in OBJECT_STORES if name != "s3"])
def bucket(request: pytest.FixtureRequest) -> LandingBucket:
    found: LandingBucket = request.getfixturevalue(request.param)
    return found


def begin(root: Path, address: str, store: str = "store") -> Pipeline:
    path = root / "tidefold.yaml"
    path.write_text(f"version: 1\nstore: {store}\nlogs:\n  items:\n    key: [id]\n    source: {CSV % address}\n")
    return open_pipeline(path)


def put(bucket: LandingBucket, name: str, data: str) -> None:
    bucket.put(f"{PREFIX}/{name}", data.encode())


def take(pipeline: Pipeline, run: Callable[[Work, Sequence[str]], list[Answer]] = in_process) -> Outcome:
    [outcome] = ingest(pipeline, ["items"], run)
    return outcome


def replacing(bucket: LandingBucket, name: str, data: str | None) -> Callable[[Work, Sequence[str]], list[Answer]]:
    """A runner before whose tasks an object is replaced, or deleted."""

    def run(work: Work, tasks: Sequence[str]) -> list[Answer]:
        if data is None:
            bucket.delete(f"{PREFIX}/{name}")
        else:
            put(bucket, name, data)
        return in_process(work, tasks)

    return run


def test_a_large_object_is_read_by_parts(tmp_path: Path, bucket: LandingBucket) -> None:
    pipeline = begin(tmp_path, f"{bucket.root}/{PREFIX}")
    put(bucket, "big.csv", HEAD + "".join(f"{i},{'x' * 1000},{i}\n" for i in range(20_000)))
    assert take(pipeline).facts["changes"] == 20_000


@pytest.mark.parametrize("data", [f"{HEAD}1,b,1\n", f"{HEAD}1,a,1\n2,b,2\n"], ids=["same length", "longer"])
def test_an_object_that_is_replaced_after_the_listing_is_taken_by_the_next_run(
    tmp_path: Path, bucket: LandingBucket, data: str
) -> None:
    pipeline = begin(tmp_path, f"{bucket.root}/{PREFIX}")
    put(bucket, "a.csv", f"{HEAD}1,a,1\n")
    outcome = take(pipeline, replacing(bucket, "a.csv", data))
    assert (outcome.status, outcome.error_code) == ("error", "LANDED_CHANGED")
    assert take(pipeline).facts["changes"] == data.count("\n") - 1


def test_an_object_that_vanishes_after_the_listing_is_reported(tmp_path: Path, bucket: LandingBucket) -> None:
    pipeline = begin(tmp_path, f"{bucket.root}/{PREFIX}")
    put(bucket, "a.csv", f"{HEAD}1,a,1\n")
    put(bucket, "b.csv", f"{HEAD}2,b,2\n")
    outcome = take(pipeline, replacing(bucket, "a.csv", None))
    assert (outcome.facts["changes"], outcome.facts["not_taken"]) == (1, {"LANDED_GONE": 1})


def test_an_object_with_other_bytes_of_the_same_length_is_changed(tmp_path: Path, bucket: LandingBucket) -> None:
    pipeline = begin(tmp_path, f"{bucket.root}/{PREFIX}")
    put(bucket, "a.csv", f"{HEAD}1,a,1\n")
    take(pipeline)
    assert pipeline.ledger("items").read().landed[0].etag
    put(bucket, "a.csv", f"{HEAD}1,b,1\n")
    assert take(pipeline).error_code == "LANDED_CHANGED"


def test_what_waits_is_measured_for_a_run_that_begins_when_enough_does(tmp_path: Path, bucket: LandingBucket) -> None:
    pipeline = begin(tmp_path, f"{bucket.root}/{PREFIX}")
    put(bucket, "a.csv", f"{HEAD}1,a,1\n")
    landed = measure_waiting(pipeline, ["items"])
    assert (landed.files, landed.bytes) == (1, len(f"{HEAD}1,a,1\n"))
    take(pipeline)
    assert measure_waiting(pipeline, ["items"]).files == 0


def test_a_prefix_without_objects_is_missing_until_its_folder_is_marked(tmp_path: Path, bucket: LandingBucket) -> None:
    address = f"{bucket.root}/{PREFIX}"
    pipeline = begin(tmp_path, address)
    bucket.put(f"{PREFIX}2/a.csv", f"{HEAD}1,a,1\n".encode())
    outcome = take(pipeline)
    assert outcome.error_code == "LANDING_MISSING"
    hint = str(outcome.error.hint)
    mark = hint.partition(f"create an empty object `{address}/")[2].partition("`")[0]
    put(bucket, mark, "")
    assert take(pipeline).status == "nothing"


def test_a_bucket_that_is_missing_is_no_empty_one(tmp_path: Path, bucket: LandingBucket) -> None:
    pipeline = begin(tmp_path, f"{bucket.root.replace('test-', 'none-')}/{PREFIX}")
    assert take(pipeline).error_code in ("AZURE_CONTAINER_MISSING", "GCS_BUCKET_MISSING")


ODD = (
    "a b.csv", "ä+%20.csv", "a?b=c.csv", "a#b.csv", "quote'.csv", "$(id).csv", "sub folder/2026-11-01/a.csv", "~.csv",
    "*.csv",
)  # fmt: skip


def test_odd_names_are_taken_as_they_are(tmp_path: Path, bucket: LandingBucket) -> None:
    pipeline = begin(tmp_path, f"{bucket.root}/{PREFIX}")
    for number, name in enumerate(ODD):
        put(bucket, name, f"{HEAD}{number},a,1\n")
    for name in ("_SUCCESS", ".hidden.csv", "_temporary/0/a.csv", "x.csv.tmp"):
        put(bucket, name, "")
    put(bucket, "readme.txt", "x")
    outcome = take(pipeline)
    assert (outcome.facts["changes"], outcome.facts["not_taken"]) == (len(ODD), {"FOREIGN_FILE": 1})
    assert sorted(one.name for one in pipeline.ledger("items").read().landed) == sorted(ODD)


def test_a_listing_of_many_pages_is_whole(bucket: LandingBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("azure_folder", "gcs_folder"):
        with suppress(ModuleNotFoundError):
            monkeypatch.setattr(importlib.import_module(f"tidefold.sources.landing.{module}"), "PAGE", 2)
    monkeypatch.setattr(object_folder, "split_names", lambda known: split_names(known, 1))
    names = [f"{number}.csv" for number in range(5)]
    for name in names:
        put(bucket, name, "")
    assert [one.name for one in folder_at(f"{bucket.root}/{PREFIX}").list_files()] == names
    # A log that has taken them lists from a name on.
    assert [one.name for one in folder_at(f"{bucket.root}/{PREFIX}").list_files(names)] == names


def test_store_and_landing_in_one_bucket_lie_apart(tmp_path: Path, bucket: LandingBucket) -> None:
    address = f"{bucket.root}/{PREFIX}"
    with pytest.raises(ConfigError) as caught:
        begin(tmp_path, address, f"{bucket.root}/landing")
    assert caught.value.code == "FOLDERS_OVERLAP"
    pipeline = begin(tmp_path, address, f"{bucket.root}/store")
    put(bucket, "a.csv", f"{HEAD}1,a,1\n")
    assert take(pipeline).facts["changes"] == 1


def test_init_reads_what_lies_in_the_bucket_and_its_file_works(
    tmp_path: Path, bucket: LandingBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i},a{i},2026-11-01T00:00:{i:02d}Z\n" for i in range(10))
    put(bucket, "orders/2026-11-01.csv", f"id,text,updated_at\n{rows}")
    put(bucket, "items/items+0+0000000000.jsonl", text_of([record(i, i, topic="items") for i in range(5)]).decode())
    address = f"{bucket.root}/{PREFIX}"
    table, feed = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}), {"delta.enableChangeDataFeed": "true"}
    write_deltalake(f"{address}/people", table, configuration=feed, storage_options=folder_at(address).options)
    done = CliRunner().invoke(app, ["init", address])
    assert done.exit_code == 0, done.output
    config = load_config(tmp_path / "tidefold.yaml")
    found = {log.id: (log.source.format, log.source.address) for log in config.logs.values() if log.source}
    assert found == {
        "items": ("debezium-json", f"{address}/items"),
        "orders": ("csv", f"{address}/orders"),
        "people": ("delta-cdf", f"{address}/people"),
    }
    outcomes = ingest(open_pipeline(tmp_path / "tidefold.yaml"), list(found), in_process)
    assert [(one.status, one.facts["changes"]) for one in outcomes] == [("taken", 5), ("taken", 10), ("taken", 3)]


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("abfss://user:secret@account1.dfs.core.windows.net/x", "CONFIG_SECRET"),
        ("abfss://data@evil.example.com/secret", "CONFIG_PATH"),
        ("abfs://data/a?sig=secret", "CONFIG_PATH"),
        ("gs://user:secret@bucket/x", "CONFIG_SECRET"),
        ("gs://bucket/a?secret=1", "CONFIG_PATH"),
    ],
)
def test_addresses_that_are_refused_and_not_repeated(tmp_path: Path, address: str, code: str) -> None:
    path = tmp_path / "tidefold.yaml"
    path.write_text(f"version: 1\nstore: store\nlogs:\n  items:\n    key: [id]\n    source: {CSV % address}\n")
    with pytest.raises(InvalidInputError) as caught:
        load_config(path)
    assert code in str(caught.value)
    assert "secret" not in str(caught.value).replace("CONFIG_SECRET", "")


def test_one_container_by_two_names_is_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account1")
    with pytest.raises(ConfigError) as caught:
        begin(tmp_path, "abfs://data/landing/items", "abfss://data@account1.dfs.core.windows.net/landing")
    assert caught.value.code == "FOLDERS_OVERLAP"
