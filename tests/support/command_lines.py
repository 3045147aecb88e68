"""The commands that a text names, and what the command line says of each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import typer

from tidefold.cli.app import app

ROOT: Any = typer.main.get_command(app)
_WORDS = {*ROOT.commands, *(name for one in ROOT.commands.values() for name in getattr(one, "commands", ()))}
_FENCE = re.compile(r"^ *```\w*[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
# `tidefold value` is a column of Spark's page.
_CODE = re.compile(r"(?:`|<code>)(?:\$ )?(?:\./)?tidefold (?!value`)([a-z][^`<]*)(?:`|</code>)")
# Places without backticks: behind `Next:` and `Example:`, and further ones of the same line.
_NEXT = re.compile(r"\b(?:[Nn]ext|now|Example|Begin): ([^\n]*)")
_FURTHER = re.compile(r"(?:^|, then |, or |[;,] |\$\()tidefold ([a-z](?:(?! if )[^`\n,;)])*)")
_MODULE = re.compile(r"-m tidefold\.cli ([a-z][^\n]*)")
_LINE = re.compile(r"^(?:\$ |RUN )?(?:\./)?tidefold ([a-z-]+\b(?! [a-z]+ [a-z]+ [a-z]+ )[^\n]*)", re.MULTILINE)
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")


def list_in_code(source: str) -> Iterator[str]:
    """Yields the commands in the texts of a module, with `x` in the place of values."""
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(one.value) if isinstance(one, ast.Constant) else "\0" for one in node.values)
            # `{list_logs(logs)}` begins with the blank before the first log.
            text = re.sub(r"(?<=[a-z])\0", " x", text).replace("\0", "x")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = node.value
        else:
            continue
        yield from list_in_text(text)
        # What is printed behind `next: `.
        if re.match(r"tidefold ([a-z-]+)", text) and text.split()[1] in _WORDS:
            yield from _FURTHER.findall(text.partition(", which")[0])


def list_in_text(text: str) -> Iterator[str]:
    """Yields the commands of a message, a help page or a template."""
    yield from _MODULE.findall(text)
    for words in _CODE.findall(re.sub(r"{{.*?}}", "x", text)):
        yield " ".join(words.split())
    for line in _NEXT.findall(text):
        yield from _FURTHER.findall(line)


def list_on_page(text: str) -> Iterator[str]:
    """Yields the commands of a page of Markdown: those of its blocks, then those of its sentences."""
    for block in _FENCE.findall(text):
        yield from (line.split("#")[0] for line in _LINE.findall(re.sub(r"^ +", "", block, flags=re.MULTILINE)))
    yield from list_in_text(_FENCE.sub("", text))


def find_mistake(line: str) -> str:
    """Returns what is wrong with a command line without its first word; empty: nothing."""
    is_syntax = bool(re.search(r"[\[\]|]|\.\.\.", line))
    words = re.sub(r"\\?[\[\]|]", " ", _QUOTED.sub("x", line)).replace("...", "").split()
    command = _find_command(words)
    if isinstance(command, str):
        return command
    options = {name: one for one in command.params for name in (*one.opts, *one.secondary_opts) if name[0] == "-"}
    given, rest = set(), []
    while words:
        word, _, value = words.pop(0).rstrip(".,;:").partition("=")
        if not word.startswith("-"):
            rest.append(word)
        elif word not in options:
            return f"it has no option {word}"
        elif not options[word].is_flag and not value and not is_syntax:
            # A sentence may name an option alone.
            if not words and rest:
                return f"{word} needs a value"
            words[:1] = []
        given.add(word)
    return "" if is_syntax else _find_missing(command, options, given, rest)


def _find_command(words: list[str]) -> Any:
    """Removes the words that name a command, and returns it, or what is wrong; empty: the words name no more."""
    command = ROOT
    while children := getattr(command, "commands", None):
        # `x` is a value.
        if not words or words[0] in ("-h", "--help", "x"):
            return ""
        name = "plan" if words[0].startswith("-") and "plan" in children else words.pop(0)
        if name not in children:
            return f"there is no command {name}"
        command = children[name]
    words[:] = [word for word in words if word not in ("-h", "--help")]
    return command


def _find_missing(command: Any, options: dict[str, Any], given: set[str], rest: list[str]) -> str:
    places = [one for one in command.params if one.param_type_name == "argument"]
    required = {one.opts[0] for one in options.values() if one.required}
    # Without an argument it only names the command.
    if rest and required - given:
        return f"it needs {', '.join(required - given)}"
    if len(rest) > len(places) and not any(one.nargs == -1 for one in places):
        return f"it takes {len(places)} arguments"
    return ""
