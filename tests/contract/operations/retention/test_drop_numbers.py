"""A dropped log forgets the numbers of its files, which decide at equal order: the drop says so where it matters."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.commands import call

CONFIG = """\
version: 1
store: store
spark: {above: 1GB}
logs:
  sales: {source: {format: csv, path: landing}, key: [id], order: file, columns: {id: long, text: string}}
"""


@pytest.mark.parametrize(("second", "row", "told"), [("a.csv", "first", True), ("c.csv", "second", False)])
def test_a_drop_says_that_files_get_other_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str, row: str, told: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "landing").mkdir()
    (tmp_path / "tidefold.yaml").write_text(CONFIG)
    (tmp_path / "landing/b.csv").write_text("id,text\n1,first\n")
    call("run")
    (tmp_path / "landing" / second).write_text("id,text\n1,second\n")
    call("run")
    assert "second" in call("read", "sales").output
    said = call("retain", "drop", "sales").output
    assert ("other numbers" in said) == told
    done = call("retain", "drop", "sales", "--yes").output
    assert ("other numbers" in done) == told
    call("run")
    assert row in call("read", "sales").output
