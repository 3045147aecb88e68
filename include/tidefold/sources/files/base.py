"""The base of sources whose files have any name and rows without offsets: each file is ingested independently."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import msgspec
import pyarrow as pa

from tidefold.domain.log_state import LogState, TableSpec
from tidefold.domain.table.table_spec import COLUMNS, Engine
from tidefold.sources.api import Feed, Listing
from tidefold.sources.ingest.accounting import Account, FilePosition
from tidefold.sources.ingest.change_spool import ChangeSpool
from tidefold.sources.landing.listing import LandedFile, list_any
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.columnar_changes import Cast, Changes, Rules
from tidefold.sources.records.errors import RefusedRecordError
from tidefold.typed_json import convert_value

# Columns that usually say whether a row is an upsert or a delete.
_OPERATION = re.compile(r"_*(op|op_?type|operation|cdc_?op(eration)?|change_?type)", re.IGNORECASE)


class AnyFiles:
    """Progress is the path, size and checksum of each file."""

    endings: ClassVar[Sequence[str]]
    rules_type: ClassVar[type[Rules]] = Rules

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.rules = convert_value(feed.options, self.rules_type)

    def listing(self, state: LogState) -> Listing:
        patterns, known = self.feed.options.get("files", ()), [entry.name for entry in state.landed]
        return Listing(*list_any(self.feed.path, self.endings, patterns=patterns, known=known))

    def reader(self, shape: TableSpec, place: FilePosition) -> None:
        """Returns None: a refused row is not read again. A corrected row lands in a new file."""


def misfit(names: Sequence[str], shape: TableSpec, beside: Sequence[str]) -> str | None:
    """Returns what is wrong with the columns of a file; None: nothing."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return f"has column {', '.join(twice)} twice"
    columns = [column.name for column in shape.columns]
    known = {*columns, *beside, *shape.ignored}
    if unknown := [name for name in names if name not in known]:
        return f"has column {', '.join(unknown)[:200]}, which is not configured"
    by = shape.order_by if shape.order == COLUMNS else ()
    partial = shape.merge.engine is Engine.PARTIAL
    required = [column.name for column in shape.columns if not column.may_lack]
    needed = {*beside, *((*shape.key, *by) if partial else required)}
    if missing := [name for name in (*columns, *beside) if name in needed and name not in names]:
        return f"lacks column {', '.join(dict.fromkeys(missing))}, and a missing column does not count as null"
    return None


def fit_hint(names: Sequence[str], shape: TableSpec, beside: Sequence[str]) -> str:
    """Returns the configuration that makes tidefold ingest a file with these columns."""
    known = {*(column.name for column in shape.columns), *beside, *shape.ignored}
    unknown = [name for name in names if name not in known]
    lacking = {*shape.key, *shape.order_by, *beside} - set(names)
    missing = [c for c in shape.columns if c.name not in names and not c.may_lack and not lacking]
    said = "Nothing of it was ingested."
    operations = [name for name in unknown if _OPERATION.fullmatch(name)] if not beside else []
    if operations:
        said += f" If `{operations[0]}` says what a row does, set `op: {{column: {operations[0]}}}` under `source`."
    elif unknown:
        lines = ", ".join(f"`{name}: {{type: string, default: null}}`" for name in unknown[:3])
        said += f" To ingest it, add {lines} (or another type) to `columns`, or set `ignored: [{', '.join(unknown)}]`."
    if missing:
        lines = ", ".join(f"`{c.name}: {{type: '{c.type}', default: null}}`" for c in missing[:3])
        said += f" If such files have null there, set {lines} in `columns`."
    return f"{said} Or land the file with the columns of the log."


@dataclass
class RowTaker:
    """Takes the rows of one file, part by part.

    skip: how many rows were taken before.
    stops: whether other columns than configured stop the log.
    """

    file: LandedFile
    shape: TableSpec
    rules: Rules
    cast: Cast
    quarantine: QuarantineWriter
    skip: int = 0
    horizon: int | None = None
    stops: bool = False
    account: Account = field(default_factory=Account)
    spool: ChangeSpool = field(default_factory=ChangeSpool)

    @cached_property
    def _changes(self) -> Changes:
        return Changes(self.shape, self.rules, self.cast, self.horizon)

    def take(self, rows: pa.Table, numbers: Sequence[int]) -> None:
        """`numbers`: the numbers of the rows in the file, 1 for the first."""
        old = bisect_right(numbers, self.skip)
        rows, numbers = rows.slice(old), numbers[old:]
        if not numbers:
            return
        made = self._changes.make(rows)
        self.account.records += len(numbers)
        self.account.changes += made.table.num_rows
        self.account.ignored += made.ignored
        for row, refused in sorted(made.refused.items()):
            text = msgspec.json.encode(_texts(rows.slice(row, 1).to_pylist()[0]))
            self._refuse(numbers[row], refused, text)
        if made.table.num_rows:
            for batch in made.table.to_batches():
                self.spool.add(batch)

    def refuse(self, number: int, refused: RefusedRecordError, text: bytes) -> None:
        """Refuses a row that cannot be split into columns."""
        if number > self.skip:
            self.account.records += 1
            self._refuse(number, refused, text)

    def _refuse(self, number: int, refused: RefusedRecordError, text: bytes) -> None:
        self.account.refused[refused.reason] = self.account.refused.get(refused.reason, 0) + 1
        self.quarantine.add(self.file.name, number, None, refused, text)

    def to_table(self) -> pa.Table | None:
        """Returns all changes. None: there are none."""
        return self.spool.to_table()


def _texts(row: dict[str, object]) -> dict[str, object]:
    """A row with values that JSON has."""

    def text(value: object) -> object:
        if isinstance(value, bytes):
            return value.decode("utf-8", errors="backslashreplace")
        return value if value is None or isinstance(value, bool | int | float | str) else str(value)

    return {name: text(value) for name, value in row.items()}


def number_rows(tables: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Table, range]]:
    """Each part with the numbers of its rows."""
    end = 0
    for batch in tables:
        yield pa.Table.from_batches([batch]), range(end + 1, end + 1 + batch.num_rows)
        end += batch.num_rows
