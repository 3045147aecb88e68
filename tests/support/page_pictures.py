"""Takes the pictures of watch.md and docs/how-to/run-in-airflow.md: the page, and a run, each in a real Airflow.

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

from playwright.sync_api import Page

from local_airflow.settings import PROJECT, Request
from local_airflow.stack import LocalAirflow, down, up
from support.airflow_stack import wait_until
from support.browser import chromium, frame_of, logged_in
from support.page_store import tell
from tidefold.cli.sample import PHASES, land, prepare

IMAGES = PROJECT / "docs" / "images"
_LARGEST = 200_000


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

# A run on Airflow's own page, with the state of each task.
RUN = Picture("run", "/dags/tidefold_materialize/runs/", 720)


def main() -> None:
    """Starts Airflow over the pipeline, paused, and visits each page; then another one, for a run of the sample."""
    root = Path(tempfile.mkdtemp(prefix="tidefold-pictures-"))
    try:
        if sys.argv[1:] != [RUN.name]:
            (root / "pipeline").mkdir()
            story = tell(root / "pipeline", "delivered", runs=14)
            paused = Request(root / "airflow", story.root / "tidefold.yaml", "@hourly", paused=True)
            with _open_airflow(paused) as airflow:
                _take(airflow)
        if RUN.name in (sys.argv[1:] or [RUN.name]):
            config = prepare(root / "sample", above=None)
            land(config, PHASES[0])
            with _open_airflow(Request(root / "second", config, "")) as airflow:
                _take_run(airflow)
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
        for picture in (one for one in PICTURES if one.name in (sys.argv[1:] or [one.name])):
            with logged_in(browser, api.address, api.user, api.password, picture.dark) as page:
                size = _shoot(page, api.address, picture)
            print(f"{picture.name}.png: {size:,} bytes")


def _take_run(airflow: LocalAirflow) -> None:
    """Starts a run, waits until it has ended, and takes its page."""
    dag, api = "tidefold_materialize", airflow.api
    run = api.trigger(dag)
    wait_until(lambda: all(one["state"] in ("success", "failed") for one in api.runs(dag)))
    for browser in chromium():
        with logged_in(browser, api.address, api.user, api.password) as page:
            page.set_viewport_size({"width": 1280, "height": RUN.height})
            page.goto(f"{api.address}{RUN.path}{quote(run)}")
            page.wait_for_timeout(4000)
            print(f"{RUN.name}.png: {_save(page, RUN):,} bytes")


def _shoot(page: Page, address: str, picture: Picture) -> int:
    page.set_viewport_size({"width": 1280, "height": picture.height})
    page.goto(f"{address}/plugin/tidefold/tidefold{picture.path}")
    frame_of(page, f"/tidefold{picture.path.partition('?')[0]}")
    # A report in its sandbox does not say when it is painted.
    page.wait_for_timeout(1500)
    return _save(page, picture)


def _save(page: Page, picture: Picture) -> int:
    path = IMAGES / f"{picture.name}.png"
    page.screenshot(path=path, scale="css")
    size = path.stat().st_size
    if size > _LARGEST:
        raise SystemExit(f"{path} has {size:,} bytes, more than {_LARGEST:,}.")
    return size


if __name__ == "__main__":
    main()
