"""The commands of docs/how-to/recover.md run: each block on a small pipeline of its own."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import polars
import pytest
from typer.testing import CliRunner

from local_airflow.settings import PROJECT
from tidefold.cli.app import app

_PAGE = (PROJECT / "docs" / "how-to" / "recover.md").read_text()
_BLOCKS = re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```bash\n(.*?)^```$", _PAGE, re.DOTALL | re.MULTILINE)
_RECIPES = [(title, block) for title, block in _BLOCKS if "orders" in block]

_CONFIG = """
version: 1
store: var/store
logs:
  orders:
    source: {format: json, path: landing/orders, record: value}
    key: [id]
    columns: {id: long, amount: long, at: {type: timestamp, encoding: iso}}
    order: [at]
    buckets: 1
"""


def call(*words: str) -> None:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, f"{words}\n{done.output}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log `orders` with two published snapshots, and the configuration of another store with the same log."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    landing = tmp_path / "landing" / "orders"
    landing.mkdir(parents=True)
    for number, amounts in enumerate(({1: 40, 2: 15}, {2: 18, 3: 7})):
        rows = [{"id": i, "amount": a, "at": f"2026-11-2{number}T10:0{i}:00Z"} for i, a in amounts.items()]
        (landing / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "tidefold.yaml").write_text(_CONFIG)
        call("run")
    (tmp_path / "new.yaml").write_text(_CONFIG.replace("var/store", "var/other"))
    return tmp_path


@pytest.mark.parametrize(("title", "block"), _RECIPES, ids=[title for title, _ in _RECIPES])
def test_the_commands_of_a_recipe_run(folder: Path, title: str, block: str) -> None:
    for line in block.strip().splitlines():
        program, *words = shlex.split(line)
        assert program == "tidefold"
        places = {"/backup/orders": str(folder / "saved"), "/new/tidefold.yaml": "new.yaml"}
        call(*(places.get(word, word) for word in words))
    if "another store" in title:
        tables = [polars.read_delta(str(folder / "var" / store / "tables/orders")) for store in ("store", "other")]
        assert tables[0].sort("id").equals(tables[1].sort("id"))


def test_there_are_such_recipes() -> None:
    assert len(_RECIPES) >= 3
