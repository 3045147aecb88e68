"""The golden store of feeds: logs of the sources that other stores lack, with what commands leave in a ledger.

Every step is a command of the command line, in one process, and the gate judges. Rows are written down by hand.

In the store: the change data feed of a Delta table, states of a stream processor, a dump that was loaded before its
stream, files with dates and with any names; columns that were added, renamed and defaulted; retried and settled
records, rows that expire, late ones, an import, a stop, a drill, an override, a snapshot as of an instant, a ledger
that was rebuilt, a plan that was applied.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from golden.kinds import call, row, truth_of_logs
from golden.life import LANDED_AT, pack

Row = dict[str, Any]
_JSON, _STATE = "format: json, record: value, op: {column: op}", "format: state-json, record: value"
NEXT = "next/landing"
_SIZES = "key_groups: 4\n    buckets: 2\n    quality: {max_row_drop: 0.4, max_refused: 1}"
_LOGS = {
    "versions": (
        "source: {format: delta-cdf, table: tables/source}",
        "key: [id]\n    columns: {id: long, text: {type: string, default: null, aliases: [words]}}",
    ),
    "carts": (
        f"source: {{{_STATE}, path: landing/carts, kind: map, state_key: [user], state: carts, metadata: follow}}",
        "key: [user, item]\n    columns: {user: string, item: string, n: long}\n"
        "    redistribution: {mode: union, owner: user}",
    ),
    "visits": (
        f"source: {{{_STATE}, path: landing/visits, kind: list, state_key: [id]}}",
        'key: [id]\n    columns: {id: int, pages: "array<string>"}\n'
        "    merge: {engine: aggregate, aggregates: {pages: list}}\n    redistribution: broadcast",
    ),
    "loaded": (
        "source: {format: debezium-json, connector: postgresql, path: landing/loaded}",
        "key: [id]\n    columns: {id: int, text: string}\n    schema_evolution: {add: quarantine}\n"
        "    on_bad_record: quarantine",
    ),
    "dated": (
        "source: {format: csv, path: landing/dated}",
        "key: [id]\n    columns: {id: int, text: string, day: date}\n    order: file\n"
        "    ttl: {column: day, days: 3650}",
    ),
    "late": (
        f"source: {{{_JSON}, path: landing/late}}",
        "key: [id]\n    columns: {id: int, text: {type: string, encoding: json}, n: long}\n    order: [n]\n"
        "    late: {allowed_lateness: 10, policy: quarantine}",
    ),
    "gone": (f"source: {{{_JSON}, path: landing/gone}}", "key: [id]\n    columns: {id: int, n: int}\n    order: [n]"),
    "grouped": (
        f"source: {{{_JSON}, path: landing/grouped}}",
        "key: [id]\n    columns: {id: int, text: string, n: long}\n    ignored: [source]\n"
        "    merge: {engine: partial, groups: [{columns: [text], order: [n]}]}",
    ),
}
CONFIG = "version: 1\nstore: store\nsnapshots: {kind: incremental}\nretention: {snapshots: 3}\nlogs:\n" + "".join(
    f"  {log}:\n    {source}\n    {shape}\n    {_SIZES}\n" for log, (source, shape) in _LOGS.items()
)
SUITE = """\
checks:
  - sum_drift: {column: n, max_growth: 9}
  - distribution: {column: n, max_shift: 1}
  - range: {column: n, max: 90}
    severity: warn
"""


def put(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    os.utime(path, (LANDED_AT, LANDED_AT))


def land(root: Path, log: str, first: int, values: list[Any], folder: str = "landing") -> None:
    """Lands one file of records from an offset on."""
    put(root / folder / log / f"{log}+0+{first:010d}.jsonl", map(json.dumps, values))


def change(offset: int, op: str, row: Row) -> Row:
    """A record of Debezium, a second after the one before."""
    at = LANDED_AT + 60 + offset
    source = {
        "connector": "postgresql",
        "snapshot": "false",
        "sequence": f'[null,"{2000 + offset}"]',
        "ts_us": at * 10**6,
    }
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    value = {**images, "source": source, "op": op}
    return {
        "topic": "loaded",
        "partition": 0,
        "offset": offset,
        "key": {"id": row["id"]},
        "value": value,
        "headers": [],
    }


def state(op: str, key: Row | None = None, value: Any = None) -> Row:
    return {name: one for name, one in {"op": op, "key": key, "value": value}.items() if one is not None}


def loaded(number: int, text: str, more: int) -> Row:
    return {"id": number, "text": text, "more": more}


def dated(number: int, text: str) -> Row:
    return {"id": number, "text": text, "day": "2999-01-01"}


def cart(user: str, item: str, n: int) -> Row:
    return state("put", {"user": user}, {"item": item, "n": n})


def make_first(root: Path) -> None:
    """What each log begins with."""
    source = root / "tables/source"
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "text": ["a", "b", "c"]})
    write_deltalake(str(source), rows, configuration={"delta.enableChangeDataFeed": "true"})
    schema = [{"name": "user", "type": "string"}, {"name": "item", "type": "string"}, {"name": "n", "type": "long"}]
    metadata = state("metadata", value={"name": "carts", "kind": "map", "schema": schema, "ttl_days": None})
    land(root, "carts", 0, [metadata, cart("u1", "x", 1), cart("u1", "y", 2), cart("u2", "x", 3)])
    land(
        root,
        "visits",
        0,
        [state("add", {"id": 1}, "home"), state("add", {"id": 1}, "shop"), state("add", {"id": 2}, "home")],
    )
    put(root / "dump/items.csv", ["id,text", *(f"{n},dumped {n}" for n in range(1, 5))])
    call(root, "source", "load", "loaded", "--files", "dump", "--position", "0/7C0")
    land(root, "loaded", 0, [change(0, "u", {"id": 1, "text": "changed"}), change(1, "u", {"id": 2, "text": 7})])
    put(root / "landing/dated/2026-01-01.csv", ["id,text,day", "1,a,2999-01-01", "2,old,1999-01-01"])
    land_any(
        root,
        "late",
        "any-a",
        [
            {"id": 1, "text": "a", "n": 100},
            {"id": 2, "text": "b", "n": 50},
            *[{"id": 3, "text": one, "n": 60} for one in "xy"],
        ],
    )
    land_any(root, "gone", "any-a", [{"id": 1, "n": 1}])
    land(root, "grouped", 0, [{"op": "u", "id": 1, "text": "a", "n": 5, "source": "x"}, {"op": "u", "id": 2, "n": 1}])


def land_any(root: Path, log: str, name: str, rows: list[Row], folder: str = "landing") -> None:
    """Lands one file whose name says nothing."""
    put(root / folder / log / f"{name}.jsonl", (json.dumps({"op": "u", **one}) for one in rows))


def make_second(root: Path) -> None:
    """Changes of each log; a column that the source added, and one whose rows fail the gate."""
    table = DeltaTable(str(root / "tables/source"))
    table.update(updates={"text": "'new'"}, predicate="id = 2")
    table.delete("id = 3")
    land(root, "carts", 4, [state("clear"), cart("u3", "z", 9)])
    land(root, "visits", 3, [state("add", {"id": 2}, "shop"), state("clear", {"id": 1})])
    later = [change(2, "d", {"id": 3, "text": ""}), change(3, "u", {"id": 4, "text": "d", "more": 8})]
    land(root, "loaded", 2, later)
    put(root / "landing/dated/2026-01-03.csv", ["id,text,day", "1,c,2999-01-01", "3,d,2999-01-01"])
    land_any(root, "late", "any-b", [{"id": 1, "text": "late", "n": 80}, {"id": 2, "text": "b", "n": 120}])
    land(root, "grouped", 2, [{"op": "u", "id": 1, "text": "older", "n": 3}, {"op": "u", "id": 2, "text": "b", "n": 4}])


def make_later(root: Path) -> None:
    """What comes after the archive was made, in the same folders below `next`."""
    shutil.copytree(root / "tables", root / "next/tables")
    DeltaTable(str(root / "next/tables/source")).update(updates={"text": "'end'"}, predicate="id = 1")
    for path in (root / "tables").rglob("*.*"):
        if path.is_file():
            (root / "next" / path.relative_to(root)).unlink()
    land(root, "carts", 6, [cart("u1", "x", 4)], NEXT)
    land(root, "visits", 5, [state("add", {"id": 1}, "end")], NEXT)
    land(root, "loaded", 4, [change(4, "u", {"id": 1, "text": "last", "more": 1})], NEXT)
    put(root / NEXT / "dated/2026-01-02.csv", ["id,text,day", "1,between,2999-01-01", "2,e,2999-01-01"])
    land_any(root, "late", "any-c", [{"id": 1, "text": "z", "n": 130}], NEXT)
    land(root, "grouped", 4, [{"op": "u", "id": 1, "text": "c", "n": 9}], NEXT)


def edit(root: Path, old: str, new: str) -> None:
    path = root / "tidefold.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def command(root: Path, words: str, code: int = 0) -> None:
    call(root, *words.split(), code=code)


MORE = "{id: int, text: string, more: {type: long, default: 5}}"


def make(root: Path) -> None:
    before, late, after = CONFIG.partition("  late:")
    suite = after.replace("max_refused: 1}", "max_refused: 1, suite: late.yaml}", 1)
    (root / "tidefold.yaml").write_text(f"{before}{late}{suite}")
    (root / "late.yaml").write_text(SUITE)
    make_first(root)
    command(root, "run")
    make_second(root)
    command(root, "run", code=3)
    command(root, "step materialize visits")
    command(root, "step quality visits", code=3)
    command(root, "step confirm visits --override-by ann --reason emptied")
    change_columns(root)
    keep_and_move(root)
    make_later(root)


def change_columns(root: Path) -> None:
    """A retry with the added column, a person who settles the rest, and an edit by a plan."""
    edit(
        root,
        "{id: int, text: string}\n    schema_evolution: {add: quarantine}",
        f"{MORE}\n    schema_evolution: {{add: evolve}}",
    )
    command(root, "run loaded")
    command(root, "quarantine retry loaded")
    command(root, "run loaded")
    command(root, "quarantine settle loaded --by ann --reason test")
    edit(root, "order: [n]\n", "order: [n, file]\n")
    command(root, "plan late")
    command(root, "plan late --apply")


def keep_and_move(root: Path) -> None:
    """A snapshot as of an instant, a drill, an import, a stop, a ledger that was rebuilt."""
    command(root, "snapshot as-of loaded --at 2026-09-21T14:14:21Z")
    command(root, "check drill loaded")
    command(root, "move savepoint carts --to saved/carts")
    command(root, "move import carts saved/carts --claim-mode legacy")
    for words in (
        "step quality carts",
        "step confirm carts",
        "move savepoint visits --to saved/visits --stop --by ann --reason moved",
    ):
        command(root, words)
    command(root, "step materialize dated --kind full")
    for words in ("step quality dated", "step confirm dated", "retain subsume grouped", "retain truncate grouped"):
        command(root, words)
    shutil.rmtree(root / "store/logs/grouped/ledger")
    command(root, "move rebuild grouped --yes")
    for words in ("step materialize grouped --kind full", "step quality grouped", "step confirm grouped"):
        command(root, words)
    command(root, "step quality late --again")
    command(root, "check verify --share 100%")
    command(root, "check verify --share 1kB")
    command(root, "retain drop gone --yes")


# The rows of each log, and those after what is below `next`.
ROWS: dict[str, tuple[list[Row], list[Row]]] = {
    "versions": (
        [{"id": 1, "text": "a"}, {"id": 2, "text": "new"}],
        [{"id": 1, "text": "end"}, {"id": 2, "text": "new"}],
    ),
    "carts": (
        [{"user": "u3", "item": "z", "n": 9}],
        [{"user": "u1", "item": "x", "n": 4}, {"user": "u3", "item": "z", "n": 9}],
    ),
    "visits": (
        [{"id": 2, "pages": ["home", "shop"]}],
        [{"id": 1, "pages": ["end"]}, {"id": 2, "pages": ["home", "shop"]}],
    ),
    "loaded": (
        [loaded(1, "changed", 5), loaded(2, "dumped 2", 5), loaded(4, "d", 8)],
        [loaded(1, "last", 1), loaded(2, "dumped 2", 5), loaded(4, "d", 8)],
    ),
    "dated": ([dated(1, "c"), dated(3, "d")], [dated(1, "c"), dated(2, "e"), dated(3, "d")]),
    "late": (
        [row(1, "a", 100), row(2, "b", 120), row(3, "y", 60)],
        [row(1, "z", 130), row(2, "b", 120), row(3, "y", 60)],
    ),
    "grouped": ([row(1, "a", 3), row(2, "b", 4)], [row(1, "c", 9), row(2, "b", 4)]),
}


def truth_of(root: Path) -> dict[str, Any]:
    return {
        **truth_of_logs(root, ROWS),
        "savepoints": {"carts": "saved/carts", "visits": "saved/visits"},
        "before": ["move resume visits"],
    }


def make_archive(archive: Path) -> None:
    """Makes the store and its truth."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make(root)
        pack(root, truth_of(root), archive)
