"""The documentation holds together: links, pictures, cited promises, error codes, the index."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import error_reference
import wrap_text
from tidefold.cli.app import app

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
CONTRIBUTORS = DOCS / "contributors"
NUMBERED = (CONTRIBUTORS / "requirements.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "lab").rglob("README.md")])
CODE = ("include", "plugins", "jobs", "dags", "scripts", "benchmarks", "tests", "lab")
_CITED = re.compile(r"(?<![\w.\"'`/])(?:I|C|L|N|S|A|M)[1-9]\d?(?!\w|[.'/]\w)")
_MAYBE_CITED = re.compile(r"[ICLNSAM][1-9]")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)", re.DOTALL)
_WORD = re.compile(r"\S*\w\S*")
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", one)).lower() for one in headings)
    return {one.replace(" ", "-") for one in plain}


def leads_nowhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return not target.exists() or bool(anchor and anchor not in anchors(target))


def test_every_link_leads_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in _LINK.findall(_FENCE.sub("", page.read_text()))]
    inside = [(page, link) for page, link in links if not link.startswith(("http://", "https://"))]
    assert len(inside) > 300
    assert [(page_id(page), link) for page, link in inside if leads_nowhere(page, link)] == []


def find_navigation() -> set[str]:
    return set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))


def test_the_navigation_has_every_page_but_those_for_contributors() -> None:
    navigation = find_navigation()
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if CONTRIBUTORS not in page.parents}
    assert navigation - pages == {"index.md", "explanation/security.md"}, "these stand beside docs/"
    assert pages - navigation == set()
    assert len(navigation) <= 30


@pytest.mark.parametrize(("name", "most"), [("README.md", 700), ("CHANGELOG.md", 400)])
def test_the_first_pages_stay_short(name: str, most: int) -> None:
    """A line more? It takes the place of another one."""
    assert len((ROOT / name).read_text().split()) <= most


def test_the_pages_of_the_navigation_stay_short() -> None:
    """Home has a limit of its own, above. A word has a letter or a digit; what the site adds does not count."""
    beside = {"explanation/security.md": ROOT / "SECURITY.md"}
    pages = [beside.get(name, DOCS / name) for name in find_navigation() - {"index.md"}]
    assert len(pages) > 25
    words = {page_id(page): len(_WORD.findall(page.read_text().replace("|", " "))) for page in pages}
    assert sum(words.values()) <= 45_000, sorted(words.items(), key=lambda one: -one[1])


def test_every_page_for_contributors_is_in_an_index_of_theirs() -> None:
    """A decision is missing? Add one line to docs/contributors/decisions/README.md, below its subject."""
    indexes = sorted(CONTRIBUTORS.rglob("README.md"))
    linked = {(page.parent / link).resolve() for page in indexes for link in _LINK.findall(page.read_text())}
    pages = {page for page in CONTRIBUTORS.rglob("*.md") if page != CONTRIBUTORS / "README.md"}
    assert {page_id(page) for page in pages - linked} == set()


def test_every_verb_and_option_of_the_command_line_is_explained() -> None:
    page = (DOCS / "reference" / "cli.md").read_text()
    verbs: dict[str, Any] = {}
    for name, one in getattr(typer.main.get_command(app), "commands", {}).items():
        below = getattr(one, "commands", None)
        verbs |= {f"{name} {word}": verb for word, verb in below.items()} if below else {name: one}
    assert [name for name in verbs if f"`{name} " not in page and f"`{name}`" not in page] == []
    options = {option for verb in verbs.values() for one in verb.params for option in one.opts if option[:2] == "--"}
    assert sorted(option for option in options if option not in page) == []


def comments_and_docstrings(path: Path) -> Iterator[str]:
    """Yields those of a file that may cite a promise."""
    text = path.read_text()
    maybe = [line for line in text.splitlines() if _MAYBE_CITED.search(line)]
    # Most files cite none, and reading tokens is slow.
    if not maybe:
        return
    if any("#" in line for line in maybe):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def test_every_cited_promise_is_defined_and_every_promise_has_a_test() -> None:
    defined = set(re.findall(r"^\| ([ICLNSAM]\d+) \|", NUMBERED, re.MULTILINE))
    assert len(defined) > 75
    promised = set(re.findall(r"^\| (I\d+) \| (?!Goal)", NUMBERED, re.MULTILINE))
    undefined: dict[str, set[str]] = {}
    for path in (path for folder in CODE for path in (ROOT / folder).rglob("*.py")):
        for text in comments_and_docstrings(path):
            promised -= set(_CITED.findall(text)) if path.name.startswith("test_") else set()
            if unknown := set(_CITED.findall(text)) - defined:
                undefined.setdefault(str(path.relative_to(ROOT)), set()).update(unknown)
    for page in PAGES:
        if unknown := set(_CITED.findall(_FENCE.sub("", page.read_text()))) - defined:
            undefined[page_id(page)] = unknown
    assert undefined == {}
    assert promised == set(), "no test cites them"


def test_every_page_that_a_program_names_exists() -> None:
    files = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    files += [ROOT / "Makefile", ROOT / "pyproject.toml", error_reference.TABLE]
    pages = re.compile(r"(?<![\w/])docs/[\w/-]+\.(?:md|toml|py)\b(?:#[\w-]+)?")
    named = {(page, path.name) for path in files for page in pages.findall(path.read_text())}
    assert len(named) > 50
    assert [one for one in sorted(named) if leads_nowhere(ROOT / "Makefile", one[0])] == []


def test_no_page_outside_the_project_is_cited() -> None:
    folders = (ROOT / folder for folder in CODE)
    texts = {path: path.read_text() for folder in folders for path in folder.rglob("*.py")}
    pattern = re.compile(r"\bdesign [0-9]", re.IGNORECASE)
    assert [str(path.relative_to(ROOT)) for path, text in texts.items() if pattern.search(text)] == []


def test_every_error_code_is_described_and_nothing_else_is() -> None:
    """A code is missing? Add one line to docs/error-codes.toml, for `tidefold explain`."""
    described = [code for codes in error_reference.read_described_codes().values() for code in codes]
    raised = set(error_reference.find_raised_codes())
    assert raised - set(described) == set(), "not in docs/error-codes.toml"
    assert set(described) - raised == set(), "in docs/error-codes.toml, but not in the program"
    assert len(described) == len(set(described))


def test_the_page_of_errors_has_each_family() -> None:
    text = (DOCS / "reference" / "errors.md").read_text()
    assert all(f"`{family}`" in text for family in error_reference.read_described_codes())


def test_no_merge_was_left_unfinished() -> None:
    unfinished = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
    assert [page_id(page) for page in PAGES if unfinished.search(page.read_text())] == []


def test_the_text_is_wrapped() -> None:
    """What is listed: run `make wrap`."""
    texts = {page: page.read_text() for page in wrap_text.pages()}
    assert [page_id(page) for page, text in texts.items() if wrap_text.wrap(text) != text] == []
