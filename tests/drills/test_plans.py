"""An edited configuration in a live Airflow: its runs refuse it by name, a person sees the plan, and it is applied.

Issue 56.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from local_airflow.settings import PROJECT, Request
from local_airflow.stack import down, up
from support import airflow_shop as small
from support.airflow_shop import MATERIALIZE, Ran, Shop
from support.airflow_stack import SELDOM
from tidefold.wiring import open_pipeline

PLAN = "tidefold_plan"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    root = tmp_path_factory.mktemp("plans")
    config = small.prepare(root)
    dags = root / "dags"
    dags.mkdir()
    for name in ("tidefold_materialize.py", "tidefold_plan.py"):
        (dags / name).symlink_to(PROJECT / "dags" / name)
    nobody = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made = Shop(
        open_pipeline(config),
        airflow=up(Request(root, config, "", dags=dags, quick_spark=True, warm_spark=True, more=SELDOM), print),
        statsd=nobody,
    )
    try:
        yield made
    finally:
        down(root, print)


def _run(shop: Shop, dag: str, **conf: object) -> Ran:
    ran = shop.trigger(dag, **conf).ended()
    print(json.dumps({"dag": dag, "run": ran.state, "tasks": ran.tasks}), flush=True)
    return ran


def _ask(shop: Shop) -> Ran:
    return shop.trigger(PLAN, log="items").reached("apply", "awaiting_input")


def test_an_edit_is_planned_shown_and_applied(shop: Shop) -> None:
    shop.change("items", {1: "a", 2: "b"})
    shop.change("notes", {1: "x"})
    assert _run(shop, MATERIALIZE).state == "success"
    unedited = _run(shop, PLAN, log="items")
    assert (unedited.state, unedited.tasks) == ("success", {"plan": "skipped", "apply": "skipped"})

    config = shop.pipeline.config.path
    config.write_text(config.read_text().replace("key_groups: 16", "key_groups: 8", 1))
    refused = _run(shop, MATERIALIZE)
    assert refused.state == "failed"
    assert "SHAPE_CHANGED" in refused.log("ingest")
    rejected = _ask(shop).answer({"apply": ("Reject", "not now")})
    assert (rejected.state, rejected.tasks["apply"]) == ("success", "skipped")
    assert shop.shown("items") == {1: "a", 2: "b"}
    events = len(shop.events("items"))
    _ask(shop).answer({"apply": ("Approve", "as planned")}).green()
    assert shop.shown("items") == {1: "a", 2: "b"}
    assert len(shop.events("items")) == events + 1
    assert _run(shop, MATERIALIZE).state == "success"


def test_what_changed_after_the_question_is_not_applied(shop: Shop) -> None:
    config = shop.pipeline.config.path
    edited = config.read_text()
    config.write_text(edited.replace("key_groups: 8", "key_groups: 4", 1))
    asked = _ask(shop)
    config.write_text(edited)
    shop.change("items", {3: "c"})
    assert _run(shop, MATERIALIZE).state == "success"
    config.write_text(edited.replace("key_groups: 8", "key_groups: 4", 1))
    late = asked.answer({"apply": ("Approve", "too late")})
    assert late.state == "failed"
    assert "PLAN_CHANGED" in late.log("apply")
    assert set(shop.shown("items")) == {1, 2, 3}
