"""`validate` warns of what a configuration costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.pipelines import CONFIG
from tidefold.cli.commands.validate import find_growing_copies
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
