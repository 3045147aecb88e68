"""Snapshots as of an instant (issue 7, backfill): full, tagged, unpublished, outside lineage, bounds and N."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.instants import day, judged, kept_as_of, snapshot_of, staged
from support.pipelines import CONFIG, contents, judge_all, make_pipeline, put, snapshot_rows, table_rows, with_log_shape
from tidefold.changelog.schema import DELETE
from tidefold.compute.runners import in_process
from tidefold.config import TtlConfig
from tidefold.domain.commit_times import tag_of
from tidefold.domain.log_state import Hold, LogState, SnapshotKind, State
from tidefold.domain.paths import LogPaths
from tidefold.domain.retention import log_bounds, references
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.errors import CorruptError, InvalidInputError, RefusedError
from tidefold.operations.ground.heartbeat import Heartbeat
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, read_rows
from tidefold.operations.inspect.diff import diff
from tidefold.operations.inspect.explain_key import explain_key
from tidefold.operations.inspect.status import find_restorers, history, status
from tidefold.operations.requests import Fold, PointInTime, Restore
from tidefold.operations.restore.export import drill
from tidefold.operations.restore.restore import explain as explain_restore
from tidefold.operations.retention.clean import clean, drop
from tidefold.operations.retention.references import untag
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.savepoint.take import SavepointRequest as Savepoint
from tidefold.operations.savepoint.take import take_savepoint
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.compact_log import compact_log, take_tail
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.fold import explain_point_in_time, parse_instant
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import verify
from tidefold.presentation.tables import reasons
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.steps import MaterializeStep

NOON = 43_200_000_000


def change(number: int, key: int, text: str | None) -> dict[str, Any]:
    """A change of a key at noon of a day of November."""
    said = {"_op": DELETE} if text is None else {}
    return {"id": key, "text": text, "_ts": day(number) + NOON, **said}


def cycle(pipeline: Pipeline, run: str, restore: RestorePoint | None = None) -> Outcome:
    [outcome] = materialize(pipeline, ["accounts"], Restore(run, restore) if restore else Fold(run), in_process)
    if outcome.status != "staged":
        return outcome
    judge_all(pipeline)
    return confirm(pipeline, "accounts", Confirmation(run=run))


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Five days, each with a change set of its own; snapshots after the second and the fifth."""
    made = make_pipeline(tmp_path, CONFIG.replace("store: store", "store: store\nretention: {snapshots: 2}"))
    put(made, [change(1, i, f"a{i}") for i in range(20)])
    put(made, [change(2, 1, "b1"), change(2, 2, None)])
    cycle(made, "run-1")
    put(made, [change(3, 3, "c3"), change(3, 30, "c30")])
    put(made, [change(4, 1, None), change(4, 2, "d2")])
    put(made, [change(5, 1, "e1")])
    cycle(made, "run-2")
    return made


def rows_as_of(number: int) -> dict[int, str]:
    """What the changes of the days before this one make, one after the other."""
    rows = {i: f"a{i}" for i in range(20)} if number > 1 else {}
    if number > 2:
        rows[1] = "b1"
        del rows[2]
    if number > 3:
        rows |= {3: "c3", 30: "c30"}
    if number > 4:
        del rows[1]
        rows[2] = "d2"
    return rows | ({1: "e1"} if number > 5 else {})


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6])
def test_it_has_what_was_committed_before_the_instant(pipeline: Pipeline, number: int) -> None:
    outcome = kept_as_of(pipeline, day(number), "backfill")
    assert outcome.status == "completed"
    made = snapshot_of(pipeline, outcome)
    assert snapshot_rows(pipeline, made.id) == rows_as_of(number)
    assert (made.kind, made.state, made.rows) == (SnapshotKind.FULL, State.COMPLETED, len(rows_as_of(number)))
    assert made.base == (None if number == 2 else 1 if number < 6 else 2)  # The nearest one that has nothing later.


def test_nothing_was_committed_before(pipeline: Pipeline) -> None:
    before = contents(pipeline.config.path.parent)
    outcome = kept_as_of(pipeline, day(1), "backfill")
    assert (outcome.status, outcome.error_code) == ("nothing", None)
    assert "the first change is of 2025-11-01T12:00:00Z" in outcome.message
    assert contents(pipeline.config.path.parent) == before


def test_the_instant_itself_is_not_before_it(pipeline: Pipeline) -> None:
    at = day(3) + NOON
    assert snapshot_rows(pipeline, kept_as_of(pipeline, at, "r1").snapshot or 0) == rows_as_of(3)
    assert snapshot_rows(pipeline, kept_as_of(pipeline, at + 1, "r2").snapshot or 0) == rows_as_of(4)


def _without_marks(folder: Path) -> dict[str, bytes]:
    """The files of tables, but not the marks of how far the ledger has come."""
    return {path: data for path, data in contents(folder).items() if "/_tidefold/" not in path}


def test_nobody_takes_it_for_the_newest(pipeline: Pipeline) -> None:
    """Outside lineage, bounds and N: table, cursor, tails, status, drill, the next snapshot and its kind."""
    ledger = pipeline.ledger("accounts")
    before, shown = ledger.read(), _without_marks(pipeline.config.path.parent / "store" / "tables")
    made = kept_as_of(pipeline, day(3), "backfill").snapshot
    state = ledger.read()
    assert _without_marks(pipeline.config.path.parent / "store" / "tables") == shown
    assert (state.latest, state.open_attempt, state.unfolded) == (before.latest, None, ())
    assert log_bounds.newest(state, 2) == log_bounds.newest(before, 2)
    assert log_bounds.bounds(state, 2) == log_bounds.bounds(before, 2)
    assert [t.name for t in state.tags] == ["as-of-2025-11-03"]
    [told] = status(pipeline, ["accounts"])
    assert (told.latest, told.why, told.as_of_attempts) == (before.latest, "", ())
    put(pipeline, [change(6, 7, "f7")])
    assert take_tail(pipeline, "accounts", "tail").status == "completed"
    assert cycle(pipeline, "run-3").status == "published"
    newest = ledger.read().latest
    assert newest
    assert (newest.base, newest.table_version) == (2, 2)
    assert table_rows(pipeline) == {**rows_as_of(6), 7: "f7"}
    assert snapshot_rows(pipeline, made or 0) == rows_as_of(3)


def test_it_can_be_looked_at_as_any_other(pipeline: Pipeline, tmp_path: Path) -> None:
    made = kept_as_of(pipeline, day(4), "backfill").snapshot or 0
    _, batches = read_rows(pipeline, "accounts", ReadRequest(snapshot=made))
    assert {row["id"]: row["text"] for batch in batches for row in batch.to_pylist()} == rows_as_of(4)
    assert verify(pipeline, "accounts").status == "whole"
    assert drill(pipeline, "accounts", made).error_code is None
    assert sum(diff(pipeline, "accounts", made, 2).counts.values()) == 2
    saved = take_savepoint(pipeline, "accounts", Savepoint(str(tmp_path / "saved"), made), print)
    assert (saved.status, saved.facts["rows"]) == ("saved", len(rows_as_of(4)))
    assert str(history(pipeline, "accounts")[0].as_of) == "2025-11-04T00:00:00Z"


def test_explain_tells_which_changes_were_committed_after_the_instant(pipeline: Pipeline) -> None:
    made = kept_as_of(pipeline, day(4), "backfill").snapshot or 0
    told = explain_key(pipeline, "accounts", '{"id": 1}', made)
    assert told.row == {"id": 1, "text": "b1"}
    assert [(one.values["text"], one.fate.name) for one in told.changes] == [
        *(("a1", "OLDER"), ("b1", "CURRENT"), (None, "AFTER"), ("e1", "AFTER")),
    ]
    told = explain_key(pipeline, "accounts", '{"id": 3}', made)
    assert told.made_by
    assert told.made_by.snapshot == made  # Folded by it, above its base.


def test_the_same_run_again_is_the_same_snapshot(pipeline: Pipeline) -> None:
    """I4, and bad input 106: a run that asks for another instant is refused."""
    first = kept_as_of(pipeline, day(4), "backfill")
    before = contents(pipeline.config.path.parent)
    again = kept_as_of(pipeline, day(4), "backfill")
    assert (again.status, again.snapshot) == ("already", first.snapshot)
    assert confirm(pipeline, "accounts", Confirmation(run="backfill")).status == "already"
    assert contents(pipeline.config.path.parent) == before
    assert staged(pipeline, day(5), "backfill").error_code == "RUN_CHANGED"


def test_another_run_finds_it_and_is_told_what_came_too_late(pipeline: Pipeline) -> None:
    first = kept_as_of(pipeline, day(4), "backfill")
    assert kept_as_of(pipeline, day(4), "other").message.endswith("is COMPLETED")
    put(pipeline, [change(3, 50, "late")])
    again = kept_as_of(pipeline, day(4), "other")
    assert (again.status, again.snapshot) == ("already", first.snapshot)
    assert "1 later change set may contain changes from before the instant" in again.message
    untag(pipeline, "accounts", "as-of-2025-11-04")
    anew = kept_as_of(pipeline, day(4), "third")
    assert snapshot_rows(pipeline, anew.snapshot or 0) == {**rows_as_of(4), 50: "late"}


def test_its_tag_keeps_it_and_without_it_retention_takes_it(pipeline: Pipeline) -> None:
    """I18, I22: what is left is what others need, and the same run makes it anew."""
    store = pipeline.config.path.parent / "store"
    before = set(contents(store / "snapshots")) | set(_without_marks(store / "tables"))
    made = kept_as_of(pipeline, day(4), "backfill").snapshot or 0
    assert subsume(pipeline, "accounts").status == "nothing"
    untag(pipeline, "accounts", "as-of-2025-11-04")
    assert subsume(pipeline, "accounts").facts["snapshots"] == [made]
    assert set(contents(store / "snapshots")) | set(_without_marks(store / "tables")) == before
    assert snapshot_of(pipeline, Outcome("accounts", Status.STAGED, "", made)).state is State.DELETED
    assert snapshot_rows(pipeline, kept_as_of(pipeline, day(4), "backfill").snapshot or 0) == rows_as_of(4)


def test_a_snapshot_whose_base_goes_stays_whole(pipeline: Pipeline) -> None:
    made = kept_as_of(pipeline, day(3), "backfill").snapshot or 0
    for run in ("run-3", "run-4", "run-5"):
        put(pipeline, [change(6, 7, run)])
        cycle(pipeline, run)
    assert 1 in subsume(pipeline, "accounts").facts["snapshots"]
    assert snapshot_rows(pipeline, made) == rows_as_of(3)
    assert verify(pipeline, "accounts").status == "whole"
    untag(pipeline, "accounts", "as-of-2025-11-03")
    subsume(pipeline, "accounts")
    # Records of snapshots that are gone, and no file of any other.
    removed = clean(pipeline, ["accounts"])[1].facts["paths"]
    snapshots = pipeline.ledger("accounts").read().snapshots
    gone = [LogPaths("accounts").manifest(s.id) for s in snapshots if s.state is State.DELETED]
    assert {path for path in removed if not path.endswith("/completed")} <= set(gone)
    assert clean(pipeline, ["accounts"])[1].status == "nothing"


def test_a_cut_log_names_the_oldest_possible_instant(pipeline: Pipeline) -> None:
    put(pipeline, [change(6, 7, "f7")])
    cycle(pipeline, "run-3")
    subsume(pipeline, "accounts")
    assert truncate(pipeline, "accounts").status == "truncated"
    outcome = kept_as_of(pipeline, day(3), "backfill")
    assert outcome.error_code == "AS_OF_TOO_OLD"
    assert "The oldest possible instant is 2025-11-05T12:00:01Z." in outcome.message
    oldest = kept_as_of(pipeline, day(5) + NOON + 1_000_000, "backfill-2")
    assert snapshot_rows(pipeline, oldest.snapshot or 0) == rows_as_of(6)


def test_a_restore_of_it_skips_and_never_replays(pipeline: Pipeline) -> None:
    made = kept_as_of(pipeline, day(4), "backfill").snapshot or 0
    assert cycle(pipeline, "back", RestorePoint(made, RestoreMode.REPLAY)).error_code == "AS_OF_NO_REPLAY"
    planned = explain_restore(pipeline, "accounts", Restore("back", RestorePoint(made, RestoreMode.SKIP)))
    assert "leave out for good: the changes committed from 2025-11-04T00:00:00Z on" in planned.message
    assert cycle(pipeline, "back", RestorePoint(made, RestoreMode.SKIP)).status == "published"
    assert table_rows(pipeline) == rows_as_of(4)
    state = pipeline.ledger("accounts").read()
    told = reasons(state.snapshots, {}, find_restorers(state.snapshots))[-1]
    assert "as of 2025-11-04T00:00:00Z: later changes are left out" in told
    put(pipeline, [change(6, 8, "f8")])
    assert cycle(pipeline, "run-3").status == "published"
    assert table_rows(pipeline) == {**rows_as_of(4), 8: "f8"}
    assert verify(pipeline, "accounts").status == "whole"
    # On top of it instants after it are possible; those before are of a life that was left.
    after = kept_as_of(pipeline, day(6), "backfill-2").snapshot or 0
    assert snapshot_rows(pipeline, after) == rows_as_of(4)
    assert kept_as_of(pipeline, day(3), "backfill-3").error_code == "AS_OF_TOO_OLD"


def test_a_restore_looks_for_its_files_where_they_are(pipeline: Pipeline) -> None:
    """Files that it shares with snapshot 1 leave the table when that retires."""
    made = kept_as_of(pipeline, day(4), "backfill").snapshot or 0
    for number in (7, 8, 9):
        put(pipeline, [change(number, key, f"g{number}") for key in range(20)])
        cycle(pipeline, f"run-{number}")
    assert 1 in subsume(pipeline, "accounts").facts["snapshots"]
    request = Restore("back", RestorePoint(made, RestoreMode.SKIP))
    [outcome] = materialize(pipeline, ["accounts"], request, in_process)
    assert (outcome.status, outcome.facts["read"]["failed"]) == ("staged", [])


def test_what_a_restore_left_out_stays_out(pipeline: Pipeline) -> None:
    cycle(pipeline, "back", RestorePoint(1, RestoreMode.SKIP))
    put(pipeline, [change(6, 8, "f8")])
    made = kept_as_of(pipeline, day(7), "backfill").snapshot or 0
    assert snapshot_rows(pipeline, made) == {**rows_as_of(3), 8: "f8"}
    earlier = kept_as_of(pipeline, day(5), "backfill-2").snapshot or 0
    assert snapshot_rows(pipeline, earlier) == rows_as_of(3)


def test_late_changes_count_by_their_commit(pipeline: Pipeline) -> None:
    put(pipeline, [change(3, 40, "late"), change(9, 41, "later")])
    assert snapshot_rows(pipeline, kept_as_of(pipeline, day(4), "a").snapshot or 0) == {**rows_as_of(4), 40: "late"}
    cycle(pipeline, "run-3")
    # The newest snapshot is of no use for a day before the last commit in it.
    made = snapshot_of(pipeline, kept_as_of(pipeline, day(7), "b"))
    assert (made.base, snapshot_rows(pipeline, made.id)) == (2, {**rows_as_of(6), 40: "late"})


def test_it_stands_beside_the_attempt_of_a_scheduled_run(pipeline: Pipeline) -> None:
    """Bad input 105 and 107, I20: neither waits for the other, whichever is first, and several may be open."""
    ledger = pipeline.ledger("accounts")
    put(pipeline, [change(6, 7, "f7")])
    assert staged(pipeline, day(3), "b3").status == "staged"
    assert materialize(pipeline, ["accounts"], Fold("run-3"), in_process)[0].status == "staged"
    assert staged(pipeline, day(4), "b4").status == "staged"
    state = ledger.read()
    assert state.open_attempt
    assert state.open_attempt.run == "run-3"
    assert [s.run for s in state.as_of_attempts] == ["b3", "b4"]
    assert compact_log(pipeline, "accounts").status == "nothing"
    with pytest.raises(RefusedError, match="ATTEMPT_OPEN"):
        drop(pipeline, "accounts", plan=False)
    judged(pipeline, "b4")
    assert confirm(pipeline, "accounts", Confirmation(run="b4")).status == "completed"
    judge_all(pipeline)
    assert confirm(pipeline, "accounts", Confirmation(run="run-3")).status == "published"
    assert abort(pipeline, "accounts", "not wanted", run_id="b3").status == "aborted"
    assert ledger.read().as_of_attempts == ()
    assert table_rows(pipeline) == {**rows_as_of(6), 7: "f7"}


def test_abort_without_a_name_leaves_it(pipeline: Pipeline) -> None:
    staged(pipeline, day(3), "b3")
    assert abort(pipeline, "accounts", "by hand").status == "nothing"
    [open_] = pipeline.ledger("accounts").read().as_of_attempts
    assert abort(pipeline, "accounts", "by hand", open_.id).status == "aborted"
    assert not (pipeline.config.path.parent / "store" / "snapshots" / "accounts" / f"{open_.id:010d}").exists()


def test_two_runs_at_one_instant_do_not_meet(pipeline: Pipeline) -> None:
    staged(pipeline, day(3), "b3")
    assert staged(pipeline, day(3), "other").error_code == "ATTEMPT_OPEN"
    [outcome] = materialize(pipeline, ["accounts"], PointInTime("other", day(3), takeover=True), in_process)
    assert outcome.status == "staged"
    judged(pipeline, "other")
    assert confirm(pipeline, "accounts", Confirmation(run="other")).status == "completed"
    assert confirm(pipeline, "accounts", Confirmation(run="b3")).status == "nothing"


def test_while_it_is_open_its_base_and_the_log_behind_it_stay(pipeline: Pipeline) -> None:
    """I10, I9: the bound names it."""
    assert staged(pipeline, day(4), "b4").status == "staged"
    for run in ("run-3", "run-4"):
        put(pipeline, [change(6, 7, run)])
        cycle(pipeline, run)
    assert subsume(pipeline, "accounts").facts["kept"] == [1, 4, 5]
    [tightest, *_] = log_bounds.bounds(pipeline.ledger("accounts").read(), 2)
    assert (tightest.name, tightest.sqn) == ("attempt", 2)
    assert "as of 2025-11-04T00:00:00Z, is being made from there by run b4" in tightest.why
    abort(pipeline, "accounts", "no", run_id="b4")
    assert subsume(pipeline, "accounts").facts["kept"] == [4, 5]


def test_one_that_nobody_goes_on_with_is_aborted_by_clean(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    staged(pipeline, day(4), "b4")
    assert clean(pipeline, ["accounts"])[1].facts["aborted"] == []
    monkeypatch.setattr("tidefold.operations.retention.clean.now", lambda: "2099-01-01T00:00:00+00:00")
    # The scratch folders of other processes of this machine stay.
    monkeypatch.setattr("tidefold.operations.retention.clean.PATTERN", "no-folder-of-*-others")
    [_, planned] = clean(pipeline, ["accounts"], plan=True)
    assert "would abort attempts without progress for a day: snapshot 3 (as of 2025-11-04" in planned.message
    assert pipeline.ledger("accounts").read().as_of_attempts
    [_, cleaned] = clean(pipeline, ["accounts"])
    assert (cleaned.facts["aborted"], cleaned.facts["files"] > 0) == ([3], True)
    assert pipeline.ledger("accounts").read().as_of_attempts == ()


def test_one_whose_heartbeats_count_for_a_day_is_alive(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count outlives the end of the work: approval of a staged snapshot takes its time, too."""
    staged(pipeline, day(4), "b4")
    [attempt] = pipeline.ledger("accounts").read().as_of_attempts
    after = datetime.fromisoformat(attempt.started_at) + timedelta(days=1, seconds=40)
    monkeypatch.setattr("tidefold.operations.retention.clean.now", after.isoformat)
    assert clean(pipeline, ["accounts"], plan=True)[1].facts["aborted"] == [attempt.id]
    heart = Heartbeat(pipeline.store)
    heart.add("accounts", attempt)
    heart.beat()
    heart.beat()
    assert clean(pipeline, ["accounts"], plan=True)[1].facts["aborted"] == []


def test_a_squashed_run_serves_only_instants_outside_of_it(pipeline: Pipeline) -> None:
    put(pipeline, [change(6, 7, "f7")])
    put(pipeline, [change(8, 7, "h7")])
    assert compact_log(pipeline, "accounts").status == "compacted"
    assert kept_as_of(pipeline, day(7), "b7").error_code == "AS_OF_COMPACTED"
    assert snapshot_rows(pipeline, kept_as_of(pipeline, day(6), "b6").snapshot or 0) == rows_as_of(6)
    assert snapshot_rows(pipeline, kept_as_of(pipeline, day(9), "b9").snapshot or 0) == {**rows_as_of(6), 7: "h7"}


def test_changes_without_a_time_are_refused_by_name(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 9, "text": "?", "_ts": None}])
    put(pipeline, [{"id": id_, "text": "?", "_ts": None} for id_ in (9, 10)])
    refused = kept_as_of(pipeline, day(7), "b7")
    assert refused.error_code == "AS_OF_NO_TIMES"
    assert refused.message.startswith("[AS_OF_NO_TIMES] 3 changes of `accounts`")
    cycle(pipeline, "run-3")
    assert kept_as_of(pipeline, day(7), "b7").error_code == "AS_OF_NO_TIMES"
    assert pipeline.ledger("accounts").read().as_of_attempts == ()


def test_a_tag_of_that_name_is_not_taken_away(pipeline: Pipeline) -> None:
    pipeline.ledger("accounts").commit(lambda state: references.tag(state, tag_of(day(4)), 1))
    assert kept_as_of(pipeline, day(4), "b4").error_code == "TAG_TAKEN"
    untag(pipeline, "accounts", tag_of(day(4)))
    staged(pipeline, day(4), "b4")
    judged(pipeline, "b4")
    pipeline.ledger("accounts").commit(lambda state: references.tag(state, tag_of(day(4)), 1))
    with pytest.raises(RefusedError, match="TAG_TAKEN"):
        confirm(pipeline, "accounts", Confirmation(run="b4"))
    untag(pipeline, "accounts", tag_of(day(4)))
    assert confirm(pipeline, "accounts", Confirmation(run="b4")).status == "completed"


def test_a_hold_keeps_it_too(pipeline: Pipeline) -> None:
    made = kept_as_of(pipeline, day(4), "b4").snapshot or 0
    pipeline.ledger("accounts").commit(lambda state: references.hold(state, Hold("audit", made, "asked for")))
    untag(pipeline, "accounts", tag_of(day(4)))
    assert subsume(pipeline, "accounts").status == "nothing"


def test_a_plan_writes_nothing(pipeline: Pipeline) -> None:
    before = contents(pipeline.config.path.parent)
    outcome = explain_point_in_time(pipeline, "accounts", PointInTime("plan", day(4)))
    assert (outcome.status, outcome.facts["as_of"], outcome.facts["base"]) == ("planned", "2025-11-04T00:00:00Z", 1)
    facts = [outcome.facts[name] for name in ("change_sets", "changes_at_most", "change_sets_later")]
    assert facts == [1, 2, 2]
    assert explain_point_in_time(pipeline, "accounts", PointInTime("plan", day(1))).status == "nothing"
    assert contents(pipeline.config.path.parent) == before


def test_files_alone_need_no_spark(pipeline: Pipeline) -> None:
    """Where the rows are those of a snapshot, its files are taken over in this process."""
    spark = pipeline.config.spark.model_copy(update={"above": 0})
    pipeline = replace(pipeline, config=pipeline.config.model_copy(update={"spark": spark}))
    sorted_ = run_without_spark(pipeline, MaterializeStep(PointInTime("b3", day(3))), ["accounts"])
    assert [o.status for o in sorted_.done] == ["staged"]
    assert sorted_.done[0].facts["files_carried"] == sorted_.done[0].facts["files"]
    assert run_without_spark(pipeline, MaterializeStep(PointInTime("b4", day(4))), ["accounts"]).spark == ("accounts",)


def test_rows_are_dropped_for_the_age_that_they_had_then(tmp_path: Path) -> None:
    """A snapshot that dropped rows which were young then is no base; the log makes them again."""
    columns = "columns: {id: int, text: string, born: timestamp}\n    ttl: {column: born, days: 3}"
    config = CONFIG.replace("columns: {id: int, text: string}", columns)
    pipeline = make_pipeline(tmp_path, config)

    def born(number: int, key: int) -> dict[str, Any]:
        return {**change(number, key, "x"), "born": datetime.fromtimestamp(day(number) / 1e6, UTC)}

    put(pipeline, [born(1, 1), born(4, 4)])
    cycle(pipeline, "run-1")
    assert table_rows(pipeline) == {}
    made = snapshot_of(pipeline, kept_as_of(pipeline, day(6), "b6"))
    assert (made.base, snapshot_rows(pipeline, made.id)) == (None, {4: "x"})
    assert snapshot_rows(pipeline, kept_as_of(pipeline, day(3), "b3").snapshot or 0) == {1: "x"}
    without = with_log_shape(pipeline, ttl=None)
    assert snapshot_rows(without, kept_as_of(without, day(5), "b5").snapshot or 0) == {1: "x", 4: "x"}
    assert isinstance(pipeline.log("accounts").ttl, TtlConfig)


BAD = ["yesterday", "2026-13-01T00:00:00Z", "2025-11-05", "2025-11-05T00:00:00", "1900-01-01T00:00:00Z", "0"]


@pytest.mark.parametrize("text", BAD)
def test_bad_input_95_no_zone_or_no_instant(text: str) -> None:
    with pytest.raises(InvalidInputError, match="AS_OF_INVALID"):
        parse_instant(text)


@pytest.mark.parametrize("text", ["", " "])
def test_bad_input_95_nothing(text: str) -> None:
    with pytest.raises(InvalidInputError, match="AS_OF_MISSING"):
        parse_instant(text)


def test_bad_input_95_the_future() -> None:
    with pytest.raises(InvalidInputError, match="AS_OF_FUTURE"):
        parse_instant("2999-01-01T00:00:00+01:00")


def test_an_instant_may_have_any_zone_and_a_space() -> None:
    assert parse_instant("2025-11-05 02:00:00+02:00") == day(5) == parse_instant("2025-11-05T00:00:00Z")


def test_what_older_programs_did_not_write_down_is_found_in_the_changes(pipeline: Pipeline) -> None:
    """I27: change sets without times, snapshots without the last commit in them."""

    def older(state: LogState) -> LogState:
        sets = tuple(replace(c, times=None) for c in state.change_sets)
        return replace(
            state, change_sets=sets, snapshots=tuple(replace(s, max_commit_time=None) for s in state.snapshots)
        )

    pipeline.ledger("accounts").commit(older)
    made = snapshot_of(pipeline, kept_as_of(pipeline, day(4), "b4"))
    # What a snapshot reaches is not known: it was made long after these days.
    assert (made.base, snapshot_rows(pipeline, made.id)) == (None, rows_as_of(4))
    put(pipeline, [change(6, 7, "f7")])
    put(pipeline, [change(8, 7, "h7")])
    compact_log(pipeline, "accounts")
    pipeline.ledger("accounts").commit(older)
    assert kept_as_of(pipeline, day(5), "b5").error_code == "AS_OF_COMPACTED"
    truncate(pipeline, "accounts")
    refused = kept_as_of(pipeline, day(5), "b5")
    assert refused.error_code == "AS_OF_TOO_OLD"
    assert "The oldest possible instant is 20" in refused.message
    assert "instant is 2025-11-0" not in refused.message


def test_a_state_that_cannot_be_is_refused(pipeline: Pipeline) -> None:
    made = snapshot_of(pipeline, kept_as_of(pipeline, day(4), "b4"))
    ledger = pipeline.ledger("accounts")
    with pytest.raises(CorruptError, match="AS_OF_PUBLISHED"):
        ledger.commit(lambda state: state.with_snapshot(replace(made, table_version=7)))
