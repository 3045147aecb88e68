"""Takes the pictures of README and docs from the product of the day: page, graph, question and report.

`make pictures` takes all; names as arguments: only these. It needs a Chromium (scripts/install_browser).
docs/images/made_of.json keeps what each was made of; tests/unit/docs/test_pictures.py fails when that has changed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Locator, Page

import report_image
from local_airflow.settings import PROJECT, Request
from local_airflow.stack import LocalAirflow, down, up
from support.airflow_shop import wait_for
from support.browser import chromium, frame_of, logged_in
from support.page_store import Story, tell

IMAGES = PROJECT / "docs" / "images"
RECORD = IMAGES / "made_of.json"
_TEMPLATES = "plugins/tidefold_airflow/ui/templates"
_FRAME = (f"{_TEMPLATES}/base.html.j2", f"{_TEMPLATES}/parts.html.j2", f"{_TEMPLATES}/style.css")
_LARGEST = 200_000
_ASKED = ("awaiting_input", "deferred")


@dataclass(frozen=True)
class Picture:
    """A picture of docs/images.

    :param path: The address, below the mount for a page of tidefold.
    :param made_of: The files that decide how it looks, below the project.
    :param dark: As somebody sees it whose system is dark.
    """

    name: str
    path: str
    made_of: tuple[str, ...]
    height: int = 800
    dark: bool = False


def _page(name: str, path: str, template: str, height: int = 800, dark: bool = False) -> Picture:
    return Picture(name, path, (*_FRAME, f"{_TEMPLATES}/{template}.html.j2"), height, dark)


PAGES = (
    _page("page-logs", "/", "logs"),
    _page("page-log", "/logs/accounts", "log", 1000),
    _page("page-log-dark", "/logs/accounts", "log", 620, dark=True),
    _page("page-snapshot", "/logs/accounts/snapshots/4", "snapshot", 1180),
    _page("page-checks", "/logs/accounts/checks", "checks", 800),
    _page("page-retention", "/logs/accounts/retention", "retention", 900),
    _page("page-quarantine", "/logs/orders/quarantine", "quarantine", 620),
)
# The question about a refused snapshot, and the graph of the DAG, on Airflow's own pages.
QUESTION = Picture("question", "", ("plugins/tidefold_airflow/dags/approval.py",), 900)
GRAPHS = (
    Picture("graph-light", "/dags/tidefold_materialize", (), 640),
    Picture("graph-dark", "/dags/tidefold_materialize", (), 640, dark=True),
)
_REPORTS = "include/tidefold/quality/report"
REPORT = Picture("report", "", (f"{_REPORTS}/page.html.j2", f"{_REPORTS}/report.html.j2"))
PICTURES = (*PAGES, *GRAPHS, QUESTION, REPORT)


def main() -> None:
    """Takes the pictures, and stores what each was made of."""
    asked = {*sys.argv[1:]} or {one.name for one in PICTURES}
    if asked & {one.name for one in (*PAGES, *GRAPHS, QUESTION)}:
        _visit_airflow(asked)
    if REPORT.name in asked:
        report_image.main(["", str(IMAGES / f"{REPORT.name}.png")])
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    known |= {one.name: hash_of(one) for one in PICTURES if one.name in asked}
    RECORD.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def hash_of(picture: Picture) -> str:
    """Returns the SHA-256 of the files that decide how a picture looks."""
    return hashlib.sha256(b"".join((PROJECT / name).read_bytes() for name in picture.made_of)).hexdigest()


def _visit_airflow(asked: set[str]) -> None:
    """Starts Airflow over a pipeline, paused, and visits each page."""
    root = Path(tempfile.mkdtemp(prefix="tidefold-pictures-"))
    try:
        (root / "pipeline").mkdir()
        story = tell(root / "pipeline", "delivered", runs=14)
        asks = {"TIDEFOLD_APPROVAL_HOURS": "24"}
        paused = Request(root / "airflow", story.root / "tidefold.yaml", "@hourly", paused=True, more=asks)
        with _open_airflow(paused) as airflow:
            _take(airflow, asked)
            if QUESTION.name in asked:
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


def _take(airflow: LocalAirflow, asked: set[str]) -> None:
    api = airflow.api
    for browser in chromium():
        for picture in (one for one in (*PAGES, *GRAPHS) if one.name in asked):
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
