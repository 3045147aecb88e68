"""The command that begins a project: init.

The text of a first tidefold.yaml, with comments, from logs that were proposed after a look at landed files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidefold.cli.terminal import Terminal
from tidefold.errors import InvalidInputError, RefusedError

if TYPE_CHECKING:
    from tidefold.config import Config
import json
import re
from collections.abc import Iterator

import yaml

from tidefold.cli.terminal import mask_control_characters
from tidefold.config import log_mistakes
from tidefold.sources.inference.proposal import ProposedLog


def init(
    terminal: Terminal,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with landed files, at any depth.")],
) -> None:
    """Write a commented tidefold.yaml from landed files.

    Samples the files below DIR and proposes one log for each topic: key, columns, order. Read the file and correct
    what you know better. An existing file is never overwritten.

    Example: tidefold init landing/ -c tidefold.yaml

    Next: tidefold validate
    """
    from tidefold.config import load_config
    from tidefold.sources.inference.propose import propose

    path = terminal.config_path
    if path.exists():
        raise _exists(path)
    base = Path(os.path.abspath(path)).parent
    proposed = propose(directory)
    paths = [landing_path(directory, log, base) for log in proposed]
    left_out = {log.id: notes for log, at in zip(proposed, paths, strict=True) if (notes := undecided(log, at, base))}
    if len(left_out) == len(proposed):
        raise _nothing(directory, left_out)
    _create(path, render(proposed, paths, base))
    _tell(terminal, load_config(path), left_out)
    for log in proposed:
        if log.refused:
            terminal.note(f"look at {log.id}: {log.refused}")


def _tell(terminal: Terminal, config: Config, left_out: Mapping[str, Sequence[str]]) -> None:
    data = {"config": str(config.path), "logs": list(config.logs), "left_out": left_out}
    names = ", ".join(config.logs)
    terminal.result(data, f"{terminal.config_path} names {_counted(len(config.logs), 'log')}: {names}.")
    for log, notes in left_out.items():
        terminal.note(f"left out: {log}: {'; '.join(notes)}")
    terminal.note("next: read the file, then `tidefold validate`")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _nothing(directory: Path, left_out: Mapping[str, Sequence[str]]) -> InvalidInputError:
    if not left_out:
        return InvalidInputError(
            "NOTHING_LANDED",
            f"Below `{directory}` is no file that is named as a Kafka sink names it, and none of rows.",
            hint="Names are as `topic+0+0000000000.jsonl`, `.json`, or one of these with `.gz`; or end in `.csv`, "
            "`.csv.gz` or `.parquet`.",
        )
    reasons = "; ".join(f"{log}: {', '.join(notes)}" for log, notes in left_out.items())
    return InvalidInputError(
        "NO_LOG_USABLE", f"None of what landed below `{directory}` can be used in this version. {reasons}."
    )


def _create(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise InvalidInputError("CONFIG_UNWRITABLE", f"`{path}` cannot be written: {error.strerror}.") from error


def _exists(path: Path) -> RefusedError:
    return RefusedError(
        "CONFIG_EXISTS",
        f"`{path}` exists, and is not overwritten.",
        hint="Name another with --config, or move it away.",
    )


STORE = "var/store"
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)

_HEAD = f"""\
# Written by `tidefold init` from a sample of landed files. Read it, change what you know better, then run
# `tidefold validate`. docs/config.md explains every key.
version: 1

# Where changelogs, ledgers, snapshots and tables are kept. Paths are relative to this file, or absolute.
store: {STORE}

spark:
  master: "local[*]" # all cores; "local[2]" takes two
  driver_memory: 2g

retention:
  snapshots: all # or a number: how many of the newest `tidefold subsume` keeps

# Each log becomes one table. Its id names folders of the store: choose it now, it cannot change later.
# key, columns and their types cannot change in this version either once the log has data.
logs:"""


def undecided(log: ProposedLog, path: str, base: Path) -> tuple[str, ...]:
    """What a person must decide before a proposed log can be used; nothing when it can be used as it is."""
    folder = (base / path).resolve()
    around = (base / STORE).resolve().is_relative_to(folder)
    notes = (
        *log.notes,
        *([f"its folder {path} holds the store: land files in a folder of their own"] if around else []),
    )
    return notes or tuple(log_mistakes(log.id, _entry(log, path), base))


def render(logs: Sequence[ProposedLog], paths: Sequence[str], base: Path) -> str:
    """The file. `paths`: the landing folder of each log as it is to be written; undecided logs become comments."""
    parts = [_HEAD]
    for log, path in zip(logs, paths, strict=True):
        notes = undecided(log, path, base)
        lines = list(_log_lines(log, path))
        if notes:
            lines = [*(f"  # Left out, {_comment(note)}" for note in notes), *(f"  # {line[2:]}" for line in lines)]
        sampled = log.sampled or f"Topic {log.topic}, {log.records:,} records sampled."
        trial = [f"  # {_comment(log.refused)}"] if log.refused else []
        parts.append("\n".join([f"  # {_comment(sampled)}", *trial, *lines]))
    return "\n\n".join(parts) + "\n"


def landing_path(directory: Path, log: ProposedLog, base: Path) -> str:
    """How a landing folder is written: relative where it lies below the folder of the configuration."""
    folder = Path(os.path.abspath(directory / log.path))
    return str(folder.relative_to(base)) if folder.is_relative_to(base) else str(folder)


def _entry(log: ProposedLog, path: str) -> dict[str, object]:
    connector = {"connector": log.connector} if log.connector else {}
    return {
        "source": {"format": log.format, **connector, "path": path, **dict(log.options)},
        "key": list(log.key),
        "columns": {c.name: {"type": c.type, "encoding": c.encoding} if c.encoding else c.type for c in log.columns},
        "order": log.order,
    }


def _log_lines(log: ProposedLog, path: str) -> Iterator[str]:
    yield f"  {log.id}:"
    yield "    source:"
    yield f"      format: {log.format}"
    if log.connector:
        yield f"      connector: {_word(log.connector)}"
    yield f"      path: {_word(path)}"
    yield from (f"      {name}: {_word(value)}" for name, value in log.options)
    key = ", ".join(_word(name) for name in log.key) or "?"
    yield f"    key: [{key}] # as the records' own key; these columns tell rows apart"
    yield "    columns: # every column of the table; a record with another one, or of another type, is refused"
    for column in log.columns:
        note = f" # {_comment(column.note)}" if column.note else ""
        written = f"{{type: {column.type}, encoding: {column.encoding}}}" if column.encoding else column.type or "?"
        yield f"      {_word(column.name)}: {written}{note}"
    order = _word(log.order) if log.order else "[?]"
    yield f"    order: {order} # what decides which of two changes is the later one"
    yield "    # on_bad_record: quarantine # the default; or fail: nothing is taken with a bad record"
    yield "    quality:"
    yield "      max_row_drop: 0.5 # a snapshot with less than half the rows of the last one is not published"
    yield f"      # suite: quality/{log.id}.yaml # your own expectations, see docs/quality.md"


def _word(text: str) -> str:
    """Text as YAML writes it: in quotes where it would mean something else."""
    if _PLAIN.fullmatch(text) and isinstance(yaml.safe_load(text), str):
        return text
    return json.dumps(text)


def _comment(text: str) -> str:
    return mask_control_characters(text).replace("\n", " ")
