"""A snapshot is planned once: the plan that was weighed is executed, unless the log changed before it was claimed."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from support.pipelines import judge_all, make_pipeline, put, table_rows
from tidefold.compute.runners import in_process
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold, Import, PointInTime, Restore
from tidefold.operations.snapshot import fold as fold_module
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import SnapshotPlan, materialize, prepare

LOG = "accounts"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = make_pipeline(tmp_path)
    put(made, [{"id": i, "text": f"a {i}"} for i in range(40)])
    return made


def plan(pipeline: Pipeline, request: Fold | Restore | Import | PointInTime) -> SnapshotPlan:
    found = prepare(pipeline, LOG, request)
    assert isinstance(found, SnapshotPlan), found
    return found


def execute(pipeline: Pipeline, request: Fold, found: SnapshotPlan) -> tuple[Outcome, int]:
    """The outcome, and how many times the log was planned again."""
    with mock.patch.object(fold_module, "plan_fold", side_effect=fold_module.plan_fold) as again:
        [outcome] = materialize(pipeline, [LOG], request, in_process, {LOG: found})
    return outcome, again.call_count


def publish(pipeline: Pipeline, run: str) -> None:
    judge_all(pipeline)
    assert confirm(pipeline, LOG, Confirmation(run=run)).status == "published"


def test_the_plan_that_was_weighed_is_executed(pipeline: Pipeline) -> None:
    request = Fold("run-1")
    found = plan(pipeline, request)
    assert found.attempt.weight > 0
    outcome, again = execute(pipeline, request, found)
    assert (outcome.status, again) == ("staged", 0)
    assert pipeline.ledger(LOG).read().open_attempt.token == found.attempt.snapshot.token  # type: ignore[union-attr]
    publish(pipeline, "run-1")
    assert len(table_rows(pipeline)) == 40


def test_a_plan_of_a_log_that_changed_is_made_again(pipeline: Pipeline) -> None:
    """I6: no change set is left out because the plan did not know it."""
    request = Fold("run-1")
    found = plan(pipeline, request)
    put(pipeline, [{"id": 99, "text": "later"}])
    outcome, again = execute(pipeline, request, found)
    assert (outcome.status, again) == ("staged", 1)
    publish(pipeline, "run-1")
    assert len(table_rows(pipeline)) == 41


def test_a_plan_whose_log_another_run_claimed_is_refused(pipeline: Pipeline) -> None:
    """The claim is made under the condition of the ledger, not of the plan."""
    request = Fold("run-1")
    found = plan(pipeline, request)
    pipeline.ledger(LOG).commit(Fold("run-2").claimant(pipeline))
    outcome, again = execute(pipeline, request, found)
    assert (outcome.error_code, again) == ("ATTEMPT_OPEN", 0)


def test_a_plan_whose_changes_another_run_published_makes_nothing(pipeline: Pipeline) -> None:
    request = Fold("run-1")
    found = plan(pipeline, request)
    [other] = materialize(pipeline, [LOG], Fold("run-2"), in_process)
    assert other.status == "staged"
    publish(pipeline, "run-2")
    outcome, again = execute(pipeline, request, found)
    assert (outcome.status, again) == ("nothing", 0)


def test_planning_claims_nothing(pipeline: Pipeline) -> None:
    before = {e.path for e in pipeline.store.list("")}
    plan(pipeline, Fold("run-1"))
    assert {e.path for e in pipeline.store.list("")} == before
    assert pipeline.ledger(LOG).read().open_attempt is None


def test_a_whole_snapshot_is_restored_by_links_and_a_tail_by_rows(pipeline: Pipeline) -> None:
    materialize(pipeline, [LOG], Fold("run-1"), in_process)
    publish(pipeline, "run-1")
    whole = plan(pipeline, Restore("back", RestorePoint(1, RestoreMode.SKIP)))
    assert whole.attempt.tasks
    assert not whole.attempt.writes_rows
    assert whole.attempt.restored is not None
    assert (whole.attempt.restored.snapshot, whole.attempt.expected_rows) == (1, 40)
