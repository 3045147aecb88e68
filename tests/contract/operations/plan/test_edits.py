"""Edits of every kind, planned and applied: the rows are those of a log that had the edit from the beginning.

Each log ran twice as it was, and runs once more after the switch.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.planned import plan, published, require_applied, run
from tidefold.quality.run.duckdb_rows import DuckDBEngine, open_engines
from tidefold.wiring import open_pipeline

DATA = Path(__file__).parents[3] / "data"
HEAD = """\
version: 1
store: store
spark: {above: 1GB}
logs:
  orders:
    key_groups: 16
    buckets: 4
    quality: {max_refused: 1.0, max_row_drop: 1.0}
"""
Files = Mapping[str, str | bytes]


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    with open_engines(1) as lend, lend() as one:
        yield one


@dataclass(frozen=True)
class Edit:
    """before, after: the lines of the log. runs: the files of each run; the last one follows the switch.

    told: what the plan counts.
    """

    before: str
    after: str
    runs: Sequence[Files]
    told: dict[str, int]


ORDERS = """\
    source: {format: csv, path: landing}
    key: [id]
    order: [changed]
    columns: {id: long, line: int, text: string, amount: string, created: timestamp, changed: timestamp}
"""
DAY = "2026-11-%02d %02d:00:00"
IDS = range(12)


def orders(run: int) -> Files:
    """Versions of orders with two lines each. `created` never changes, and a late file brings old versions."""
    head = "id,line,text,amount,created,changed\n"
    rows = [
        f"{i},{line},t{i}-{line}-{run},{i}.{line}0,{DAY % (1, i)},{DAY % (run + 2, (i * 7 + line) % 24)}\n"
        for i in IDS
        for line in (1, 2)
    ]
    late = [f"{i},1,late{run},9.10,{DAY % (1, i)},{DAY % (1, run)}\n" for i in IDS[::5]]
    return {f"orders-{run}a.csv": head + "".join(rows), f"orders-{run}b.csv": head + "".join(late)}


STATES = """\
    source: {format: csv, path: landing}
    key: [id]
    order: [changed]
    columns: {id: long, status: string, text: string, changed: timestamp}
"""
STATES_AS_OPERATIONS = STATES.replace("path: landing", "path: landing, op: {column: status, upsert: [U], delete: [D]}")


def states(run: int) -> Files:
    rows = [f"{i},{'D' if (i + run) % 4 == 0 else 'U'},t{run},{DAY % (run + 2, i)}\n" for i in IDS]
    return {f"states-{run}.csv": "id,status,text,changed\n" + "".join(rows)}


SHOP = """\
    source: {format: json, path: landing, record: value, names: any}
    key: [id]
    order: [at]
    columns: {id: long, name: string, city: string, at: {type: timestamp, encoding: iso}}
"""


def shop(run: int) -> Files:
    """Records of which each third one, after the first run, does not say the city."""
    rows = [{"id": i, "name": f"n{run}", "city": f"c{run}", "at": DAY % (run + 2, i)} for i in IDS]
    for row in rows[::3] if run else []:
        row.pop("city")
    return {f"shop-{run}.jsonl": "".join(f"{json.dumps(row)}\n" for row in rows)}


GERMAN = """\
    source: {format: csv, path: landing, delimiter: ";"}
    key: [id]
    order: file
    columns: {id: long, price: string, note: string}
"""


def german(run: int) -> Files:
    rows = [f"{i};{'-' if i == run else f'1.{i:03},5{run}'};Käse {run}\n" for i in IDS]
    # A name with a time says when the file was made: the first run brings the newest one.
    days = (9, 2, 5)
    return {f"prices-2026-11-{days[run]:02}.csv": ("id;price;note\n" + "".join(rows))}


def bank(run: int, table: str = "branches") -> Files:
    phase = f"phase{run + 1}"
    found = sorted((DATA / f"bank/landing/{phase}/bank.public.pgbench_{table}").iterdir())
    # The first records of each file are enough.
    return {one.name.removesuffix(".gz"): b"".join(gzip.open(one).readlines()[:300]) for one in found}


BRANCHES = """\
    source: {format: debezium-json, connector: postgresql, path: landing}
    key: [bid]
    columns: {bid: int, bbalance: int, filler: string}
"""
three_orders = [*map(orders, range(3))]
EDITS = {
    "order": Edit(ORDERS.replace("order: [changed]", "order: [created]"), ORDERS, three_orders, {"changed": 3}),
    "key": Edit(ORDERS, ORDERS.replace("key: [id]", "key: [id, line]"), three_orders, {"added": 12}),
    "partial": Edit(SHOP, SHOP + "    merge: partial\n", [*map(shop, range(3))], {"changed": 4}),
    "history": Edit(ORDERS, ORDERS + "    merge: history\n", three_orders, {"versions added": 42}),
    "op was data": Edit(STATES, STATES_AS_OPERATIONS, [*map(states, range(3))], {"removed": 3}),
    "zone": Edit(
        ORDERS,
        ORDERS.replace("path: landing", "path: landing, time_zone: Europe/Berlin"),
        three_orders,
        {"changed": 12},
    ),
    "decimal": Edit(ORDERS, ORDERS.replace("amount: string", 'amount: "decimal(12,2)"'), three_orders, {}),
    "Debezium history": Edit(
        BRANCHES, BRANCHES + "    merge: history\n", [*map(bank, range(3))], {"versions added": 302}
    ),
    "Debezium partial": Edit(BRANCHES, BRANCHES + "    merge: partial\n", [*map(bank, range(3))], {}),
    "sums": Edit(
        ORDERS,
        ORDERS
        + "    merge: {engine: aggregate, deletes: ignore, aggregates: "
        + "{line: sum, text: max, amount: max, created: min, changed: max}}\n",
        three_orders,
        {"changed": 12},
    ),
    "encoding": Edit(
        GERMAN.replace('";"', '";", encoding: latin-1'),
        GERMAN.replace('";"', '";", decimal: ",", thousands: ".", null: ["-"]').replace(
            "price: string", 'price: "decimal(9,2)"'
        ),
        [*map(german, range(3))],
        {"changed": 12},
    ),
    "no key": Edit(
        STATES.replace("    key: [id]\n    order: [changed]\n", "    merge: append\n"),
        STATES_AS_OPERATIONS,
        [*map(states, range(3))],
        {"removed": 15},
    ),
}


@pytest.mark.rotates(6)
@pytest.mark.parametrize("name", EDITS)
def test_an_edit_makes_the_rows_of_a_log_that_always_had_it(tmp_path: Path, engine: DuckDBEngine, name: str) -> None:
    edit = EDITS[name]
    live, undisturbed = tmp_path / "live", tmp_path / "undisturbed"

    def configure(folder: Path, lines: str):  # type: ignore[no-untyped-def]
        (folder / "landing").mkdir(parents=True, exist_ok=True)
        (folder / "tidefold.yaml").write_text(HEAD + lines)
        return open_pipeline(folder / "tidefold.yaml", lambda text: None)

    for number, files in enumerate(edit.runs):
        if number == 2:
            shown = published(configure(live, edit.before))
            made, _ = plan(configure(live, edit.after), engine)
            assert published(configure(live, edit.before)) == shown
            assert {kind: count for kind, count in made.counts.items() if count} == edit.told
            require_applied(configure(live, edit.after), engine)
            assert published(configure(live, edit.after)) == published(configure(undisturbed, edit.after))
        for folder, lines in ((live, edit.before if number < 2 else edit.after), (undisturbed, edit.after)):
            pipeline = configure(folder, lines)
            for path, content in files.items():
                (folder / "landing" / path).write_bytes(content if isinstance(content, bytes) else content.encode())
            run(pipeline, f"r{number}", engine)
    assert published(configure(live, edit.after)) == published(configure(undisturbed, edit.after))
