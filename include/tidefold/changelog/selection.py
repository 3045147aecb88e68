"""Some of a table's changes: those of a range of key groups, those from an order on."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.lifecycle.key_groups import KeyGroups


def of_key_groups(changes: pa.Table, wanted: KeyGroups) -> pa.Table:
    """Those of a range, of changes that are sorted by key group: a slice, which copies nothing."""
    groups = changes.column("_kg")
    first = pc.sum(pc.less(groups, wanted.first), min_count=0).as_py()
    return changes.slice(first, pc.sum(pc.less_equal(groups, wanted.last), min_count=0).as_py() - first)


def at_least(floor: tuple[int, ...], index: int = 0) -> pc.Expression:
    """Rows whose order is not below `floor`, compared number by number."""
    column = pc.field(f"_o{index}")
    if index == len(floor) - 1:
        return column >= floor[index]
    return (column > floor[index]) | ((column == floor[index]) & at_least(floor, index + 1))
