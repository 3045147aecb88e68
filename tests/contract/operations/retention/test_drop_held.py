"""A log whose snapshot somebody holds is not dropped: a hold ends by its name alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.commands import call

CONFIG = """\
version: 1
store: store
spark: {above: 1GB}
logs:
  sales: {source: {format: csv, path: landing}, merge: append, columns: {id: long}}
"""


@pytest.mark.parametrize("how", [(), ("--yes",)])
def test_drop_names_each_hold_and_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/a.csv").write_text("id\n1\n")
    (tmp_path / "tidefold.yaml").write_text(CONFIG)
    call("run")
    call("snapshot", "hold", "sales", "audit", "1", "--reason", "until May")
    before = sorted(tmp_path.rglob("*.parquet"))
    said = call("retain", "drop", "sales", *how, code=3).output
    assert "DROP_HELD" in said
    assert "`audit` (snapshot 1: until May)" in said
    assert sorted(tmp_path.rglob("*.parquet")) == before
    call("snapshot", "release", "sales", "audit")
    call("retain", "drop", "sales", "--yes")
    assert not sorted(tmp_path.rglob("*.parquet"))
