"""Keys that are checked late, where records of them cannot be read yet: a retry asks which row each one means."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from contract.operations.quarantine.test_feeds_at_borders import FORMS, UNWRAPPED, Feed, Row
from contract.operations.quarantine.test_late_keys import COLUMNS, Source, rows, sent
from support.landing import fold_waiting, land, make_landing, take
from tidefold.config import load_config
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import What
from tidefold.operations.quarantine.inspect import count_refused
from tidefold.operations.quarantine.retry import retry
from tidefold.operations.quarantine.settle import settle
from tidefold.operations.snapshot.compact_log import compact_log

LARGE = 3_000_000_000
# The row 1 takes the key of row 2, which the source has updated to a value that does not fit.
TAKES = [("d", 3, (1, 1, "a"), None), ("c", 3, None, (2, 1, "a"))]
UPDATED = ("u", 3, (2, 2, "b"), (2, LARGE, "b"))
LEAVES = [("d", 3, (2, LARGE, "b"), None), ("c", 3, None, (1, LARGE, "b"))]
SWAPPED = {1: (LARGE, "b"), 2: (1, "a")}
CUT = ()
CASES: dict[str, tuple[list[Any], dict[int, Any]]] = {
    # A newer change superseded the refused row, and the next record asked for it: row 25 of seed 0 of torture.
    "superseded": ([("d", 1, (2, 2, "b"), None), ("c", 2, None, (2, LARGE, "b")), *TAKES, *LEAVES], SWAPPED),
    "restored": (
        [("u", 2, (2, 2, "b"), (2, LARGE, "b")), ("c", 3, None, (2, 5, "n")), CUT, ("d", 3, (2, 5, "n"), None)],
        {1: (1, "a"), 2: (LARGE, "b")},
    ),
    # An update of the row from before was read alone, and lay above the new row.
    "updated": ([*TAKES, UPDATED, *LEAVES], SWAPPED),
    "updated and back": (
        [*TAKES, UPDATED, ("u", 3, (2, LARGE, "b"), (2, 2, "b")), ("d", 3, (2, 2, "b"), None),
         ("c", 3, None, (1, 2, "b"))], {1: (2, "b"), 2: (1, "a")},
    ),
    "the new row leaves": (
        [*TAKES, UPDATED, ("d", 3, (2, 1, "a"), None), ("c", 3, None, (9, 1, "a"))], {2: (LARGE, "b"), 9: (1, "a")},
    ),
    "updated in a later file": ([*TAKES, CUT, UPDATED, *LEAVES], SWAPPED),
    "left in a later file": ([*TAKES, UPDATED, CUT, *LEAVES], SWAPPED),
    # Unwrapped, the end of the newest row left the refused one, which has no values: the ingest crashed.
    "left by the newest": (
        [("c", 3, None, (2, LARGE, "n")), ("c", 3, None, (2, 5, "m")), ("d", 3, (2, 5, "m"), None),
         ("d", 3, (2, 2, "b"), None)], {1: (1, "a"), 2: (LARGE, "n")},
    ),
}  # fmt: skip


def configure(root: Path, columns: str, text: str = "") -> Pipeline:
    pipeline, path = make_landing(root, columns), root / "tidefold.yaml"
    path.write_text((text.replace("n: int", "n: long") if "n: long" in columns else text) or path.read_text())
    with path.open("a") as file:
        file.write("    schema_evolution: {retype: evolve}\n")
    return Pipeline(load_config(path), pipeline.store)


def play(
    root: Path,
    records: Sequence[Any],
    columns: str = COLUMNS.replace("n: int", "n: long"),
    change: Callable[[Any], Any] = lambda record: record,
    text: str = "",
    meanwhile: Callable[[Pipeline], Any] = lambda pipeline: None,
) -> Pipeline:
    """Ingests records, corrects the configuration, and reads the refused ones again."""
    source = Source(random.Random(0), late=True, full=True, headers=False)
    for row in ((1, 1, "a"), (2, 2, "b")):
        source.send("r", None, row)
    pipeline, begin, refused = configure(root, COLUMNS, text), len(source.records), []
    land(root, 0, map(change, source.records))
    take(pipeline)
    for record in [*records, CUT]:
        if record:
            sent(source, *record)
            continue
        land(root, begin, map(change, source.records[begin:]))
        begin = len(source.records)
        take(pipeline)
        refused += count_refused(pipeline, "items")
        meanwhile(pipeline)
    assert refused
    pipeline = configure(root, columns, text)
    take(pipeline)
    retry(pipeline, "items")
    return pipeline


@pytest.mark.parametrize("case", CASES)
def test_a_row_that_cannot_be_read_yet_is_in_the_table_after_a_retry(tmp_path: Path, case: str) -> None:
    records, expected = CASES[case]
    pipeline = play(tmp_path, records)
    assert not count_refused(pipeline, "items")
    assert rows(pipeline) == expected


@pytest.mark.parametrize("case", ["superseded", "left in a later file"])
def test_so_it_is_if_the_log_was_compacted_and_folded_meanwhile(tmp_path: Path, case: str) -> None:
    records, expected = CASES[case]

    def meanwhile(pipeline: Pipeline) -> None:
        compact_log(pipeline, "items")
        fold_waiting(pipeline, f"run-{len(list(tmp_path.rglob('*.json')))}")

    pipeline = play(tmp_path, [*records, CUT, ("c", 9, None, (7, 7, "z"))], meanwhile=meanwhile)
    assert not count_refused(pipeline, "items")
    assert rows(pipeline) == {**expected, 7: (7, "z")}


def test_a_retry_within_the_transaction_keeps_what_its_later_records_ask_for(tmp_path: Path) -> None:
    records, expected = CASES["restored"]
    columns = COLUMNS.replace("n: int", "n: long")
    pipeline = play(tmp_path, records, meanwhile=lambda _: retry(configure(tmp_path, columns), "items"))
    assert rows(pipeline) == expected


@pytest.mark.parametrize("cut", [4, 2])
def test_a_swap_that_was_refused_for_its_schema_is_equal_after_a_retry(tmp_path: Path, cut: int) -> None:
    """Fault: each record was read alone, and the delete of the displaced row removed the new one."""
    swap = [*TAKES, ("d", 3, (2, 2, "b"), None), ("c", 3, None, (1, 2, "b"))]
    types = {"id": "int64", "n": "string", "text": "string"}
    row = {"type": "struct", "optional": True, "fields": [{"field": n, "type": t} for n, t in types.items()]}
    schema = {"type": "struct", "fields": [row | {"field": "before"}, row | {"field": "after"}]}

    def change(record: Any) -> Any:
        value = record["value"]
        if value["op"] == "r":
            return record
        for image in filter(None, (value["before"], value["after"])):
            image["n"] = str(image["n"])
        return record | {"value": {"schema": schema, "payload": value}}

    columns = COLUMNS.replace("n: int", "n: {type: string, encoding: json}")
    pipeline = play(tmp_path, [*swap[:cut], CUT, *swap[cut:]], columns, change)
    assert not count_refused(pipeline, "items")
    assert rows(pipeline) == {1: ("2", "b"), 2: ("1", "a")}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ["superseded", "restored", "updated in a later file", "left by the newest"])
def test_unwrapped_records_are_equal_or_told(tmp_path: Path, case: str, form: str) -> None:
    records, expected = CASES[case]
    pipeline = play(tmp_path, records, change=FORMS[form], text=UNWRAPPED.replace("RECORD", form))
    assert count_refused(pipeline, "items") or rows(pipeline) == expected


@pytest.mark.parametrize("form", ["envelopes", *FORMS])
def test_a_delete_of_a_row_that_its_key_never_had_is_refused(tmp_path: Path, form: str) -> None:
    """A record is missing: which row of the key is left is not known."""
    records = [("d", 3, (2, 2, "b"), None), ("c", 3, None, (2, 5, "n")), ("d", 3, (2, 7, "z"), None)]
    source = Source(random.Random(0), late=True, full=True, headers=False)
    for row in ((1, 1, "a"), (2, 2, "b")):
        source.send("r", None, row)
    for record in records:
        sent(source, *record)
    pipeline = configure(tmp_path, COLUMNS, UNWRAPPED.replace("RECORD", form) if form in FORMS else "")
    land(tmp_path, 0, map(FORMS.get(form, dict), source.records))
    take(pipeline)
    assert [one.reason for one in count_refused(pipeline, "items")] == ["KEY_TAKEN_OVER"]
    retry(pipeline, "items")
    assert [one.count for one in count_refused(pipeline, "items")] == [1]
    assert rows(pipeline) == {1: (1, "a"), 2: (5, "n")}


@pytest.mark.parametrize(
    ("begun", "asks", "expected", "told"),
    [
        # The row as the log has it is there again.
        ([("u", 2, (2, 2, "b"), (2, LARGE, "b"))], [("c", 3, None, (2, 5, "n")), ("d", 3, (2, 5, "n"), None)],
         {1: (1, "a"), 2: (2, "b")}, []),
        # Only the settled record could show which row ends.
        ([("d", 1, (2, 2, "b"), None), ("c", 2, None, (2, LARGE, "b"))],
         [*TAKES, ("d", 3, (2, LARGE, "b"), None)], {2: (1, "a")}, ["KEY_TAKEN_OVER"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("cut", [0, 1])
def test_a_row_that_was_settled_by_hand_and_is_asked_for_later(
    tmp_path: Path, begun: list[Any], asks: list[Any], expected: dict[int, Any], told: list[str], cut: int
) -> None:
    """It counts as if its record had never come: what it would have decided stays refused."""

    def settle_first(pipeline: Pipeline) -> None:
        if not any("by me" in text for one in pipeline.ledger("items").read().landed for text in one.settled):
            settle(pipeline, "items", "me", "nobody needs it", "VALUE_INVALID")

    parts = [*begun, CUT, *asks[:-cut], CUT, *asks[-cut:]] if cut else [*begun, CUT, *asks]
    pipeline = play(tmp_path, parts, meanwhile=settle_first)
    assert [one.reason for one in count_refused(pipeline, "items")] == told
    assert rows(pipeline) == expected


def test_a_delete_that_was_looked_up_supersedes_what_could_not_be_read(tmp_path: Path) -> None:
    """Fault: a retry did not see changes that an earlier retry had brought, and a deleted row came back."""
    source = Source(random.Random(0), late=False, full=False, headers=False)
    source.send("r", None, (1, 1, "a"))
    sent(source, "c", 1, None, (4, LARGE, "b"))
    sent(source, "d", 1, (4, LARGE, "b"), None)
    pipeline = configure(tmp_path, COLUMNS)
    for offset, record in enumerate(source.records):
        land(tmp_path, offset, [record])
        take(pipeline)
    assert [one.reason for one in count_refused(pipeline, "items")] == ["VALUE_INVALID"]
    fold_waiting(pipeline, "before")
    pipeline = configure(tmp_path, COLUMNS.replace("n: int", "n: long"))
    retry(pipeline, "items")
    fold_waiting(pipeline, "after")
    assert rows(pipeline, What.TABLE) == {1: (1, "a")}


@pytest.mark.parametrize("cut", [None, 3, 4])
def test_a_key_that_changes_twice_keeps_a_large_value_in_files_of_values(tmp_path: Path, cut: int | None) -> None:
    """Fault: the delete between both changes waits, so the second one was not known as a change of a key: seed 10."""
    source = Source(random.Random(0), late=False, full=False, headers=False)
    source.send("r", None, (3, 1, "large"))
    for old, new in ((3, 4), (4, 5)):
        sent(source, "d", 1, (old, 1, "large"), None)
        source.send("c", None, (new, 1, "__debezium_unavailable_value"))
    pipeline, values = make_landing(tmp_path, COLUMNS), [one["value"] for one in source.records]
    for begin, end in ((0, cut), (cut, None))[: 2 if cut else 1]:
        land(tmp_path, begin or 0, values[begin:end])
        take(pipeline)
    assert not count_refused(pipeline, "items")
    assert rows(pipeline) == {5: (1, "large")}


class LargeFeed(Feed):
    """A table whose values do not fit the configured type now and then."""

    def change(self, row: int, new: Row | None) -> None:
        if new and self.chance.random() < 0.25:
            new = new[0], LARGE + self.chance.randrange(2), new[2]
        super().change(row, new)


@pytest.mark.parametrize("seed", [0, 25])
def test_a_feed_with_values_that_cannot_be_read_yet_is_equal_after_a_retry(tmp_path: Path, seed: int) -> None:
    """Folds, compactions and retries come between; the configuration is corrected somewhere."""
    chance = random.Random(f"large {seed}")
    feed, start, most = LargeFeed(chance, "full", late=True), 0, chance.choice([1, 2, 4, 8])
    while len(feed.records) < 40:
        feed.transact()
    columns, pipeline = COLUMNS.replace("n: int", "n: long"), make_landing(tmp_path, COLUMNS)
    while start < len(feed.records):
        end = start + chance.randrange(1, most + 1)
        land(tmp_path, start, feed.records[start:end])
        what, start = chance.choice(["", "take", "take", "fold", "compact", "retry", "correct"]), end
        if what == "correct":
            pipeline = make_landing(tmp_path, columns)
        if what:
            take(pipeline)
        if what == "fold":
            fold_waiting(pipeline, f"run-{start}")
        elif what == "compact" and pipeline.ledger("items").exists():
            compact_log(pipeline, "items")
        elif what == "retry" and pipeline.ledger("items").exists():
            retry(pipeline, "items")
    pipeline = make_landing(tmp_path, columns)
    take(pipeline)
    retry(pipeline, "items")
    assert not count_refused(pipeline, "items")
    assert rows(pipeline) == feed.table
