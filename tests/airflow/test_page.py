"""The page in a running Airflow: who may see it, and how it looks to somebody who logs in with a browser.

Issue 7, build 6; promise I26. What it shows is tested over more stores in tests/contract/airflow_ui/test_page.py.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlsplit

import pytest
from fastapi.routing import APIRoute
from playwright.sync_api import Page

from demo.watch import DAG, Run
from support.airflow_stack import Scene
from support.browser import Browser, frame_of, logged_in
from tidefold_airflow.ui.app import build_app
from tidefold_airflow.ui.visible_pipelines import VisiblePipelines

NOBODY = (None, "Bearer broken", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9.", "Basic YWRtaW46YWRtaW4=")
ABSENT = ("/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect", "/style.css", "/logs/..%2F..%2Fx")
NO_PIPELINE = "none-00000000"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def paths() -> list[str]:
    """An address of every route of the app, whatever routes it has."""
    filled = {"log": "accounts", "snapshot": "1", "dag_id": DAG, "run_id": "manual__1", "other": "anything/else",
              "pipeline": NO_PIPELINE}  # fmt: skip
    found = []
    for route in build_app((), (), lambda request: VisiblePipelines()).routes:
        assert isinstance(route, APIRoute)
        path = route.path.replace(":path", "")
        assert set(route.param_convertors) <= set(filled), "a new parameter needs a value here"
        found.append(path.format(**filled))
    return found


def ask(scene: Scene, path: str, authorization: str | None, method: str = "GET") -> tuple[int, dict[str, str], str]:
    """One request as it is, without cookies, following nothing."""
    host = urlsplit(scene.airflow.api.address)
    connection = http.client.HTTPConnection(str(host.hostname), host.port, timeout=60)
    try:
        headers = {"Authorization": authorization} if authorization else {}
        connection.request(method, f"/tidefold{path}", headers=headers)
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()
    finally:
        connection.close()


def token(scene: Scene, user: str) -> str:
    """The header of somebody who logged in."""
    password = json.loads(scene.airflow.request.passwords.read_text())[user]
    host = urlsplit(scene.airflow.api.address)
    connection = http.client.HTTPConnection(str(host.hostname), host.port, timeout=60)
    body = json.dumps({"username": user, "password": password})
    connection.request("POST", "/auth/token", body, {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return f"Bearer {answer['access_token']}"


@pytest.fixture(scope="module")
def run(scene: Scene) -> Iterator[Run]:
    """The scheduler's first run, which published every log; none comes after it while pages are looked at."""
    first = scene.follow(datetime.now(UTC) - timedelta(hours=1))
    scene.airflow.api.set_paused(DAG, True)
    yield first
    scene.airflow.api.set_paused(DAG, False)


@pytest.fixture
def page(browser: Browser, scene: Scene) -> Iterator[Page]:
    """Somebody who logged in with a browser."""
    api = scene.airflow.api
    with logged_in(browser, api.address, api.user, api.password) as opened:
        yield opened


@pytest.mark.parametrize("who", NOBODY, ids=["nobody", "broken token", "unsigned token", "basic"])
def test_who_is_not_logged_in_sees_no_page(scene: Scene, who: str | None) -> None:
    """Every route of the app, by every method; a new one is asked too."""
    for path in (*paths(), *ABSENT, "/logs/accounts/explain?key=x"):
        for method in METHODS:
            status, headers, text = ask(scene, path, who, method)
            assert status in (401, 403), (method, path, status)
            assert headers["content-security-policy"].startswith("default-src 'none'")
            assert "abalance" not in text
            assert str(scene.folder) not in text


@pytest.mark.parametrize("user", ["admin", "vera"])
def test_who_may_read_sees_every_page(scene: Scene, run: Run, user: str) -> None:
    """Airflow's viewer reads, as an admin does; neither writes."""
    known = token(scene, user)
    asked = {path.replace("manual__1", quote(run.id, safe="")): 200 for path in paths()}
    asked |= {path: 403 for path in asked if path.startswith(f"/p/{NO_PIPELINE}")}
    asked |= dict.fromkeys((*ABSENT, "/anything/else"), 404) | {"/logs/accounts/explain?key=x": 400}
    for path, expected in asked.items():
        status, headers, text = ask(scene, path, known)
        assert status == expected, (path, text)
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert str(scene.folder) not in text
    for method in METHODS[2:]:
        assert ask(scene, "/logs/accounts", known, method)[0] == 405


def test_a_key_of_a_megabyte_is_refused_and_the_server_lives(scene: Scene) -> None:
    known = token(scene, "vera")
    try:
        status, _, _ = ask(scene, f"/logs/accounts/explain?key={'x' * 1_000_000}", known)
        assert status == 400
    except (ConnectionError, http.client.HTTPException):
        pass  # The server may hang up before it has read so much.
    assert ask(scene, "/", known)[0] == 200


def test_it_is_in_the_navigation_and_shows_the_logs(scene: Scene, run: Run, page: Page) -> None:
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.get_by_role("link", name="tidefold").first.click()
    frame = frame_of(page, "/tidefold/")
    for log in ("accounts", "branches", "tellers"):
        latest = scene.state(log).latest
        assert latest
        assert frame.get_by_role("row").filter(has_text=log).filter(has_text=f"{latest.rows:,}").count() == 1
    frame.get_by_role("link", name="accounts").first.click()
    frame = frame_of(page, "/tidefold/logs/accounts")
    assert frame.get_by_role("heading", name="Time line").is_visible()
    # Airflow's own address follows, so that it can be sent to somebody.
    page.wait_for_url("**/plugin/tidefold/tidefold/logs/accounts")
    assert not [text for text in messages if "Content Security Policy" in text]
    assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_every_page_fits_into_the_frame(scene: Scene, run: Run, page: Page) -> None:
    for width in (1280, 900):
        page.set_viewport_size({"width": width, "height": 800})
        for path in ("/", "/logs/accounts", "/logs/accounts/snapshots/1", "/logs/accounts/retention"):
            page.goto(f"{scene.airflow.api.address}/tidefold{path}")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, path)


def test_a_report_is_shown_in_the_page_of_its_snapshot(scene: Scene, run: Run, page: Page) -> None:
    """In a sandbox: no script can run in it, not even that of a test."""
    with page.expect_response(lambda answer: answer.url.endswith("/snapshots/1/report")) as found:
        page.goto(f"{scene.airflow.api.address}/plugin/tidefold/tidefold/logs/accounts/snapshots/1")
        outer = frame_of(page, "/tidefold/logs/accounts/snapshots/1")
        outer.locator("iframe").scroll_into_view_if_needed()
    assert found.value.status == 200
    assert "row count of manifest" in found.value.text()
    assert found.value.headers["content-security-policy"].endswith("sandbox")
    assert outer.locator("iframe").get_attribute("sandbox") == ""
    assert outer.evaluate("document.querySelector('iframe').contentDocument") is None


def test_the_tab_of_a_run_shows_what_it_did(scene: Scene, run: Run, page: Page) -> None:
    page.goto(f"{scene.airflow.api.address}/dags/{DAG}/runs/{quote(run.id, safe='')}")
    page.locator("a[href*='/plugin/tidefold-run']").click()
    frame = frame_of(page, "/tidefold/runs/")
    assert frame.get_by_role("heading", name=run.id).is_visible()
    for log in ("accounts", "branches", "tellers"):
        assert frame.get_by_role("row").filter(has_text=log).get_by_text("COMPLETED").count() == 1
    frame.get_by_role("link", name="accounts").first.click()
    assert frame_of(page, "/tidefold/logs/accounts").get_by_role("heading", name="Sources").is_visible()


def test_the_tab_of_a_dag_shows_the_logs(scene: Scene, page: Page) -> None:
    page.goto(f"{scene.airflow.api.address}/dags/{DAG}/plugin/tidefold-logs")
    assert frame_of(page, "/tidefold/").get_by_role("heading", name="Logs").is_visible()


def test_a_dag_shows_what_its_stored_tasks_work_on(scene: Scene) -> None:
    """Airflow's own copy of the DAG is read, and its auth manager asked."""
    known = token(scene, "vera")
    assert f"Logs of <bdi>{DAG}</bdi>" in ask(scene, f"/dags/{DAG}", known)[2]
    assert "has no task of tidefold" in ask(scene, "/dags/no_dag_of_ours", known)[2]


def test_a_row_is_explained_by_a_form(scene: Scene, run: Run, page: Page) -> None:
    page.goto(f"{scene.airflow.api.address}/plugin/tidefold/tidefold/logs/tellers/explain")
    frame = frame_of(page, "/tidefold/logs/tellers/explain")
    frame.get_by_label("tid").fill("1")
    frame.get_by_role("button", name="Explain").click()
    # What made it is cut from the log by now, as the run truncates it.
    frame.get_by_role("heading", name="The row").wait_for()
    assert frame.get_by_text("there,").count() == 1
