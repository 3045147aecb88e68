"""Refused records in one place: counted, shown, and read again without ever bringing an old value back. Issue 6.

Promises I5, I19, I20, I25. An older program is one that knows fewer values of a column type: what it refuses is taken
by today's.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from support.effort import list_moments
from support.faults import Fault, FaultyStore, Killed
from support.landing import (
    COUNTS,
    TOPIC,
    changes_of,
    land,
    make_landing,
    quarantined,
    record,
    state_of,
    take,
    tombstone,
)
from support.older import older_program
from support.pipelines import contents, judge_all
from tidefold.changelog import write_intents
from tidefold.cli.app import app
from tidefold.compute.runners import in_process
from tidefold.domain.external_snapshot import Ownership
from tidefold.domain.ingest.append import stop
from tidefold.domain.log_state import Stopped
from tidefold.domain.paths import INTENTS
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.errors import ConflictError, CorruptError, NotFoundError, RefusedError, TidefoldError
from tidefold.operations.ground import recovery
from tidefold.operations.ground.originals import open_address
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.inspect.explain_key import explain_key
from tidefold.operations.inspect.status import status
from tidefold.operations.quarantine import commit as quarantine_commit
from tidefold.operations.quarantine.inspect import count_refused, show_refused
from tidefold.operations.quarantine.retry import retry
from tidefold.operations.requests import Fold, Import, Restore
from tidefold.operations.retention.clean import clean
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.savepoint.take import SavepointRequest as SavepointWanted
from tidefold.operations.savepoint.take import take_savepoint
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import verify
from tidefold.storage.local_copies.copies import open_roots


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Two files: of the first the records of keys 100 and 101 are refused, and a broken line; of the second key 102."""
    made = make_landing(tmp_path)
    land(tmp_path, 0, [record(0, 1), record(1, 100), record(2, 101), "{broken", record(3, 2)])
    land(tmp_path, 10, [record(10, 102), record(11, 1, op="u")])
    with older_program(monkeypatch):
        assert take(made).facts["refused"] == {"VALUE_INVALID": 3, "BROKEN_JSON": 1}
    return made


def rows(pipeline: Pipeline, what: What = What.LIVE) -> dict[int, str]:
    _, batches = read_rows(pipeline, "items", ReadRequest(what))
    return {row["id"]: row["text"] for batch in batches for row in batch.to_pylist()}


def fold(pipeline: Pipeline, run: str, restore: RestorePoint | None = None) -> None:
    [outcome] = materialize(pipeline, ["items"], Restore(run, restore) if restore else Fold(run), in_process)
    assert not outcome.error_code, outcome
    judge_all(pipeline, "items")
    assert confirm(pipeline, "items", Confirmation(run=run)).status == "published"


def check_counts(pipeline: Pipeline) -> None:
    """Each record is in one count of its file; status and quarantine say the same."""
    state = state_of(pipeline)
    for entry in state.landed:
        assert entry.records == sum(getattr(entry, name) for name in COUNTS), entry
        assert bool(entry.quarantined) == bool(entry.quarantine)
    refused = sum(one.count for one in count_refused(pipeline, "items"))
    assert refused == status(pipeline, ["items"])[0].quarantined == len(quarantined(pipeline))
    assert len(changes_of(pipeline)) == sum(entry.changes for entry in state.landed)
    assert verify(pipeline, "items").status == "whole"


def test_reasons_are_counted_with_an_example(pipeline: Pipeline) -> None:
    most, other = count_refused(pipeline, "items")
    assert (most.reason, most.count, most.files) == ("VALUE_INVALID", 3, 2)
    assert (most.file, most.line, most.offset) == (f"{TOPIC}+0+0000000000.jsonl", 2, 1)
    assert (other.reason, other.count, other.files, other.line, other.offset) == ("BROKEN_JSON", 1, 1, 4, None)
    assert most.oldest
    assert most.newest
    assert most.oldest <= most.newest
    assert "id" in most.detail or most.detail
    assert count_refused(make_landing(pipeline.config.path.parent / "other"), "items") == []


def test_records_are_shown_in_their_order(pipeline: Pipeline) -> None:
    before = contents(pipeline.config.path.parent)
    found, more = show_refused(pipeline, "items", None, 10)
    assert [(one.line, one.offset, one.reason) for one in found] == [
        (2, 1, "VALUE_INVALID"),
        (3, 2, "VALUE_INVALID"),
        (4, None, "BROKEN_JSON"),
        (1, 10, "VALUE_INVALID"),
    ]
    assert not more
    assert json.loads(found[0].record)["key"] == {"id": 100}
    assert found[2].record == "{broken"
    first, more = show_refused(pipeline, "items", "VALUE_INVALID", 2)
    assert ([one.offset for one in first], more) == ([1, 2], True)
    assert contents(pipeline.config.path.parent) == before
    with pytest.raises(NotFoundError):
        show_refused(make_landing(pipeline.config.path.parent / "other"), "items", None, 1)


def test_a_lost_or_damaged_quarantine_is_told(pipeline: Pipeline) -> None:
    """I23: unreadable is never "nothing refused"."""
    path = Path(pipeline.store.uri(state_of(pipeline).landed[0].quarantine or "").removeprefix("file://"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(CorruptError) as cut:
        count_refused(pipeline, "items")
    assert cut.value.code == "QUARANTINE_CORRUPT"
    path.unlink()
    with pytest.raises(CorruptError) as lost:
        count_refused(pipeline, "items")
    assert lost.value.code == "FILE_MISSING"


def test_what_can_be_read_now_is_taken_and_the_rest_stays(pipeline: Pipeline) -> None:
    """I5: the rows are those of a program that never refused; the accounts are right."""
    before = state_of(pipeline)
    outcome = retry(pipeline, "items")
    assert (outcome.status, outcome.facts["changes"], outcome.facts["reasons"]) == ("taken", 3, {"BROKEN_JSON": 1})
    after = state_of(pipeline)
    assert after.positions == before.positions
    assert rows(pipeline) == {1: "t1011", 2: "t1003", 100: "t1001", 101: "t1002", 102: "t1010"}
    check_counts(pipeline)
    found = explain_key(pipeline, "items", '{"id": 101}', live=True)
    assert found.made_by
    assert (found.made_by.landed, found.made_by.offset) == (f"{TOPIC}+0+0000000000.jsonl", 2)
    again = retry(pipeline, "items")
    assert (again.status, again.facts["staying"]) == ("nothing", 1)
    assert state_of(pipeline) == after
    assert not list(write_intents.read_announced(pipeline.store))
    assert len(pipeline.store.list("logs/items/quarantine")) == 1
    assert all(o.status == "nothing" for o in clean(pipeline, ["items"]))
    # What comes next is taken as if nothing had been refused.
    land(pipeline.config.path.parent, 20, [record(20, 100, op="u")])
    assert take(pipeline).facts["changes"] == 1
    assert rows(pipeline)[100] == "t1020"


def test_one_reason_alone(pipeline: Pipeline) -> None:
    assert retry(pipeline, "items", "BROKEN_JSON").status == "nothing"
    with pytest.raises(RefusedError, match="has the file and code"):
        retry(pipeline, "items", "NO_SUCH_REASON")
    assert retry(pipeline, "items", "VALUE_INVALID").facts["changes"] == 3
    check_counts(pipeline)


def test_a_key_that_was_changed_since_keeps_its_newer_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the newer change, or a delete, was folded: a table keeps no order of its rows."""
    made = make_landing(tmp_path)
    land(tmp_path, 0, [record(i, 100 + i) for i in range(4)])
    with older_program(monkeypatch):
        take(made)
    land(tmp_path, 10, [record(10, 100, op="u"), record(11, 101, op="d"), tombstone(12, 101)])
    take(made)
    fold(made, "run-1")
    # The newest transaction may have more records, which ask for the row that it changed: it supersedes nothing.
    land(tmp_path, 20, [record(20, 102, op="u"), record(21, 100, op="u")])
    take(made)
    outcome = retry(made, "items")
    assert (outcome.facts["changes"], outcome.facts["repeated"], outcome.facts["staying"]) == (1, 3, 0)
    expected = {100: "t1021", 102: "t1020", 103: "t1003"}
    assert rows(made) == expected
    fold(made, "run-2")
    assert rows(made, What.TABLE) == expected
    check_counts(made)
    assert count_refused(made, "items") == []


def test_where_the_log_was_cut_a_record_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_landing(tmp_path)
    config = tmp_path / "tidefold.yaml"
    config.write_text(config.read_text().replace("store: store\n", "store: store\nretention: {snapshots: 2}\n"))
    made = replace(made, config=make_config(config))
    land(tmp_path, 0, [record(0, 1), record(1, 100)])
    with older_program(monkeypatch):
        take(made)
    for number in (1, 2, 3):
        land(tmp_path, 10 * number, [record(10 * number, 100, op="u")])
        take(made)
        fold(made, f"run-{number}")
    subsume(made, "items")
    assert truncate(made, "items").status == "truncated"
    before = state_of(made)
    outcome = retry(made, "items")
    assert (outcome.status, outcome.facts["why"]) == ("nothing", {"log_cut": 1})
    assert "the log was truncated" in outcome.message
    assert state_of(made) == before


def make_config(path: Path) -> Any:
    from tidefold.config import load_config

    return load_config(path)


def test_what_a_restore_left_out_stays_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_landing(tmp_path)
    land(tmp_path, 0, [record(0, 1), record(1, 200)])
    with older_program(monkeypatch):
        take(made)
        fold(made, "run-1")
        land(tmp_path, 10, [record(10, 1, op="u"), record(11, 100)])
        take(made)
    land(tmp_path, 20, [record(20, 200, op="u")])
    take(made)
    fold(made, "back", RestorePoint(1, RestoreMode.SKIP))
    outcome = retry(made, "items")
    # Key 100 landed in the range, key 200 before it, but has a newer change in it.
    assert (outcome.status, outcome.facts["why"]) == ("nothing", {"left_out": 2})
    assert rows(made) == {1: "t1000"}
    fold(made, "undone", RestorePoint(state_of(made).snapshots[0].id, RestoreMode.REPLAY))
    assert retry(made, "items").facts["why"] == {}
    assert rows(made) == {1: "t1010", 100: "t1011", 200: "t1020"}


def test_what_landed_before_an_import_stays_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was imported may be newer."""
    other = make_landing(tmp_path / "other")
    land(tmp_path / "other", 0, [record(0, 100, order=9000)])
    take(other)
    fold(other, "run-1")
    take_savepoint(other, "items", SavepointWanted(str(tmp_path / "save")))
    made = make_landing(tmp_path)
    land(tmp_path, 0, [record(0, 1), record(1, 100)])
    land(tmp_path, 10, [record(10, 100)])
    with older_program(monkeypatch):
        take(made)
        asking = Import("in", open_address(str(tmp_path / "save")).uri(""), Ownership.NO_CLAIM)
        [outcome] = materialize(made, ["items"], asking, in_process)
        assert outcome.status == "staged", outcome
        assert retry(made, "items").facts["why"] == {"left_out": 2}
        judge_all(made, "items")
        confirm(made, "items", Confirmation(run="in"))
        assert retry(made, "items").facts["why"] == {"left_out": 2}
        land(tmp_path, 20, [record(20, 1), record(21, 101)])
        take(made)
    assert retry(made, "items").facts["changes"] == 1
    assert rows(made) == {1: "t1020", 100: "t9000", 101: "t1021"}


def test_a_stopped_log_takes_nothing_of_it(pipeline: Pipeline) -> None:
    stopped = Stopped("run", "ada", "moving", "file:///there", "")
    pipeline.ledger("items").commit(lambda state: stop(state, stopped))
    before = contents(pipeline.config.path.parent / "store")
    with pytest.raises(RefusedError) as refused:
        retry(pipeline, "items")
    assert refused.value.code == "LOG_STOPPED"
    assert contents(pipeline.config.path.parent / "store") == before
    assert count_refused(pipeline, "items")


def test_text_that_was_not_kept_as_a_whole_comes_from_the_landed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_landing(tmp_path)
    long = record(1, 100, after={"id": 100, "text": "x" * 9000})
    path = land(tmp_path, 0, [record(0, 1), long, record(2, 101)], extension="jsonl.gz")
    gone = land(tmp_path, 10, [record(10, 102, after={"id": 102, "text": "y" * 9000})])
    with older_program(monkeypatch):
        take(made)
    gone.unlink()
    assert retry(made, "items").facts["changes"] == 2
    assert rows(made)[100] == "x" * 9000
    check_counts(made)
    # Landed anew with other bytes, it is not the file that was taken.
    assert path.exists()
    land(tmp_path, 10, [record(10, 102, after={"id": 102, "text": "z" * 9000})])
    assert (retry(made, "items").status, 102 in rows(made)) == ("nothing", False)


def test_another_shape_is_refused(pipeline: Pipeline) -> None:
    path = pipeline.config.path
    path.write_text(path.read_text().replace("text: string", "text: boolean"))
    with pytest.raises(RefusedError) as changed:
        retry(replace(pipeline, config=make_config(path)), "items")
    assert changed.value.code == "SHAPE_CHANGED"


def test_what_a_retry_brings_has_a_local_copy(pipeline: Pipeline, tmp_path: Path) -> None:
    """C6: it is folded when the primary segment is gone."""
    before = {c.location.segment for c in state_of(pipeline).change_sets}
    copying = replace(pipeline, local=open_roots([tmp_path / "disk"], pipeline.store.uri("")))
    assert retry(copying, "items").facts["changes"] == 3
    [segment] = {c.location.segment for c in state_of(pipeline).change_sets} - before
    pipeline.store.delete([segment])
    fold(copying, "run-1")
    assert {100, 101, 102} <= set(rows(pipeline, What.TABLE))


def test_two_at_once_take_each_record_once(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """I20. The second runs while the first has written and not yet committed."""
    written, inner = quarantine_commit.write_segment, []

    def write_then_another(*given: Any) -> Any:
        parts = written(*given)
        if not inner:
            inner.append(None)
            inner[0] = retry(pipeline, "items")
        return parts

    monkeypatch.setattr(quarantine_commit, "write_segment", write_then_another)
    outer = retry(pipeline, "items")
    taken = [inner[0].facts["changes"], outer.facts["changes"]]
    assert sum(taken) == 3
    assert len({(c["_partition"], c["_offset"]) for c in changes_of(pipeline)}) == len(changes_of(pipeline))
    check_counts(pipeline)
    assert not list(write_intents.read_announced(pipeline.store))
    assert all(o.status == "nothing" for o in clean(pipeline, ["items"]))


def test_a_newer_change_that_comes_in_between_is_seen(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """It might be folded before what the retry brings: so the retry is planned anew."""
    written, once = quarantine_commit.write_segment, []

    def write_then_ingest(*given: Any) -> Any:
        parts = written(*given)
        if not once:
            once.append(True)
            land(pipeline.config.path.parent, 20, [record(20, 100, op="u"), record(21, 200)])
            take(pipeline)
            fold(pipeline, "run-1")
        return parts

    monkeypatch.setattr(quarantine_commit, "write_segment", write_then_ingest)
    assert retry(pipeline, "items").facts["repeated"] == 1
    fold(pipeline, "run-2")
    assert rows(pipeline, What.TABLE)[100] == "t1020"
    check_counts(pipeline)


def test_always_overtaken_it_says_so_and_leaves_nothing(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    written, root = quarantine_commit.write_segment, pipeline.config.path.parent
    number = iter(range(20, 30))

    def write_then_ingest(*given: Any) -> Any:
        at = next(number)
        land(root, at, [record(at, 5, op="u")])
        take(pipeline)
        return written(*given)

    monkeypatch.setattr(quarantine_commit, "write_segment", write_then_ingest)
    with pytest.raises(ConflictError) as overtaken:
        retry(pipeline, "items")
    assert overtaken.value.code == "RETRY_OVERTAKEN"
    check_counts(pipeline)
    assert all(o.status == "nothing" for o in clean(pipeline, ["items"]))


FAULTS = [*((fault, False) for fault in Fault), (Fault.ERROR_BEFORE, True), (Fault.ERROR_AFTER, True)]


@pytest.mark.parametrize(("fault", "for_ever"), FAULTS)
def test_after_any_fault_a_retry_ends_as_if_nothing_had_happened(
    pipeline: Pipeline, tmp_path: Path, fault: Fault, for_ever: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I19: killed at any point, no record is lost or taken twice, and nothing is left behind."""
    template = pipeline.config.path.parent / "store"
    monkeypatch.setattr(recovery, "PATIENCE", -timedelta(hours=1))

    def on_copy(**how: Any) -> Pipeline:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(template, tmp_path / "copy")
        return replace(pipeline, store=FaultyStore(tmp_path / "copy", **how))

    counted = on_copy()
    retry(counted, "items")
    assert isinstance(counted.store, FaultyStore)
    calls = counted.store.calls
    assert calls > 4
    for at in list_moments(calls, fault):
        failing = on_copy(at=at, fault=fault, for_ever=for_ever)
        with suppress(Killed, TidefoldError):
            retry(failing, "items")
        healed = replace(pipeline, store=FaultyStore(tmp_path / "copy"))
        check_counts(healed)
        retry(healed, "items")
        assert rows(healed) == {1: "t1011", 2: "t1003", 100: "t1001", 101: "t1002", 102: "t1010"}
        assert len(changes_of(healed)) == 6
        check_counts(healed)
        clean(healed, ["items"])
        check_nothing_left(healed)


def check_nothing_left(pipeline: Pipeline) -> None:
    state = state_of(pipeline)
    needed = {c.location.segment for c in state.change_sets} | {e.quarantine for e in state.landed if e.quarantine}
    folders = ("changelog", "logs/items/quarantine")
    stored = {e.path for folder in folders for e in pipeline.store.list(folder, unfinished=True)}
    # Of an announcement that was never made a half may be left, as by every operation.
    assert {path for path in stored if not path.startswith(f"{INTENTS}/") or path.endswith(".json")} == needed


def test_the_bank_s_refused_records_end_as_the_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real Debezium data, read by a program that refuses half of it, folded; the retry makes up for it."""
    bank = Path(__file__).parents[3] / "data" / "bank" / "landing"
    (tmp_path / "tidefold.yaml").write_text(
        """\
version: 1
store: store
logs:
  items:
    source: {format: debezium-json, connector: postgresql, path: landing/bank.public.pgbench_tellers}
    key: [tid]
    columns: {tid: int, bid: int, tbalance: int, filler: string}
"""
    )
    from tidefold.storage import open_store

    made = Pipeline(make_config(tmp_path / "tidefold.yaml"), open_store("store", tmp_path))
    for phase in (1, 2, 3):
        shutil.copytree(bank / f"phase{phase}", tmp_path / "landing", dirs_exist_ok=True)
        with older_program(monkeypatch, -3000, 3000) if phase > 1 else nullcontext():
            assert bool(take(made).facts["quarantined"]) == (phase > 1)
        fold(made, f"run-{phase}")
    outcome = retry(made, "items")
    assert outcome.facts["staying"] == 0
    assert outcome.facts["changes"]
    assert outcome.facts["repeated"]
    fold(made, "run-4")
    check_counts(made)
    whole = make_whole(tmp_path, bank)
    assert table(made) == table(whole)


def make_whole(tmp_path: Path, bank: Path) -> Pipeline:
    """The same data, never refused."""
    from tidefold.storage import open_store

    whole = Pipeline(make_config(tmp_path / "tidefold.yaml"), open_store("other", tmp_path))
    take(whole)
    fold(whole, "run-1")
    return whole


def table(pipeline: Pipeline) -> list[dict[str, Any]]:
    _, batches = read_rows(pipeline, "items", ReadRequest(What.TABLE))
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["tid"])


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["quarantine", *arguments], prog_name="tidefold")


def test_the_command_line(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pipeline.config.path.parent)
    listed = call("list").stdout
    assert "VALUE_INVALID" in listed
    [most, _] = json.loads(call("list", "items", "--format", "json").stdout)["refused"]
    assert (most["count"], most["line"]) == (3, 2)
    shown = call("show", "items", "--limit", "1")
    assert f"line 2 of {TOPIC}+0+0000000000.jsonl, offset 1: VALUE_INVALID" in shown.stdout
    assert "the first record; --limit shows more" in shown.stderr
    assert len(json.loads(call("show", "items", "--format", "json").stdout)["records"]) == 4
    done = call("retry", "items")
    assert done.stdout == (
        "items: taken: read 4 refused records again: 3 became changes; 1 stay: still cannot be read. If the "
        "configuration was wrong, correct it, then `tidefold quarantine retry items`. If the records are wrong, "
        f"{AT_THE_SOURCE}; then `{SETTLE}`\n"
    )
    # The first change of a process to a store without `store_id` also prints the line to add.
    assert re.sub(r"^The store at .*\n", "", done.stderr) == "next: tidefold step materialize items\n"
    for verb in ("show", "retry", "settle"):
        reason = ("--reason", "none") if verb == "settle" else ()
        refused = call(verb, "items", "--code", "VALUE_INVALID", *reason)
        assert refused.exit_code == 3, (verb, refused.output)
        assert "No refused record of `items` has the file and code that you named." in refused.output
        assert "tidefold quarantine list items" in refused.output
    assert call("list", "nope").exit_code == 4
    for verb in ("list", "show", "retry", "settle"):
        page = call(verb, "--help").stdout
        assert f"Example: tidefold quarantine {verb}" in page
        assert "Next: tidefold " in page
        assert all(option in page for option in ("--config", "--format", "--debug"))
    assert " quarantine " in CliRunner().invoke(app, ["--help"]).stdout


def test_refused_text_cannot_command_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_landing(tmp_path)
    monkeypatch.chdir(tmp_path)
    land(
        tmp_path, 0, [b"\x1b]0;owned\x07 \xff \xe2\x80\xae{" + b"a" * 500, record(1, 1, after={"id": 1, "\x1b[2J": 1})]
    )
    take(made)
    said = call("show", "items").stdout
    assert all(c.isprintable() or c == "\n" for c in said)
    assert "\\x1b]0;owned\\x07" in said
    assert " ..." in said
    assert "\x1b" not in call("show", "items", "--format", "json").stdout
    assert all(c.isprintable() or c == "\n" for c in call("list").stdout)


def test_records_are_settled_by_hand(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pipeline.config.path.parent)
    wrong = call("settle", "items", "--file", "corrected.json", "--reason", "no record")
    assert (wrong.exit_code, "or one of these files" in wrong.stderr) == (3, True), wrong.stderr
    done = call("settle", "items", "--code", "BROKEN_JSON", "--reason", "no record", "--by", "ada")
    assert done.stdout == "items: settled: 1 refused record settled by ada: no record; 3 more refused\n"
    assert "next: tidefold quarantine list items" in done.stderr
    assert [one.reason for one in count_refused(pipeline, "items")] == ["VALUE_INVALID"]
    assert state_of(pipeline).landed[0].settled == ("1 by ada: no record",)
    check_counts(pipeline)
    assert retry(pipeline, "items").facts["changes"] == 3
    assert call("settle", "items", "--reason", "nothing").stdout.startswith("items: nothing: no record")
    assert call("settle", "items").exit_code == 2


def test_a_retry_notes_the_reason_of_today(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pipeline.config.path
    path.write_text(path.read_text().replace("text: string", "text: string, more: string"))
    wider = replace(pipeline, config=make_config(path))
    assert retry(wider, "items").status == "nothing"
    assert {one.reason for one in count_refused(wider, "items")} == {"MISSING_COLUMN", "BROKEN_JSON"}
    before = state_of(wider)
    retry(wider, "items")
    assert state_of(wider) == before
    check_counts(wider)


def land_refused(root: Path) -> Pipeline:
    """A file of ten records is ingested, and the first record of the next file is refused."""
    pipeline = make_landing(root)
    land(root, 0, [record(i, i) for i in range(10)])
    take(pipeline)
    land(root, 10, ["{broken", *(record(i, i) for i in range(11, 20))])
    take(pipeline)
    return pipeline


SETTLE = "tidefold quarantine settle items --reason REASON"
AT_THE_SOURCE = "change their rows once more at the source, or let Debezium take an incremental snapshot of their keys"


def test_each_command_prints_the_step_that_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: list and show printed no next step, and retry left a broken record without any."""
    land_refused(tmp_path)
    monkeypatch.chdir(tmp_path)
    for verb in (["list"], ["show", "items"], ["retry", "items"]):
        said = call(*verb)
        assert AT_THE_SOURCE in said.output
        assert SETTLE in said.output
    assert "next: tidefold quarantine show items" in call("list").stderr
    assert call("settle", "items", "--reason", "changed").exit_code == 0
    assert AT_THE_SOURCE not in call("list").output


def test_a_corrected_file_is_refused_with_the_step_that_helps(tmp_path: Path) -> None:
    """Fault: the hints were "land it under another name" and `tidefold retain drop`, and neither helped."""
    pipeline = land_refused(tmp_path)
    former = land(tmp_path, 10, [record(i, i) for i in range(10, 20)])
    said = take(pipeline)
    assert (said.error_code, "another name" in said.error.hint) == ("LANDED_CHANGED", False)
    assert AT_THE_SOURCE in said.error.hint
    assert SETTLE in said.error.hint
    former.write_bytes(b"\n".join([b"{broken", *(json.dumps(record(i, i)).encode() for i in range(11, 20))]) + b"\n")
    late = land(tmp_path, 10, [record(10, 10)], "json")
    said = take(pipeline)
    assert said.error_code == "LANDED_LATE"
    assert f"has offset 10, which `{former.name}` had before it" in said.message
    assert "never ingested" not in said.message
    assert "tidefold retain drop" not in said.message + said.error.hint
    assert SETTLE in said.error.hint
    late.unlink()
    land(tmp_path, 20, [record(20, 10, order=1010)])
    take(pipeline)
    [useless] = [one for one in state_of(pipeline).landing.listed if one.code == "LANDED_NOTHING_NEW"]
    assert SETTLE in useless.hint


def test_a_retry_that_only_supersedes_names_no_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: it ended with "next: tidefold step materialize", which then had nothing to do."""
    pipeline = make_landing(tmp_path)
    with older_program(monkeypatch, -5, 5):
        land(tmp_path, 0, [record(0, 7), record(1, 1)])
        take(pipeline)
    land(tmp_path, 2, [record(2, 7), record(3, 1)])
    take(pipeline)
    monkeypatch.chdir(tmp_path)
    said = call("retry", "items")
    assert "1 are superseded" in said.stdout
    assert "materialize" not in said.stderr


def test_status_names_refused_records_until_they_are_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: `status` showed only a number in a column, so a table with a missing row looked as if nothing was open."""
    land_refused(tmp_path)
    monkeypatch.chdir(tmp_path)
    line = "items: 1 refused record: its row may be missing or stale; next: `tidefold quarantine show items`."
    assert line in CliRunner().invoke(app, ["status", "items"]).output
    call("settle", "items", "--reason", "changed")
    assert "refused record" not in CliRunner().invoke(app, ["status", "items"]).output
