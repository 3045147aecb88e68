"""What the ids and places of transactions say, for each connector, and which transaction topics are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidefold.domain.sets.point import SetPoint
from tidefold.domain.sets.progress import TransactionEnd
from tidefold.errors import RefusedError
from tidefold.sources.debezium.ordering import (
    ChangeHead,
    PlaceBlock,
    RecordPlaces,
    TransactionBlock,
    TransactionId,
    parse_end_id,
)
from tidefold.sources.debezium.transactions import read_ends
from tidefold.sources.feed import Feed

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
FILE_7_POSITION_345 = 7 * 10**10 + 345


@pytest.mark.parametrize(
    ("connector", "text", "expected"),
    [
        ("postgresql", "571:53195829", TransactionId("571", 53195829)),
        ("postgresql", "0-7-12", None),
        ("mariadb", "0-7-12", TransactionId("0-7-12", None, "domain 0", 12)),
        ("mariadb", f"{UUID}:12", None),
        ("mysql", f"{UUID}:12", TransactionId(f"{UUID}:12", None, f"source {UUID}", 12)),
        ("mysql", f"{UUID}:tag:12", TransactionId(f"{UUID}:tag:12", None, f"source {UUID}:tag", 12)),
        ("mysql", "0-7-12", None),
        (
            "mysql",
            "file=mysql-bin.000007,pos=345",
            TransactionId("file=mysql-bin.000007,pos=345", None, "the binlog without GTIDs", FILE_7_POSITION_345),
        ),
        ("mysql", "file=mysql-bin,pos=345", None),
        ("mysql", "", None),
    ],
)
def test_the_id_of_a_transaction(connector: str, text: str, expected: TransactionId | None) -> None:
    assert parse_end_id(text, connector) == expected


def _binlog(pos: int | None, transaction: str | None = "0-7-1", **source: Any) -> ChangeHead:
    block = TransactionBlock(transaction, 1) if transaction else None
    return ChangeHead("u", PlaceBlock(file="mybin.000007", pos=pos, **source), block)


def test_records_of_a_transaction_of_a_binlog_are_after_the_same_position() -> None:
    places = RecordPlaces("mariadb")
    first, second = (places.find(_binlog(pos), i) for i, pos in enumerate((345, 400)))
    other = places.find(_binlog(900, "0-7-2"), 2)
    assert [one.after for one in (first, second, other)] == [FILE_7_POSITION_345 - 1] * 2 + [7 * 10**10 + 899]
    assert (second.place, second.number) == (7 * 10**10 + 400, 1)


def test_a_row_of_a_snapshot_stands_at_the_place_of_the_snapshot() -> None:
    found = RecordPlaces("mysql").find(_binlog(345, None, snapshot="last"), 5)
    assert (found.after, found.is_snapshot, found.ends) == (FILE_7_POSITION_345, True, True)
    assert not RecordPlaces("mysql").find(_binlog(345, None, snapshot="incremental"), 5).is_snapshot


@pytest.mark.parametrize(("version", "renumbers"), [("3.5.0.Final", True), ("3.6.1.Final", False), ("3.10.0", False)])
def test_connectors_before_3_6_1_number_anew(version: str, renumbers: bool) -> None:
    assert RecordPlaces("mysql").find(_binlog(345, version=version), 0).renumbers is renumbers


def test_what_a_connector_sends_before_it_has_seen_a_commit_is_early() -> None:
    """As in tests/data/open_transactions/postgresql_restart: after its restart the connector says what came last."""
    said = [("r", None, 50), ("u", None, 40), ("u", None, 60), ("u", 40, 60), ("u", 40, 70), ("u", 90, 95)]
    places = RecordPlaces("postgresql")
    found = []
    for offset, (op, commit, event) in enumerate(said):
        sequence = json.dumps([commit and str(commit), str(event)])
        block = None if op == "r" else TransactionBlock("7:1", 1)
        snapshot = "true" if op == "r" else None
        found.append(places.find(ChangeHead(op, PlaceBlock(sequence=sequence, snapshot=snapshot), block), offset))
    assert [(one.after, one.is_early) for one in found] == [
        (50, False),
        (50, True),
        (50, True),
        (50, False),  # It was sent before.
        (50, True),
        (90, False),
    ]


def test_a_change_without_a_place_has_none() -> None:
    assert RecordPlaces("mysql").find(_binlog(None), 3).transaction is None
    assert RecordPlaces("postgresql").find(_binlog(345), 3).transaction is None
    assert RecordPlaces("mysql").find(None, 3).offset == 3


def _land(folder: Path, *markers: tuple[str, str, dict[str, int]]) -> Feed:
    lines = []
    for offset, (status, id_, counts) in enumerate(markers):
        listed = [{"data_collection": table, "event_count": n} for table, n in counts.items()]
        value = {"status": status, "id": id_, "data_collections": listed}
        record = {"topic": "p.transaction", "partition": 0, "offset": offset, "key": None, "value": value}
        lines.append(json.dumps(record))
    (folder / "p.transaction+0+0000000000.jsonl").write_text("\n".join(lines) + "\n")
    return Feed("debezium-json", str(folder))


def test_a_transaction_that_began_more_than_once(tmp_path: Path) -> None:
    feed = _land(
        tmp_path,
        ("BEGIN", "0-7-1", {}),
        ("BEGIN", "0-7-1", {}),
        ("END", "0-7-1", {"d.a": 2}),
        ("BEGIN", "0-7-1", {}),
        ("END", "0-7-1", {"d.a": 1}),
        ("BEGIN", "0-7-2", {}),
        ("END", "0-7-2", {}),
    )
    ends = read_ends(feed, "mariadb", None).ends
    assert ends[0] == TransactionEnd("0-7-1", None, 2, {"d.a": 2}, 1, is_partial=True, is_restarted=True)
    assert ends[2] == TransactionEnd("0-7-2", None, 6, {}, 2)
    after = read_ends(feed, "mariadb", SetPoint(5, "0-7-1", 2, (), 1)).ends
    assert [(end.id, end.offset) for end in after] == [("0-7-1", 4), ("0-7-2", 6)]


def test_a_transaction_before_which_the_connector_started_is_whole(tmp_path: Path) -> None:
    feed = _land(
        tmp_path,
        ("BEGIN", "0-7-1", {}),
        ("END", "0-7-1", {"d.a": 2}),
        ("BEGIN", "0-7-2", {}),
        ("BEGIN", "0-7-1", {}),
        ("END", "0-7-1", {"d.a": 1}),
        ("BEGIN", "0-7-2", {}),
        ("END", "0-7-2", {"d.a": 5}),
    )
    assert [end.is_partial for end in read_ends(feed, "mariadb", None).ends] == [False, False, False]


def test_gtids_of_two_domains_have_no_order(tmp_path: Path) -> None:
    feed = _land(tmp_path, ("END", "0-7-1", {"d.a": 2}), ("END", "1-7-1", {}), ("END", "2-7-5", {"d.a": 1}))
    with pytest.raises(RefusedError, match="of domain 0 and, at offset 2, of domain 2") as caught:
        read_ends(feed, "mariadb", None)
    assert caught.value.code == "SET_ORIGINS"
    with pytest.raises(RefusedError, match="domain 3"):
        read_ends(feed, "mariadb", SetPoint(5, "3-7-1", -1, (), 1))


def test_ids_of_another_connector_are_refused(tmp_path: Path) -> None:
    feed = _land(tmp_path, ("BEGIN", f"{UUID}:1", {}))
    with pytest.raises(RefusedError, match="the connector for mariadb") as caught:
        read_ends(feed, "mariadb", None)
    assert caught.value.code == "SET_POSITION_UNKNOWN"
