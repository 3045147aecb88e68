"""Reads a suite file: YAML, checked key by key, every problem named with its line."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from tidefold.lifecycle.errors import InvalidInputError

_KEYS = ("type", "kwargs", "name", "severity")
_SEVERITIES = ("fail", "warn")
# Arguments that say which rows are judged and how results look: the gate's business, not the file's.
_RESERVED = ("batch_id", "result_format", "catch_exceptions", "meta", "id", "severity")
_COLUMN_ARGUMENTS = ("column", "column_A", "column_B")


@dataclass(frozen=True, slots=True)
class Entry:
    """One expectation as the file gives it; an empty `name` means none was given."""

    type: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    severity: str = "fail"


def read_entries(path: Path, columns: Sequence[str]) -> list[Entry]:
    """The expectations of a suite file for a table with these columns. Raises InvalidInputError."""
    text = _read(path)
    try:
        document = yaml.safe_load(text)
        lines = _entry_lines(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidInputError("SUITE_INVALID", f"`{path}` is not YAML: {_one_line(error)}.") from error
    problems = _document_problems(document)
    if not problems:
        entries = document.get("expectations") or []
        for line, entry in zip(lines, entries, strict=True):
            problems += [f"line {line}: {problem}" for problem in _entry_problems(entry, columns)]
    if problems:
        raise InvalidInputError("SUITE_INVALID", f"`{path}`: {'; '.join(problems)}.", hint="Correct the suite file.")
    return [Entry(**{k: v for k, v in entry.items() if v is not None}) for entry in entries]


def closest(word: str, known: Sequence[str]) -> str:
    """`, did you mean ...?` with the known word nearest to a mistyped one, or nothing."""
    near = difflib.get_close_matches(word, known, n=1)
    return f", did you mean `{near[0]}`?" if near else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            "SUITE_UNREADABLE",
            f"The suite file `{path}` cannot be read: {_one_line(error)}.",
            hint="Correct `quality: suite:` of the log, or the file.",
        ) from error


def _entry_lines(text: str) -> list[int]:
    """Line of each expectation. Raises YAMLError when a mapping names a key twice, which YAML's loader lets pass."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    _refuse_repeated_keys(root, ())
    for key, value in root.value if isinstance(root, yaml.MappingNode) else []:
        if key.value == "expectations" and isinstance(value, yaml.SequenceNode):
            return [item.start_mark.line + 1 for item in value.value]
    return []


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
        return ["a suite is a mapping with the key `expectations`"]
    problems = [f"unknown key `{k}`{closest(str(k), ['expectations'])}" for k in document if k != "expectations"]
    if not isinstance(document.get("expectations", []), list | None):
        problems.append("`expectations` is not a list")
    return problems


def _entry_problems(entry: object, columns: Sequence[str]) -> list[str]:
    if not isinstance(entry, dict):
        return ["an expectation is a mapping with `type` and `kwargs`"]
    problems = [f"unknown key `{k}`{closest(str(k), _KEYS)}" for k in entry if k not in _KEYS]
    if not isinstance(entry.get("type"), str) or not entry["type"]:
        problems.append("`type` is missing")
    name = entry.get("name")
    if name is not None and not (isinstance(name, str) and name.isprintable()):
        problems.append("`name` is not one line of text")
    if entry.get("severity", "fail") not in (*_SEVERITIES, None):
        problems.append(f"severity `{entry['severity']}` is neither `fail` nor `warn`")
    kwargs = entry.get("kwargs")
    if kwargs is not None and not isinstance(kwargs, dict):
        return [*problems, "`kwargs` is not a mapping"]
    return problems + _kwargs_problems(entry, kwargs or {}, columns)


def _kwargs_problems(entry: Mapping[str, Any], kwargs: Mapping[Any, Any], columns: Sequence[str]) -> list[str]:
    problems = [f"`{k}` is set by tidefold" for k in kwargs if k in _RESERVED]
    if not _plain(kwargs):
        problems.append("`kwargs` holds something that is not text, a number, a date, a list or a mapping")
    if entry.get("type") == "expect_column_to_exist":
        return problems
    named = [kwargs[k] for k in _COLUMN_ARGUMENTS if k in kwargs]
    named += kwargs["column_list"] if isinstance(kwargs.get("column_list"), list) else []
    return problems + [f"no column `{c}`{closest(str(c), columns)}" for c in named if c not in columns]


def _plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(k, str) and _plain(v) for k, v in value.items())
    if isinstance(value, list):
        return all(_plain(v) for v in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int | date)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
