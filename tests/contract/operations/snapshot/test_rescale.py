"""Another number of buckets: rows, order and key group of every key stay right, and a restore crosses it. L8."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from support.pipelines import CONFIG, judge_all, make_pipeline, put, snapshot_rows, table_rows, with_log_shape
from support.planning import pending
from support.restoring import FIRST, LOG, Rows, configured, files_of, fold, publish, take
from tidefold.changelog.schema import DELETE
from tidefold.compute.runners import in_process
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, read_rows
from tidefold.operations.requests import Fold, Restore
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import verify


def cycle(pipeline: Pipeline, run: str, kind: KindPolicy | None = None) -> Outcome:
    outcome = fold(pipeline, run, kind)
    assert outcome.status == "staged", outcome
    publish(pipeline)
    return outcome


def rows_in(pipeline: Pipeline, snapshot: int) -> Rows:
    _, batches = read_rows(pipeline, LOG, ReadRequest(snapshot=snapshot))
    return {row["id"]: row["text"] for batch in batches for row in batch.to_pylist()}


@pytest.mark.rotates(3)
@pytest.mark.parametrize(("before", "after"), [(4, 8), (4, 1), (4, 3), (1, 16), (16, 5)])
def test_a_new_number_of_buckets_takes_effect_in_the_next_full_snapshot(
    tmp_path: Path, before: int, after: int
) -> None:
    """L8: rows and order of every key stay right in both directions, and an incremental one keeps the old buckets."""
    pipeline = with_log_shape(make_pipeline(tmp_path), buckets=before)
    put(pipeline, [{"id": i, "text": f"a {i}"} for i in range(60)])
    cycle(pipeline, "run-1")
    wider = with_log_shape(pipeline, buckets=after)
    put(wider, [{"id": 1, "text": "b"}, {"id": 2, "text": None, "_op": DELETE}])
    kept_buckets = cycle(wider, "run-2", KindPolicy.INCREMENTAL)
    assert kept_buckets.facts["buckets"] == before
    put(wider, [{"id": 3, "text": "c"}])
    outcome = cycle(wider, "run-3")
    rows = {i: {1: "b", 3: "c"}.get(i, f"a {i}") for i in range(60) if i != 2}
    assert table_rows(wider) == snapshot_rows(wider, 3) == rows
    assert (outcome.facts["buckets"], outcome.facts["files_carried"]) == (after, 0)
    assert {f.key_groups.last - f.key_groups.first + 1 for f in files_of(wider, 3)} <= {16 // after, 16 // after + 1}
    # Restores work across the change both ways, and what is folded onto them too.
    back, config = rows_in(wider, 1), wider
    for number, (wanted, then) in enumerate([(1, {**back, 7: "d"}), (3, {**rows, 7: "e"})]):
        asking = Restore(f"back-{number}", RestorePoint(wanted, RestoreMode.SKIP))
        [restored] = materialize(config, ["accounts"], asking, in_process)
        assert restored.status == "staged", restored
        judge_all(config)
        confirm(config, "accounts", Confirmation(run=f"back-{number}"))
        assert table_rows(config) == rows_in(config, wanted)
        put(config, [{"id": 7, "text": then[7]}])
        cycle(config, f"on-{number}")
        assert table_rows(config) == then
    assert verify(wider, "accounts").error_code is None


def test_a_rescale_alone_is_made_on_request(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    take(pipeline, FIRST)
    cycle(pipeline, "run-1")
    wider = with_log_shape(pipeline, buckets=8)
    assert fold(wider, "run-2").status == "nothing"
    assert pending(wider, ["accounts"], Fold("run-3", kind=KindPolicy.FULL)) == ["accounts"]
    assert cycle(wider, "run-3", KindPolicy.FULL).facts["buckets"] == 8
    assert table_rows(wider) == FIRST
    assert fold(wider, "run-4").status == "nothing"


def test_a_rescale_that_was_aborted_is_still_to_be_made(tmp_path: Path) -> None:
    """L8, I13: an attempt that was refused leaves no trace in what the log knows of its buckets."""
    pipeline = make_pipeline(tmp_path, configured(local=False, retention="2"))
    take(pipeline, FIRST)
    cycle(pipeline, "run-1")
    wider = with_log_shape(pipeline, buckets=8)
    assert fold(wider, "run-2", KindPolicy.FULL).facts["buckets"] == 8
    abort(wider, LOG, "not now")
    assert wider.ledger(LOG).read().shape.buckets == 4
    assert fold(wider, "run-3", KindPolicy.FULL).status == "staged"
    publish(wider)
    assert wider.ledger(LOG).read().shape.buckets == 8


def test_auto_makes_a_rescale_after_one_was_aborted(tmp_path: Path) -> None:
    """L8, N7: `auto` chooses by the buckets that the table has, not by those of an aborted attempt."""
    pipeline = make_pipeline(tmp_path, configured(local=False, copy_files="always"))
    take(pipeline, FIRST)
    cycle(pipeline, "run-1")
    wider = with_log_shape(pipeline, buckets=8)
    take(wider, {1: "b"})
    assert fold(wider, "run-2", KindPolicy.AUTO).facts["buckets"] == 8
    abort(wider, LOG, "not now")
    assert fold(wider, "run-3", KindPolicy.AUTO).facts["buckets"] == 8


KEYS = {
    "boolean": [True, False],
    "int": [0, -1, 5, 2**31 - 1],
    "long": [0, -1, 2**62],
    "string": ["", "a", "\u00e4\U0001f600", "x" * 300],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
    "timestamp": [
        datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2026, 1, 1, 1, 1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC),
    ],
}  # fmt: skip


@pytest.mark.rotates(6)
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type_survive_a_rescale(tmp_path: Path, kind: str) -> None:
    """L8: the key group of a row in a data file is that of the change which brought it."""
    config = CONFIG.replace("columns: {id: int, text: string}", f"columns: {{id: {kind}, text: string}}")
    pipeline = make_pipeline(tmp_path, config)
    rows = {key: f"{n}" for n, key in enumerate(KEYS[kind])}
    put(pipeline, [{"id": key, "text": text} for key, text in rows.items()])
    assert fold(pipeline, "run-1").status == "staged"
    publish(pipeline)

    def read(snapshot: int) -> dict[object, str]:
        found = [r for b in read_rows(pipeline, LOG, ReadRequest(snapshot=snapshot))[1] for r in b.to_pylist()]
        assert len(found) == len(rows)
        return {row["id"]: row["text"] for row in found}

    before = read(1)
    for number, buckets in enumerate((1, 16, 3), 2):
        wider = with_log_shape(pipeline, buckets=buckets)
        assert fold(wider, f"run-{number}", KindPolicy.FULL).facts["buckets"] == buckets
        publish(wider)
        assert read(number) == before
