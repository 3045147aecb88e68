"""Every command that a message names exists, with the options and the number of arguments that it is named with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import tidefold
from tidefold.cli.app import app

_ROOT = Path(tidefold.__file__).parents[2]
# Not the name of a column of Spark.
_COMMAND = re.compile(r"`tidefold (?!value`)([a-z][^`]*)`")
# Also in places without backticks, as behind `Next:` and `next:`.
_NEXT = re.compile(r"\b[Nn]ext: tidefold ([a-z][^`\n,;.]*)")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")


def _texts(path: Path) -> Iterator[str]:
    """Yields each text of a module, with `x` in the place of values."""
    tree = ast.parse(path.read_text())
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "x" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def _find_commands() -> list[tuple[str, str]]:
    files = [path for name in ("include/tidefold", "plugins") for path in sorted((_ROOT / name).rglob("*.py"))]
    texts = [(path.name, text) for path in files for text in _texts(path)]
    found = [(name, one) for name, text in texts for kind in (_COMMAND, _NEXT) for one in kind.findall(text)]
    return [(name, one) for name, one in found if "|" not in one]  # Docstrings list the verbs of a group so.


def _find_mistake(line: str) -> str:
    """Returns what is wrong with a command line; empty: nothing."""
    words = _QUOTED.sub("x", line).split()
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words:
        found = command.commands.get(words.pop(0))
        if found is None:
            return "there is no such command"
        command = found
    options = {name: one for one in command.params if one.param_type_name == "option" for name in one.opts}
    places = [one for one in command.params if one.param_type_name == "argument"]
    rest = []
    missing = {one.opts[0] for one in options.values() if one.required} - set(words)
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            rest.append(word)
        elif word not in options:
            return f"it has no option {word}"
        elif not options[word].is_flag and not words:
            return f"{word} needs a value"
        elif not options[word].is_flag:
            words.pop(0)
    # Without an argument it only names the command.
    if rest and missing:
        return f"it needs {', '.join(missing)}"
    if len(rest) > len(places) and not any(one.nargs == -1 for one in places):
        return f"it takes {len(places)} arguments"
    return ""


def test_every_named_command_parses() -> None:
    found = _find_commands()
    assert len(found) > 100
    wrong = {(name, line): why for name, line in found if (why := _find_mistake(line))}
    assert wrong == {}


def test_a_wrong_command_is_found() -> None:
    assert _find_mistake("restore x 3 --log-position replay") == ""
    assert _find_mistake("rebuilt x") == "there is no such command"
    assert _find_mistake("quarantine retry x --reason y") == "it has no option --reason"
    assert _find_mistake("abort x y") == "it takes 1 arguments"
