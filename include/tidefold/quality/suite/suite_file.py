"""Reads a suite file: YAML, checked key by key, every problem named with its line."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from tidefold.errors import InvalidInputError

LISTS = ("checks", "expectations")
# Types of checks that tidefold computes itself begin so; no expectation of Great Expectations does.
OWN = "tidefold_"
_KEYS = ("type", "kwargs", "name", "severity")
_SEVERITIES = ("fail", "warn")
# Arguments that say which rows are judged and how results look: the gate's business, not the file's.
_RESERVED = ("batch_id", "result_format", "catch_exceptions", "meta", "id", "severity")
_COLUMN_ARGUMENTS = ("column", "column_A", "column_B")


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of a list in a suite file, as YAML has it, and its line."""

    line: int
    value: object


@dataclass(frozen=True, slots=True)
class Document:
    """A suite file: entries of the catalogue, and expectations of Great Expectations."""

    path: Path
    checks: tuple[Item, ...]
    expectations: tuple[Item, ...]

    def refuse(self, problems: Sequence[str]) -> None:
        """Raises InvalidInputError when there are problems."""
        if problems:
            message = f"`{self.path}`: {'; '.join(problems)}."
            raise InvalidInputError("SUITE_INVALID", message, hint="Correct the suite file.")


@dataclass(frozen=True, slots=True)
class Entry:
    """One expectation as the file gives it; an empty `name` means none was given."""

    type: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    severity: str = "fail"


def read_document(path: Path) -> Document:
    """The entries of a suite file, not yet looked into. Raises InvalidInputError."""
    text = _read(path)
    try:
        content = yaml.safe_load(text)
        lines = _lines(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidInputError("SUITE_INVALID", f"`{path}` is not YAML: {one_line(error)}.") from error
    Document(path, (), ()).refuse(_document_problems(content))
    listed = {
        name: tuple(Item(line, value) for line, value in zip(lines[name], content.get(name) or [], strict=True))
        for name in LISTS
    }
    return Document(path, **listed)


def read_expectations(items: Iterable[Item], columns: Sequence[str]) -> tuple[list[Entry], list[str]]:
    """The expectations for a table with these columns, and what is wrong with them."""
    entries, problems = [], []
    for item in items:
        found = _entry_problems(item.value, columns)
        problems += [f"line {item.line}: {problem}" for problem in found]
        if not found and isinstance(item.value, dict):
            entries.append(Entry(**{k: v for k, v in item.value.items() if v is not None}))
    return entries, problems


def closest(word: str, known: Sequence[str]) -> str:
    """`, did you mean ...?` with the known word nearest to a mistyped one, or nothing."""
    near = difflib.get_close_matches(word, known, n=1)
    return f", did you mean `{near[0]}`?" if near else ""


def shared_problems(entry: Mapping[Any, Any]) -> list[str]:
    """What is wrong with the keys that every entry may have."""
    problems = []
    name = entry.get("name")
    if name is not None and not (isinstance(name, str) and name.isprintable()):
        problems.append("`name` is not one line of text")
    if entry.get("severity", "fail") not in (*_SEVERITIES, None):
        problems.append(f"severity `{entry['severity']}` is neither `fail` nor `warn`")
    return problems


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            "SUITE_UNREADABLE",
            f"The suite file `{path}` cannot be read: {one_line(error)}.",
            hint="Correct `quality: suite:` of the log, or the file.",
        ) from error


def _lines(text: str) -> dict[str, list[int]]:
    """Lines of the entries. Raises YAMLError when a mapping names a key twice, which YAML's loader lets pass."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    _refuse_repeated_keys(root, ())
    found: dict[str, list[int]] = {name: [] for name in LISTS}
    for key, value in root.value if isinstance(root, yaml.MappingNode) else []:
        if key.value in found and isinstance(value, yaml.SequenceNode):
            found[key.value] = [item.start_mark.line + 1 for item in value.value]
    return found


def _refuse_repeated_keys(node: yaml.Node | None, above: tuple[int, ...]) -> None:
    if id(node) in above:
        raise yaml.YAMLError("it contains itself")
    seen: set[str] = set()
    for child in node.value if isinstance(node, yaml.CollectionNode) else []:
        if isinstance(node, yaml.MappingNode):
            key, child = child
            if key.value in seen:
                raise yaml.YAMLError(f"line {key.start_mark.line + 1} names `{key.value}` a second time")
            seen.add(str(key.value))
        _refuse_repeated_keys(child, (*above, id(node)))


def _document_problems(document: object) -> list[str]:
    if not isinstance(document, dict):
        return ["a suite is a mapping with the keys `checks` and `expectations`"]
    problems = [f"unknown key `{k}`{closest(str(k), LISTS)}" for k in document if k not in LISTS]
    return problems + [f"`{k}` is not a list" for k in LISTS if not isinstance(document.get(k, []), list | None)]


def _entry_problems(entry: object, columns: Sequence[str]) -> list[str]:
    if not isinstance(entry, dict):
        return ["an expectation is a mapping with `type` and `kwargs`"]
    problems = [f"unknown key `{k}`{closest(str(k), _KEYS)}" for k in entry if k not in _KEYS]
    kind = entry.get("type")
    if not isinstance(kind, str) or not kind:
        problems.append("`type` is missing")
    elif kind.startswith(OWN):
        problems.append(f"`{kind}` is no expectation; entries of tidefold's catalogue stand under `checks`")
    problems += shared_problems(entry)
    kwargs = entry.get("kwargs")
    if kwargs is not None and not isinstance(kwargs, dict):
        return [*problems, "`kwargs` is not a mapping"]
    return problems + _kwargs_problems(entry, kwargs or {}, columns)


def _kwargs_problems(entry: Mapping[str, Any], kwargs: Mapping[Any, Any], columns: Sequence[str]) -> list[str]:
    problems = [f"`{k}` is set by tidefold" for k in kwargs if k in _RESERVED]
    if not plain(kwargs):
        problems.append("`kwargs` holds something that is not text, a number, a date, a list or a mapping")
    if entry.get("type") == "expect_column_to_exist":
        return problems
    named = [kwargs[k] for k in _COLUMN_ARGUMENTS if k in kwargs]
    named += kwargs["column_list"] if isinstance(kwargs.get("column_list"), list) else []
    return problems + [f"no column `{c}`{closest(str(c), columns)}" for c in named if c not in columns]


def plain(value: object) -> bool:
    """Whether a value of YAML has a canonical form in JSON."""
    if isinstance(value, dict):
        return all(isinstance(k, str) and plain(v) for k, v in value.items())
    if isinstance(value, list):
        return all(plain(v) for v in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int | date)
