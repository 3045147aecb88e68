"""Applies a person's answers to the questions of a proposal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidefold.domain.table.table_spec import VERSION
from tidefold.sources.inference.proposal import COLUMNS, NUMERIC, ProposalQuestion, ProposedColumn, ProposedLog

# An answer to the question of the order.
_EXTRACT = "extract: full"
# With one of these answers no column is an operation.
_NO_OP = ("none", "no")


def find_mistake(log: ProposedLog, question: ProposalQuestion, text: str) -> str:
    """Returns why a text cannot answer a question; empty: it can, or only the configuration will tell."""
    names = {name for column in log.columns for name in (column.name, column.alias) if name}
    if question.about == "op":
        fit = {*question.candidates, *_NO_OP}
    elif question.about in ("key", "order"):
        fit = names | {part.strip() for one in question.candidates for part in one.split(",")}
        fit |= {"file", _EXTRACT} if question.about == "order" else set()
    else:
        return ""
    unfit = next((part.strip() for part in text.split(",") if part.strip() and part.strip() not in fit), "")
    return f"`{unfit}` is no answer; these are: {', '.join(sorted(fit))}." if unfit else ""


def apply_answers(log: ProposedLog, answers: Mapping[str, str]) -> ProposedLog:
    """Returns the log with a person's answers. An answer is a candidate of the question, or another text."""
    chosen = {about: tuple(part.strip() for part in text.split(",")) for about, text in answers.items() if text.strip()}
    options = dict(log.options)
    names = {column.alias or column.name: column.name for column in log.columns}
    columns = log.columns
    if chosen.get("op") in [(word,) for word in _NO_OP]:
        name = str(options.pop("op")["column"])
        columns = (log.op_column or ProposedColumn(name, "string"), *columns)
    is_extract = chosen.get("order") == (_EXTRACT,)
    if is_extract:
        options["extract"] = "full"
    if "encoding" in chosen:
        options["encoding"] = chosen["encoding"][0]
    if "decimal" in chosen:
        mark = text.strip() if (text := answers["decimal"]) else "."
        options |= {"decimal": mark, "thousands": "." if mark == "," else ","}
    if "timestamp_formats" in chosen:
        asked = {one for q in log.questions if q.about == "timestamp_formats" for one in q.candidates}
        decided = [one for one in options["timestamp_formats"] if one not in asked]
        options["timestamp_formats"] = [*decided, *chosen["timestamp_formats"]]
    if chosen.get("merge") == ("last",):
        log = replace(log, merge="")
    for question in log.questions:
        wanted = answers.get(question.about, "").strip()
        if question.about.startswith(COLUMNS) and wanted and wanted != question.candidates[0]:
            changed = question.about.removeprefix(COLUMNS).split(", ")
            retyped = {
                c: replace(c, type=wanted, encoding=_spell(c, wanted), note="")
                for c in columns
                if (c.alias or c.name) in changed
            }
            columns = tuple(retyped.get(c, c) for c in columns)
    left = tuple(
        replace(question, sure=True, because="") if question.about in chosen else question for question in log.questions
    )
    return replace(
        log,
        key=tuple(names.get(name, name) for name in chosen.get("key", log.key)),
        order=VERSION if is_extract else log.order,
        order_by=() if is_extract else tuple(names.get(name, name) for name in chosen.get("order", log.order_by)),
        columns=columns,
        options=tuple(options.items()),
        questions=left,
        usable=not log.notes and all(question.sure for question in left),
    )


def _spell(column: ProposedColumn, wanted: str) -> str:
    return "string" if (column.type, column.other) == ("string", NUMERIC) and wanted.startswith("decimal") else ""
