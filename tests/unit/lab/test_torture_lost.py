"""Rows that a killed connector left out in the middle of a COPY: what is missing must be exactly these."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from torture.lost import find_lost, read_written
from torture.postgres_kinds import postgres_kinds
from torture.tables import Table

# A seed's own: five rows of a COPY, then a row of another record. 0/0D808070 is 226525296.
WAL = (
    "rmgr: Heap2       len (rec/tot):    750/   750, tx:       6392, lsn: 0/0D808070, prev 0/0D808030, desc: "
    "MULTI_INSERT ntuples: 5, flags: 0x0A, offsets: [30, 31, 32, 33, 34], blkref #0: rel 1663/38234/38423 blk 2\n"
    "rmgr: Heap2       len (rec/tot):    232/   232, tx:       6251, lsn: 1/0D24B1C0, prev 0/0D249170, desc: "
    "MULTI_INSERT+INIT ntuples: 1, flags: 0x0A, blkref #0: rel 1663/38234/38423 blk 1\n"
    "rmgr: Heap2       len (rec/tot):     59/    59, tx:          0, lsn: 0/0D808200, prev 0/0D808070, desc: "
    "PRUNE_ON_ACCESS snapshotConflictHorizon: 6390, nredirected: 0, ndead: 1\n"
)
COPY, LATER = 226525296, 226557800
ROWS = ["a", "b", "b", "d", "e"]


def test_rows_written_at_once_are_counted_by_lsn() -> None:
    assert read_written(WAL) == {COPY: 5, (1 << 32) + 0x0D24B1C0: 1}


@pytest.mark.parametrize(
    ("runs", "lost"),
    [
        ({"first": ROWS[:2]}, 3),
        ({"first": ROWS[:3]}, 2),
        ({"first": ROWS[:2], "second": ROWS}, 0),
        ({"first": ROWS[:2], "second": ROWS[:3]}, 2),
        ({}, 0),
    ],
)
def test_rows_without_a_key_are_lost_if_the_log_counts_exactly_them(
    tmp_path: Path, runs: dict[str, list[str]], lost: int
) -> None:
    _capture(tmp_path, [*_copied(runs), _record("c", LATER, "z", "second")])
    for count in range(1, 5):
        missing = Counter({("row",): count})
        assert find_lost(tmp_path, _table(), missing, read_written(WAL)) == (missing if count == lost else Counter())


def test_a_truncate_ends_what_was_lost(tmp_path: Path) -> None:
    _capture(tmp_path, [*_copied({"first": ROWS[:2]}), _record("t", LATER, None, "second")])
    assert not find_lost(tmp_path, _table(), Counter({("row",): 3}), read_written(WAL))


def test_a_row_whose_key_is_in_a_record_is_not_lost(tmp_path: Path) -> None:
    _capture(tmp_path, _copied({"first": ROWS[:2]}))
    missing = Counter({("a", "row"): 1, ("d", "row"): 1, ("e", "row"): 1})
    lost = Counter({("d", "row"): 1, ("e", "row"): 1})
    assert find_lost(tmp_path, _table("id"), missing, read_written(WAL)) == lost
    more = Counter({(key, "row"): 1 for key in "cdefg"})
    assert not find_lost(tmp_path, _table("id"), more, read_written(WAL))


def _table(*key: str) -> Table:
    [text] = [kind for kind in postgres_kinds(random.Random(0)) if kind.name == "varchar"]
    return Table("t", dict.fromkeys(key, text), {}, "stop")


def _copied(runs: dict[str, list[str]]) -> list[dict[str, Any]]:
    return [_record("c", COPY, row, run) for run, rows in runs.items() for row in rows]


def _record(op: str, lsn: int, row: str | None, run: str) -> dict[str, Any]:
    source = {"sequence": json.dumps(["226422648", str(lsn)]), "snapshot": "false"}
    value = {"op": op, "after": row and {"id": row}, "source": source}
    return {"key": {"id": row}, "value": value, "headers": [{"key": "__debezium.context.runId", "value": run}]}


def _capture(folder: Path, records: Iterable[dict[str, Any]]) -> None:
    (folder / "t+0+0000000000.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
