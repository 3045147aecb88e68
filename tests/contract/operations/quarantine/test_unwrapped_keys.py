"""Unwrapped records name the former key in their headers, so that a changed key keeps the values that were not sent."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support.commands import call
from support.landing import TOPIC

UNSENT = "__debezium_unavailable_value"
CONFIG = """\
version: 1
store: store
logs:
  items:
    source:
      {format: json, path: landing, op: {column: __deleted, upsert: ["false"], delete: ["true"]}}
    key: [id]
    columns: {id: long, n: int, text: string}
    order: position
    key_groups: 16
    buckets: 4
"""
Record = dict[str, Any]


def row(key: int, n: int = 1, text: str | None = UNSENT, deleted: str = "false", **headers: int) -> Record:
    named = [{"key": f"__debezium.{name}", "value": {"id": old}} for name, old in headers.items()]
    return {"key": {"id": key}, "headers": named, "value": {"id": key, "n": n, "text": text, "__deleted": deleted}}


def moved(old: int, new: int, n: int = 1, headers: bool = True, tombstone: bool = True) -> list[Record]:
    """A change of the key, as it arrives without its envelope."""
    gone = row(old, 0, None, "true", **({"newkey": new} if headers else {}))
    null = [{"key": {"id": old}, "value": None}] if tombstone else []
    return [gone, *null, row(new, n, UNSENT, "false", **({"oldkey": old} if headers else {}))]


class Shop:
    """A folder with the log `items`. Each landed record has the next offset of its partition."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
        monkeypatch.chdir(folder)
        (folder / "landing").mkdir()
        (folder / "tidefold.yaml").write_text(CONFIG)
        self.next = [0, 0]

    def land(self, records: list[Record], partition: int = 0) -> None:
        start = self.next[partition]
        self.next[partition] += len(records)
        places = [{"topic": TOPIC, "partition": partition, "offset": start + i} for i in range(len(records))]
        lines = "".join(json.dumps({**at, **one}) + "\n" for at, one in zip(places, records, strict=True))
        Path(f"landing/{TOPIC}+{partition}+{start:010d}.jsonl").write_text(lines)

    def rows(self) -> dict[int, tuple[int, str | None]]:
        read = json.loads(call("read", "items", "--live", "--format", "json").stdout)["rows"]
        return {one["id"]: (one["n"], one["text"]) for one in read}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(tmp_path, monkeypatch)


CHAIN = [*moved(1, 5, 2), *moved(5, 6, 3), row(6, 4)]


@pytest.mark.rotates(8)
@pytest.mark.parametrize("steps", [("run",), ("step ingest",), ("step ingest", "retain compact")])
@pytest.mark.parametrize("cuts", [(), (1,), (2,), (4,), (5,), (1, 2, 3, 4, 5, 6)])
def test_a_chain_of_changed_keys_keeps_the_text_wherever_files_end(
    shop: Shop, cuts: tuple[int, ...], steps: tuple[str, ...]
) -> None:
    """A run after each file publishes the delete of a key before the row with its new key lands."""
    shop.land([row(1, 1, "large"), row(2, 1, "other")])
    call("run")
    for start, end in pairwise((0, *cuts, len(CHAIN))):
        shop.land(CHAIN[start:end])
        for step in steps:
            call(*step.split(), "items", code=None)
    call("run", code=None)
    assert shop.rows() == {6: (4, "large"), 2: (1, "other")}
    shop.land([row(2, 2, "other")])
    call("run", code=0)
    assert call("quarantine", "list", "items").output.count("UNAVAILABLE") == 0


def test_swaps_and_changes_there_and_back_without_tombstones(shop: Shop) -> None:
    shop.land([row(1, 1, "one"), row(2, 1, "two")])
    call("run")
    for old, new in [(1, 9), (2, 1), (9, 2), (2, 7), (7, 2)]:
        shop.land(moved(old, new, tombstone=False))
    call("run")
    assert shop.rows() == {1: (1, "two"), 2: (1, "one")}


def test_a_plain_delete_and_a_new_row_of_the_old_key_come_before_the_change(shop: Shop) -> None:
    shop.land([row(1, 1, "former"), row(1, 0, None, "true"), row(1, 2, "large"), *moved(1, 5, 2), row(1, 3, "next")])
    call("run")
    assert shop.rows() == {5: (2, "large"), 1: (3, "next")}


def test_without_headers_the_row_is_left_out_and_named(shop: Shop) -> None:
    shop.land([row(1, 1, "large"), *moved(1, 5, headers=False)])
    assert '{"id": 5}' in call("run", code=2).output
    assert shop.rows() == {}


def test_partial_rows_take_no_value_from_another_key(shop: Shop) -> None:
    Path("tidefold.yaml").write_text(CONFIG + "    merge: partial\n")
    shop.land([row(1, 1, "large"), *moved(1, 5)])
    call("run")
    assert shop.rows() == {5: (1, None)}


def test_a_refused_record_of_the_old_key_may_have_the_value(shop: Shop) -> None:
    broken = row(1, 1, "large")
    broken["value"]["n"] = "x"
    shop.land([row(1, 1, "old"), broken, *moved(1, 5), row(2, 1, "other")])
    call("run", code=None)
    assert shop.rows() == {2: (1, "other")}
    assert "UNAVAILABLE_AFTER_KEY_CHANGE" in call("quarantine", "list", "items").output


@pytest.mark.parametrize("partition", [0, 1])
def test_offsets_of_two_partitions_have_no_order(shop: Shop, partition: int) -> None:
    """The delete of the old key may be an earlier one if it lies in another partition: the record is refused."""
    shop.land([row(2, 1, "other")], 1 - partition)
    shop.land([row(1, 1, "large")], 0)
    call("run")
    gone, null, new = moved(1, 5)
    shop.land([gone, null], 0)
    shop.land([new], partition)
    said = call("run", code=None).output
    assert shop.rows() == {2: (1, "other")} | ({} if partition else {5: (1, "large")})
    assert ("UNAVAILABLE_AFTER_KEY_CHANGE" in said) == bool(partition)


@pytest.mark.parametrize("headers", [True, False])
def test_init_says_what_records_without_headers_lack(shop: Shop, headers: bool) -> None:
    Path("tidefold.yaml").unlink()
    records = [row(1, 1, "large"), row(2, 1, "other"), *moved(1, 5, headers=headers)]
    shop.land([one if headers else {k: v for k, v in one.items() if k != "headers"} for one in records])
    assert ("have no headers" in call("init", "landing", code=None).output) == (not headers)
