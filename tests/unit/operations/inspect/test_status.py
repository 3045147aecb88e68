"""status and history say what the ledger holds, for logs in every state of their life."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.lives import PUBLISHED, Move, abort, claim, judge, live, make_pipeline, stage, take
from tidefold.domain.log_state import State
from tidefold.domain.snapshot import transitions
from tidefold.errors import NotFoundError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.inspect.log_status import LogStatus
from tidefold.operations.inspect.status import history, newest_report, status


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return make_pipeline(tmp_path)


def status_after(pipeline: Pipeline, *through: Move) -> LogStatus:
    live(pipeline, *through)
    return status(pipeline, ["accounts"])[0]


def test_a_log_that_was_not_begun_says_so(pipeline: Pipeline) -> None:
    assert status(pipeline, ["tellers"]) == [LogStatus("tellers", begun=False)]
    with pytest.raises(NotFoundError):
        history(pipeline, "tellers")


def test_what_was_taken_in_waits_to_be_folded(pipeline: Pipeline) -> None:
    found = status_after(pipeline, take, lambda state: take(state, changes=5, refused=3))
    assert (found.change_sets, found.changes, found.quarantined) == (2, 15, 3)
    assert (found.latest, found.attempt, found.why) == (None, None, "")
    assert [(p.topic, p.partition, p.next_offset) for p in found.positions] == [("accounts", 0, 15)]


def test_an_open_attempt_is_shown_beside_what_it_folds(pipeline: Pipeline) -> None:
    found = status_after(pipeline, take, claim("run-1"))
    assert found.attempt
    assert (found.attempt.id, found.attempt.state, found.attempt.run) == (1, State.ONGOING, "run-1")
    assert found.changes == 10


def test_a_published_snapshot_leaves_nothing_to_fold_and_nothing_to_explain(pipeline: Pipeline) -> None:
    found = status_after(pipeline, *PUBLISHED)
    assert found.latest
    assert (found.latest.id, found.latest.rows, found.latest.table_version) == (1, 80, 0)
    assert (found.change_sets, found.attempt, found.why, found.report) == (0, None, "", None)


def test_a_snapshot_that_a_crash_left_unpublished_is_named(pipeline: Pipeline) -> None:
    assert status_after(pipeline, *PUBLISHED[:-1]).why == "snapshot 1 is completed but not yet published"


@pytest.mark.parametrize("then", [(), (abort,)], ids=["staged", "aborted"])
def test_a_failed_gate_is_one_line_with_its_report(pipeline: Pipeline, then: tuple[Move, ...]) -> None:
    found = status_after(pipeline, *PUBLISHED, take, claim("run-2"), stage, judge(False), *then)
    assert found.latest
    assert found.latest.id == 1
    assert found.why == "snapshot 2 failed its quality gate: 1 of 1 checks"
    assert found.report == "logs/accounts/quality/2.html"


def test_an_abort_without_a_verdict_gives_its_reason(pipeline: Pipeline) -> None:
    assert status_after(pipeline, take, claim("run-1"), abort).why == "snapshot 1 was aborted: by hand"


def test_a_reason_that_is_a_sentence_gets_no_second_full_stop(pipeline: Pipeline) -> None:
    ended = status_after(pipeline, take, claim("run-1"), lambda state: transitions.abort(state, 1, "It was lost."))
    assert ended.why == "snapshot 1 was aborted: It was lost"


def test_a_later_published_snapshot_silences_an_old_failure(pipeline: Pipeline) -> None:
    found = status_after(pipeline, take, claim("run-1"), stage, judge(False), abort, *PUBLISHED[1:])
    assert (found.why, found.report) == ("", None)


def test_a_damaged_ledger_is_an_error_of_its_log_only(pipeline: Pipeline, tmp_path: Path) -> None:
    live(pipeline, take)
    newest = max((tmp_path / "store/logs/accounts/ledger").iterdir())
    newest.write_bytes(newest.read_bytes()[:50])
    broken, other = status(pipeline, ["accounts", "tellers"])
    assert broken.error
    assert broken.error.error_code == "UNREADABLE"
    assert other == LogStatus("tellers", begun=False)


def test_history_lists_every_snapshot_newest_first(pipeline: Pipeline) -> None:
    live(pipeline, *PUBLISHED, take, claim("run-2"), stage, judge(False), abort, claim("run-3"))
    states = [(s.id, s.state, s.epoch, s.base) for s in history(pipeline, "accounts")]
    assert states == [(3, State.ONGOING, 3, 1), (2, State.ABORTED, 2, 1), (1, State.COMPLETED, 1, None)]


def test_the_newest_report_or_the_one_asked_for(pipeline: Pipeline, tmp_path: Path) -> None:
    live(pipeline, *PUBLISHED, take, claim("run-2"), stage, judge(False), abort, claim("run-3"))
    newest, address = newest_report(pipeline, "accounts")
    assert (newest.id, address) == (2, str(tmp_path / "store/logs/accounts/quality/2.html"))
    assert newest_report(pipeline, "accounts", 1)[0].id == 1
    with pytest.raises(NotFoundError) as refused:
        newest_report(pipeline, "accounts", 3)
    assert refused.value.code == "REPORT_NOT_FOUND"


def test_looking_changes_nothing(pipeline: Pipeline) -> None:
    live(pipeline, *PUBLISHED)
    before = pipeline.store.list("")
    status(pipeline, ["accounts", "tellers"])
    history(pipeline, "accounts")
    assert pipeline.store.list("") == before
