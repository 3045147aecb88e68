"""Reads what one entry of the catalogue was given: typed, against the columns that there are, every mistake noted."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from tidefold.quality.suite_file import closest

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
