"""State logs: the operations that a stream processor applied to one state (requirements S1 to S5).

A value is `{"op": ..., "key": {...}, "value": ..., "values": [...]}`. docs/reference/sources.md lists the operations
of each kind of state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from tidefold.changelog.schema import CLEAR, DELETE, MERGE, MERGE_SOURCE, MERGE_TARGET, POLL, UPSERT
from tidefold.domain.log_state import LogState, TableSpec
from tidefold.domain.source_progress import TTL_DAYS
from tidefold.domain.table.types import widens
from tidefold.sources.api import RecordReader
from tidefold.sources.debezium.json_source import KafkaLines, offset_in
from tidefold.sources.feed import Feed
from tidefold.sources.json_lines.plain_rows import PlainRows
from tidefold.sources.json_lines.source import NULL, Lines
from tidefold.sources.landing.listing import Listing
from tidefold.sources.landing.problems import FileProblem
from tidefold.sources.records.accounting import ReaderPosition
from tidefold.sources.records.errors import UNDECODABLE, RefusedRecordError, not_sent
from tidefold.sources.records.unavailable_values import Placeholder
from tidefold.typed_json import convert_value, make_decoder

_Object = dict[str, msgspec.Raw]
_objects = make_decoder(_Object)
_MOST_DAYS = 36_500


class StateOptions(msgspec.Struct, frozen=True):
    """The options of `format: state-json` besides the folder."""

    kind: str
    state_key: tuple[str, ...]
    state: str | None = None
    record: str = "kafka"
    partitions: str = "one"
    ttl_days: int | None = None
    head: tuple[str, ...] = ()
    metadata: str = "compare"


class StateJson(KafkaLines):
    """The source `format: state-json`."""

    def __init__(self, feed: Feed) -> None:
        super().__init__(feed)
        self._options = convert_value(feed.options, StateOptions)

    def listing(self, state: LogState) -> Listing:
        """Lists one partition, unless `partitions: many`: a clear of the whole state has no order across partitions."""
        listing = super().listing(state)
        if self._options.partitions == "many" or not listing.files:
            return listing
        one = state.positions[0].partition if state.positions else listing.files[0].partition
        others = [file for file in listing.files if file.partition != one]
        problems = [_second_partition(file.name, file.partition, one) for file in others]
        return Listing(tuple(f for f in listing.files if f.partition == one), (*listing.problems, *problems))

    def find_offset(self, text: bytes) -> int | None:
        return None if self._options.record == "value" else offset_in(text)

    def line_reader(self, shape: TableSpec) -> RecordReader:
        return StateReader(shape, self._options).take

    def reader(self, shape: TableSpec) -> None:
        """Returns no reader: a refused operation stays refused, because later operations were ingested without it."""


def _second_partition(name: str, partition: int, one: int) -> FileProblem:
    message = f"`{name}` belongs to partition {partition}, but this state log accepts only partition {one}."
    hint = "Write the state into one partition. If no operation clears the whole state, set `partitions: many`."
    return FileProblem(name, "STATE_PARTITIONS", message, hint)


class _Operation(msgspec.Struct):
    op: str
    key: _Object | None = None
    value: msgspec.Raw = NULL
    values: list[msgspec.Raw] | None = None
    sources: list[_Object] | None = None
    # The operation of metadata.
    name: str | None = None
    kind: str | None = None
    schema: dict[str, str] | None = None
    ttl_days: int | msgspec.UnsetType | None = msgspec.UNSET


class StateReader:
    """Reads the lines of one file in order."""

    def __init__(self, shape: TableSpec, options: StateOptions) -> None:
        self._shape = shape
        self._options = options
        self._follows = options.metadata == "follow"
        self._lines = Lines(options.record)
        self._decode = make_decoder(_Operation).decode
        self._rows = PlainRows(shape)
        self._state_keys = PlainRows(replace(shape, key=options.state_key))
        self._list = next((c.name for c in shape.columns if c.name not in shape.key), "")
        of_kind: dict[str, dict[str, Callable[[_Operation], Iterable[tuple[int, Any]]]]] = {
            "value": {"set": self._set, "clear": self._clear},
            "reducing": {"add": self._add, "set": self._set, "merge": self._merge, "clear": self._clear},
            "list": {
                "add": self._append,
                "add_all": self._append,
                "update": self._update,
                "merge": self._merge,
                "clear": self._clear,
            },
            "map": {"put": self._put, "put_all": self._put, "remove": self._remove, "clear": self._clear},
            "queue": {"add": self._put, "remove": self._remove, "poll": self._poll, "clear": self._clear},
        }
        self._operations = of_kind[options.kind]
        # Set if values of the current record may be placeholders.
        self._unsent: Placeholder | None = None

    def take(self, at: ReaderPosition, line: bytes) -> None:
        """Ingests a line that is not blank. Raises RefusedRecordError or LateOffsetError."""
        self._unsent = at.unsent
        record = self._lines.record(at, line)
        if not at.is_new(record.topic, record.partition, record.offset):
            return
        try:
            operation = self._decode(record.value)
        except UNDECODABLE as error:
            raise RefusedRecordError("NOT_AN_OPERATION", f"{error}.") from error
        if operation.op == "metadata":
            self._check(operation)
            at.count("ignored")
            return
        take = self._operations.get(operation.op)
        if take is None:
            operations = ", ".join((*self._operations, "metadata"))
            why = f"{operation.op[:40]!r} is not an operation of a {self._options.kind} state ({operations})."
            raise RefusedRecordError("OP_UNKNOWN", why)
        changes = list(take(operation))
        at.account.changes += bool(changes)
        at.account.ignored += not changes
        for number, (op, row) in enumerate(changes):
            at.account.truncates += op == CLEAR and operation.key is None
            at.account.unresolved += op in (POLL, MERGE_TARGET)
            # The order of merged namespaces.
            absent = [f"{number}"] if op == MERGE_SOURCE else None
            at.batch.add(op, (), record.offset, record.time, row, absent)

    def _set(self, operation: _Operation) -> Iterable[tuple[int, Any]]:
        yield UPSERT, self._row(operation.key, _object(operation.value))

    def _add(self, operation: _Operation) -> Iterable[tuple[int, Any]]:
        yield MERGE, self._row(operation.key, _object(operation.value))

    def _append(self, operation: _Operation) -> Iterable[tuple[int, Any]]:
        values = _many(operation) if operation.op == "add_all" else [operation.value]
        if values:
            yield MERGE, self._row(operation.key, {self._list: _array(values)})

    def _update(self, operation: _Operation) -> Iterable[tuple[int, Any]]:
        """Replaces a list. An empty list deletes the key."""
        values = _many(operation)
        if values:
            yield UPSERT, self._row(operation.key, {self._list: _array(values)})
        else:
            yield from self._clear(operation)

    def _put(self, operation: _Operation) -> Iterable[tuple[int, Any]]:
        """Puts entries of a map. If a key occurs twice, the last entry counts."""
        values = _many(operation) if operation.op == "put_all" else [operation.value]
        rows = [self._row(operation.key, _object(value)) for value in values]
        last = {self._rows.key_of(row): row for row in rows}
        yield from ((UPSERT, row) for row in last.values())

    def _remove(self, operation: _Operation) -> Iterable[tuple[int, Any]]:
        """Removes the named elements. Only the owner of a queue knows which element is its head."""
        yield DELETE, self._rows.key(_merge_objects(self._key(operation.key), _object(operation.value)))

    def _poll(self, operation: _Operation) -> Iterable[tuple[int, Any]]:
        """Removes the head: the element that the writer names, or the one that `head` says."""
        if operation.value != NULL:
            yield from self._remove(operation)
        elif self._options.head:
            yield POLL, self._rows.nothing() if not self._options.state_key else self._state_key(operation.key)
        else:
            raise RefusedRecordError(
                "POLL_UNNAMED", "`poll` has no `value`: it must name the element, by the columns of its key."
            )

    def _merge(self, operation: _Operation) -> Iterable[tuple[int, Any]]:
        """Merges the values of several keys (namespaces) into one."""
        if not operation.sources:
            raise RefusedRecordError("NOT_AN_OPERATION", "`merge` has no `sources`.")
        for source in operation.sources:
            yield MERGE_SOURCE, self._state_key(source)
        yield MERGE_TARGET, self._state_key(operation.key)

    def _state_key(self, key: _Object | None) -> Any:
        return self._state_keys.key(_merge_objects(self._key(key), {}))

    def _clear(self, operation: _Operation) -> Iterable[tuple[int, Any]]:
        """Clears everything of one key; without a key, the whole state."""
        if operation.key is None:
            if self._options.partitions == "many":
                why = (
                    "A clear of the whole state came in one partition, and it has no position in the other partitions."
                )
                raise RefusedRecordError("CLEAR_PARTITIONS", why)
            yield CLEAR, self._rows.nothing()
        elif len(self._options.state_key) < len(self._shape.key):
            yield CLEAR, self._state_key(operation.key)
        else:
            yield DELETE, self._rows.key(_merge_objects(self._key(operation.key), {}))

    def _row(self, key: _Object | None, value: _Object) -> Any:
        row, unsent = self._rows.row(_merge_objects(self._key(key), value), self._unsent)
        if unsent:
            raise not_sent(unsent)
        return row

    def _key(self, key: _Object | None) -> _Object:
        """Returns the state key, which must have exactly its columns."""
        fields = key or {}
        if set(fields) != set(self._options.state_key):
            wanted = ", ".join(self._options.state_key) or "nothing"
            raise RefusedRecordError(
                "KEY_NULL", f"The key has {', '.join(fields) or 'nothing'}, but it must have {wanted}."
            )
        return fields

    def _check(self, operation: _Operation) -> None:
        """Refuses metadata that the log cannot follow: the operations after it would be misread."""
        names = ((operation.name, self._options.state, "name"), (operation.kind, self._options.kind, "kind"))
        wrong = [name for new, ours, name in names if None not in (new, ours) and new != ours]
        misfits, brings = self._compare_columns(operation.schema or {}) if operation.schema else ([], {})
        takes_effect = not wrong and len(misfits) == len(brings)
        if misfits:
            wrong.append("schema")
        days, before = operation.ttl_days, self._options.ttl_days
        if days is not msgspec.UNSET and days != before:
            wrong.append("ttl_days")
            takes_effect = takes_effect and self._follows and before is not None and 0 < (days or 0) <= _MOST_DAYS
            brings[TTL_DAYS] = str(days)
        if not wrong:
            return
        detail = f"The metadata of the state differs from the log in {', '.join(wrong)}."
        refused = RefusedRecordError("STATE_CHANGED", f"{detail[:-1]}: {'; '.join(misfits)}." if misfits else detail)
        if takes_effect:
            refused.brings = tuple(brings.items())
        raise refused

    def _compare_columns(self, schema: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        """Returns why operations of this schema would not fit the log, and the columns that could take effect.

        They fit an older or narrower schema: a column that may be absent, a former name, a type that was widened.
        """
        misfits, brings, names = [], dict[str, str](), set[str]()
        for column in self._shape.columns:
            name = next((one for one in (column.name, *column.aliases) if one in schema), None)
            if name is None:
                misfits += [] if column.may_lack else [f"it lacks `{column.name}`"]
                continue
            names.add(name)
            if schema[name] != column.type and not widens(schema[name], column.type):
                misfits.append(f"`{name}` is {schema[name]}, not {column.type}")
                if self._follows and widens(column.type, schema[name]):
                    brings[column.name] = schema[name]
        added = {name: type_ for name, type_ in schema.items() if name not in names}
        return [*misfits, *(f"`{name}: {type_}` is new" for name, type_ in added.items())], brings | added


def _object(value: msgspec.Raw) -> _Object:
    try:
        return _objects.decode(value)
    except UNDECODABLE as error:
        raise RefusedRecordError("NOT_AN_OPERATION", f"The value must be an object: {error}.") from error


def _many(operation: _Operation) -> Sequence[msgspec.Raw]:
    if operation.values is None:
        raise RefusedRecordError("NOT_AN_OPERATION", f"`{operation.op}` has no `values`.")
    return operation.values


def _merge_objects(key: _Object, value: _Object) -> msgspec.Raw:
    """Returns one object with the fields of both."""
    if twice := [name for name in value if name in key]:
        raise RefusedRecordError(
            "NOT_AN_OPERATION", f"The value contains {', '.join(twice)}, which belongs to the key."
        )
    return msgspec.Raw(msgspec.json.encode({**key, **value}))


def _array(values: Sequence[msgspec.Raw]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(values))
