"""A ledger that went back, or is lost: refused by name, and nothing that a reader sees is touched. Promise I29."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import restoring
from support.effort import choose, rotate
from support.landing import record
from support.old_ledgers import (
    CONFIG,
    LOG,
    PATHS,
    begin,
    copied,
    fold,
    go_back,
    land,
    opened,
    publish,
    published,
    snapshots,
    take,
    versions,
)
from support.pipelines import contents, judge_all, make_pipeline, rows_of
from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.paths import DataFileName
from tidefold.domain.retention import references
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.errors import CorruptError, TidefoldError
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, plan_read
from tidefold.operations.inspect.status import status
from tidefold.operations.quality.judge import audit
from tidefold.operations.retention.clean import clean, drop
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.savepoint.take import SavepointRequest, take_savepoint
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.verify.scrub import scrub
from tidefold.operations.verify.verify import verify
from tidefold.wiring import open_pipeline

REFUSED = ("LEDGER_BEHIND", "LEDGER_LOST")


def live(root: Path, kind: str) -> None:
    """A whole life: three snapshots published, one aborted, one retired, the log cut; then one is staged and judged."""
    (root / "landing" / LOG).mkdir(parents=True)
    (root / "tidefold.yaml").write_text(CONFIG.format(kind=kind))
    for number in range(3):
        land(root, number * 3)
        take(root)
        fold(root, f"run-{number}")
        publish(root, f"run-{number}")
        subsume(opened(root), LOG)
    truncate(opened(root), LOG)
    land(root, 9)
    take(root)
    fold(root, "refused")
    abort(opened(root), LOG, "refused")
    opened(root).ledger(LOG).commit(lambda state: references.tag(state, "kept", 3))
    fold(root, "run-3")
    judge_all(opened(root))


@pytest.fixture(scope="module", params=["full", "incremental"])
def life(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("life") / "root"
    root.mkdir()
    live(root, request.param)
    return root


def run_all(root: Path) -> Outcome:
    """What a scheduled run does, each step in a process of its own."""
    for step in (lambda: take(root), lambda: fold(root, "next")):
        outcome = step()
        if outcome.error_code:
            return outcome
    if (state := opened(root).ledger(LOG).find()) and state.open_attempt:
        judge_all(opened(root))
    for act in (lambda p: confirm(p, LOG), lambda p: subsume(p, LOG), lambda p: truncate(p, LOG)):
        outcome = act(opened(root))
    return outcome


COMMANDS: dict[str, Callable[[Path], Outcome]] = {
    "ingest": take,
    "materialize": lambda root: fold(root, "next"),
    "takeover": lambda root: fold(root, "next", takeover=True),
    "abort": lambda root: abort(opened(root), LOG, "by hand"),
    "subsume": lambda root: subsume(opened(root), LOG),
    "truncate": lambda root: truncate(opened(root), LOG),
    "clean": lambda root: clean(opened(root), [LOG])[-1],
    "confirm": lambda root: confirm(opened(root), LOG),
    "run": run_all,
    "drop": lambda root: drop(opened(root), LOG, plan=False),
}


def call(command: str, root: Path) -> str:
    """The error's code, or empty."""
    try:
        return COMMANDS[command](root).error_code or ""
    except TidefoldError as error:
        return error.code


@pytest.mark.rotates(4)
def test_what_a_reader_sees_outlives_every_older_ledger(life: Path, tmp_path: Path) -> None:
    """Each number of lost versions, each command: refused by name, or harmless."""
    truth = opened(life).ledger(LOG).read()
    before, kept = published(life), snapshots(life, truth)
    known = {"", *REFUSED, "ATTEMPT_OPEN", "NOT_JUDGED", "WRONG_STATE", "ABORTED"}
    refused = 0
    step = choose(3, 1)
    counts = range(1 + rotate(step), len(versions(life)) + 1, step)
    for count in counts:
        root = copied(life, tmp_path / "copy")
        go_back(root, count)
        untouched = contents(root)
        for command in COMMANDS:
            code = call(command, root)
            assert code in known, (count, command, code)
            refused += code in REFUSED
            if code in REFUSED:
                assert contents(root) == untouched, (count, command)
                continue
            if command == "drop":
                continue_with = opened(root).ledger(LOG).find()
                assert continue_with is None or code
            else:
                after = published(root)
                assert after == before or command in ("confirm", "run"), (count, command)
                assert snapshots(root, truth).items() >= kept.items(), (count, command)
            root = copied(life, tmp_path / "copy")
            go_back(root, count)
    assert refused >= len(counts) * len(COMMANDS) / 2


@pytest.mark.rotates(6)
@pytest.mark.parametrize("kind", ["full", "incremental"])
@pytest.mark.parametrize(
    ("count", "commands"),
    [(6, ["ingest", "materialize"]), (3, ["abort"]), (4, ["takeover"]), (1_000, ["ingest", "materialize"] * 2)],
    ids=["claimed again", "reads staged", "reads ongoing", "lost"],
)
def test_ids_that_are_given_again_destroy_nothing(tmp_path: Path, kind: str, count: int, commands: list[str]) -> None:
    """The three ways in which a published table and its snapshots were lost."""
    root = begin(tmp_path, kind)
    before, kept = published(root), snapshots(root, opened(root).ledger(LOG).read())
    go_back(root, count)
    codes = [call(command, root) for command in commands]
    # What could not be taken in is nothing to fold.
    assert codes[0] in REFUSED
    assert set(codes) <= {"", *REFUSED}
    assert published(root) == before
    for snapshot, rows in kept.items():
        assert rows_of(opened(root).store.uri(PATHS.snapshot(snapshot))) == rows


def test_the_error_names_what_the_ledger_does_not_know(tmp_path: Path) -> None:
    root = begin(tmp_path)
    go_back(root, 6)
    with pytest.raises(CorruptError) as behind:
        abort(opened(root), LOG, "by hand")
    assert behind.value.code == "LEDGER_BEHIND"
    assert behind.value.message == (
        "Log `accounts`: snapshot 2 has a manifest, but the newest that its ledger knows is 1. "
        "The ledger is older than that; nothing was changed."
    )
    assert "`logs/accounts/ledger`" in behind.value.hint


def test_putting_the_newer_ledger_back_is_the_way_out(tmp_path: Path) -> None:
    root = begin(tmp_path / "root")
    shutil.copytree(root / "store" / PATHS.folder, tmp_path / "backup")
    go_back(root, 6)
    assert take(root).error_code == "LEDGER_BEHIND"
    shutil.copytree(tmp_path / "backup", root / "store" / PATHS.folder, dirs_exist_ok=True)
    assert take(root).status == "taken"
    assert fold(root, "run-2").status == "staged"
    publish(root, "run-2")
    assert len(published(root)) == 7


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_a_retirement_that_an_older_ledger_does_not_know_is_finished_again(tmp_path: Path, kind: str) -> None:
    """The newest version alone says that the files were deleted, and `clean` has deleted the manifest since."""
    (tmp_path / "landing" / LOG).mkdir(parents=True)
    (tmp_path / "tidefold.yaml").write_text(CONFIG.format(kind=kind))
    for number in range(3):
        land(tmp_path, number * 3)
        take(tmp_path)
        fold(tmp_path, f"run-{number}")
        publish(tmp_path, f"run-{number}")
    assert subsume(opened(tmp_path), LOG).status == "subsumed"
    clean(opened(tmp_path), [LOG])
    go_back(tmp_path, 1)
    shown = published(tmp_path)
    assert subsume(opened(tmp_path), LOG).status == "subsumed"
    assert published(tmp_path) == shown
    assert call("run", tmp_path) == ""


@pytest.mark.parametrize("left", ["tables", "snapshots", "manifests"])
def test_any_trace_of_a_snapshot_shows_that_a_ledger_was_lost(tmp_path: Path, left: str) -> None:
    root = begin(tmp_path)
    store = root / "store"
    traces = {"tables": PATHS.table, "snapshots": PATHS.snapshots, "manifests": PATHS.manifests}
    shutil.rmtree(store / PATHS.ledger)
    for name, folder in traces.items():
        if name != left:
            shutil.rmtree(store / folder)
    before = contents(store)
    assert take(root).error_code == "LEDGER_LOST"
    assert contents(store) == before


def plan_of_a_read(pipeline: Pipeline) -> Outcome:
    plan_read(pipeline, LOG, ReadRequest())
    return Outcome(LOG, Status.NOTHING, "planned")


def find_status(pipeline: Pipeline) -> Outcome:
    [found] = status(pipeline, [LOG])
    return found.error or Outcome(LOG, Status.NOTHING, "no error")


READERS: dict[str, Callable[[Pipeline], Outcome]] = {
    "status": find_status,
    "verify": lambda pipeline: verify(pipeline, LOG),
    "scrub": lambda pipeline: scrub(pipeline, LOG),
    "savepoint": lambda pipeline: take_savepoint(
        pipeline, LOG, SavepointRequest(str(pipeline.config.path.parent / "s"))
    ),
    "audit": lambda pipeline: audit(pipeline, [LOG], None, None)[0],
    "read": plan_of_a_read,
}


@pytest.mark.rotates(3)
@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("command", READERS)
def test_who_only_reads_is_not_told_an_old_state_for_today_s(tmp_path: Path, command: str, is_lost: bool) -> None:
    """The way out that each names is right: `verify` once advised to undo tidefold's own commits."""
    root = begin(tmp_path)
    if is_lost:
        shutil.rmtree(root / "store" / PATHS.ledger)
    else:
        go_back(root, 6)
    before = contents(root / "store")
    try:
        code = READERS[command](opened(root)).error_code
    except TidefoldError as error:
        code = error.code
    assert code == ("LEDGER_LOST" if is_lost else "LEDGER_BEHIND")
    assert contents(root / "store") == before


def test_segments_of_a_lost_log_are_left_alone(tmp_path: Path) -> None:
    root = begin(tmp_path)
    shutil.rmtree(root / "store" / PATHS.ledger)
    before = contents(root / "store" / "changelog")
    clean(opened(root), [LOG])
    assert contents(root / "store" / "changelog") == before


def foreign_commit(root: Path) -> None:
    from deltalake import DeltaTable

    DeltaTable(opened(root).store.uri(PATHS.table)).alter.set_table_properties({"delta.appendOnly": "false"})


def test_neither_commits_of_others_nor_a_clean_up_of_the_log_hide_it(tmp_path: Path) -> None:
    """Manifests are gone as well: the table alone shows it."""
    root = begin(tmp_path)
    before = published(root)
    go_back(root, 6)
    shutil.rmtree(root / "store" / PATHS.manifest(2)[: -len("/manifest")])
    for _ in range(3):
        foreign_commit(root)
        assert take(root).error_code == "LEDGER_BEHIND"
    from deltalake import DeltaTable

    table = DeltaTable(opened(root).store.uri(PATHS.table))
    table.create_checkpoint()
    for commit in sorted((root / "store" / PATHS.table / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    assert take(root).error_code == "LEDGER_BEHIND"
    assert published(root) == before


def test_foreign_commits_alone_are_no_sign_of_an_old_ledger(tmp_path: Path) -> None:
    root = begin(tmp_path)
    foreign_commit(root)
    assert take(root).status == "taken"


def test_another_ledger_s_attempt_of_the_same_id_and_epoch_is_left_alone(tmp_path: Path) -> None:
    """Nothing in the store shows the lost attempt yet: it only wrote files. What it wrote stays, by its token."""
    root = begin(tmp_path, "incremental")
    take(root)
    first = fold(root, "lost")
    lost = _attempt(root, first)
    go_back(root, 2)
    (root / "store" / PATHS.manifest(lost.id)).unlink()
    shutil.rmtree(root / "store" / PATHS.manifest(lost.id)[: -len("/manifest")], ignore_errors=True)
    again = _attempt(root, fold(root, "again"))
    assert (again.id, again.epoch) == (lost.id, lost.epoch)
    assert again.token != lost.token
    abort(opened(root), LOG, "by hand")
    tokens = {DataFileName.parse(p.name).token for p in (root / "store" / PATHS.table / "_data").glob("*.parquet")}
    assert lost.token in tokens
    assert again.token not in tokens


def _attempt(root: Path, outcome: Outcome) -> Snapshot:
    found = opened(root).ledger(LOG).read().snapshot(outcome.snapshot or 0)
    assert found
    return found


def test_a_snapshot_as_of_an_instant_outlives_an_older_ledger(tmp_path: Path) -> None:
    root = begin(tmp_path)
    at = record(4)["value"]["source"]["ts_us"]
    number = fold(root, "backfill", as_of=at).snapshot or 0
    _judge(root, number)
    confirm(opened(root), LOG, Confirmation(run="backfill"))
    rows = rows_of(opened(root).store.uri(PATHS.snapshot(number)))
    for count in (1, 2):
        other = copied(root, tmp_path.parent / f"{tmp_path.name}-{count}")
        go_back(other, count)
        with pytest.raises(CorruptError, match="was completed"):
            abort(opened(other), LOG, "by hand", snapshot=number)
        assert rows_of(opened(other).store.uri(PATHS.snapshot(number))) == rows


def _judge(root: Path, snapshot: int) -> None:
    from support.builders import verdict_for
    from tidefold.domain.snapshot import transitions

    def judged(state: LogState) -> LogState:
        found = state.snapshot(snapshot)
        assert found
        return transitions.record_verdict(state, snapshot, verdict_for(found))

    opened(root).ledger(LOG).commit(judged)


def test_manifests_of_aborted_and_deleted_snapshots_go(life: Path, tmp_path: Path) -> None:
    root = copied(life, tmp_path / "copy")
    clean(opened(root), [LOG])
    state = opened(root).ledger(LOG).read()
    kept = {s.id for s in state.snapshots if s.state in (State.COMPLETED, State.STAGED, State.SUBSUMED)}
    there = {int(path.parent.name) for path in (root / "store" / PATHS.manifests).glob("*/manifest")}
    assert there == kept


def test_who_was_fenced_by_an_older_ledger_cannot_stage(tmp_path: Path) -> None:
    """Its id and epoch were given again: what it made is not what was claimed."""
    from support.builders import manifest_of
    from tidefold.domain.snapshot import transitions
    from tidefold.errors import SupersededError

    root = begin(tmp_path)
    take(root)
    ledger = opened(root).ledger(LOG)
    mine = _attempt(root, fold(root, "run-2"))
    state = ledger.read()
    other = manifest_of(state, Snapshot(**{**_fields(mine), "token": "0" * 16}))
    with pytest.raises(SupersededError):
        transitions.stage(state, other, "00")


def _fields(snapshot: Snapshot) -> dict[str, Any]:
    return {name: getattr(snapshot, name) for name in Snapshot.__dataclass_fields__}


@pytest.mark.parametrize("completed", [False, True])
def test_the_abort_of_a_snapshot_that_no_reader_saw_is_harmless(tmp_path: Path, completed: bool) -> None:
    """The ledger forgot its verdict, or that it was completed: its changes are folded again, to the same rows."""
    from tidefold.domain.snapshot import transitions

    root = begin(tmp_path)
    before, kept = published(root), snapshots(root, opened(root).ledger(LOG).read())
    take(root)
    number = _attempt(root, fold(root, "run-2")).id
    judge_all(opened(root))
    if completed:
        opened(root).ledger(LOG).commit(lambda state: transitions.confirm(state, number))
    go_back(root, 1)
    assert abort(opened(root), LOG, "by hand").status == "aborted"
    assert published(root) == before
    assert snapshots(root, opened(root).ledger(LOG).read()) == kept
    fold(root, "again")
    publish(root, "again")
    assert len(published(root)) == 7
    assert opened(root).ledger(LOG).read().unfolded == ()


def test_half_a_restore_names_all_newer_folders_at_once(tmp_path: Path) -> None:
    """It took a run for each of them, with no word of why."""
    pipeline = make_pipeline(tmp_path, restoring.configured(local=False, retention="2"))
    restoring.cycle(pipeline, "run-1", restoring.FIRST)
    store = tmp_path / "store"
    for name in ("logs", "tables", "changelog"):
        shutil.copytree(store / name, tmp_path / "old" / name)
    for number in (2, 3):
        restoring.take(pipeline, {number: "newer"})
        restoring.fold(pipeline, f"run-{number}", KindPolicy.FULL)
        restoring.publish(pipeline)
    for name in ("logs", "tables", "changelog"):
        shutil.rmtree(store / name)
        shutil.move(tmp_path / "old" / name, store / name)
    again = open_pipeline(tmp_path / "tidefold.yaml")
    restoring.take(again, {2: "again"})
    refused = restoring.fold(again, "run-4", KindPolicy.FULL)
    assert refused.error_code == "NAME_TAKEN"
    assert refused.error is not None
    folders = re.findall(r"`(0\d+)`", refused.error.hint)
    assert folders == ["0000000002", "0000000003"]
    for folder in folders:
        shutil.rmtree(store / "snapshots" / LOG / folder, ignore_errors=True)
    assert restoring.fold(again, "run-5", KindPolicy.FULL).status == "staged"
