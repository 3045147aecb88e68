"""The text of a first tidefold.yaml, with comments, from logs that were proposed after a look at landed files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from tidefold.cli.terminal import harmless
from tidefold.config import log_mistakes
from tidefold.sources.proposed import ProposedLog

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
        parts.append("\n".join([f"  # {_comment(sampled)}", *lines]))
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
        "columns": {c.name: c.type for c in log.columns},
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
        yield f"      {_word(column.name)}: {column.type or '?'}{note}"
    order = _word(log.order) if log.order else "[?]"
    yield f"    order: {order} # what decides which of two changes is the later one"
    yield "    on_bad_record: quarantine # put aside and counted; or fail: its file is not taken"
    yield "    quality:"
    yield "      max_row_drop: 0.5 # a snapshot with less than half the rows of the last one is not published"
    yield f"      # suite: quality/{log.id}.yaml # your own expectations, see docs/quality.md"


def _word(text: str) -> str:
    """Text as YAML writes it: in quotes where it would mean something else."""
    if _PLAIN.fullmatch(text) and isinstance(yaml.safe_load(text), str):
        return text
    return json.dumps(text)


def _comment(text: str) -> str:
    return harmless(text).replace("\n", " ")
