"""A run that clears a table says how often and what was there, and loses no rows without the gate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from tidefold.cli.app import app

Row = dict[str, Any]


def rows(ids: Sequence[int], order: int, op: str = "r", mark: str = "true", rising: bool = False) -> list[Row]:
    """Records of some keys, with one position as a connector's snapshot has it, or with rising ones."""
    return [
        {
            "op": op,
            "after": {"id": i},
            "source": {"sequence": f'[null,"{order + n * rising}"]', "ts_us": order, "snapshot": mark},
        }
        for n, i in enumerate(ids)
    ]


def changes(ids: Sequence[int], order: int) -> list[Row]:
    return rows(ids, order, "c", "false", rising=True)


TRUNCATE = {"op": "t", "source": {"sequence": '[null,"500"]', "ts_us": 500, "snapshot": "false"}}


@dataclass(frozen=True)
class Case:
    """A log. `first`, `second`: the records of its two runs. `line`: in the line of a run, or nothing of it.

    left: the rows of its table; `refused`: the gate refuses the second run (the first, if there is no second).
    """

    name: str
    first: list[Row]
    second: list[Row]
    line: str
    left: int
    refused: bool
    merge: str = "last"


CASES = [
    Case("rising", rows(range(150), 10, rising=True), [], "cleared 149 times, 149 rows before", 0, True),
    Case("first_wins", rows(range(150), 10, rising=True), [], "cleared 149 times, 149 rows before", 0, True, "first"),
    Case("keyless", rows(range(150), 10, rising=True), [], "cleared 149 times, 149 rows before", 0, True, "append"),
    Case("one_snapshot", rows(range(150), 10), [], "", 150, False),
    Case("in_one_run", rows([1], 10), [*changes(range(100), 20), *rows([1], 300)], "cleared once, 100 rows", 1, True),
    Case("before_it", rows(range(100), 10), [*changes([7], 20), *rows([1], 300)], "cleared once, 100 rows", 100, True),
    Case("the_same_again", rows(range(100), 10), rows(range(99), 300), "cleared once, 100 rows before", 99, False),
    # What the source itself empties is no loss.
    Case("truncated", rows(range(100), 10), [TRUNCATE, *changes([1], 600)], "cleared once, 100 rows before", 1, False),
    # A history keeps the versions of rows that were cleared.
    Case("history", rows(range(100), 10), rows([1], 300), "", 101, False, "history"),
]


@pytest.mark.rotates(2)
@pytest.mark.parametrize("files", [1, 3])
def test_what_was_there_before_a_clear_is_said_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """Fault: 150 rows became one, with exit code 0 and "3 checks passed"."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    logs: dict[str, Row] = {}
    for case in CASES:
        source = {"format": "debezium-json", "connector": "postgresql", "path": f"landing/{case.name}"}
        key = {} if case.merge == "append" else {"key": ["id"]}
        logs[case.name] = {"source": source, "columns": {"id": "long"}, "merge": case.merge, "buckets": 2, **key}
        (tmp_path / "landing" / case.name).mkdir(parents=True)
    (tmp_path / "tidefold.yaml").write_text(json.dumps({"version": 1, "store": "store", "logs": logs}))
    said = []
    for part in (0, 1):
        for case in CASES:
            start, records = (0, case.first) if part == 0 else (len(case.first), case.second)
            land(tmp_path, case.name, start, records, files)
        said.append(CliRunner().invoke(app, ["run"]).output)
    for case in CASES:
        own = [line for line in "".join(said).splitlines() if line.split()[:1] in ([case.name], [f"{case.name}:"])]
        staged = [line for line in said[bool(case.second)].splitlines() if case.name in line and "snapshot" in line]
        assert any(case.line in line for line in staged) if case.line else "cleared" not in "".join(own), (case, said)
        table = tmp_path / "store/tables" / case.name
        left = DeltaTable(table).to_pyarrow_table().num_rows if table.exists() else 0
        assert left == case.left, (case.name, said)
        failed = [line for line in said[bool(case.second)].splitlines() if case.name in line and "row count" in line]
        assert bool(failed) == case.refused, (case.name, said)


def land(root: Path, log: str, start: int, records: Sequence[Row], files: int) -> None:
    """Lands records in as many files, cut anywhere."""
    cuts = [len(records) * i // files for i in range(files + 1)]
    for low, high in pairwise(cuts):
        lines = [
            {"topic": log, "partition": 0, "offset": start + n, "key": record.get("after"), "value": record}
            for n, record in enumerate(records[low:high], low)
        ]
        if lines:
            name = f"{log}+0+{start + low:010d}.jsonl"
            (root / "landing" / log / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
