"""Where the page is in Airflow: its icon, and the addresses of what it shows."""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath
from urllib.parse import quote, urlsplit

PREFIX = "/tidefold"
# A colour that is visible on the light, dark and selected background of Airflow's navigation.
_WAVES = "".join(f"M1 {y}c3-3 5-3 8 0s5 3 8 0" for y in (5, 10, 15))
_SVG = (
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 18 18' fill='none' stroke='#5b9bd5' stroke-width='1.8' "
    f"stroke-linecap='round'><path d='{_WAVES}'/></svg>"
)
ICON = f"data:image/svg+xml,{quote(_SVG)}"


def address(path: str) -> str:
    """Returns the path of a page for links from Airflow, below the path in `[api] base_url`."""
    from airflow.configuration import conf

    below = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    return f"{below}{PREFIX}{path}"


def pipeline_name(config: str | None) -> str:
    """Returns the name of a pipeline in addresses, without its path; empty: that of TIDEFOLD_CONFIG."""
    if not config or config == _default_config():
        return ""
    digest = hashlib.sha256(config.encode()).hexdigest()
    return f"{re.sub('[^A-Za-z0-9_-]+', '-', pipeline_label(config))[:40]}-{digest[:8]}"


def pipeline_label(config: str | None) -> str:
    """Returns the name of a pipeline for people: the folder of its configuration, without the path to it."""
    path = PurePosixPath(config or _default_config())
    return path.parent.name if path.stem == "tidefold" and path.parent.name else path.stem


def _default_config() -> str:
    from tidefold_airflow.operators.run_context import config_path

    return str(config_path(None))


def pipeline_path(config: str | None) -> str:
    """Returns the path of the pages of a pipeline; empty for that of TIDEFOLD_CONFIG."""
    name = pipeline_name(config)
    return f"/p/{name}" if name else ""


def snapshot_path(log: str, snapshot: int, config: str | None = None) -> str:
    """Returns the path of the page of one snapshot."""
    return f"{pipeline_path(config)}/logs/{quote(log, safe='')}/snapshots/{snapshot}"


def run_path(dag_id: str, run_id: str) -> str:
    """Returns the path of the page of one run."""
    return f"/runs/{quote(dag_id, safe='')}/{quote(run_id, safe='')}"
