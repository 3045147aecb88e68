"""One record at a time: what is taken, what is counted, what is refused and with which reason (bad inputs 34 to 60)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.landing import TOPIC, record, tombstone
from support.reading import FileReading
from tidefold.changelog.schema import CLEAR, DELETE, UPSERT
from tidefold.domain.log_state import Column, TableSpec
from tidefold.domain.source_progress import NO_COMMIT, StreamPosition
from tidefold.sources.debezium.envelope import envelope_reader
from tidefold.sources.debezium.ordering import postgresql_order
from tidefold.sources.records.accounting import FilePosition, LateOffsetError, ReaderPosition
from tidefold.sources.records.change_batches import TableBuilder, fill_key_groups
from tidefold.sources.records.errors import RefusedRecordError

SHAPE = TableSpec(("id",), (Column("id", "int"), Column("text", "string")), "postgresql", 16, 4)


def reader(shape: TableSpec = SHAPE, **place: Any) -> FileReading:
    return FileReading(envelope_reader(shape), ReaderPosition(FilePosition(TOPIC, 0, **place), shape))


def feed(into: FileReading, *records: dict[str, Any] | str) -> list[str]:
    """Takes records; answers what became of each: the name of the count that rose, or the reason of the refusal."""
    became = []
    for one in records:
        before = vars_of(into)
        try:
            into.take((json.dumps(one) if isinstance(one, dict) else one).encode())
        except RefusedRecordError as refused:
            into.at.refuse(refused.reason)
            became.append(refused.reason)
            assert vars_of(into) == before
            continue
        [rose] = [name for name, count in vars_of(into).items() if count != before[name]]
        became.append(rose)
    account = into.account
    assert account.records == sum(vars_of(into).values()) + sum(account.refused.values())
    return became


def vars_of(into: FileReading) -> dict[str, int]:
    return {
        name: getattr(into.account, name)
        for name in ("changes", "tombstones", "repeated", "resent", "unproved", "ignored")
    }


def one(changed: dict[str, Any] | str, shape: TableSpec = SHAPE) -> str:
    [became] = feed(reader(shape), changed)
    return became


def after(**row: Any) -> dict[str, Any]:
    return record(0, 1, after={"id": 1, "text": "x", **row})


def test_snapshot_rows_inserts_and_updates_become_upserts_deletes_become_deletes() -> None:
    into = reader()
    assert feed(
        into,
        record(0, 1, "r", snapshot="true"),
        record(1, 2, "c"),
        record(2, 2, "u"),
        record(3, 2, "d"),
        tombstone(4, 2),
    ) == ["changes"] * 4 + ["tombstones"]
    assert into.batch.ops == [UPSERT, UPSERT, UPSERT, DELETE]
    assert [row.c1 for row in into.batch.rows] == ["t1000", "t1001", "t1002", None]
    assert into.batch.orders == [(1000, 0), (1000, 1001), (1000, 1002), (1000, 1003)]
    assert into.batch.times == [1_000_000, 1_001_000, 1_002_000, 1_003_000]


@pytest.mark.parametrize(
    ("value", "became"),
    [
        ({"ts_ms": 1}, "ignored"),  # heartbeat
        ({"status": "BEGIN", "id": "5", "event_count": None}, "ignored"),  # transaction topic
        ({"source": {}, "ddl": "CREATE TABLE", "tableChanges": []}, "ignored"),  # schema change
        ({"op": "m", "source": {"sequence": None}, "message": {"prefix": "p", "content": ""}}, "ignored"),
        ({"op": "t", "source": {}, "before": None, "after": None}, "ORDER_MISSING"),
        ({"schema": {}, "payload": {"ts_ms": 1}}, "ignored"),
        ({"schema": None, "payload": None}, "tombstones"),
        ({"op": "U", "source": {}, "after": {"id": 1, "text": ""}}, "OP_UNKNOWN"),
        ({"op": "x", "source": {}}, "OP_UNKNOWN"),
        ({"op": None, "source": {}}, "OP_UNKNOWN"),
        ({"op": 1, "source": {}}, "OP_UNKNOWN"),
        ({"source": {}, "after": {"id": 1, "text": ""}}, "OP_UNKNOWN"),
        ({"schema": {}, "payload": {"op": "x"}}, "OP_UNKNOWN"),
        ({}, "OP_UNKNOWN"),
        ([], "NOT_A_RECORD"),
        ("text", "NOT_A_RECORD"),
    ],
)
def test_what_the_connector_tells_of_itself_is_ignored_and_other_ops_are_refused(value: Any, became: str) -> None:
    assert one(record(0, value=value)) == became


def test_records_of_the_connectors_own_topics_are_ignored_but_a_table_may_be_called_transaction() -> None:
    assert one(record(0, topic="__debezium-heartbeat.shop", value={"ts_ms": 1})) == "ignored"
    assert one(record(0, topic="shop.transaction", value={"status": "END", "id": "5"})) == "ignored"
    assert one(record(0, topic="shop.public.other")) == "WRONG_PARTITION"
    own = FileReading(envelope_reader(SHAPE), ReaderPosition(FilePosition("shop.public.transaction", 0), SHAPE))
    assert feed(own, record(0, topic="shop.public.transaction", op="U")) == ["OP_UNKNOWN"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (record(0, after=None, op="u"), "AFTER_MISSING"),
        (record(0, after=5), "VALUE_INVALID"),
        (after(id="1"), "VALUE_INVALID"),
        (after(id=1.0), "VALUE_INVALID"),
        (after(id=True), "VALUE_INVALID"),
        (after(id=2**31), "VALUE_INVALID"),
        (after(id=2**63 + 1), "VALUE_INVALID"),
        (after(text=5), "VALUE_INVALID"),
        (after(text={"a": 1}), "VALUE_INVALID"),
        (after(id=None), "KEY_NULL"),
        (record(0, after={"text": "x"}), "KEY_NULL"),
        (record(0, after={"id": 1}), "MISSING_COLUMN"),
        (after(more=None), "UNKNOWN_COLUMN"),
        (after(TEXT="x"), "UNKNOWN_COLUMN"),
        (after(text="__debezium_unavailable_value"), "UNAVAILABLE_VALUE"),
        (after(id="__debezium_unavailable_value"), "UNAVAILABLE_VALUE"),
        (record(0, 1, key={"id": 2}), "KEY_MISMATCH"),
        (record(0, 1, "u", before={"id": 2, "text": ""}), "KEY_MISMATCH"),
        (record(0, op="d", key=None, before=None), "KEY_NULL"),
        (record(0, op="d", key={"id": None}, before={"id": None}), "KEY_NULL"),
        (record(0, op="d", key={"id": "1"}), "VALUE_INVALID"),
        (record(0, source=None), "ORDER_MISSING"),
        (record(0, partition=1), "WRONG_PARTITION"),
        (record(0, topic="other"), "WRONG_PARTITION"),
        (record(-1), "NOT_A_RECORD"),
        (record(0, ts_us="now"), "VALUE_INVALID"),
    ],
)
def test_what_is_wrong_with_a_record_is_its_reason(changed: dict[str, Any], reason: str) -> None:
    assert one(changed) == reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "BROKEN_JSON"),
        ("not json", "BROKEN_JSON"),
        (json.dumps(record(0)) * 2, "BROKEN_JSON"),
        (json.dumps(record(0))[:-9], "BROKEN_JSON"),
        (json.dumps(record(0)).replace("null", "NaN", 1), "BROKEN_JSON"),
        (json.dumps(record(0)).replace('"t1000"', '"\\ud800"'), "BROKEN_JSON"),
        (json.dumps(record(0)).replace("[]", "[" * 10_000 + "]" * 10_000), "BROKEN_JSON"),
        (json.dumps(record(0)).replace('"id": 1', '"id": 1e400'), "VALUE_INVALID"),
        (json.dumps([record(0)]), "NOT_A_RECORD"),
        ("5", "NOT_A_RECORD"),
        ("{}", "NOT_A_RECORD"),
        ('{"topic":"t","partition":"0","offset":0,"value":null}', "NOT_A_RECORD"),
    ],
)
def test_what_is_no_record_is_refused(line: str, reason: str) -> None:
    assert one(line) == reason


def test_of_a_name_that_stands_twice_the_last_one_counts_as_in_other_json_readers() -> None:
    into = reader()
    assert feed(into, json.dumps(record(0)).replace('"text": "t1000"', '"text": "a", "text": "b"')) == ["changes"]
    assert into.batch.rows[0].c1 == "b"


def test_a_key_beside_the_row_is_compared_as_far_as_it_has_the_configured_columns() -> None:
    for key in (None, {}, {"other": 5}, {"id": 1, "other": 5}):
        assert one(record(0, 1, key=key)) == "changes"


def test_a_delete_takes_its_key_from_the_record_or_else_from_before() -> None:
    for changes in ({"before": None}, {"key": None}, {"key": {"other": 1}}):
        into = reader()
        assert feed(into, record(0, 7, "d", **changes)) == ["changes"]
        assert (into.batch.rows[0].c0, into.batch.rows[0].c1) == (7, None)


@pytest.mark.parametrize(
    ("sequence", "order"),
    [
        ('[null,"5"]', (NO_COMMIT, 5)),
        ('["4","5"]', (4, 5)),
        ('["4", "5"]', (4, 5)),
        ('["9","10"]', (9, 10)),
        ('["9223372036854775807","0"]', (2**63 - 1, 0)),
    ],
)
def test_the_order_is_two_numbers(sequence: str, order: tuple[int, int]) -> None:
    assert postgresql_order(sequence) == order


@pytest.mark.parametrize(
    "sequence",
    [
        None,
        "",
        "[]",
        '["5"]',
        "[4,5]",
        '["4",null]',
        '["4","5","6"]',
        '["-1","5"]',
        '["4","x"]',
        '["4","٥"]',
        '["99999999999999999999","1"]',
        '["9223372036854775808","1"]',
    ],
)
def test_a_missing_or_garbled_order_is_refused(sequence: str | None) -> None:
    assert one(record(0, sequence=sequence)) == "ORDER_MISSING"


def test_orders_are_compared_as_numbers_and_what_was_sent_again_is_counted() -> None:
    into = reader()
    assert feed(
        into,
        record(0, order=9, sequence='["9","9"]'),
        record(1, order=10, sequence='["10","10"]'),
        record(2, order=9, sequence='["9","9"]'),  # sent again
        record(3, order=10, sequence='["10","10"]'),  # equal to the highest: kept, it is the same row
        record(4, order=10, op="d", sequence='["9","10"]'),
        record(5, sequence='["11","12"]', ts_us=10**7),
    ) == ["changes", "changes", "resent", "changes", "resent", "changes"]
    assert (into.account.low, into.account.stream.max_order) == ((9, 9), (11, 12))


Sent = tuple[str, str, str, tuple[int, int] | str]


@pytest.mark.parametrize(
    "sent",
    [
        # The snapshot at 50, its first transaction was open then; the next ones.
        [("r", "first", "null 50", (50, 0)), ("u", "", "null 30", (50, 30)), ("u", "", "null 50", (50, 50))],
        [("r", "", "null 50", (50, 0)), ("u", "", "null 30", (50, 30)), ("u", "", "60 20", (60, 20))],
        # The connector starts again before it has seen a commit: at the snapshot, or within the first transaction.
        [("r", "", "null 50", (50, 0)), ("u", "", "null 30", (50, 30)), ("u", "", "null 20", "resent")],
        [("r", "", "null 50", (50, 0)), ("u", "", "null 30", (50, 30)), ("u", "", "25 30", (50, 30))],
        [("r", "", "null 50", (50, 0)), ("u", "", "null 30", (50, 30)), ("u", "", "30 40", (50, 40))],
        [("r", "", "null 50", (50, 0)), ("u", "", "null 70", (50, 70)), ("u", "", "60 80", (50, 80))],
        [("r", "", "null 50", (50, 0)), ("u", "", "null 70", (50, 70)), ("u", "", "72 80", (72, 80))],
        [("u", "", "null 70", (70, 70)), ("u", "", "60 80", (80, 80)), ("u", "", "90 85", (90, 85))],
        # It goes on twice within that transaction: other tables had the events at 72 and 78.
        [("r", "", "null 50", (50, 0)), ("u", "", "72 80", (72, 80)), ("u", "", "78 82", (72, 82))],
        # A kill within the snapshot, and a snapshot that is made again: before its open transaction, after all else.
        [("r", "first", "null 50", (50, 0)), ("r", "first", "null 55", (55, 0)), ("u", "", "null 30", (55, 30))],
        [("u", "", "60 70", (60, 70)), ("r", "first", "null 90", (90, 0)), ("u", "", "null 30", (90, 30))],
        # A snapshot by signal within the open transaction; incremental rows before and after its first event.
        [("u", "", "null 30", (50, 30)), ("r", "first", "null 35", (50, 35)), ("u", "", "null 40", (50, 40))],
        [("r", "incremental", "null 50", (50, 0)), ("u", "", "null 30", (50, 30))],
        [("u", "", "null 30", (50, 30)), ("r", "incremental", "null 30", (50, 30)), ("u", "", "null 40", (50, 40))],
        # No row of the snapshot is in the partition: what it may mean decides.
        [("u", "", "null 30", (30, 30)), ("u", "", "40 35", (40, 35)), ("u", "", "null 45", (45, 45))],
        [("u", "", "null 30", (30, 30)), ("u", "", "40 35", (40, 35)), ("u", "", "null 30", "resent")],
        [("u", "", "null 30", (30, 30)), ("u", "", "40 35", (40, 35)), ("u", "", "null 32", "ORDER_RESTART")],
        # Another server, or one that was restored.
        [("u", "", "60 70", (60, 70)), ("r", "first", "null 40", "ORDER_RESTART")],
    ],
)
def test_the_order_of_what_a_connector_sends_before_it_has_seen_a_commit(sent: list[Sent]) -> None:
    """Decision 0068. Within an open transaction, the log has the rows of the snapshot at 50."""
    into = reader()
    if sent[0][3] == (50, 30):
        feed(into, record(0, op="r", snapshot="first", sequence='[null,"50"]', ts_us=1))
    for number, (op, mark, said, expected) in enumerate(sent, 1):
        commit, event = said.replace("null", "").rjust(5).split(" ")[-2:]
        sequence = f'["{commit}","{event}"]' if commit else f'[null,"{event}"]'
        time = 1000 if (op, expected) == ("r", "ORDER_RESTART") else 1
        given = record(number, op=op, snapshot=mark or "false", sequence=sequence, ts_us=time)
        became = feed(into, given)
        assert [into.batch.orders[-1] if became == ["changes"] else became[0]] == [expected], (said, became)


def test_what_the_log_took_before_is_the_beginning() -> None:
    into = reader(stream=StreamPosition((5, 0)), next_offset=10, taken=((0, 10),), start=8)
    assert feed(into, record(8), tombstone(9), record(10, sequence='["4","9"]'), record(11, sequence='["5","0"]')) == [
        "unproved",
        "unproved",
        "resent",
        "changes",
    ]
    assert (into.account.lowest, into.account.first, into.account.last) == (8, 10, 11)


def test_an_offset_below_those_that_come_next_that_was_never_taken_is_late() -> None:
    into = reader(next_offset=10, taken=((0, 4), (6, 10)), start=3)
    into.take(json.dumps(record(3)).encode())
    with pytest.raises(LateOffsetError) as caught:
        into.take(json.dumps(record(4)).encode())
    assert caught.value.offset == 4


def test_offsets_must_rise_within_a_file_and_may_leave_gaps() -> None:
    into = reader(start=5)
    assert feed(into, record(4), record(5), record(9), record(7), record(9), record(5), record(10)) == [
        "OFFSET_ORDER",
        "changes",
        "changes",
        "OFFSET_ORDER",
        "repeated",
        "OFFSET_ORDER",
        "changes",
    ]


def test_an_offset_twice_in_a_row_is_repeated_whatever_the_line_holds() -> None:
    into = reader()
    lines = (record(0), record(0), record(0), tombstone(1), tombstone(1), record(2, op="U"), record(2, op="U"))
    assert feed(into, *lines) == [
        "changes",
        "repeated",
        "repeated",
        "tombstones",
        "repeated",
        "OP_UNKNOWN",
        "repeated",
    ]
    assert (into.account.lowest, into.account.first, into.account.last) == (0, 0, 2)


def test_a_second_initial_snapshot_replaces_what_was_there_and_an_incremental_one_is_taken() -> None:
    first = [record(i, i, "r", order=50, snapshot=mark) for i, mark in enumerate(("first", "true", "last"))]
    second = [record(10 + i, i, "r", order=90, snapshot=mark) for i, mark in enumerate(("first", "true"))]
    into = reader()
    streamed = record(5, 1, "u", sequence='["60","65"]')
    assert feed(into, *first, streamed, *second, record(20, 2, "u", order=91)) == ["changes"] * 7
    assert into.batch.ops == [UPSERT] * 4 + [CLEAR] + [UPSERT] * 3
    # Although it knows of no commit, it comes after all of them.
    assert into.batch.orders[4:] == [(90, 0)] * 3 + [(90, 91)]
    assert into.account.cleared == (90, 0)
    # Rows of a snapshot that was taken before, or lies below what was: sent again.
    for high, ops in (((40, 50), [CLEAR, UPSERT, UPSERT]), ((90, 0), [UPSERT, UPSERT]), ((91, 0), [])):
        into = reader(stream=StreamPosition(high))
        assert feed(into, *second) == ["changes" if ops else "resent"] * 2
        assert into.batch.ops == ops
    into = reader(stream=StreamPosition((80, 80)))
    assert feed(into, record(0, 1, "r", order=90, snapshot="incremental")) == ["changes"]
    assert into.batch.ops == [UPSERT]


@pytest.mark.parametrize("mark", ["true", "first", "last"])
def test_a_change_that_is_marked_as_a_row_of_a_snapshot_clears_nothing(mark: str) -> None:
    """Fault: connectors (PostgreSQL 3.6.1, MariaDB 3.5.0) that were killed during or soon after a snapshot mark the
    changes after their restart with `snapshot: "true"`. Each removed all rows of the table, and nothing was reported.
    """
    into = reader()
    first = record(0, 1, "r", order=50, snapshot="first")
    changes = [record(1 + i, 1 + i, op, order=60 + i, snapshot=mark) for i, op in enumerate("cud")]
    refused = record(4, 4, "c", order=70, snapshot=mark, after={"id": "four"})
    assert feed(into, first, *changes, refused) == ["changes"] * 4 + ["MISSING_COLUMN"]
    assert into.batch.ops == [UPSERT] * 3 + [DELETE]
    assert into.account.cleared == ()


def test_a_truncate_is_one_change_that_clears() -> None:
    into = reader()
    truncate = record(1, op="t", key=None, before=None, after=None)
    assert feed(into, record(0), truncate, record(2)) == ["changes"] * 3
    assert into.batch.ops == [UPSERT, CLEAR, UPSERT]
    assert into.account.cleared == (1001, 1001)


def test_a_lower_order_that_was_committed_later_than_all_before_is_no_repeat() -> None:
    """A server that took over counts its positions anew: to leave its records out would lose them in silence."""
    into = reader(stream=StreamPosition((500, 500), max_commit_time=9_000))
    assert feed(into, record(0, order=10, ts_us=9_000), record(1, order=11, ts_us=9_001)) == [
        "resent",
        "ORDER_RESTART",
    ]
    into = reader(stream=StreamPosition((500, 500)))  # An older ledger does not know the time.
    assert feed(into, record(0, order=10, ts_us=9_000)) == ["resent"]


def test_a_commit_time_in_milliseconds_is_widened_and_a_missing_one_is_null() -> None:
    into = reader()
    feed(into, record(0, ts_us=None, ts_ms=5), record(1, ts_us=None), record(2, ts_us=7, ts_ms=5))
    assert into.batch.times == [5000, None, 7]


TYPES = ("boolean", "int", "long", "float", "double", "string", "date", "timestamp")
WIDE = TableSpec(
    ("k.1", "k`2"),
    (Column("k.1", "long"), Column("k`2", "string"), *(Column(f"a {t}", t) for t in TYPES)),
    "postgresql",
    16,
    4,
)


def wide(**values: Any) -> dict[str, Any]:
    row = {"k.1": 2**63 - 1, "k`2": "ключ", **{f"a {t}": values.get(t) for t in TYPES}}
    return record(0, after=row, key={"k.1": 2**63 - 1, "k`2": "ключ"})


def table_of(*records: dict[str, Any]) -> list[dict[str, Any]]:
    into = reader(WIDE)
    assert feed(into, *records) == ["changes"] * len(records)
    builder = TableBuilder(WIDE, 3)
    builder.add(into.at.drain_batch())
    [table] = fill_key_groups(filter(None, [builder.to_table()]), WIDE)
    return table.to_pylist()


def test_every_type_arrives_as_it_was_sent() -> None:
    sent = {
        "boolean": True,
        "int": -(2**31),
        "long": 2**63 - 1,
        "float": 0.5,
        "double": -0.0,
        "string": "😀\u0000",
        "date": 19_000,
        "timestamp": -62_135_596_800_000_000,
    }
    [row] = table_of(wide(**sent))
    assert {t: row[f"a {t}"] for t in TYPES if t not in ("date", "timestamp")} == {
        t: v for t, v in sent.items() if t not in ("date", "timestamp")
    }
    assert str(row["a date"]) == "2022-01-08"
    assert row["a timestamp"].isoformat() == "0001-01-01T00:00:00+00:00"
    assert (row["_partition"], 0 <= row["_kg"] < 16) == (3, True)
    [nulls] = table_of(wide())
    assert [nulls[f"a {t}"] for t in TYPES] == [None] * len(TYPES)


def test_numbers_that_json_does_not_have_come_as_text() -> None:
    [row] = table_of(wide(double="Infinity", float="-Infinity"))
    assert (row["a double"], row["a float"]) == (float("inf"), float("-inf"))
    [row] = table_of(wide(double="NaN", float=3))
    assert row["a double"] != row["a double"]
    assert row["a float"] == 3.0


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("boolean", 1),
        ("int", 1.5),
        ("long", 2**63),
        ("float", 1e39),
        ("float", 5e-324),  # It would be zero.
        ("double", "1.5"),
        ("double", "inf"),
        ("date", 2_932_897),
        ("date", "2022-01-08"),
        ("timestamp", 1_795_226_336_485_714_000),  # nanoseconds
        ("timestamp", "2022-01-08T00:00:00Z"),
    ],
)
def test_no_value_is_coerced(type_: str, value: Any) -> None:
    assert one(wide(**{type_: value}), WIDE) == "VALUE_INVALID"


def test_every_column_of_a_compound_key_is_needed() -> None:
    changed = wide()
    changed["value"]["after"]["k`2"] = None
    assert one(changed, WIDE) == "KEY_NULL"
    delete = record(0, op="d", key={"k.1": 5}, before={"k`2": "from before"})
    into = reader(WIDE)
    assert feed(into, delete) == ["changes"]
    assert (into.batch.rows[0].c0, into.batch.rows[0].c1) == (5, "from before")
