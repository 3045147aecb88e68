"""Reads the text of a configuration file: bytes -> plain values, with the line of every key.

YAML's traps stay outside: no tags, no aliases, no repeated keys, no surprise types; keys are text as written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from tidefold.errors import InvalidInputError, NotFoundError

SIZE_LIMIT = 1 << 20
_DEPTH_LIMIT = 16
_TYPED = tuple(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float"))

SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kMGT]i?)?B", re.ASCII)
_UNITS = {"k": 1, "M": 2, "G": 3, "T": 4}

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in the file: where (line, dotted key; 0 and empty: the whole file), what, and what to do about it."""

    code: str
    line: int
    key: str
    message: str
    hint: str = ""

    def render(self, file: str) -> str:
        where = f"{file}:{self.line}: " if self.line else f"{file}: "
        key = f"`{self.key}` " if self.key else ""
        return f"{where}{key}{self.message}"


class ConfigError(InvalidInputError):
    """The configuration file is wrong; `problems` lists every mistake found in it."""

    problems: tuple[Problem, ...] = ()


def config_error(path: Path, problems: Sequence[Problem]) -> ConfigError:
    """All mistakes as one error. Its code is theirs when they agree, else CONFIG_INVALID."""
    ordered = sorted(problems, key=lambda p: p.line)
    codes = {p.code for p in ordered}
    if len(ordered) == 1:
        error = ConfigError(ordered[0].code, ordered[0].render(str(path)), hint=ordered[0].hint)
    else:
        lines = [f"{p.render(str(path))} [{p.code}]{f' Next: {p.hint}' if p.hint else ''}" for p in ordered]
        message = "\n  ".join([f"{len(ordered)} mistakes in {path}:", *lines])
        code = codes.pop() if len(codes) == 1 else "CONFIG_INVALID"
        error = ConfigError(code, message, hint="Correct the lines named above; `tidefold validate` checks again.")
    error.problems = tuple(ordered)
    return error


@dataclass(frozen=True, slots=True)
class Document:
    """The values of a file, the line (1 = first) of every key and list item, and the repeated keys found on the way."""

    data: Any
    lines: Mapping[Place, int]
    problems: tuple[Problem, ...] = ()

    def line(self, place: Place) -> int:
        """The line of a place, or of the nearest place around it that the file has."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


def read_document(path: Path) -> Document:
    """Reads a file. Raises NotFoundError, or ConfigError where going on would mean guessing."""
    text = _read_text(path)
    try:
        _check_events(path, text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(path, error) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = Problem("CONFIG_ENCODING", line, "", "holds a character that a text file cannot have.", "Remove it.")
        raise config_error(path, [problem]) from error
    if node is None or (isinstance(node, yaml.ScalarNode) and not node.value.strip()):
        raise config_error(path, [Problem("CONFIG_EMPTY", 0, "", "is empty.", "`tidefold init DIR` writes one.")])
    if not isinstance(node, yaml.MappingNode):
        hint = "Begin with `version: 1`; `tidefold init DIR` writes an example."
        raise config_error(path, [Problem("CONFIG_NOT_A_MAPPING", 1, "", "must hold `key: value` lines.", hint)])
    builder = _Builder()
    return Document(builder.value(node, ()), builder.lines, tuple(builder.problems))


def _read_text(path: Path) -> str:
    if not path.exists():
        raise NotFoundError(
            "CONFIG_NOT_FOUND", f"There is no configuration file `{path}`.",
            hint="`tidefold init DIR` writes one from landed files; --config or TIDEFOLD_CONFIG names another.",
        )  # fmt: skip
    if not path.is_file():
        raise config_error(path, [Problem("CONFIG_NOT_A_FILE", 0, "", "is not a file.", "Name the YAML file itself.")])
    try:
        with path.open("rb") as stream:
            data = stream.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise config_error(path, [Problem("CONFIG_UNREADABLE", 0, "", f"cannot be read: {error.strerror}.")]) from error
    if len(data) > SIZE_LIMIT:
        message = f"is larger than {SIZE_LIMIT} bytes, which no configuration needs."
        raise config_error(path, [Problem("CONFIG_TOO_LARGE", 0, "", message, "Is it the right file?")])
    return _decode(path, data)


def _decode(path: Path, data: bytes) -> str:
    hint = "Save it as UTF-8 without a byte order mark."
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise config_error(path, [Problem("CONFIG_ENCODING", 1, "", "begins with a byte order mark.", hint)])
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise config_error(path, [Problem("CONFIG_ENCODING", line, "", "is not UTF-8 text.", hint)]) from error


def _check_events(path: Path, text: str) -> None:
    """Refuses, before anything is built, what can run code, grow without bound or mean two things."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        problem = None
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            problem = ("CONFIG_ALIAS", "uses an anchor or alias (& or *), which is not allowed.", "Write it out.")
        elif tag := getattr(event, "tag", None):
            problem = ("CONFIG_TAG", f"uses the tag `{tag}`; tags are not allowed.", "Remove the tag.")
        elif depth > _DEPTH_LIMIT:
            problem = ("CONFIG_TOO_DEEP", f"is nested deeper than {_DEPTH_LIMIT} levels.", "See docs/config.md.")
        elif documents > 1:
            problem = ("CONFIG_SYNTAX", "begins a second document (`---`).", "Keep one document a file.")
        if problem:
            code, message, hint = problem
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise config_error(path, [Problem(code, line, "", message, hint)])


def _syntax_error(path: Path, error: yaml.MarkedYAMLError) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 0
    said = error.problem or error.context or "cannot be read as YAML"
    if "'\\t'" in said:
        problem = Problem("CONFIG_TAB", line, "", "is indented with a tab.", "Indent with spaces.")
    else:
        problem = Problem("CONFIG_SYNTAX", line, "", f"is not YAML: {said}.", "Check indentation, colons and quotes.")
    return config_error(path, [problem])


@dataclass(slots=True)
class _Builder:
    """Turns YAML nodes into plain values and notes where each was."""

    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def value(self, node: yaml.Node, place: Place) -> Any:
        if isinstance(node, yaml.MappingNode):
            return dict(self._pairs(node, place))
        if isinstance(node, yaml.SequenceNode):
            for i, item in enumerate(node.value):
                self.lines[*place, i] = item.start_mark.line + 1
            return [self.value(item, (*place, i)) for i, item in enumerate(node.value)]
        return _scalar(node)

    def _pairs(self, node: yaml.MappingNode, place: Place) -> Iterator[tuple[str, Any]]:
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                key = dotted(place)
                self.problems.append(Problem("CONFIG_WRONG_TYPE", line, key, "has a key that is not plain text."))
                continue
            # As written: YAML would make `on`, `no` or `1` another type, but a column may well be called so.
            here = (*place, key_node.value)
            if here in self.lines:
                message = f"stands twice, first on line {self.lines[here]}."
                self.problems.append(Problem("CONFIG_DUPLICATE_KEY", line, dotted(here), message, "Keep one of them."))
                continue
            self.lines[here] = line
            yield key_node.value, self.value(value_node, here)


def _scalar(node: yaml.Node) -> Any:
    if node.tag not in _TYPED:
        return node.value
    try:
        return yaml.constructor.SafeConstructor().construct_object(node)
    except ValueError:  # A number of thousands of digits; the schema will say what is wanted there.
        return node.value


def dotted(place: Place) -> str:
    """`logs.accounts.key[0]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def size_in_bytes(text: str) -> int:
    """Bytes of `500MB`, `1.5 GB` (units of 1000) or `20GiB` (units of 1024); 0 when it is no size."""
    found = SIZE.fullmatch(text)
    unit = (found[2] or "") if found else ""
    factor = (1024 if unit.endswith("i") else 1000) ** _UNITS.get(unit[:1], 0)
    return int(Decimal(found[1]) * factor) if found else 0
