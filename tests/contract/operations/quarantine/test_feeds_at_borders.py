"""Transactions that cross landed files, by random feeds: keys that are checked at once, and at the end."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.landing import fold_waiting, land, make_landing, record, take
from tidefold.config import load_config
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.quarantine.inspect import count_refused
from tidefold.operations.quarantine.retry import retry
from tidefold.operations.snapshot.compact_log import compact_log

COLUMNS = "{id: long, n: int, text: string}"
Row = tuple[int, int, str | None]
# What Debezium writes for columns that are NOT NULL DEFAULT and not part of the replica identity.
MADE_UP = {"default": (7, "new"), "nulls": (0, None)}


class Feed:
    """A table of PostgreSQL, by the ids of its rows.

    identity: full: `before` is complete; index: it has `id` and `n`; default, nulls: it has the key alone.
    late: whether keys are checked at the end of a transaction.
    """

    def __init__(self, chance: random.Random, identity: str, late: bool = False, tombstones: bool = False) -> None:
        self.chance, self.identity, self.late, self.tombstones = chance, identity, late, tombstones
        self.rows: dict[int, Row] = {}
        self.records: list[dict[str, Any]] = []
        self.position, self.commit, self.transaction = 1000, 1000, 0

    def before(self, old: Row, new: Row | None) -> Row | None:
        if self.identity == "full":
            return old
        if self.identity == "index":
            return (old[0], old[1], "new") if new is None or old[:2] != new[:2] else None
        return (old[0], *MADE_UP[self.identity]) if new is None or old[0] != new[0] else None

    def send(self, op: str, before: Row | None, after: Row | None, **named: int) -> None:
        row = after or before
        assert row
        headers = [{"key": f"__debezium.{name}", "value": {"id": key}} for name, key in named.items()]
        images = [one and dict(zip(("id", "n", "text"), one, strict=True)) for one in (before, after)]
        sent = record(len(self.records), row[0], op, self.position, before=images[0], after=images[1], headers=headers)
        sent["value"]["source"] |= {"sequence": f'["{self.commit}","{self.position}"]', "txId": self.transaction}
        self.records.append(sent)
        if op == "d" and self.tombstones:
            self.records.append(sent | {"offset": len(self.records), "headers": [], "value": None})

    def change(self, row: int, new: Row | None) -> None:
        self.position += 1
        old = self.rows.pop(row, None)
        if new:
            self.rows[row] = new
        if old is None:
            self.send("c", None, new)
        elif new and old[0] != new[0]:
            self.send("d", self.before(old, new), None, newkey=new[0])
            self.send("c", None, new, oldkey=old[0])
        else:
            self.send("u" if new else "d", self.before(old, new), new)

    def step(self) -> None:
        chance, taken = self.chance, {row[0] for row in self.rows.values()}
        key, values = chance.randrange(1, 6), (chance.randrange(3), chance.choice(["a", "b", "new", None]))
        row = chance.choice(list(self.rows)) if self.rows else 0
        match chance.choice("iiidduummm"):
            case "i" if self.late or key not in taken:
                self.change(self.position, (key, *values))
            case "d" if row:
                self.change(row, None)
            case "u" if row:
                self.change(row, (self.rows[row][0], *values))
            case "m" if row and (self.late or key not in taken):
                self.change(row, (key, *(values if chance.random() < 0.3 else self.rows[row][1:])))

    def transact(self) -> None:
        """Rolls back a transaction after which a key has two rows."""
        rows, records = dict(self.rows), len(self.records)
        self.transaction += 1
        for _ in range(self.chance.randrange(1, 9)):
            self.step()
        if len({row[0] for row in self.rows.values()}) < len(self.rows):
            self.rows = rows
            del self.records[records:]
        self.position += 1
        self.commit = self.position

    @property
    def table(self) -> dict[int, tuple[int, str | None]]:
        return {key: (n, text) for key, n, text in self.rows.values()}


def rows(pipeline: Pipeline) -> dict[int, tuple[Any, ...]]:
    _, batches = read_rows(pipeline, "items", ReadRequest(What.LIVE))
    return {row.pop("id"): tuple(row.values()) for batch in batches for row in batch.to_pylist()}


UNWRAPPED = """\
version: 1
store: store
logs:
  items:
    source: {format: json, record: RECORD, path: landing/shop.public.items, op: {column: __op}}
    key: [id]
    columns: {id: long, n: int, text: string}
    ignored: [__deleted, __lsn, __txId]
    order: position
    key_groups: 16
    buckets: 4
    on_bad_record: quarantine
"""


def unwrap(sent: dict[str, Any]) -> dict[str, Any]:
    """The record as ExtractNewRecordState sends it, with deletes as rows."""
    value, source = sent["value"], sent["value"]["source"]
    marks = {"__op": value["op"], "__lsn": int(source["sequence"].split('"')[3]), "__txId": source["txId"]}
    marks["__deleted"] = str(value["op"] == "d").lower()
    return sent | {"value": (value["after"] or value["before"]) | marks}


# With their offset, or their values alone.
FORMS: dict[str, Callable[[Any], Any]] = {"kafka": unwrap, "value": lambda sent: unwrap(sent)["value"]}


def make_unwrapped(root: Path, form: str) -> tuple[Pipeline, Callable[[Any], Any]]:
    made = make_landing(root, COLUMNS)
    (root / "tidefold.yaml").write_text(UNWRAPPED.replace("RECORD", form))
    pipeline = Pipeline(load_config(root / "tidefold.yaml"), made.store)
    return pipeline, FORMS[form]


def unwrapped(tmp_path: Path, feed: Feed, form: str) -> Pipeline:
    return play(tmp_path, feed, *make_unwrapped(tmp_path, form))


def play(
    tmp_path: Path, feed: Feed, made: Pipeline | None = None, form: Callable[[Any], Any] = lambda sent: sent
) -> Pipeline:
    """Ingests a feed that is cut at random; folds and compactions come between."""
    chance = feed.chance
    while len(feed.records) < 24:
        feed.transact()
    made, start = made or make_landing(tmp_path, COLUMNS), 0
    most = chance.choice([1, 2, 4, 8])
    while start < len(feed.records):
        end = start + chance.randrange(1, most + 1)
        land(tmp_path, start, map(form, feed.records[start:end]))
        what = chance.choice(["", "take", "take", "fold", "compact"])
        if what:
            take(made)
        if what == "fold":
            fold_waiting(made, f"run-{start}")
        elif what == "compact" and made.ledger("items").exists():
            compact_log(made, "items")
        start = end
    take(made)
    return made


@pytest.mark.rotates(8)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("identity", ["default", "nulls", "full", "index"])
def test_an_ordinary_feed_is_never_refused(tmp_path: Path, identity: str, seed: int) -> None:
    """Fault: made-up values of a `before` were taken for those of another row, and records were refused for good."""
    feed = Feed(random.Random(f"{identity} {seed}"), identity)
    made = play(tmp_path, feed)
    assert not count_refused(made, "items")
    assert rows(made) == feed.table


@pytest.mark.rotates(8)
@pytest.mark.parametrize("seed", range(12))
def test_a_feed_whose_keys_are_checked_late_is_equal_or_heals(tmp_path: Path, seed: int) -> None:
    """Fault: a row that came in one file and left its key in the next was refused for good, or took another with it."""
    feed = Feed(random.Random(f"late {seed}"), "full", late=True, tombstones=seed % 2 == 1)
    made = play(tmp_path, feed)
    if count_refused(made, "items"):
        retry(made, "items")
    assert not count_refused(made, "items")
    assert rows(made) == feed.table


@pytest.mark.rotates(8)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("identity", ["default", "nulls", "full", "index"])
def test_an_ordinary_unwrapped_feed_is_never_refused(tmp_path: Path, identity: str, seed: int) -> None:
    feed = Feed(random.Random(f"{identity} {seed}"), identity)
    made = unwrapped(tmp_path, feed, ["kafka", "value"][seed % 2])
    assert not count_refused(made, "items")
    assert rows(made) == feed.table


@pytest.mark.rotates(6)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("form", FORMS)
def test_unwrapped_records_of_keys_that_are_checked_late_are_equal_or_refused(
    tmp_path: Path, form: str, seed: int
) -> None:
    """Fault: `format: json` took the end of the row that was there before for that of the new one, without a word."""
    feed = Feed(random.Random(f"late {seed}"), "full", late=True)
    made = unwrapped(tmp_path, feed, form)
    refused = {one.reason for one in count_refused(made, "items")}
    assert refused <= {"KEY_TAKEN_OVER"}
    assert refused or rows(made) == feed.table


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    ("changes", "killed"),
    [([(9, (9, 9, "n")), (9, (8, 9, "n"))], 1), ([(1, (2, 1, "a")), (2, None)], 3)],
    ids=["one row came twice", "the row from before ended twice"],
)
def test_unwrapped_records_that_are_sent_again_change_nothing(
    tmp_path: Path, changes: Any, killed: int, cut: bool, form: str
) -> None:
    """Faults: of a row that was sent again one remained, and the end of the row from before ended the new one."""
    feed = Feed(random.Random(0), "full", late=True)
    for number, new in ((1, (1, 1, "a")), (2, (2, 2, "b"))):
        feed.transaction = number
        feed.change(number, new)
    feed.transaction, begin = 9, len(feed.records)
    for row, new in changes:
        feed.change(row, new)
    again = [*feed.records[: begin + killed], *feed.records[begin:]]
    made, unwrapped = make_unwrapped(tmp_path, form)
    sent = [unwrapped(one | {"offset": offset}) for offset, one in enumerate(again)]
    files = ((0, begin), (begin, begin + killed), (begin + killed, None)) if cut else ((0, None),)
    for start, end in files:
        land(tmp_path, start, sent[start:end])
        take(made)
    assert not count_refused(made, "items")
    assert rows(made) == feed.table


@pytest.mark.parametrize("form", ["envelopes", *FORMS])
def test_two_rows_of_two_files_that_end_leave_the_row_from_before(tmp_path: Path, form: str) -> None:
    """The first end of them changes no row, so the second one must ask the log."""
    feed = Feed(random.Random(0), "full", late=True)
    feed.change(2, (2, 2, "b"))
    feed.transaction, feed.commit = 9, feed.position
    for row, new in ((7, (2, 5, "m")), (8, (2, 6, "n")), (7, None), (8, None)):
        feed.change(row, new)
    made, form_of = make_unwrapped(tmp_path, form) if form in FORMS else (make_landing(tmp_path, COLUMNS), dict)
    for start, end in ((0, 2), (2, None)):
        land(tmp_path, start, map(form_of, feed.records[start:end]))
        take(made)
    assert not count_refused(made, "items")
    assert rows(made) == feed.table


SWAP = ((1, (2, 1, "a")), (2, (1, 2, "b")))
TWICE = ((1, (5, 1, "a")), (1, (6, 1, "a")))


@pytest.mark.parametrize("form", ["envelopes", *FORMS])
@pytest.mark.parametrize("changes", [SWAP, TWICE])
def test_two_keys_that_change_are_equal_wherever_a_file_ends(tmp_path: Path, form: str, changes: Any) -> None:
    """Faults: an unwrapped swap lost a row; a key that changes twice was refused for good if a file ended between."""
    for cut in range(3, 8):
        feed = Feed(random.Random(0), "full", late=True)
        for number, new in ((1, (1, 1, "a")), (2, (2, 2, "b")), (3, (3, 3, "c"))):
            feed.transaction, feed.commit = number, feed.position
            feed.change(number, new)
        feed.transaction, feed.commit = 9, feed.position
        for row, new in changes:
            feed.change(row, new)
        root = tmp_path / str(cut)
        root.mkdir()
        made, sent = make_landing(root, COLUMNS), feed.records
        if form != "envelopes":
            made, unwrapped = make_unwrapped(root, form)
            sent = [*map(unwrapped, sent)]
        land(root, 0, sent[:cut])
        take(made)
        land(root, cut, sent[cut:])
        take(made)
        assert not count_refused(made, "items")
        assert rows(made) == feed.table


@pytest.mark.parametrize("form", FORMS)
def test_so_it_is_of_two_rows_of_the_transaction(tmp_path: Path, form: str) -> None:
    """Fault: the update was taken for one of the newer row, and the other one came back."""
    feed = Feed(random.Random(0), "full", late=True)
    feed.change(2, (2, 2, "b"))
    feed.transaction, feed.commit = 9, feed.position
    for row, new in ((2, None), (8, (2, 6, "n")), (9, (2, 7, "o")), (8, (2, 9, "p")), (8, None)):
        feed.change(row, new)
    made, unwrapped = make_unwrapped(tmp_path, form)
    land(tmp_path, 0, map(unwrapped, feed.records))
    take(made)
    assert count_refused(made, "items") or rows(made) == feed.table


@pytest.mark.parametrize("updated", [2, 9])
@pytest.mark.parametrize("ended", [2, 9])
def test_an_unwrapped_update_of_one_of_two_rows_is_told(tmp_path: Path, updated: int, ended: int) -> None:
    """It has no `before`, so nothing shows which row of the key it changes."""
    feed = Feed(random.Random(0), "full", late=True)
    for number, new in ((1, (1, 1, "a")), (2, (2, 2, "b"))):
        feed.transaction, feed.commit = number, feed.position
        feed.change(number, new)
    feed.transaction, feed.commit = 9, feed.position
    feed.change(9, (2, 9, "n"))
    feed.change(updated, (2, 5, "z"))
    feed.change(ended, (8, *feed.rows[ended][1:]))
    made, _ = make_unwrapped(tmp_path, "kafka")
    land(tmp_path, 0, map(unwrap, feed.records[:2]))
    take(made)
    land(tmp_path, 2, map(unwrap, feed.records[2:]))
    take(made)
    assert count_refused(made, "items") or rows(made) == feed.table
