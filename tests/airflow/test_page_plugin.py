"""The plugin by itself: what loading it costs, what Airflow finds of it, and that no route of the page is unguarded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.routing import APIRoute

from local_airflow.settings import PROJECT
from tidefold_airflow.operators import base
from tidefold_airflow.operators.base import ReportLink, SnapshotLink, read_made_snapshots
from tidefold_airflow.ui.access import GUARDS, RUN_GUARDS, find_visible
from tidefold_airflow.ui.app import build_app
from tidefold_airflow.ui.mount import address, run_path, snapshot_path

HEAVY = ("duckdb", "pyarrow", "deltalake", "pyspark", "great_expectations", "tidefold", "tidefold_airflow.ui.app")
_LOAD = """
import json, sys
import airflow.plugins_manager as manager
before = set(sys.modules)
plugins, errors = manager._get_plugins()
after = set(sys.modules) - before
apps, _ = manager.get_fastapi_plugins()
views, _ = manager._get_ui_plugins()
from tidefold_airflow.ui.lazy_page import LazyPage
said = {
    "names": [p.name for p in plugins if "tidefold" in str(p.source)],
    "errors": errors,
    "loaded": sorted(after),
    "apps": [(a["url_prefix"], isinstance(a["app"], LazyPage)) for a in apps],
    "views": [(v["destination"], v["href"]) for v in views],
}
print(json.dumps(said, default=str))
"""
TASK = SimpleNamespace(dag_id="my dag", run_id="manual__2026-11-22T00:00:00+00:00", task_id="t", map_index=-1)


def load(home: Path, **env: str) -> dict[str, Any]:
    """What a fresh Airflow process has after it loaded its plugins."""
    env = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
        "PYTHONPATH": str(PROJECT / "include"),
        **env,
    }
    done = subprocess.run([sys.executable, "-c", _LOAD], cwd=home, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return load(tmp_path_factory.mktemp("home"), AIRFLOW__API__BASE_URL="http://example.org/below/airflow")


def test_airflow_finds_one_plugin_and_no_error(loaded: dict[str, Any]) -> None:
    assert loaded["names"] == ["tidefold"]
    assert loaded["errors"] == {}
    assert loaded["apps"] == [["/tidefold", True]]


def test_the_page_is_in_the_navigation_and_on_dags_and_runs_below_airflows_own_path(loaded: dict[str, Any]) -> None:
    below = "/below/airflow/tidefold"
    assert [one for one in loaded["views"] if "tidefold" in one[1]] == [
        ["nav", f"{below}/"],
        ["dag", f"{below}/dags/{{DAG_ID}}"],
        ["dag_run", f"{below}/runs/{{DAG_ID}}/{{RUN_ID}}"],
    ]


@pytest.mark.parametrize("heavy", HEAVY)
def test_loading_it_loads_nothing_that_only_the_page_needs(loaded: dict[str, Any], heavy: str) -> None:
    """Every Airflow process and every parsing of a DAG loads plugins."""
    assert heavy not in loaded["loaded"]


def test_the_package_beside_it_is_imported_and_never_executed_by_airflow(loaded: dict[str, Any]) -> None:
    """A file that Airflow executes by itself lands in sys.modules under its bare name."""
    assert {"app", "answers", "mount", "links", "operators"}.isdisjoint(loaded["loaded"])
    assert "tidefold_airflow.ui.mount" in loaded["loaded"]


def test_every_route_has_every_guard() -> None:
    app = build_app(GUARDS, RUN_GUARDS, find_visible)
    assert len(app.routes) >= 9
    for route in app.routes:
        # No documentation, no mount, no static folder: these would not be guarded.
        assert isinstance(route, APIRoute)
        guards = [one.call for one in route.dependant.dependencies]
        assert {one.dependency for one in GUARDS} <= set(guards), route.path
        if "{run_id" in route.path:
            assert RUN_GUARDS[0].dependency in guards
        if route.path != "/{other:path}":
            assert route.methods == {"GET", "HEAD"}


@pytest.mark.parametrize(
    ("returned", "made"),
    [
        ({"a": {"result": "staged", "snapshot": 3, "error": None}}, {"a": 3}),
        ({"a": {"snapshot": 3}, "b": {"snapshot": 1}, "c": {"snapshot": None}}, {"a": 3, "b": 1}),
        ({"a": {"snapshot": True}, "b": {"snapshot": "7"}, "c": 5, "d": {}}, {}),
        (None, {}),
        ([1, 2], {}),
        ("text", {}),
    ],
    ids=["one", "several", "no number", "nothing", "list", "text"],
)
def test_what_a_task_made_is_read_from_what_it_returned(returned: Any, made: dict[str, int]) -> None:
    assert read_made_snapshots(returned) == made


@pytest.mark.parametrize(
    ("returned", "snapshot", "report"),
    [
        ({"a": {"snapshot": 3}, "b": {"snapshot": None}}, "/logs/a/snapshots/3", "/logs/a/snapshots/3/report"),
        ({"a": {"snapshot": 3}, "b": {"snapshot": 1}}, None, None),
        (None, None, None),
    ],
    ids=["one log", "several logs", "nothing"],
)
def test_links_lead_to_the_snapshot_or_to_the_run(
    monkeypatch: pytest.MonkeyPatch, returned: Any, snapshot: str | None, report: str | None
) -> None:
    # A task asks its supervisor for what it returned; here is none.
    monkeypatch.setattr(base.XCom, "get_value", lambda *, ti_key, key: returned)
    run = "/runs/my%20dag/manual__2026-11-22T00%3A00%3A00%2B00%3A00"
    for link, path in ((SnapshotLink(), snapshot), (ReportLink(), report)):
        assert link.get_link(None, ti_key=TASK) == address(path or run)  # type: ignore[arg-type]
    assert [SnapshotLink().name, ReportLink().name] == ["Snapshot page", "Quality report"]


def test_names_in_addresses_are_quoted() -> None:
    assert snapshot_path("a/../b", 1) == "/logs/a%2F..%2Fb/snapshots/1"
    assert run_path("d?x", "r#y/z") == "/runs/d%3Fx/r%23y%2Fz"
