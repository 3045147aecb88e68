"""The bad inputs that a landed file can be (numbers: the list of bad inputs 29 to 60), one case each.

Every case says which records count, which reasons are in the quarantine, and that the counts add up (`take` checks).
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from support.landing import changes_of, land, make_landing, quarantined, record, state_of, take, text_of, tombstone

pytestmark = pytest.mark.usefixtures("place")

GOOD = record(0, 1)
UNREADABLE: dict[str, tuple[list[Any], list[str]]] = {
    "34 invalid UTF-8": ([GOOD, json.dumps(record(1)).encode().replace(b"t1001", b"\xff\xfe")], ["BROKEN_JSON"]),
    "34 invalid UTF-8 in a field that is not used": (
        [GOOD, json.dumps(record(1)).encode().replace(b"[]", b'["\xff"]')],
        ["BROKEN_JSON"],
    ),
    "34 lone surrogate": ([GOOD, json.dumps(record(1)).replace("t1001", "\\ud800")], ["BROKEN_JSON"]),
    "36 an array instead of lines": ([GOOD, json.dumps([record(1)])], ["NOT_A_RECORD"]),
    "37 a name twice: the last one counts": ([json.dumps(GOOD).replace('"op": "c"', '"op": "d", "op": "c"')], []),
    "38 NaN": ([GOOD, json.dumps(record(1)).replace('"t1001"', "NaN")], ["BROKEN_JSON"]),
    "38 1e400": (
        [GOOD, json.dumps(record(1)).replace('"after": {"id": 1', '"after": {"id": 1e400')],
        ["VALUE_INVALID"],
    ),
    "38 2^63+1": ([GOOD, record(1, after={"id": 2**63 + 1, "text": ""})], ["VALUE_INVALID"]),
    "39 nesting": ([GOOD, json.dumps(record(1)).replace("[]", "[" * 10_000 + "]" * 10_000)], ["BROKEN_JSON"]),
    "41 op missing": ([GOOD, record(1, value={"after": {"id": 1}, "source": {}})], ["OP_UNKNOWN"]),
    "41 op null": ([GOOD, record(1, op=None)], ["OP_UNKNOWN"]),
    "41 op upper case": ([GOOD, record(1, op="C")], ["OP_UNKNOWN"]),
    "42 update without after": ([GOOD, record(1, op="u", after=None)], ["AFTER_MISSING"]),
    "45 null key in the record, key in the row": ([GOOD | {"key": None}], []),
    "45 null key column": ([GOOD, record(1, None, key=None)], ["KEY_NULL"]),
    "49 out of order in the file": ([GOOD, record(5), record(3), record(6)], ["OFFSET_ORDER"]),
    "55 placeholder": (
        [GOOD, record(1, op="c", after={"id": 1, "text": "__debezium_unavailable_value"})],
        ["UNAVAILABLE_VALUE"],
    ),
    "58 column added in mid file": ([GOOD, record(1, after={"id": 1, "text": "", "new": 1})], ["UNKNOWN_COLUMN"]),
    "58 column dropped in mid file": ([GOOD, record(1, after={"id": 1})], ["MISSING_COLUMN"]),
    "58 column retyped in mid file": ([GOOD, record(1, after={"id": 1, "text": 5})], ["VALUE_INVALID"]),
    "59 a name in other case": ([GOOD, record(1, after={"ID": 1, "text": ""})], ["UNKNOWN_COLUMN"]),
    "60 a record of another topic": ([GOOD, record(1, topic="shop.public.other")], ["WRONG_PARTITION"]),
    "60 a record of another partition": ([GOOD, record(1, partition=1)], ["WRONG_PARTITION"]),
    "the order is garbled": ([GOOD, record(1, sequence="[5,6]")], ["ORDER_MISSING"]),
    "the key is another": ([GOOD, record(1, 1, key={"id": 2})], ["KEY_MISMATCH"]),
}


@pytest.mark.parametrize("extension", ["jsonl", "json.gz"])
@pytest.mark.parametrize("case", UNREADABLE)
def test_a_bad_record_is_quarantined_and_its_neighbours_are_taken(tmp_path: Path, case: str, extension: str) -> None:
    records, reasons = UNREADABLE[case]
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [*records, record(100, 9)], extension)
    outcome = take(pipeline)
    assert outcome.status == "taken"
    assert [q["reason"] for q in quarantined(pipeline)] == reasons
    assert outcome.facts["quarantined"] == len(reasons)
    assert outcome.facts["changes"] == len(records) + 1 - len(reasons)
    assert changes_of(pipeline)[-1]["_offset"] == 100
    assert take(pipeline).status == "nothing"


HANDLED: dict[str, tuple[list[Any], dict[str, int]]] = {
    "35 blank lines, CRLF, BOM": (
        [b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r", "", "  ", "\t", json.dumps(record(1)) + "\r", ""],
        {"changes": 2},
    ),
    "43 delete with before null": ([GOOD, record(1, 1, "d", before=None)], {"changes": 2}),
    "44 tombstone alone": ([tombstone(0)], {"tombstones": 1}),
    "44 tombstone before its delete": ([tombstone(0), record(1, op="d")], {"tombstones": 1, "changes": 1}),
    "46 changed key, the new one first": (
        [GOOD, record(1, 2, order=1001), record(2, 1, "d", order=1001), tombstone(3, 1)],
        {"changes": 3, "tombstones": 1},
    ),
    "47 the same position twice, same content": ([GOOD, record(1, 1, order=1000)], {"changes": 2}),
    "50 gaps between offsets": ([GOOD, record(50), record(5000)], {"changes": 3}),
    "52 a snapshot row that was sent again after newer changes": (
        [record(0, 1, "r", order=50), record(1, 1, "u", order=60), record(2, 1, "r", order=50)],
        {"changes": 2, "resent": 1},
    ),
    "54 message, heartbeat, transaction, schema change": (
        [
            record(0, op="m", after=None),
            record(1, value={"ts_ms": 1}),
            record(2, value={"status": "END", "id": "1"}),
            record(3, value={"ddl": "ALTER TABLE items ADD x int", "source": {}}),
        ],
        {"ignored": 4},
    ),
}


@pytest.mark.parametrize("case", HANDLED)
def test_what_is_no_error_is_counted(tmp_path: Path, case: str) -> None:
    records, counts = HANDLED[case]
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, records)
    outcome = take(pipeline)
    names = ("changes", "tombstones", "repeated", "resent", "unproved", "quarantined", "ignored")
    assert {name: outcome.facts[name] for name in names if outcome.facts[name]} == counts
    assert take(pipeline).status == "nothing"


def test_29_a_zero_byte_file_is_left_when_newest_and_stops_its_partition_otherwise(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    for extension in ("jsonl", "jsonl.gz"):
        land(tmp_path, 0, b"", extension)
    land(tmp_path, 5, b"")
    assert take(pipeline).error_code == "LANDED_EMPTY"
    land(tmp_path, 0, [record(0)])
    land(tmp_path, 0, [record(0)], "jsonl.gz")
    outcome = take(pipeline)
    assert (outcome.facts["files"], outcome.facts["still_writing"]) == (2, ["shop.public.items+0+0000000005.jsonl"])


def test_30_a_file_cut_at_any_byte_is_never_taken_wrongly(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    whole = text_of([record(0), record(1), tombstone(2)])
    for end in range(0, len(whole) + 1, 7):
        land(tmp_path, 0, whole[:end])
        outcome = take(pipeline)
        assert outcome.error_code is None
        assert outcome.facts["quarantined"] == 0
    land(tmp_path, 0, whole)
    take(pipeline)
    assert [row["_offset"] for row in changes_of(pipeline)] == [0, 1]
    assert sum(entry.tombstones for entry in state_of(pipeline).landed) == 1


@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize(
    ("data", "extension", "code"),
    [
        (text_of([GOOD]), "jsonl.gz", "LANDED_FORMAT"),  # 33
        (gzip.compress(text_of([GOOD])), "jsonl", "LANDED_FORMAT"),  # 33
        (gzip.compress(text_of([GOOD]))[:-8] + bytes(8), "json.gz", "LANDED_DAMAGED"),  # 32
        (bytes(64), "json.gz", "LANDED_FORMAT"),  # a file of zeros, as after a crash
    ],
)
def test_31_to_33_a_file_that_is_not_what_its_name_says_is_an_error(
    tmp_path: Path, data: bytes, extension: str, code: str, newest: bool
) -> None:
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, data if extension.endswith("gz") else data + b"\n", extension)
    if not newest:
        land(tmp_path, 9, [record(9)])
    outcome = take(pipeline)
    assert (outcome.status, outcome.error_code) == ("error", code)
    assert not (tmp_path / "store").exists() or not list((tmp_path / "store").rglob("*.*"))


def test_40_a_line_of_70_mb_is_refused_and_the_next_one_taken(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    huge = json.dumps(record(1)).replace("t1001", "x" * (70 << 20))
    land(tmp_path, 0, [record(0), huge, record(2)])
    outcome = take(pipeline)
    assert (outcome.facts["changes"], outcome.facts["refused"]) == (2, {"LINE_TOO_LONG": 1})
    [entry] = quarantined(pipeline)
    assert (entry["line"], len(entry["record"])) == (2, 8192)


def test_49_files_that_were_landed_out_of_order_are_taken_in_the_order_of_their_offsets(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    for start in (20, 0, 10):
        land(tmp_path, start, [record(start)])
    take(pipeline)
    assert [entry.first_offset for entry in state_of(pipeline).landed] == [0, 10, 20]


def test_58_a_record_refused_for_its_columns_is_not_lost_when_the_next_run_comes(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(0), record(1, after={"id": 1})])
    take(pipeline)
    land(tmp_path, 2, [record(2)])
    take(pipeline)
    assert sum(e.quarantined for e in state_of(pipeline).landed) == len(quarantined(pipeline)) == 1
    assert state_of(pipeline).positions[0].next_offset == 3
