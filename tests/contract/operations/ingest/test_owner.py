"""A log has one owner in a store: two configurations that name it by accident are refused, and a moved one is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.arrival import Landing

LINES = "key: [id]\ncolumns: {id: long, v: string}\norder: file\nquality: {max_row_drop: 1}"
SOURCES = {
    "names": "format: json, record: value, names: any",
    "offsets": "format: json",
    "extract": "format: csv, extract: {max_deletes: 1}",
}


def make(folder: Path, source: str) -> Landing:
    lines = LINES if source == "names" else LINES.replace("order: file\n", "")
    at = Landing.make(folder, {"orders": lines}, SOURCES[source])
    at.edit("store: store", f"store: {folder.parent / 'store'}")
    return at


def land(at: Landing, source: str, number: int, key: int) -> None:
    rows: list[dict[str, Any]] = [{"id": key, "v": at.folder.name}]
    if source == "offsets":
        rows = [{"topic": "orders", "partition": 0, "offset": number, "key": {"id": key}, "value": rows[0], "op": "c"}]
    name = {"names": f"f-2026-01-0{number + 1}.jsonl", "offsets": f"orders+0+{number:010d}.jsonl"}
    at.land(name.get(source, f"orders_2026-01-0{number + 1}.csv"), rows)


def keys(at: Landing) -> list[int]:
    return [row["id"] for row in at.rows("orders")]


@pytest.fixture(params=["names", "extract"])
def source(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


def test_a_second_configuration_is_refused_by_name_and_changes_nothing(tmp_path: Path, source: str) -> None:
    one, other = make(tmp_path / "one", source), make(tmp_path / "other", source)
    land(one, source, 0, 1)
    one.run()
    (other.folder / "tidefold.yaml").write_text((one.folder / "tidefold.yaml").read_text())
    land(other, source, 1, 2)
    for command in ("step ingest", "run"):
        said = other.call(*command.split(), code=3).output
        assert "[LOG_OWNED]" in said
        assert str(one.folder / "landing/orders") in said
        assert "tidefold step ingest orders --own" in said
    assert keys(one) == [1]
    # What the other one finds in its own folder is no matter of the log.
    before = one.call("status", "--format", "json").stdout
    for file in (other.folder / "landing/orders").iterdir():
        file.unlink()
    other.land("notes.txt", "x")
    other.call("step", "ingest", code=None)
    assert json.loads(one.call("status", "--format", "json").stdout) == json.loads(before)
    # The owner goes on, and so do commands that read no landed file.
    land(one, source, 2, 3)
    one.run()
    assert 3 in keys(other)
    other.call("restore", "orders", "1", "--log-position", "skip")


@pytest.mark.rotates(6)
@pytest.mark.parametrize("how", ["moved", "copied", "link", "renamed", "cleaned"])
def test_an_owner_that_moved_goes_on(tmp_path: Path, source: str, how: str) -> None:
    one = make(tmp_path / "one", source)
    for number in (0, 1):
        land(one, source, number, number)
    one.run()
    if how == "renamed":
        (one.folder / "landing/orders").rename(one.folder / "landing/bestellungen")
        one.edit("path: landing/orders", "path: landing/bestellungen")
        two = one
    elif how == "link":
        (tmp_path / "two").symlink_to(one.folder)
        two = Landing(tmp_path / "two")
        for file in (one.folder / "landing/orders").iterdir():
            file.unlink()
    else:
        shutil.copytree(one.folder, tmp_path / "two")
        two = Landing(tmp_path / "two")
        if how == "moved":
            shutil.rmtree(one.folder)
        if how == "cleaned":
            next(iter(sorted((two.folder / "landing/orders").iterdir()))).unlink()
    land(two, source, 2, 2)
    two.run()
    assert 2 in keys(two)
    # The files of before may go now. A clone of the configuration beside it goes on, too.
    for file in (two.folder / "landing").glob("*/*"):
        file.unlink()
    land(two, source, 3, 3)
    two.run()
    assert 3 in keys(two)
    if how == "copied":
        land(one, source, 4, 4)
        one.run()
        assert 4 in keys(one)


def test_a_log_is_taken_over_and_the_former_owner_is_refused(tmp_path: Path, source: str) -> None:
    one, other = make(tmp_path / "one", source), make(tmp_path / "other", source)
    land(one, source, 0, 1)
    one.run()
    (other.folder / "tidefold.yaml").write_text((one.folder / "tidefold.yaml").read_text())
    land(other, source, 1, 2)
    other.call("step", "ingest", code=3)
    other.call("step", "ingest", "orders", "--own")
    other.run()
    assert 2 in keys(other)
    land(one, source, 2, 3)
    assert "[LOG_OWNED]" in one.call("run", code=3).output


def test_a_log_that_was_dropped_or_rebuilt_gets_its_owner_again(tmp_path: Path) -> None:
    one, other = make(tmp_path / "one", "names"), make(tmp_path / "other", "names")
    land(one, "names", 0, 1)
    one.run()
    (other.folder / "tidefold.yaml").write_text((one.folder / "tidefold.yaml").read_text())
    shutil.rmtree(tmp_path / "store/logs/orders/ledger")
    one.call("move", "rebuild", "orders", "--yes")
    land(one, "names", 1, 2)
    one.run()
    land(other, "names", 2, 3)
    assert "[LOG_OWNED]" in other.call("run", code=3).output
    other.call("retain", "drop", "orders", "--yes")
    other.run()
    assert keys(other) == [3]
    assert "[LOG_OWNED]" in one.call("run", code=3).output
