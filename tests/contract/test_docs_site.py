"""The documentation site: `make docs` builds it, no link in it is dead, and it loads nothing from another host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs_site import make_reference
from local_airflow.settings import PROJECT
from tidefold_airflow import operators

_LOADED = re.compile(
    r"<(?:script|img|iframe|source)[^>]+src=\"(https?:)?//|<link[^>]+rel=\"(?!canonical)[^>]*href=\"https?://"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` does: strict, so that a dead link or a page outside of the navigation is an error."""
    target = tmp_path_factory.mktemp("site")
    program = Path(sys.executable).with_name("mkdocs")
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(PROJECT / name) for name in ("include", "plugins", "scripts")),
    }
    call = [str(program), "build", "--quiet", "--site-dir", str(target)]
    done = subprocess.run(call, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_every_page_of_the_documentation_is_on_it(site: Path) -> None:
    docs = PROJECT / "docs"
    pages = {page.relative_to(docs).with_suffix(".html") for page in docs.rglob("*.md") if page.name != "README.md"}
    assert {page for page in pages if not (site / page).exists()} == set()


def test_it_loads_nothing_from_another_host(site: Path) -> None:
    assert [page.name for page in site.rglob("*.html") if _LOADED.search(page.read_text())] == []
    styles = [file.read_text() for file in site.rglob("*.css")]
    assert not [style for style in styles if re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style)]


def test_references_are_made_from_the_program(site: Path) -> None:
    found = make_reference()
    assert all(f"### {name}\n" in found["reference/airflow.md"] for name in operators.__all__)
    assert "### tidefold quarantine retry\n" in found["reference/cli.md"]
    assert "`driver_memory`" in found["reference/config.md"]
    assert all((site / page).with_suffix(".html").exists() for page in found)
    assert json.loads((site / "reference/tidefold.schema.json").read_text())["$defs"]["SparkConfig"]
