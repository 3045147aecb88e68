"""`init` writes a file that validates, leaves out by name what it cannot propose, and overwrites nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tidefold.cli.app import app
from tidefold.config import load_config


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    return tmp_path


def land(
    folder: Path, topic: str, row: dict[str, Any], key: dict[str, Any] | None, connector: str = "postgresql"
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    value = {"before": None, "after": row, "op": "c", "source": {"connector": connector, "sequence": '[null,"1"]'}}
    record = {"topic": topic, "partition": 0, "offset": 0, "key": key, "value": value}
    (folder / f"{topic}+0+0000000000.jsonl").write_text(json.dumps(record) + "\n")


def init(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["init", *arguments])


def test_the_file_validates_and_its_comments_say_what_was_seen(folder: Path) -> None:
    land(
        folder / "landing/bank.public.accounts", "bank.public.accounts", {"aid": 7, "on": "x", "rate": 0.5}, {"aid": 7}
    )
    assert init("landing").exit_code == 0
    accounts = load_config(Path("tidefold.yaml")).logs["accounts"]
    assert accounts.source.folder == folder / "landing/bank.public.accounts"
    assert accounts.key == ("aid",)
    assert [(c.name, c.type) for c in accounts.columns] == [("aid", "long"), ("on", "string"), ("rate", "double")]
    assert "aid: long # 7 to 7 seen: `int` would fit" in Path("tidefold.yaml").read_text()
    assert CliRunner().invoke(app, ["validate"]).exit_code == 0


def test_an_existing_file_is_left_as_it_is(folder: Path) -> None:
    land(folder / "landing", "t", {"id": 1}, {"id": 1})
    Path("tidefold.yaml").write_text("mine")
    refused = init("landing")
    assert refused.exit_code == 3
    assert "error [CONFIG_EXISTS]" in refused.stderr
    assert "--config" in refused.stderr
    assert Path("tidefold.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("row", "key", "connector", "why"),
    [
        ({"a": 1}, None, "postgresql", "the records have no key"),
        ({"a": 1}, {"a": 1}, "oracle", "only postgresql, mysql, mariadb are supported"),
        ({"_a": 1}, {"_a": 1}, "postgresql", "begins with `_`"),
        ({"a b": 1}, {"a b": 1}, "postgresql", "cannot name a column"),
        ({"a": 1.5}, {"a": 1.5}, "postgresql", "of type double"),
        ({"a": 1, "x\n  evil: {}": 1}, {"a": 1}, "postgresql", "cannot name a column"),
    ],
)
def test_what_cannot_be_used_is_left_out_as_a_comment(
    row: dict[str, Any], key: dict[str, Any] | None, connector: str, why: str, folder: Path
) -> None:
    land(folder / "landing/good", "good", {"id": 1}, {"id": 1})
    land(folder / "landing/other", "other", row, key, connector)
    done = CliRunner().invoke(app, ["init", "landing", "--format", "json"])
    assert done.exit_code == 0
    assert why in json.loads(done.stdout)["left_out"]["other"][0]
    assert list(load_config(Path("tidefold.yaml")).logs) == ["good"]
    assert "  # other:" in Path("tidefold.yaml").read_text().splitlines()


def test_nothing_usable_writes_nothing(folder: Path) -> None:
    (folder / "empty").mkdir()
    nothing = init("empty")
    assert (nothing.exit_code, "[NOTHING_LANDED]" in nothing.stderr) == (2, True)
    land(folder / "landing", "t", {"a": 1}, None)
    unusable = init("landing")
    assert (unusable.exit_code, "[NO_LOG_USABLE]" in unusable.stderr) == (2, True)
    assert "t: the records have no key" in unusable.stderr
    assert not Path("tidefold.yaml").exists()


def test_a_landing_folder_around_the_store_is_left_out(folder: Path) -> None:
    land(folder, "t", {"id": 1}, {"id": 1})
    refused = init(".")
    assert "holds the store" in refused.stderr
    assert not Path("tidefold.yaml").exists()


def test_landing_folders_elsewhere_are_named_in_full(folder: Path) -> None:
    land(folder / "in/landing", "t", {"id": 1}, {"id": 1})
    assert init("in/landing", "-c", "project/tidefold.yaml").exit_code == 0
    assert load_config(Path("project/tidefold.yaml")).logs["t"].source.folder == folder / "in/landing"
