"""However a topic is cut into files, delivered again, and taken in runs: the same changes count (I25)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.landing import changes_of, land, make_landing, record, state_of, take, tombstone

_EXTENSIONS = ("jsonl", "json", "jsonl.gz", "json.gz")


@st.composite
def topics(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A topic as a connector writes it: orders rise, after a kill a part comes again; offsets may have gaps."""
    sent = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 5), st.sampled_from("ccudT")), max_size=14))
    # A log that begins later may have lost the begin of its first transaction: then a delete is refused.
    records, order, offset, there, last = [], 100, 0, set[int](), dict[int, int]()
    for step, item, op in sent:
        # Two events have one place only if a key changes: they are of two keys.
        order += step or last.get(item) == order
        last[item] = order
        # No database inserts a key that it has.
        records.append((item, "u" if op == "c" and item in there else op, order))
        there = there | {item} if op in "cu" else there - {item} if op == "d" else there
    if records and draw(st.booleans()):
        kill = draw(st.integers(1, len(records)))
        records = records[:kill] + records[draw(st.integers(0, kill)) :]
    topic = []
    for item, op, order in records:
        topic.append(tombstone(offset, item) if op == "T" else record(offset, item, op, order=order))
        offset += draw(st.sampled_from([1, 1, 1, 4]))
    return topic


def expected(topic: list[dict[str, Any]]) -> list[int]:
    """The offsets of the changes that count, by the definition: none below the highest order before it."""
    high, kept = -1, []
    for one in topic:
        if one["value"] is not None:
            order = int(one["value"]["source"]["sequence"][7:-2])
            if order >= high:
                kept.append(one["offset"])
                high = order
    return kept


def has_row_of_one_transaction(topic: list[dict[str, Any]]) -> bool:
    """Whether a row comes and goes within a transaction: then both records may count as ignored (decision 0069)."""
    values = [one["value"] for one in topic if one["value"]]
    came = {(one["after"]["id"], one["source"]["sequence"]) for one in values if one["after"]}
    return any((one["before"]["id"], one["source"]["sequence"]) in came for one in values if one["op"] == "d")


def rows_of(changes: list[tuple[int, bool]]) -> set[int]:
    rows = set[int]()
    for item, is_upsert in changes:
        (rows.add if is_upsert else rows.discard)(item)
    return rows


@settings(max_examples=choose(24, 60), deadline=None)
@given(topics(), st.data())
def test_any_split_into_files_and_runs_gives_the_same_changes(topic: list[dict[str, Any]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        pipeline = make_landing(root)
        position, number = 0, 0
        while position < len(topic):
            end = data.draw(st.integers(position + 1, len(topic)))
            # A file may begin with records that an earlier one had.
            begin = data.draw(st.integers(max(0, position - 3), position))
            extension = data.draw(st.sampled_from(_EXTENSIONS))
            start = topic[begin]["offset"]
            land(root, start, topic[begin:end], extension, name=f"{number}/{{topic}}+0+{{start:010d}}.{{extension}}")
            position, number = end, number + 1
            if data.draw(st.booleans()):
                assert take(pipeline).error_code is None
        outcome = take(pipeline)
        assert outcome.error_code is None
        assert take(pipeline).status == "nothing"
        if topic:
            found, landed = changes_of(pipeline), state_of(pipeline).landed
            if has_row_of_one_transaction(topic):
                offsets = {one["offset"]: one for one in topic}
                wanted = [
                    (one["key"]["id"], one["value"]["op"] != "d") for one in map(offsets.get, expected(topic)) if one
                ]
                found.sort(key=lambda row: (row["_o0"], row["_o1"], row["_offset"]))
                assert rows_of([(row["id"], row["_op"] == 0) for row in found]) == rows_of(wanted)
            else:
                assert [row["_offset"] for row in found] == expected(topic)
                assert sum(e.changes for e in landed) == len(expected(topic))
            assert sum(e.tombstones for e in landed) == sum(one["value"] is None for one in topic)
