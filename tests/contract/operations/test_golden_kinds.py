"""Stores of each kind of log that released code wrote stay readable, and live on: I27, decision 0013."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from golden.kinds import list_rows, read_table
from support.arrival import Landing
from support.golden import KIND_ARCHIVES
from support.pipelines import contents


@pytest.fixture(params=KIND_ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Landing:
    with tarfile.open(request.param) as packed:
        packed.extractall(tmp_path, filter="data")
    return Landing(tmp_path)


def truth_of(kept: Landing) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((kept.folder / "truth.json").read_text())
    return found


def check_rows(kept: Landing, what: str) -> None:
    for log, truth in truth_of(kept)["logs"].items():
        said = kept.call("read", log, "--limit", "100", "--format", "json").stdout
        assert list_rows(json.loads(said)["rows"]) == list_rows(truth[what]), log
        assert list_rows(read_table(str(kept.folder / "store/tables" / log))) == list_rows(truth[what]), log


def test_what_a_release_wrote_is_read_and_no_byte_changes(kept: Landing) -> None:
    before = contents(kept.folder)
    check_rows(kept, "rows")
    said = kept.call("status", code=None).output
    assert "STORE_NEWER" not in said
    assert "files proved" in said, "the proof is read"
    for log in truth_of(kept)["logs"]:
        assert "report-" in kept.call("snapshot", "report", log).output
    assert contents(kept.folder) == before


def test_a_savepoint_of_a_release_is_imported(kept: Landing, tmp_path: Path) -> None:
    other = Landing(tmp_path / "other")
    other.folder.mkdir()
    shutil.copy(kept.folder / "tidefold.yaml", other.folder)
    for log, path in truth_of(kept)["savepoints"].items():
        other.call("move", "import", log, str(kept.folder / path))
        other.call("step", "quality", log)
        other.call("step", "confirm", log)
        assert list_rows(other.rows(log)) == list_rows(truth_of(kept)["logs"][log]["rows"])


def test_the_life_of_each_kind_goes_on(kept: Landing) -> None:
    """The next change of each log is folded onto what the release had, and its sidecars are read."""
    for place in (kept.folder / "later", kept.folder / "next"):
        target = kept.folder / ("landing" if place.name == "later" else "")
        for path in sorted(one for one in place.rglob("*.*") if one.is_file()):
            os.replace(path, target / path.relative_to(place))
    for words in truth_of(kept).get("before", ()):
        kept.call(*words.split())
    kept.run()
    check_rows(kept, "later")
    kept.call("check", "verify", "--deep")
