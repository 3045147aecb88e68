"""The ledger of a set goes back, is lost, damaged or swapped: no reader of the set is harmed without a word. I23, I29.

Every damage meets every command, through the command line. Then `rebuild` and a run bring back what the source has.
"""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from faults.product import small_pages
from faults.sets import DAMAGES, MOVED_AWAY, Life, copy, land_share, look, make_life
from support.bank_sets import LOGS, replay
from support.faults import Killed
from tidefold.cli.app import app
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.publish import publish_set as publish
from tidefold.operations.sets.confirm import confirm_logs
from tidefold.wiring import open_pipeline


@dataclass(frozen=True, slots=True)
class Said:
    """What a command said: its exit code and its output."""

    exit: int
    text: str


def tidefold(root: Path, *arguments: str) -> Said:
    result = CliRunner().invoke(app, [*arguments, "--config", str(root / "tidefold.yaml")])
    return Said(result.exit_code, result.output)


@pytest.fixture(scope="module", autouse=True)
def pages() -> Iterator[None]:
    with small_pages(2):
        yield


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    return make_life(tmp_path_factory.mktemp("sets"))


COMMANDS: tuple[tuple[str, ...], ...] = (
    (
        "set",
        "show",
    ),
    ("status",),
    ("read", "tellers", "--set", "bank", "--limit", "3"),
    ("run", "--run", "next"),
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
    ("restore", "--set", "bank", "--version", "4", "--log-position", "replay", "--run", "back"),
    ("step", "quality", *LOGS),
    ("step", "confirm", "accounts"),
    ("step", "abort", "tellers"),
    (
        "retain",
        "subsume",
    ),
    (
        "retain",
        "clean",
    ),
)


@pytest.mark.rotates(8)
@pytest.mark.parametrize("damage", DAMAGES)
def test_no_command_harms_readers_of_a_set(life: Life, tmp_path: Path, damage: str) -> None:
    root, newest = copy(life, tmp_path), max(life.points)
    before = look(root)
    assert before == (newest, life.points[newest])
    DAMAGES[damage](root, life.old)
    seen = look(root)
    for command in COMMANDS:
        said = tidefold(root, *command)
        assert said.exit not in (1, 2), (command, said.text)
        after = look(root)
        # Readers get an error by name, or what they got before, or a newer version. Nothing gets worse by a command.
        assert isinstance(after, str) or after[0] >= newest, (command, after)
        assert isinstance(seen, str) or not isinstance(after, str), (command, seen, after)
        seen = after


@pytest.mark.rotates(8)
@pytest.mark.parametrize("damage", [name for name in DAMAGES if name not in ("none", "older logs")])
def test_damage_is_named_and_rebuilt(life: Life, tmp_path: Path, damage: str) -> None:
    root = copy(life, tmp_path)
    DAMAGES[damage](root, life.old)
    for command in (
        (
            "set",
            "show",
        ),
        ("check", "verify", "--deep"),
        ("check", "verify", "--share", "100%"),
        ("run",),
    ):
        said = tidefold(root, *command)
        assert said.exit == 5, (command, said.text)
        assert "logs" in damage or "sets/bank" in said.text or "set `bank`" in said.text or "Set `bank`" in said.text
    assert "bank" in tidefold(root, "status").text
    for log in LOGS if "logs" in damage else ():
        assert tidefold(root, "move", "rebuild", log, "--yes").exit == 0
    if damage in MOVED_AWAY:
        assert tidefold(root, "move", "rebuild", "--set", "bank", "--yes").exit == 5
        shutil.rmtree(root / "store/sets/bank/ledger")
    planned = tidefold(root, "move", "rebuild", "--set", "bank")
    assert "would rebuild" in planned.text
    assert isinstance(look(root), str)
    said = tidefold(root, "move", "rebuild", "--set", "bank", "--yes")
    assert said.exit == 0, said.text
    rebuilt = look(root)
    assert isinstance(rebuilt, tuple)
    # A number that was given names the same point for ever.
    assert life.points.get(rebuilt[0], rebuilt[1]) == rebuilt[1]
    assert rebuilt[0] >= max(life.points)
    assert rebuilt[1] == life.points[max(life.points)]
    land_share(root, 1)
    for number in range(2):
        said = tidefold(root, "run", "--takeover", "--run", f"after-{number}")
    assert said.exit == 0, said.text
    last = look(root)
    assert isinstance(last, tuple)
    assert last[0] > max(life.points)
    assert last[1] == max(replay().rows)
    assert tidefold(root, "check", "verify", "--deep").exit == 0
    assert tidefold(root, "move", "rebuild", "--set", "bank", "--yes").text.count("knows everything") == 1


def test_a_rebuilt_set_restores_its_earlier_versions(life: Life, tmp_path: Path) -> None:
    root = copy(life, tmp_path)
    shutil.rmtree(root / "store/sets")
    assert tidefold(root, "move", "rebuild", "--set", "bank", "--yes").exit == 0
    newest = max(life.points)
    assert f"earlier: version {newest - 1} at position {life.points[newest - 1]}" in tidefold(root, "set", "show").text
    restored = ("restore", "--set", "bank", "--version", str(newest - 1), "--log-position", "replay", "--run", "back")
    assert tidefold(root, *restored).exit == 0
    tidefold(root, "step", "quality", *LOGS)
    confirmed = tidefold(root, "step", "confirm", "accounts", "--override-by", "ann", "--reason", "fewer rows")
    assert confirmed.exit in (0, 4), confirmed.text
    for log in LOGS[1:]:
        tidefold(root, "step", "confirm", log, "--override-by", "ann", "--reason", "fewer rows")
    assert look(root) == (newest + 1, life.points[newest - 1])


@pytest.mark.rotates(8)
@pytest.mark.parametrize("tables", range(len(LOGS) + 1))
def test_a_decision_that_was_lost_half_way_is_made_again(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: int
) -> None:
    """The ledger is lost after so many tables were published: readers get the version before, or the new one."""
    root, newest = copy(life, tmp_path), max(life.points)
    land_share(root, 0.8)
    for command in (
        (
            "step",
            "ingest",
        ),
        ("step", "materialize", *LOGS, "--run", "half"),
        ("step", "quality", *LOGS),
    ):
        assert tidefold(root, *command).exit == 0
    publish_member, published = publish._publish_member, list[str]()

    def die_after(pipeline: Pipeline, log: str, snapshot: int) -> int:
        if len(published) == tables:
            raise Killed
        published.append(log)
        return publish_member(pipeline, log, snapshot)

    with monkeypatch.context() as patched, suppress(Killed):
        patched.setattr(publish, "_publish_member", die_after)
        confirm_logs(open_pipeline(root / "tidefold.yaml"), LOGS, "half")
    assert len(published) == tables
    shutil.rmtree(root / "store/sets")
    assert look(root) == "LEDGER_LOST"
    said = tidefold(root, "move", "rebuild", "--set", "bank", "--yes")
    assert said.exit == 0, said.text
    shown = look(root)
    assert isinstance(shown, tuple)
    if tables == len(LOGS):
        assert shown[0] == newest + 1
        assert shown[1] > life.points[newest]
    else:
        assert shown == (newest + 2, life.points[newest])
    land_share(root, 1)
    for number in range(2):
        said = tidefold(root, "run", "--takeover", "--run", f"after-{number}")
    assert said.exit == 0, said.text
    last = look(root)
    assert isinstance(last, tuple)
    assert last[0] > shown[0]
    assert last[1] == max(replay().rows)


def test_only_the_owner_reads_the_ledger_of_a_set(life: Life) -> None:
    """As the ledger of a log: it is not for readers of tables."""
    for path in (life.root / "store/sets").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
