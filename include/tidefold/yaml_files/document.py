"""Reads the text of a YAML file: bytes -> plain values, with the line of every key.

YAML's traps are refused: tags, aliases, repeated keys. Keys are text as written.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tidefold.errors import InvalidInputError

SIZE_LIMIT = 8 << 20
_Loader = type[yaml.SafeLoader] | type[yaml.CSafeLoader]
_DEPTH_LIMIT = 16
_TYPED = tuple(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float"))
_TIMESTAMP = "tag:yaml.org,2002:timestamp"

YamlPath = tuple[str | int, ...]
_UNDECIDED = (
    "is still `?`: the landed files did not show it, so `tidefold init` left it open.",
    "Answer the QUESTION in the comment above it: write names of columns in the place of `?`, or what it says.",
)


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One mistake in a file.

    line: where it is; 0: the whole file.
    key: its place, as `logs.accounts.key[0]`; empty: the whole file.
    hint: the next step.
    """

    code: str
    line: int
    key: str
    message: str
    hint: str = ""

    def render(self, file: str) -> str:
        """`file:line: key message`."""
        where = f"{file}:{self.line}: " if self.line else f"{file}: "
        key = f"`{self.key}` " if self.key else ""
        return f"{where}{key}{self.message}"


class ConfigError(InvalidInputError):
    """A file of the configuration has mistakes; `problems` lists all of them."""

    problems: tuple[ConfigProblem, ...] = ()


def config_error(path: Path, problems: Sequence[ConfigProblem]) -> ConfigError:
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
class YamlDocument:
    """The content of a file.

    data: its plain values; None for an empty file.
    lines: the line (1 = first) of every key and list item.
    problems: the repeated keys, and keys that are not text.
    """

    data: Any
    lines: Mapping[YamlPath, int]
    problems: tuple[ConfigProblem, ...] = ()

    def line(self, place: YamlPath) -> int:
        """The line of a place, or of the nearest place around it that the file has."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


def read_text(path: Path, limit: int = SIZE_LIMIT) -> str:
    """The text of a file of at most `limit` bytes. Raises ConfigError, also for a pipe or a device."""
    try:
        # Without waiting for the writer of a pipe.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise OSError(0, "it is not a regular file")
            data = stream.read(limit + 1)
    except OSError as error:
        message = f"cannot be read: {error.strerror}."
        raise config_error(
            path, [ConfigProblem("CONFIG_UNREADABLE", 0, "", message, "Check its permissions.")]
        ) from error
    if len(data) > limit:
        message = f"is larger than {limit} bytes."
        raise config_error(path, [ConfigProblem("CONFIG_TOO_LARGE", 0, "", message, "Is it the right file?")])
    return _decode(path, data)


def parse_document(path: Path, text: str, dates: bool = False) -> YamlDocument:
    """The content of a text. Raises ConfigError where the content would be a guess.

    path: the name of the file, for messages.
    dates: whether dates and instants become values; otherwise they stay text.
    """
    try:
        node = _compose(path, text)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(path, error) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = ConfigProblem("CONFIG_ENCODING", line, "", "contains a control character.", "Remove it.")
        raise config_error(path, [problem]) from error
    builder = _DocumentBuilder((*_TYPED, _TIMESTAMP) if dates else _TYPED)
    data = None if node is None else builder.build(node, ())
    if undecided := [problem for problem in builder.problems if problem.code == "CONFIG_UNDECIDED"]:
        raise config_error(path, undecided)
    return YamlDocument(data, builder.lines, tuple(builder.problems))


def _compose(path: Path, text: str) -> yaml.Node | None:
    """Returns the nodes of a text whose events are allowed. Raises ConfigError, and the errors of YAML.

    libyaml is ten times as fast. Its messages differ, so the mistakes of a text are found again without it.
    """
    if yaml.__with_libyaml__:
        with suppress(yaml.YAMLError):
            return _compose_with(yaml.CSafeLoader, path, text)
    return _compose_with(yaml.SafeLoader, path, text)


def _compose_with(loader: _Loader, path: Path, text: str) -> yaml.Node | None:
    _check_events(path, text, loader)
    return yaml.compose(text, Loader=loader)


def _decode(path: Path, data: bytes) -> str:
    hint = "Save it as UTF-8 without a byte order mark."
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise config_error(path, [ConfigProblem("CONFIG_ENCODING", 1, "", "begins with a byte order mark.", hint)])
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise config_error(path, [ConfigProblem("CONFIG_ENCODING", line, "", "is not UTF-8 text.", hint)]) from error


def _check_events(path: Path, text: str, loader: _Loader) -> None:
    """Refuses, before anything is built, what can run code, grow without bound or mean two things."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=loader):
        problem = None
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            problem = ("CONFIG_ALIAS", "uses an anchor or alias (& or *), which is not allowed.", "Write it out.")
        elif tag := getattr(event, "tag", None):
            problem = ("CONFIG_TAG", f"uses the tag `{tag}`; tags are not allowed.", "Remove the tag.")
        elif depth > _DEPTH_LIMIT:
            problem = (
                "CONFIG_TOO_DEEP",
                f"is nested deeper than {_DEPTH_LIMIT} levels.",
                "Write it with fewer levels.",
            )
        elif documents > 1:
            problem = ("CONFIG_SYNTAX", "begins a second document (`---`).", "Keep one document a file.")
        if problem:
            code, message, hint = problem
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise config_error(path, [ConfigProblem(code, line, "", message, hint)])


def _syntax_error(path: Path, error: yaml.MarkedYAMLError) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 0
    reason = error.problem or error.context or "cannot be read as YAML"
    if "'\\t'" in reason:
        problem = ConfigProblem("CONFIG_TAB", line, "", "is indented with a tab.", "Indent with spaces.")
    else:
        problem = ConfigProblem(
            "CONFIG_SYNTAX", line, "", f"is not YAML: {reason}.", "Check indentation, colons and quotes."
        )
    return config_error(path, [problem])


@dataclass(slots=True)
class _DocumentBuilder:
    """Turns YAML nodes into plain values and notes the line of each. `typed`: the tags of values other than text."""

    typed: tuple[str, ...]
    lines: dict[YamlPath, int] = field(default_factory=dict)
    problems: list[ConfigProblem] = field(default_factory=list)

    def build(self, node: yaml.Node, place: YamlPath) -> Any:
        if isinstance(node, yaml.MappingNode):
            return dict(self._build_pairs(node, place))
        if isinstance(node, yaml.SequenceNode):
            for i, item in enumerate(node.value):
                self.lines[*place, i] = item.start_mark.line + 1
            return [self.build(item, (*place, i)) for i, item in enumerate(node.value)]
        if node.tag not in self.typed:
            return node.value
        try:
            return yaml.constructor.SafeConstructor().construct_object(node)
        except ValueError:  # A number of thousands of digits, or no day of the calendar: the model refuses the text.
            return node.value

    def _build_pairs(self, node: yaml.MappingNode, place: YamlPath) -> Iterator[tuple[str, Any]]:
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                key = format_place(place)
                self.problems.append(ConfigProblem("CONFIG_WRONG_TYPE", line, key, "has a key that is not plain text."))
                continue
            if not key_node.value and not value_node.value:
                # `[?]`, as `tidefold init` writes what it leaves open.
                self.problems.append(ConfigProblem("CONFIG_UNDECIDED", line, format_place(place[:-1]), *_UNDECIDED))
                continue
            # As written: YAML would make `on`, `no` or `1` another type, but a column may have such a name.
            here = (*place, key_node.value)
            if here in self.lines:
                message = f"occurs twice, first on line {self.lines[here]}."
                self.problems.append(
                    ConfigProblem("CONFIG_DUPLICATE_KEY", line, format_place(here), message, "Keep one of them.")
                )
                continue
            self.lines[here] = line
            yield key_node.value, self.build(value_node, here)


def format_place(place: YamlPath) -> str:
    """`logs.accounts.key[0]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")
