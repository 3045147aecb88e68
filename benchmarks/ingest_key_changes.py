"""What changes of a primary key cost in an ingest: values that were not sent are looked up under the old key.

It is a part of `make bench-ingest`. Alone (`python benchmarks/ingest_key_changes.py`) it takes about a minute, needs no
Spark, and writes its section of docs/contributors/benchmarks/ingest.md again.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from support.pipelines import judge_all
from tables import HEAD, PAGES, Row, folder, ratios, seconds
from tidefold.compute.runners import in_process
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

TITLE = "## Changes of a key"
TABLE, RECORDS, ROUNDS, TOPIC = 50_000, 20_000, 5, "shop.public.items"
CONFIG = f"""
version: 1
store: store
logs:
  items:
    source: {{format: debezium-json, connector: postgresql, path: landing/{TOPIC}}}
    key: [id]
    columns: {{id: long, n: int, text: string}}
"""
_GONE = "__debezium_unavailable_value"
_TEXT = "text of a row that is long enough to lie out of line " * 4


def main() -> None:
    page = PAGES / "ingest.md"
    kept = page.read_text().split(f"\n{TITLE}\n")[0].rstrip()
    page.write_text("\n".join([kept, "", *section(), ""]))


def section() -> list[str]:
    with folder() as root:
        base = _publish_base(root / "base")
        ways: dict[str, tuple[int, bool]] = {"none": (0, False)}
        ways |= {"1 in 100, all values sent": (100, True), "1 in 100": (100, False), "1 in 10": (10, False)}
        found: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(ROUNDS + 1):
            turn = number % len(ways)
            for name in (*ways, *ways)[turn : turn + len(ways)]:
                found[name].append(_ingest(base, root / "round", *ways[name]))
    plain = found["none"][1:]
    rows = [Row("no change of a key", plain, "s")]
    rows += [Row(f"{name} / none", ratios(taken[1:], plain), "x") for name, taken in found.items() if name != "none"]
    text = [
        f"{RECORDS:,} records in one file over a published table of {TABLE:,} rows, without Spark. A change of a key",
        "is three of the records (delete, tombstone, create). Where its create leaves a large value out, `ingest`",
        "looks it up under the old key. Without such a create nothing is looked up: the calls and bytes are the same",
        "(`make bench-counts`, the three lines `ingest: 1,000 records`).",
    ]
    return [TITLE, "", *text, "", *HEAD, *(row.text for row in rows)]


def _publish_base(root: Path) -> Path:
    (root / "landing" / TOPIC).mkdir(parents=True)
    (root / "tidefold.yaml").write_text(CONFIG)
    _land(root, 0, [_record(number, number) for number in range(TABLE)])
    pipeline = open_pipeline(root / "tidefold.yaml")
    outcomes = ingest(pipeline, ["items"], in_process)
    outcomes += materialize(pipeline, ["items"], Fold("first", kind=KindPolicy.FULL), in_process)
    judge_all(pipeline, "items")
    outcomes.append(confirm(pipeline, "items", Confirmation(run="first")))
    if wrong := [one.message for one in outcomes if one.error_code]:
        raise SystemExit("\n".join(wrong))
    return root


def _ingest(base: Path, root: Path, every: int, sent: bool) -> float:
    """How long an ingest takes in which one record in so many is the create of a key change; 0: none is."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(base, root)
    _land(root, TABLE, _changes(every, sent))
    pipeline = open_pipeline(root / "tidefold.yaml")
    outcomes: list[Any] = []
    taken = seconds(lambda: outcomes.extend(ingest(pipeline, ["items"], in_process)))
    if outcomes[0].error_code or outcomes[0].facts["refused"]:
        raise SystemExit(outcomes[0].message)
    return taken


def _changes(every: int, sent: bool) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    while len(records) < RECORDS:
        offset, key = TABLE + len(records), len(records) * 7919 % TABLE
        if every and len(records) % every == 0:
            headers = [{"key": "__debezium.oldkey", "value": {"id": key}}]
            gone = _record(offset, key, op="d", order=offset)
            new = _record(offset + 2, TABLE + key, order=offset, text=_TEXT if sent else _GONE, headers=headers)
            records += [gone, {**gone, "offset": offset + 1, "value": None}, new]
        else:
            records.append(_record(offset, key, op="u"))
    return records[:RECORDS]


def _record(
    offset: int, key: int, *, op: str = "c", order: int | None = None, text: str = _TEXT, headers: Any = ()
) -> dict[str, Any]:
    place = 1_000 + (offset if order is None else order)
    row = {"id": key, "n": offset % 1_000, "text": text}
    source = {"connector": "postgresql", "snapshot": "false", "sequence": f'["{place}","{place}"]', "ts_us": place}
    value = {"before": {"id": key} if op == "d" else None, "after": None if op == "d" else row, "source": source}
    whole = {"topic": TOPIC, "partition": 0, "offset": offset, "key": {"id": key}, "value": {**value, "op": op}}
    return {**whole, "headers": list(headers)}


def _land(root: Path, start: int, records: list[dict[str, Any]]) -> None:
    path = root / "landing" / TOPIC / f"{TOPIC}+0+{start:010d}.jsonl"
    path.write_text("".join(f"{json.dumps(one, separators=(',', ':'))}\n" for one in records))


if __name__ == "__main__":
    main()
