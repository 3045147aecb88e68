"""Who sees which logs: the DAGs that Airflow shows a reader say so, for every route; and several pipelines in one page.

Issue 17, point 8; issue 18, point 5. What Airflow's own auth manager says is tested in tests/airflow/test_page.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from support.page_store import DAG, Story, add_plan, everything, run_id, tell
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.wiring import open_pipeline
from tidefold_airflow.ui.app import build_app
from tidefold_airflow.ui.mount import pipeline_name, snapshot_path
from tidefold_airflow.ui.visible_pipelines import VisiblePipelines, Work, works_of

OTHER = "/data/second/tidefold.yaml"
SECOND = pipeline_name(OTHER)
NAMES = frozenset({"accounts"})


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell(tmp_path_factory.mktemp("story"))


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Another pipeline with logs of the same names."""
    found = Story(tmp_path_factory.mktemp("second"), "second")
    found.land("accounts", range(3))
    found.ingest("accounts")
    found.cycle("accounts", 1)
    add_plan(found)
    return found


def reader(story: Story, second: Story, dags: Mapping[str, Sequence[Work]]) -> TestClient:
    """The page for somebody to whom Airflow shows these DAGs."""
    pipelines: dict[str, Pipeline] = {"": story.pipeline, OTHER: second.pipeline}
    return TestClient(build_app((), (), lambda request: VisiblePipelines(dags), pipelines.__getitem__))


def routes(log: str, prefix: str = "") -> list[str]:
    """An address of every route that shows something of a log, whatever routes the app has."""
    filled = {"log": log, "snapshot": "1", "pipeline": prefix.removeprefix("/p/"), "dag_id": DAG, "run_id": "x"}
    found = []
    for route in build_app((), (), everything).routes:
        assert isinstance(route, APIRoute)
        if "{log}" in route.path and route.path.startswith("/p/") == bool(prefix):
            assert set(route.param_convertors) <= set(filled), "a new parameter needs a value here"
            found.append(route.path.format(**filled))
    assert len(found) >= 5
    return found


def test_rows_texts_and_reports_of_other_logs_are_refused_on_every_route(story: Story, second: Story) -> None:
    ask = reader(story, second, {"mine": [Work("", NAMES)]})
    for log in ("tellers", "orders", "branches", "fresh", "no-such-log"):
        for address in [*routes(log), f"/logs/{log}/quarantine?reason=BAD_JSON"]:
            answer = ask.get(address)
            assert answer.status_code == 403, address
            assert "told" not in answer.text
    assert {ask.get(address).status_code for address in routes("accounts")} == {200}


def test_lists_and_sums_hold_the_readers_logs_only(story: Story, second: Story) -> None:
    ask = reader(story, second, {DAG: [Work("", NAMES)]})
    accounts = story.pipeline.ledger("accounts").read().latest
    assert accounts
    for address in ("/", f"/dags/{DAG}", f"/runs/{run_id(1)}", f"/runs/{run_id(4)}"):
        text = ask.get(address).text
        assert "accounts" in text
        for log in ("tellers", "orders", "branches", "fresh"):
            assert log not in text, (address, log)
    assert f'<div class="number">{accounts.rows:,}</div>' in ask.get("/").text


def test_another_pipeline_is_refused_whole(story: Story, second: Story) -> None:
    ask = reader(story, second, {"mine": [Work("", NAMES)]})
    for address in [*routes("accounts", f"/p/{SECOND}"), f"/p/{SECOND}/", "/p/no-such/", "/p/%2E%2E/logs/accounts"]:
        assert ask.get(address).status_code == 403, address
    only = reader(story, second, {"theirs": [Work(OTHER, NAMES)]})
    assert {only.get(address).status_code for address in routes("accounts")} == {403}
    assert {only.get(address).status_code for address in routes("accounts", f"/p/{SECOND}")} == {200}
    assert only.get("/").text.count("tellers") == 0


def test_a_broken_configuration_names_other_logs_only_to_who_may_see_them(story: Story, second: Story) -> None:
    def broken(config: str) -> Pipeline:
        (second.root / "broken.yaml").write_text(f"version: 1\nstore: {config}s\nlogs: {{tellers: {{kay: 1}}}}\n")
        return open_pipeline(second.root / "broken.yaml")

    def ask(logs: frozenset[str] | None) -> TestClient:
        return TestClient(build_app((), (), lambda request: VisiblePipelines({DAG: [Work("", logs)]}), broken))

    for address in ("/", "/logs/accounts", "/logs/tellers", f"/dags/{DAG}", f"/runs/{run_id(1)}"):
        answer = ask(NAMES).get(address)
        assert answer.status_code == 400, address
        assert "CONFIG_" in answer.text
        assert "tellers" not in answer.text, address
        assert str(second.root) not in answer.text, address
        assert "logs.tellers.kay" in ask(None).get(address).text


def test_who_sees_no_dag_sees_nothing(story: Story, second: Story) -> None:
    ask = reader(story, second, {})
    assert "No DAG that you may see works on a pipeline of tidefold" in ask.get("/").text
    assert {ask.get(address).status_code for address in routes("accounts")} == {403}


def test_several_pipelines_are_chosen_from_and_keep_apart(story: Story, second: Story) -> None:
    dags = {DAG: [Work("")], "theirs": [Work(OTHER)], "theirs_approval": [Work(OTHER)]}
    ask = reader(story, second, dags)
    first, other = ask.get("/").text, ask.get(f"/p/{SECOND}/").text
    for text in (first, other):
        assert '<details class="chooser">' in text
        assert "theirs, theirs_approval" in text
    assert f'href="./p/{SECOND}/"' in first
    assert 'href="../../"' in other
    # A link stays in its pipeline.
    assert 'href="../../p/' + SECOND + '/logs/accounts"' in other
    log = ask.get(f"/p/{SECOND}/logs/accounts").text
    assert f'href="../../../p/{SECOND}/logs/accounts/snapshots/1"' in log
    assert "month-end" not in log
    assert str(second.root) not in log + other
    assert snapshot_path("accounts", 1, OTHER) == f"/p/{SECOND}/logs/accounts/snapshots/1"
    assert '<details class="chooser">' not in reader(story, second, {DAG: [Work("")]}).get("/").text


def test_the_tab_of_a_dag_shows_its_own_pipeline_and_nothing_on_others(story: Story, second: Story) -> None:
    dags = {DAG: [Work("")], "theirs": [Work(OTHER, NAMES)], "both": [Work("", NAMES), Work(OTHER)]}
    ask = reader(story, second, dags)
    own = ask.get("/dags/theirs").text
    assert f'href="../p/{SECOND}/logs/accounts"' in own
    assert "tellers" not in own
    assert 'href="../logs/tellers"' in ask.get(f"/dags/{DAG}").text
    assert '<details class="chooser">' in ask.get("/dags/both").text
    nothing = ask.get("/dags/foreign")
    assert nothing.status_code == 200
    assert "foreign</bdi> has no task of tidefold" in nothing.text
    assert "accounts" not in nothing.text
    assert f"/p/{SECOND}/logs/accounts" in ask.get("/runs/theirs/scheduled__2026-11-21T01:00:00+00:00").text


def task(kind: str = "TidefoldListLogsOperator", **values: Any) -> dict[str, Any]:
    module = "tidefold_airflow.operators" if kind.startswith("Tidefold") else "airflow.providers.x"
    return {"__type": "operator", "__var": {"task_type": kind, "_task_module": f"{module}.base", **values}}


_PULLED = "{{ task_instance.xcom_pull(task_ids='choose', dag_id='orders', key='return_value') }}"


@pytest.mark.parametrize(
    ("tasks", "works"),
    [
        ([], ()),
        ([task("EmptyOperator", config="/x")], ()),
        ([task()], (Work(""),)),
        ([task(config="/x", logs=["a"]), task(config="/x", logs=_PULLED)], (Work("/x", frozenset("a")),)),
        ([task(config="/x", logs="{{ params.logs or ['a'] }}", only=["a"])], (Work("/x", frozenset("a")),)),
        ([task(config="/x", logs="{{ params.logs or [] }}")], (Work("/x"),)),
        ([task(logs=["{{ params.log }}"])], (Work(""),)),
        ([task(logs=["a"]), task(logs=["b"])], (Work("", frozenset("ab")),)),
        ([task(logs=["a"]), task()], (Work(""),)),
        ([task(config="/x", logs=["a"]), task(config="/y")], (Work("/x", frozenset("a")), Work("/y"))),
        ([task(config="{{ params.config }}", logs=["a"])], ()),
        ([task(logs=["a"]), task(partial_kwargs={}, expand_input={})], (Work("", frozenset("a")),)),
        ([task(), task("TidefoldCleanOperator", logs=_PULLED)], (Work("", cleans=True),)),
    ],
    ids=["none", "foreign", "all", "chosen", "only", "form", "one of a form", "two", "all again", "two pipelines",
         "templated", "mapped", "with retention"],
)  # fmt: skip
def test_what_a_dag_works_on_is_read_from_its_tasks(tasks: list[Any], works: tuple[Work, ...]) -> None:
    assert works_of({"dag": {"tasks": tasks}}) == works
