"""The page in a running Airflow: who may see it, and one visit of somebody who logs in with a browser.

Issue 7, build 6; promise I26. What it shows is tested over more stores in tests/contract/airflow_ui/test_page.py, and
how it fits in test_page_screens.py.
"""

from __future__ import annotations

import http.client
import json
from urllib.parse import quote, urlsplit

import pytest
from fastapi.routing import APIRoute
from playwright.sync_api import Page

from support.airflow_shop import MATERIALIZE, FirstRun, Ran, Shop
from support.browser import Browser, frame_of, logged_in, trigger_by_form
from tidefold_airflow.ui.app import build_app
from tidefold_airflow.ui.visible_pipelines import VisiblePipelines

NOBODY = (None, "Bearer broken", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9.", "Basic YWRtaW46YWRtaW4=")
ABSENT = ("/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect", "/style.css", "/logs/..%2F..%2Fx")
NO_PIPELINE = "none-00000000"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def paths() -> list[str]:
    """An address of every route of the app, whatever routes it has."""
    filled = {"log": "items", "snapshot": "1", "dag_id": MATERIALIZE, "run_id": "manual__1", "other": "anything/else",
              "pipeline": NO_PIPELINE}  # fmt: skip
    found = []
    for route in build_app((), (), lambda request: VisiblePipelines()).routes:
        assert isinstance(route, APIRoute)
        path = route.path.replace(":path", "")
        assert set(route.param_convertors) <= set(filled), "a new parameter needs a value here"
        found.append(path.format(**filled))
    return found


def ask(shop: Shop, path: str, authorization: str | None, method: str = "GET") -> tuple[int, dict[str, str], str]:
    """One request as it is, without cookies, following nothing."""
    host = urlsplit(shop.airflow.api.address)
    connection = http.client.HTTPConnection(str(host.hostname), host.port, timeout=60)
    try:
        headers = {"Authorization": authorization} if authorization else {}
        connection.request(method, f"/tidefold{path}", headers=headers)
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()
    finally:
        connection.close()


def token(shop: Shop, user: str) -> str:
    """The header of somebody who logged in."""
    password = json.loads(shop.airflow.request.passwords.read_text())[user]
    host = urlsplit(shop.airflow.api.address)
    connection = http.client.HTTPConnection(str(host.hostname), host.port, timeout=60)
    body = json.dumps({"username": user, "password": password})
    connection.request("POST", "/auth/token", body, {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return f"Bearer {answer['access_token']}"


@pytest.mark.parametrize("who", NOBODY, ids=["nobody", "broken token", "unsigned token", "basic"])
def test_who_is_not_logged_in_sees_no_page(shop: Shop, first: FirstRun, who: str | None) -> None:
    """Every route of the app, by every method; a new one is asked too."""
    for path in (*paths(), *ABSENT):
        for method in METHODS:
            status, headers, text = ask(shop, path, who, method)
            assert status in (401, 403), (method, path, status)
            assert headers["content-security-policy"].startswith("default-src 'none'")
            assert "shop.public" not in text
            assert str(shop.folder) not in text


@pytest.mark.parametrize("user", ["admin", "vera"])
def test_who_may_read_sees_every_page(shop: Shop, first: FirstRun, user: str) -> None:
    """Airflow's viewer reads, as an admin does; neither writes."""
    known = token(shop, user)
    asked = {path.replace("manual__1", quote(first.run.id, safe="")): 200 for path in paths()}
    # No log has a plan here.
    asked |= {path: 404 for path in asked if path.endswith("/plan/report")}
    asked |= {path: 403 for path in asked if path.startswith(f"/p/{NO_PIPELINE}")}
    asked |= dict.fromkeys((*ABSENT, "/anything/else"), 404)
    for path, expected in asked.items():
        status, headers, text = ask(shop, path, known)
        assert status == expected, (path, text)
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert str(shop.folder) not in text
    for method in METHODS[2:]:
        assert ask(shop, "/logs/items", known, method)[0] == 405


def test_a_name_of_a_megabyte_is_refused_and_the_server_lives(shop: Shop) -> None:
    known = token(shop, "vera")
    try:
        status, _, _ = ask(shop, f"/?name={'x' * 1_000_000}", known)
        assert status == 400
    except (ConnectionError, http.client.HTTPException):
        pass  # The server may hang up before it has read so much.
    assert ask(shop, "/", known)[0] == 200


def test_a_dag_shows_what_its_stored_tasks_work_on(shop: Shop) -> None:
    """Airflow's own copy of the DAG is read, and its auth manager asked."""
    known = token(shop, "vera")
    assert f"Logs of <bdi>{MATERIALIZE}</bdi>" in ask(shop, f"/dags/{MATERIALIZE}", known)[2]
    assert "has no task of tidefold" in ask(shop, "/dags/no_dag_of_ours", known)[2]


def test_a_visit_with_a_browser(shop: Shop, first: FirstRun, browser: Browser) -> None:
    """From the navigation to a log, its report, a run and a DAG; then a run of one log is begun in the form."""
    api = shop.airflow.api
    with logged_in(browser, api.address, api.user, api.password) as page:
        messages: list[str] = []
        page.on("console", lambda message: messages.append(message.text))
        _look_at_the_logs(shop, page)
        _look_at_a_report(shop, page)
        _look_at_a_run(shop, page)
        assert not [text for text in messages if "Content Security Policy" in text]
        shop.change("notes", {50: "not named in the form"})
        trigger_by_form(page, api.address, MATERIALIZE, "items")
    run = Ran(shop, MATERIALIZE, api.runs(MATERIALIZE)[0]["dag_run_id"]).green()
    assert run.result("choose") == [["items"]]
    assert 50 not in shop.shown("notes")


def _look_at_the_logs(shop: Shop, page: Page) -> None:
    page.get_by_role("link", name="tidefold").first.click()
    frame = frame_of(page, "/tidefold/")
    for log in ("items", "notes"):
        latest = shop.state(log).latest
        assert latest
        assert frame.get_by_role("row").filter(has_text=log).filter(has_text=f"{latest.rows:,}").count() == 1
    frame.get_by_role("link", name="items").first.click()
    frame = frame_of(page, "/tidefold/logs/items")
    assert frame.get_by_role("heading", name="Time line").is_visible()
    # Airflow's own address follows, so that it can be sent to somebody.
    page.wait_for_url("**/plugin/tidefold/tidefold/logs/items")
    assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth")


def _look_at_a_report(shop: Shop, page: Page) -> None:
    """In a sandbox: no script can run in it, not even that of a test."""
    latest = shop.state("items").latest
    assert latest
    path = f"/tidefold/logs/items/snapshots/{latest.id}"
    with page.expect_response(lambda answer: answer.url.endswith(f"/snapshots/{latest.id}/report")) as found:
        page.goto(f"{shop.airflow.api.address}/plugin/tidefold{path}")
        outer = frame_of(page, path)
        outer.locator("iframe").scroll_into_view_if_needed()
    assert found.value.status == 200
    assert "row count of manifest" in found.value.text()
    assert found.value.headers["content-security-policy"].endswith("sandbox")
    assert outer.locator("iframe").get_attribute("sandbox") == ""
    assert outer.evaluate("document.querySelector('iframe').contentDocument") is None


def _look_at_a_run(shop: Shop, page: Page) -> None:
    """By the tabs of Airflow's own pages of a run and of its DAG."""
    latest, address = shop.state("items").latest, shop.airflow.api.address
    assert latest
    dag, _, run = latest.run.partition("/")
    page.goto(f"{address}/dags/{dag}/runs/{quote(run, safe='')}")
    page.locator("a[href*='/plugin/tidefold-run']").click()
    frame = frame_of(page, "/tidefold/runs/")
    assert frame.get_by_role("heading", name=run).is_visible()
    assert frame.get_by_role("row").filter(has_text="items").get_by_text("COMPLETED").count() == 1
    page.goto(f"{address}/dags/{MATERIALIZE}/plugin/tidefold-logs")
    assert frame_of(page, "/tidefold/").get_by_role("heading", name="Logs").is_visible()
