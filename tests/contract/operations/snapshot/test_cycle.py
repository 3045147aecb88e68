"""Materialize, confirm, publish, abort against real Delta tables, the fold in this process.

Promises I1, I4, I5, I8, I10, I13, I14, I19; requirements N1, N3, N4, N6.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from support.interleaved import run_then
from support.pipelines import CONFIG, contents, judge_all, make_pipeline, put, snapshot_rows, table_rows, with_log_shape
from support.planning import pending
from tidefold.changelog.schema import DELETE
from tidefold.compute.runners import TaskAnswer, TaskWork, in_process
from tidefold.domain.log_state import State
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot import transitions
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.errors import GateFailedError, RefusedError, SupersededError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold, find_busy_logs
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.snapshot import stage as stage_module
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import Confirmation, Override, confirm
from tidefold.operations.snapshot.materialize import materialize


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return make_pipeline(tmp_path)


def fold(pipeline: Pipeline, run: str, takeover: bool = False) -> Outcome:
    [outcome] = materialize(pipeline, ["accounts"], Fold(run, takeover=takeover), in_process)
    return outcome


def cycle(pipeline: Pipeline, run: str) -> Outcome:
    assert fold(pipeline, run).status == "staged"
    judge_all(pipeline)
    return confirm(pipeline, "accounts", Confirmation(run=run))


def upserts(ids: Sequence[int], text: str) -> list[dict[str, object]]:
    return [{"id": i, "text": f"{text} {i}"} for i in ids]


def test_ten_rounds_of_random_changes_equal_the_oracle_in_table_and_snapshots(pipeline: Pipeline) -> None:
    chance, model, history = random.Random(7), {}, {}
    for number in range(1, 11):
        changes = []
        for _ in range(chance.randrange(1, 40)):
            key = chance.randrange(60)
            if chance.random() < 0.3:
                changes.append({"id": key, "text": None, "_op": DELETE})
                model.pop(key, None)
            else:
                text = chance.choice([None, "", f"{number}"])
                changes.append({"id": key, "text": text})
                model[key] = text
        put(pipeline, changes)
        outcome = cycle(pipeline, f"run-{number}")
        assert (outcome.status, outcome.facts["table_version"]) == ("published", number - 1)
        assert table_rows(pipeline) == model
        history[number] = dict(model)
    assert {n: snapshot_rows(pipeline, n) for n in history} == history


def test_untouched_files_are_carried_and_a_full_snapshot_stands_alone(pipeline: Pipeline, tmp_path: Path) -> None:
    put(pipeline, upserts(range(100), "first"))
    cycle(pipeline, "run-1")
    put(pipeline, upserts([7], "second"))
    staged = fold(pipeline, "run-2")
    assert (staged.facts["files"], staged.facts["files_carried"]) == (4, 3)
    assert staged.facts["bytes_written"] < staged.facts["bytes_full"]
    judge_all(pipeline)
    confirm(pipeline, "accounts")
    shutil.rmtree(tmp_path / "store/snapshots/accounts/0000000001")
    shutil.rmtree(tmp_path / "store/tables")
    shutil.rmtree(tmp_path / "store/changelog")
    rows = snapshot_rows(pipeline, 2)
    assert (len(rows), rows[7], rows[8]) == (100, "second 7", "first 8")


def test_nothing_new_writes_nothing_at_all(pipeline: Pipeline, tmp_path: Path) -> None:
    put(pipeline, upserts([1, 2], "a"))
    cycle(pipeline, "run-1")
    before = contents(tmp_path / "store")
    assert pending(pipeline, ["accounts", "tellers"], Fold("run-2")) == []
    assert fold(pipeline, "run-2").status == "nothing"
    assert fold(pipeline, "run-1").status == "already"
    assert confirm(pipeline, "accounts").status == "nothing"
    assert confirm(pipeline, "accounts", Confirmation(run="run-1")).status == "already"
    assert abort(pipeline, "accounts", "no reason").status == "nothing"
    assert contents(tmp_path / "store") == before


def test_a_crash_between_confirm_and_publish_is_rolled_forward_by_whoever_comes_next(pipeline: Pipeline) -> None:
    put(pipeline, upserts([1], "a"))
    fold(pipeline, "run-1")
    judge_all(pipeline)
    pipeline.ledger("accounts").commit(lambda s: transitions.confirm(s, 1))
    put(pipeline, upserts([2], "b"))
    assert fold(pipeline, "run-2").status == "staged"
    assert table_rows(pipeline) == {1: "a 1"}


def test_a_confirm_that_finishes_a_publication_says_so(pipeline: Pipeline) -> None:
    put(pipeline, upserts([1], "a"))
    fold(pipeline, "run-1")
    judge_all(pipeline)
    pipeline.ledger("accounts").commit(lambda s: transitions.confirm(s, 1))
    assert confirm(pipeline, "accounts").status == "published"


def test_a_crash_after_the_delta_commit_does_not_commit_twice(pipeline: Pipeline) -> None:
    put(pipeline, upserts([1], "a"))
    cycle(pipeline, "run-1")
    put(pipeline, upserts([2], "b"))
    fold(pipeline, "run-2")
    judge_all(pipeline)
    ledger = pipeline.ledger("accounts")
    unpublished = ledger.commit(lambda s: transitions.confirm(s, 2))
    confirm(pipeline, "accounts", Confirmation(snapshot=2))
    # As if the process had died before the ledger heard of the table version.
    (Path(pipeline.store.uri("")) / LogPaths("accounts").ledger_version(unpublished.version + 1)).unlink()
    assert confirm(pipeline, "accounts", Confirmation(snapshot=2)).facts["table_version"] == 1
    assert DeltaTable(pipeline.store.uri(LogPaths("accounts").table)).version() == 1


def test_a_failed_gate_leaves_everything_as_it_was(pipeline: Pipeline, tmp_path: Path) -> None:
    put(pipeline, upserts(range(20), "a"))
    cycle(pipeline, "run-1")
    put(pipeline, upserts([3], "bad"))
    kept = {p: b for p, b in contents(tmp_path / "store").items() if "/ledger/" not in p}
    fold(pipeline, "run-2")
    judge_all(pipeline, passed=False)
    with pytest.raises(GateFailedError):
        confirm(pipeline, "accounts")
    assert table_rows(pipeline)[3] == "a 3"
    assert abort(pipeline, "accounts", "gate failed", run_id="run-2").status == "aborted"
    after = {p: b for p, b in contents(tmp_path / "store").items() if "/ledger/" not in p}
    assert after.pop("logs/accounts/snapshots/0000000002/manifest")
    assert after == kept
    assert table_rows(pipeline)[3] == "a 3"


def test_an_override_publishes_what_the_gate_refused_and_names_who(pipeline: Pipeline) -> None:
    put(pipeline, upserts([1], "a"))
    fold(pipeline, "run-1")
    judge_all(pipeline, passed=False)
    assert confirm(pipeline, "accounts", Confirmation(override=Override("ann", "expected"))).status == "published"
    latest = pipeline.ledger("accounts").read().latest
    assert latest
    assert latest.verdict
    assert latest.verdict.override_by == "ann"
    with pytest.raises(RefusedError, match="No snapshot of `accounts` waits") as none:
        confirm(pipeline, "accounts", Confirmation(override=Override("ann", "again")))
    assert none.value.code == "NOTHING_TO_OVERRIDE"


def test_a_zombie_that_wakes_after_a_retry_is_refused_and_cleans_up(pipeline: Pipeline) -> None:
    put(pipeline, upserts(range(20), "a"))

    sleeps_while_a_retry_finishes = run_then(lambda: cycle(pipeline, "run-1"))
    [zombie] = materialize(pipeline, ["accounts"], Fold("run-1"), sleeps_while_a_retry_finishes)
    assert zombie.error_code == "SUPERSEDED"
    assert "superseded by attempt 2" in zombie.message
    with pytest.raises(SupersededError):
        confirm(pipeline, "accounts", Confirmation(snapshot=1))
    state = pipeline.ledger("accounts").read()
    assert [(s.id, s.state) for s in state.snapshots] == [(1, State.ABORTED), (2, State.COMPLETED)]
    assert len(table_rows(pipeline)) == 20
    assert not [e for e in pipeline.store.list("") if "s0000000001" in e.path]


def test_a_killed_attempt_is_swept_by_the_retry(pipeline: Pipeline) -> None:
    put(pipeline, upserts(range(20), "a"))

    def dies(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        in_process(work, tasks[:2])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        materialize(pipeline, ["accounts"], Fold("run-1"), dies)
    assert [e for e in pipeline.store.list("snapshots") if "s0000000001" in e.path]
    cycle(pipeline, "run-1")
    assert len(table_rows(pipeline)) == 20
    assert not [e for e in pipeline.store.list("") if "s0000000001" in e.path]


def test_a_damaged_segment_stops_its_log_only(pipeline: Pipeline, tmp_path: Path) -> None:
    state = put(pipeline, upserts([1], "a"))
    put(pipeline, upserts([1], "a"), log="tellers")
    segment = tmp_path / "store" / state.change_sets[0].location.segment
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-3])
    accounts, tellers = materialize(pipeline, ["accounts", "tellers"], Fold("run-1"), in_process)
    assert (accounts.error_code, tellers.status) == ("SEGMENT_CORRUPT", "staged")
    after = pipeline.ledger("accounts").read()
    assert after.open_attempt is None
    assert pipeline.store.list("snapshots/accounts") == []
    segment.write_bytes(whole)
    assert fold(pipeline, "run-1").status == "staged"


@pytest.mark.parametrize(("damage", "code"), [("missing", "NOT_FOUND"), ("flipped", "NO_GOOD_COPY")])
def test_a_damaged_base_file_is_an_error_and_never_other_rows(
    pipeline: Pipeline, tmp_path: Path, damage: str, code: str
) -> None:
    put(pipeline, upserts(range(50), "a"))
    cycle(pipeline, "run-1")
    rows = table_rows(pipeline)
    whole = contents(tmp_path / "store/snapshots/accounts/0000000001/_data")
    for name, data in whole.items():
        file = tmp_path / "store/snapshots/accounts/0000000001/_data" / name
        if damage == "flipped":
            file.write_bytes(bytes([*data[:40], data[40] ^ 1, *data[41:]]))  # In place: the table shares these bytes.
        else:
            file.unlink()
    put(pipeline, upserts([1], "b"))
    assert fold(pipeline, "run-2").error_code == code
    for name, data in whole.items():
        (tmp_path / "store/snapshots/accounts/0000000001/_data" / name).write_bytes(data)
    assert table_rows(pipeline) == rows
    assert pipeline.ledger("accounts").read().open_attempt is None


@pytest.mark.parametrize("foreign", ["append", "delete", "optimize"])
def test_a_foreign_commit_is_refused_by_name(pipeline: Pipeline, foreign: str) -> None:
    put(pipeline, upserts(range(50), "a"))
    cycle(pipeline, "run-1")
    uri = pipeline.store.uri(LogPaths("accounts").table)
    table = DeltaTable(uri)
    if foreign == "append":
        write_deltalake(uri, table.to_pyarrow_table().slice(0, 1), mode="append")
    elif foreign == "delete":
        table.delete("id = 1")
    else:
        table.optimize.compact()
    put(pipeline, upserts([99], "b"))
    fold(pipeline, "run-2")
    judge_all(pipeline)
    with pytest.raises(RefusedError) as refused:
        confirm(pipeline, "accounts")
    assert refused.value.code == "FOREIGN_COMMIT"
    assert "version 1" in refused.value.message
    DeltaTable(uri).restore(0)
    assert confirm(pipeline, "accounts").status in ("published", "nothing")
    assert len(table_rows(pipeline)) == 51


def test_a_foreign_commit_is_named_without_news_and_replaced(pipeline: Pipeline) -> None:
    """I29: a run with nothing to fold would be green while readers see rows that nobody judged."""
    put(pipeline, upserts(range(50), "a"))
    cycle(pipeline, "run-1")
    table = DeltaTable(pipeline.store.uri(LogPaths("accounts").table))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert fold(pipeline, "run-2").status == "nothing"
    table.update(predicate="id = 1", updates={"text": "'foreign'"})
    assert find_busy_logs(pipeline, ["accounts"]) == ["accounts"]
    idle = fold(pipeline, "run-3")
    assert idle.error_code == "FOREIGN_COMMIT"
    assert idle.error
    assert "`tidefold run accounts --kind full --reconcile` replaces" in idle.error.hint
    with pytest.raises(RefusedError) as refused:
        confirm(pipeline, "accounts", Confirmation(reconcile=True))
    assert refused.value.hint == idle.error.hint
    materialize(pipeline, ["accounts"], Fold("run-4", kind=KindPolicy.FULL), in_process)
    judge_all(pipeline)
    assert confirm(pipeline, "accounts", Confirmation(reconcile=True)).status == "published"
    assert table_rows(pipeline)[1] == "a 1"
    assert fold(pipeline, "run-5").status == "nothing"
    assert find_busy_logs(pipeline, ["accounts"]) == []


def test_a_user_s_vacuum_harms_neither_table_nor_staged_files(pipeline: Pipeline) -> None:
    put(pipeline, upserts(range(50), "a"))
    cycle(pipeline, "run-1")
    put(pipeline, upserts(range(25), "b"))
    fold(pipeline, "run-2")
    table = DeltaTable(pipeline.store.uri(LogPaths("accounts").table))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    judge_all(pipeline)
    assert confirm(pipeline, "accounts").status == "published"
    assert (table_rows(pipeline)[1], table_rows(pipeline)[30]) == ("b 1", "a 30")


def test_all_rows_deleted_leaves_an_empty_table_that_reads(pipeline: Pipeline) -> None:
    put(pipeline, upserts(range(10), "a"))
    cycle(pipeline, "run-1")
    put(pipeline, [{"id": i, "text": None, "_op": DELETE} for i in range(10)])
    cycle(pipeline, "run-2")
    assert table_rows(pipeline) == {}
    put(pipeline, upserts([4], "again"))
    cycle(pipeline, "run-3")
    assert table_rows(pipeline) == {4: "again 4"}


def test_changes_that_leave_no_row_begin_an_empty_table(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": None, "_op": DELETE}])
    cycle(pipeline, "run-1")
    assert table_rows(pipeline) == {}


def test_a_changed_number_of_key_groups_is_refused_by_name(pipeline: Pipeline) -> None:
    put(pipeline, upserts([1], "a"))
    [outcome] = materialize(with_log_shape(pipeline, key_groups=32), ["accounts"], Fold("run-1"), in_process)
    assert outcome.error_code == "SHAPE_CHANGED"


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
    put(pipeline, upserts([1], "a"))
    cycle(pipeline, "run-1")
    manifest = tmp_path / "store" / LogPaths("accounts").manifest(1)
    whole = manifest.read_bytes()
    manifest.unlink()
    put(pipeline, upserts([2], "b"))
    assert fold(pipeline, "run-2").error_code == "FILE_MISSING"
    assert pipeline.ledger("accounts").read().open_attempt is None
    manifest.write_bytes(whole)
    assert fold(pipeline, "run-3").status == "staged"


def test_a_retired_snapshot_is_confirmed_already_and_its_run_makes_no_second(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path, CONFIG.replace("store: store\n", "store: store\nretention: {snapshots: 2}\n"))
    for number in (1, 2, 3):
        put(pipeline, upserts([number], "a"))
        cycle(pipeline, f"run-{number}")
    subsume(pipeline, "accounts")
    outcome = confirm(pipeline, "accounts", Confirmation(snapshot=1))
    assert (outcome.status, outcome.message.endswith("DELETED since")) == ("already", True)
    put(pipeline, upserts([4], "a"))
    again = fold(pipeline, "run-1")
    assert (again.status, again.snapshot) == ("already", 1)


def test_a_missing_segment_is_damage_and_says_so(pipeline: Pipeline, tmp_path: Path) -> None:
    state = put(pipeline, upserts([1], "a"))
    (tmp_path / "store" / state.change_sets[0].location.segment).unlink()
    outcome = fold(pipeline, "run")
    assert outcome.error_code == "SEGMENT_CORRUPT"
    assert "it is gone" in outcome.message
