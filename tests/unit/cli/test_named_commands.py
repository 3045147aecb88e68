"""Every command that a text names exists, with the options and the number of arguments that it is named with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tidefold
from support.command_lines import ROOT, find_mistake, list_in_code, list_in_text, list_on_page
from support.commands import call
from tidefold.cli.app import app

PROJECT = Path(tidefold.__file__).parents[2]
CODE = ("include/tidefold", "plugins", "dags", "jobs", "scripts", "docs/examples")
TEXTS = (
    "docs/error-codes.toml",
    "scripts/install",
    "docker/Dockerfile",
    "docker-compose.yaml",
    "Makefile",
    "mkdocs.yml",
)
# What is past stays as it was said.
PAGES = sorted({*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")} - {PROJECT / "CHANGELOG.md"})
_FORMER = re.compile(r"`(compact-log|clean-local|explain-error)[ `]")


def _list_files(*folders: str, ending: str) -> list[Path]:
    return [path for folder in folders for path in sorted((PROJECT / folder).rglob(f"*.{ending}"))]


def _list_named() -> Iterator[tuple[str, str]]:
    for path in _list_files(*CODE, ending="py"):
        yield from ((path.name, one) for one in list_in_code(path.read_text()))
    for path in [*_list_files("plugins", ending="j2"), *(PROJECT / name for name in TEXTS)]:
        yield from ((path.name, one) for one in list_in_text(path.read_text()))


def _find_wrong(named: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    return {(name, line): why for name, line in named if (why := find_mistake(line))}


def test_every_command_in_a_message_parses() -> None:
    named = list(_list_named())
    assert len(named) > 400
    assert _find_wrong(named) == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_command_on_a_page_parses(page: Path) -> None:
    assert _find_wrong((page.name, one) for one in list_on_page(page.read_text())) == {}


def test_commands_are_found_on_pages() -> None:
    assert sum(len(list(list_on_page(page.read_text()))) for page in PAGES) > 200


def test_no_text_has_a_former_word() -> None:
    # Measured pages name what was run.
    pages = [page for page in PAGES if page.parent.name != "benchmarks"]
    files = [*_list_files(*CODE, ending="py"), *(PROJECT / name for name in TEXTS), *pages]
    former = {(path.name, word) for path in files for word in _FORMER.findall(path.read_text())}
    assert former == set()


def _walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from _walk(f"{path} {name}".strip(), one)


@pytest.mark.parametrize(("path", "command"), [pytest.param(*one, id=one[0] or "all") for one in _walk("", ROOT)])
def test_the_help_of_a_command_teaches_with_an_example_of_itself(path: str, command: Any) -> None:
    lines = command.help.splitlines()
    # A list shows the first line, and a terminal has 80 columns.
    assert len(lines[0]) <= (64 if path.count(" ") == 0 else 120)
    assert f"Example: tidefold {path}" in command.help.replace('xdg-open "$(', "") or not path
    if not hasattr(command, "commands"):
        assert "Next: " in command.help
        assert {"--config", "--format", "--debug"} <= {name for one in command.params for name in one.opts}


def test_help_shows_nine_commands_first_then_one_line_for_each_group() -> None:
    shown = call("--help").stdout
    lines = [line[2:].split()[0] for line in shown.splitlines() if re.match(r"│ [a-z]", line)]
    assert lines[:9] == ["demo", "init", "validate", "plan", "run", "status", "read", "explain", "restore"]
    assert lines == list(ROOT.commands)
    assert all(getattr(ROOT.commands[name], "commands", None) for name in lines[9:])


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("ingest orders", "step ingest"),
        ("confirm orders --override-by me", "step confirm"),
        ("resume orders", "move resume"),
        ("jars", "spark jars"),
        ("doctor --format json", "check doctor"),
        ("release orders audit", "snapshot release"),
        ("scrub --share 10%", "check verify --share 5% --repair"),
        ("audit", "step quality --again"),
        ("clean-local", "retain clean --local"),
        ("compact-log orders", "retain compact"),
        ("explain-error LANDED_CHANGED", "explain CODE"),
        ("sets bank", "set show"),
        ("restore orders 3 --to there", "move export"),
    ],
)
def test_a_former_word_is_answered_with_the_one_of_now(former: str, now: str) -> None:
    done = call(*former.split(), code=2)
    word = "restore --to" if former.startswith("restore") else former.split()[0]
    assert (done.stderr, done.stdout) == (f"There is no command `tidefold {word}`. Use `tidefold {now}`.\n", "")
    assert find_mistake(now) == ""


def test_a_word_that_never_was_is_refused_as_such() -> None:
    assert "No such command 'ingests'" in call("ingests", code=2).stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [("", "retain"), ("re", "read restore retain"), ("retain ", "plan subsume truncate compact clean drop")],
)
def test_the_shell_completes_commands_of_groups(words: str, offered: str) -> None:
    env = {
        "_TIDEFOLD_COMPLETE": "complete_bash",
        "COMP_WORDS": f"tidefold {words}",
        "COMP_CWORD": str(1 + words.count(" ")),
    }
    done = CliRunner().invoke(app, [], prog_name="tidefold", env=env)
    assert set(offered.split()) <= set(done.stdout.split())
    assert words != "retain " or done.stdout.split() == ["plan", "subsume", "truncate", "compact", "clean", "drop"]


def test_a_wrong_command_is_found() -> None:
    assert find_mistake("restore x 3 --log-position replay") == ""
    assert find_mistake("retain --format json") == find_mistake("retain") == find_mistake("step --help") == ""
    assert find_mistake("step confirm LOG [--override-by NAME --reason TEXT]") == ""
    assert find_mistake("rebuilt x") == "there is no command rebuilt"
    assert find_mistake("ingest x") == "there is no command ingest"
    assert find_mistake("quarantine retry x --reason y") == "it has no option --reason"
    assert find_mistake("step abort x y") == "it takes 1 arguments"
    assert find_mistake("snapshot hold x y 1") == "it needs --reason"
    assert find_mistake("read x --limit") == "--limit needs a value"


def test_commands_are_found_in_each_form() -> None:
    assert list(
        list_in_code('hint(f"`tidefold step ingest {log}`", f"tidefold step quality{logs}, then tidefold run")')
    ) == [
        "step ingest x",
        "step quality x",
        "run",
    ]
    page = "Do `./tidefold run`:\n```\n$ tidefold check doctor # all\ntidefold reads it from the folder\n```\n"
    assert [one.strip() for one in list_on_page(page)] == ["check doctor", "run"]
    assert list(list_in_text("Next: tidefold a LOG, then tidefold b LOG; tidefold c")) == ["a LOG", "b LOG", "c"]
