"""A log in an object store and one on a disk: the same content, and each imports the other's savepoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from support.landing_places import LandingBucket
from support.pipelines import CONFIG, judge_all, make_pipeline, put
from tidefold.compute.runners import in_process
from tidefold.domain.external_snapshot import Ownership
from tidefold.domain.paths import LogPaths
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold, Import
from tidefold.operations.retention.clean import drop
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.savepoint.take import SavepointRequest, take_savepoint
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize

FEW_BUCKETS = CONFIG.replace("buckets: 4", "buckets: 2")


def cycle(pipeline: Pipeline, request: Fold | Import) -> None:
    [staged] = materialize(pipeline, ["accounts"], request, in_process)
    assert staged.status == "staged", staged
    judge_all(pipeline)
    assert confirm(pipeline, "accounts").status == "published"


def compute_content(pipeline: Pipeline) -> list[tuple[int, str]]:
    table = DeltaTable(pipeline.store.uri(LogPaths("accounts").table), storage_options=pipeline.store.options())
    return sorted((row["id"], row["text"]) for row in table.to_pyarrow_table().to_pylist())


@pytest.fixture(params=["azure_landing", "gcs"])
def bucket(request: pytest.FixtureRequest) -> LandingBucket:
    found: LandingBucket = request.getfixturevalue(request.param)
    return found


def test_the_same_changes_give_the_same_content_in_an_object_store_and_on_disk(
    tmp_path: Path, bucket: LandingBucket
) -> None:
    kept = "retention: {snapshots: 2}\n"
    cloud = make_pipeline(
        tmp_path / "cloud", FEW_BUCKETS.replace("store: store\n", f"store: {bucket.root}/a/store\n{kept}")
    )
    disk = make_pipeline(tmp_path / "disk", FEW_BUCKETS.replace("store: store\n", f"store: store\n{kept}"))
    for pipeline in (cloud, disk):
        for number in range(3):
            put(pipeline, [{"id": i, "text": f"{number}"} for i in range(number, 30 - number)])
            cycle(pipeline, Fold(f"run-{number}"))
    assert compute_content(cloud) == compute_content(disk)
    for number, (giver, taker) in enumerate(((cloud, disk), (disk, cloud))):
        put(giver, [{"id": 5, "text": f"changed {number}"}])
        cycle(giver, Fold(f"more-{number}"))
        address = f"{bucket.root}/a/savepoint-{number}"
        assert take_savepoint(giver, "accounts", SavepointRequest(address)).status == "saved"
        cycle(taker, Import(f"in-{number}", address, Ownership.NO_CLAIM))
        assert compute_content(taker) == compute_content(giver)
    assert subsume(cloud, "accounts").status == "subsumed"
    assert compute_content(cloud) == compute_content(disk)
    assert drop(cloud, "accounts", plan=False).status == "dropped"
    assert [entry.path for entry in cloud.store.list("tables") + cloud.store.list("snapshots")] == []
