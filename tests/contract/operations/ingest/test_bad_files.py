"""Files that are empty, cut, or not what their name says, plain and zipped; and bad records between good ones.

Numbers are those of docs/contributors/bad-input.md; `test_bad_input.py` has a case for each. `take` checks that the
counts add up.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

from support.landing import (
    TOPIC,
    changes_of,
    land,
    make_landing,
    quarantined,
    record,
    state_of,
    take,
    text_of,
    tombstone,
)


def in_partition(partition: int, record: dict[str, Any] | bytes) -> dict[str, Any] | bytes:
    """The record as one of another partition."""
    if isinstance(record, bytes):
        return record.replace(b'"partition": 0', b'"partition": %d' % partition)
    return record | {"partition": partition}


CASES: dict[str, tuple[list[Any], list[str]]] = {
    "34 invalid UTF-8 in a field that is not used": (
        [record(0), json.dumps(record(1)).encode().replace(b"[]", b'["\xff"]')],
        ["NOT_UTF8"],
    ),
    "45 null key in the record, key in the row": ([record(0) | {"key": None}], []),
    "49 out of order, and in order again": ([record(0), record(5), record(3), record(6)], ["OFFSET_ORDER"]),
    "the order is garbled": ([record(0), record(1, sequence="[5,6]")], ["ORDER_MISSING"]),
    "the key is another": ([record(0), record(1, 1, key={"id": 2})], ["KEY_MISMATCH"]),
}


def test_a_bad_record_is_quarantined_and_its_neighbours_are_taken(tmp_path: Path) -> None:
    """Each case is a partition, once in a plain file and once in a zipped one; each ends with a good record."""
    pipeline = make_landing(tmp_path)
    cases = [(case, extension) for case in CASES for extension in ("jsonl", "json.gz")]
    files = [f"{TOPIC}+{partition}+0000000000.{extension}" for partition, (_, extension) in enumerate(cases)]
    for partition, (case, extension) in enumerate(cases):
        records = [in_partition(partition, one) for one in (*CASES[case][0], record(100, 9))]
        land(tmp_path, 0, records, extension, files[partition])
    outcome = take(pipeline)
    assert outcome.status == "taken"
    taken = Counter(row["_partition"] for row in changes_of(pipeline))
    found = {
        case: ([entry["reason"] for entry in quarantined(pipeline) if entry["file"] == file], taken[partition])
        for partition, (case, file) in enumerate(zip(cases, files, strict=True))
    }
    assert found == {case: (CASES[case[0]][1], len(CASES[case[0]][0]) + 1 - len(CASES[case[0]][1])) for case in cases}
    assert {p.partition: p.next_offset for p in state_of(pipeline).positions} == dict.fromkeys(range(len(cases)), 101)
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


def test_31_to_33_a_file_that_is_not_what_its_name_says_is_an_error(tmp_path: Path) -> None:
    """Each file is in a partition of its own, as the newest one and before a newer one. None of them is taken."""
    zipped = gzip.compress(text_of([record(0)]))
    files = [
        (text_of([record(0)]), "jsonl.gz", "LANDED_FORMAT"),  # 33
        (zipped + b"\n", "jsonl", "LANDED_FORMAT"),  # 33
        (zipped[:-8] + bytes(8), "json.gz", "LANDED_DAMAGED"),  # 32
        (bytes(64), "json.gz", "LANDED_FORMAT"),  # A file of zeros, as after a crash.
    ]
    pipeline = make_landing(tmp_path)
    expected = {}
    for partition, ((data, extension, code), is_newest) in enumerate(product(files, (True, False))):
        expected[f"{TOPIC}+{partition}+0000000000.{extension}"] = code
        land(tmp_path, 0, data, extension, f"{TOPIC}+{partition}+0000000000.{extension}")
        if not is_newest:
            land(tmp_path, 9, [in_partition(partition, record(9))], name=f"{TOPIC}+{partition}+0000000009.jsonl")
    outcome = take(pipeline)
    assert outcome.status == "error"
    assert {problem["file"]: problem["code"] for problem in outcome.facts["problems"]} == expected
    assert not (tmp_path / "store").exists() or not list((tmp_path / "store").rglob("*.*"))


def test_58_a_record_refused_for_its_columns_is_not_lost_when_the_next_run_comes(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(0), record(1, after={"id": 1})])
    take(pipeline)
    land(tmp_path, 2, [record(2)])
    take(pipeline)
    assert sum(e.quarantined for e in state_of(pipeline).landed) == len(quarantined(pipeline)) == 1
    assert state_of(pipeline).positions[0].next_offset == 3
