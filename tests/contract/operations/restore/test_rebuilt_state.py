"""What a rebuilt ledger may not mix up or forget: verdicts of attempts that it never knew, and the columns' names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.arrival import Landing

COLUMNS = "key: [id]\ncolumns: {id: long, v: long, seq: long}\norder: [seq]\nquality: {suite: suite.yaml}"
# An aborted attempt leaves no folder.
KIND = "snapshots: {kind: incremental}\n"


def make(folder: Path) -> Landing:
    at = Landing.make(folder / "at", {"o": COLUMNS}, "format: json, record: value, names: any", KIND)
    (at.folder / "suite.yaml").write_text("checks:\n  - not_null: v\n")
    return at


def row(key: int, v: int | None = 1) -> dict[str, int | None]:
    return {"id": key, "v": v, "seq": key}


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_number_that_is_given_again_gets_a_verdict_of_its_own(tmp_path: Path, attempts: int) -> None:
    """The ledger is lost after aborted attempts; their verdicts stay, and say nothing of the next snapshots."""
    at = make(tmp_path)
    at.land("first.jsonl", [row(1)])
    at.run()
    at.land("bad.jsonl", [row(2, None)])
    at.call("step", "ingest")
    for _ in range(attempts):
        at.call("step", "materialize")
        at.call("step", "quality", code=3)
        at.call("step", "abort", "o")
    at.lose_ledger("o")
    at.call("move", "rebuild", "o", "--yes")
    (at.folder / "landing/o/bad.jsonl").unlink()
    at.land("good.jsonl", [row(3)])
    at.run()
    assert [one["id"] for one in at.rows("o")] == [1, 3]
    assert "not_null" not in at.call("snapshot", "report", "o").output
    page = Path(
        json.loads(at.call("snapshot", "report", "o", "--format", "json").output)["report"].removeprefix("file://")
    )
    assert "2" in page.read_text()
    # A crash after the verdict, and before the ledger has it: the same files are not judged twice.
    assert at.snapshots("o")[0]["verdict"]["passed"]


@pytest.mark.rotates(4)
@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("later", ["nothing", "rows"])
def test_a_rename_that_no_snapshot_has_is_known_after_a_rebuild(tmp_path: Path, later: str, kept: int) -> None:
    """kept: how many versions of the ledger after the first snapshot are left, the schema's among them."""
    at = make(tmp_path)
    at.edit("quality: {suite: suite.yaml}", "quality: {max_row_drop: 1}\n    schema_evolution: {drop: evolve}")
    at.land("first.jsonl", [row(1, 7), row(2, 8)])
    at.run()
    ledger = at.folder / "store/logs/o/ledger"
    begun = max(int(one.stem) for one in ledger.iterdir())
    # `w` is in no later record, so the column needs no alias any more.
    at.edit("v: long", "w: {type: long, aliases: [v], default: null}")
    at.call("step", "ingest")
    if later == "rows":
        at.land("later.jsonl", [{"id": 3, "w": 9, "seq": 3}])
        at.call("step", "ingest")
    for one in ledger.iterdir():
        if not kept or int(one.stem) > begun + kept:
            one.unlink()
    at.call("move", "rebuild", "o", "--yes")
    at.edit(", aliases: [v]", "")
    at.land("last.jsonl", [{"id": 4, "w": 5, "seq": 4}])
    at.run()
    new = [{"id": 3, "w": 9, "seq": 3}] if later == "rows" else []
    assert at.rows("o") == [
        {"id": 1, "seq": 1, "w": 7},
        {"id": 2, "seq": 2, "w": 8},
        *new,
        {"id": 4, "seq": 4, "w": 5},
    ]
