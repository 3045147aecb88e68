"""Infers a column from sampled values, and names it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tidefold.sources.feed import PLACEHOLDER
from tidefold.sources.inference.proposal import COLUMNS, NUMERIC, ProposalQuestion, ProposedColumn
from tidefold.sources.records.errors import infer_type
from tidefold.sources.records.unavailable_values import placeholder_of

is_placeholder = placeholder_of(PLACEHOLDER).is_in
_Infer = Callable[[str, Sequence[Any]], ProposedColumn]
_COLUMN = re.compile(r"[^\W_]\w{0,127}")


def infer_column(name: str, seen: Sequence[Any], infer_plain: _Infer) -> ProposedColumn:
    """Infers a column from its values. It is text if only text fits; `infer_plain` decides for numbers and texts."""
    values = [value for value in seen if value is not None and not is_placeholder(value)]
    if values and all(isinstance(value, dict) and set(value) == {"scale", "value"} for value in values):
        return ProposedColumn(name, "string", "decimals, each with a scale of its own", "decimal")
    if values and all(isinstance(value, list) for value in values):
        kinds = {infer_type([one]) for value in values for one in value if one is not None}
        if not kinds:
            return ProposedColumn(name, "array<string>", "only empty lists seen: check the type")
        kind = kinds.pop() if len(kinds) == 1 else ""
        return ProposedColumn(name, kind) if kind else ProposedColumn(name, "string", "lists, as JSON", "json")
    column = infer_plain(name, values)
    if column.type is not None or not values:
        return column
    return ProposedColumn(name, "string", "values of several kinds, as JSON", "json")


def name_column(column: ProposedColumn, *, of_json: bool = False) -> ProposedColumn:
    """Returns the column with a name that a table can have; the source's own name becomes an alias.

    of_json: no decoder of JSON finds a name with quotes or control characters.
    """
    if _COLUMN.fullmatch(column.name) or (of_json and re.search(r'[\\"\x00-\x1f]', column.name)):
        return column
    name = re.sub(r"\W+", "_", column.name).strip("_")[:128]
    if not _COLUMN.fullmatch(name):
        return column
    return replace(column, name=name, alias=column.name)


def list_names(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the column names in the order of their first occurrence."""
    return list(dict.fromkeys(name for row in rows for name in row))


def ask_types(columns: Sequence[ProposedColumn]) -> list[ProposalQuestion]:
    """Returns the assumptions on columns whose values fit another type as well."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for column in columns:
        if column.type and column.other:
            kinds.setdefault((column.type, column.other), []).append(column.name)
    because = {
        ("string", NUMERIC): "all are numbers, as text",
        ("double", NUMERIC): "some have more digits behind the point; `double` is inexact, so take decimal for money",
        ("timestamp", "long"): "numbers since 1970, by name",
    }
    exact = "JSON does not say whether numbers with a point are exact"
    text = "which type have these numbers?"
    return [
        ProposalQuestion(f"{COLUMNS}{', '.join(names)}", text, kind, sure=True, because=because.get(kind, exact))
        for kind, names in kinds.items()
    ]
