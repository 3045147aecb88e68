"""Hostile strings in every text of the command line: refused by name, or stored as text and nothing else. I26."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.old_ledgers import LOG, begin, copied
from support.pipelines import contents
from tidefold.cli.app import app

STRINGS = {
    "parent folders": "../../escaped",
    "absolute path": "/tmp/tidefold-escaped",
    "home": "~/escaped",
    "file address": "file:///etc/passwd",
    "secret in an address": "s3://user:secret@bucket/x",
    "chained address": "simplecache::http://127.0.0.1:1/x",
    "template": "{{ 7*7 }}{% print(7*7) %}",
    "format": "%s%n{0.__class__}",
    "shell": "$(touch escaped)",
    "back-ticks": "`touch escaped`",
    "second command": "x; touch escaped",
    "SQL": "' OR 1=1; DROP TABLE x --",
    "quoted SQL": '"; DROP TABLE x; --',
    "script": "<script>alert(1)</script>",
    "lines": "a\nERROR forged: line",
    "terminal": "\x1b]0;owned\x07\x1b[2J",
    "backspaces": "a\x08\x08b",
    "direction": "abc\u202etxt.exe",
    "NUL": "a\x00b",
    "no characters": "",
    "blank": "   ",
    "full-width": "\uff0e\uff0e\uff0fetc",
    "long": "x" * 100_000,
}
# Where a person gives a name; all of these are no names.
NAMES = {
    "a log to read": ("status", "{}"),
    "a log to ingest": ("step", "ingest", "{}"),
    "a log to tag": ("snapshot", "tag", "{}", "1", "kept"),
    "a tag": ("snapshot", "tag", LOG, "1", "{}"),
    "a hold": ("snapshot", "hold", LOG, "{}", "1", "--reason", "why"),
    "a consumer": ("consumer", "register", LOG, "{}", "--at", "1"),
    "a log to drop": ("retain", "drop", "{}", "--yes"),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return begin(tmp_path_factory.mktemp("base") / "root")


def call(root: Path, arguments: tuple[str, ...], text: str) -> tuple[int, str]:
    # Options come first, so that a string that begins with a dash is a name, too.
    at = next((i for i, word in enumerate(arguments) if word.startswith("--")), len(arguments))
    names = 1 if arguments[0] in ("read", "explain", "status", "restore") else 2
    given = [word.replace("{}", text) for word in (*arguments[at:], "--", *arguments[names:at])]
    result = CliRunner().invoke(app, [*arguments[:names], "--config", str(root / "tidefold.yaml"), *given])
    return result.exit_code, result.stdout + result.stderr


def harm(said: str) -> list[str]:
    """What a message must not have."""
    bad = {
        "Traceback": "Traceback",
        "UNEXPECTED": "UNEXPECTED",
        "\x1b]0;": "a terminal would obey",
        "4949": "evaluated",
    }
    return [reason for text, reason in bad.items() if text in said]


@pytest.mark.parametrize("place", NAMES)
def test_what_is_no_name_is_refused(base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str) -> None:
    """The rule of names meets all strings in two places. The others show that they apply it."""
    monkeypatch.chdir(tmp_path)
    before = contents(base.parent)
    strings = STRINGS if place in ("a log to read", "a tag") else ("parent folders", "terminal", "NUL")
    faults = []
    for string in strings:
        code, said = call(base, NAMES[place], STRINGS[string])
        if code not in (2, 3, 4) or not re.search(r"\[[A-Z_]+\]", said) or harm(said):
            faults.append((string, code, harm(said), said[:2_000]))
    assert faults == []
    assert contents(base.parent) == before
    assert not list(tmp_path.iterdir())


def test_a_reason_is_text(base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each string is the reason of a hold of its own."""
    root = copied(base, tmp_path / "root")
    monkeypatch.chdir(tmp_path)
    outside = set(tmp_path.iterdir())
    faults, accepted = [], 0
    for number, (string, text) in enumerate(STRINGS.items()):
        code, said = call(root, ("snapshot", "hold", LOG, f"audit{number}", "1", "--reason", "{}"), text)
        accepted += code == 0
        if code not in (0, 2) or harm(said):
            faults.append((string, code, harm(said), said[:2_000]))
    for command in (("status", LOG), ("snapshot", "history", LOG)):
        code, said = call(root, command, "")
        if code or harm(said):
            faults.append((command[0], code, harm(said), said[:2_000]))
    assert faults == []
    assert accepted > 10
    assert set(tmp_path.iterdir()) == outside
