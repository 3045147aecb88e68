"""`source attest`: a table and its source, which is a real PostgreSQL, while both change."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.commands import call
from support.landing import record
from support.live_table import LiveTable
from tidefold.config import load_config
from tidefold.domain.alarms import AlarmThresholds
from tidefold.errors import RefusedError
from tidefold.operations.attest.attest import attest
from tidefold.operations.attest.proof import AttestDetails, AttestRequest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import now
from tidefold.operations.inspect.alarms import find_alarms
from tidefold.operations.inspect.status import status
from tidefold.operations.verify.scope import find_proof
from tidefold.presentation.tables import proof_lines
from tidefold.storage import Store, open_store
from torture.servers import PostgresSession


class _Clock:
    """A clock that only moves when somebody waits. `events`: what happens meanwhile."""

    def __init__(self, *events: Any) -> None:
        self.now, self.events = 1_800_000_000.0, list(events)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.events:
            self.events.pop(0)()

    def read(self) -> float:
        return self.now


def _attest(live: LiveTable, *events: Any, clock: _Clock | None = None, **options: Any) -> Outcome:
    clock = clock or _Clock(*events)
    request = AttestRequest("shop", by="test", clock=clock.read, sleep=clock.sleep, **{"patience": 5.0, **options})
    return attest(live.pipeline, "items", request)


def _details(outcome: Outcome) -> AttestDetails:
    assert isinstance(outcome.details, AttestDetails), outcome
    return outcome.details


@pytest.fixture
def live(database: PostgresSession, tmp_path: Path) -> LiveTable:
    table = LiveTable(database, tmp_path)
    table.write("insert into items select n, 't' || n from generate_series(1, 50) n")
    table.publish()
    return table


def test_a_table_that_is_at_rest_is_equal(live: LiveTable) -> None:
    outcome = _attest(live)
    assert outcome.error is None
    assert outcome.message == "snapshot 1: 50 keys equal at rest, 0 still moving, 0 differ"
    proof = find_proof(live.pipeline.store, "items")
    assert proof is not None
    assert proof.source is not None
    assert (proof.source.by, proof.source.connection, proof.source.table) == ("test", "shop", "public.items")
    assert proof.source.groups == 1024
    assert proof.source.checksum
    assert live.pipeline.ledger("items").read().consumers == ()


def test_what_the_log_changes_is_excused_and_looked_at_again(live: LiveTable) -> None:
    live.write("update items set text = 'new' where id <= 3")
    live.land()
    outcome = _attest(live)
    assert outcome.message == "snapshot 1: 47 keys equal at rest, 3 still moving, 0 differ"
    assert outcome.error is None
    outcome = _attest(live, *[lambda: None] * 12, live.publish)
    assert outcome.message == "snapshots 1 to 2: 50 keys equal at rest, 0 still moving, 0 differ"


def test_what_is_still_in_the_stream_is_no_fault(live: LiveTable) -> None:
    live.write("update items set text = 'late' where id in (7, 8)")
    late, live.held = live.held, []

    def come() -> None:
        live.held = late
        live.write("update items set text = 'pass' where id = 9")
        live.publish()

    outcome = _attest(live, lambda: None, come)
    assert (outcome.error, _details(outcome).source.moving) == (None, 0)
    assert outcome.message == "snapshots 1 to 2: 50 keys equal at rest, 0 still moving, 0 differ"


@pytest.mark.parametrize("is_passed", [True, False])
def test_faults_are_named_with_key_columns_and_the_change_that_made_ours(live: LiveTable, is_passed: bool) -> None:
    live.write("update items set text = 'lost' where id = 5", is_sent=False)
    live.write("insert into items values (60, 'lost')", is_sent=False)
    live.write("delete from items where id = 6", is_sent=False)

    def pass_by() -> None:
        live.write("update items set text = 'pass' where id = 9")
        live.publish()

    quiet = [lambda: None] * 20
    outcome = _attest(live, pass_by, *quiet, pass_by) if is_passed else _attest(live, lag=0.0)
    assert (outcome.error_code, outcome.error and outcome.error.exit_code) == ("SOURCE_DIFFERS", 5)
    faults = {fault.key["id"]: fault for fault in _details(outcome).faults}
    assert {key: (one.kind, one.columns) for key, one in faults.items()} == {
        5: ("changed", ("text",)),
        6: ("extra", ()),
        60: ("missing", ()),
    }
    assert faults[5].made_by.startswith("made by upsert of order")
    assert faults[60].made_by == "the log never had it"
    assert _details(outcome).source.differ == 3
    [one] = status(live.pipeline, ["items"], proofs=True)
    assert [str(alarm.kind) for alarm in find_alarms(one, AlarmThresholds(), now())] == ["source"]
    assert [line for line in proof_lines(one, now()) if "DIFFERS FROM ITS SOURCE" in line]


def test_without_a_later_change_a_second_look_decides_after_the_lag(live: LiveTable) -> None:
    live.write("update items set text = 'lost' where id = 5", is_sent=False)
    clock = _Clock()
    first = _attest(live, clock=clock, lag=3600.0)
    assert (first.error_code, first.error and first.error.exit_code) == ("ATTEST_UNDECIDED", 3)
    assert "1 key differs since" in first.message
    assert first.error is not None
    assert first.error.hint.startswith(
        "`tidefold run items`, then `tidefold source attest items --connection shop`. If no later change of the table "
    )
    assert "after 2027-01-15T09:00" in first.error.hint
    clock.now += 3600
    assert _attest(live, clock=clock, lag=3600.0).error_code == "SOURCE_DIFFERS"
    live.session.execute("update items set text = 't5' where id = 5")
    assert _attest(live, clock=clock).error is None


def test_a_comparison_says_for_what_it_waits(live: LiveTable) -> None:
    told: list[str] = []
    assert _attest(live, tell=told.append).error is None
    assert told == []
    live.write("update items set text = 'lost' where id = 5", is_sent=False)
    _attest(live, tell=told.append, patience=25.0, looks=1)
    [begun, *later] = told
    assert re.fullmatch(
        r"1 key differs; waiting for changes of `items` up to position [\d,]+; no news for 0 of 25 s", begun
    )
    assert [one.rpartition("for ")[2] for one in later] == ["10 of 25 s", "20 of 25 s"]
    live.write("update items set text = 'new' where id = 9")
    live.land()
    told.clear()
    live.session.execute("update items set text = 't5' where id = 5")
    _attest(live, tell=told.append)
    assert "1 key moves; waiting for the next snapshot of `items`; no news for 0 of 5 s" in told


def test_rows_that_no_incremental_snapshot_deletes_are_replaced_by_a_load(live: LiveTable) -> None:
    live.write("update items set text = 'lost' where id = 5", is_sent=False)
    changed = _attest(live, lag=0.0)
    live.write("delete from items where id = 6", is_sent=False)
    extra = _attest(live, lag=0.0)
    assert changed.error is not None
    assert extra.error is not None
    assert "incremental snapshot" in changed.error.hint
    assert "source load items" not in changed.error.hint
    assert "`tidefold source load items --connection shop`" in extra.error.hint


def test_a_table_that_was_emptied_excuses_every_key(live: LiveTable) -> None:
    live.session.execute("truncate items")
    truncated = record(live.next, op="t", before=None, after=None, key=None, order=live.commit)
    live.next, live.held = live.next + 1, [truncated]
    live.land()
    assert _attest(live).message == "snapshot 1: 0 keys equal at rest, 50 still moving, 0 differ"


def test_differences_that_the_log_knows_are_counted_apart(database: PostgresSession, tmp_path: Path) -> None:
    columns = (
        '{id: int, text: string, n: {type: "decimal(9,2)", encoding: any}, free: {type: string, encoding: decimal}}'
    )
    live = LiveTable(database, tmp_path, columns, n="numeric", free="numeric", other="int")
    live.write("insert into items select n, 't' || n, n, n from generate_series(1, 9) n")
    for one in live.held:
        del one["value"]["after"]["other"]
    live.held[2]["value"]["after"]["text"] = 3  # Not a text: refused.
    live.publish()
    live.session.execute("update items set free = 'NaN' where id = 4", "update items set n = 'NaN' where id = 5")
    live.session.execute("update items set n = 1.50, free = 1.500 where id = 1")
    live.write("update items set id = id where id in (1, 4, 5)")
    for one, text in zip(live.held, ("1.5", None, "5"), strict=True):
        one["value"]["after"] |= {"free": text, "n": None if one["key"]["id"] == 5 else one["value"]["after"]["n"]}
        del one["value"]["after"]["other"]
    live.publish()
    outcome = _attest(live, lag=0.0)
    source = _details(outcome).source
    assert outcome.error is None, outcome
    assert source.apart == {"NaN as null": 1, "NaN of `n` as null": 1, "quarantined (VALUE_INVALID)": 1}
    assert source.not_there == ("other",)
    assert (source.equal, source.differ) == (7, 0)


def test_what_cannot_be_attested_is_said(live: LiveTable, monkeypatch: pytest.MonkeyPatch) -> None:
    live.session.execute("alter table items rename text to other")
    with pytest.raises(RefusedError, match="text \\(not there, string in the log\\)"):
        _attest(live)
    live.session.execute("alter table items rename other to text")
    assert "not compared: text" in _attest(live, left_out=("text",)).message
    live.session.execute("create role reader login", "grant usage on schema public to reader")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", _as_reader())
    with pytest.raises(RefusedError, match="DATABASE_DENIED"):
        _attest(live)
    live.session.execute("grant select on items to reader", "alter table items enable row level security")
    with pytest.raises(RefusedError, match="ATTEST_POLICIES"):
        _attest(live)
    live.session.execute("alter table items disable row level security")
    live.session.execute("create table child () inherits (items)", "insert into child values (1000, 'inherited')")
    assert _attest(live).error is None
    live.session.execute("drop table child", "alter role reader set statement_timeout = 1")
    live.session.execute("insert into items select n, repeat('x', 2000) from generate_series(100, 9000) n")
    with pytest.raises(RefusedError, match="DATABASE_TIMEOUT"):
        _attest(live)


def _as_reader() -> str:
    import os

    return os.environ["AIRFLOW_CONN_SHOP"].replace("postgres://postgres@", "postgres://reader@")


def test_a_history_is_compared_by_its_newest_versions(live: LiveTable) -> None:
    text = (live.root / "tidefold.yaml").read_text()
    (live.root / "tidefold.yaml").write_text(text.replace("key: [id]", "key: [id]\n    merge: history"))
    live.pipeline = replace(live.pipeline, config=load_config(live.root / "tidefold.yaml"), store=_open_other(live))
    live.held = []
    live.write("update items set text = text || '!' where id < 3")
    live.write("delete from items where id = 4")
    live.write("update items set text = text where id > 0")
    live.publish()
    assert _attest(live).message == "snapshot 1: 49 keys equal at rest, 0 still moving, 0 differ"
    live.write("update items set text = 'lost' where id = 5", is_sent=False)
    assert [str(fault.key["id"]) for fault in _details(_attest(live, lag=0.0)).faults] == ["5"]


def _open_other(live: LiveTable) -> Store:
    return open_store("other", live.root)


def test_rows_that_expired_are_counted_apart(database: PostgresSession, tmp_path: Path) -> None:
    live = LiveTable(database, tmp_path, "{id: int, text: string, day: {type: date, encoding: iso}}", day="date")
    text = (live.root / "tidefold.yaml").read_text()
    ttl = "key: [id]\n    ttl: {column: day, days: 30}"
    (live.root / "tidefold.yaml").write_text(text.replace("key: [id]", ttl))
    live.pipeline = replace(live.pipeline, config=load_config(live.root / "tidefold.yaml"))
    live.write("insert into items select n, 't', current_date - n * 20 from generate_series(0, 4) n")
    live.publish()
    outcome = _attest(live, lag=0.0)
    assert outcome.error is None
    assert dict(_details(outcome).source.apart) == {"expired": 3}


def test_rows_of_the_source_with_one_key_are_refused(live: LiveTable) -> None:
    live.session.execute("alter table items drop constraint items_pkey", "insert into items values (7, 'twice')")
    with pytest.raises(RefusedError, match="ATTEST_KEYS"):
        _attest(live)


def test_the_command_says_what_it_proved(live: LiveTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(live.root)
    words = ("source", "attest", "items", "--connection", "shop", "--lag", "0", "--patience", "0")
    assert "items: whole: snapshot 1: 50 keys equal at rest, 0 still moving, 0 differ" in call(*words).output
    assert "compared with its source" in call("status", "items").output
    live.write("update items set text = 'lost' where id = 5", is_sent=False)
    lines = call(*words, code=5).output.splitlines()
    assert [line for line in lines if line.startswith("  items: id=5 differs in text; made by upsert of order")]
    assert "DIFFERS FROM ITS SOURCE" in call("status", "items").output
