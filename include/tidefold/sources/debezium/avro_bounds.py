"""Bounds for Avro schemas from outside: a few bytes must not become endless values, or a stack that overflows.

fastavro follows a schema in C, without a limit. A record that contains itself, read from the right bytes, ends the
process, and with it the run of all logs. Items that take no bytes fill the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_DEEPEST = 64
# Types of a record, named ones counted at each use; and those of them whose values take no bytes.
_MOST_TYPES, _MOST_FREE = 500_000, 16


def require_bounded(schema: Any) -> None:
    """Raises ValueError with the reason if the values of a schema, as fastavro parsed it, can outgrow their bytes."""
    _Measuring().measure(schema, 0)


@dataclass(frozen=True, slots=True)
class _Measure:
    """What a type consists of.

    free: the types whose values take no bytes.
    takes: each value takes at least one byte.
    """

    types: int
    free: int
    takes: bool


_NULL, _VALUE = _Measure(1, 1, takes=False), _Measure(1, 0, takes=True)


class _Measuring:
    def __init__(self) -> None:
        # By full name, which fastavro fills in everywhere. None: the type is still being defined.
        self._named: dict[str, _Measure | None] = {}

    def measure(self, schema: Any, depth: int) -> _Measure:
        if depth > _DEEPEST:
            raise ValueError(f"its types are nested deeper than {_DEEPEST} levels")
        if isinstance(schema, list):
            # The number of the branch takes a byte, also for null.
            return _join((self.measure(one, depth + 1) for one in schema if one != "null"), takes=True)
        if not isinstance(schema, Mapping):
            return self._find(str(schema))
        kind = schema.get("type")
        if not isinstance(kind, str):
            return self.measure(kind, depth + 1)
        if kind in ("record", "error"):
            return self._define(schema, depth)
        if kind in ("array", "map"):
            part = self.measure(schema.get("items" if kind == "array" else "values"), depth + 1)
            if kind == "array" and not part.takes:
                raise ValueError("the items of an array take no bytes")
            return _join([part], takes=True)
        if kind in ("fixed", "enum"):
            found = _NULL if kind == "fixed" and schema.get("size") == 0 else _VALUE
            self._named[str(schema.get("name"))] = found
            return found
        return self._find(kind)

    def _define(self, schema: Mapping[str, Any], depth: int) -> _Measure:
        name = str(schema.get("name"))
        self._named[name] = None
        fields = schema.get("fields", ())
        found = (
            _join((self.measure(field.get("type"), depth + 1) for field in fields), takes=False) if fields else _NULL
        )
        self._named[name] = found
        return found

    def _find(self, name: str) -> _Measure:
        found = self._named.get(name, _NULL if name == "null" else _VALUE)
        if found is None:
            raise ValueError(f"`{name[:100]}` contains itself")
        return found


def _join(parts: Iterable[_Measure], *, takes: bool) -> _Measure:
    types, free = 1, 0
    for part in parts:
        types, free, takes = types + part.types, free + part.free, takes or part.takes
        if types > _MOST_TYPES or free > _MOST_FREE:
            kind = f"{_MOST_TYPES:,} types" if types > _MOST_TYPES else f"{_MOST_FREE} types without bytes"
            raise ValueError(f"it has more than {kind}")
    return _Measure(types, free, takes)
