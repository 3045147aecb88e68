"""Keys that the source checks at the end of a transaction: swaps, shifts, take-overs (decision 0069)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from support.landing import fold_waiting, land, make_landing, record, take
from tidefold.operations.inspect.read import ReadRequest, What, read_rows
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.quarantine.inspect import count_refused
from tidefold.operations.snapshot.compact_log import compact_log

COLUMNS = "{id: long, n: int, text: string}"


class Source:
    """A table whose key is checked at the end of a transaction (`late`), or at once. A row is an id, a key and values."""

    def __init__(self, random_: random.Random, late: bool, full: bool, headers: bool) -> None:
        self.random, self.late, self.full, self.headers = random_, late, full, headers
        self.rows: dict[int, tuple[int, int, str | None]] = {}
        self.records: list[dict[str, Any]] = []
        self.position, self.commit, self.transaction = 1000, 1000, 0

    def send(self, op: str, before: Any, after: Any, **headers: int) -> None:
        def image(row: Any, full: bool = True) -> Any:
            return row and {"id": row[0], "n": row[1] if full else 0, "text": row[2] if full else None}

        named = [{"key": f"__debezium.{name}", "value": {"id": key}} for name, key in headers.items() if self.headers]
        key = (after or before)[0]
        old = None if op == "u" and not self.full else image(before, self.full)
        sent = record(len(self.records), key, op, self.position, after=image(after), before=old, headers=named)
        sent["value"]["source"] |= {"sequence": f'["{self.commit}","{self.position}"]', "txId": self.transaction}
        self.records.append(sent)

    def change(self, row: int, new: tuple[int, int, str | None] | None) -> None:
        self.position += 1
        old = self.rows.pop(row, None)
        if new:
            self.rows[row] = new
        if old and new and old[0] != new[0]:
            self.send("d", old, None, newkey=new[0])
            self.send("c", None, new, oldkey=old[0])
        else:
            self.send("c" if not old else "u" if new else "d", old, new)

    def step(self) -> None:
        keys, values = range(1, 5), (self.random.randrange(3), self.random.choice(["a", "b", None]))
        key, what = self.random.choice(keys), self.random.choice("iidduusmmmm")
        taken = {row[0] for row in self.rows.values()}
        if what == "i" and (self.late or key not in taken):
            self.change(self.position, (key, *values))
        elif what == "s" and self.late:
            for row in list(self.rows):
                self.change(row, (self.rows[row][0] % 4 + 1, *self.rows[row][1:]))
        elif self.rows:
            row = self.random.choice(list(self.rows))
            kept = self.rows[row]
            if what == "d":
                self.change(row, None)
            elif what == "u":
                self.change(row, (kept[0], *values))
            elif what == "m" and (self.late or key not in taken):
                self.change(row, (key, *(kept[1:] if self.random.random() < 0.7 else values)))

    def transact(self) -> None:
        """Rolls back a transaction after which a key has two rows."""
        rows, records = dict(self.rows), len(self.records)
        self.transaction += 1
        for _ in range(self.random.randrange(1, 7)):
            self.step()
        if len({row[0] for row in self.rows.values()}) < len(self.rows):
            self.rows = rows
            del self.records[records:]
        self.position += 1
        self.commit = self.position

    @property
    def table(self) -> dict[int, tuple[int, str | None]]:
        return {key: (n, text) for key, n, text in self.rows.values()}


def rows(pipeline: Pipeline, what: What = What.LIVE) -> dict[int, tuple[Any, ...]]:
    _, batches = read_rows(pipeline, "items", ReadRequest(what))
    return {row.pop("id"): tuple(row.values()) for batch in batches for row in batch.to_pylist()}


def play(tmp_path: Path, seed: int) -> tuple[Source, Pipeline]:
    chance = random.Random(seed)
    late = chance.random() < 0.7
    source = Source(chance, late, late or chance.random() < 0.5, chance.random() < 0.7)
    for _ in range(chance.randrange(2, 12)):
        source.transact()
    made, start = make_landing(tmp_path, COLUMNS), 0
    most = chance.choice([1, 3, 8, 100])
    while start < len(source.records):
        end = start + chance.randrange(1, most + 1)
        land(tmp_path, start, source.records[start:end])
        what = chance.choice(["", "take", "take", "fold", "compact"])
        if what:
            take(made)
        if what == "fold":
            fold_waiting(made, f"run-{start}")
        elif what == "compact" and made.ledger("items").exists():
            compact_log(made, "items")
        start = end
    take(made)
    return source, made


@pytest.mark.parametrize("seed", range(12))
def test_the_table_is_the_sources_or_a_record_is_refused(tmp_path: Path, seed: int) -> None:
    source, made = play(tmp_path, seed)
    refused = {one.reason for one in count_refused(made, "items")}
    assert refused <= ({"KEY_TAKEN_OVER"} if source.late else set())
    assert refused or rows(made) == source.table
