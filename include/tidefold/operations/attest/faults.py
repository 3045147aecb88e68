"""Names the rows of a log that differ from its source, and tells those apart that the log itself knows."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any

from tidefold.domain.log_state import Column
from tidefold.domain.table.table_spec import Deletes
from tidefold.domain.wording import list_values
from tidefold.errors import NotFoundError, TidefoldError
from tidefold.operations.attest.sides import LocalRows, PublishedRows, read_rows
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.inspect.explain_key import explain_key
from tidefold.operations.quarantine.inspect import find_refused_keys
from tidefold.sources.database.comparison import RowComparison
from tidefold.sources.database.types import split_texts

# Faults that are told apart with their columns, and those that are explained by a change.
NAMED, _EXPLAINED = 100_000, 3
MISSING, EXTRA, CHANGED = "missing", "extra", "changed"
RowTexts = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class KeyFault:
    """A row that differs from the source.

    kind: missing in the table, extra in it, or changed.
    columns: which of its columns differ.
    excuse: the kind of difference that the log knows; empty: it knows none.
    made_by: the change that made the row of the table.
    """

    key: Mapping[str, Any]
    kind: str
    columns: tuple[str, ...] = ()
    excuse: str = ""
    made_by: str = ""

    def __str__(self) -> str:
        where = {MISSING: "is missing in the table", EXTRA: "is not at the source", CHANGED: "differs"}[self.kind]
        columns = f" in {', '.join(self.columns)}" if self.columns else ""
        return f"{list_values(self.key)} {where}{columns}{f'; {self.made_by}' if self.made_by else ''}"


def name_faults(
    pipeline: Pipeline,
    published: PublishedRows,
    comparison: RowComparison,
    local: LocalRows,
    theirs: Mapping[str, RowTexts],
    keys: Collection[str],
) -> list[KeyFault]:
    """Returns the keys that differ, each with its columns. One that is equal by now is not among them.

    theirs: the text of each value of these keys at the source.
    """
    if not keys:
        return []
    ours = local.read_texts(read_rows(pipeline, published), keys)
    refused = find_refused_keys(pipeline, published.state)
    left_out = {_text_of(comparison, json.loads(one)["key"]) for one in published.snapshot.unresolved_keys}
    faults = []
    for key in sorted(keys):
        fault = _name(published, comparison, key, theirs.get(key), ours.get(key))
        if fault is None:
            continue
        texts = split_texts(key)
        excuse = f"quarantined ({refused[texts]})" if texts in refused else fault.excuse
        faults.append(replace(fault, excuse="left out" if texts in left_out else excuse))
    unknown = islice((fault for fault in faults if not fault.excuse), _EXPLAINED)
    explained = {id(fault): _explain(pipeline, published.state.log, fault) for fault in unknown}
    return [replace(fault, made_by=explained.get(id(fault), "")) for fault in faults]


def _name(
    published: PublishedRows, comparison: RowComparison, key: str, theirs: RowTexts | None, ours: RowTexts | None
) -> KeyFault | None:
    named = read_key(comparison, key)
    merge = published.plan.shape.merge
    if ours is None or theirs is None:
        kind = MISSING if ours is None else EXTRA
        excuse = "deletes ignored" if kind == EXTRA and merge.deletes is not Deletes.APPLY else ""
        return None if ours is theirs else KeyFault(named, kind, excuse=excuse)
    columns = [one for one in comparison.columns if theirs[one.name] != ours[one.name]]
    kinds = {_find_known(comparison, one, theirs[one.name], ours[one.name]) for one in columns}
    excuse = "" if "" in kinds else ", ".join(sorted(kinds))
    return KeyFault(named, CHANGED, tuple(one.name for one in columns), excuse) if columns else None


def _find_known(comparison: RowComparison, column: Column, theirs: str | None, ours: str | None) -> str:
    """Returns which difference of a value the log knows; empty: none."""
    if ours is None and theirs and "NaN" in theirs and comparison.is_numeric(column):
        return "NaN as null"
    return "default" if column.may_lack and ours == column.default else ""


def _explain(pipeline: Pipeline, log: str, fault: KeyFault) -> str:
    """Returns the change that made or deleted the row."""
    try:
        explained = explain_key(pipeline, log, json.dumps(fault.key))
    except NotFoundError:
        return "the log never had it"
    except TidefoldError as error:
        return f"not explained: {error.code}"
    made = explained.made_by
    if made is None:
        return explained.remark
    verb = "deleted by" if made.op == "delete" else "made by"
    landed = f" in {made.landed}" if made.landed else ""
    return f"{verb} {made.op}{f' of order {made.at}' if made.at else ''}{landed}, {made.source}"


def read_key(comparison: RowComparison, text: str) -> dict[str, object]:
    """Returns a key as `explain` takes it."""
    columns = [one for one in comparison.columns if one.name in comparison.key]
    return {one.name: _read_value(one.type, value) for one, value in zip(columns, split_texts(text), strict=True)}


def _read_value(type_: str, text: str) -> object:
    if not text and type_ != "string":
        return None
    if type_ in ("int", "long"):
        return int(text)
    if type_ == "boolean":
        return text == "1"
    if type_ == "date":
        return (date(1970, 1, 1) + timedelta(days=int(text))).isoformat()
    if type_ == "timestamp":
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(text))).isoformat()
    return text


def _text_of(comparison: RowComparison, key: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(key.get(one.name)) for one in comparison.columns if one.name in comparison.key)
