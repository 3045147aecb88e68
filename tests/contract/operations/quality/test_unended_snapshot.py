"""The gate knows a snapshot of the source that lacks its last row: the connector was killed in it, or it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.landing import TOPIC, land, make_landing, record, state_of, take
from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.domain.source_progress_history import find_landed_range
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.quality.suite.check import Severity
from tidefold.quality.suite.suite import Suite


def row(offset: int, item: int, order: int, mark: str, partition: int = 0) -> dict[str, Any]:
    return record(offset, item, "r", order=order, snapshot=mark, partition=partition)


def stage(pipeline: Pipeline, run: str, publishes: bool = True) -> Severity | None:
    """Returns how the check of the source's snapshot ends for the snapshot of a run; None: there is no such check."""
    take(pipeline)
    [outcome] = materialize(pipeline, ["items"], Fold(run), in_process)
    assert outcome.status == "staged", outcome
    state = state_of(pipeline)
    assert state.open_attempt
    landed = find_landed_range(state, state.open_attempt)
    checks = [c.severity for c in Suite((), 0.5).checks(5, 5, landed) if c.name == "source snapshot"]
    if publishes:
        judge_all(pipeline, "items")
        confirm(pipeline, "items", Confirmation(run=run))
    else:
        abort(pipeline, "items", "the gate failed")
    return checks[0] if checks else None


def land_streamed(root: Path, start: int, *items: int) -> None:
    land(root, start, [record(start + i, item) for i, item in enumerate(items)])


@pytest.mark.parametrize("later", [True, False])
def test_a_killed_snapshot_fails_until_it_is_made_again(tmp_path: Path, later: bool) -> None:
    """Fault: the first row of the new snapshot removed all rows, the killed connector never sent the others, and the
    run ended with 0."""
    pipeline = make_landing(tmp_path)
    land_streamed(tmp_path, 0, *range(9))
    assert stage(pipeline, "r1") is None
    land(tmp_path, 9, [row(9, 1, 1009, "first"), row(10, 2, 1009, "true")])
    if later:
        land_streamed(tmp_path, 11, 3)
    assert stage(pipeline, "r2", publishes=False) is Severity.FAIL
    assert stage(pipeline, "r3", publishes=False) is Severity.FAIL, "nothing was published"
    land(tmp_path, 20, [row(20, 1, 1020, "first"), row(21, 2, 1020, "true"), row(22, 3, 1020, "last")])
    assert stage(pipeline, "r4") is None


def test_it_warns_once_a_person_has_published_it(tmp_path: Path) -> None:
    """The rows are still missing. A filter may have taken the last row away: that must not stop the log for ever."""
    pipeline = make_landing(tmp_path)
    land_streamed(tmp_path, 0, 1, 2)
    stage(pipeline, "r1")
    land(tmp_path, 9, [row(9, 1, 1009, "first_in_data_collection"), row(10, 2, 1009, "true")])
    assert stage(pipeline, "r2") is Severity.FAIL
    land_streamed(tmp_path, 11, 3)
    assert stage(pipeline, "r3") is Severity.WARN
    land(tmp_path, 12, [row(12, 3, 1009, "last_in_data_collection")])
    land_streamed(tmp_path, 13, 4)
    assert stage(pipeline, "r4") is None


def test_a_first_load_has_no_such_check(tmp_path: Path) -> None:
    """It replaces nothing, and a connector that is killed in it begins it again."""
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [row(0, 1, 1000, "first"), row(1, 2, 1000, "true")])
    assert stage(pipeline, "r1") is None
    land(tmp_path, 2, [row(2, 3, 1000, "true")])
    assert stage(pipeline, "r2") is None
    land_streamed(tmp_path, 3, 9)
    assert stage(pipeline, "r3") is None


def test_the_last_row_may_be_in_another_partition(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    land_streamed(tmp_path, 0, 8)
    land(tmp_path, 1, [row(1, 1, 1020, "first"), row(2, 2, 1020, "true")])
    rows = [row(0, 3, 1020, "true", partition=1), row(1, 4, 1020, "last", partition=1)]
    land(tmp_path, 0, rows, name="{topic}+1+{start:010d}.{extension}")
    assert stage(pipeline, "r1") is None
    assert [(p.stream.begun, p.stream.ended) for p in state_of(pipeline).positions] == [
        ((1020, 0, 2), ()),
        ((), (1020, 0)),
    ]


@pytest.mark.parametrize("mark", ["first", "last", "last_in_data_collection"])
def test_a_table_with_one_row_needs_no_last_row(tmp_path: Path, mark: str) -> None:
    """The only row of the first of several tables has the mark `first` alone."""
    pipeline = make_landing(tmp_path)
    land_streamed(tmp_path, 0, 8)
    stage(pipeline, "r1")
    land(tmp_path, 1, [row(1, 1, 1001, mark), record(2, 2)])
    assert stage(pipeline, "r2") is None


def test_the_check_names_the_topic() -> None:
    from tidefold.domain.source_progress_history import LandedRange
    from tidefold.quality.run.run_checks import judge_source_snapshot

    [check] = [c for c in Suite((), 0.5).checks(5, 5, LandedRange(unended=(TOPIC,))) if c.own]
    result = judge_source_snapshot(check)
    assert not result.passed
    assert TOPIC in result.detail
