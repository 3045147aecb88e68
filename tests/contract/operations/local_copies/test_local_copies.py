"""Local copies: whole or not offered, never a reason for a step to fail, with a retention of their own.

Requirements L1, L2, L4, L5, C6, C7, C13; promises I15, I16, I18.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.effort import choose, list_moments
from support.faults import Fault, Killed
from support.local_copies import (
    PAIR,
    FailingDisk,
    FullDisk,
    RottenStore,
    TidiedDisk,
    check_whole,
    copied_files,
    copies_of,
    cycle,
    disk,
    grown,
    land,
    make,
    offered,
    on,
    segments_here,
    stage,
    take,
)
from support.pipelines import contents, judge_all, rows_of, snapshot_rows, table_rows
from tidefold.changelog import write_intents
from tidefold.changelog.write_intents import Intent
from tidefold.cli.app import app
from tidefold.delta.published_table import delta_state
from tidefold.domain.log_state import State
from tidefold.domain.paths import LogPaths
from tidefold.errors import AlreadyExistsError, NotFoundError, RefusedError
from tidefold.operations.ground import recovery
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.inspect.status import status
from tidefold.operations.local_copies.manage import retain_local
from tidefold.operations.retention.clean import drop
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import confirm
from tidefold.storage.local_copies import copies
from tidefold.storage.local_store import LocalStore
from tidefold.wiring import open_pipeline


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return make(tmp_path)


def retain(pipeline: Pipeline, log: str = "items", plan: bool = False) -> dict[str, Any]:
    [outcome] = retain_local(pipeline, [log], plan)
    assert outcome.error_code is None
    return {"result": outcome.status, "message": outcome.message, **outcome.facts}


# The life of copies.


def test_a_segment_and_a_snapshot_are_copied_whole_and_as_bytes_of_their_own(pipeline: Pipeline) -> None:
    """L1, C6: the same names and bytes; never the same file on disk, for that would be one copy."""
    land(pipeline, 0, 5)
    assert [o.facts["no_local_copy"] for o in take(pipeline)] == [[], []]
    [segment] = segments_here(pipeline)
    assert disk(pipeline).read(segment) == pipeline.store.read(segment)
    staged = stage(pipeline, "run-1")
    copy = Path(disk(pipeline).uri("items/0000000001"))
    primary = Path(pipeline.store.uri(LogPaths("items").snapshot(1)))
    manifest = pipeline.store.read(LogPaths("items").manifest(1))
    in_store, here = contents(primary), contents(copy)
    # Its Delta log is made of the manifest: it says the same, at another time.
    assert here.keys() == {*in_store, "manifest"}
    assert {p: b for p, b in here.items() if "_delta_log" not in p} == {
        **{p: b for p, b in in_store.items() if "_delta_log" not in p},
        "manifest": manifest,
    }
    assert delta_state(disk(pipeline), "items/0000000001") == delta_state(pipeline.store, LogPaths("items").snapshot(1))
    assert all(path.stat().st_nlink == 1 for path in copy.rglob("*") if path.is_file())
    whole = staged.facts["bytes_full"]
    came = {"bytes": whole, "linked": 0, "from_local": 0, "from_primary": whole}
    assert staged.facts["local"] == {**came, "warning": None}


def test_a_copy_is_offered_only_when_its_snapshot_is_completed(pipeline: Pipeline) -> None:
    """I16."""
    land(pipeline, 0, 5)
    take(pipeline)
    stage(pipeline, "run-1")
    assert offered(pipeline) == ()
    judge_all(pipeline, "items")
    assert offered(pipeline) == ()
    confirm(pipeline, "items")
    assert offered(pipeline) == (1,)
    assert rows_of(disk(pipeline).uri("items/0000000001")) == snapshot_rows(pipeline, 1, "items")


@pytest.mark.parametrize(
    ("part", "harm"),
    [("manifest", "gone"), ("manifest", "cut"), ("_data", "gone"), ("_data", "cut"), ("_delta_log", "gone")],
)
def test_a_copy_that_lost_something_is_not_offered(pipeline: Pipeline, part: str, harm: str) -> None:
    """I16."""
    grown(pipeline, 1)
    path = next(p for p in copied_files(pipeline) if p.startswith(f"items/0000000001/{part}"))
    full = Path(disk(pipeline).uri(path))
    data = full.read_bytes()
    full.unlink()
    if harm == "cut":
        full.write_bytes(data[:-1])
    assert offered(pipeline) == ()
    assert offered(pipeline, "orders") == (1,)


def test_life_with_and_without_copies_leaves_the_same_tables(tmp_path: Path) -> None:
    """L5: what is local changes nothing of what is primary."""
    copying, plain = make(tmp_path / "on"), make(tmp_path / "off")
    without = Pipeline(plain.config, plain.store)
    for pipeline in (copying, without):
        grown(pipeline, 3)
        for log in PAIR:
            subsume(pipeline, log)
            truncate(pipeline, log)
        retain_local(pipeline, PAIR)
    assert table_rows(copying, "items") == table_rows(without, "items")
    assert not (tmp_path / "off" / "local").exists()
    check_whole(copying)


def test_nothing_is_copied_and_nothing_looked_at_when_copies_are_disabled(pipeline: Pipeline, tmp_path: Path) -> None:
    """L3: disabled is the default."""
    without = Pipeline(pipeline.config, pipeline.store)
    grown(without, 1)
    assert "local" not in stage(without, "run-2").facts
    assert [o.message for o in retain_local(without, PAIR)] == ["local copies are disabled"] * 2
    assert not (tmp_path / "local").exists()


def test_two_pipelines_share_a_disk_and_nothing_on_it(tmp_path: Path) -> None:
    """L3: the path names the pipeline; retention of one leaves the other's copies alone."""
    first, path = make(tmp_path / "a"), make(tmp_path / "b").config.path
    path.write_text(path.read_text().replace("path: local", f"path: {tmp_path}/a/local"))
    second = open_pipeline(path)
    grown(first, 2)
    grown(second, 1)
    before = contents(disk(first).root)
    retain_local(second, PAIR)
    drop(second, "items", plan=False)
    assert contents(disk(first).root) == before
    assert copies_of(second) == []
    assert copies_of(second, "orders") == ["orders/0000000001"]


def test_a_folder_gets_its_final_name_only_if_that_is_free(tmp_path: Path) -> None:
    """L4: a copy that is there is never replaced."""
    store = LocalStore(tmp_path)
    store.put_if_absent("a.ongoing/x", b"new")
    store.put_if_absent("a/x", b"old")
    with pytest.raises(AlreadyExistsError):
        store.rename_folder("a.ongoing", "a")
    assert (store.read("a/x"), store.read("a.ongoing/x")) == (b"old", b"new")
    store.delete(["a/x"])
    store.rename_folder("a.ongoing", "a")
    assert [entry.path for entry in store.list("")] == ["a/x"]
    with pytest.raises(NotFoundError):
        store.rename_folder("a.ongoing", "b")


# Nothing local fails a step.


def act(pipeline: Pipeline) -> list[Any]:
    outcomes: list[Any] = [*cycle(pipeline, "run-2", ["items"]), *retain_local(pipeline, ["items"])]
    status(pipeline, ["items"])
    return outcomes


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with one published snapshot, and landed changes."""
    root = tmp_path_factory.mktemp("template")
    made = grown(make(root), 1, ["items"])
    land(made, 20, 5, ["items"])
    return root


def failing(
    template: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, at: int | None = None, **fault: Any
) -> tuple[Pipeline, FailingDisk]:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder)
    pipeline = make(folder)
    # The copied store has another address, and so another local folder: the copies move with it.
    [old] = (folder / "local").iterdir()
    old.rename(disk(pipeline).root)
    # One after the other, so that calls have numbers.
    monkeypatch.setattr(copies, "_COPIERS", 1)
    local = FailingDisk(disk(pipeline).root, at=at, **fault)
    return on(pipeline, monkeypatch, local), local


ERRORS = [(fault, ever) for fault in (Fault.ERROR_BEFORE, Fault.ERROR_AFTER) for ever in (False, True)]


@pytest.mark.rotates(4)
@pytest.mark.parametrize(
    ("fault", "for_ever"), ERRORS, ids=lambda value: value.name.lower() if isinstance(value, Fault) else str(value)
)
def test_any_call_to_the_local_disk_may_fail_and_no_step_does(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, for_ever: bool
) -> None:
    """I15, I16, L2: warnings only; no copy is offered that is not whole; the next retention leaves nothing over."""
    pipeline, counted = failing(template, tmp_path / "copy", monkeypatch)
    act(pipeline)
    calls, expected = counted.calls, table_rows(pipeline, "items")
    assert calls > 20
    warned = 0
    for at in list_moments(calls, fault):
        pipeline, counted = failing(template, tmp_path / "copy", monkeypatch, at, fault=fault, for_ever=for_ever)
        outcomes = act(pipeline)
        assert [o.error for o in outcomes if o.error] == []
        warned += any("copy" in o.message and ("no local" in o.message or "left" in o.message) for o in outcomes)
        assert table_rows(pipeline, "items") == expected
        healthy = make(tmp_path / "copy")
        check_whole(healthy)
        assert retain(healthy)["warnings"] == []
        assert set(copies_of(healthy)) <= {"items/0000000002"}
        assert offered(healthy) == tuple(2 for _ in copies_of(healthy))
    assert warned > choose(1, 4)
    print(f"{calls} local calls failed in turn: {fault}, for ever: {for_ever}; {warned} said so")


@pytest.mark.rotates(2)
@pytest.mark.parametrize("fault", [Fault.KILLED_BEFORE, Fault.KILLED_AFTER], ids=lambda f: f.name.lower())
def test_a_process_that_dies_while_it_copies_leaves_no_half_that_counts(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """L4, I16, I19: what it left has another name, or no manifest; the next runs go on and tidy up."""
    pipeline, counted = failing(template, tmp_path / "copy", monkeypatch)
    act(pipeline)
    calls = counted.calls
    ongoing = unhurt = 0
    for at in list_moments(calls, fault):
        pipeline, _ = failing(template, tmp_path / "copy", monkeypatch, at, fault=fault)
        # A call that failed by itself (nothing there to read) has no moment after it took effect.
        with suppress(Killed):
            act(pipeline)
            unhurt += 1
        healthy = make(tmp_path / "copy")
        check_whole(healthy)
        ongoing += any(name.endswith(".ongoing") for name in copies_of(healthy))
        monkeypatch.undo()
        abort(healthy, "items", "its process died")
        land(healthy, 60, 2, ["items"])
        cycle(healthy, "run-after", ["items"])
        for run in write_intents.read_announced(healthy.store):
            recovery.recover_run(healthy.store, run)
        retain(healthy)
        newest = healthy.ledger("items").read().latest
        assert newest
        assert (copies_of(healthy), offered(healthy)) == ([f"items/{newest.id:010d}"], (newest.id,))
        assert [p for p in copied_files(healthy) if p.endswith(".part")] == []
    assert ongoing > choose(1, 5)
    assert unhurt < 3
    print(f"{calls} kills; {ongoing} of them left a copy that was being written")


def test_an_abort_succeeds_whatever_becomes_of_the_local_copy(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C7, I15: what abort could not prune goes with the next retention, and never counts."""
    root = tmp_path / "staged"
    staged, _ = failing(template, root, monkeypatch)
    take(staged, ["items"])
    stage(staged, "run-2")
    whole, counted = failing(root, tmp_path / "copy", monkeypatch)
    abort(whole, "items", "made to")
    assert counted.calls > 3
    for at in range(counted.calls):
        pipeline, _ = failing(root, tmp_path / "copy", monkeypatch, at, fault=Fault.ERROR_BEFORE)
        assert abort(pipeline, "items", "made to").status == "aborted"
        healthy = make(tmp_path / "copy")
        assert offered(healthy) == (1,)
        retain(healthy)
        assert copies_of(healthy) == ["items/0000000001"]


def test_a_full_disk_costs_the_copies_and_nothing_else(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """I15: each outcome says it; no file is left of what was begun."""
    full = on(pipeline, monkeypatch, FullDisk(disk(pipeline).root))
    land(full, 0, 5)
    [taken, *_] = outcomes = cycle(full, "run-1")
    assert all(o.error_code is None for o in outcomes)
    assert "No space left" in taken.message
    assert "No space left" in taken.facts["no_local_copy"][0]
    assert all("No space left" in o.facts["local"]["warning"] for o in outcomes[2:])
    assert [p for p in (tmp_path / "local").rglob("*") if p.is_file()] == []
    assert table_rows(full, "items") == {i: f"t{1000 + i}" for i in range(5)}


def test_a_copy_that_loses_a_file_while_it_is_made_is_no_copy(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I16: a clean-up of another process took the writer for dead."""
    tidied = on(pipeline, monkeypatch, TidiedDisk(disk(pipeline).root))
    land(tidied, 0, 5)
    outcomes = cycle(tidied, "run-1", ["items"])
    assert "disappeared while tidefold wrote it" in outcomes[-1].facts["local"]["warning"]
    assert (offered(pipeline), copies_of(pipeline)) == ((), [])


def test_a_file_where_the_folder_should_be_is_a_warning_everywhere(pipeline: Pipeline, tmp_path: Path) -> None:
    """I15: no step fails, retention and status among them."""
    (tmp_path / "local").write_text("in the way")
    land(pipeline, 0, 5)
    assert all(o.error_code is None for o in cycle(pipeline, "run-1"))
    assert retain(pipeline)["warnings"]
    assert [s.local for s in status(pipeline, PAIR)] == [(), ()]
    assert drop(pipeline, "items", plan=False).status == "dropped"
    assert (tmp_path / "local").read_text() == "in the way"


def test_a_folder_that_vanishes_takes_its_copies_and_nothing_else(pipeline: Pipeline, tmp_path: Path) -> None:
    """L7: a lost disk means lost local copies."""
    grown(pipeline, 2)
    shutil.rmtree(tmp_path / "local")
    assert (offered(pipeline), retain(pipeline)["result"]) == ((), "nothing")
    land(pipeline, 60)
    cycle(pipeline, "run-after")
    assert offered(pipeline) == (3,)


def test_a_primary_file_that_is_not_what_was_staged_fails_the_snapshot(pipeline: Pipeline) -> None:
    """I15: a primary failure always does, also where only copying shows it."""
    rotten = Pipeline(pipeline.config, RottenStore(Path(pipeline.store.uri(""))), pipeline.local)
    land(pipeline, 0, 5)
    take(pipeline)
    outcome = stage(rotten, "run-1")
    assert outcome.error_code == "STAGED_FILE_CHANGED"
    assert [s.state for s in pipeline.ledger("items").read().snapshots] == [State.ABORTED]
    assert copies_of(pipeline) == []
    cycle(pipeline, "run-2", ["items"])
    assert len(table_rows(pipeline, "items")) == 5


# Retention of its own.


def test_one_copy_is_kept_whatever_the_store_keeps(pipeline: Pipeline) -> None:
    """I18, L5: three snapshots in the store, one copy here: the newest."""
    grown(pipeline, 3)
    assert copies_of(pipeline) == [f"items/{i:010d}" for i in (1, 2, 3)]
    planned = retain(pipeline, plan=True)
    before = contents(disk(pipeline).root)
    assert retain(pipeline, plan=True) == planned
    assert contents(disk(pipeline).root) == before
    done = retain(pipeline)
    gone = set(before) - set(contents(disk(pipeline).root))
    assert (planned["result"], done["result"]) == ("planned", "removed")
    assert sorted(planned["paths"]) == sorted(done["paths"]) == sorted(gone)
    assert planned["bytes"] == done["bytes"] == sum(len(before[path]) for path in gone)
    assert planned["snapshots"] == [1, 2]
    assert (copies_of(pipeline), offered(pipeline)) == (["items/0000000003"], (3,))
    assert len(copies_of(pipeline, "orders")) == 3
    assert [s.state for s in pipeline.ledger("items").read().snapshots] == [State.COMPLETED] * 3
    assert retain(pipeline)["result"] == "nothing"


def test_a_copy_that_is_being_judged_or_written_stays(pipeline: Pipeline) -> None:
    """L4: clean-up never takes what somebody may still complete."""
    grown(pipeline, 1)
    land(pipeline, 20)
    take(pipeline)
    stage(pipeline, "run-2")
    disk(pipeline).put_if_absent("items/0000000002.ongoing/_data/x.parquet", b"half")
    assert retain(pipeline)["snapshots"] == []
    assert copies_of(pipeline) == ["items/0000000001", "items/0000000002", "items/0000000002.ongoing"]
    judge_all(pipeline, "items")
    confirm(pipeline, "items")
    assert retain(pipeline)["snapshots"] == [1, 2]
    assert copies_of(pipeline) == ["items/0000000002"]


def test_abort_prunes_exactly_the_aborted_copy(pipeline: Pipeline) -> None:
    """C7, L5."""
    grown(pipeline, 2)
    land(pipeline, 40)
    take(pipeline)
    stage(pipeline, "run-3")
    half = Path(disk(pipeline).uri("items/0000000003.ongoing/x.parquet.0f.part"))
    half.parent.mkdir()
    half.write_bytes(b"half")
    assert copies_of(pipeline)[2:] == ["items/0000000003", "items/0000000003.ongoing"]
    before = [path for path in copied_files(pipeline) if not path.startswith("items/0000000003")]
    abort(pipeline, "items", "made to", 3)
    assert copied_files(pipeline) == before
    with pytest.raises(RefusedError):
        abort(pipeline, "items", "too late", 2)
    assert offered(pipeline) == (1, 2)


def test_copies_of_an_earlier_store_under_the_same_address_never_count(pipeline: Pipeline, tmp_path: Path) -> None:
    """I16: ids begin anew with a store; the manifest's checksum tells its snapshot from the old one."""
    grown(pipeline, 3)
    shutil.rmtree(tmp_path / "store")
    assert offered(pipeline) == ()
    again = make(tmp_path)
    take(again)
    stage(again, "run-new")
    judge_all(again, "items")
    assert confirm(again, "items").snapshot == 1
    assert offered(again) == (1,)
    check_whole(again)
    assert retain(again)["snapshots"] == [2, 3]
    assert copies_of(again) == ["items/0000000001"]


def test_a_segment_copy_goes_when_every_log_in_it_has_folded_it(pipeline: Pipeline) -> None:
    """C7: one segment of two logs; the slower one keeps it."""
    land(pipeline, 0, 3)
    take(pipeline)
    [segment] = segments_here(pipeline)
    stage(pipeline, "run-1")
    assert retain(pipeline)["files"] == 0
    judge_all(pipeline, "items")
    confirm(pipeline, "items")
    assert retain(pipeline)["files"] == 0
    stage(pipeline, "run-1", "orders")
    judge_all(pipeline, "orders")
    confirm(pipeline, "orders")
    assert retain(pipeline, plan=True)["paths"] == [segment]
    assert retain(pipeline)["paths"] == [segment]
    assert segments_here(pipeline) == []
    assert pipeline.store.read(segment)


def test_a_segment_that_nobody_names_goes_unless_a_run_is_writing_it(pipeline: Pipeline) -> None:
    """C7: what an ingest announced and has not ended stays, in halves too."""
    land(pipeline, 0, 3)
    take(pipeline)
    [segment] = segments_here(pipeline)
    stray, halves = "changelog/2026-01-01/stray.seg", ["changelog/d/a.seg.0123.part", "changelog/d/b.seg.4567.part"]
    disk(pipeline).put_if_absent(stray, disk(pipeline).read(segment))
    for half in halves:
        Path(disk(pipeline).uri(half)).parent.mkdir(parents=True, exist_ok=True)
        Path(disk(pipeline).uri(half)).write_bytes(b"half")
    names = tuple(half.split(".seg")[0] + ".seg" for half in halves)
    write_intents.begin(pipeline.store, Intent("run", 0, "2026-01-01T00:00:00+00:00", (), (stray, names[0])))
    assert retain(pipeline)["paths"] == [halves[1]]
    # The copy under a strange name holds change sets of both logs, and neither ledger names it.
    write_intents.end(pipeline.store, "run")
    assert sorted(retain(pipeline)["paths"]) == sorted([stray, halves[0]])
    assert segments_here(pipeline) == [segment]


def test_what_is_not_a_copy_is_left_alone(pipeline: Pipeline, tmp_path: Path) -> None:
    """Only copies below the pipeline's own folder are ever removed, and no link is followed."""
    grown(pipeline, 2)
    outside = tmp_path / "outside"
    (outside / "0000000001").mkdir(parents=True)
    (outside / "0000000001" / "manifest").write_text("mine")
    root = disk(pipeline).root
    os.symlink(outside, root / "linked")
    os.symlink(outside / "0000000001", root / "items" / "0000000009")
    (root / "README").write_text("mine")
    (root / "items" / "notes.txt").write_text("mine")
    (tmp_path / "local" / "other").mkdir()
    (tmp_path / "local" / "other" / "x").write_text("mine")
    retain_local(pipeline, PAIR)
    assert copies_of(pipeline) == ["items/0000000002"]
    assert (outside / "0000000001" / "manifest").read_text() == "mine"
    kept = [root / "README", root / "items" / "notes.txt", tmp_path / "local" / "other" / "x", root / "linked"]
    assert all(path.exists() for path in kept)


def test_drop_removes_the_copies_of_its_log(pipeline: Pipeline) -> None:
    """C13: also those of segments that go with it; a shared one stays for the other log."""
    grown(pipeline, 1)
    land(pipeline, 50, 1, ["items"])
    take(pipeline)
    alone = segments_here(pipeline)
    assert len(alone) == 2
    drop(pipeline, "items")
    assert copies_of(pipeline) == ["items/0000000001"]
    drop(pipeline, "items", plan=False)
    assert copies_of(pipeline) == []
    assert len(segments_here(pipeline)) == 1
    assert offered(pipeline, "orders") == (1,)


def test_a_ledger_that_cannot_be_read_keeps_its_copies(pipeline: Pipeline, tmp_path: Path) -> None:
    """I23: unreadable is not unneeded."""
    grown(pipeline, 2)
    newest = max((tmp_path / "store" / "logs" / "orders" / "ledger").iterdir())
    newest.write_bytes(b"{")
    before = copied_files(pipeline)
    found = {outcome.log: outcome for outcome in retain_local(pipeline, PAIR)}
    assert found["orders"].error_code == "UNREADABLE"
    left = copied_files(pipeline)
    assert [p for p in before if p.startswith("orders/")] == [p for p in left if p.startswith("orders/")]
    assert segments_here(pipeline) == [p for p in before if p.startswith("changelog/")]
    assert copies_of(pipeline) == ["items/0000000002"]


# What people see.


def call(pipeline: Pipeline, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "-c", str(pipeline.config.path)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_line_shows_copies_and_removes_them(pipeline: Pipeline) -> None:
    grown(pipeline, 2)
    assert "a local copy of snapshot 1, 2 is on this machine" in call(pipeline, "status", "items")
    assert [
        s["local"] for s in json.loads(call(pipeline, "snapshot", "history", "items", "--format", "json"))["snapshots"]
    ] == [
        True,
        True,
    ]
    assert "1: run run-1; a copy is on this machine" in call(pipeline, "snapshot", "history", "items")
    planned = call(pipeline, "retain", "clean", "--local", "items", "--dry-run")
    assert "would remove" in planned
    assert "items/0000000001/manifest" in planned
    assert offered(pipeline) == (1, 2)
    assert "removed" in call(pipeline, "retain", "clean", "--local")
    assert (offered(pipeline), offered(pipeline, "orders")) == ((2,), (2,))
    assert json.loads(call(pipeline, "status", "--format", "json"))["logs"][0]["local"] == [2]
