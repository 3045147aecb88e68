"""Keys without a row, because a change lacks a value that no former row has. Only these keys are left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.domain.table.table_spec import TableSpec
from tidefold.fold.merge.engines.statements import UNRESOLVED

# This many are listed by name. The others are only counted.
LISTED = 20


@dataclass(slots=True)
class Unresolved:
    """The number of keys that were left out, and some of them as JSON, with the columns that lack a value."""

    count: int = 0
    listed: tuple[str, ...] = ()


def without_unresolved(
    batches: Iterable[pa.RecordBatch], shape: TableSpec, found: Unresolved
) -> Iterator[pa.RecordBatch]:
    """Yields the rows that can be made, without their mark, and notes the others in `found`."""
    for batch in batches:
        marks = batch.column(UNRESOLVED)
        rows = batch.drop_columns([UNRESOLVED])
        if marks.null_count < len(marks):
            _note(batch.filter(pc.is_valid(marks)), shape, found)
            rows = rows.filter(pc.is_null(marks))
        yield rows


def _note(left_out: pa.RecordBatch, shape: TableSpec, found: Unresolved) -> None:
    found.count += left_out.num_rows
    names = left_out.select([*shape.key, UNRESOLVED]).slice(0, LISTED - len(found.listed)).to_pylist()
    listed = (json.dumps({"columns": row.pop(UNRESOLVED).split(", "), "key": row}, default=str) for row in names)
    found.listed = (*found.listed, *listed)
