"""One published test as a case: its changes, the rows of tidefold, and those of the other system."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from tidefold.changelog.schema import DELETE, MERGE, UPSERT, order_columns
from tidefold.domain.table.table_spec import (
    COLUMNS,
    POSITION,
    VALID_FROM,
    VALID_TO,
    Column,
    Deletes,
    Engine,
    Group,
    Merge,
    TableSpec,
)
from tidefold.domain.table.table_spec_validation import inexact

Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Gone:
    """A delete of a key, with its own position if columns order the log."""

    key: Values
    at: Any = None


def gone(*key: Any, at: Any = None) -> Gone:
    return Gone(key, at)


@dataclass(frozen=True, slots=True)
class Case:
    """`batches` are what came together: values of a row (`...`: nothing is said of that column), or `Gone`.

    `rows` are ours; `theirs` are the other system's where they differ, or the words of its refusal; `why` says why they
    differ. `suite` and `test` name the published test.
    """

    name: str
    suite: str
    test: str
    shape: TableSpec
    batches: Sequence[Sequence[Values | Gone]]
    rows: Sequence[Values]
    theirs: Sequence[Values] | str | None = None
    why: str = ""

    @property
    def verdict(self) -> str:
        return f"differs: {self.why}" if self.why else "agrees"

    def folds(self) -> list[list[dict[str, Any]]]:
        """Returns the batches as change sets. Every change has the next offset of one partition."""
        offsets = iter(range(1_000_000))
        return [[_change(self.shape, one, next(offsets)) for one in batch] for batch in self.batches]

    def shown(self, row: dict[str, Any]) -> Values:
        """Returns a row of the table in the form of `rows`; of a history with its span in place of the order."""
        history = self.shape.merge.engine is Engine.HISTORY
        hidden = self.shape.order_by if history else ()
        values = tuple(row[c.name] for c in self.shape.columns if c.name not in hidden)
        return (*values, row[VALID_FROM], row[VALID_TO]) if history else values


def _change(shape: TableSpec, given: Values | Gone, offset: int) -> dict[str, Any]:
    names = [column.name for column in shape.columns]
    if isinstance(given, Gone):
        values = {**dict.fromkeys(names), **dict(zip(shape.key, given.key, strict=True))}
        places = [given.at] if shape.order == COLUMNS else []
        op, absent = DELETE, None
    else:
        values = dict(zip(names, given, strict=True))
        absent = [name for name, value in values.items() if value is ...]
        values |= dict.fromkeys(absent)
        places = [values[name] for name in shape.order_by]
        op = MERGE if shape.merge.engine is Engine.AGGREGATE else UPSERT
    order = dict(zip(order_columns(shape), map(_number, places), strict=True))
    system = {"_op": op, "_kg": 0, "_partition": 0, "_offset": offset, "_ts": offset, "_absent": absent or None}
    return {**system, **order, **values}


def _number(value: Any) -> int:
    if isinstance(value, datetime):
        return int(value.replace(tzinfo=UTC).timestamp() * 1_000_000)
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else int(value)


def shape(
    columns: str,
    key: str = "id",
    engine: Engine = Engine.LAST,
    *,
    by: str = "",
    groups: Sequence[Group] = (),
    functions: str = "",
) -> TableSpec:
    """A shape from words: columns as `id int, value string`, functions as `a sum, b max`; ordered `by` a column, else
    by the position in the stream.
    """
    merge = Merge(engine, groups=tuple(groups), aggregates=tuple(_pairs(functions)))
    if inexact(merge, not by):
        merge = replace(merge, deletes=Deletes.QUARANTINE)
    order, order_by = (COLUMNS, (by,)) if by else (POSITION, ())
    return TableSpec(tuple(key.split()), tuple(Column(*pair) for pair in _pairs(columns)), order, 4, 1, order_by, merge)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, text.split(", ")):
        name, word = part.split(" ")
        yield name, word
