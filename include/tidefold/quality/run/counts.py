"""Numbers of bad rows as values, and the queries of DuckDB that find them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidefold.changelog.key_group_hash import quote_name
from tidefold.domain.wording import clip_text
from tidefold.errors import TidefoldError
from tidefold.interruption import raise_if_interrupted

# Runs SQL with values, and returns the rows.
Query = Callable[[str, list[Any]], list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Count:
    """A number of rows: of those for which `where` holds. It adds up over disjoint rows.

    where, values: a condition with a question mark for each value.
    kinds: the types of the values, because 1, 1.0 and True are equal in Python and not in DuckDB.
    columns: those that it reads.
    same: columns; then only rows whose values another of these rows has, too. That adds up over disjoint keys.
    check, arguments: of the first check that wants it, for an error.
    """

    where: str
    values: tuple[Any, ...] = ()
    columns: frozenset[str] = frozenset()
    same: tuple[str, ...] = ()
    kinds: tuple[str, ...] = field(init=False)
    check: str = field(default="", compare=False)
    arguments: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", tuple(type(value).__name__ for value in self.values))

    def __and__(self, other: Count) -> Count:
        """Returns the number of rows for which both conditions hold."""
        parts = [f"({one.where})" for one in (self, other) if one.where != ALL.where]
        where = " AND ".join(parts) or ALL.where
        return Count(where, self.values + other.values, self.columns | other.columns, self.same or other.same)


ALL = Count("true")


@dataclass(frozen=True, slots=True)
class Sample:
    """Some rows that count.

    columns: those that are shown; one alone is shown as values, several by their names.
    named: whether also one alone is shown by its name.
    """

    count: Count
    columns: tuple[str, ...]
    most: int
    named: bool


# Counts rows, all at once.
CountRows = Callable[[Sequence[Count]], Sequence[int]]


def query_counts(counts: Sequence[Count], rows: str, query: Query) -> tuple[int, ...]:
    """Returns counts over the rows of a table: single rows in one query, each kind of duplicates in one more.

    Raises TidefoldError with the check of a count that cannot be done.
    """
    try:
        return _query_counts(counts, rows, query)
    except Exception as error:  # Any exception of the engine must become an error, never a pass.
        raise_if_interrupted(error)
        if len(counts) == 1:
            raise not_computed(counts[0].check, f"{counts[0].arguments}: {error}") from error
        for one in counts:
            query_counts([one], rows, query)
        raise


def _query_counts(counts: Sequence[Count], rows: str, query: Query) -> tuple[int, ...]:
    single = [one for one in counts if not one.same]
    shown = ", ".join(f"count(*) FILTER (WHERE {one.where})" for one in single)
    values = [value for one in single for value in one.values]
    numbers = dict(zip(single, query(f"SELECT {shown} FROM {rows}", values)[0], strict=True)) if single else {}
    for one in counts:
        if one.same:
            groups = f"SELECT count(*) AS times FROM {rows} WHERE {one.where} GROUP BY {_list_names(one.same)}"
            [[numbers[one]]] = query(f"SELECT coalesce(sum(times), 0) FROM ({groups}) WHERE times > 1", [*one.values])
    return tuple(int(numbers[one]) for one in counts)


def query_groups(counts: Sequence[Count], rows: str, by: str, query: Query) -> dict[int, tuple[int, ...]]:
    """Returns counts of single rows for each value of the column `by`."""
    shown = ", ".join([by, *(f"count(*) FILTER (WHERE {one.where})" for one in counts)])
    values = [value for one in counts for value in one.values]
    groups = query(f"SELECT {shown} FROM {rows} GROUP BY {by}", values)
    return {number: tuple(map(int, numbers)) for number, *numbers in groups}


def query_sample(sample: Sample, rows: str, query: Query) -> list[Any]:
    """Returns some rows of a table that count."""
    where, limit = f"FROM {rows} WHERE {sample.count.where}", f"LIMIT {sample.most}"
    sql = f"SELECT {_list_names(sample.columns)} {where} {limit}"
    if sample.count.same:
        times = f"count(*) OVER (PARTITION BY {_list_names(sample.count.same)})"
        sql = f"SELECT {_list_names(sample.columns)} {where} QUALIFY {times} > 1 {limit}"
    bad = query(sql, [*sample.count.values])
    return [dict(zip(sample.columns, row, strict=True)) if sample.named else row[0] for row in bad]


def not_computed(what: str, why: str) -> TidefoldError:
    """Returns the error of a check that could not be computed."""
    # Spark 3.5 puts the name of the Java call and of the task before the condition.
    condition = re.search(r"\[[A-Z][A-Z_.]+\] .*", why)
    line = clip_text(" ".join((condition[0] if condition else why).split()))
    return TidefoldError("CHECK_NOT_COMPUTED", f"The quality check `{what}` could not be computed: {line}")


def _list_names(columns: Sequence[str]) -> str:
    return ", ".join(map(quote_name, columns))
