"""Imports of external snapshots: whose the original is afterwards, what is refused, and that the log goes on without
loss. N4, N8, I10, I12, I14, I28.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.pipelines import CONFIG, contents, judge_all, make_pipeline, put, table_rows
from support.pipelines import snapshot_rows as own_rows
from support.s3_server import S3Bucket
from support.savepoints import (
    KEEPING,
    SECOND,
    THIRD,
    Rows,
    bring,
    bring_in,
    changed,
    cycle,
    finish,
    make,
    save,
    saved_rows,
    snapshot_rows,
)
from tidefold.compute.runners import in_process
from tidefold.domain.external_snapshot import Layout, Ownership
from tidefold.domain.log_state import SnapshotKind, State
from tidefold.domain.paths import STORED_FORMAT, LogPaths
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.domain.snapshot.manifest import DESCRIPTION
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold, Import, Restore
from tidefold.operations.retention.clean import drop
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.compact_log import take_tail
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import VerifyRequest, verify

OTHER_BUCKETS = KEEPING.replace("buckets: 4", "buckets: 3")
ADOPTED = (Ownership.CLAIM, Ownership.LEGACY)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    save(make(folder / "one"), folder / "save")
    return folder / "save"


@pytest.fixture
def saved(template: Path, tmp_path: Path) -> Path:
    """A savepoint of another pipeline."""
    shutil.copytree(template, tmp_path / "save")
    return tmp_path / "save"


def restored(pipeline: Pipeline, snapshot: int, run: str, mode: RestoreMode = RestoreMode.SKIP) -> Outcome:
    asking = Restore(run, RestorePoint(snapshot, mode))
    [outcome] = materialize(pipeline, ["accounts"], asking, in_process)
    assert outcome.status == "staged", outcome
    finish(pipeline, run)
    return outcome


# What the outcome says


def test_an_older_savepoint_of_the_same_log_names_what_it_leaves_out(tmp_path: Path) -> None:
    """Fewer rows were staged, and no word said that later changes, which were folded already, stay out."""
    pipeline = make(tmp_path)
    save(pipeline, tmp_path / "save")
    changed(pipeline, {}, {60: "d 60", 61: "d 61"})
    cycle(pipeline, "run-4")
    changed(pipeline, {}, {62: "d 62"})
    outcome = bring(pipeline, tmp_path / "save")
    assert "instead of the 39 rows of snapshot 4" in outcome.message
    assert "older than that snapshot, without its change set 4" in outcome.message
    assert "left out for good: change set 5" in outcome.message
    assert (outcome.facts["rows"], outcome.facts["older_by"]) == (37, (4, 4))


# Whose the original is


def test_after_no_claim_the_original_may_go_as_soon_as_the_first_snapshot_is_confirmed(
    tmp_path: Path, saved: Path
) -> None:
    """N8, N4: the new snapshot is full, its bytes are its own, and nothing reads the original again."""
    pipeline = make_pipeline(tmp_path / "two", KEEPING)
    before = contents(saved)
    outcome = bring_in(pipeline, saved)
    assert outcome.facts["kind"] is SnapshotKind.FULL
    assert contents(saved) == before
    inodes = {p.stat().st_ino for p in saved.rglob("*.parquet")}
    assert not inodes & {p.stat().st_ino for p in (tmp_path / "two").rglob("*.parquet")}
    shutil.rmtree(saved)
    assert table_rows(pipeline) == own_rows(pipeline, 1) == THIRD
    rows = changed(pipeline, THIRD, {1: "later"})
    cycle(pipeline, "run-2")
    assert table_rows(pipeline) == rows
    restored(pipeline, 1, "back")
    assert table_rows(pipeline) == THIRD
    assert verify(pipeline, "accounts", VerifyRequest()).status == "whole"


@pytest.mark.parametrize("layout", list(Layout))
def test_a_claimed_original_goes_when_its_snapshot_is_subsumed(tmp_path: Path, layout: Layout) -> None:
    """N8: exactly what the description names, and nothing else in that folder."""
    one = make(tmp_path / "one")
    save(one, tmp_path / "save", layout)
    pipeline = make_pipeline(tmp_path / "two", KEEPING)
    (tmp_path / "save/_data").mkdir(exist_ok=True)
    for name in ("notes.txt", "_data/mine.parquet"):
        (tmp_path / "save" / name).write_text("the user's")
    assert bring_in(pipeline, tmp_path / "save", Ownership.CLAIM).facts["kind"] is SnapshotKind.INCREMENTAL
    rows = THIRD
    for number in (2, 3):
        assert saved_rows_there(tmp_path / "save")
        rows = changed(pipeline, rows, {number: "later"})
        cycle(pipeline, f"run-{number}")
    # Readers of the version before the newest are waited for.
    subsume(pipeline, "accounts")
    if saved_rows_there(tmp_path / "save"):
        rows = changed(pipeline, rows, {4: "later"})
        cycle(pipeline, "run-4")
        planned = subsume(pipeline, "accounts", plan=True)
        assert planned.facts["originals"] == len(contents(tmp_path / "save")) - 2
        subsume(pipeline, "accounts")
    assert set(contents(tmp_path / "save")) == {"notes.txt", "_data/mine.parquet"}
    assert table_rows(pipeline) == rows
    assert pipeline.ledger("accounts").read().snapshots[0].state is State.DELETED
    assert verify(pipeline, "accounts", VerifyRequest()).status == "whole"
    for snapshot in (s for s in pipeline.ledger("accounts").read().snapshots if s.state is State.COMPLETED):
        assert len(snapshot_rows(pipeline, snapshot.id)) == snapshot.rows


def saved_rows_there(address: Path) -> bool:
    return (address / DESCRIPTION).exists()


@pytest.mark.parametrize("layout", list(Layout))
def test_a_legacy_original_is_never_deleted(tmp_path: Path, layout: Layout) -> None:
    """N8: nor is it copied for safety."""
    save(make(tmp_path / "one"), tmp_path / "save", layout)
    before = contents(tmp_path / "save")
    pipeline = make_pipeline(tmp_path / "two", KEEPING)
    outcome = bring_in(pipeline, tmp_path / "save", Ownership.LEGACY)
    assert outcome.facts["kind"] is SnapshotKind.INCREMENTAL
    if layout is Layout.NATIVE:
        assert outcome.facts["bytes_written"] == 0
        inodes = {p.stat().st_ino for p in (tmp_path / "save").rglob("*.parquet")}
        files = [p for p in (tmp_path / "two").rglob("*.parquet") if "checkpoint" not in p.name]
        assert inodes == {p.stat().st_ino for p in files}
    rows = THIRD
    for number in (2, 3, 4):
        rows = changed(pipeline, rows, {number: "later"})
        cycle(pipeline, f"run-{number}")
        subsume(pipeline, "accounts")
    assert pipeline.ledger("accounts").read().snapshots[0].state is State.DELETED
    drop(pipeline, "accounts", plan=False)
    assert contents(tmp_path / "save") == before
    assert saved_rows(tmp_path / "save", layout) == THIRD


def test_a_claimed_original_of_an_aborted_import_is_not_touched(tmp_path: Path, saved: Path) -> None:
    pipeline = make_pipeline(tmp_path / "two", KEEPING)
    before = contents(saved)
    bring(pipeline, saved, Ownership.CLAIM)
    abort(pipeline, "accounts", "by hand")
    state = pipeline.ledger("accounts").read()
    assert (state.positions, state.landed, state.truncated_to) == ((), (), 0)
    assert not pipeline.store.list("tables") + pipeline.store.list("snapshots")
    assert contents(saved) == before
    # It can be claimed again, and the log begun otherwise.
    bring_in(pipeline, saved, Ownership.CLAIM, "again")
    assert table_rows(pipeline) == THIRD


def test_a_log_whose_import_was_aborted_begins_at_its_own_beginning(tmp_path: Path, saved: Path) -> None:
    pipeline = make_pipeline(tmp_path / "two")
    bring(pipeline, saved)
    abort(pipeline, "accounts", "by hand")
    rows = changed(pipeline, {}, {1: "own"})
    cycle(pipeline, "run-1")
    assert table_rows(pipeline) == rows
    assert pipeline.ledger("accounts").read().change_sets[0].sqn == 1


def test_dropping_a_log_deletes_what_it_claimed(tmp_path: Path, saved: Path) -> None:
    pipeline = make_pipeline(tmp_path / "two")
    bring_in(pipeline, saved, Ownership.CLAIM)
    planned = drop(pipeline, "accounts")
    assert planned.facts["originals"] == len(contents(saved))
    drop(pipeline, "accounts", plan=False)
    assert contents(saved) == {}


def test_an_interrupted_deletion_of_an_original_is_finished(tmp_path: Path, saved: Path) -> None:
    pipeline = make_pipeline(tmp_path / "two")
    bring_in(pipeline, saved, Ownership.CLAIM)
    shutil.rmtree(saved / "_delta_log")
    next((saved / "_data").iterdir()).unlink()
    drop(pipeline, "accounts", plan=False)
    assert contents(saved) == {}


def test_an_original_that_is_another_one_by_now_is_left(tmp_path: Path, saved: Path) -> None:
    """What the description names today may be another's."""
    pipeline = make_pipeline(tmp_path / "two")
    bring_in(pipeline, saved, Ownership.CLAIM)
    shutil.rmtree(saved)
    other = make_pipeline(tmp_path / "three")
    changed(other, {}, {1: "x"})
    cycle(other, "run-1")
    save(other, saved)
    before = contents(saved)
    drop(pipeline, "accounts", plan=False)
    assert contents(saved) == before


def test_a_second_claim_of_an_original_is_refused(tmp_path: Path, saved: Path) -> None:
    pipeline = make_pipeline(tmp_path / "two")
    bring_in(pipeline, saved, Ownership.CLAIM)
    for mode in Ownership:
        refused = bring(pipeline, saved, mode, f"again {mode}")
        assert refused.error_code == "ORIGINAL_CLAIMED"
    [other] = materialize(pipeline, ["tellers"], Import("x", str(saved), Ownership.CLAIM), in_process)
    assert other.error_code == "ORIGINAL_CLAIMED"
    assert not pipeline.ledger("tellers").exists()


@pytest.mark.parametrize("mode", ADOPTED)
def test_restore_reads_an_original_where_the_store_has_lost_the_files(
    tmp_path: Path, saved: Path, mode: Ownership
) -> None:
    """One more place beside local copies and the store. Bytes of its own in the store, so that both are two copies."""
    config = CONFIG.replace("store: store\n", "store: store\nsnapshots: {copy_files: always}\n")
    pipeline = make_pipeline(tmp_path / "two", config)
    bring_in(pipeline, saved, mode)
    put(pipeline, [{"id": i, "text": "z"} for i in range(60)])
    cycle(pipeline, "run-2")
    for path in (tmp_path / "two/store/tables").rglob("*.s0000000001.*.parquet"):
        path.write_bytes(b"lost")
    outcome = restored(pipeline, 1, "back")
    assert outcome.facts["read"]["external"]["files"] == 4
    assert snapshot_rows(pipeline, 3) == THIRD
    assert verify(pipeline, "accounts", VerifyRequest(snapshot=3)).status == "whole"


# Where the log goes on


@pytest.mark.rotates(6)
@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("mode", list(Ownership))
def test_a_new_log_goes_on_where_the_savepoint_ends(tmp_path: Path, layout: Layout, mode: Ownership) -> None:
    """I7: sqn and source positions, under another number of buckets."""
    one = make(tmp_path / "one")
    save(one, tmp_path / "save", layout, snapshot=2)
    pipeline = make_pipeline(tmp_path / "two", OTHER_BUCKETS)
    bring_in(pipeline, tmp_path / "save", mode)
    state = pipeline.ledger("accounts").read()
    assert (state.last_sqn, state.truncated_to) == (2, 2)
    assert [(p.next_offset, p.stream.max_order) for p in state.positions] == [(47, (1, 46))]
    assert table_rows(pipeline) == SECOND
    assert pipeline.ledger("accounts").read().shape.buckets == (4 if layout is Layout.NATIVE else 3)
    rows = changed(pipeline, SECOND, {7: "c 7", 51: "c 51"})
    cycle(pipeline, "run-2")
    assert table_rows(pipeline) == rows == THIRD
    state = pipeline.ledger("accounts").read()
    assert (state.shape.buckets, state.last_sqn) == (3, 3)
    assert restored(pipeline, 1, "back").facts["skipped"] == (3, 3)
    assert table_rows(pipeline) == SECOND


def test_a_canonical_one_may_have_other_key_groups_and_a_native_one_not(tmp_path: Path) -> None:
    one = make(tmp_path / "one")
    save(one, tmp_path / "canonical", Layout.CANONICAL)
    save(one, tmp_path / "native", Layout.NATIVE)
    config = CONFIG.replace("key_groups: 16", "key_groups: 37").replace("buckets: 4", "buckets: 5")
    pipeline = make_pipeline(tmp_path / "two", config)
    refused = bring(pipeline, tmp_path / "native")
    assert refused.error_code == "SHAPE_DIFFERS"
    assert "key_groups: 16 there, 37 configured" in refused.message
    bring_in(pipeline, tmp_path / "canonical")
    assert table_rows(pipeline) == THIRD
    rows = changed(pipeline, THIRD, dict.fromkeys(range(0, 60, 3), "later"))
    cycle(pipeline, "run-2")
    assert table_rows(pipeline) == rows


def test_what_a_log_took_and_did_not_fold_is_left_out_and_recorded(tmp_path: Path, saved: Path) -> None:
    """As restore --log-position skip; undo is a restore of the one before."""
    pipeline = make_pipeline(tmp_path / "two")
    rows = changed(pipeline, {}, {1: "own", 90: "own"})
    cycle(pipeline, "run-1")
    changed(pipeline, rows, {91: "never folded"})
    take_tail(pipeline, "accounts", "tail")
    outcome = bring_in(pipeline, saved)
    assert (outcome.snapshot, outcome.facts["skipped"], outcome.facts["mode"]) == (3, (2, 2), Ownership.NO_CLAIM)
    assert "left out for good: change set 2" in outcome.message
    assert (outcome.facts["read"]["external"]["files"], outcome.facts["read"]["older"]) == (4, {})
    assert table_rows(pipeline) == THIRD
    [nothing] = materialize(pipeline, ["accounts"], Fold("run-4"), in_process)
    assert nothing.status == "nothing"
    later = changed(pipeline, THIRD, {92: "folded"})
    cycle(pipeline, "run-5")
    assert table_rows(pipeline) == later
    restored(pipeline, 1, "undo")
    assert table_rows(pipeline) == rows


def test_a_log_that_took_changes_and_has_no_snapshot_leaves_them_out(tmp_path: Path, saved: Path) -> None:
    pipeline = make_pipeline(tmp_path / "two")
    changed(pipeline, {}, {1: "own", 90: "own"})
    bring_in(pipeline, saved)
    [snapshot] = pipeline.ledger("accounts").read().snapshots
    assert (snapshot.from_sqn, snapshot.skipped_from, snapshot.to_sqn) == (0, 0, 1)
    later = changed(pipeline, THIRD, {92: "folded"})
    cycle(pipeline, "run-2")
    assert table_rows(pipeline) == later


def test_rows_of_an_import_are_never_made_from_the_log_alone(tmp_path: Path, saved: Path) -> None:
    """I17: where an imported snapshot's files are lost, no older snapshot has its rows."""
    pipeline = make_pipeline(tmp_path / "two")
    changed(pipeline, {}, {1: "own"})
    cycle(pipeline, "run-1")
    bring_in(pipeline, saved)
    for path in (tmp_path / "two/store").rglob("*.s0000000002.*.parquet"):
        path.write_bytes(b"lost")
    asking = Restore("back", RestorePoint(2, RestoreMode.SKIP))
    [outcome] = materialize(pipeline, ["accounts"], asking, in_process)
    assert outcome.error_code == "NO_GOOD_COPY", outcome
    assert table_rows_of_version(pipeline, 0) == {1: "own"}


def table_rows_of_version(pipeline: Pipeline, version: int) -> Rows:
    from deltalake import DeltaTable

    table = DeltaTable(pipeline.store.uri(LogPaths("accounts").table), version=version)
    return {row["id"]: row["text"] for row in table.to_pyarrow_table().to_pylist()}


def test_the_same_run_again_is_the_same_snapshot_and_another_request_of_it_is_refused(
    tmp_path: Path, saved: Path
) -> None:
    """I4."""
    pipeline = make_pipeline(tmp_path / "two")
    bring_in(pipeline, saved)
    assert bring(pipeline, saved).status == "already"
    assert bring(pipeline, saved, Ownership.LEGACY).error_code == "RUN_CHANGED"


# Snapshots of another store


def test_a_full_snapshot_of_another_store_is_imported(tmp_path: Path) -> None:
    make(tmp_path / "one")
    pipeline = make_pipeline(tmp_path / "two")
    folder = tmp_path / "one/store/snapshots/accounts/0000000002"
    before = contents(tmp_path / "one")
    refused = bring(pipeline, folder, Ownership.CLAIM)
    assert refused.error_code == "ORIGINAL_OF_STORE"
    bring_in(pipeline, folder)
    assert table_rows(pipeline) == SECOND
    assert pipeline.ledger("accounts").read().positions[0].next_offset == 47
    assert contents(tmp_path / "one") == before


def test_an_unconfirmed_or_unknown_snapshot_of_another_store_is_refused(tmp_path: Path) -> None:
    """I14."""
    one = make(tmp_path / "one")
    changed(one, THIRD, {1: "x"})
    materialize(one, ["accounts"], Fold("run-4"), in_process)
    pipeline = make_pipeline(tmp_path / "two")
    folder = tmp_path / "one/store/snapshots/accounts"
    assert bring(pipeline, folder / "0000000004").error_code == "WRONG_STATE"
    assert bring(pipeline, folder / "0000000009").error_code == "SNAPSHOT_UNKNOWN"
    assert bring(pipeline, tmp_path / "nowhere").error_code == "SAVEPOINT_UNKNOWN"
    assert bring(pipeline, tmp_path / "nowhere/snapshots/accounts/0000000001").error_code == "SAVEPOINT_UNKNOWN"
    assert bring(one, folder / "0000000003", run="own").error_code == "ADDRESS_TAKEN"
    assert not pipeline.ledger("accounts").exists()


# Damage


def _edit(change: Callable[[dict[str, object]], object]) -> Callable[[Path], object]:
    def act(address: Path) -> None:
        found = json.loads((address / DESCRIPTION).read_text())
        change(found)
        (address / DESCRIPTION).write_text(json.dumps(found))

    return act


def _first(address: Path) -> Path:
    return next(iter(sorted(address.rglob("*.parquet"))))


def _flip(address: Path) -> None:
    path = _first(address)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda a: _first(a).unlink(), "SAVEPOINT_DAMAGED"),
    "cut": (lambda a: os.truncate(_first(a), 20), "SAVEPOINT_DAMAGED"),
    "flipped": (_flip, "DATA_FILE_CORRUPT"),
    "foreign": (lambda a: shutil.copy(sorted(a.rglob("*.parquet"))[1], _first(a)), "SAVEPOINT_DAMAGED"),
    "no description": (lambda a: (a / DESCRIPTION).unlink(), "SAVEPOINT_UNKNOWN"),
    "description cut": (lambda a: os.truncate(a / DESCRIPTION, 100), "UNREADABLE"),
    "newer": (_edit(lambda d: d.update(version=STORED_FORMAT + 1)), "STORE_NEWER"),
    "no format": (_edit(lambda d: d.pop("format")), "SAVEPOINT_FORMAT"),
    "rows edited": (_edit(lambda d: d.update(rows=1)), "SAVEPOINT_EDITED"),
    "no checksum": (_edit(lambda d: d.pop("checksum")), "SAVEPOINT_EDITED"),
    "progress edited": (_edit(lambda d: d.update(progress={})), "SAVEPOINT_EDITED"),
}


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_refused_by_name_and_nothing_is_changed(tmp_path: Path, damage: str, layout: Layout) -> None:
    """I23."""
    save(make(tmp_path / "one"), tmp_path / "save", layout)
    act, code = DAMAGES[damage]
    act(tmp_path / "save")
    pipeline = make_pipeline(tmp_path / "two")
    before = contents(tmp_path / "save")
    refused = bring(pipeline, tmp_path / "save", Ownership.CLAIM)
    assert refused.error_code == code, refused
    assert contents(tmp_path / "save") == before
    left = {e.path for top in ("tables", "snapshots") for e in pipeline.store.list(top, unfinished=True)}
    assert not left
    state = pipeline.ledger("accounts").find()
    assert state is None or [s.state for s in state.snapshots] == [State.ABORTED]


def test_spaces_in_the_description_do_not_matter(tmp_path: Path, saved: Path) -> None:
    _edit(lambda d: None)(saved)
    pipeline = make_pipeline(tmp_path / "two")
    bring_in(pipeline, saved)
    assert table_rows(pipeline) == THIRD


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (CONFIG.replace("{id: int, text: string}", "{id: long, text: string}"), "column `id`: int there, long"),
        (CONFIG.replace("{id: int, text: string}", "{id: int, text: string, more: int}"), "column `more`: none there"),
        (CONFIG.replace("key: [id]", "key: [text]"), "key: id there, text configured"),
        (CONFIG.replace("key: [id]", "order: arrival\n    key: [id]", 1).replace(
            "    source: {format: debezium-json, connector: postgresql, path: landing/accounts}\n", ""
        ), "order: postgresql there, arrival"),
    ],
)  # fmt: skip
def test_another_shape_is_refused_with_every_difference(tmp_path: Path, saved: Path, config: str, said: str) -> None:
    """I28."""
    pipeline = make_pipeline(tmp_path / "two", config)
    refused = bring(pipeline, saved)
    assert refused.error_code == "SHAPE_DIFFERS"
    assert said in refused.message
    assert not pipeline.ledger("accounts").exists()


def test_an_original_that_changes_between_claim_and_fold_aborts(tmp_path: Path, saved: Path) -> None:
    """I6."""
    from unittest import mock

    from tidefold.operations.savepoint import import_snapshot

    pipeline = make_pipeline(tmp_path / "two")
    found = import_snapshot.original_at(str(saved))
    with mock.patch.object(import_snapshot, "original_at", return_value=_other(found)):
        refused = bring(pipeline, saved)
    assert refused.error_code == "ORIGINAL_CHANGED"
    assert pipeline.ledger("accounts").read().snapshots[0].state is State.ABORTED


def _other(found: object) -> object:
    from dataclasses import replace

    return replace(found, digest="another")  # type: ignore[type-var]


# S3


@pytest.mark.rotates(4)
@pytest.mark.parametrize(("layout", "mode"), [(Layout.NATIVE, Ownership.CLAIM), (Layout.CANONICAL, Ownership.NO_CLAIM)])
def test_between_buckets_and_disks(tmp_path: Path, s3: S3Bucket, layout: Layout, mode: Ownership) -> None:
    one = make(tmp_path / "one")
    address = f"s3://{s3.name}/elsewhere/save"
    save(one, address, layout)
    config = OTHER_BUCKETS.replace("store: store\n", f"store: {s3.address}\n")
    pipeline = make_pipeline(tmp_path / "two", config)
    outcome = bring_in(pipeline, address, mode)
    assert table_rows(pipeline) == THIRD
    if layout is Layout.NATIVE:
        assert outcome.facts["read"]["external"]["files"] == 4
    rows = THIRD
    for number in (2, 3, 4):
        rows = changed(pipeline, rows, {number: "later"})
        cycle(pipeline, f"run-{number}")
        subsume(pipeline, "accounts")
    assert table_rows(pipeline) == rows
    left = [o["Key"] for o in s3.client.list_objects_v2(Bucket=s3.name, Prefix="elsewhere/").get("Contents", [])]
    assert bool(left) is (mode is not Ownership.CLAIM)


def test_what_cannot_be_deleted_cannot_be_claimed(tmp_path: Path, s3: S3Bucket) -> None:
    save(make(tmp_path / "one"), s3.address)
    pipeline = make_pipeline(tmp_path / "two")
    s3.server.fail("POST", "?delete", status=403, code="AccessDenied", times=99)
    refused = bring(pipeline, s3.address, Ownership.CLAIM)
    assert refused.error_code == "CANNOT_CLAIM"
    assert not pipeline.ledger("accounts").exists()
    assert bring(pipeline, s3.address, Ownership.LEGACY).status == "staged"


def test_a_confirmed_import_shows_in_history_and_first_snapshot_ids_rise(tmp_path: Path, saved: Path) -> None:
    pipeline = make_pipeline(tmp_path / "two")
    bring(pipeline, saved)
    judge_all(pipeline, passed=False)
    abort(pipeline, "accounts", "no")
    bring(pipeline, saved, run="again")
    judge_all(pipeline)
    confirm(pipeline, "accounts", Confirmation(run="again"))
    [first, second] = pipeline.ledger("accounts").read().snapshots
    assert (first.state, second.state, second.id) == (State.ABORTED, State.COMPLETED, 2)
    assert second.external
    assert (second.external.address, second.external.snapshot, second.external.sqn) == (str(saved), 3, 3)
