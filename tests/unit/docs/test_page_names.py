"""No page, help text, error or template names a code, variable, option, setting or DAG that is gone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import error_reference
from support.command_lines import ROOT as COMMANDS
from tidefold.config import json_schema

ROOT = Path(__file__).parents[3]
PAGES = [page for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if "contributors" not in page.parts]
# Words of other systems that look like codes.
FOREIGN = {
    "ACTIVATE_VERSION", "AIRFLOW_CONN_NAME", "AUTOCDC_MICROBATCH_VALIDATION", "AWS_SESSION_TOKEN",
    "FSSPEC_SFTP_KEY_FILENAME", "FSSPEC_SFTP_USERNAME", "GOOGLE_APPLICATION_CREDENTIALS", "HADOOP_CONF_DIR",
    "NEW_AND_OLD_IMAGES", "NEW_IMAGE",
}  # fmt: skip
# Options of Airflow, pip, Spark, databases and others.
FOREIGN_OPTIONS = {
    "--blob-url", "--class", "--conf", "--conn-host", "--conn-type", "--dag-id", "--exclude-editable",
    "--force-reinstall", "--from-date", "--master", "--max-active-runs", "--name", "--no-deps", "--packages",
    "--reprocess-behavior", "--require-hashes", "--run-backwards", "--single-transaction", "--statsd", "--tab",
    "--target", "--to-date",
}  # fmt: skip
_PRODUCT = ("include", "plugins", "dags", "jobs")
_STYLE = re.compile(r"<style>.*?</style>|style=\"[^\"]*\"", re.DOTALL)
_SECTIONS = "retention|local|snapshots|compaction|alarms|ttl|late|merge|quality"


@cache
def read_program() -> str:
    folders = ("include", "plugins", "dags", "jobs", "scripts", "docker")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return "".join(path.read_text() for path in [*files, ROOT / "Makefile", ROOT / "docker-compose.yaml"])


@cache
def list_texts() -> tuple[tuple[str, str], ...]:
    """Pages, and what the program says: the strings of each module (help, messages, docstrings), templates, errors."""
    modules = [path for folder in _PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))]
    templates = [path for folder in _PRODUCT for path in sorted((ROOT / folder).rglob("*.j2"))]
    said = [(path.name, "\n".join(list_strings(path))) for path in modules]
    plain = [(path.name, path.read_text()) for path in (*PAGES, error_reference.TABLE)]
    return (*said, *plain, *((path.name, _STYLE.sub("", path.read_text())) for path in templates))


def list_strings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def find_named(pattern: str) -> set[tuple[str, str]]:
    """Pairs of a text and a name in it."""
    return {(where, name) for where, text in list_texts() for name in re.findall(pattern, text)}


def list_options(command: Any) -> set[str]:
    """Every option of a command and of those below it."""
    own = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    return own.union(*(list_options(one) for one in getattr(command, "commands", {}).values()))


def list_keys(part: dict[str, Any], schema: dict[str, Any]) -> set[str]:
    """Every key that a section of the configuration has, on any level below it."""
    if "$ref" in part:
        part = schema["$defs"][part["$ref"].rpartition("/")[2]]
    inner = [*part.get("anyOf", ()), *part.get("oneOf", ()), *part.get("properties", {}).values()]
    return set(part.get("properties", {})).union(*(list_keys(one, schema) for one in inner if isinstance(one, dict)))


def test_every_code_and_variable_of_a_text_exists() -> None:
    codes = {code for family in error_reference.read_described_codes().values() for code in family}
    # Where the program has a name, it stands alone, and not in a sentence.
    alone = set(re.findall(r"""["' ]([A-Z][A-Z0-9_]+)["':=]""", read_program()))
    named = find_named(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`") | find_named(r"\b(TIDEFOLD_[A-Z_]+)\b")
    assert len(named) > 200
    assert {one for one in named if one[1] not in codes | FOREIGN | alone} == set()


def test_every_option_of_a_text_exists() -> None:
    known = list_options(COMMANDS) | {"--help"} | FOREIGN_OPTIONS
    named = find_named(r"(?<![\w-])(--[a-z][a-z-]+[a-z])")
    assert len(named) > 300
    assert {one for one in named if one[1] not in known} == set()
    assert FOREIGN_OPTIONS - {name for _, name in named} == set(), "nothing names it any more"


def test_every_dag_of_a_text_exists() -> None:
    dags = {path.stem for path in (ROOT / "dags").glob("*.py")}
    named = find_named(r"\bDAGs? `?(tidefold_[a-z_]+)")
    assert len(named) > 5
    assert {one for one in named if one[1] not in dags} == set()


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
