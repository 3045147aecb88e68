"""The page in a real browser at the widths that people have, light and dark, in a frame as Airflow shows it.

Issue 18, point 10. No Airflow is needed for that: its frame is a page with the same sandbox and the same class.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Page
from starlette.responses import HTMLResponse

from local_airflow.settings import PROJECT
from support.browser import Browser
from support.page_store import DAG, Story, everything, run_id, tell
from tidefold_airflow.ui.app import build_app

PAGES = (
    "/", "/logs/accounts", "/logs/branches/snapshots/2", "/logs/accounts/retention", "/logs/orders/quarantine",
    "/logs/accounts/checks",
    f"/runs/{run_id(2)}", f"/dags/{DAG}", "/dags/foreign", "/logs/none",
)  # fmt: skip
_FRAME = """<!doctype html><html class="{theme}"><body style="margin:0">
<iframe sandbox="allow-scripts allow-same-origin allow-forms" src="/tidefold/" style="width:100%; height:600px">
</iframe>"""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """One log waits for a person."""
    found = tell(tmp_path_factory.mktemp("story"))
    found.land("branches", range(5))
    found.ingest("branches")
    found.stage("branches", 2, passed=False)
    return found


@pytest.fixture(scope="module")
def address(story: Story) -> Iterator[str]:
    airflow = FastAPI()
    airflow.mount("/tidefold", build_app((), (), everything, lambda config: story.pipeline))
    airflow.get("/{theme}")(lambda theme: HTMLResponse(_FRAME.format(theme=theme)))
    server = uvicorn.Server(uvicorn.Config(airflow, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.mark.rotates(4)
@pytest.mark.parametrize("width", [1280, 1000, 768, 390])
def test_every_page_fits_and_no_name_breaks(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for path in PAGES:
        page.goto(f"{address}/tidefold{path}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        broken = "[...document.querySelectorAll('td.name a, a.run')].filter(a => a.getClientRects().length > 1)"
        assert page.evaluate(f"{broken}.map(a => a.textContent)") == [], path


def test_it_follows_airflows_own_switch(page: Page, address: str) -> None:
    """Also against the system's, at once, and with no message of the content security policy."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    for system in ("light", "dark"):
        page.emulate_media(color_scheme=system)  # type: ignore[arg-type]
        for theme in ("dark", "light"):
            page.goto(f"{address}/{theme}")
            page.frame_locator("iframe").get_by_role("heading", name="Logs").wait_for()
            assert _theme(page) == theme
            other = {"dark": "light", "light": "dark"}[theme]
            page.evaluate("theme => { document.documentElement.className = theme }", other)
            assert _theme(page) == other
    page.goto(f"{address}/neither")
    page.frame_locator("iframe").get_by_role("heading", name="Logs").wait_for()
    assert _theme(page) == "dark"  # As the system.
    assert not [text for text in said if "Content Security Policy" in text]


def _theme(page: Page) -> str:
    """By the colour that is seen."""
    red = page.frames[1].evaluate("getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g)[0]")
    return "dark" if int(red) < 100 else "light"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, address: str, scheme: str) -> None:
    """`make page-axe` fetches axe-core and runs this."""
    script = PROJECT / "var" / "axe" / "package" / "axe.min.js"
    if not script.exists():
        pytest.skip("no axe-core: `make page-axe` fetches it")
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)  # type: ignore[arg-type]
    page = context.new_page()
    for path in (*PAGES, "/logs/accounts/snapshots/3", "/logs/branches/snapshots/2/report"):
        page.goto(f"{address}/tidefold{path}")
        page.evaluate(script.read_text())
        found = page.evaluate("axe.run(document)")["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == [], path
    context.close()


def test_a_snapshot_that_failed_says_first_which_check_and_leads_to_the_decision(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{address}/tidefold/logs/branches/snapshots/2")
    failed = page.get_by_role("row").filter(has_text="3 of amount below 0")
    assert failed.first.bounding_box()["y"] < 200  # type: ignore[index]
    assert page.get_by_role("link", name="Required actions").get_attribute("href") == "../../../../required_actions"
    page.goto(f"{address}/tidefold/")
    row = page.get_by_role("row").filter(has_text="failed its quality gate").filter(has_text="staged")
    assert row.get_by_role("link", name="Quality report").count() == 1
    assert row.get_by_role("link", name="Required actions").get_attribute("href") == "./../required_actions"
    assert "tidefold step abort" not in page.content()
