"""The texts that explain a key to people: the outcome of a change, its order, and how a row agrees with the log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import zip_longest

from tidefold.domain.commit_times import iso_instant
from tidefold.domain.explain.key_history import ChangeOutcome, ExplainedChange, KeyChange, RowAgreement
from tidefold.domain.table.table_spec import FILE, Engine, TableSpec

_SEVERAL = (Engine.PARTIAL, Engine.AGGREGATE)
REMARKS = {
    RowAgreement.MADE: "",
    RowAgreement.DELETED: "There is no row: it was deleted.",
    RowAgreement.EXPIRED: "There is no row: it was dropped for its age.",
    RowAgreement.IMPORTED: "The log does not have the change that made the row: the row was imported.",
    RowAgreement.CUT: "The log does not have the change that made the row: it was truncated, or lost in a rebuild.",
    RowAgreement.ABSENT: "There is no row: no change of this key is folded.",
    RowAgreement.DIFFERS: "The row differs from the log: `tidefold check verify` looks for damage.",
}
# Numbers of files are lower than times in their names.
_FIRST_TIME = 10**12


def why(told: ExplainedChange, winner: KeyChange | None, shape: TableSpec) -> str:
    """Describes the outcome of a change, for people."""
    gave = f"gives {', '.join(told.gave)}; " if told.gave and shape.merge.engine in _SEVERAL else ""
    where = "" if told.snapshot is None else f"snapshot {told.snapshot} by run {told.run}"
    lost = f" than change set {winner.sqn}" if winner else ""
    return {
        ChangeOutcome.CURRENT: f"{gave}counts; {f'folded into {where}' if where else 'not folded into a snapshot yet'}",
        ChangeOutcome.OLDER: f"{told.fate}{lost}",
        ChangeOutcome.EARLIER: f"{told.fate}{lost}",
        ChangeOutcome.REPLACED: f"replaced by a later fold{f'; folded into {where}' if where else ''}",
        ChangeOutcome.SKIPPED: f"left out for good by the restore or import of {where}",
        ChangeOutcome.LATER: f"later than this view: folded into {where}",
        ChangeOutcome.AFTER: "committed after the instant of this view",
    }.get(told.fate, str(told.fate))


def format_order(order: tuple[int, ...], shape: TableSpec) -> str:
    """Formats an order for people: columns by their type."""
    types = {column.name: column.type for column in shape.columns}
    if shape.orders_by_file:
        types[FILE] = "timestamp" if order[-1] >= _FIRST_TIME else "int"
    named = zip_longest(order, shape.order_by[: len(order)])
    return "/".join(_format_number(number, types.get(name, "")) for number, name in named)


def _format_number(number: int, type_: str) -> str:
    if type_ == "timestamp":
        return (iso_instant(number) or str(number)).replace("+00:00", "Z")
    if type_ == "date":
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=number)).date().isoformat()
    return "none" if number < 0 and not type_ else str(number)
