"""`validate` warns of what a configuration costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.bank_sets import config
from support.pipelines import CONFIG
from tidefold.cli.app import app
from tidefold.cli.commands.setup import find_growing_copies, find_idle_settings
from tidefold.config import load_config


@pytest.mark.parametrize(
    ("store", "settings", "warns"),
    [
        ("s3://bucket/a", "", True),
        ("abfss://box@account.dfs.core.windows.net/a", "", True),
        ("s3://bucket/a", "snapshots: {kind: auto}", False),
        ("s3://bucket/a", "retention: {snapshots: 3}", False),
        ("var/store", "", False),
        ("file:///var/store", "", False),
    ],
)
def test_whole_copies_that_are_kept_for_ever_in_an_object_store(
    tmp_path: Path, store: str, settings: str, warns: bool
) -> None:
    config = tmp_path / "tidefold.yaml"
    config.write_text(CONFIG.replace("store: store\n", f"store: {store}\n{settings}\n"))
    found = find_growing_copies(load_config(config))
    assert bool(found) == warns
    assert all("kind: auto" in one for one in found)


@pytest.mark.parametrize(("kind", "warns"), [("full", True), ("auto", False), ("incremental", False)])
def test_deletion_vectors_that_no_snapshot_would_have(tmp_path: Path, kind: str, warns: bool) -> None:
    config = tmp_path / "tidefold.yaml"
    text = CONFIG.replace("buckets: 4\n", "buckets: 4\n    deletion_vectors: true\n", 1)
    config.write_text(text.replace("store: store\n", f"store: store\nsnapshots: {{kind: {kind}}}\n"))
    warning = "accounts: full snapshots have no deletion vectors. Set `snapshots: {kind: auto}`."
    assert list(find_idle_settings(load_config(config))) == [warning] * warns


def test_deletion_vectors_of_a_log_with_several_rows_a_key(tmp_path: Path) -> None:
    config = tmp_path / "tidefold.yaml"
    config.write_text("""
version: 1
store: store
snapshots: {kind: auto}
logs:
  t:
    source: {format: csv, path: landing/t}
    key: [id]
    columns: {id: long, at: timestamp}
    order: [at]
    merge: history
    deletion_vectors: true
""")
    [warning] = find_idle_settings(load_config(config))
    assert warning.startswith("t: `deletion_vectors` has no effect with `merge: history`")


def test_each_set_has_its_lines_and_a_folder_without_its_topic_is_named(tmp_path: Path) -> None:
    """The key may be misspelt: the message names the folder that it may mean."""
    file = tmp_path / "tidefold.yaml"
    file.write_text(config().replace("landing/bank.transaction", "landing/bank.transactions"))
    named, right = (tmp_path / "landing" / name for name in ("bank.transactions", "bank.transaction"))
    right.mkdir(parents=True)
    missing = CliRunner().invoke(app, ["validate", "-c", str(file)])
    assert missing.exit_code == 0
    assert (
        f"warning: sets.bank.transactions: the folder {named} does not exist yet. The set publishes nothing before its "
        "transaction topic lands there. Did you mean `bank.transaction`?"
    ) in missing.stderr
    assert missing.stdout.splitlines()[-4:] == [
        "set bank: accounts, branches, tellers, history",
        f"  transactions: {named}",
        "  equal sums: branches.bbalance = tellers.tbalance",
        "  may be empty: history",
    ]
    named.mkdir()
    assert f"the folder {named} is empty" in CliRunner().invoke(app, ["validate", "-c", str(file)]).stderr
    (named / "bank.transaction+0+0000000000.jsonl").write_text("")
    landed = CliRunner().invoke(app, ["validate", "-c", str(file), "--format", "json"])
    assert "sets.bank.transactions" not in landed.stderr
    assert json.loads(landed.stdout)["sets"] == [
        {
            "set": "bank",
            "logs": ["accounts", "branches", "tellers", "history"],
            "transactions": str(named),
            "may_be_empty": ["history"],
            "equal_sums": [["branches.bbalance", "tellers.tbalance"]],
        }
    ]
