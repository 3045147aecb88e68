"""Expired rows: in savepoints and exports, in incremental snapshots, in tables at rest, for readers. Requirement N10.

These are the cases of Flink's TtlStateTestBase: clean-up when a snapshot is taken, and whether expired rows are seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import polars
import pytest

from support.arrival import Landing
from support.faults import Killed
from support.pipelines import CONFIG, judge_all, make_pipeline, put
from support.savepoints import bring_in, save
from tidefold.cli.commands.setup import find_idle_settings
from tidefold.compute.runners import TaskAnswer, TaskWork, in_process
from tidefold.config import Config
from tidefold.domain.external_snapshot import Layout
from tidefold.domain.log_state import Expire, SnapshotKind
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.errors import StorageError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.inspect.diff import diff
from tidefold.operations.requests import Fold
from tidefold.operations.restore.export import restore_to
from tidefold.operations.snapshot import fold as fold_module
from tidefold.operations.snapshot.compact_log import take_tail
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize

NOW = datetime.now(UTC)
YOUNG, OLD = set(range(30)), set(range(30, 40))


def configured(ttl: str = "", kind: str = "incremental", column: str = "timestamp") -> str:
    aged = CONFIG.replace("columns: {id: int, text: string}", f"columns: {{id: int, text: string, at: {column}}}", 1)
    aged = aged.replace("    buckets: 4\n", f"    buckets: 4\n    ttl: {{column: at, days: 30{ttl}}}\n", 1)
    return aged.replace("store: store\n", f"store: store\nsnapshots: {{kind: {kind}}}\n")


def aged_row(key: int, days: float | None, column: str = "timestamp", text: str = "a") -> dict[str, object]:
    if days is None:
        return {"id": key, "text": text, "at": None}
    at = NOW - timedelta(days=days)
    return {"id": key, "text": text, "at": at if column == "timestamp" else at.date()}


def make(folder: Path, ttl: str = "", kind: str = "incremental", column: str = "timestamp") -> Pipeline:
    """One snapshot with young rows, expired ones, and one without an age (99)."""
    pipeline = make_pipeline(folder, configured(ttl, kind, column))
    put(pipeline, [aged_row(i, 1 if i in YOUNG else 40, column) for i in YOUNG | OLD] + [aged_row(99, None)])
    cycle(pipeline, "run-1")
    return pipeline


def fold(pipeline: Pipeline, run: str, kind: KindPolicy | None = None) -> Outcome:
    [outcome] = materialize(pipeline, ["accounts"], Fold(run, kind=kind), in_process)
    return outcome


def cycle(pipeline: Pipeline, run: str) -> Outcome:
    outcome = fold(pipeline, run)
    assert outcome.status == "staged", outcome
    judge_all(pipeline)
    confirm(pipeline, "accounts", Confirmation(run=run))
    return outcome


def read_ids(pipeline: Pipeline, snapshot: int | None = None, what: What = What.TABLE) -> set[int]:
    _, batches = read_rows(pipeline, "accounts", ReadRequest(what, snapshot))
    return {row["id"] for batch in batches for row in batch.to_pylist()}


@pytest.mark.parametrize("column", ["timestamp", "date"])
@pytest.mark.parametrize("layout", list(Layout))
def test_a_savepoint_has_no_expired_rows(tmp_path: Path, layout: Layout, column: str) -> None:
    """N10, N9: also of a tail, whose change sets bring expired rows; the store keeps its own."""
    pipeline = make(tmp_path / "one", column=column)
    put(pipeline, [aged_row(100, 1, column), aged_row(101, 40, column)])
    take_tail(pipeline, "accounts", "tail")
    for snapshot, wanted in ((1, YOUNG | {99}), (2, YOUNG | {99, 100})):
        to = tmp_path / f"save-{snapshot}"
        saved = save(pipeline, to, layout, snapshot=snapshot)
        assert (saved.status, saved.facts["rows"]) == ("saved", len(wanted))
        pattern = "_data/*.parquet" if layout is Layout.NATIVE else "rows/*.parquet"
        assert set(polars.read_parquet(to / pattern)["id"]) == wanted
    assert read_ids(pipeline, 1) == YOUNG | OLD | {99}
    other = make_pipeline(tmp_path / "two", configured(column=column))
    bring_in(other, tmp_path / "save-1")
    assert read_ids(other) == YOUNG | {99}


def test_an_export_has_no_expired_rows(tmp_path: Path) -> None:
    """N10: `move export`."""
    pipeline = make(tmp_path / "one")
    outcome = restore_to(pipeline, "accounts", 1, str(tmp_path / "to"))
    assert outcome.facts["rows"] == 31
    assert set(polars.read_delta(str(tmp_path / "to"))["id"]) == YOUNG | {99}


def test_incremental_snapshots_expire_rows_at_the_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N10: the first one does, then none until the interval has passed; files without expired rows are shared."""
    pipeline = make(tmp_path, ", cleanup_interval: 12h")
    assert read_ids(pipeline) == YOUNG | {99}
    seen, begun = {}, datetime.now(UTC)  # A long run of all tests loads this module an hour before.
    for hours in (1, 11, 13, 14):
        at = begun + timedelta(hours=hours)
        monkeypatch.setattr(fold_module, "now", lambda at=at: at.isoformat())
        put(pipeline, [aged_row(200 + hours, 40)])
        outcome = cycle(pipeline, f"then-{hours}")
        assert outcome.facts["kind"] == SnapshotKind.INCREMENTAL
        seen[hours] = (outcome.facts["expired"], read_ids(pipeline) - YOUNG - {99})
    assert seen == {1: (0, {201}), 11: (0, {201, 211}), 13: (3, set()), 14: (0, {214})}


@pytest.mark.parametrize("kind", ["incremental", "full"])
def test_a_table_at_rest_expires_on_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """N10: a run without changes makes a snapshot when rows have expired and the interval has passed, not before."""
    pipeline = make(tmp_path, ", cleanup_interval: 12h", kind)
    put(pipeline, [aged_row(1, 29.5, text="about to expire")])
    cycle(pipeline, "run-2")
    found, begun = {}, datetime.now(UTC)
    for hours in (1, 11, 13, 14, 30):
        at = begun + timedelta(hours=hours)
        monkeypatch.setattr(fold_module, "now", lambda at=at: at.isoformat())
        outcome = fold(pipeline, f"idle-{hours}")
        found[hours] = outcome.status
        if outcome.status == "staged":
            assert outcome.facts["expired"] == 1
            judge_all(pipeline)
            confirm(pipeline, "accounts")
    assert found == {1: "nothing", 11: "nothing", 13: "staged", 14: "nothing", 30: "nothing"}
    assert 1 not in read_ids(pipeline)


def test_without_an_interval_only_full_snapshots_expire_rows(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    assert fold(pipeline, "idle").status == "nothing"
    assert read_ids(pipeline) == YOUNG | OLD | {99}


def test_validate_warns_of_rows_that_never_expire(tmp_path: Path) -> None:
    def find(ttl: str = "", kind: str = "incremental") -> tuple[Config, list[str]]:
        config = make_pipeline(tmp_path, configured(ttl, kind)).config
        return config, list(find_idle_settings(config))

    [warning] = find()[1]
    assert warning.startswith("accounts: `ttl` drops no row")
    assert find(", cleanup_interval: 1d")[1] == find(kind="full")[1] == find(kind="auto")[1] == []


@pytest.mark.parametrize("hides", [True, False])
def test_readers_see_expired_rows_only_if_they_may(tmp_path: Path, hides: bool) -> None:
    """N10: Flink's StateVisibility. A comparison of snapshots always has all rows."""
    visibility = "never-return-expired" if hides else "return-expired-if-not-cleaned-up"
    pipeline = make(tmp_path, f", visibility: {visibility}")
    put(pipeline, [aged_row(100, 40), aged_row(101, 1)])
    take_tail(pipeline, "accounts", "tail")
    gone, late = (set(), set()) if hides else (OLD, {100})
    assert read_ids(pipeline) == read_ids(pipeline, 1) == YOUNG | {99} | gone
    assert read_ids(pipeline, 2) == read_ids(pipeline, what=What.LIVE) == YOUNG | {99, 101} | gone | late
    assert diff(pipeline, "accounts", 1, 2).counts["added"] == 2
    # The log has every change, whatever its age.
    assert len(read_ids(pipeline, what=What.LOG)) == 43


def test_the_filter_of_the_documentation_hides_the_same_rows(tmp_path: Path) -> None:
    """docs/how-to/read.md has it for plain readers."""
    pipeline = make(tmp_path, ", visibility: never-return-expired")
    table = polars.read_delta(pipeline.store.uri("tables/accounts"))
    limit = datetime.now(UTC) - timedelta(days=30)
    visible = table.filter(polars.col("at").is_null() | (polars.col("at") >= limit))
    assert set(visible["id"]) == read_ids(pipeline)


def test_the_limit_of_a_clean_up_is_kept_with_its_snapshot(tmp_path: Path) -> None:
    """I24: a retry drops the same rows."""
    pipeline = make(tmp_path, ", cleanup_interval: 1d")
    [made] = pipeline.ledger("accounts").read().snapshots
    assert isinstance(made.expire, Expire)
    assert made.kind is SnapshotKind.INCREMENTAL


@pytest.mark.rotates(6)
@pytest.mark.parametrize("kind", ["full", "incremental"])
@pytest.mark.parametrize(("row_drop", "code"), [(0.5, 3), (1, 0)])
@pytest.mark.parametrize("ageless", [0, 1])
def test_a_table_that_loses_all_rows_by_their_age_is_not_published(
    tmp_path: Path, kind: str, row_drop: float, code: int, ageless: int
) -> None:
    """As a wrong clock makes it. Here the limit jumps, which the run cannot tell from its clock."""
    lines = (
        "key: [id]\ncolumns: {id: long, at: date}\norder: file\nttl: {column: at, days: 36500, cleanup_interval: 1d}"
    )
    logs = {"o": f"{lines}\nquality: {{max_row_drop: {row_drop}}}"}
    at = Landing.make(tmp_path / "at", logs, "format: csv", f"snapshots: {{kind: {kind}}}\n")
    begun = [{"id": key, "at": "2020-01-01"} for key in range(4)] + [{"id": 9, "at": None}] * ageless
    at.land("first.csv", begun)
    at.run()
    at.edit("days: 36500", "days: 30")
    at.land("second.csv", [{"id": 5, "at": "2020-01-02"}])
    said = at.run(code=code).output
    assert ("dropped all 5 rows with an age" in said) == (code == 3)
    assert len(at.rows("o")) == (4 + ageless if code else ageless)
    # Some rows that are young enough: those that go are as expected.
    at.land("third.csv", [{"id": 6, "at": f"{NOW:%Y-%m-%d}"}])
    at.run()
    assert len(at.rows("o")) == 1 + ageless


@pytest.mark.parametrize("how", ["killed", "failed"])
def test_a_retry_on_the_next_day_drops_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """I6, I24, N10: the limit is fixed when the run begins, as the docs say, whenever it is tried again."""
    columns = "columns: {id: int, text: string, at: date}\n    ttl: {column: at, days: 10}"
    pipeline = make_pipeline(tmp_path, CONFIG.replace("columns: {id: int, text: string}", columns, 1))
    put(pipeline, [{"id": day, "text": "a", "at": date(2026, 1, day)} for day in range(1, 31)])
    monkeypatch.setattr("tidefold.operations.snapshot.fold.now", lambda: "2026-01-30T23:59:00+00:00")

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        if how == "killed":
            raise Killed
        return [StorageError("STORAGE", "The disk is full.") for _ in tasks]

    with suppress(Killed):
        materialize(pipeline, ["accounts"], Fold("run-1"), run)
    monkeypatch.setattr("tidefold.operations.snapshot.fold.now", lambda: "2026-01-31T00:01:00+00:00")
    assert fold(pipeline, "run-1").facts["rows"] == 11
    snapshots = pipeline.ledger("accounts").read().snapshots
    assert len({snapshot.expire for snapshot in snapshots}) == 1
