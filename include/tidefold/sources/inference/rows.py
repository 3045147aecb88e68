"""Proposes a log for a feed of rows: CSV, Parquet or plain JSON, from a sample of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidefold.sources.inference import roles
from tidefold.sources.inference.proposal import ProposalQuestion, ProposedColumn, ProposedLog

# What pandas calls the index of a frame.
_INDEX = re.compile(r"__index_level_\d+__|Unnamed: \d+")
_COLUMN = re.compile(r"[^\W_]\w{0,127}")


@dataclass(frozen=True, slots=True)
class SampledFeed:
    """Sampled rows of one folder.

    id, topic, path, format: as the log has them.
    columns: each with the type that fits.
    rows: the values by their names in the source.
    options: options of the source, as far as the files show them.
    sampled: what was sampled.
    key: the key of the records, if they have one.
    ordered: whether the offset of a record orders it.
    notes, questions: what is already open.
    row_field: the field of a record that contains the row, if the record itself is not the row.
    """

    id: str
    topic: str
    path: str
    format: str
    columns: tuple[ProposedColumn, ...]
    rows: Sequence[Mapping[str, Any]]
    sampled: str
    options: Mapping[str, Any] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    ordered: bool = False
    notes: tuple[str, ...] = ()
    questions: tuple[ProposalQuestion, ...] = ()
    row_field: str = ""


def propose_rows(feed: SampledFeed) -> ProposedLog:
    """Returns the log with its best candidates, and a question for each choice that the sample does not prove."""
    ops = roles.find_ops([c.name for c in feed.columns], feed.rows)
    op = ops[0] if ops else None
    columns = [c for c in feed.columns if op is None or c.name != op.column]
    keys = [feed.key] if feed.key else roles.find_keys(feed.id, columns, feed.rows, op)
    key = keys[0] if keys else ()
    orders = [] if feed.ordered else roles.find_orders(columns, feed.rows, key)
    questions = [*feed.questions]
    if question := roles.op_question(ops, feed.rows):
        questions.append(question)
    empty = not feed.rows and bool(feed.notes)  # Then no question is needed.
    if not feed.key and not empty:
        questions.append(roles.key_question(feed.id, keys, feed.rows, op))
    if not feed.ordered and not empty:
        questions.append(roles.order_question(columns, orders))
    ignored = tuple(c.name for c in columns if c.type is None or _INDEX.fullmatch(c.name))
    named = {column.name: name_column(column) for column in columns if column.name not in ignored}
    notes = [*feed.notes, *([] if named or feed.notes else ["no column was found"])]
    row = {"row": feed.row_field} if feed.row_field else {}
    options = {**feed.options, **({"op": {**op.option, **row}} if op else {})}
    return ProposedLog(
        id=feed.id,
        topic=feed.topic,
        path=feed.path,
        key=tuple(named[name].name for name in key if name in named),
        columns=tuple(named.values()),
        connector="",
        order="position" if feed.ordered else "",
        records=len(feed.rows),
        usable=not notes and all(question.sure for question in questions),
        notes=tuple(notes),
        format=feed.format,
        options=tuple(options.items()),
        sampled=feed.sampled,
        order_by=tuple(named[name].name for name in orders[:1]),
        questions=tuple(questions),
        ignored=ignored,
    )


def name_column(column: ProposedColumn) -> ProposedColumn:
    """Returns the column with a name that a table can have; the source's own name becomes an alias."""
    if _COLUMN.fullmatch(column.name):
        return column
    name = re.sub(r"\W+", "_", column.name).strip("_")[:128]
    if not _COLUMN.fullmatch(name):
        return column
    return replace(column, name=name, alias=column.name)


def apply_answers(log: ProposedLog, answers: Mapping[str, str]) -> ProposedLog:
    """Returns the log with a person's answers. An answer is a candidate of the question, or another text."""
    given = {about: tuple(part.strip() for part in text.split(",")) for about, text in answers.items() if text.strip()}
    options = dict(log.options)
    names = {column.alias or column.name: column.name for column in log.columns}
    columns = log.columns
    if given.get("op") == ("none",):
        columns = (ProposedColumn(str(options.pop("op")["column"]), "string"), *columns)
    if "encoding" in given:
        options["encoding"] = given["encoding"][0]
    if "timestamp_formats" in given:
        options["timestamp_formats"] = list(given["timestamp_formats"])
    left = tuple(replace(question, sure=True) if question.about in given else question for question in log.questions)
    return replace(
        log,
        key=tuple(names.get(name, name) for name in given.get("key", log.key)),
        order_by=tuple(names.get(name, name) for name in given.get("order", log.order_by)),
        columns=columns,
        options=tuple(options.items()),
        questions=left,
        usable=not log.notes and all(question.sure for question in left),
    )
