"""Keys that the source checks at the end of a transaction: swaps, shifts, take-overs (decision 0069)."""

from __future__ import annotations

import random
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
from tidefold.sources.debezium import late_checks

COLUMNS = "{id: long, n: int, text: string}"


class Source:
    """A table whose key is checked at the end of a transaction (`late`), or at once, by the ids of its rows."""

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
    while len(source.records) < 20:
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


@pytest.mark.rotates(6)
@pytest.mark.parametrize("seed", range(8))
def test_the_table_is_the_sources_or_a_record_is_refused(tmp_path: Path, seed: int) -> None:
    """Compaction, folds and cuts come between the records of a transaction."""
    source, made = play(tmp_path, seed)
    refused = {one.reason for one in count_refused(made, "items")}
    assert refused <= {"KEY_TAKEN_OVER"}
    assert refused or rows(made) == source.table


def change(source: Source, *changes: tuple[int, tuple[int, int, str] | None]) -> None:
    source.transaction += 1
    for row, new in changes:
        source.change(row, new)
    source.position += 1
    source.commit = source.position


SWAP = ((1, (2, 0, "a")), (2, (1, 0, "b")))
SHIFT = ((1, (2, 0, "a")), (2, (3, 0, "b")), (3, (4, 0, "c")))
TAKE_OVER = ((1, (2, 0, "a")), (2, None))
THERE_AND_BACK = (*SWAP, (1, (1, 0, "a")), (2, (2, 0, "b")))
# The row with key 2 stays, the other one leaves the key again.
PASS_BY = ((1, (2, 0, "a")), (1, (9, 0, "a")))
INSERT_AND_MOVE = ((4, (5, 0, "d")), (4, (6, 0, "d")))
ALL = (SWAP, SHIFT, TAKE_OVER, THERE_AND_BACK, PASS_BY, INSERT_AND_MOVE)


def played(root: Path, changes: Any, cut: int | None, headers: bool = True) -> None:
    source = Source(random.Random(0), True, True, headers)
    for key, text in ((1, "a"), (2, "b"), (3, "c")):
        change(source, (key, (key, 0, text)))
    change(source, *changes)
    root.mkdir()
    made, records = make_landing(root, COLUMNS), source.records
    land(root, 0, records[:cut])
    if cut is not None:
        take(made)
        fold_waiting(made, "before")
        land(root, cut, records[cut:])
    take(made)
    assert not count_refused(made, "items")
    assert rows(made) == source.table


@pytest.mark.parametrize("headers", [True, False])
@pytest.mark.parametrize("changes", ALL)
def test_keys_change_places_within_a_file(tmp_path: Path, changes: Any, headers: bool) -> None:
    played(tmp_path / "made", changes, None, headers)


@pytest.mark.parametrize("changes", [SWAP, SHIFT, TAKE_OVER, PASS_BY, INSERT_AND_MOVE])
def test_a_cut_and_a_fold_between_the_records_change_nothing(tmp_path: Path, changes: Any) -> None:
    for cut in range(4, 3 + 2 * len(changes)):
        played(tmp_path / str(cut), changes, cut)


def test_the_row_of_a_delete_that_may_be_made_up_is_looked_up(tmp_path: Path) -> None:
    """One `before` alone does not show whether its values are real. That the log has a row of the key does."""
    source = Source(random.Random(0), True, True, True)
    change(source, (2, (2, 0, "b")))
    change(source, (5, (2, 0, "n")), (2, None))
    made = make_landing(tmp_path, COLUMNS)
    land(tmp_path, 0, source.records)
    take(made)
    assert not count_refused(made, "items")
    assert rows(made) == source.table == {2: (0, "n")}


def test_the_row_of_a_refused_record_is_not_forgotten(tmp_path: Path) -> None:
    """Fault: a retry took the delete of the row that was there before for the end of the refused one."""
    source = Source(random.Random(0), True, True, True)
    for row in ((1, 0, "a"), (2, 0, "b")):
        change(source, (row[0], row))
    change(source, (5, (2, 0, "n")), (2, None))
    source.records[2]["value"]["after"]["n"] = 2**40
    made = make_landing(tmp_path, COLUMNS)
    land(tmp_path, 0, source.records)
    take(made)
    assert {one.reason for one in count_refused(made, "items")} == {"VALUE_INVALID", "KEY_TAKEN_OVER"}
    path = tmp_path / "tidefold.yaml"
    path.write_text(path.read_text().replace("n: int", "n: long"))
    made = Pipeline(load_config(path), made.store)
    take(made)
    retry(made, "items")
    assert not count_refused(made, "items")
    assert rows(made) == {1: (0, "a"), 2: (2**40, "n")}


def test_a_key_that_was_forgotten_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: a transaction with too many open keys took the row of another one with it."""
    monkeypatch.setattr(late_checks, "_MOST_KEYS", 2)
    source = Source(random.Random(0), True, True, True)
    for key in range(1, 7):
        change(source, (key, (key, key, "a")))
    # Each row takes the key of the next, in an order in which all wait.
    change(source, *((10 + key, (key, 0, "new")) for key in range(1, 7)), *((key, None) for key in range(1, 7)))
    made = make_landing(tmp_path, COLUMNS)
    land(tmp_path, 0, source.records)
    take(made)
    assert not count_refused(made, "items")
    assert rows(made) == source.table == dict.fromkeys(range(1, 7), (0, "new"))


def test_a_delete_with_the_key_alone_ends_the_new_row(tmp_path: Path) -> None:
    source = Source(random.Random(0), False, False, False)
    change(source, (1, (1, 2, "a")), (1, None))
    change(source, (2, (1, 2, "b")), (2, (3, 2, "b")), (2, None), (4, (4, 0, "d")))
    made = make_landing(tmp_path, COLUMNS)
    land(tmp_path, 0, source.records)
    take(made)
    assert not count_refused(made, "items")
    assert rows(made) == source.table == {4: (0, "d")}


def sent(source: Source, op: str, transaction: int, old: tuple[int, int, str] | None, new: Any, **headers: int) -> None:
    """A record of a transaction that may have others beside it."""
    source.position, source.commit, source.transaction = source.position + 1, 1000 + transaction, transaction
    source.send(op, old, new, **headers)


NESTED = [  # Two rows take a free key; the later one leaves first.
    ("c", 1, None, (9, 1, "x")), ("c", 1, None, (9, 2, "y")), ("d", 1, (9, 2, "y"), None), ("d", 1, (9, 1, "x"), None),
]  # fmt: skip
AGAIN = [  # In two transactions in turn a row takes key 2 and leaves it in a later file.
    ("c", 1, None, (2, 7, "x")), ("d", 1, (2, 7, "x"), None), ("c", 1, None, (9, 7, "x")),
    ("c", 2, None, (2, 8, "q")), ("d", 2, (2, 8, "q"), None), ("c", 2, None, (10, 8, "q")),
]  # fmt: skip


@pytest.mark.parametrize(("records", "cuts", "new"), [(NESTED, (), {}), (NESTED, (1,), {}), (NESTED, (2, 3), {}),
    (AGAIN, (1, 4), {9: (7, "x"), 10: (8, "q")}), (AGAIN, (1,), {9: (7, "x"), 10: (8, "q")})])  # fmt: skip
def test_rows_that_pass_over_a_key_leave_what_was_there(
    tmp_path: Path, records: Any, cuts: tuple[int, ...], new: dict[int, tuple[Any, ...]]
) -> None:
    source = Source(random.Random(0), late=True, full=True, headers=False)
    first = {1: (1, "a"), 2: (2, "b"), 3: (3, "c")}
    for key, (n, text) in first.items():
        source.send("r", None, (key, n, text))
    count, pipeline = len(source.records), make_landing(tmp_path, COLUMNS)
    land(tmp_path, 0, source.records)
    take(pipeline)
    for record_ in records:
        sent(source, *record_)
    for begin, end in zip((0, *cuts), (*cuts, len(records)), strict=True):
        land(tmp_path, count + begin, source.records[count + begin : count + end])
        take(pipeline)
    assert rows(pipeline) == {**first, **new}


def test_a_compaction_within_a_transaction_keeps_the_row_from_before(tmp_path: Path) -> None:
    """The newest change is of another key: the row of key 2 was superseded, and a later record asks for it."""
    source, pipeline = Source(random.Random(0), late=True, full=True, headers=False), make_landing(tmp_path, COLUMNS)
    sent(source, "c", 1, None, (2, 2, "b"))
    for op, old, new in (
        ("c", None, (2, 1, "x")), ("c", None, (3, 3, "y")),
        ("d", (2, 1, "x"), None), ("c", None, (9, 1, "x")),
    ):  # fmt: skip
        sent(source, op, 2, old, new)
    for begin, end in ((0, 1), (1, 3), (3, 5)):
        land(tmp_path, begin, source.records[begin:end])
        take(pipeline)
        compact_log(pipeline, "items")
    assert not count_refused(pipeline, "items")
    assert rows(pipeline) == {2: (2, "b"), 3: (3, "y"), 9: (1, "x")}


def test_a_before_that_cannot_be_read_yet_is_no_key_alone(tmp_path: Path) -> None:
    """The displaced row's delete waits until its type is known: it must not end the new row."""
    source, large = Source(random.Random(0), late=True, full=True, headers=False), 3_000_000_000
    for row in ((1, 1, "a"), (2, 2, "b")):
        source.send("r", None, row)
    pipeline, count = make_landing(tmp_path, COLUMNS), len(source.records)
    land(tmp_path, 0, source.records)
    take(pipeline)
    sent(source, "u", 1, (2, 2, "b"), (2, large, "b"))
    for one in (
        ("d", (1, 1, "a"), None),
        ("c", None, (2, 1, "a")),
        ("d", (2, large, "b"), None),
        ("c", None, (1, large, "b")),
    ):
        sent(source, one[0], 2, one[1], one[2])
    land(tmp_path, count, source.records[count:])
    take(pipeline)
    assert {one.reason for one in count_refused(pipeline, "items")} == {"VALUE_INVALID", "KEY_TAKEN_OVER"}
    pipeline = make_landing(tmp_path, COLUMNS.replace("n: int", "n: long"))
    take(pipeline)
    retry(pipeline, "items")
    assert not count_refused(pipeline, "items")
    assert rows(pipeline) == {1: (large, "b"), 2: (1, "a")}


def test_a_file_that_begins_with_the_delete_of_a_row_by_its_old_names_is_read(tmp_path: Path) -> None:
    """Fault: the names of a delete were not looked at, so its `before` could not be read, and it waited for ever."""
    source = Source(random.Random(0), True, True, False)
    for row in ((1, 0, "a"), (2, 0, "b")):
        change(source, (row[0], row))
    change(source, *SWAP)
    for value in (one["value"] for one in source.records):
        for image in filter(None, (value["before"], value["after"])):
            image["words"] = image.pop("text")
    made = make_landing(tmp_path, COLUMNS.replace("text: string", "text: {type: string, aliases: [words]}"))
    for begin, end in ((0, 4), (4, 6)):
        land(tmp_path, begin, source.records[begin:end])
    take(made)
    assert not count_refused(made, "items")
    assert rows(made) == source.table


def test_a_before_with_the_key_alone_needs_no_known_columns(tmp_path: Path) -> None:
    """Fault: its nulls counted as values, so it was taken for one that cannot be read."""
    source, made = Source(random.Random(0), False, False, False), make_landing(tmp_path, COLUMNS)
    change(source, (1, (1, 2, "a")))
    change(source, (1, (2, 2, "a")), (1, (3, 2, "a")))
    for value in (one["value"] for one in source.records if one["value"]["op"] == "d"):
        value["before"] |= {"n": None, "gone": None}
    for begin, end in ((0, 3), (3, 5)):
        land(tmp_path, begin, source.records[begin:end])
        take(made)
    assert not count_refused(made, "items")
    assert rows(made) == source.table == {3: (2, "a")}


def test_a_record_that_two_files_have_is_one_row(tmp_path: Path) -> None:
    """Fault: the row that a transaction put under a key was two if files overlap, and one of them stayed."""
    pipeline, records = make_landing(tmp_path), [record(0, 1, "c", 100), record(1, 1, "d", 100)]
    for number, part in enumerate((records[:1], records)):
        land(tmp_path, 0, part, name=f"{number}/{{topic}}+0+{{start:010d}}.{{extension}}")
    take(pipeline)
    assert count_refused(pipeline, "items") == []
    assert rows(pipeline) == {}


@pytest.mark.parametrize("begin", [0, 5])
def test_a_file_whose_only_record_was_looked_up_is_no_problem(tmp_path: Path, begin: int) -> None:
    """Faults: the ingest that refused the record and decided it ended with LANDED_REFUSED; if the log begins within the
    transaction, the record was refused for good.
    """
    pipeline = make_landing(tmp_path)
    land(tmp_path, begin, [record(begin + offset, 1, "c", 100) for offset in range(3)])
    assert take(pipeline).error_code is None
    land(tmp_path, begin + 3, [record(begin + 3, 1, "d", 100)])
    outcome = take(pipeline)
    assert (outcome.error_code, count_refused(pipeline, "items")) == (None, [])
    assert rows(pipeline) == {}
