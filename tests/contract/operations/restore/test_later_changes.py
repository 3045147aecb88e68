"""What becomes of the changes after a restored snapshot: three choices, each by the command line, over later runs. L3.

A restore whose rows were to stay was undone by the next scheduled run, three minutes later.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.old_ledgers import CONFIG, LOG, Rows, copied, land, opened, published
from tidefold.cli.app import app
from tidefold.domain.log_state import State

KEEP = CONFIG.format(kind="full").replace("retention: {snapshots: 2}", "retention: {snapshots: 9}")
OVERRIDE = ("--override-by", "ann", "--reason", "the later changes were wrong")


def say(root: Path, *arguments: str, code: int | None = 0) -> str:
    said = CliRunner().invoke(app, [*arguments, "--config", str(root / "tidefold.yaml")])
    assert code is None or said.exit_code == code, said.output
    return said.output


def truth(first: int, end: int) -> Rows:
    return {offset % 7: f"t{1000 + offset}" for offset in range(first, end)}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three published snapshots, each with one more file of three changes."""
    root = tmp_path_factory.mktemp("later") / "template"
    (root / "landing" / LOG).mkdir(parents=True)
    (root / "tidefold.yaml").write_text(KEEP)
    for number in range(3):
        land(root, number * 3)
        say(root, "run", "--run", f"r{number}")
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    return copied(template, tmp_path / "root")


def restore(root: Path, mode: str, snapshot: int = 1) -> str:
    said = say(root, "restore", LOG, str(snapshot), "--log-position", mode, "--run", f"back-{mode}")
    say(root, "step", "quality", LOG, code=None)
    say(root, "step", "confirm", LOG, *OVERRIDE)
    assert published(root) == truth(0, snapshot * 3)
    return said


def test_it_stays_until_somebody_resumes_the_log(root: Path) -> None:
    assert "folded after `tidefold move resume`: change sets 2 to 3" in restore(root, "stay")
    for number in range(3):
        land(root, 9 + number * 3)
        assert f"{LOG}: skipped: " in say(root, "run", "--run", f"scheduled-{number}")
        for step in (
            ("step", "materialize", LOG, "--run", f"m{number}"),
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
        ):
            say(root, *step)
        assert published(root) == truth(0, 3)
    assert "the rows of snapshot 1 stay" in say(root, "status")
    assert "tidefold move resume" in say(root, "step", "materialize", LOG, "--run", "again")
    assert "the next run folds change sets 2 to 3" in say(root, "move", "resume", LOG)
    say(root, "run", "--run", "after")
    assert published(root) == truth(0, 18)
    assert opened(root).ledger(LOG).read().stopped is None


def test_it_leaves_the_later_changes_out_for_good(root: Path) -> None:
    assert "left out for good: change sets 2 to 3" in restore(root, "skip")
    land(root, 9)
    say(root, "run", "--run", "scheduled")
    assert published(root) == truth(0, 3) | truth(9, 12)


def test_it_is_built_anew_and_the_next_run_folds_the_later_changes(root: Path) -> None:
    assert "folded again by the next run: change sets 2 to 3" in restore(root, "replay")
    say(root, "run", "--run", "scheduled")
    assert published(root) == truth(0, 9)


@pytest.mark.parametrize("mode", ["stay", "skip", "replay"])
def test_a_dry_run_names_the_change_sets(root: Path, mode: str) -> None:
    before = opened(root).ledger(LOG).read()
    said = say(root, "restore", LOG, "1", "--log-position", mode, "--dry-run")
    assert "change sets 2 to 3" in said
    assert opened(root).ledger(LOG).read() == before


def test_without_a_choice_nothing_is_restored(root: Path) -> None:
    said = say(root, "restore", LOG, "1", code=2)
    assert all(f"--log-position {mode}" in said for mode in ("stay", "skip", "replay"))


def test_an_aborted_restore_stops_nothing(root: Path) -> None:
    say(root, "restore", LOG, "1", "--log-position", "stay", "--run", "back")
    assert opened(root).ledger(LOG).read().stays
    say(root, "step", "abort", LOG)
    assert opened(root).ledger(LOG).read().stopped is None
    land(root, 9)
    say(root, "run", "--run", "scheduled")
    assert published(root) == truth(0, 12)


def test_a_superseded_restore_stops_nothing(root: Path) -> None:
    say(root, "restore", LOG, "1", "--log-position", "stay", "--run", "back")
    say(root, "restore", LOG, "2", "--log-position", "replay", "--run", "other", "--takeover")
    state = opened(root).ledger(LOG).read()
    assert [s.run for s in state.snapshots if s.state is State.ABORTED] == ["back"]
    assert state.stopped is None


def test_a_second_restore_stays_too_and_its_abort_ends_only_itself(root: Path) -> None:
    restore(root, "stay")
    say(root, "restore", LOG, "2", "--log-position", "stay", "--run", "second")
    say(root, "step", "abort", LOG)
    say(root, "run", "--run", "scheduled")
    assert published(root) == truth(0, 3)


def test_a_log_that_is_stopped_for_a_savepoint_is_not_restored_to_stay(root: Path) -> None:
    say(root, "move", "savepoint", LOG, "--to", str(root / "saved"), "--stop", "--reason", "moves", "--by", "ann")
    said = say(root, "restore", LOG, "1", "--log-position", "stay", "--run", "back", code=3)
    assert "LOG_STOPPED" in said
