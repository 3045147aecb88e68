"""The definition of the table that the entry of a log describes, and its mistakes."""

from __future__ import annotations

from collections.abc import Iterator

from tidefold.config.models.file import LogEntry
from tidefold.config.models.schema_policy import change_mistakes
from tidefold.config.models.sources import DebeziumEntry, StateJsonEntry
from tidefold.domain.table.table_spec import ARRIVAL, COLUMNS, Column, Engine, TableSpec
from tidefold.domain.table.table_spec_validation import (
    Mistake,
    column_mistakes,
    key_mistakes,
    merge_mistakes,
    type_mistakes,
)

_REMEMBERING = (Engine.LAST, Engine.PARTIAL, Engine.HISTORY)


def shape_of(entry: LogEntry) -> TableSpec:
    """Returns the table definition, which the ledger compares with its own in each run."""
    by = tuple(entry.order) if isinstance(entry.order, list) else ()
    own = entry.source.orders[0] if entry.source else ARRIVAL
    written = entry.ttl.column if entry.ttl and entry.ttl.on else None
    return TableSpec(
        key=tuple(entry.key),
        columns=tuple(
            Column(
                name,
                column.type,
                column.encoding,
                tuple(column.aliases),
                column.default,
                column.optional or (name == written and name not in entry.key),  # Records lack it.
            )
            for name, column in entry.columns.items()
        ),
        order=COLUMNS if by else entry.order or own,
        key_groups=entry.key_groups,
        buckets=entry.buckets,
        order_by=by,
        merge=entry.merge.merge(not by),
        spread=_spread(entry),
        ignored=tuple(entry.ignored),
    )


def _spread(entry: LogEntry) -> int:
    """Returns how many key columns determine the key group: all rows that one clear can remove share a group."""
    state_key = entry.source.state_key if isinstance(entry.source, StateJsonEntry) else []
    return len(state_key) if len(state_key) < len(entry.key) else 0


def lateness(entry: LogEntry, shape: TableSpec) -> int | None:
    """How far back deletes are remembered, in the unit of the first column that orders the log."""
    types = {column.name: column.type for column in shape.columns}
    return entry.late.lateness(types[shape.order_by[0]]) if entry.late and shape.order_by else None


def stops_of(entry: LogEntry) -> tuple[str, ...]:
    """Returns the codes of refused records that stop their partition: those with a schema that no policy allows."""
    policy = entry.schema_evolution
    decided = "on_bad_record" in entry.model_fields_set
    always: tuple[str, ...] = ()
    if isinstance(entry.source, DebeziumEntry) and entry.source.schemas:
        always = ("SCHEMA_UNKNOWN",)  # The record itself is right: the file of its schema is missing.
    elif isinstance(entry.source, StateJsonEntry):
        always = ("STATE_CHANGED",) if decided else ("STATE_CHANGED", "POLL_UNNAMED")  # Else the rest is misread.
    undecided = "add" not in policy.model_fields_set and not decided
    if policy.add != "evolve" and not (policy.add == "stop" and (undecided or "add" in policy.model_fields_set)):
        return always
    # Debezium writes every column into every record: one that is missing was dropped or renamed.
    whole = isinstance(entry.source, DebeziumEntry)
    return (*always, "UNKNOWN_COLUMN", "MISSING_COLUMN") if whole else (*always, "UNKNOWN_COLUMN")


def mistakes(entry: LogEntry) -> Iterator[Mistake]:
    """Yields the mistakes in the description of the table."""
    shape = shape_of(entry)
    types = {column.name: column.type for column in shape.columns}
    yield from column_mistakes(list(types))
    yield from type_mistakes(shape.columns)
    yield from key_mistakes(shape.key, types)
    yield from merge_mistakes(shape)
    yield from change_mistakes(shape)
    if entry.late and not (shape.order_by and shape.merge.engine in _REMEMBERING):
        hint = "Remove it: no change can be late if the source itself numbers its changes in order."
        yield "LATE_WITHOUT_EFFECT", ("late",), "has no effect on this log.", hint
    elif entry.late and shape.order_by[0] in types and lateness(entry, shape) is None:
        type_ = types[shape.order_by[0]]
        hint = "Write 36h or 7d for a timestamp, 7d for a date, a whole number for whole numbers."
        yield "LATE_HORIZON", ("late", "allowed_lateness"), f"does not fit `{shape.order_by[0]}` of type {type_}.", hint
