"""A ledger is made again from manifests and table commits, and the log goes on. Promise I29."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from support import effort
from support.builders import verdict_for
from support.landing import record
from support.old_ledgers import (
    LOG,
    PATHS,
    Rows,
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
from support.pipelines import contents, judge_all, rows_of
from tidefold.cli.app import app
from tidefold.domain.ledger_evidence import rebuild as rebuild_state
from tidefold.domain.log_state import LogState, State
from tidefold.domain.snapshot import transitions
from tidefold.domain.source_progress_history import positions_at
from tidefold.errors import CorruptError
from tidefold.operations.restore.rebuild import rebuild
from tidefold.operations.retention import references
from tidefold.operations.retention.clean import clean
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.verify.verify import verify

# The whole ledger, all from the second fold on, and all from its publication on.
LOST = [1_000, 6, 2]


def truth(landed: int) -> Rows:
    return {offset % 7: f"t{1000 + offset}" for offset in range(landed)}


@pytest.mark.rotates(6)
@pytest.mark.parametrize("kind", ["full", "incremental"])
@pytest.mark.parametrize("count", LOST)
def test_the_log_goes_on_from_what_the_table_shows(tmp_path: Path, kind: str, count: int) -> None:
    root = begin(tmp_path, kind)
    before, kept = published(root), snapshots(root, opened(root).ledger(LOG).read())
    epoch = opened(root).ledger(LOG).read().epoch
    go_back(root, count)
    untouched = contents(root)
    planned = rebuild(opened(root), LOG)
    assert (planned.status, planned.facts["published"], planned.facts["goes_on_after"]) == ("planned", 2, 2)
    assert contents(root) == untouched
    done = rebuild(opened(root), LOG, plan=False)
    assert (done.status, done.facts["stopped"]) == ("rebuilt", None)
    assert published(root) == before
    assert verify(opened(root), LOG).status == "whole"
    assert rebuild(opened(root), LOG).status == "nothing"
    # What landed since the snapshot is taken, and nothing from before it.
    assert take(root).facts["changes"] == 3
    assert fold(root, "after").snapshot == 3
    assert opened(root).ledger(LOG).read().epoch > epoch
    publish(root, "after")
    clean(opened(root), [LOG])
    assert published(root) == truth(9)
    for snapshot, rows in kept.items():
        assert rows_of(opened(root).store.uri(PATHS.snapshot(snapshot))) == rows
    assert verify(opened(root), LOG).status == "whole"


def test_what_the_table_never_showed_is_aborted(tmp_path: Path) -> None:
    root = begin(tmp_path)
    take(root)
    fold(root, "staged")
    go_back(root, 1_000)
    done = rebuild(opened(root), LOG, plan=False)
    assert done.facts["aborted"] == [3]
    assert "the verdicts of snapshots 1, 2, 3" in done.facts["unknown"]
    before = published(root)
    clean(opened(root), [LOG])
    assert published(root) == before
    assert not opened(root).store.list(PATHS.snapshot(3))
    # Its changes are folded by the next one.
    take(root)
    assert fold(root, "after").snapshot == 4
    publish(root, "after")
    assert published(root) == truth(9)


def test_a_snapshot_as_of_an_instant_is_kept_by_its_tag(tmp_path: Path) -> None:
    root = begin(tmp_path)
    number = fold(root, "backfill", as_of=record(4)["value"]["source"]["ts_us"]).snapshot or 0

    def judged(state: LogState) -> LogState:
        found = state.snapshot(number)
        assert found
        return transitions.record_verdict(state, number, verdict_for(found))

    opened(root).ledger(LOG).commit(judged)
    confirm(opened(root), LOG, Confirmation(run="backfill"))
    before = opened(root).ledger(LOG).read()
    go_back(root, 1_000)
    rebuild(opened(root), LOG, plan=False)
    after = opened(root).ledger(LOG).read()
    assert after.tags == before.tags
    kept = after.snapshot(number)
    assert kept
    assert (kept.state, kept.as_of) == (State.COMPLETED, before.snapshots[-1].as_of)


def test_without_the_newest_manifest_the_positions_are_those_of_the_ledger_that_is_left(tmp_path: Path) -> None:
    root = begin(tmp_path)
    take(root)
    state = opened(root).ledger(LOG).read()
    latest = state.latest
    assert latest
    assert state.unfolded
    made = rebuild_state(state, [], "0" * 8, segments=(), unproved={latest.id}).state
    assert (made.latest, made.stopped, made.change_sets) == (latest, None, ())
    assert (made.positions, made.truncated_to) == (positions_at(state, latest.to_sqn), latest.to_sqn)
    assert made.positions[0].next_offset < state.positions[0].next_offset


def test_the_command_plans_first(tmp_path: Path) -> None:
    root = begin(tmp_path)
    land(root, 9)
    go_back(root, 1_000)
    config = ["--config", str(root / "tidefold.yaml")]
    said = CliRunner().invoke(app, ["move", "rebuild", LOG, "--yes", "--dry-run", *config])
    assert "would rebuild" in said.output
    said = CliRunner().invoke(app, ["move", "rebuild", LOG, *config])
    assert said.exit_code == 0, said.output
    assert "would rebuild" in said.output
    assert opened(root).ledger(LOG).find() is None
    said = CliRunner().invoke(app, ["move", "rebuild", LOG, "--yes", *config])
    assert said.exit_code == 0, said.output
    assert "not known any more" in said.output
    assert take(root).status == "taken"


def test_a_copy_with_an_older_ledger_is_refused_and_rebuilt(tmp_path: Path) -> None:
    """The documented order: the ledger first, the rest while a run goes on."""
    root = begin(tmp_path / "root")
    backup = tmp_path / "backup"
    for part in ("ledger", "pages"):
        if (root / "store" / PATHS.folder / part).exists():
            shutil.copytree(root / "store" / PATHS.folder / part, backup / "store" / PATHS.folder / part)
    take(root)
    fold(root, "meanwhile")
    publish(root, "meanwhile")
    for name in ("tables", "snapshots", "changelog", PATHS.manifests):
        shutil.copytree(root / "store" / name, backup / "store" / name)
    shutil.copytree(root / "landing", backup / "landing")
    shutil.copy(root / "tidefold.yaml", backup)
    land(backup, 9)
    assert take(backup).error_code == "LEDGER_BEHIND"
    assert published(backup) == truth(9)
    assert rebuild(opened(backup), LOG, plan=False).status == "rebuilt"
    assert take(backup).facts["changes"] == 3
    fold(backup, "after")
    publish(backup, "after")
    assert published(backup) == truth(12)


def test_files_from_before_the_rebuild_are_known_and_no_problem(tmp_path: Path) -> None:
    """Every landed file was LANDED_UNPROVED after a rebuild, with the advice to remove it."""
    root = begin(tmp_path)
    go_back(root, 1_000)
    rebuild(opened(root), LOG, plan=False)
    outcome = take(root)
    assert "2 files known from before the rebuild or import; nothing to do" in outcome.message
    assert "UNPROVED" not in outcome.message
    assert (outcome.error_code, outcome.facts["not_taken"]) == (None, {})
    assert opened(root).ledger(LOG).read().landing.total == 0
    # A file that brings records of a file which was ingested since, and is gone, still is a problem.
    last = sorted((root / "landing" / LOG).iterdir())[-1]
    last.rename(last.with_name(last.name.replace("06.jsonl", "07.jsonl")))
    assert take(root).facts["not_taken"] == {"LANDED_UNPROVED": 1}


def test_without_the_manifest_of_what_the_table_shows_nothing_is_rebuilt(tmp_path: Path) -> None:
    root = begin(tmp_path)
    go_back(root, 1_000)
    opened(root).store.delete([PATHS.manifest(2)])
    before = contents(root)
    for plan in (True, False):
        with pytest.raises(CorruptError) as lost:
            rebuild(opened(root), LOG, plan=plan)
        assert lost.value.code == "MANIFEST_LOST"
    assert contents(root) == before


def rows_by_version(root: Path) -> dict[int, Rows | str]:
    """The rows of each version of the table, as its readers get them; for an unreadable one, the kind of the error."""
    found: dict[int, Rows | str] = {}
    for version in range(4):
        try:
            rows = DeltaTable(root / "store" / PATHS.table, version=version).to_pyarrow_table().to_pylist()
            found[version] = {row["id"]: row["text"] for row in rows}
        except Exception as error:
            found[version] = type(error).__name__
    return found


def say(root: Path, *arguments: str) -> tuple[int, str]:
    said = CliRunner().invoke(app, [*arguments, "--config", str(root / "tidefold.yaml")])
    return said.exit_code, said.output


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_no_clean_up_after_a_rebuild_deletes_a_kept_snapshot_whose_manifest_is_lost(tmp_path: Path, kind: str) -> None:
    """`rebuild` took it for a retired one, and the next `clean` deleted its files. Each loss meets each clean-up."""
    template = begin(tmp_path / "template", kind)
    references.tag(opened(template), LOG, "kept", 1)
    references.hold(opened(template), LOG, "audit", 2, "asked by the auditor")
    known = len(versions(template))
    for number in (2, 3):
        take(template)
        fold(template, f"run-{number}")
        publish(template, f"run-{number}")
        land(template, number * 3 + 3)
    lost_versions = len(versions(template)) - known
    losses = [(behind, snapshot) for behind in (lost_versions, 3, 1_000) for snapshot in (1, 2, 3)]
    for behind, snapshot in losses if effort.THOROUGH else losses[effort.rotate(3) :: 3]:
        root = copied(template, tmp_path / "copy")
        manifest = opened(root).store.read(PATHS.manifest(snapshot))
        go_back(root, behind)
        opened(root).store.delete([PATHS.manifest(snapshot)])
        before = rows_by_version(root)
        code, text = say(root, "move", "rebuild", LOG, "--yes")
        assert code == 0, text
        is_known = opened(root).ledger(LOG).read().snapshot(snapshot) is not None
        # A snapshot without a folder that no ledger names leaves no other trace than its files.
        assert f"snapshot {snapshot}" in text or (kind == "incremental" and not is_known)
        for command in (
            (
                "retain",
                "clean",
            ),
            (
                "retain",
                "subsume",
            ),
            (
                "retain",
                "truncate",
            ),
            (
                "retain",
                "clean",
            ),
            ("run",),
            (
                "retain",
                "subsume",
            ),
            (
                "retain",
                "clean",
            ),
        ):
            code, text = say(root, *command)
            assert code in (0, 5), text
            after = rows_by_version(root)
            for version, rows in before.items():
                # Snapshot 3 is retired once there is a fifth. Without the ledger, nothing says that 1 and 2 are kept.
                is_retired = version == 2 and opened(root).ledger(LOG).read().last_sqn > 4
                if (behind != 1_000 or version == snapshot - 1) and not is_retired:
                    assert after[version] == rows, (behind, snapshot, command, version)
        opened(root).store.put_if_absent(PATHS.manifest(snapshot), manifest)
        if is_known:
            assert say(root, "retain", "subsume")[0] == 0
            assert say(root, "check", "verify")[0] == 0


def test_an_older_copy_of_the_whole_folder_is_no_dead_end(tmp_path: Path) -> None:
    """The advice was to put the folder of the log back: its manifests of newer snapshots were gone, and a circle began.

    Both ways out that the message names work: the missing manifests, and a new beginning from the landed files.
    """
    root = begin(tmp_path)
    folder = root / "store" / PATHS.folder
    backup = copied(folder, tmp_path / "backup")
    take(root)
    fold(root, "meanwhile")
    publish(root, "meanwhile")
    newer = copied(folder, tmp_path / "newer")
    copied(backup, folder)
    error = take(root).error
    assert error
    assert error.code == "LEDGER_BEHIND"
    assert f"Never replace or delete `{PATHS.manifests}`" in error.hint
    with pytest.raises(CorruptError) as lost:
        rebuild(opened(root), LOG)
    assert lost.value.code == "MANIFEST_LOST"
    assert f"move `{PATHS.folder}`, `{PATHS.table}` and `{PATHS.snapshots}` out of the store" in lost.value.hint
    other = copied(root, tmp_path / "other")
    shutil.copytree(newer / "snapshots", folder / "snapshots", dirs_exist_ok=True)
    assert rebuild(opened(root), LOG, plan=False).status == "rebuilt"
    assert published(root) == truth(9)
    for moved in (PATHS.folder, PATHS.table, PATHS.snapshots):
        shutil.rmtree(other / "store" / moved)
    take(other)
    fold(other, "again")
    publish(other, "again")
    assert published(other) == truth(9)
    clean(opened(other), [LOG])
    assert verify(opened(other), LOG).status == "whole"


def test_a_table_that_another_program_restored_is_not_said_to_show_the_newest_snapshot(tmp_path: Path) -> None:
    root = begin(tmp_path)
    DeltaTable(root / "store" / PATHS.table).restore(0)
    go_back(root, 1_000)
    for plan in (True, False):
        outcome = rebuild(opened(root), LOG, plan=plan)
        assert outcome.facts["published"] == 2
        assert outcome.facts["is_shown"] is False
        assert "the table does not show snapshot 2 any more" in outcome.message
        assert f"`tidefold run {LOG} --kind full --reconcile`" in outcome.message
    take(root)
    fold(root, "after")
    judge_all(opened(root))
    assert confirm(opened(root), LOG, Confirmation(run="after", reconcile=True)).status == "published"
    assert published(root) == truth(9)


def test_the_plan_names_what_is_lost_and_explain_names_the_rebuild(tmp_path: Path) -> None:
    """`explain` said that `truncate` had deleted the change sets; the plan did not name them."""
    root = begin(tmp_path)
    references.register(opened(root), LOG, "mirror", 1)
    opened(root).ledger(LOG).commit(_settle_first)
    references.tag(opened(root), LOG, "kept", 1)
    count = len(versions(root))
    take(root)
    fold(root, "lost")
    publish(root, "lost")
    go_back(root, len(versions(root)) - count)
    unknown = "\n".join(rebuild(opened(root), LOG).facts["unknown"])
    assert "change sets 1 to 3, for `explain`" in unknown
    assert "The ledger that is left names up to 2" in unknown
    assert "copy `changelog/` first" in unknown
    assert f"`settle` decisions (`{LOG}+0+0000000000.jsonl`: 1 ann: seen)" in unknown
    assert "consumer mirror at change set 1" in unknown
    assert f"`settle` decisions made after version {count} of the ledger" in unknown
    rebuild(opened(root), LOG, plan=False)
    state = opened(root).ledger(LOG).read()
    assert (state.lost_from, state.truncated_to, [tag.name for tag in state.tags]) == (1, 3, ["kept"])
    assert "was cut by a rebuild of its ledger up to 3" in truncate(opened(root), LOG).message
    config = ["--config", str(root / "tidefold.yaml")]
    said = CliRunner().invoke(app, ["explain", LOG, "1", *config]).output
    assert "the change sets 1 to 3 were lost when the ledger was rebuilt" in said
    assert "truncate" not in said.replace("it was truncated, or lost in a rebuild", "")
    said = CliRunner().invoke(app, ["restore", LOG, "1", "--log-position", "replay", *config]).output
    assert "cut by a rebuild of its ledger up to 3" in " ".join(said.split())


def _settle_first(state: LogState) -> LogState:
    first, *others = state.landed
    return replace(state, landed=(replace(first, settled=("1 ann: seen",)), *others))


def test_without_the_log_of_the_table_nothing_is_rebuilt(tmp_path: Path) -> None:
    """Else every snapshot would count as never shown, and the next clean-up would delete it."""
    root = begin(tmp_path)
    go_back(root, 1_000)
    shutil.rmtree(root / "store" / PATHS.table / "_delta_log")
    before = contents(root)
    for plan in (True, False):
        with pytest.raises(CorruptError) as lost:
            rebuild(opened(root), LOG, plan=plan)
        assert lost.value.code == "TABLE_MISSING"
    assert contents(root) == before
