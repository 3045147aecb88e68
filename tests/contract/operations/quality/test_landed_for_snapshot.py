"""What the gate knows of the records that landed for a snapshot: refused ones, and a truncate that explains a drop."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.landing import land, make_landing, record, state_of, take
from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.domain.landed_range import LandedRange, find_landed_range
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.quarantine.retry import retry
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.snapshot.request import Fold
from tidefold.quality.run.drift_checks import judge_refused
from tidefold.quality.suite.check import Severity
from tidefold.quality.suite.suite import Suite


def staged(pipeline: Pipeline, run: str) -> LandedRange:
    """What landed for the snapshot of a run, which is then confirmed."""
    [outcome] = materialize(pipeline, ["items"], Fold(run), in_process)
    assert outcome.status == "staged", outcome.message
    state = state_of(pipeline)
    assert state.open_attempt
    found = find_landed_range(state, state.open_attempt)
    judge_all(pipeline, "items")
    confirm(pipeline, "items", run_id=run)
    return found


def test_refused_records_count_in_the_range_in_which_they_landed(tmp_path: Path) -> None:
    """Fault: a table without the rows of refused records passed the gate, and nothing told of it."""
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(i, i) for i in range(9)] + ["{broken"])
    take(pipeline)
    assert staged(pipeline, "r1") == LandedRange(10, 1, ())
    land(tmp_path, 20, ["{all of it"])
    land(tmp_path, 21, [record(21, 1)])
    take(pipeline)
    assert staged(pipeline, "r2") == LandedRange(2, 1, ())
    land(tmp_path, 22, [record(22, 3)])
    take(pipeline)
    assert staged(pipeline, "r3") == LandedRange(1, 0, ())
    assert retry(pipeline, "items").status == "nothing"


def test_a_truncate_is_known_and_a_new_snapshot_of_the_source_is_none(tmp_path: Path) -> None:
    """An interrupted snapshot of the source has fewer rows as well: that drop stays unexplained."""
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(i, i) for i in range(9)])
    take(pipeline)
    assert staged(pipeline, "r1").truncated_in == ()
    cut = land(tmp_path, 9, [record(9, None, "t", after=None, key=None), record(10, 1)])
    take(pipeline)
    assert staged(pipeline, "r2").truncated_in == (cut.name,)
    land(tmp_path, 11, [record(11, 5, "r", snapshot="first"), record(12, 6, "r", order=1011, snapshot="true")])
    take(pipeline)
    assert staged(pipeline, "r3").truncated_in == ()


@pytest.mark.parametrize(
    ("refused", "severity"), [(1, Severity.WARN), (10, Severity.WARN), (11, Severity.FAIL), (1000, Severity.FAIL)]
)
def test_refused_records_warn_and_fail_above_the_share(refused: int, severity: Severity) -> None:
    [check] = [c for c in Suite((), 0.5).checks(5, None, LandedRange(1000, refused)) if c.own]
    result = judge_refused(check)
    assert (check.severity, result.passed, result.built_in) == (severity, False, True)
    assert result.observed == f"{refused:,} of 1,000 that landed since the last snapshot ({refused / 1000:.1%})"
    assert not [c for c in Suite((), 0.5).checks(5, None, LandedRange(1000, 0)) if c.own]


def test_a_drop_after_a_truncate_passes_and_says_why() -> None:
    """Fault: a TRUNCATE of the source failed the gate as a loss of rows."""
    explained = Suite((), 0.5).checks(1, 100, LandedRange(2, 0, ("items+0+9.jsonl",)))[-1]
    assert explained.kwargs == {"min_value": 0}
    assert explained.name == "row count: any, as the source truncated the table in items+0+9.jsonl"
    assert Suite((), 0.5).checks(1, 100, LandedRange(2, 0))[-1].kwargs == {"min_value": 50}


def test_the_allowed_share_is_part_of_the_suite() -> None:
    assert Suite((), 0.5).sha256 != Suite((), 0.5, max_refused=0.5).sha256
