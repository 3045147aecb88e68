"""A bucket with object versioning: what the store deletes can be had back, and a whole store goes back to one instant.

docs/how-to/recover.md describes the procedure. The server is moto (see s3_server.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.pipelines import CONFIG, judge_all, make_pipeline, put, table_rows
from support.s3_server import S3Bucket
from tidefold.compute.runners import in_process
from tidefold.errors import CorruptError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.retention.clean import clean
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import VerifyRequest, verify
from tidefold.wiring import open_pipeline

LOG = "accounts"


@pytest.fixture
def pipeline(s3: S3Bucket, tmp_path: Path) -> Pipeline:
    s3.client.put_bucket_versioning(Bucket=s3.name, VersioningConfiguration={"Status": "Enabled"})
    config = CONFIG.replace("store: store\n", f"store: {s3.address}\nretention: {{snapshots: 2}}\n")
    return make_pipeline(tmp_path, config)


def again(pipeline: Pipeline) -> Pipeline:
    """As another process opens it."""
    return open_pipeline(pipeline.config.path)


def cycle(pipeline: Pipeline, number: int) -> None:
    put(pipeline, [{"id": i, "text": str(number)} for i in range(number)])
    materialize(pipeline, [LOG], Fold(f"run-{number}"), in_process)
    judge_all(pipeline)
    assert confirm(pipeline, LOG, Confirmation(run=f"run-{number}")).status == "published"


def newest_versions(s3: S3Bucket) -> dict[str, str]:
    """The version of each object that a reader sees now."""
    pages = s3.client.get_paginator("list_object_versions").paginate(Bucket=s3.name)
    found = [one for page in pages for one in page.get("Versions", [])]
    return {one["Key"]: one["VersionId"] for one in found if one["IsLatest"]}


def put_back(s3: S3Bucket, wanted: dict[str, str]) -> None:
    """Each object is as it was; what was created later is deleted."""
    now = newest_versions(s3)
    for key in now.keys() - wanted.keys():
        s3.client.delete_object(Bucket=s3.name, Key=key)
    for key, version in wanted.items():
        if now.get(key) != version:
            source = {"Bucket": s3.name, "Key": key, "VersionId": version}
            s3.client.copy_object(Bucket=s3.name, Key=key, CopySource=source)


@pytest.mark.rotates(3)
def test_a_store_goes_back_to_one_instant_and_continues(s3: S3Bucket, pipeline: Pipeline) -> None:
    for number in range(1, 4):
        cycle(pipeline, number)
    before, instant = table_rows(pipeline), newest_versions(s3)
    cycle(pipeline, 4)
    cycle(pipeline, 5)
    assert subsume(pipeline, LOG).facts["snapshots"] == [1, 2, 3]
    truncate(pipeline, LOG)
    clean(pipeline, [LOG])
    assert instant.keys() - newest_versions(s3).keys(), "something was deleted since"
    put_back(s3, instant)

    back = again(pipeline)
    assert table_rows(back) == before
    assert verify(back, LOG, VerifyRequest(deep=True)).error_code is None
    cycle(back, 6)
    assert table_rows(back) == dict.fromkeys(range(6), "6")
    assert subsume(again(pipeline), LOG).facts["snapshots"] == [1, 2]


@pytest.mark.rotates(3)
def test_a_ledger_that_was_deleted_is_had_back(s3: S3Bucket, pipeline: Pipeline) -> None:
    cycle(pipeline, 1)
    cycle(pipeline, 2)
    instant = newest_versions(s3)
    pipeline.store.delete([entry.path for entry in pipeline.store.list(f"logs/{LOG}/ledger")])
    with pytest.raises(CorruptError) as lost:
        put(again(pipeline), [{"id": 9, "text": "9"}])
    assert lost.value.code == "LEDGER_LOST"
    put_back(s3, instant)
    cycle(again(pipeline), 3)
    assert len(table_rows(pipeline)) == 3
    assert abort(again(pipeline), LOG, "nothing is open").status == "nothing"
