"""A benchmark's page keeps what separate runs added, and the commands on the pages exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).parents[3]
PAGES = sorted((PROJECT / "docs" / "contributors" / "benchmarks").glob("*.md"))
_COMMAND = re.compile(r"`((?:[A-Z]+=\S+ )*)make ([a-z-]+)((?: [A-Z]+=\S+)*)`")


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(PROJECT / "benchmarks"))
    monkeypatch.delenv("WRITE", raising=False)
    module = importlib.import_module("tables")
    monkeypatch.setattr(module, "PAGES", tmp_path)
    return module


def test_a_page_that_is_written_again_keeps_separate_runs(tables: ModuleType, tmp_path: Path) -> None:
    tables.write_page("a.md", ["# A", "old"])
    added = f"\n{tables.KEPT}\n\n## Another run\n\n| 1 |\n"
    (tmp_path / "a.md").write_text(f"# A\nold\n{added}")
    for text in ("new", "newest"):
        tables.write_page("a.md", ["# A", text])
        assert (tmp_path / "a.md").read_text() == f"# A\n{text}\n{added}"


def test_a_run_beside_the_page_writes_nothing(
    tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRITE", "0")
    tables.write_page("a.md", ["# A"])
    assert not (tmp_path / "a.md").exists()


def test_the_commands_on_the_pages_exist() -> None:
    """The target is one of the Makefile's, and something reads each variable."""
    makefile = (PROJECT / "Makefile").read_text()
    programs = "".join(path.read_text() for path in (PROJECT / "benchmarks").glob("*.py"))
    found = [match for page in PAGES for match in _COMMAND.findall(page.read_text())]
    assert len(found) > 10
    for before, target, after in found:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        for name in re.findall(r"([A-Z]+)=", before + after):
            texts = f"$({name})" in makefile, f"ifdef {name}\n" in makefile, f'environ.get("{name}"' in programs
            assert any(texts), f"{target}: nothing reads {name}"
