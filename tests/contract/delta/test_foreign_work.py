"""What users do to a published table while the life cycle goes on, and a publisher that sleeps. Promises I1, I10, I20.

A VACUUM never harms; an OPTIMIZE puts other files into the table, so the next publication is refused by name until the
user undoes it or asks to reconcile.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from support.pipelines import CONFIG, copy_pipeline, judge_all, make_pipeline, put, snapshot_rows, table_rows
from support.restoring import FIRST, LOG, configured, cycle
from tidefold.changelog.schema import DELETE
from tidefold.compute.runners import in_process
from tidefold.delta import publish as publishing
from tidefold.domain.log_state import State
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.errors import CorruptError, RefusedError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, read_rows
from tidefold.operations.requests import Fold
from tidefold.operations.restore.rebuild import rebuild_table
from tidefold.operations.retention.clean import clean, drop
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.compact_log import take_tail
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize

KEEPS_TWO = CONFIG.replace("store: store", "store: store\nretention: {snapshots: 2}")
STEPS = ["put", "materialize", "judge", "confirm", "subsume", "truncate", "tail"]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_pipeline(tmp_path_factory.mktemp("template"), KEEPS_TWO)
    for number in range(3):
        for step in STEPS:
            take(made, step, number)
    return made.config.path.parent


@pytest.fixture
def pipeline(template: Path, tmp_path: Path) -> Pipeline:
    return copy_pipeline(template, tmp_path)


def take(pipeline: Pipeline, step: str, number: int, reconcile: bool = False) -> None:
    """One step of round `number`; every round changes some rows, adds some and deletes one."""
    changes = [{"id": i, "text": f"{number} {i}"} for i in range(number * 10, number * 10 + 30)]
    acts: dict[str, Callable[[], object]] = {
        "put": lambda: put(pipeline, [*changes, {"id": number * 10, "text": None, "_op": DELETE}]),
        "materialize": lambda: materialize(pipeline, ["accounts"], Fold(f"run-{number}"), in_process),
        "judge": lambda: judge_all(pipeline),
        "confirm": lambda: confirm(pipeline, "accounts", Confirmation(run=f"run-{number}", reconcile=reconcile)),
        "subsume": lambda: subsume(pipeline, "accounts"),
        "truncate": lambda: truncate(pipeline, "accounts"),
        "tail": lambda: take_tail(pipeline, "accounts", f"tail-{number}"),
    }
    acts[step]()


def rows_after(rounds: int) -> dict[int, str]:
    rows: dict[int, str] = {}
    for number in range(rounds):
        rows |= {i: f"{number} {i}" for i in range(number * 10, number * 10 + 30)}
        del rows[number * 10]
    return rows


def table(pipeline: Pipeline) -> DeltaTable:
    return DeltaTable(pipeline.store.uri(LogPaths("accounts").table))


def vacuum(pipeline: Pipeline) -> None:
    table(pipeline).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


def optimize(pipeline: Pipeline) -> None:
    assert table(pipeline).optimize.compact()["numFilesRemoved"] > 1


@pytest.mark.parametrize("step", STEPS)
def test_a_user_s_vacuum_after_any_step_harms_nothing(pipeline: Pipeline, step: str) -> None:
    before = table(pipeline).version()
    for each in STEPS:
        take(pipeline, each, 3)
        if each == step:
            vacuum(pipeline)
            assert table_rows(pipeline) == rows_after(4 if table_shows(pipeline, 4) else 3)
    assert table(pipeline).version() > before
    assert table_rows(pipeline) == rows_after(4)
    for snapshot in pipeline.ledger("accounts").read().snapshots:
        if snapshot.state is State.COMPLETED and snapshot.manifest:
            snapshot_rows(pipeline, snapshot.id)


def table_shows(pipeline: Pipeline, rounds: int) -> bool:
    return len(table(pipeline).to_pyarrow_table()) == len(rows_after(rounds))


@pytest.mark.parametrize("step", STEPS)
def test_a_user_s_optimize_after_any_step_is_refused_by_name_until_it_is_reconciled(
    pipeline: Pipeline, step: str
) -> None:
    place = STEPS.index(step)
    for each in STEPS[: place + 1]:
        take(pipeline, each, 3)
    optimize(pipeline)
    assert table_rows(pipeline) == rows_after(4 if place >= STEPS.index("confirm") else 3)
    for each in STEPS[place + 1 : STEPS.index("confirm")]:
        take(pipeline, each, 3)
    number = 3
    if place >= STEPS.index("confirm"):
        number = 4
        for each in ("put", "materialize", "judge"):
            take(pipeline, each, number)
    with pytest.raises(RefusedError) as refused:
        take(pipeline, "confirm", number)
    assert refused.value.code == "FOREIGN_COMMIT"
    assert "--reconcile" in refused.value.hint
    take(pipeline, "confirm", number, reconcile=True)
    assert table_rows(pipeline) == rows_after(number + 1)
    assert snapshot_rows(pipeline, pipeline.ledger("accounts").read().latest.id) == rows_after(number + 1)  # type: ignore[union-attr]
    for each in ("subsume", "truncate"):
        take(pipeline, each, number)
    vacuum(pipeline)
    assert table_rows(pipeline) == rows_after(number + 1)


def test_a_protocol_of_others_is_left_by_a_new_table(pipeline: Pipeline) -> None:
    """RESTORE takes no protocol back: the printed way out does."""
    for each in STEPS[: STEPS.index("confirm")]:
        take(pipeline, each, 3)
    table(pipeline).alter.add_constraint({"positive": "id >= 0"})
    table(pipeline).restore(table(pipeline).version() - 1)
    for reconcile in (False, True):
        with pytest.raises(RefusedError) as refused:
            take(pipeline, "confirm", 3, reconcile=reconcile)
        assert "tidefold move rebuild accounts --table --yes" in refused.value.hint
    log = Path(pipeline.store.uri("tables/accounts/_delta_log").removeprefix("file://"))
    log.rename(pipeline.config.path.parent / "moved")
    assert rebuild_table(pipeline, "accounts", plan=False).error_code is None
    take(pipeline, "confirm", 3)
    assert table_rows(pipeline) == rows_after(4)
    for each in STEPS:
        take(pipeline, each, 4)
    assert table_rows(pipeline) == rows_after(5)


def test_a_user_s_delete_is_not_lost_unless_asked(pipeline: Pipeline) -> None:
    table(pipeline).delete("id = 25")
    for step in ("put", "materialize", "judge"):
        take(pipeline, step, 3)
    with pytest.raises(RefusedError, match="FOREIGN_COMMIT"):
        take(pipeline, "confirm", 3)
    assert 25 not in table_rows(pipeline)
    take(pipeline, "confirm", 3, reconcile=True)
    assert table_rows(pipeline) == rows_after(4)


def publish_round(pipeline: Pipeline, number: int) -> None:
    for step in ("put", "materialize", "judge", "confirm"):
        take(pipeline, step, number)


def test_a_table_that_was_left_by_hand_is_not_taken_for_ours(pipeline: Pipeline, tmp_path: Path) -> None:
    ours, kept = tmp_path / "store/tables/accounts", tmp_path / "kept"
    ours.rename(kept)
    drop(pipeline, "accounts", plan=False)
    ours.parent.mkdir(exist_ok=True)
    kept.rename(ours)
    with pytest.raises(RefusedError, match="FOREIGN_COMMIT"):
        publish_round(pipeline, 50)


def test_a_table_written_before_the_log_began_is_never_overwritten(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    write_deltalake(pipeline.store.uri(LogPaths("accounts").table), pa.table({"x": [1]}))
    with pytest.raises(RefusedError):
        publish_round(pipeline, 0)
    assert table(pipeline).to_pyarrow_table().to_pydict() == {"x": [1]}


@pytest.mark.parametrize("properties", [{"delta.appendOnly": "true"}, {"delta.enableChangeDataFeed": "true"}])
def test_foreign_properties_stop_publication_by_name(pipeline: Pipeline, properties: dict[str, str]) -> None:
    table(pipeline).alter.set_table_properties(properties)
    with pytest.raises(RefusedError, match="FOREIGN_COMMIT") as refused:
        publish_round(pipeline, 3)
    assert "properties" in refused.value.message


def test_a_damaged_delta_log_is_a_typed_error(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "store/tables/accounts/_delta_log/00000000000000000000.json").write_text("nonsense")
    with pytest.raises(CorruptError):
        publish_round(pipeline, 3)


def test_a_publisher_that_sleeps_through_two_publishes_publishes_nothing(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes with everything in hand for version V+1 when the table is at V+2: it must not show old rows again."""
    for step in ("put", "materialize", "judge"):
        take(pipeline, step, 3)
    real, woken = publishing.PublishAttempt.commit, []

    def sleeps(*arguments):  # type: ignore[no-untyped-def]
        if not woken:
            woken.append(1)
            # Another process rolls this publication forward, and makes and publishes the next snapshot.
            confirm(pipeline, "accounts")
            for step in ("put", "materialize", "judge", "confirm", "subsume", "truncate"):
                take(pipeline, step, 4)
        return real(*arguments)

    monkeypatch.setattr(publishing.PublishAttempt, "commit", sleeps)
    shown = table(pipeline).version()
    outcome = confirm(pipeline, "accounts", Confirmation(run="run-3"))
    assert outcome.status == "published"
    assert table(pipeline).version() == shown + 2
    assert table_rows(pipeline) == rows_after(5)
    completed = [s for s in pipeline.ledger("accounts").read().snapshots if s.table_version is not None]
    assert [s.table_version for s in completed] == list(range(len(completed)))


def test_a_publisher_that_wakes_after_its_snapshot_was_replaced_shows_no_old_rows(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in ("put", "materialize", "judge"):
        take(pipeline, step, 3)
    real, woken = publishing.PublishAttempt.try_publish, []

    def sleeps(*arguments):  # type: ignore[no-untyped-def]
        if not woken:
            woken.append(1)
            confirm(pipeline, "accounts")
            for number in (4, 5):
                for step in ("put", "materialize", "judge", "confirm", "subsume", "truncate"):
                    take(pipeline, step, number)
        return real(*arguments)

    monkeypatch.setattr(publishing.PublishAttempt, "try_publish", sleeps)
    confirm(pipeline, "accounts", Confirmation(run="run-3"))
    assert table_rows(pipeline) == rows_after(6)
    abort(pipeline, "accounts", "nothing is open")
    assert table_rows(pipeline) == rows_after(6)


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview"])
def test_nothing_of_a_table_that_a_catalog_manages_is_deleted(template: Path, tmp_path: Path, feature: str) -> None:
    """Its newest commits may be in the catalog alone, so the files that readers see are not known."""
    pipeline = copy_pipeline(template, tmp_path / "store")
    publish_round(pipeline, 3)
    take(pipeline, "put", 4)
    take(pipeline, "materialize", 4)
    abort(pipeline, "accounts", "no need")
    log = tmp_path / "store" / pipeline.config.store / LogPaths("accounts").table / "_delta_log"
    newest = max(int(path.stem) for path in log.glob("*.json"))
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature], "writerFeatures": [feature]}
    lines = [{"commitInfo": {"operation": "SET TBLPROPERTIES"}}, {"protocol": protocol}]
    (log / f"{newest + 1:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    acts: list[Callable[[Pipeline], object]] = [
        lambda made: subsume(made, "accounts"),
        lambda made: truncate(made, "accounts"),
        lambda made: drop(made, "accounts", plan=False),
    ]
    for number, act in enumerate(acts):
        copied = copy_pipeline(tmp_path / "store", tmp_path / str(number))
        before = sorted(entry.path for entry in copied.store.list(""))
        with pytest.raises(RefusedError, match="A catalog manages the commits"):
            act(copied)
        assert sorted(entry.path for entry in copied.store.list("")) == before
    copied = copy_pipeline(tmp_path / "store", tmp_path / "cleaned")
    before = sorted(entry.path for entry in copied.store.list(""))
    assert [one.error_code for one in clean(copied, ["accounts"])][1:] == ["TABLE_CATALOG_MANAGED"]
    assert sorted(entry.path for entry in copied.store.list("")) == before


@pytest.mark.parametrize("full", [False, True])
def test_a_vacuum_of_somebody_else_leaves_incremental_snapshots(tmp_path: Path, full: bool) -> None:
    """N3: what the newest table version does not show any more belongs to older snapshots."""
    pipeline = make_pipeline(tmp_path, configured(local=False, retention="2"))
    cycle(pipeline, "run-1", FIRST, KindPolicy.INCREMENTAL)
    cycle(pipeline, "run-2", dict.fromkeys(range(40), "b"), KindPolicy.INCREMENTAL)
    table = DeltaTable(pipeline.store.uri(LogPaths(LOG).table))
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)
    _, batches = read_rows(pipeline, LOG, ReadRequest(snapshot=1))
    assert {row["id"]: row["text"] for batch in batches for row in batch.to_pylist()} == FIRST
