"""What only S3 can do to landed files: pages, replaced objects, refusals, odd keys. Promises I23, I26, I30.

What all places share runs on a disk and in S3: see `place`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from support.counted import check
from support.landing import COUNTS, record, text_of
from support.s3_server import S3Bucket
from tidefold.compute.runners import TaskAnswer, TaskWork, in_process
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.inspect.status import status
from tidefold.wiring import open_pipeline

CSV = "{format: csv, path: '%s'}\n    order: [seq]\n    columns: {id: int, text: string, seq: long}"
KAFKA = "{format: debezium-json, connector: postgresql, path: '%s'}\n    columns: {id: int, text: string}"
HEAD = "id,text,seq\n"
PREFIX = "landing/shop.public.items"


def begin(root: Path, s3: S3Bucket, source: str = CSV, store: str = "store") -> Pipeline:
    address = f"s3://{s3.name}/{PREFIX}"
    path = root / "tidefold.yaml"
    path.write_text(f"version: 1\nstore: {store}\nlogs:\n  items:\n    key: [id]\n    source: {source % address}\n")
    return open_pipeline(path)


def put(s3: S3Bucket, name: str, data: bytes | str) -> None:
    s3.client.put_object(Bucket=s3.name, Key=f"{PREFIX}/{name}", Body=data.encode() if isinstance(data, str) else data)


def put_records(s3: S3Bucket, start: int, count: int = 1) -> None:
    records = [record(start + i, start + i) for i in range(count)]
    put(s3, f"shop.public.items+0+{start:010d}.jsonl", text_of(records))


def take(pipeline: Pipeline, run: Callable[[TaskWork, Sequence[str]], list[TaskAnswer]] = in_process) -> Outcome:
    [outcome] = ingest(pipeline, ["items"], run)
    if pipeline.ledger("items").exists():
        for landed in pipeline.ledger("items").read().landed:
            assert landed.records == sum(getattr(landed, name) for name in COUNTS), landed
    return outcome


def requests(s3: S3Bucket) -> Counter[str]:
    """What was asked of the bucket since the last `heal`, by kind."""
    kinds = {"GET": "get", "HEAD": "head", "PUT": "put"}
    found = [(m, a) for m, a in s3.server.requests() if f"/{s3.name}" in a]
    return Counter("list" if "list-type=2" in address else kinds.get(method, method) for method, address in found)


def counted(s3: S3Bucket, act: Callable[[], object]) -> Counter[str]:
    s3.server.heal()
    act()
    return requests(s3)


def test_what_runs_ask_of_s3(tmp_path: Path, s3: S3Bucket) -> None:
    """One request lists 1,000 objects. Each file is read once, and the newest one is looked at before."""
    pipeline = begin(tmp_path, s3, KAFKA)
    for start in range(0, 30, 3):
        put_records(s3, start, 3)
    check("S3 landing: 10 files of one partition", counted(s3, lambda: take(pipeline)))
    check("S3 landing: nothing new", counted(s3, lambda: take(pipeline)))
    put_records(s3, 30)
    check("S3 landing: one more file", counted(s3, lambda: take(pipeline)))


def test_files_of_any_name_are_looked_at_once_and_read_once(tmp_path: Path, s3: S3Bucket) -> None:
    pipeline = begin(tmp_path, s3)
    for day in range(1, 11):
        put(s3, f"2026-11-{day:02d}.csv", f"{HEAD}{day},a,{day}\n")
    check("S3 landing: 10 CSV files", counted(s3, lambda: take(pipeline)))
    check("S3 landing: nothing new of 10 CSV files", counted(s3, lambda: take(pipeline)))


def test_a_large_object_is_read_by_parts(tmp_path: Path, s3: S3Bucket) -> None:
    pipeline = begin(tmp_path, s3)
    put(s3, "big.csv", HEAD + "".join(f"{i},{'x' * 1000},{i}\n" for i in range(20_000)))
    found = counted(s3, lambda: take(pipeline))
    assert pipeline.ledger("items").read().landed[0].changes == 20_000
    # 20 MB in parts of 9 MB, for the look at its end and for the rows.
    # The second listing looks for tables, before the first file of the log.
    assert found == {"list": 2, "get": 6}


def test_a_listing_that_breaks_off_ingests_nothing(tmp_path: Path, s3: S3Bucket) -> None:
    """A file that is not seen may come before one that is."""
    pipeline = begin(tmp_path, s3, KAFKA)
    put_records(s3, 0)
    s3.server.fail("GET", "list-type=2", status=500, code="InternalError", times=9)
    outcome = take(pipeline)
    assert (outcome.status, outcome.error_code) == ("error", "STORAGE")
    assert not pipeline.ledger("items").exists()
    s3.server.heal()
    assert take(pipeline).facts["changes"] == 1


@pytest.mark.parametrize(
    ("status_", "code", "expected"),
    [(403, "AccessDenied", "STORE_DENIED"), (404, "NoSuchBucket", "STORE_BUCKET_MISSING")],
)
def test_a_bucket_that_cannot_be_listed_is_no_empty_one(
    tmp_path: Path, s3: S3Bucket, status_: int, code: str, expected: str
) -> None:
    pipeline = begin(tmp_path, s3)
    s3.server.fail("GET", "list-type=2", status=status_, code=code, times=9)
    s3.server.fail("HEAD", s3.name, status=status_, code=code, times=9)
    assert take(pipeline).error_code == expected


def replacing(s3: S3Bucket, name: str, data: str | None) -> Callable[[TaskWork, Sequence[str]], list[TaskAnswer]]:
    """A runner before whose tasks an object is replaced, or deleted."""

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        if data is None:
            s3.client.delete_object(Bucket=s3.name, Key=f"{PREFIX}/{name}")
        else:
            put(s3, name, data)
        return in_process(work, tasks)

    return run


@pytest.mark.parametrize("data", [f"{HEAD}1,b,1\n", f"{HEAD}1,a,1\n2,b,2\n"], ids=["same length", "longer"])
def test_an_object_that_is_replaced_after_the_listing_is_taken_by_the_next_run(
    tmp_path: Path, s3: S3Bucket, data: str
) -> None:
    pipeline = begin(tmp_path, s3)
    put(s3, "a.csv", f"{HEAD}1,a,1\n")
    outcome = take(pipeline, replacing(s3, "a.csv", data))
    assert (outcome.status, outcome.error_code) == ("error", "LANDED_CHANGED")
    assert "Run ingest again" in str(outcome.error.hint)
    assert take(pipeline).facts["changes"] == data.count("\n") - 1


def test_an_object_that_vanishes_after_the_listing_is_reported(tmp_path: Path, s3: S3Bucket) -> None:
    pipeline = begin(tmp_path, s3)
    put(s3, "a.csv", f"{HEAD}1,a,1\n")
    put(s3, "b.csv", f"{HEAD}2,b,2\n")
    outcome = take(pipeline, replacing(s3, "a.csv", None))
    assert (outcome.facts["changes"], outcome.facts["not_taken"]) == (1, {"LANDED_GONE": 1})
    assert (outcome.status, outcome.error_code) == ("incomplete", "LANDED_GONE"), "no later run sees it"


def test_an_object_that_is_replaced_beside_news_is_no_failure(tmp_path: Path, s3: S3Bucket) -> None:
    pipeline = begin(tmp_path, s3)
    put(s3, "a.csv", f"{HEAD}1,a,1\n")
    put(s3, "b.csv", f"{HEAD}2,b,2\n")
    outcome = take(pipeline, replacing(s3, "a.csv", f"{HEAD}1,b,1\n"))
    assert (outcome.facts["changes"], outcome.error_code) == (1, None)
    assert take(pipeline).facts["changes"] == 1


def test_a_log_whose_landed_files_move_to_s3_takes_none_again_and_reads_none(tmp_path: Path, s3: S3Bucket) -> None:
    folder = tmp_path / "landing"
    folder.mkdir()
    (folder / "a.csv").write_text(f"{HEAD}1,a,1\n")
    path = tmp_path / "tidefold.yaml"
    begin(tmp_path, s3)
    path.write_text(path.read_text().replace(f"s3://{s3.name}/{PREFIX}", "landing"))
    assert take(open_pipeline(path)).facts["changes"] == 1
    put(s3, "a.csv", (folder / "a.csv").read_bytes())
    pipeline = begin(tmp_path, s3)
    found = counted(s3, lambda: take(pipeline))
    assert found == {"list": 1}


def test_a_read_that_fails_holds_up_this_file_alone(tmp_path: Path, s3: S3Bucket) -> None:
    pipeline = begin(tmp_path, s3)
    put(s3, "a.csv", f"{HEAD}1,a,1\n")
    put(s3, "b.csv", f"{HEAD}2,b,2\n")
    s3.server.fail("GET", f"{PREFIX}/a.csv", status=403, code="AccessDenied", times=99)
    outcome = take(pipeline)
    assert (outcome.facts["changes"], outcome.facts["not_taken"]) == (1, {"LANDED_UNREADABLE": 1})
    s3.server.heal()
    assert take(pipeline).facts["changes"] == 1


ODD = (
    "a b.csv", "ä+%20.csv", "a?b=c.csv", "a#b.csv", "x?versionId=1.csv", "quote'\".csv",
    "$(id).csv", "a\\b.csv", "sub folder/2026-11-01/a.csv", "~.csv", "*.csv",
)  # fmt: skip


def test_odd_keys_are_taken_as_they_are(tmp_path: Path, s3: S3Bucket) -> None:
    pipeline = begin(tmp_path, s3)
    for number, name in enumerate(ODD):
        put(s3, name, f"{HEAD}{number},a,1\n")
    for name in ("_SUCCESS", ".hidden.csv", "_temporary/0/a.csv", "x.csv.tmp", "folder/"):
        put(s3, name, "")
    put(s3, "readme.txt", "x")
    outcome = take(pipeline)
    assert (outcome.facts["changes"], outcome.facts["not_taken"]) == (len(ODD), {"FOREIGN_FILE": 1})
    assert sorted(one.name for one in pipeline.ledger("items").read().landed) == sorted(ODD)
    [shown] = status(pipeline, ["items"])
    [problem] = shown.landing.listed
    assert (problem.file, problem.size, problem.changed > 0) == ("readme.txt", 1, True)
    assert take(pipeline).error_code == "FOREIGN_FILE"


@pytest.mark.parametrize("name", ["a//b.csv", "a/../b.csv", "tab\t.csv"])
def test_a_key_that_cannot_be_listed_is_named_with_the_next_step(tmp_path: Path, s3: S3Bucket, name: str) -> None:
    pipeline = begin(tmp_path, s3)
    put(s3, name, f"{HEAD}1,a,1\n")
    outcome = take(pipeline)
    assert (outcome.error_code, name.split("/")[-1] in outcome.message) == ("STORE_KEY", True)
    s3.client.delete_object(Bucket=s3.name, Key=f"{PREFIX}/{name}")
    put(s3, "a.csv", f"{HEAD}1,a,1\n")
    assert take(pipeline).facts["changes"] == 1


def test_no_secret_and_no_endpoint_is_stored(tmp_path: Path, s3: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret-key")
    pipeline = begin(tmp_path, s3)
    put(s3, "a.csv", f"{HEAD}1,a,1\nbad\n")
    put(s3, "b.csv", "x")
    take(pipeline)
    stored = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert b"very-secret" not in stored
    assert s3.server.url.encode() not in stored
