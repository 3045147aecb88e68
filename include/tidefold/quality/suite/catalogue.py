"""The catalogue: short entries of a suite file's `checks`, each of which becomes one check or several.

What looks at single rows, and what has a fixed bound, becomes an expectation of Great Expectations. What compares with
another snapshot or another table is computed by tidefold (`measured.py`, `references.py`).

Reads what one entry of the catalogue was given: typed, against the columns that there are, every mistake noted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from tidefold.quality.suite.check import Check, Severity
from tidefold.quality.suite.suite_file import OWN, Item, closest, plain, shared_problems

Types = Mapping[str, str]
_AGE = re.compile(r"([1-9]\d{0,5}) (minute|hour|day)s?")
_SECONDS = {"minute": 60, "hour": 3600, "day": 86_400}
# Great Expectations compares with floating point numbers, which hold every whole number below this.
_EXACT = 1 << 53
_FAMILIES = {"int": "number", "long": "number", "float": "number", "double": "number"}
_WORDS = {
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "date": "a date, as 2026-01-31",
    "timestamp": "an instant, as 2026-01-31T00:00:00Z",
}


def family(type_: str) -> str:
    """What values of a type can be compared with: number, string, boolean, date, timestamp; or the type itself."""
    return "number" if type_.startswith("decimal") else _FAMILIES.get(type_, type_)


@dataclass(slots=True)
class Given:
    """The value of one entry, and the mistakes found in it so far."""

    kind: str
    values: Mapping[str, Any]
    columns: Types
    logs: Mapping[str, Types]
    problems: list[str] = field(default_factory=list)

    def wrong(self, problem: str) -> None:
        self.problems.append(f"`{self.kind}`: {problem}")

    def column(self, *families: str) -> str:
        """The column it is about, which must be of one of these families, if any are named."""
        name = self.values.get("column")
        if self.known(name) and families and family(self.columns[str(name)]) not in families:
            allowed = " or ".join(f"`{f}`" for f in families)
            self.wrong(f"column `{name}` is of type `{self.columns[str(name)]}`, allowed: {allowed}")
        return str(name)

    def known(self, name: object) -> bool:
        if isinstance(name, str) and name in self.columns:
            return True
        if "column" in self.values or "columns" in self.values:
            hint = closest(str(name), list(self.columns)) or f"; columns are: {', '.join(self.columns)}"
            self.wrong(f"no column `{name}`{hint}")
        return False

    def names(self) -> list[str]:
        """The columns of an entry that is given one name or a list."""
        names = self.values["columns"]
        listed: list[Any] = names if isinstance(names, list) else [names]
        if not listed or len({str(n) for n in listed}) < len(listed):
            self.wrong("give one column, or a list of different ones")
        for name in listed:
            self.known(name)
        return [str(n) for n in listed]

    def share(self, key: str, least: float = 0.0, most: float = math.inf) -> float | None:
        """A share: 0.1 is a tenth."""
        value = self.values.get(key)
        if value is None:
            return None
        top = "up" if most == math.inf else f"to {most:g}"
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            self.wrong(f"`{key}` is `{value}`, but must be a share from {least:g} {top} (0.1 is a tenth)")
            return None
        if not math.isfinite(value):
            self.wrong(f"`{key}` is not a number")
        return float(value)

    def count(self, key: str) -> int | None:
        value = self.values.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _EXACT):
            self.wrong(f"`{key}` is `{value}`, but must be a whole number from 0")
        return value

    def bound(self, key: str, type_: str) -> Any:
        """A value to compare a column's values with."""
        value = self.values.get(key)
        if value is not None:
            self.fits(key, value, type_)
        return value

    def fits(self, key: str, value: object, type_: str) -> None:
        kind = family(type_)
        if not type_:
            return  # The column is unknown, which was said.
        if not _is_a(value, kind):
            quotes = " (quote it: YAML reads it as something else)" if kind == "string" else ""
            self.wrong(f"`{key}` holds `{value}`, but `{type_}` needs {_WORDS.get(kind, kind)}{quotes}")
        elif kind == "number" and isinstance(value, int | float) and not abs(value) < _EXACT:
            self.wrong(f"`{key}` holds `{value}`: numbers from 2^53 on are not compared exactly")

    def listed(self, key: str, type_: str) -> list[Any]:
        values = self.values.get(key)
        if not isinstance(values, list) or not values:
            self.wrong(f"`{key}` must be a list of at least one value")
            return []
        for value in values:
            self.fits(key, value, type_)
        return values

    def pattern(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str) or not value:
            self.wrong(f"`{key}` must be a regular expression, as text")
        return str(value)

    def age(self, key: str) -> int:
        """An age in seconds, given as `2 days`."""
        found = _AGE.fullmatch(str(self.values.get(key)))
        if found is None:
            self.wrong(f"`{key}` is `{self.values.get(key)}`, but must be like `30 minutes`, `12 hours` or `2 days`")
            return 0
        return int(found[1]) * _SECONDS[found[2]]

    def flag(self, key: str) -> bool:
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            self.wrong(f"`{key}` is `{value}`, but must be true or false")
        return bool(value)

    def target(self, key: str, type_: str) -> tuple[str, str]:
        """A column of another log, given as `log.column`."""
        log, _, column = str(self.values.get(key)).partition(".")
        if log not in self.logs:
            self.wrong(f"`{key}` names no log `{log}`{closest(log, list(self.logs)) or _listing('logs', self.logs)}")
        elif column not in self.logs[log]:
            known = list(self.logs[log])
            hint = closest(column, known) or _listing("columns", known)
            self.wrong(f"`{key}`: log `{log}` has no column `{column}`{hint}")
        elif not _comparable(self.logs[log][column], type_):
            self.wrong(f"`{key}`: `{log}.{column}` is of type `{self.logs[log][column]}`, the column of type `{type_}`")
        return log, column

    def one_of(self, *keys: str) -> None:
        if all(self.values.get(key) is None for key in keys):
            self.wrong(f"needs {' or '.join(f'`{k}`' for k in keys)}")


def _listing(what: str, names: Sequence[str] | Mapping[str, Any]) -> str:
    return f"; {what} are: {', '.join(names)}"


def _is_a(value: object, kind: str) -> bool:
    if kind == "number":
        return not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)
    if kind == "date":
        return isinstance(value, date) and not isinstance(value, datetime)
    wanted: dict[str, type] = {"string": str, "boolean": bool, "timestamp": datetime}
    return kind in wanted and isinstance(value, wanted[kind])


def _comparable(one: str, other: str) -> bool:
    return one == other or {one, other} == {"int", "long"}


ROW_COUNT_DRIFT = f"{OWN}row_count_drift"
SUM_DRIFT = f"{OWN}sum_drift"
MEAN_DRIFT = f"{OWN}mean_drift"
FRESHNESS = f"{OWN}freshness"
DISTRIBUTION = f"{OWN}distribution"
REFERENCES = f"{OWN}references"
REFUSED_RECORDS = f"{OWN}refused_records"
_SHARED = ("name", "severity")


@dataclass(frozen=True, slots=True)
class Made:
    """A check without what all entries share."""

    name: str
    type: str
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of entry: the keys it must and may have (none: it is given columns), and what becomes of it.

    `rows`: it looks at single rows, so that a share of them may be allowed to be bad.
    """

    make: Callable[[Given], list[Made]]
    must: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    rows: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.must, *self.may)


def compile_checks(items: Iterable[Item], columns: Types, logs: Mapping[str, Types]) -> tuple[list[Check], list[str]]:
    """The checks of the entries for a table with these columns (name: type) beside logs with theirs, and what is wrong
    with them, line by line.
    """
    checks: list[Check] = []
    problems: list[str] = []
    for item in items:
        made, found = _compile(item.value, columns, logs)
        checks += made
        problems += [f"line {item.line}: {problem}" for problem in found]
    return checks, problems


def _compile(entry: object, columns: Types, logs: Mapping[str, Types]) -> tuple[list[Check], list[str]]:
    if not isinstance(entry, dict):
        return [], [f"a check is a mapping such as `range: {{column: ..., min: 0}}`; kinds are: {', '.join(KINDS)}"]
    named = [str(k) for k in entry if k not in (*_SHARED, "allow")]
    unknown = [k for k in named if k not in KINDS]
    if unknown:
        near = [closest(k, [*KINDS, *_SHARED, "allow"]) or f"; kinds are: {', '.join(KINDS)}" for k in unknown]
        return [], [f"unknown check `{k}`{hint}" for k, hint in zip(unknown, near, strict=True)]
    if len(named) != 1:
        return [], [f"one check each: {', '.join(f'`{k}`' for k in named) or 'none is named'}"]
    [name] = named
    problems = shared_problems(entry)
    given = _given(name, entry[name], columns, logs, problems)
    if given is None:
        return [], problems
    if not plain(entry):
        return [], [*problems, f"`{name}` holds something that is not text, a number, a date, a list or a mapping"]
    made = KINDS[name].make(given)
    mostly = _mostly(name, entry.get("allow"), given)
    problems += given.problems
    if problems:
        return [], problems
    severity = Severity(entry.get("severity") or "fail")
    return [Check(_name(entry, m, made), m.type, {**m.kwargs, **mostly}, severity) for m in made], []


def _name(entry: Mapping[str, Any], made: Made, all_made: list[Made]) -> str:
    given = entry.get("name")
    if not given:
        return made.name
    return str(given) if len(all_made) == 1 else f"{given} ({made.name})"


def _given(name: str, value: object, columns: Types, logs: Mapping[str, Types], problems: list[str]) -> Given | None:
    """The entry's value, or None when it is not of the right form, which `problems` then says."""
    kind = KINDS[name]
    if not kind.keys:
        return Given(name, {"columns": value}, columns, logs)
    if not isinstance(value, dict):
        problems.append(f"`{name}` takes a mapping with {_keys(kind)}")
        return None
    unknown = [f"`{name}`: unknown key `{k}`{closest(str(k), kind.keys) or f'; it takes {_keys(kind)}'}"
               for k in value if k not in kind.keys]  # fmt: skip
    missing = [f"`{name}`: `{k}` is missing; it takes {_keys(kind)}" for k in kind.must if value.get(k) is None]
    problems += [*unknown, *missing]
    return None if unknown or missing else Given(name, value, columns, logs)


def _keys(kind: Kind) -> str:
    return ", ".join([*(f"`{k}`" for k in kind.must), *(f"`{k}` (optional)" for k in kind.may)])


def _mostly(name: str, allowed: object, given: Given) -> dict[str, Any]:
    """What Great Expectations calls `mostly`, from the share of bad rows that is allowed."""
    if allowed is None:
        return {}
    if not KINDS[name].rows:
        rows = ", ".join(k for k, kind in KINDS.items() if kind.rows)
        given.wrong(f"`allow` is for checks of single rows: {rows}")
        return {}
    if isinstance(allowed, bool) or not isinstance(allowed, int | float) or not 0 <= allowed < 1:
        given.wrong(f"`allow` is `{allowed}`, but must be a share of rows, from 0 to less than 1 (0.01 is 1 %)")
        return {}
    return {"mostly": 1 - allowed} if allowed else {}


def _unique(given: Given) -> list[Made]:
    names = given.names()
    name = f"{', '.join(names)} unique"
    if len(names) == 1:
        return [Made(name, "expect_column_values_to_be_unique", {"column": names[0]})]
    return [Made(name, "expect_compound_columns_to_be_unique", {"column_list": names})]


def _not_null(given: Given) -> list[Made]:
    return [Made(f"{n} not null", "expect_column_values_to_not_be_null", {"column": n}) for n in given.names()]


def _range(given: Given) -> list[Made]:
    column = given.column("number", "date", "timestamp")
    type_ = given.columns.get(column, "")
    least, most = given.bound("min", type_), given.bound("max", type_)
    given.one_of("min", "max")
    if not given.problems and None not in (least, most) and least > most:
        given.wrong(f"`min` {least} is greater than `max` {most}")
    bounds = {key: value for key, value in (("min_value", least), ("max_value", most)) if value is not None}
    return [Made(f"{column} {_words(least, most)}", "expect_column_values_to_be_between", {"column": column, **bounds})]


def _words(least: object, most: object) -> str:
    if most is None:
        return f"at least {least}"
    return f"at most {most}" if least is None else f"from {least} to {most}"


def _in_set(given: Given) -> list[Made]:
    column = given.column("number", "string", "boolean", "date")
    values = given.listed("values", given.columns.get(column, ""))
    return [Made(f"{column} in set", "expect_column_values_to_be_in_set", {"column": column, "value_set": values})]


def _matches(given: Given) -> list[Made]:
    column, pattern = given.column("string"), given.pattern("regex")
    name = f"{column} matches {pattern}"[:80]
    return [Made(name, "expect_column_values_to_match_regex", {"column": column, "regex": pattern})]


def _row_count(given: Given) -> list[Made]:
    least, most = given.count("min"), given.count("max")
    given.one_of("min", "max")
    bounds = {key: value for key, value in (("min_value", least), ("max_value", most)) if value is not None}
    return [Made(f"row count {_words(least, most)}", "expect_table_row_count_to_be_between", bounds)]


def _changes(given: Given, name: str, type_: str, column: dict[str, str]) -> list[Made]:
    limits = {"max_drop": given.share("max_drop"), "max_growth": given.share("max_growth")}
    given.one_of(*limits)
    return [Made(name, type_, {**column, **{k: v for k, v in limits.items() if v is not None}})]


def _row_count_drift(given: Given) -> list[Made]:
    return _changes(given, "row count drift", ROW_COUNT_DRIFT, {})


def _sum_drift(given: Given) -> list[Made]:
    column = given.column("number")
    return _changes(given, f"sum of {column}", SUM_DRIFT, {"column": column})


def _mean_drift(given: Given) -> list[Made]:
    column = given.column("number")
    return _changes(given, f"mean of {column}", MEAN_DRIFT, {"column": column})


def _freshness(given: Given) -> list[Made]:
    column = given.column("date", "timestamp")
    seconds = given.age("max_age")
    name = f"{column} at most {given.values.get('max_age')} old"
    return [Made(name, FRESHNESS, {"column": column, "max_age_seconds": seconds})]


def _distribution(given: Given) -> list[Made]:
    column = given.column("number", "string", "boolean", "date", "timestamp")
    shift = given.share("max_shift", 0.01, 1)
    return [Made(f"distribution of {column}", DISTRIBUTION, {"column": column, "max_shift": shift})]


def _references(given: Given) -> list[Made]:
    column = given.column("number", "string", "boolean", "date", "timestamp")
    log, other = given.target("to", given.columns.get(column, ""))
    arguments = {"column": column, "log": log, "log_column": other, "staged": given.flag("staged")}
    return [Made(f"{column} in {log}.{other}", REFERENCES, arguments)]


KINDS: Mapping[str, Kind] = {
    "unique": Kind(_unique, rows=True),
    "not_null": Kind(_not_null, rows=True),
    "range": Kind(_range, ("column",), ("min", "max"), rows=True),
    "in_set": Kind(_in_set, ("column", "values"), rows=True),
    "matches": Kind(_matches, ("column", "regex"), rows=True),
    "row_count": Kind(_row_count, (), ("min", "max")),
    "row_count_drift": Kind(_row_count_drift, (), ("max_drop", "max_growth")),
    "sum_drift": Kind(_sum_drift, ("column",), ("max_drop", "max_growth")),
    "mean_drift": Kind(_mean_drift, ("column",), ("max_drop", "max_growth")),
    "freshness": Kind(_freshness, ("column", "max_age")),
    "distribution": Kind(_distribution, ("column", "max_shift")),
    "references": Kind(_references, ("column", "to"), ("staged",)),
}
