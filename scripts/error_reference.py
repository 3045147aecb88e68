"""Writes docs/errors.md: every error code, its exit code, its meaning and the next step.

The codes and exit codes come from the program's text, meanings and next steps from docs/error-codes.toml.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tidefold import errors

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "error-codes.toml"
PAGE = ROOT / "docs" / "errors.md"
_SOURCES = ("include/tidefold", "plugins", "jobs")
_CODE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|[A-Z]{4,}")
# Calls that take such texts for something else.
_OTHER_CALLS = {"get", "first", "pop", "setLogLevel", "getLogger", "Word"}
# Texts in the places of codes that are no codes.
_NOT_CODES = {"VARCHAR", "BEGIN", "FAIL", "FAILED", "HEAD", "NULL", "WRITE", "TYPE"}
# Exit codes that no class shows: the code is chosen at run time, or the command line ends without a class of error.
_EXIT_CODES = {"S3_CONFLICT": 6, "UNKNOWN_OUTCOME": 6, "INTERRUPTED": 130, "UNEXPECTED": 1}
_SECTIONS = {
    "commands": ("Commands, jobs and operators", "An empty exit code means that the code alone does not determine it."),
    "configuration": (
        "Configuration",
        "Mistakes in `tidefold.yaml`. The exit code is 2 unless the table has another one.",
    ),
    "landed": (
        "Landed files",
        "Problems with a whole file. Nothing of the file is ingested. Other partitions and logs continue.",
    ),
    "quarantine": (
        "Reasons in quarantine",
        "Problems with one record. `tidefold quarantine show LOG` shows the record and the reason.",
    ),
    "page": ("The page in Airflow", "Errors of the [page](page.md). Commands do not report them."),
}
_HEAD = """# Error codes

<!-- Written by `make errors` from the program and docs/error-codes.toml. Change those, not this page. -->

Every error has a stable code, a sentence and a next step. [cli.md](cli.md#errors-and-exit-codes)
explains exit codes, [bad-input.md](bad-input.md) what happens to each kind of bad input.
"""


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


def page() -> str:
    """docs/errors.md as it must be."""
    raised, exit_codes = find_raised_codes(), _exit_codes()
    parts = [_HEAD]
    for section, codes in read_described_codes().items():
        title, text = _SECTIONS[section]
        parts += [f"\n## {title}\n\n{text}\n\n", *_rows(codes, raised, exit_codes)]
    return "".join(parts)


def _rows(codes: dict[str, list[str]], raised: dict[str, set[str]], exit_codes: dict[str, int]) -> Iterator[str]:
    ends = {
        code: [_EXIT_CODES[code]]
        if code in _EXIT_CODES
        else sorted({exit_codes[call] for call in raised.get(code, ()) if call in exit_codes})
        for code in codes
    }
    shown = any(ends.values())
    yield (
        "| code | exit code | meaning | next step |\n|---|---|---|---|\n"
        if shown
        else ("| code | meaning | next step |\n|---|---|---|\n")
    )
    for code, (meaning, step) in sorted(codes.items()):
        end = f" {', '.join(map(str, ends[code]))} |" if shown else ""
        yield f"| `{code}` |{end} {meaning} | {step} |\n"


def _exit_codes() -> dict[str, int]:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return {kind.__name__: kind.exit_code for kind in kinds if issubclass(kind, errors.TidefoldError)}


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"wrote {PAGE.relative_to(ROOT)}\n")
