"""The golden store of kinds: a log of each merge engine and of each kind of file, with what commands leave beside logs.

Every step is a command of the command line, in one process, and the gate judges. Rows are written down by hand.

In the store: verdicts with counts, sidecars, deletion vectors, full extracts, a plan, a failed run, a proof,
native and canonical savepoints.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from typer.testing import CliRunner

from golden.life import LANDED_AT, pack
from tidefold.cli.app import app
from tidefold.domain.paths import STORED_FORMAT, LogPaths
from tidefold.wiring import open_pipeline

Row = dict[str, Any]
_ROWS = "source: {format: json, record: value, op: {column: op}, path: landing/LOG}"
_SMALL = "key: [id]\n    columns: {id: int, text: string, n: long}\n    key_groups: 4\n    buckets: 2"
_TWO: list[list[Row]] = [
    [{"op": "u", "id": 1, "text": "a", "n": 1}, {"op": "u", "id": 2, "text": "b", "n": 2}],
    [{"op": "u", "id": 1, "text": "c", "n": 5}, {"op": "u", "id": 3, "text": "d", "n": 3}],
    [{"op": "u", "id": 2, "text": "e", "n": 7}],
]


def row(number: int, text: str, n: int) -> Row:
    return {"id": number, "text": text, "n": n}


@dataclass(frozen=True)
class Kind:
    """A log: its lines, what lands in each phase, and its rows after the second phase and after the third."""

    lines: str
    phases: list[list[Row]]
    rows: list[Row]
    later: list[Row]
    name: str = "jsonl"


_LAST = [row(1, "c", 5), row(2, "b", 2), row(3, "d", 3)], [row(1, "c", 5), row(2, "e", 7), row(3, "d", 3)]
_FIRST = [row(1, "a", 1), row(2, "b", 2), row(3, "d", 3)]
_ALL = (
    [row(1, "a", 1), row(1, "c", 5), row(2, "b", 2), row(3, "d", 3)],
    [*(row(1, "a", 1), row(1, "c", 5), row(2, "b", 2), row(2, "e", 7), row(3, "d", 3))],
)
_MANY = [row(number, "a", 1) for number in range(4, 61)]
_PARTIAL = [
    [{"op": "u", "id": 1, "text": "a", "n": 1}],
    [{"op": "u", "id": 1, "n": 5}, {"op": "u", "id": 2, "text": "b"}],
    [{"op": "u", "id": 2, "n": 7}],
]
KINDS = {
    "newest": Kind(f"{_ROWS}\n    {_SMALL}", _TWO, *_LAST),
    "earliest": Kind(f"{_ROWS}\n    {_SMALL}\n    merge: first", _TWO, _FIRST, _FIRST),
    "parts": Kind(
        f"{_ROWS}\n    {_SMALL}\n    merge: partial",
        _PARTIAL,
        [row(1, "a", 5), {"id": 2, "text": "b", "n": None}],
        [row(1, "a", 5), row(2, "b", 7)],
    ),
    "sums": Kind(
        f"{_ROWS}\n    {_SMALL}\n    merge: {{engine: aggregate, aggregates: {{n: sum}}}}",
        _TWO,
        [row(1, "c", 6), row(2, "b", 2), row(3, "d", 3)],
        [row(1, "c", 6), row(2, "e", 9), row(3, "d", 3)],
    ),
    # So many rows that a changed one leaves its file, which gets a vector.
    "vectors": Kind(
        f"{_ROWS}\n    {_SMALL}\n    deletion_vectors: true",
        [[{"op": "u", **row(number, "a", 1)} for number in range(1, 61)], *_TWO[1:]],
        [row(1, "c", 5), row(2, "a", 1), row(3, "d", 3), *_MANY],
        [row(1, "c", 5), row(2, "e", 7), row(3, "d", 3), *_MANY],
    ),
    # The key that was deleted is in a sidecar: the older change that lands later is not its row.
    "ordered": Kind(
        f"{_ROWS}\n    {_SMALL}\n    order: [n]",
        [_TWO[0], [*_TWO[1], {"op": "d", "id": 2, "text": "", "n": 9}], _TWO[2]],
        [row(1, "c", 5), row(3, "d", 3)],
        [row(1, "c", 5), row(3, "d", 3)],
    ),
    "spans": Kind(f"{_ROWS}\n    {_SMALL}\n    merge: history", _TWO, *_ALL),
    "events": Kind(f"{_ROWS}\n    {_SMALL.partition('    ')[2]}\n    merge: append", _TWO, *_ALL),
    "extracts": Kind(
        "source: {format: csv, path: landing/LOG, extract: {max_deletes: 1}}\n    " + _SMALL,
        [
            [row(1, "a", 1), row(2, "b", 2)],
            [row(1, "c", 5), row(2, "b", 2)],
            [row(1, "c", 5), row(3, "d", 3)],
        ],
        [row(1, "c", 5), row(2, "b", 2)],
        [row(1, "c", 5), row(3, "d", 3)],
        "csv",
    ),
}
CONFIG = "version: 1\nstore: store\nsnapshots: {kind: incremental}\nretention: {snapshots: 3}\nlogs:\n" + "".join(
    f"  {log}:\n    {kind.lines.replace('LOG', log)}\n    quality: {{max_row_drop: 1}}\n" for log, kind in KINDS.items()
)
# An edit that needs a plan.
EDIT = ("landing/newest}", "landing/newest}\n    merge: first")


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def call(root: Path, *words: str, code: int = 0) -> str:
    with inside(root):
        done = CliRunner().invoke(app, list(words))
    assert done.exit_code == code, f"{words}: {done.exit_code}\n{done.output}\n{done.exception!r}"
    return done.output


def land(root: Path, phase: int, folder: str = "landing") -> None:
    """Lands what a phase brings to each log."""
    for log, kind in KINDS.items():
        rows, name = kind.phases[phase], f"2026-01-0{phase + 1}.csv"
        if kind.name == "csv":
            lines = [",".join(rows[0]), *(",".join(map(str, one.values())) for one in rows)]
        else:
            offset = sum(map(len, kind.phases[:phase]))
            lines, name = list(map(json.dumps, rows)), f"{log}+0+{offset:010d}.jsonl"
        path = root / folder / log / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
        os.utime(path, (LANDED_AT, LANDED_AT))


def make(root: Path) -> None:
    (root / "tidefold.yaml").write_text(CONFIG)
    for phase in (0, 1):
        land(root, phase)
        call(root, "run")
    land(root, 2, "later")
    for words in (
        "snapshot tag newest 1 kept", "check verify --share 100%",
        "move savepoint newest --to saved/native", "move savepoint sums --to saved/canonical --as canonical",
    ):  # fmt: skip
        call(root, *words.split())
    text = (root / "tidefold.yaml").read_text()
    (root / "tidefold.yaml").write_text(text.replace(*EDIT))
    call(root, "plan", "newest")
    call(root, "run", "newest", code=3)
    (root / "tidefold.yaml").write_text(text)


def read_table(address: str) -> list[Row]:
    """Returns the rows of a Delta table, which may have deletion vectors, by a foreign reader."""
    query = QueryBuilder().register("t", DeltaTable(address)).execute("SELECT * FROM t")
    rows: list[Row] = pa.table(query.read_all()).to_pylist()
    return rows


def list_rows(rows: Iterable[Row]) -> list[Row]:
    """Returns rows as the truth has them: without system columns, with dates as text, sorted by their JSON."""
    plain = [{name: value for name, value in one.items() if not name.startswith("_")} for one in rows]
    return sorted(json.loads(json.dumps(plain, default=str)), key=lambda one: json.dumps(one, sort_keys=True))


def truth_of_logs(root: Path, rows: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Returns the truth of each log; its table must show it. `rows`: those now, and those after the next change."""
    pipeline = open_pipeline(root / "tidefold.yaml")
    for log, (now, _) in rows.items():
        shown = list_rows(read_table(pipeline.store.uri(LogPaths(log).table)))
        assert shown == list_rows(now), (log, shown)
    return {
        "format": STORED_FORMAT,
        "logs": {log: {"rows": now, "later": later} for log, (now, later) in rows.items()},
    }


def truth_of(root: Path) -> dict[str, Any]:
    return {
        **truth_of_logs(root, {log: (kind.rows, kind.later) for log, kind in KINDS.items()}),
        "savepoints": {"newest": "saved/native", "sums": "saved/canonical"},
    }


def make_archive(archive: Path) -> None:
    """Makes the store and its truth."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make(root)
        pack(root, truth_of(root), archive)
