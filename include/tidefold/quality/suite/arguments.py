"""The types of arguments in a suite file: columns, bounds, shares, ages. They know the columns of the table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, GetCoreSchemaHandler, ValidationInfo
from pydantic_core import PydanticCustomError, core_schema

from tidefold.quality.suite.check import Types, family
from tidefold.yaml_files.messages import mistake, spell_value, suggest

# Great Expectations compares with floating point numbers, which hold every whole number below this.
_EXACT = 1 << 53
_AGE = re.compile(r"([1-9]\d{0,5}) (minute|hour|day)s?")
_SECONDS = {"minute": 60, "hour": 3600, "day": 86_400}
_WORDS = {
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "date": "a date, as 2026-01-31",
    "timestamp": "an instant, as 2026-01-31T00:00:00Z",
}
_CLASSES: dict[str, type] = {"string": str, "boolean": bool, "timestamp": datetime}


@dataclass(frozen=True, slots=True)
class SuiteContext:
    """What the checks of a suite may refer to."""

    columns: Types
    logs: Mapping[str, Types] = field(default_factory=dict)


def context_of(info: ValidationInfo) -> SuiteContext:
    """Returns the context in which the suite is validated."""
    assert isinstance(info.context, SuiteContext)
    return info.context


def refuse(message: str, hint: str = "") -> PydanticCustomError:
    """Returns an error of a suite file, for a validator to raise."""
    return mistake("SUITE_INVALID", message, hint)


def explain_unknown_column(name: object, columns: Types) -> PydanticCustomError:
    """Returns the error of a column that the table does not have."""
    hint = suggest(name, list(columns), f"Columns are: {', '.join(columns)}.")
    return refuse(f"is `{spell_value(name)}`, which is not a column of the log.", hint)


@dataclass(frozen=True, slots=True)
class ColumnTypes:
    """Marks the name of a column whose type must belong to one of these families."""

    families: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def _check(self, name: str, info: ValidationInfo) -> str:
        columns = context_of(info).columns
        if name not in columns:
            raise explain_unknown_column(name, columns)
        if family(columns[name]) not in self.families:
            allowed = " or ".join(f"`{f}`" for f in self.families)
            raise refuse(f"is `{name}` of type `{columns[name]}`. Allowed types: {allowed}.")
        return name


Number = Annotated[str, ColumnTypes(("number",))]
Instant = Annotated[str, ColumnTypes(("date", "timestamp"))]
Ordered = Annotated[str, ColumnTypes(("number", "date", "timestamp"))]
Discrete = Annotated[str, ColumnTypes(("number", "string", "boolean", "date"))]
String = Annotated[str, ColumnTypes(("string",))]
Comparable = Annotated[str, ColumnTypes(("number", "string", "boolean", "date", "timestamp"))]


def _check_columns(value: Any, info: ValidationInfo) -> list[str]:
    names: list[Any] = value if isinstance(value, list) else [value]
    if not names or len({str(n) for n in names}) < len(names):
        raise refuse("must name one column, or a list of different columns.")
    for name in names:
        if not isinstance(name, str) or name not in context_of(info).columns:
            raise explain_unknown_column(name, context_of(info).columns)
    return names


Columns = Annotated[list[str], BeforeValidator(_check_columns)]


def _check_fit(value: Any, info: ValidationInfo) -> Any:
    """Refuses a value that cannot be compared with the entry's column."""
    type_ = context_of(info).columns.get(info.data.get("column", ""), "")
    kind = family(type_)
    if value is None or not type_:  # The column is wrong, which is reported already.
        return value
    if kind == "number":
        fits = not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)
    elif kind == "date":
        fits = isinstance(value, date) and not isinstance(value, datetime)
    else:
        fits = isinstance(value, _CLASSES[kind])
    if not fits:
        hint = "Put it in quotes: YAML reads it as another type." if kind == "string" else ""
        raise refuse(f"contains `{spell_value(value)}`, but `{type_}` needs {_WORDS[kind]}.", hint)
    if kind == "number" and not abs(value) < _EXACT:
        raise refuse(f"contains `{value}`: numbers from 2^53 on cannot be compared exactly.")
    return value


BoundValue = Annotated[Any, AfterValidator(_check_fit)]


def _check_values(values: Any, info: ValidationInfo) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise refuse("must be a list of at least one value.")
    return [_check_fit(value, info) for value in values]


Values = Annotated[list[Any], BeforeValidator(_check_values)]


def share_from(least: float, most: float = math.inf) -> BeforeValidator:
    """Returns the validator of a share: 0.1 is a tenth."""
    top = "up" if most == math.inf else f"to {most:g}"

    def check_share(value: Any) -> Any:
        if value is None:
            return None
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or not least <= value <= most:
            raise refuse(f"is `{spell_value(value)}`, but must be a share from {least:g} {top} (0.1 is a tenth).")
        return float(value)

    return BeforeValidator(check_share)


DriftShare = Annotated[float | None, share_from(0)]


def _accept(is_right: Callable[[Any], bool], message: str) -> BeforeValidator:
    """Returns the validator that refuses other values with a message; `{}` in it is the value."""

    def check(value: Any) -> Any:
        if not is_right(value):
            raise refuse(message.format(spell_value(value)))
        return value

    return BeforeValidator(check)


# The allowed share of bad rows, as the file writes it: the hash of a suite covers the text.
Allowed = Annotated[
    Any,
    _accept(
        lambda value: value is None or (type(value) in (int, float) and 0 <= value < 1),
        "is `{}`, but must be a share of rows, from 0 to less than 1 (0.01 is 1 %).",
    ),
]
RowLimit = Annotated[
    int | None,
    _accept(
        lambda value: value is None or (type(value) is int and 0 <= value < _EXACT),
        "is `{}`, but must be a whole number from 0.",
    ),
]
Regex = Annotated[
    str, _accept(lambda value: isinstance(value, str) and value != "", "must be a regular expression, as text.")
]
Age = Annotated[
    str,
    _accept(
        lambda value: _AGE.fullmatch(str(value)) is not None,
        "is `{}`, but must be like `30 minutes`, `12 hours` or `2 days`.",
    ),
]
Flag = Annotated[bool, _accept(lambda value: isinstance(value, bool), "is `{}`, but must be true or false.")]


def count_seconds(age: str) -> int:
    """Returns the seconds of an age such as `2 days`."""
    number, unit = age.split()
    return int(number) * _SECONDS[unit.removesuffix("s")]


def _check_target(value: Any, info: ValidationInfo) -> str:
    """`LOG.COLUMN`: a column of another log, with values of the same type as the entry's column."""
    context = context_of(info)
    columns, logs = context.columns, context.logs
    log, _, column = str(value).partition(".")
    if log not in logs:
        raise refuse(
            f"names log `{log}`, which is not configured.", suggest(log, list(logs), f"Logs are: {', '.join(logs)}.")
        )
    if column not in logs[log]:
        hint = suggest(column, list(logs[log]), f"Columns are: {', '.join(logs[log])}.")
        raise refuse(f"names column `{column}`, which log `{log}` does not have.", hint)
    theirs, ours = logs[log][column], columns.get(info.data.get("column", ""), "")
    if ours and theirs != ours and {theirs, ours} != {"int", "long"}:
        raise refuse(f"names `{log}.{column}` of type `{theirs}`, but the column is of type `{ours}`.")
    return str(value)


ReferencedColumn = Annotated[str, BeforeValidator(_check_target)]


def is_plain(value: object) -> bool:
    """Whether a value of YAML has a canonical form in JSON."""
    if isinstance(value, dict):
        return all(isinstance(k, str) and is_plain(v) for k, v in value.items())
    if isinstance(value, list):
        return all(is_plain(v) for v in value)
    return math.isfinite(value) if isinstance(value, float) else value is None or isinstance(value, str | int | date)


def listing(names: Iterable[str]) -> str:
    """`a`, `b`."""
    return ", ".join(f"`{name}`" for name in names)
