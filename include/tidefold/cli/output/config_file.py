"""The text of a first tidefold.yaml, with comments, from logs that were proposed from landed files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from tidefold.config import log_mistakes
from tidefold.domain.table.table_spec import VERSION
from tidefold.presentation.tables import mask_control_characters
from tidefold.sources.inference.layout import ProposedSet
from tidefold.sources.inference.proposal import ProposalQuestion, ProposedColumn, ProposedLog
from tidefold.storage.cloud_address import SCHEMES, CloudAddress

STORE = "var/store"
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
_WIDTH = 110
# A folder, or the keys of a topic.
SourcePlace = str | Mapping[str, str]

# The program would read these as proposed, perhaps wrongly, once the block is no comment any more.
_OPEN = ("timestamp_formats", "decimal")
_VECTORS = "few changes of a large table cost little; readers must support them (docs/how-to/read.md)"

_HEAD = """\
# Written by `tidefold init` from {origin}. Read it, correct it, then run
# `tidefold validate`. docs/reference/config.md explains every key.
# ASSUMED marks what that does not prove. QUESTION marks what only you know: a log with one is a comment until you
# answer it and remove the `# ` before its lines.
version: 1

# Where changelogs, ledgers, snapshots and tables are kept: a path (relative to this file, or absolute) or an
# address such as `s3://bucket/folder`.
{store}

spark:
  master: "local[*]" # all cores; "local[2]" takes two
  driver_memory: 2g
  above: 64MB # a step that reads at most this many bytes runs without Spark

snapshots:
  kind: auto # full where unchanged files cost no bytes (hard links), else incremental with a full one now and then

retention:
  snapshots: 30 # how many of the newest `tidefold retain subsume` keeps, besides tagged ones; `all` keeps every one
  log: 30d # how far back `tidefold snapshot as-of` can make the rows of any day, whatever the number of snapshots

# When a log raises an alarm: in `tidefold status`, on the page, in metrics, and through a notifier of the DAGs. `never`
# switches one off; a log may have thresholds of its own.
alarms:
  lag: 24h # how long an ingested change may wait to be published
  silence: never # how old the newest published change may be while no change waits
  files: 24h # how long a landed file that is not ingested may stay
  drill: 35d # how old the newest restore drill may be
  growth: 20 # how many times the bytes of its newest snapshot a log may take in the store
  failures: 2 # number of failed runs in a row that are allowed

# Each log becomes one table. Its id names folders of the store: choose it now, it cannot change later. Its key, order
# and merge stay once it has data; `tidefold plan LOG` shows what others change: docs/how-to/change-columns.md.
logs:"""


_WITH_ID = """\
store: {store}
# The id of that store. tidefold refuses an empty store or another one (as when a disk is not mounted). If you change
# `store`, remove this line: the next run prints the new id.
store_id: {store_id}"""

_BESIDE = """\
# ASSUMED store = {store}. Reason: it is beside the landed files. A path on a disk would do, too.
store: {store}
# The first run makes the store, and prints its line `store_id`. Add that here, so that another store is refused."""


def choose_store(directory: str) -> str:
    """Returns where the store belongs: beside landed files in an object store, else on this disk."""
    if directory.partition("://")[0] not in SCHEMES or not CloudAddress.parse(directory)[1]:
        return STORE
    above, _, name = directory.rstrip("/").rpartition("/")
    return f"{above}/{'tidefold' if name != 'tidefold' else 'tidefold-store'}"


def find_undecided(log: ProposedLog, path: SourcePlace, base: Path) -> tuple[str, ...]:
    """Returns what a person must decide before a proposed log can be used; nothing if it can be used as it is."""
    around = (
        isinstance(path, str) and "://" not in path and (base / STORE).resolve().is_relative_to((base / path).resolve())
    )
    notes = (
        *log.notes,
        *([f"its folder {path} contains the store: land files in a folder of their own"] if around else []),
        *(_ask(question, log) for question in log.questions if not question.sure),
    )
    return notes or tuple(log_mistakes(log.id, _entry(log, path)))


def _ask(question: ProposalQuestion, log: ProposedLog) -> str:
    """Returns the question, with candidates as they may be written: by the names of the table."""
    names = {column.alias: column.name for column in log.columns}
    written = [", ".join(names.get(part, part) for part in one.split(", ")) for one in question.candidates]
    candidates = f" Candidates: {'; '.join(written)}" if written else ""
    return f"{question.about}: {question.text}{candidates}"


def list_assumptions(log: ProposedLog) -> list[str]:
    """Lists the assumptions, which hold until a person corrects them, with their evidence."""
    assumed = [_describe_assumption(question) for question in log.questions if question.sure and question.because]
    return [*assumed, f"ignored = {', '.join(log.ignored)}. Reason: no type fits these."] if log.ignored else assumed


def sort_lines(log: ProposedLog) -> dict[str, list[str]]:
    """Returns the lines of a log that the sample proves, and those that a person answered."""
    others = {"time_zone", *(question.about for question in log.questions)}
    order = [] if log.appends or log.order == VERSION else ["order"]
    lines = ["format", *(name for name, _ in log.options), *(["key"] if log.key else []), "columns", *order]
    answered = [question.about for question in log.questions if question.sure and not question.because]
    return {"proved": [name for name in lines if name not in others], "answered": answered}


def _describe_assumption(question: ProposalQuestion) -> str:
    first, *others = question.candidates
    more = f" Other candidates: {'; '.join(others[:5])}." if others else ""
    return f"{question.about} = {first}. Reason: {question.because}.{more}"


def render(
    logs: Sequence[ProposedLog],
    paths: Sequence[SourcePlace],
    base: Path,
    store: str,
    store_id: str,
    *,
    origin: str = "a sample of landed files",
    vectors: bool = False,
) -> str:
    """The file. Undecided logs become comments.

    paths: the landing folder of each log, or its topic, as it is to be written.
    store, store_id: where the store is, and its id; empty: the first run gives it one.
    origin: what shows them.
    vectors: whether all readers of the tables support deletion vectors.
    """
    lines_of_store = (_WITH_ID if store_id else _BESIDE).format(store=store, store_id=store_id)
    parts = [_HEAD.format(origin=origin, store=lines_of_store)]
    for log, path in zip(logs, paths, strict=True):
        notes = find_undecided(log, path, base)
        lines = list(_log_lines(log, path, vectors=vectors))
        if notes:
            lines = [f"  # {line[2:]}" for line in lines]
        marked = [
            *log.warnings,
            *(f"QUESTION {note}" for note in notes),
            *(f"ASSUMED {text}" for text in list_assumptions(log)),
        ]
        sampled = log.sampled or f"Topic {log.topic}, {log.records:,} records sampled."
        parts.append("\n".join([*_comments([sampled, *marked]), *lines]))
    return "\n\n".join(parts) + "\n"


def render_sets(sets: Sequence[ProposedSet], paths: Sequence[str], left_out: Collection[str]) -> str:
    """Returns the end of the file: each proposed set as a comment, because only a person knows what belongs together.

    paths: the folder of each transaction topic as it is to be written. left_out: the logs that are comments.
    """
    if not sets:
        return ""
    lines = [
        "## Debezium's transaction topic becomes no table: it proves which transactions have landed completely. A set",
        "## publishes its tables at one point of the source's log, or none of them (docs/how-to/sets.md). To use it,",
        "## remove the `# ` of its lines.",
    ]
    lines += ["# sets:"] if any(one.logs for one in sets) else []
    for one, path in zip(sets, paths, strict=True):
        lines += _comments(_set_notes(one, left_out), indent="")
        if one.logs:
            lines += [
                f"#   {one.id}:",
                f"#     logs: [{', '.join(log for log in one.logs if log not in left_out)}]",
                "#     consistent: true",
                f"#     transactions: {_word(path)}",
            ]
    return "\n" + "\n".join(lines) + "\n"


def _set_notes(one: ProposedSet, left_out: Collection[str]) -> Iterator[str]:
    if not one.logs and not one.without:
        yield f"Topic {one.topic}: no log can be in a set with it. A set needs PostgreSQL, MySQL or MariaDB."
    if waiting := [log for log in one.logs if log in left_out]:
        yield f"Not in the set yet: {', '.join(waiting)}. Answer the questions of these logs, then add them."
    if one.without:
        yield f"Not in the set: {', '.join(one.without)}. Their sampled changes name no transaction."


def _comments(texts: Iterable[str], indent: str = "  ") -> Iterator[str]:
    """Returns comments of at most the width of the page. A second `#` distinguishes them from lines of YAML."""
    for text in texts:
        line = f"{indent}##"
        for word in _comment(text).split(" "):
            if len(line) + len(word) > _WIDTH:
                yield line
                line = f"{indent}##  "
            line += f" {word}"
        yield line


def landing_path(directory: str, log: ProposedLog | ProposedSet, base: Path) -> str:
    """Returns the path of a landing folder, relative if it is below the folder of the configuration."""
    if "://" in directory:
        return "/".join([directory.rstrip("/"), *PurePosixPath(log.path).parts])
    folder = Path(os.path.abspath(Path(directory) / log.path))
    return str(folder.relative_to(base)) if folder.is_relative_to(base) else str(folder)


def _entry(log: ProposedLog, path: SourcePlace) -> dict[str, object]:
    connector = {"connector": log.connector} if log.connector else {}
    return {
        "source": {
            "format": log.format,
            **connector,
            _place(log, path): path,
            **dict(log.options),
            **_commit_time(log),
        },
        "key": list(log.key),
        "columns": {c.name: _format_type(c) for c in log.columns},
        **({"merge": "append"} if log.appends else {"order": log.order or list(log.order_by)}),
        **({"merge": log.merge} if log.merge else {}),
        **({"ignored": list(log.ignored)} if log.ignored else {}),
    }


def _commit_time(log: ProposedLog) -> dict[str, str]:
    """Returns the order column that contains the commit time, for formats whose rows have no other."""
    times = {column.name for column in log.columns if column.type == "timestamp"}
    time = next((name for name in log.order_by if name in times), None)
    return {"commit_time": time} if time and log.format in ("csv", "parquet", "json") else {}


def _place(log: ProposedLog, path: SourcePlace) -> str:
    if not isinstance(path, str):
        return "kafka"
    return "table" if log.format in ("delta", "delta-cdf") else "path"


def _format_type(column: ProposedColumn) -> Any:
    """Returns the value of a column in the file: its type, or a mapping if it has more settings."""
    more: dict[str, Any] = {"encoding": column.encoding} if column.encoding else {}
    if column.alias:
        more["aliases"] = [column.alias]
    if column.optional:
        more["default"] = None
    return {"type": column.type, **more} if more else column.type


def _log_lines(log: ProposedLog, path: SourcePlace, *, vectors: bool) -> Iterator[str]:
    yield f"  {log.id}:"
    yield "    source:"
    yield f"      format: {log.format}"
    if log.connector:
        yield f"      connector: {_word(log.connector)}"
    yield f"      {_place(log, path)}: {_value(path)}"
    asked = {question.about: question for question in log.questions if not question.sure}
    for name, value in log.options:
        yield f"      {name}: {_open(value, asked[name]) if name in asked and name in _OPEN else _value(value)}"
    for name, value in _commit_time(log).items():
        yield f"      {name}: {_word(value)} # when the source wrote it, for `tidefold snapshot as-of`; also in `order`"
    key = "?" if "key" in asked else ", ".join(_word(name) for name in log.key) or "?"
    if log.appends:
        yield "    key: []"
        yield "    merge: append # each row is one more row of the table"
    else:
        yield f"    key: [{key}] # these columns identify a row"
    yield "    columns: # every column of the table; a record with another one, or of another type, is refused"
    for column in log.columns:
        note = f" # {_comment(column.note)}" if column.note else ""
        yield f"      {_word(column.name)}: {_value(_format_type(column)) if column.type else '?'}{note}"
    if log.ignored:
        yield f"    ignored: {_value(list(log.ignored))} # no type fits these; the table leaves them out"
    columns = () if "order" in asked else log.order_by
    order = _word(log.order) if log.order else f"[{', '.join(map(_word, columns)) or '?'}]"
    if not log.appends:
        yield f"    order: {order} # decides which of two changes is the later one"
        if log.merge:
            yield f"    merge: {log.merge} # what a row lacks stays as it was"
        yield f"    {'' if vectors else '# '}deletion_vectors: true # {_VECTORS}"
    yield "    # on_bad_record: quarantine # the default; or fail: a bad record makes the run ingest nothing of the log"
    yield "    quality:"
    yield "      max_row_drop: 0.5 # a snapshot with less than half the rows of the last one is not published"
    yield f"      # suite: quality/{log.id}.yaml # your own expectations, see docs/reference/quality.md"


def _open(value: Any, question: ProposalQuestion) -> str:
    """Returns a `?` in place of what a person has to choose, and the choices in a comment."""
    if question.about != "timestamp_formats":
        return f"[?] # {' or '.join(_value(one) for one in question.candidates)}"
    decided = "".join(f"{_word(one)}, " for one in value if one not in question.candidates)
    day, month = (", ".join(_word(c) for c in question.candidates if c.startswith(first)) for first in ("%d", "%m"))
    return f"[{decided}?] # {day}: the day comes first; {month}: the month"


def _value(value: Any) -> str:
    """Returns a value as YAML on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_word(name)}: {_value(item)}' for name, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return _word(value) if isinstance(value, str) else json.dumps(value)


def _word(text: str) -> str:
    """Returns text as YAML: in quotes if YAML would parse it as something else."""
    if _PLAIN.fullmatch(text) and isinstance(yaml.safe_load(text), str):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _comment(text: str) -> str:
    return mask_control_characters(text).replace("\n", " ")
