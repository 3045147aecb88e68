"""What a log can do after a plan was applied: verify, drill, restore, rebuild, retention, as-of, earlier rows, undo."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from support.commands import call, call_json
from support.effort import THOROUGH, rotate
from support.plan_lives import WALKS, Walk
from support.planned import DAY, apply, configure, find_shadow, land, plan, published, require_applied, run
from tidefold.errors import ConflictError, RefusedError
from tidefold.operations.ground.numbered_record import write_record
from tidefold.operations.ground.plan_records import find_plans
from tidefold.operations.plan.plan import make_plan
from tidefold.operations.plan.shadow import steps_in_process
from tidefold.quality.run.duckdb_rows import DuckDBEngine, open_engines
from tidefold.wiring import open_plan


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    with open_engines(1) as lend, lend() as one:
        yield one


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory, engine: DuckDBEngine) -> Path:
    """A log with two snapshots ordered by `created`, and a third one that a plan ordered by `changed`."""
    folder = tmp_path_factory.mktemp("applied")
    pipeline = configure(folder)
    first = DAY % (1, 0)
    land(folder, "b.csv", *(("U", i, 1, f"{i}.10", first, DAY % (5, 0)) for i in (1, 2, 3)))
    run(pipeline, "r1", engine)
    land(folder, "a.csv", *(("U", i, 1, f"{i}.20", first, DAY % (4, 0)) for i in (1, 2)), ("D", 3, 1, "", first, first))
    run(pipeline, "r2", engine)
    pipeline = configure(folder, order="[changed]")
    plan(pipeline, engine)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = call("plan", "orders", "--apply").output
        assert "snapshot 3 with 3 rows is version 2 of the table" in done
        assert "already: snapshot 3" not in done
        assert "already: snapshot 3 has the rows" in call("plan", "orders", "--apply").output
    assert not find_shadow(folder)
    return folder


@pytest.fixture
def log(applied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the log, at which the test works."""
    shutil.copytree(applied, tmp_path / "log")
    monkeypatch.chdir(tmp_path / "log")
    return tmp_path / "log"


def amounts(*words: str) -> dict[int, str]:
    return {row["id"]: row["amount"] for row in call_json("read", "orders", *words)["rows"]}


LONG_AGO = "2026-01-01T00:00:00+00:00"
NOW, BEFORE = {1: "1.10", 2: "2.10", 3: "3.10"}, {1: "1.20", 2: "2.20"}


def test_readers_see_one_commit_and_earlier_rows_stay_readable(log: Path) -> None:
    assert amounts() == NOW
    assert amounts("--snapshot", "2") == BEFORE
    table = DeltaTable(str(log / "store/tables/orders"))
    assert table.version() == 2
    table.load_as_version(1)
    assert {row["id"]: row["amount"] for row in table.to_pyarrow_table().to_pylist()} == BEFORE
    call("move", "export", "orders", "2", "--to", str(log / "before"))
    call("snapshot", "diff", "orders", "2", "3")


def test_the_history_and_an_explanation_name_the_plan_and_the_landed_files(log: Path) -> None:
    assert "made by a plan: order: created before, changed then" in call("snapshot", "history", "orders").output
    told = call("explain", "orders", "id=1").output
    assert "landed as b.csv, row 1" in told
    assert "a.csv, row 1" in told
    assert "not known any more" not in told
    assert "2 (" not in told.split("in kept snapshots")[-1]


def test_the_next_files_are_folded_and_everything_is_whole(log: Path) -> None:
    land(log, "c.csv", ("U", 1, 1, "1.30", DAY % (9, 0), DAY % (1, 0)), ("U", 4, 1, "4.10", DAY % (1, 0), DAY % (1, 0)))
    call("run")
    assert amounts() == {**NOW, 4: "4.10"}
    call("check", "verify", "orders", "--deep")
    call("check", "drill", "orders")
    call("move", "savepoint", "orders", "--to", str(log / "saved"))
    former = {path.name for path in (log / "store/changelog").rglob("*.seg")}
    call("retain", "truncate", "orders")
    call("retain", "clean", "orders")
    state = configure(log, order="[changed]").ledger("orders").read()
    needed = {Path(one.location.segment).name for one in state.change_sets}
    assert {path.name for path in (log / "store/changelog").rglob("*.seg")} == needed < former
    call("retain", "subsume", "orders")
    call("check", "verify", "orders")


def test_an_earlier_snapshot_is_not_restored_into_the_log_and_that_of_the_plan_is(log: Path) -> None:
    assert "SHAPE_OLDER" in call("restore", "orders", "2", "--log-position", "skip", code=3).output
    land(log, "c.csv", ("U", 1, 1, "9.90", DAY % (1, 0), DAY % (9, 0)))
    call("run")
    call("restore", "orders", "3", "--log-position", "replay")
    call("step", "quality")
    call("step", "confirm", "orders")
    assert amounts() == NOW
    call("run")
    assert amounts() == {**NOW, 1: "9.90"}


def test_a_lost_ledger_is_rebuilt(log: Path) -> None:
    shutil.rmtree(log / "store/logs/orders/ledger")
    shutil.rmtree(log / "store/logs/orders/pages", ignore_errors=True)
    call("move", "rebuild", "orders", "--yes")
    land(log, "c.csv", ("U", 4, 1, "4.10", DAY % (1, 0), DAY % (1, 0)))
    call("run")
    assert amounts() == {**NOW, 4: "4.10"}


def test_a_plan_of_the_former_lines_undoes_it(log: Path, engine: DuckDBEngine) -> None:
    made, _ = plan(configure(log), engine)
    assert made.counts["changed"] == 2
    assert made.counts["removed"] == 1
    call("plan", "orders", "--apply")
    assert amounts() == BEFORE
    call("check", "verify", "orders")
    # Twice is once: the same configuration changes nothing.
    made, _ = plan(configure(log), engine)
    assert not any(made.counts.values())


def test_files_that_came_in_one_ingest_are_known_after_a_plan(tmp_path: Path, engine: DuckDBEngine) -> None:
    """Their first number is the order `file` of their rows, in the next plan too."""
    shapes = ({"order": "[created, file]"}, {"key": "id, line"}, {"order": "[created, file]"})
    for number in (1, 2):
        pipeline = configure(tmp_path, **shapes[0])
        for line in (1, 2):
            land(tmp_path, f"{'ba'[number - 1]}{line}.csv", ("U", line, number, "1", DAY % (1, 0), DAY % (1, 0)))
        run(pipeline, f"r{number}", engine)
    shown = published(pipeline)
    for shape in shapes[1:]:
        plan(configure(tmp_path, **shape), engine)
        require_applied(configure(tmp_path, **shape), engine)
    assert published(configure(tmp_path, **shapes[0])) == shown


def test_who_needs_the_former_changes_is_named_and_nothing_changes(log: Path, engine: DuckDBEngine) -> None:
    plan(configure(log), engine)
    configure(log, order="[changed]")
    call("snapshot", "hold", "orders", "audit", "3", "--reason", "until May")
    call("consumer", "register", "orders", "mart", "--at", "4")
    before = configure(log).ledger("orders").read()
    said = call("plan", "orders", "--apply", code=3).output
    assert "PLAN_HELD" in said
    assert "hold `audit`; consumer `mart`" in said
    assert configure(log).ledger("orders").read() == before


def test_without_a_plan_nothing_is_applied(log: Path, engine: DuckDBEngine) -> None:
    configure(log, key="id, line")
    assert "PLAN_MISSING" in call("plan", "orders", "--apply", code=4).output
    (log / "suite.yaml").write_text("checks:\n  - row_count: {min: 9}\n")
    config = (log / "tidefold.yaml").read_text()
    (log / "tidefold.yaml").write_text(config.replace("quality: {", "quality: {suite: suite.yaml, "))
    assert json.loads(call("plan", "orders", "--format", "json", code=3).stdout)["plan"]["passed"] is False
    assert "PLAN_REFUSED" in call("plan", "orders", "--apply", code=3).output


def test_an_approved_plan_lapses_when_it_or_the_table_changes(log: Path, engine: DuckDBEngine) -> None:
    first, _ = plan(configure(log), engine)
    newest, _ = plan(configure(log), engine)
    with pytest.raises(RefusedError, match="PLAN_CHANGED"):
        apply(configure(log), engine, first.checksum)
    run(configure(log, order="[changed]"), "r9", engine, full=True)
    with pytest.raises(RefusedError, match="PLAN_CHANGED"):
        apply(configure(log), engine, newest.checksum)
    newest, _ = plan(configure(log), engine)
    assert [one.status for one in apply(configure(log), engine, newest.checksum)] == ["staged", "passed", "published"]


def test_a_plan_is_forgotten_when_it_is_old_and_when_its_log_is_dropped(log: Path, engine: DuckDBEngine) -> None:
    made, _ = plan(configure(log), engine)
    plan(configure(log, key="id, line"), engine)
    store = configure(log).store
    records = {paths.edit: record for paths, record in find_plans(store)}
    assert records[made.edit].plan == made
    assert len(records) == 3  # That which was applied still says what it changed.
    assert made.folder not in call("retain", "clean", "--dry-run").output
    for paths, record in find_plans(store):
        write_record(store, paths.records, replace(record, number=record.number + 1, begun_at=LONG_AGO))
    assert f"plans/orders/{made.edit}" in json.dumps(call_json("retain", "clean", "--dry-run"))
    assert len(find_plans(store)) == 3
    call("retain", "clean")
    assert find_plans(store) == []
    plan(configure(log), engine)
    call("retain", "drop", "orders", "--yes")
    assert find_plans(store) == []


def test_two_processes_that_plan_the_same_edit_are_told(log: Path, engine: DuckDBEngine) -> None:
    beside = open_plan(configure(log), "orders")
    steps = steps_in_process(beside, engine)

    def judge(*words: str) -> Any:
        plan(configure(log), engine)
        return steps.judge(*words)

    with pytest.raises(ConflictError, match="PLAN_BUSY"):
        make_plan(beside, "orders", replace(steps, judge=judge), 1)
    assert call("plan", "orders", "--apply").output.count("published") == 1


def test_snapshots_with_different_keys_are_not_compared(log: Path, engine: DuckDBEngine) -> None:
    made, _ = plan(configure(log, order="[changed]", key="id, line"), engine)
    assert not any(made.counts.values())
    call("plan", "orders", "--apply")
    assert (
        "[DIFF_KEYS] The keys of the snapshots of `orders` differ (id; later id, line)"
        in call("snapshot", "diff", "orders", "3", "4", code=3).output
    )
    assert "landed as b.csv, row 2" in call("explain", "orders", "id=2", "line=1").output


def test_snapshots_before_and_after_a_plan_are_compared_by_the_names_of_columns(
    log: Path, engine: DuckDBEngine
) -> None:
    made, _ = plan(configure(log, order="[created]"), engine)
    assert made.counts["changed"]
    call("plan", "orders", "--apply")
    told = json.loads(call("snapshot", "diff", "orders", "3", "4", "--format", "json").stdout)
    kinds = ("added", "removed", "changed")
    assert [told[kind] for kind in kinds] == [made.counts.get(kind, 0) for kind in kinds]
    assert "not compared" not in call("snapshot", "diff", "orders", "3", "4").output
    back = json.loads(call("snapshot", "diff", "orders", "4", "3", "--format", "json").stdout)
    assert back["changed"] == made.counts["changed"]
    assert "[SHAPE_OLDER]" in call("explain", "orders", "id=2", "--snapshot", "3", code=3).output


def test_a_plan_that_was_undone_is_not_called_applied(log: Path, engine: DuckDBEngine) -> None:
    former = (log / "tidefold.yaml").read_text()
    plan(configure(log, order="[created]"), engine)
    call("plan", "orders", "--apply")
    assert "already" in call("plan", "orders", "--apply").output
    edited = (log / "tidefold.yaml").read_text()
    (log / "tidefold.yaml").write_text(former)
    call("plan", "orders")
    call("plan", "orders", "--apply")
    (log / "tidefold.yaml").write_text(edited)
    assert "[PLAN_CHANGED]" in call("plan", "orders", "--apply", code=3).output
    call("plan", "orders")
    assert "published" in call("plan", "orders", "--apply").output


@pytest.mark.parametrize("seed", range(WALKS) if THOROUGH else [rotate(WALKS)])
def test_everything_that_a_log_can_do_keeps_the_rows_of_a_plan(tmp_path: Path, engine: DuckDBEngine, seed: int) -> None:
    """verify --deep, drill, savepoint, truncate, subsume, clean, compact, restore, rebuild, in any order."""
    Walk(tmp_path, seed, engine).play()


def test_rows_as_of_an_instant_before_it_are_those_of_an_undisturbed_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: DuckDBEngine
) -> None:
    timed = "UTC, commit_time: changed"
    live, undisturbed = tmp_path / "live", tmp_path / "undisturbed"
    pipelines = (
        configure(live, order="[created, changed]", zone=timed),
        configure(undisturbed, order="[changed]", zone=timed),
    )
    for number, day in enumerate((5, 3)):
        for folder, pipeline in zip((live, undisturbed), pipelines, strict=True):
            land(folder, f"{number}.csv", *(("U", i, 1, f"{day}.{i}0", DAY % (1, 0), DAY % (day, i)) for i in (1, 2)))
            run(pipeline, f"r{number}", engine)
    plan(configure(live, order="[changed]", zone=timed), engine)
    came = []
    for folder in (live, undisturbed):
        monkeypatch.chdir(folder)
        if folder is live:
            call("plan", "orders", "--apply")
        call("snapshot", "as-of", "orders", "--at", "2026-11-04T00:00:00Z")
        made = configure(folder, order="[changed]", zone=timed).ledger("orders").read().tags[-1].snapshot
        came.append(amounts("--snapshot", str(made)))
    assert came == [{1: "3.10", 2: "3.20"}] * 2


def test_an_apply_with_a_change_feed_is_refused_by_name(log: Path, engine: DuckDBEngine) -> None:
    plan(configure(log, more="    change_feed: true\n"), engine)
    assert "readers of `change_feed`" in call("plan", "orders", "--apply", code=3).output
