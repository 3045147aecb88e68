"""A real browser for tests of Airflow's pages, and the login through Airflow's form."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser as Browser
from playwright.sync_api import Frame, Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
WIDTH, HEIGHT = 1280, 800


def chromium() -> Iterator[Browser]:
    """Opens this machine's headless Chromium; skips the test if there is none."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("no chromium on this machine: `scripts/install_browser` installs one")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield started
        started.close()


@contextmanager
def logged_in(browser: Browser, address: str, user: str, password: str, dark: bool = False) -> Iterator[Page]:
    """Opens a new page, and logs in through Airflow's form."""
    context = browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="dark" if dark else "light", locale="en-GB"
    )
    # Of a click, too. On a busy machine Airflow's pages need more than the usual 30 s until they stand still.
    context.set_default_timeout(180_000)
    page = context.new_page()
    try:
        page.goto(f"{address}/auth/login?next=%2F")
        page.fill("input[name=username]", user)
        page.fill("input[name=password]", password)
        page.click("button[type=submit]")
        page.wait_for_url(lambda url: "/auth/" not in url)
        yield page
    finally:
        context.close()


def trigger_by_form(page: Page, address: str, dag: str, *logs: str) -> None:
    """Starts a run of a DAG through Airflow's form of its parameters; `logs` is the first of them."""
    page.goto(f"{address}/dags/{dag}")
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog").filter(has_text="Trigger Dag")
    for log in logs:
        # A text lies over it that says what to do.
        form.get_by_role("combobox").first.click(force=True)
        page.keyboard.type(log)
        page.keyboard.press("Enter")
    form.get_by_role("button", name="Trigger", exact=True).last.click()
    form.wait_for(state="hidden")


def frame_of(page: Page, path: str) -> Frame:
    """Returns the frame of an Airflow page that shows an address, once it is loaded."""
    page.wait_for_function(
        "path => [...document.querySelectorAll('iframe')].some(f => f.contentDocument"
        " && f.contentWindow.location.pathname.startsWith(path) && f.contentDocument.readyState === 'complete')",
        arg=path,
    )
    return next(frame for frame in page.frames if urlsplit(frame.url).path.startswith(path))
