"""The metrics of Great Expectations that are numbers of rows, as conditions of DuckDB. Pure.

An expectation names its metrics, with their arguments. What is not known here is left to Spark: it is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from tidefold.changelog.key_group_hash import quote_name
from tidefold.quality.run.counts import ALL, Count, Sample
from tidefold.quality.run.regex import translate_regex
from tidefold.quality.suite.check import Check, Types, family

if TYPE_CHECKING:
    from great_expectations.validator.metric_configuration import MetricConfiguration

_Arguments = Mapping[str, Any]
# What answers a metric. None: nothing is wanted.
Answerable = Count | Sample | None


_COLUMN_VALUES = "expect_column_values_to_"
# The metric by which an expectation judges, so that an engine can be chosen before Great Expectations is loaded.
_JUDGED_BY = {
    f"{_COLUMN_VALUES}not_be_null": "column_values.nonnull",
    f"{_COLUMN_VALUES}be_null": "column_values.null",
    f"{_COLUMN_VALUES}be_unique": "column_values.unique",
    f"{_COLUMN_VALUES}be_between": "column_values.between",
    f"{_COLUMN_VALUES}be_in_set": "column_values.in_set",
    f"{_COLUMN_VALUES}not_be_in_set": "column_values.not_in_set",
    f"{_COLUMN_VALUES}match_regex": "column_values.match_regex",
    "expect_column_value_lengths_to_be_between": "column_values.value_length.between",
    "expect_column_value_lengths_to_equal": "column_values.value_length.equals",
    "expect_compound_columns_to_be_unique": "compound_columns.unique",
    "expect_table_row_count_to_be_between": "table.row_count",
    "expect_table_row_count_to_equal": "table.row_count",
}
_DOMAIN = {"batch_id", "table", "column", "column_list", "row_condition", "condition_parser", "ignore_row_if"}
_PARSERS = ("great_expectations", "great_expectations__experimental__")
_IGNORED = {"all_values_are_missing": " AND ", "any_value_is_missing": " OR ", "never": ""}
_SIGNS = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_BOUNDS = {"min_value", "max_value", "strict_min", "strict_max"}
# What Great Expectations parses as a condition, as far as it is known here.
_CONDITION = re.compile(r'col\("([^"]+)"\)(?:\.notNull\(\)|\s*([<>]=?|[=!]=)\s*(?:"([^"]*)"|(-?\d+)|(-?\d+\.\d+)))')
# Values and places of bad rows. An expectation asks for them even if none is wanted.
_SAMPLES = ("unexpected_values", "unexpected_index_list", "unexpected_index_query", "unexpected_rows")


class _UnknownError(Exception):
    """Nobody here counts that."""


def can_judge(check: Check, types: Types) -> bool:
    """Whether a check needs no Spark."""
    return check.own or find_count(check, types) is not None


def find_count(check: Check, types: Types) -> Count | None:
    """Returns the number of bad rows by which an expectation judges, or that of all rows; None: only Spark judges it.

    The values of its condition may have other types than those that Great Expectations makes of them.
    """
    metric = _JUDGED_BY.get(check.type)
    if metric is None:
        return None
    domain = {"ignore_row_if": "all_values_are_missing"} | {k: v for k, v in check.kwargs.items() if k in _DOMAIN}
    arguments = {k: v for k, v in check.kwargs.items() if k not in _DOMAIN and k != "mostly"}
    if isinstance(domain.get("row_condition"), str):
        domain["row_condition"] = _parse_condition(domain["row_condition"], domain.get("condition_parser"))
    try:
        if metric == "table.row_count":
            return _count_of(metric, domain, {}, types)
        return _count_of(f"{metric}.unexpected_count", domain, arguments, types)
    except (_UnknownError, AttributeError, KeyError, TypeError):
        # What Great Expectations refuses by name is unknown, too.
        return None


def _parse_condition(text: str, parser: object) -> _Arguments:
    """Returns a condition as the tree that Great Expectations makes of it."""
    parsed = _CONDITION.fullmatch(text) if parser in _PARSERS else None
    if parsed is None:
        return {}
    name, operator, word, whole, real = parsed.groups()
    column = {"name": name}
    if operator is None:
        return {"type": "nullity", "column": column, "is_null": False}
    value: object = word if word is not None else int(whole) if whole else float(real)
    return {"type": "comparison", "column": column, "operator": operator, "parameter": value}


def find_answers(asked: Sequence[MetricConfiguration], types: Types) -> list[Answerable] | None:
    """Returns what answers each metric; None: one of them is unknown."""
    try:
        return [_find_answer(one, types) for one in asked]
    except _UnknownError:
        return None


def _find_answer(asked: MetricConfiguration, types: Types) -> Answerable:
    domain, arguments = asked.metric_domain_kwargs, dict(asked.metric_value_kwargs or {})
    form = arguments.pop("result_format", {})
    name, _, kind = asked.metric_name.rpartition(".")
    if kind not in _SAMPLES:
        return _count_of(asked.metric_name, domain, arguments, types)
    key, listed = form.get("unexpected_index_column_names") or [], kind == "unexpected_index_list"
    # Of rows with a key only the list with their keys is shown.
    if not form["partial_unexpected_count"] or listed != bool(key) or kind == "unexpected_index_query":
        return None
    count = _count_of(f"{name}.unexpected_count", domain, arguments, types)
    shown = domain.get("column_list") or [domain["column"]]
    columns = tuple(dict.fromkeys([*key, *shown]))
    return Sample(count, columns, form["partial_unexpected_count"], listed or "column_list" in domain)


def _count_of(metric: str, domain: _Arguments, arguments: _Arguments, types: Types) -> Count:
    name, _, kind = metric.rpartition(".")
    if any(value is not None and key not in _DOMAIN for key, value in domain.items()):
        raise _UnknownError
    considered = _find_considered(domain.get("row_condition"), types)
    if metric == "table.row_count" and not arguments:
        return considered
    if name == "compound_columns.unique" and kind in ("unexpected_count", "filtered_row_count") and not arguments:
        return considered & _find_filled(domain, types, kind == "unexpected_count")
    if name not in _BAD_VALUES or kind != "unexpected_count":
        raise _UnknownError
    arguments_of, find_bad = _BAD_VALUES[name]
    null = _is_null(domain.get("column"), types)
    if not arguments_of >= arguments.keys():
        raise _UnknownError
    if name == "column_values.nonnull":
        return considered & null
    [column] = null.columns
    bad = find_bad(quote_name(column), arguments, family(types[column]))
    return considered & _negate(null) & replace(bad, same=(column,) if name == "column_values.unique" else ())


def _find_filled(domain: _Arguments, types: Types, duplicates: bool) -> Count:
    """Returns the rows that are not ignored for their nulls, or those of them that are there twice."""
    names, ignored = tuple(domain.get("column_list") or ()), domain["ignore_row_if"]
    if ignored not in _IGNORED or not names:
        raise _UnknownError
    nulls = [_is_null(name, types) for name in names]
    where = _IGNORED[ignored].join(null.where for null in nulls) if _IGNORED[ignored] else "false"
    return Count(f"NOT ({where})", columns=frozenset(names), same=names if duplicates else ())


def _is_null(column: Any, types: Types) -> Count:
    if column not in types:
        raise _UnknownError
    return Count(f"{quote_name(column)} IS NULL", columns=frozenset((column,)))


def _negate(count: Count) -> Count:
    return replace(count, where=f"NOT ({count.where})")


def _fits(value: object, kind: str) -> bool:
    """Whether a value can be compared with a column of this family of types, and equally by both engines."""
    if kind == "number":
        return type(value) is float or (type(value) is int and -(1 << 63) <= value < 1 << 63)
    if kind == "date":
        return isinstance(value, date) and not isinstance(value, datetime)
    return type(value) is {"string": str, "boolean": bool, "timestamp": datetime}.get(kind)


def _out_of_bounds(value: str, bounds: _Arguments, kind: str) -> Count:
    """The condition of a value that is not within bounds."""
    below, above = "<=" if bounds.get("strict_min") else "<", ">=" if bounds.get("strict_max") else ">"
    limits = ((below, bounds.get("min_value")), (above, bounds.get("max_value")))
    sides = {sign: bound for sign, bound in limits if bound is not None}
    if kind in ("string", "boolean") or not sides or not all(_fits(bound, kind) for bound in sides.values()):
        raise _UnknownError
    return Count(" OR ".join(f"{value} {sign} ?" for sign in sides), tuple(sides.values()))


def _in_set(value: str, arguments: _Arguments, kind: str) -> Count:
    values = arguments.get("value_set")
    if kind == "timestamp" or not isinstance(values, list):
        raise _UnknownError
    listed = tuple(one for one in values if one is not None)
    if not all(_fits(one, kind) for one in listed):
        raise _UnknownError
    return Count(f"{value} IN ({', '.join('?' * len(listed))})" if listed else "false", listed)


def _mismatch(value: str, arguments: _Arguments, kind: str) -> Count:
    pattern = translate_regex(str(arguments.get("regex", "")))
    if pattern is None or kind != "string":
        raise _UnknownError
    return Count(f"NOT regexp_matches({value}, ?)", (pattern,))


def _bad_length(value: str, bounds: _Arguments, kind: str) -> Count:
    if kind != "string":
        raise _UnknownError
    both = {"min_value": bounds["value"], "max_value": bounds["value"]} if "value" in bounds else bounds
    return _out_of_bounds(f"length({value})", both, "number")


# For each metric its arguments, and the condition of a bad value among those that are not null. A newer Great
# Expectations may have more arguments: what they mean is unknown here.
_BAD_VALUES: Mapping[str, tuple[set[str], Callable[[str, _Arguments, str], Count]]] = {
    "column_values.nonnull": (set(), lambda *_: ALL),
    "column_values.null": (set(), lambda *_: ALL),
    "column_values.unique": (set(), lambda *_: ALL),
    "column_values.between": (_BOUNDS, _out_of_bounds),
    "column_values.value_length.between": (_BOUNDS, _bad_length),
    "column_values.value_length.equals": ({"value"}, _bad_length),
    "column_values.in_set": ({"value_set"}, lambda *of: _negate(_in_set(*of))),
    "column_values.not_in_set": ({"value_set"}, _in_set),
    "column_values.match_regex": ({"regex"}, _mismatch),
}


def _find_considered(tree: _Arguments | None, types: Types) -> Count:
    """Returns the rows that are considered."""
    if tree is None:
        return ALL
    kind, name = tree.get("type"), tree.get("column", {}).get("name")
    if kind == "nullity":
        null = _is_null(name, types)
        return null if tree["is_null"] else _negate(null)
    if kind == "comparison" and tree["operator"] in _SIGNS and _fits(tree["parameter"], family(types.get(name, ""))):
        where = f"{quote_name(name)} {_SIGNS[tree['operator']]} ?"
        return Count(where, (tree["parameter"],), frozenset((name,)))
    raise _UnknownError
