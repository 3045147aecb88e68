"""Which changes of the columns a log with data allows, by its policies, and the transition that makes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from tidefold.domain.ingest.append import differences, is_empty, with_shape
from tidefold.domain.log_state import LogState, State
from tidefold.domain.table.reading import find_other_readings
from tidefold.domain.table.table_spec import Column, Engine, TableSpec, rename_columns
from tidefold.domain.table.types import (
    Schema,
    first_schema,
    has_text,
    join_decimal,
    schema_of,
    widens,
    without_source_details,
)
from tidefold.errors import RefusedError


class Policy(StrEnum):
    """How tidefold handles a change of a schema.

    stop: the configuration may make it. A record with the change stops its partition until the configuration has it.
    evolve: the configuration may make it, and a record with the change makes it too.
    quarantine: the configuration must not make it. A record with the change is quarantined.
    freeze: the configuration must not make it. A record with the change makes the run ingest nothing of the log.
    """

    STOP = "stop"
    EVOLVE = "evolve"
    QUARANTINE = "quarantine"
    FREEZE = "freeze"


# Policies under which the configuration may make a change.
_MADE = (Policy.STOP, Policy.EVOLVE)


class ChangeKind(StrEnum):
    """How the columns of a log, and how their values are read, may change."""

    ADD = "add"
    WIDEN = "widen"
    RENAME = "rename"
    NARROW = "narrow"
    DROP = "drop"
    RETYPE = "retype"
    READ = "read"


@dataclass(frozen=True, slots=True)
class Policies:
    """The policy of each kind of change. By default only changes that lose nothing are accepted."""

    add: Policy = Policy.STOP
    widen: Policy = Policy.EVOLVE
    rename: Policy = Policy.EVOLVE
    narrow: Policy = Policy.FREEZE
    drop: Policy = Policy.FREEZE
    retype: Policy = Policy.QUARANTINE
    read: Policy = Policy.FREEZE

    def of(self, kind: ChangeKind) -> Policy:
        return Policy(getattr(self, kind))


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One difference between two schemas.

    column: the column's name in the newer schema, or in the older one if it was dropped; or an option of the source.
    impossible: why no policy can allow it; empty: a policy can.
    wider: the type that holds the values of both types; empty: there is none.
    """

    kind: ChangeKind
    column: str
    before: str = ""
    after: str = ""
    impossible: str = ""
    wider: str = ""

    def __str__(self) -> str:
        match self.kind:
            case ChangeKind.ADD:
                return f"add `{self.column}` {self.after}"
            case ChangeKind.DROP:
                return f"drop `{self.column}` {self.before}"
            case ChangeKind.RENAME:
                return f"rename `{self.before}` to `{self.column}`"
        return f"{self.kind} `{self.column}` from {self.before} to {self.after}"


def evolve(state: LogState, shape: TableSpec, policies: Policies, instant: str, run: str = "") -> LogState:
    """Gives the log the configured columns. Ignores the number of buckets.

    Rejects change sets that were announced under the former schema and are not appended, so that every change set has
    the schema of the log at the time of its append. Raises RefusedError for a change that no policy allows.
    """
    if is_empty(state) and not schemas_of(state)[-1].found:
        return replace(with_shape(state, shape), schemas=())
    shape = with_found(state, replace(shape, buckets=state.shape.buckets))
    if shape == state.shape:
        return state
    before = _take_back(state, shape)
    after = _next_schema(state, before[-1], shape, instant, run)
    differences = changes(before[-1], after, shape)
    read = find_other_readings(state.shape, shape) if state.last_sqn else ()
    _require_same_log(state, after, shape)
    _require_allowed(state, (*differences, *(SchemaChange(ChangeKind.READ, *one) for one in read)), policies)
    schemas = (*before, after) if differences else before
    schemas = schemas if schemas[1:] else ()
    return replace(state, shape=shape, schemas=schemas, fence=state.fence + (schemas != state.schemas))


def with_found(state: LogState, shape: TableSpec) -> TableSpec:
    """Returns the configured table definition plus what came from the source: columns, and types that it widened."""
    newest = schemas_of(state)[-1]
    named = {*shape.ignored, *(name for column in shape.columns for name in (column.name, *column.aliases))}
    brought = {c.name: c for c, number in zip(newest.columns, newest.ids, strict=True) if number in newest.found}
    added = tuple(replace(column, optional=True) for name, column in brought.items() if name not in named)
    wide = {name: column.type for name, column in brought.items()}
    return replace(shape, columns=(*(_widen(column, wide) for column in shape.columns), *added))


def _widen(column: Column, types: Mapping[str, str]) -> Column:
    """Returns the column with the type of its name, or of an alias, if that is wider than its own."""
    wider = (types[name] for name in (column.name, *column.aliases) if name in types)
    return next((replace(column, type=type_) for type_ in wider if widens(column.type, type_)), column)


def add_found(state: LogState, types: Mapping[str, str], instant: str, run: str = "") -> LogState:
    """Adds columns that came with records, by name and type, and widens types of others.

    New columns are null in rows and records that lack them.
    """
    names = {column.name for column in state.shape.columns}
    new = tuple(Column(name, type_, optional=True) for name, type_ in types.items() if name not in names)
    shape = replace(state.shape, columns=(*(_widen(column, types) for column in state.shape.columns), *new))
    if shape == state.shape:
        return state
    before = schemas_of(state)
    after = _next_schema(state, before[-1], shape, instant, run)
    brought = (after.named[column.name] for column in shape.columns if column not in state.shape.columns)
    after = replace(after, found=tuple(dict.fromkeys((*after.found, *brought))))
    return replace(state, shape=shape, schemas=(*before, after), fence=state.fence + 1)


def changes_of(schemas: tuple[Schema, ...]) -> tuple[tuple[Schema, tuple[SchemaChange, ...]], ...]:
    """Returns each schema after the first with its changes."""
    return tuple((after, tuple(_differing(before, after))) for before, after in pairwise(schemas))


def describe_schemas(state: LogState) -> list[str]:
    """Describes the changes of each schema, for people, oldest first; that of a plan stands with its snapshot."""
    begun = {one.reshape.schemas[0].id for one in state.snapshots if one.reshape}
    return [
        f"schema {schema.id}{f', {schema.instant[:16]}' if schema.instant else ''}: {'; '.join(map(str, changed))}"
        for schema, changed in changes_of(state.schemas)
        if schema.id not in begun
    ]


def changes(before: Schema, after: Schema, shape: TableSpec) -> tuple[SchemaChange, ...]:
    """Returns what the newer schema changes. `shape`: the newer table definition; its key and order allow less."""
    return tuple(_limit_change(change, shape) for change in _differing(before, after))


def _differing(before: Schema, after: Schema) -> Iterator[SchemaChange]:
    """Yields the changed columns. The position of a column is no change, because columns are known by name."""
    columns = dict(zip(before.ids, before.columns, strict=True))
    for number, column in zip(after.ids, after.columns, strict=True):
        former = columns.pop(number, None)
        if former is None:
            after_ = column.type if column.default is None else f"{column.type}, {column.default} in rows before it"
            yield SchemaChange(ChangeKind.ADD, column.name, after=after_)
            continue
        if former.name != column.name:
            yield SchemaChange(ChangeKind.RENAME, column.name, former.name, column.name)
        if former.type != column.type:
            yield _classify_type(column.name, former.type, column.type)
        if former.default != column.default:
            why = "the default of existing rows cannot change"
            was, now = ("no default" if one.default is None else f"default {one.default}" for one in (former, column))
            yield SchemaChange(ChangeKind.RETYPE, column.name, was, now, why)
    for column in columns.values():
        yield SchemaChange(ChangeKind.DROP, column.name, column.type)


def _classify_type(name: str, old: str, new: str) -> SchemaChange:
    if widens(old, new):
        return SchemaChange(ChangeKind.WIDEN, name, old, new)
    if widens(new, old):
        return SchemaChange(ChangeKind.NARROW, name, old, new)
    why = wide = ""
    if new != "string":
        wide = join_decimal(old, new)
        why = f"values of type {old} cannot become {new}{f', {wide} holds all of both' if wide else ''}"
    elif not has_text(old):
        why = f"values of type {old} have no unique text form"
    return SchemaChange(ChangeKind.RETYPE, name, old, new, why, wide)


def _limit_change(change: SchemaChange, shape: TableSpec) -> SchemaChange:
    """Marks changes of key and order columns that are impossible.

    A key column may only be widened if all rows stay in their key groups. A column that orders a log with the engine
    `history` may not even be widened, because rows of the table contain its values.
    """
    ordering = {*shape.order_by, *(name for group in shape.merge.groups for name in group.order)}
    if change.impossible or change.kind in (ChangeKind.ADD, ChangeKind.DROP, ChangeKind.RENAME):
        return change
    if change.column in shape.key and change.kind is not ChangeKind.WIDEN:
        return replace(change, impossible="it is part of the key", wider="")
    if change.column in shape.key and change.before == "date":
        return replace(change, impossible="it is part of the key, and rows would leave their key group")
    whole = shape.merge.engine is not Engine.HISTORY and (change.before, change.after) == ("int", "long")
    if change.column in ordering and not whole:
        return replace(change, impossible="it orders the changes", wider="")
    return change


def _next_schema(state: LogState, before: Schema, shape: TableSpec, instant: str, run: str) -> Schema:
    highest = max(number for schema in schemas_of(state) for number in schema.ids)
    ids = []
    for number in _match_columns(before, shape.columns):
        highest += number is None
        ids.append(highest if number is None else number)
    added = tuple(number for number in before.found if number in ids)
    return Schema(before.id + 1, tuple(map(without_source_details, shape.columns)), tuple(ids), instant, run, added)


def _match_columns(before: Schema, columns: tuple[Column, ...]) -> Iterator[int | None]:
    """Yields the number of the older column that each column continues: by its name, else by an alias; None: new."""
    by_name, names = before.named, {column.name for column in columns}
    for column in columns:
        free = (by_name[alias] for alias in column.aliases if alias in by_name and alias not in names)
        yield by_name[column.name] if column.name in by_name else next(free, None)


def _take_back(state: LogState, shape: TableSpec) -> tuple[Schema, ...]:
    """Returns the schemas without the newest, if nothing used it and the configured columns are those before it."""
    schemas = schemas_of(state)
    used = {c.schema for c in state.change_sets}
    used |= {s.schema for s in state.snapshots if s.state is not State.ABORTED}
    again = len(schemas) > 1 and {c.name: c for c in map(without_source_details, shape.columns)} == {
        c.name: c for c in schemas[-2].columns
    }
    return schemas[:-1] if again and schemas[-1].id not in used else schemas


def _require_same_log(state: LogState, after: Schema, shape: TableSpec) -> None:
    """Raises RefusedError unless the table definitions differ only in their columns."""
    now = {number: name for name, number in after.named.items()}
    names = {name: now[number] for name, number in schemas_of(state)[-1].named.items() if number in now}
    comparable = replace(state.shape, ignored=shape.ignored, reading=shape.reading)
    if _without(shape, set(names.values())) == rename_columns(comparable, shape.columns, names):
        return
    changed = differences(state.shape, shape, "before", "now")
    raise RefusedError(
        "SHAPE_CHANGED",
        f"The configuration does not match the table of log `{state.log}` ({'; '.join(changed)}).",
        hint=_hint(state) or f"Put the old value back. {_advise_to_plan(state.log)}",
    )


def _advise_to_plan(log: str) -> str:
    return (
        f"If its landed files still exist, `tidefold plan {log}` shows which rows the new value changes, and `tidefold "
        f"plan {log} --apply`, or the DAG tidefold_plan, publishes them."
    )


def _hint(state: LogState) -> str:
    """Returns the next step for a log without any change."""
    if state.last_sqn or state.snapshots:
        return ""
    return (
        f"The log has no change yet: `tidefold retain drop {state.log} --yes`, then `tidefold step ingest {state.log}`."
    )


def _without(shape: TableSpec, names: set[str]) -> TableSpec:
    """Returns the table definition restricted to these columns. A new column may have its own group or function."""
    merge = rename_columns(shape, shape.columns, {name: name for name in names}).merge
    return replace(shape, merge=merge)


def _require_allowed(state: LogState, differences: tuple[SchemaChange, ...], policies: Policies) -> None:
    held = [change for change in differences if change.impossible or policies.of(change.kind) not in _MADE]
    if not held:
        return
    policy = {change: f"`schema_evolution.{change.kind}` of the log is `{policies.of(change.kind)}`" for change in held}
    reasons = "; ".join(f"{change}: {change.impossible or policy[change]}" for change in held)
    kinds = dict.fromkeys(c.kind for c in held if not c.impossible)
    able = not any(c.impossible for c in held)
    place = "values" if {*kinds} == {ChangeKind.READ} else "columns"
    allow = (
        f", or set `schema_evolution: {{{', '.join(f'{kind}: evolve' for kind in kinds)}}}` for this log to allow it"
    )
    if ChangeKind.READ in kinds:
        allow += ": rows in the log stay as they were read"
    wider = "".join(f"Set `{change.column}: '{change.wider}'`. Or put" for change in held[:1] if change.wider) or "Put"
    raise RefusedError(
        "SHAPE_CHANGED",
        f"The configuration does not match log `{state.log}` ({reasons}). Nothing was changed.",
        hint=_hint(state) or f"{wider} the old {place} back{allow if able else ''}. {_advise_to_plan(state.log)}",
    )


def schemas_of(state: LogState) -> tuple[Schema, ...]:
    """Returns all known schemas of a log, oldest first; at least one."""
    return state.schemas or (first_schema(state.shape.columns),)


def shape_at(state: LogState, schema: int) -> TableSpec:
    """Returns the table definition of the log with this schema, also one from before or after a plan is confirmed."""
    for snapshot in state.snapshots:
        if (reshape := snapshot.reshape) is None or snapshot.state is State.ABORTED:
            continue
        first = reshape.schemas[0].id
        if snapshot.open and schema >= first:
            return _shape_in(reshape.after, reshape.schemas, schema)
        if not snapshot.open and schema < first:
            return _shape_in(reshape.before, tuple(s for s in schemas_of(state) if s.id < first), schema)
    return _shape_in(state.shape, schemas_of(state), schema)


def _shape_in(shape: TableSpec, schemas: tuple[Schema, ...], schema: int) -> TableSpec:
    newest, wanted = schemas[-1], schema_of(schemas, schema)
    if wanted.id == newest.id:
        return shape
    names_then = {number: column.name for column, number in zip(wanted.columns, wanted.ids, strict=True)}
    names = {name: names_then[number] for name, number in newest.named.items() if number in names_then}
    return rename_columns(shape, wanted.columns, names)
