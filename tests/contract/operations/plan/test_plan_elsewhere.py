"""A plan lies in the store: a machine that has no landed file applies what another one has planned."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.commands import call, call_json
from support.planned import DAY, configure, land, plan, run
from tidefold.operations.ground.plan_records import find_plans
from tidefold.quality.run.duckdb_rows import open_engines


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> str:
    """The address of a folder in a store of this kind."""
    if kind == "disk":
        return str(tmp_path)
    bucket = request.getfixturevalue(kind)
    return f"s3://{bucket.name}" if kind == "s3" else str(bucket.root)


@pytest.mark.rotates(8)
@pytest.mark.parametrize("kind", ["disk", "s3", "azure_landing", "gcs"])
def test_another_machine_applies_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, kind: str) -> None:
    here, there, store = tmp_path / "here", tmp_path / "there", f"{root}/store"
    with open_engines(1) as lend, lend() as engine:
        for name, day in (("b.csv", 5), ("a.csv", 2)):
            pipeline = configure(here, store=store)
            land(here, name, ("U", 1, 1, f"{day}.00", DAY % (1, 0), DAY % (day, 0)))
            run(pipeline, name, engine)
        made, _ = plan(configure(here, store=store, order="[changed]"), engine)
    shutil.rmtree(here / "landing")
    there.mkdir()
    monkeypatch.chdir(there)
    pipeline = configure(there, store=store, order="[changed]")
    [(paths, record)] = find_plans(pipeline.store)
    assert record.plan == made
    assert "published: snapshot 3" in call("plan", "orders", "--apply").output
    assert [row["amount"] for row in call_json("read", "orders")["rows"]] == ["5.00"]
    call("check", "verify", "orders", "--deep")
    assert pipeline.store.list(paths.shadow) == []
