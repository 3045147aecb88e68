"""Decides whether the names of sampled files put their rows in order, and asks if they do not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from tidefold.sources.inference.operations import Data
from tidefold.sources.inference.proposal import ProposalQuestion, ProposedColumn
from tidefold.sources.landing.name_times import find_time, split_names

# What may be a date in a name, with the day first, without a century, or as a week or a number of seconds.
_DATE_LIKE = re.compile(
    r"(?<!\d)(\d\d?[-_. ]\d\d?[-_. ](\d{4}|\d\d)|\d{4}(19|20)\d\d|\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])|"
    r"(0[1-9]|[12]\d|3[01])(0[1-9]|1[0-2])\d\d|(?<![^\W_])(19|20)\d\d|1[5-9]\d{8}(\d{3})?)(?!\d)"
)


@dataclass(frozen=True, slots=True)
class FileOrder:
    """By what `order: file` would order rows.

    names: of the files, relative to the folder of the log.
    misfit: a name that such an order refuses; empty: there is none.
    equal: two files with one time in their names, of which it would order rows; empty: there are none.
    rising: if it cannot be assumed: the columns that never fall from row to row and file to file.
    """

    names: Sequence[str]
    misfit: str = ""
    equal: tuple[str, ...] = ()
    rising: tuple[str, ...] = ()

    @property
    def is_told(self) -> bool:
        """Whether each file has a place."""
        return not self.misfit and not self.equal

    def ask(self, text: str, orders: Sequence[str], *, is_alone: bool) -> ProposalQuestion:
        """Asks for the order if no column says it. is_alone: see `order_question`."""
        if is_alone:
            text += " If each file has all rows of the table, answer `extract: full`, a line under `source:`, and no "
            text += "`order`."
        unread = [name for name in self.names if find_time(name) is None]
        is_odd = bool(self.misfit) or (bool(unread) and all(map(_DATE_LIKE.search, unread)))
        if is_odd:
            text += (
                f" No time can be read for sure from the name `{unread[0]}`. Land files under names such as "
                "`orders-2026-01-31.csv`: a run takes files whose names all have a time, or none."
            )
        elif self.equal:
            text += f" `file` does not: `{self.equal[0]}` and `{self.equal[1]}` have the same time in their names. "
            text += "So of two files the one that lands later would count, also if it is the older one."
        if self.rising:
            text += f" `{self.rising[0]}` never falls from row to row and from file to file: it may count the changes."
        how = "the time in its name" if self.names and not unread else "arrival"
        because = f"no column says when a row changed, so the later file counts: by {how}"
        sure = self.is_told and not (is_alone or is_odd)
        # A full extract, which is no candidate, may be the right answer.
        return ProposalQuestion("order", text, tuple(orders), sure, because, has_default=not is_alone)


def read_file_order(
    names: Sequence[str], parts: Mapping[str, Data], columns: Sequence[ProposedColumn], keys: Sequence[Sequence[str]]
) -> FileOrder:
    """Returns by what the files of a log would order its rows.

    names: of all files; parts: the rows of those that were sampled. Both are relative to the folder of the log.
    keys: what may be the key, the likeliest first.
    """
    told = FileOrder(names, min(split_names(names)[1], default=""), _find_equal(parts, keys))
    if told.is_told:
        return told
    key = keys[0] if len(keys) == 1 else ()
    rows = [row for part in parts.values() for row in part]
    rising = tuple(c.name for c in columns if c.name not in key and _is_rising(c, rows))
    return FileOrder(names, told.misfit, told.equal, rising)


def _find_equal(parts: Mapping[str, Data], keys: Sequence[Sequence[str]]) -> tuple[str, ...]:
    times = {name: find_time(name) for name in parts}
    pairs = [(one, other) for one, other in combinations(parts, 2) if times[one] is not None]
    equal = [(one, other) for one, other in pairs if times[one] == times[other]]
    if equal and len(equal) == len(pairs):
        return equal[0]

    def share(one: str, other: str) -> bool:
        return any({_of(key, row) for row in parts[one]} & {_of(key, row) for row in parts[other]} for key in keys)

    return next((pair for pair in equal if share(*pair)), ())


def _of(names: Sequence[str], row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in names)


def _is_rising(column: ProposedColumn, rows: Data) -> bool:
    """Whether a whole number never falls, and mostly rises. Of times, each that is never null is a candidate anyhow."""
    values: list[Any] = [row.get(column.name) for row in rows]
    if column.type not in ("int", "long") or None in values or len({*values}) * 2 <= len(values):
        return False
    return all(int(one) <= int(other) for one, other in pairwise(values))
