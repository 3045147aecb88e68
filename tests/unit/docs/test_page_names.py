"""A page for users names no operator, error code, variable or setting that the program does not have."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import error_reference
from tidefold.config import json_schema

ROOT = Path(__file__).parents[3]
PAGES = [page for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if "contributors" not in page.parts]
# Words of other systems that look like codes.
FOREIGN = {"ACTIVATE_VERSION", "AWS_SESSION_TOKEN", "AUTOCDC_MICROBATCH_VALIDATION", "NEW_AND_OLD_IMAGES", "NEW_IMAGE"}
_SECTIONS = "retention|local|snapshots|compaction|alarms|ttl|late|merge|quality"


@cache
def read_program() -> str:
    folders = ("include", "plugins", "dags", "jobs", "scripts", "docker")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return "".join(path.read_text() for path in [*files, ROOT / "Makefile", ROOT / "docker-compose.yaml"])


def find_named(pattern: str) -> set[tuple[str, str]]:
    """Pairs of a page and a name on it."""
    return {(page.name, name) for page in PAGES for name in re.findall(pattern, page.read_text())}


def list_keys(part: dict[str, Any], schema: dict[str, Any]) -> set[str]:
    """Every key that a section of the configuration has, on any level below it."""
    if "$ref" in part:
        part = schema["$defs"][part["$ref"].rpartition("/")[2]]
    inner = [*part.get("anyOf", ()), *part.get("oneOf", ()), *part.get("properties", {}).values()]
    return set(part.get("properties", {})).union(*(list_keys(one, schema) for one in inner if isinstance(one, dict)))


def test_every_code_and_variable_of_a_page_exists() -> None:
    codes = {code for family in error_reference.read_described_codes().values() for code in family}
    named = find_named(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`") | find_named(r"\b(TIDEFOLD_[A-Z_]+)\b")
    assert len(named) > 200
    assert {one for one in named if one[1] not in codes | FOREIGN and one[1] not in read_program()} == set()


def test_every_class_of_a_page_exists() -> None:
    named = find_named(r"\b(Tidefold[A-Z][A-Za-z]+)\b")
    assert len(named) > 5
    assert {one for one in named if f"class {one[1]}" not in read_program()} == set()


def test_every_setting_of_a_page_exists() -> None:
    schema = json_schema()
    keys: set[str] = set()
    for part in schema["$defs"].values():
        keys |= list_keys(part, schema)
    named = find_named(rf"`(?:{_SECTIONS})\.([a-z_]+)`")
    assert len(named) > 20
    # Gauges have such names, too.
    assert {one for one in named if one[1] not in keys and one[0] != "airflow.md"} == set()


def test_every_key_of_the_configuration_is_on_its_page() -> None:
    page = (ROOT / "docs/reference/config.md").read_text()
    keys = {key for part in json_schema()["$defs"].values() for key in part.get("properties", {})}
    assert len(keys) > 100
    assert {key for key in keys if not re.search(rf"[`.>]{key}[`:.]", page)} == {"owner"}, "`owner` is in a mapping"
