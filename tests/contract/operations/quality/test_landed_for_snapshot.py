"""What the gate knows of the records that landed for a snapshot: refused ones, and a truncate that explains a drop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.landing import land, make_landing, record, state_of, take
from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.domain.source_progress_history import LandedRange, find_landed_range
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.quarantine.retry import retry
from tidefold.operations.quarantine.settle import settle
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.quality.run.run_checks import judge_refused
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
    confirm(pipeline, "items", Confirmation(run=run))
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
    assert staged(pipeline, "r2") == LandedRange(2, 1, (), earlier=1)
    land(tmp_path, 22, [record(22, 3)])
    take(pipeline)
    assert staged(pipeline, "r3") == LandedRange(1, 0, (), earlier=2)
    assert retry(pipeline, "items").status == "nothing"


def test_repeated_and_resent_records_do_not_hide_refused_ones(tmp_path: Path) -> None:
    """Fault: 10 refused among 50 new records passed as "10 of 1,049", because 999 repeated ones were counted, too."""
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(i, i) for i in range(90)])
    take(pipeline)
    assert staged(pipeline, "r1") == LandedRange(90)
    again = [record(i, i) for i in range(90)]
    resent = [record(90 + i, i, order=1000 + i) for i in range(5)]
    land(
        tmp_path, 0, [*again, *resent, record(95, 95), "{broken", record(97, None, value=None, key={"id": 97})], "json"
    )
    take(pipeline)
    assert staged(pipeline, "r2") == LandedRange(2, 1)


def test_all_rows_of_an_extract_are_new(tmp_path: Path) -> None:
    """An extract has unchanged rows, too: a bad one is a share of all of them."""
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(i, i) for i in range(9)] + ["{broken"])
    take(pipeline)
    materialize(pipeline, ["items"], Fold("r1"), in_process)
    state = state_of(pipeline)
    [landed] = state.landed
    state = replace(state, landed=(replace(landed, changes=1, ignored=8),))
    snapshot = state.open_attempt
    assert snapshot
    assert find_landed_range(state, snapshot).new == 2
    assert find_landed_range(state, snapshot, extracts=True).new == 10


def test_the_gate_warns_as_long_as_records_are_in_quarantine(tmp_path: Path) -> None:
    """Fault: after the next file, later gates passed without a word, and the published rows were still missing."""
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(i, i) for i in range(200)] + ["{broken"])
    take(pipeline)
    staged(pipeline, "r1")
    land(tmp_path, 300, [record(300, 300)])
    take(pipeline)
    assert staged(pipeline, "r2") == LandedRange(1, 0, (), earlier=1)
    settle(pipeline, "items", "ada", "not needed")
    land(tmp_path, 301, [record(301, 301)])
    take(pipeline)
    assert staged(pipeline, "r3") == LandedRange(1)


def test_the_warning_of_earlier_records_names_the_next_step() -> None:
    [check] = [c for c in Suite((), 0.5).checks(5, None, LandedRange(3, 0, (), earlier=2), "Do this.") if c.own]
    assert check.severity is Severity.WARN
    told = "2 of earlier files still in quarantine: their rows may be missing or stale. Do this"
    assert judge_refused(check).detail == told


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
    assert result.observed == f"{refused:,} of 1,000 new records since the last snapshot ({refused / 1000:.1%})"
    assert not [c for c in Suite((), 0.5).checks(5, None, LandedRange(1000, 0)) if c.own]


def test_a_drop_after_a_truncate_passes_and_says_why() -> None:
    """Fault: a TRUNCATE of the source failed the gate as a loss of rows."""
    explained = Suite((), 0.5).checks(1, 100, LandedRange(2, 0, ("items+0+9.jsonl",)))[-1]
    assert explained.kwargs == {"min_value": 0}
    assert explained.name == "row count: any, as the source truncated the table in items+0+9.jsonl"
    assert Suite((), 0.5).checks(1, 100, LandedRange(2, 0))[-1].kwargs == {"min_value": 50}


def test_the_allowed_share_is_part_of_the_suite() -> None:
    assert Suite((), 0.5).sha256 != Suite((), 0.5, max_refused=0.5).sha256
