"""Takes the pictures of watch.md and docs/how-to/run-in-airflow.md: the page, and the graph, in a real Airflow.

`make page-pictures` takes all; names as arguments: only these. It needs a Chromium (scripts/install_browser).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Locator, Page

from local_airflow.settings import PROJECT, Request
from local_airflow.stack import LocalAirflow, down, up
from support.airflow_shop import wait_for
from support.browser import chromium, frame_of, logged_in
from support.page_store import Story, tell

IMAGES = PROJECT / "docs" / "images"
_LARGEST = 200_000
_ASKED = ("awaiting_input", "deferred")


@dataclass(frozen=True)
class Picture:
    """A page, by its address below the mount; `dark`: as somebody sees it whose system is dark."""

    name: str
    path: str
    height: int = 800
    dark: bool = False


PICTURES = (
    Picture("page-logs", "/"),
    Picture("page-log", "/logs/accounts", 1000),
    Picture("page-log-dark", "/logs/accounts", 620, dark=True),
    Picture("page-snapshot", "/logs/accounts/snapshots/4", 1180),
    Picture("page-retention", "/logs/accounts/retention", 900),
    Picture("page-quarantine", "/logs/orders/quarantine", 620),
)

# The question about a refused snapshot, on Airflow's own page.
QUESTION = Picture("question", "", 900)

# The graph of the DAG on Airflow's own page.
GRAPHS = (
    Picture("graph-light", "/dags/tidefold_materialize", 640),
    Picture("graph-dark", "/dags/tidefold_materialize", 640, dark=True),
)


def main() -> None:
    """Starts Airflow over the pipeline, paused, and visits each page."""
    root = Path(tempfile.mkdtemp(prefix="tidefold-pictures-"))
    try:
        (root / "pipeline").mkdir()
        story = tell(root / "pipeline", "delivered", runs=14)
        asks = {"TIDEFOLD_APPROVAL_HOURS": "24"}
        paused = Request(root / "airflow", story.root / "tidefold.yaml", "@hourly", paused=True, more=asks)
        with _open_airflow(paused) as airflow:
            _take(airflow)
            if QUESTION.name in (sys.argv[1:] or [QUESTION.name]):
                _take_question(airflow, story)
    finally:
        shutil.rmtree(root)


@contextmanager
def _open_airflow(request: Request) -> Iterator[LocalAirflow]:
    airflow = up(request, print)
    try:
        yield airflow
    finally:
        down(request.root, print)


def _take(airflow: LocalAirflow) -> None:
    IMAGES.mkdir(exist_ok=True)
    api = airflow.api
    for browser in chromium():
        for picture in (one for one in (*PICTURES, *GRAPHS) if one.name in (sys.argv[1:] or [one.name])):
            with logged_in(browser, api.address, api.user, api.password, picture.dark) as page:
                size = (_shoot_graph if picture in GRAPHS else _shoot)(page, api.address, picture)
            print(f"{picture.name}.png: {size:,} bytes")


def _take_question(airflow: LocalAirflow, story: Story) -> None:
    """Asks about a snapshot that the gate refused, as `confirm` does, and visits the page that answers."""
    story.land("branches", range(5))
    story.ingest("branches")
    snapshot = story.stage("branches", 2, passed=False)
    api, dag = airflow.api, "tidefold_materialize_approval"
    api.set_paused(dag, False)
    run = api.trigger(dag, {"log": "branches", "snapshot": snapshot})
    wait_for(lambda: api.tasks(dag, run)[0]["state"] in _ASKED, lambda: str(api.tasks(dag, run)))
    path = f"/dags/{dag}/runs/{quote(run)}/tasks/ask/required_actions"
    for browser in chromium():
        with logged_in(browser, api.address, api.user, api.password, dark=False) as page:
            page.set_viewport_size({"width": 1280, "height": QUESTION.height})
            page.goto(f"{api.address}{path}")
            page.wait_for_selector("textarea, input")
            page.wait_for_timeout(3000)
            print(f"{QUESTION.name}.png: {_save(page, QUESTION):,} bytes")


def _shoot_graph(page: Page, address: str, picture: Picture) -> int:
    page.set_viewport_size({"width": 1900, "height": picture.height})
    page.goto(f"{address}{picture.path}")
    page.locator('button[aria-label*="raph"]').first.click(force=True)
    page.wait_for_selector(".react-flow__node")
    page.locator(".react-flow__controls-fitview").first.click(force=True)
    # It moves, and does not say when it stands still.
    page.wait_for_timeout(4000)
    return _save(page.locator(".react-flow").first, picture)


def _shoot(page: Page, address: str, picture: Picture) -> int:
    page.set_viewport_size({"width": 1280, "height": picture.height})
    page.goto(f"{address}/plugin/tidefold/tidefold{picture.path}")
    frame_of(page, f"/tidefold{picture.path.partition('?')[0]}")
    # A report in its sandbox does not say when it is painted.
    page.wait_for_timeout(1500)
    return _save(page, picture)


def _save(page: Page | Locator, picture: Picture) -> int:
    path = IMAGES / f"{picture.name}.png"
    page.screenshot(path=path, scale="css")
    size = path.stat().st_size
    if size > _LARGEST:
        raise SystemExit(f"{path} has {size:,} bytes, more than {_LARGEST:,}.")
    return size


if __name__ == "__main__":
    main()
