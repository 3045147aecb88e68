"""What a killed ingest brought is taken over only if its bytes are those that were written. Promise I10."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars
import pytest

from support.commands import call
from support.faults import Killed
from tidefold.operations.ground import recovery

CONFIG = """\
version: 1
store: store
spark: {above: 1GB}
logs:
  sales:
    source: {format: json, path: landing}
    key: [id]
    columns: {id: long, amount: long}
"""


def land(first: int, *amounts: int) -> None:
    records = [
        {"topic": "s", "partition": 0, "offset": at, "key": {"id": at}, "value": {"id": at, "amount": amount}}
        for at, amount in enumerate(amounts, first)
    ]
    Path(f"landing/s+0+{first:010d}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records))


def amounts() -> list[int]:
    rows: list[int] = polars.read_delta("store/tables/sales").sort("id")["amount"].to_list()
    return rows


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The record of an ingest that was killed before it told its log."""
    monkeypatch.chdir(tmp_path)
    Path("landing").mkdir()
    Path("tidefold.yaml").write_text(CONFIG)
    land(0, 5, 6)
    call("run")
    land(2, 7)

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(recovery, "commit_ingest", die)
        with pytest.raises(Killed):
            call("step", "ingest")
    [path] = Path("store/changelog/intents").rglob("arrivals*.json")
    return path


def test_a_changed_digit_is_named_and_the_landed_files_are_read_again(
    brought: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = brought.read_bytes()
    # One digit of the position: the next file would count as ingested before.
    altered = re.sub(rb'"next_offset":3', rb'"next_offset":4', before)
    assert altered != before
    brought.unlink()
    brought.write_bytes(altered)
    land(3, 8)
    call("run")
    assert "INTENT_CORRUPT" in caplog.text
    assert amounts() == [5, 6, 7, 8]
    assert "INTENT_CORRUPT" in call("retain", "clean", code=5).output
    brought.unlink()
    brought.write_bytes(before)
    call("retain", "clean")
    call("run")
    assert amounts() == [5, 6, 7, 8]


def test_without_a_copy_it_may_be_deleted(brought: Path) -> None:
    brought.unlink()
    land(3, 8)
    call("run")
    assert amounts() == [5, 6, 7, 8]
    call("retain", "clean")
    call("run")
    assert amounts() == [5, 6, 7, 8]


def test_a_record_whose_name_proves_nothing_is_not_taken(brought: Path) -> None:
    brought.rename(brought.with_name("arrivals.json"))
    land(3, 8)
    call("run")
    assert amounts() == [5, 6, 7, 8]
    assert "INTENT_CORRUPT" in call("retain", "clean", code=5).output
