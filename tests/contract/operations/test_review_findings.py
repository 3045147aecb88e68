"""What a review found, one test each: so that it does not come back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from support.pipelines import CONFIG, judge_all, make_pipeline, put, table_rows
from tidefold.compute.runners import TaskAnswer, TaskWork, in_process
from tidefold.domain.paths import LogPaths
from tidefold.errors import CorruptError, RefusedError, StorageError
from tidefold.ledger import Ledger
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.retention.clean import drop
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.snapshot import stage as stage_module
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage.local_store import LocalStore


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return make_pipeline(tmp_path, CONFIG.replace("store: store\n", "store: store\nretention: {snapshots: 2}\n"))


def cycle(pipeline: Pipeline, number: int) -> None:
    put(pipeline, [{"id": number, "text": str(number)}])
    materialize(pipeline, ["accounts"], Fold(f"run-{number}"), in_process)
    judge_all(pipeline)
    confirm(pipeline, "accounts", Confirmation(run=f"run-{number}"))


def test_a_table_that_was_left_by_hand_is_not_taken_for_ours(pipeline: Pipeline, tmp_path: Path) -> None:
    cycle(pipeline, 1)
    kept = tmp_path / "kept"
    (tmp_path / "store/tables/accounts").rename(kept)
    drop(pipeline, "accounts", plan=False)
    (tmp_path / "store/tables").mkdir(exist_ok=True)
    kept.rename(tmp_path / "store/tables/accounts")
    with pytest.raises(RefusedError) as refused:
        cycle(pipeline, 50)
    assert refused.value.code == "FOREIGN_COMMIT"


@pytest.mark.parametrize("properties", [{"delta.appendOnly": "true"}, {"delta.enableChangeDataFeed": "true"}])
def test_foreign_properties_stop_publication_by_name(pipeline: Pipeline, properties: dict[str, str]) -> None:
    cycle(pipeline, 1)
    DeltaTable(pipeline.store.uri(LogPaths("accounts").table)).alter.set_table_properties(properties)
    with pytest.raises(RefusedError) as refused:
        cycle(pipeline, 2)
    assert refused.value.code == "FOREIGN_COMMIT"
    assert "properties" in refused.value.message


def test_a_damaged_delta_log_is_a_typed_error(pipeline: Pipeline, tmp_path: Path) -> None:
    cycle(pipeline, 1)
    (tmp_path / "store/tables/accounts/_delta_log/00000000000000000000.json").write_text("nonsense")
    with pytest.raises(CorruptError):
        cycle(pipeline, 2)


def test_the_end_of_time_and_years_below_1000_have_right_bounds(tmp_path: Path) -> None:
    columns = CONFIG.replace("columns: {id: int, text: string}", "columns: {id: int, text: string, at: timestamp}")
    pipeline = make_pipeline(tmp_path, columns)
    early, last = datetime(201, 5, 6, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    put(pipeline, [{"id": 1, "text": "a", "at": early}, {"id": 2, "text": "b", "at": last}])
    [outcome] = materialize(pipeline, ["accounts"], Fold("run"), in_process)
    assert outcome.status == "staged"
    judge_all(pipeline)
    confirm(pipeline, "accounts")
    table = DeltaTable(pipeline.store.uri(LogPaths("accounts").table))
    found = table.to_pyarrow_table(filters=[("at", "<", datetime(1000, 1, 1, tzinfo=UTC))])
    assert found["id"].to_pylist() == [1]


def test_bounds_of_long_texts_hide_no_row(pipeline: Pipeline) -> None:
    texts = ["a" * 40, "z" * 40, "z" * 32 + "\U0010ffff", "é" * 50]
    put(pipeline, [{"id": number, "text": text} for number, text in enumerate(texts)])
    materialize(pipeline, ["accounts"], Fold("run"), in_process)
    judge_all(pipeline)
    confirm(pipeline, "accounts")
    table = DeltaTable(pipeline.store.uri(LogPaths("accounts").table))
    for number, text in enumerate(texts):
        assert table.to_pyarrow_table(filters=[("text", "=", text)])["id"].to_pylist() == [number]


def test_an_error_that_nobody_foresaw_stops_one_log_and_leaves_no_attempt(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    for log in ("accounts", "tellers"):
        put(pipeline, [{"id": 1, "text": "a"}], log=log)
    real = stage_module.create_snapshot_table

    def breaks(store, manifest):  # type: ignore[no-untyped-def]
        if manifest.log == "accounts":
            raise ZeroDivisionError("surprise")
        real(store, manifest)

    monkeypatch.setattr(stage_module, "create_snapshot_table", breaks)
    accounts, tellers = materialize(pipeline, ["accounts", "tellers"], Fold("run"), in_process)
    assert (accounts.error_code, tellers.status) == ("UNFORESEEN", "staged")
    assert "surprise" in accounts.message
    assert pipeline.ledger("accounts").read().open_attempt is None


def test_an_error_right_after_the_claim_leaves_no_open_attempt(pipeline: Pipeline, tmp_path: Path) -> None:
    cycle(pipeline, 1)
    manifest = tmp_path / "store" / LogPaths("accounts").manifest(1)
    whole = manifest.read_bytes()
    manifest.unlink()
    put(pipeline, [{"id": 2, "text": "2"}])
    [outcome] = materialize(pipeline, ["accounts"], Fold("run-2"), in_process)
    assert outcome.error_code == "FILE_MISSING"
    assert pipeline.ledger("accounts").read().open_attempt is None
    manifest.write_bytes(whole)
    assert materialize(pipeline, ["accounts"], Fold("run-3"), in_process)[0].status == "staged"


def test_a_retired_snapshot_is_confirmed_already_and_its_run_makes_no_second(pipeline: Pipeline) -> None:
    for number in (1, 2, 3):
        cycle(pipeline, number)
    subsume(pipeline, "accounts")
    outcome = confirm(pipeline, "accounts", Confirmation(snapshot=1))
    assert (outcome.status, outcome.message.endswith("DELETED since")) == ("already", True)
    put(pipeline, [{"id": 4, "text": "4"}])
    [again] = materialize(pipeline, ["accounts"], Fold("run-1"), in_process)
    assert (again.status, again.snapshot) == ("already", 1)


def test_an_unreadable_folder_is_an_error_and_not_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_pipeline(tmp_path)
    put(pipeline, [{"id": 1, "text": "a"}])
    real = os.scandir

    def scandir(path):  # type: ignore[no-untyped-def]
        if "ledger" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(StorageError):
        pipeline.ledger("accounts").exists()


def test_a_missing_segment_is_damage_and_says_so(pipeline: Pipeline, tmp_path: Path) -> None:
    state = put(pipeline, [{"id": 1, "text": "a"}])
    (tmp_path / "store" / state.change_sets[0].location.segment).unlink()
    [outcome] = materialize(pipeline, ["accounts"], Fold("run"), in_process)
    assert outcome.error_code == "SEGMENT_CORRUPT"
    assert "it is gone" in outcome.message


def test_a_job_of_a_dropped_log_does_nothing_to_the_next_of_that_name(pipeline: Pipeline) -> None:
    cycle(pipeline, 1)
    put(pipeline, [{"id": 2, "text": "old"}])

    def sleeps(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        from tidefold.operations.snapshot.abort import abort

        abort(pipeline, "accounts", "in the way")
        drop(pipeline, "accounts", plan=False)
        put(pipeline, [{"id": 50, "text": "new"}])
        assert materialize(pipeline, ["accounts"], Fold("new"), in_process)[0].status == "staged"
        return in_process(work, tasks)

    [zombie] = materialize(pipeline, ["accounts"], Fold("old"), sleeps)
    assert zombie.error_code
    judge_all(pipeline)
    assert confirm(pipeline, "accounts").status == "published"
    assert table_rows(pipeline) == {50: "new"}


def test_a_confirm_that_finishes_a_publication_says_so(pipeline: Pipeline) -> None:
    from tidefold.domain.snapshot import transitions

    put(pipeline, [{"id": 1, "text": "a"}])
    materialize(pipeline, ["accounts"], Fold("run"), in_process)
    judge_all(pipeline)
    pipeline.ledger("accounts").commit(lambda state: transitions.confirm(state, 1))
    assert confirm(pipeline, "accounts").status == "published"


def test_the_head_of_a_log_of_small_files_stays_within_64_kib(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    for number in range(70):
        put(pipeline, [{"id": number, "text": "a"}])
    store = LocalStore(tmp_path / "store")
    assert max(entry.bytes for entry in store.list("logs/accounts/ledger")) < 64 * 1024
    assert Ledger(store, "accounts").read().last_sqn == 70


def test_a_table_written_before_the_log_began_is_never_overwritten(pipeline: Pipeline) -> None:
    import pyarrow as pa

    uri = pipeline.store.uri(LogPaths("accounts").table)
    write_deltalake(uri, pa.table({"x": [1]}))
    with pytest.raises(RefusedError):
        cycle(pipeline, 1)
    assert DeltaTable(uri).to_pyarrow_table().to_pydict() == {"x": [1]}
