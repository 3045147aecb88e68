"""Finds every error code in the program's text, and reads docs/error-codes.toml, which has a meaning for each."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "error-codes.toml"
_SOURCES = ("include/tidefold", "plugins", "jobs")
_CODE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|[A-Z]{4,}")
# Calls that take such texts for something else.
_OTHER_CALLS = {"get", "first", "pop", "setLogLevel", "getLogger", "Word", "fromkeys"}
# Texts in the places of codes that are no codes.
_NOT_CODES = {"VARCHAR", "BEGIN", "FAIL", "FAILED", "HEAD", "NULL", "WRITE", "TYPE"}


@cache
def find_raised_codes() -> dict[str, set[str]]:
    """Returns every code in the program, with the names that are called with it."""
    found: dict[str, set[str]] = defaultdict(set)
    for folder in _SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for code, call in _codes_in(ast.parse(path.read_text())):
                found[code].add(call)
    return {code: calls for code, calls in found.items() if code not in _NOT_CODES}


def _codes_in(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        call, places = _places_of_codes(node)
        for place in places:
            if isinstance(place, ast.Constant) and isinstance(place.value, str) and _CODE.fullmatch(place.value):
                yield place.value, call


def _places_of_codes(node: ast.AST) -> tuple[str, list[ast.expr]]:
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rpartition(".")[2]
        keywords = [word.value for word in node.keywords if word.arg in ("code", "error")]
        return name, [] if name in _OTHER_CALLS else [*node.args, *keywords]
    if isinstance(node, ast.Tuple):
        return "", node.elts[:1]
    if isinstance(node, ast.IfExp):
        return "", [node.body, node.orelse]
    return "", []


def read_described_codes() -> dict[str, dict[str, list[str]]]:
    """Returns the table by section: the meaning and the next step of each code."""
    return tomllib.loads(TABLE.read_text())
