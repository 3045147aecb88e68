"""What the records prove about rows that a table cannot have: a value of them was never sent."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torture.plan import Plan
from torture.tables import Table

Key = tuple[str, ...]
_PLACEHOLDER = b"__debezium_unavailable_value"
_TEXTS = {_PLACEHOLDER.decode(), base64.b64encode(_PLACEHOLDER).decode(), _PLACEHOLDER.hex()}


@dataclass(frozen=True)
class Proof:
    """Keys by what their records have.

    seen: any record. must: no record has some value, so the row is left out. may: some records have each value, but
    none has all of them, or they came again; whether the row is whole depends on where the folds lie.
    """

    seen: set[Key] = field(default_factory=set)
    must: set[Key] = field(default_factory=set)
    may: set[Key] = field(default_factory=set)

    def require(self, table: Table, absent: set[Key], status: Mapping[str, Any]) -> str:
        """What is wrong with the rows that a table lacks, and with what `tidefold status` says of them."""
        if wrong := absent - self.may | self.must - absent:
            return f"unequal: {table.name}: {len(wrong)} rows, which no record or each record explains: {_some(wrong)}"
        count = status["unresolved"]
        named = {tuple(map(str, json.loads(one)["key"].values())) for one in status["unresolved_keys"]}
        if count != len(absent) or named - absent or len(named) != min(count, 10):
            shown = f"{len(absent)} rows are missing: {_some(absent)}; status says {count}: {_some(named)}"
            return f"silent: {table.name}: {shown}"
        return ""


def _some(keys: set[Key]) -> list[Key]:
    return sorted(keys)[:10]


def prove(folder: Path, table: Table, plan: Plan, ignored: set[str]) -> Proof:
    """Reads all captured records of a table, in order. ignored: columns that its log leaves out by now."""
    proof, merged, whole = Proof(), _States(plan), _States(plan, forgets=True)
    for record in read_records(folder):
        key = find_key(table, record.key)
        proof.seen.add(key)
        former = find_key(table, record.former) if record.former else None
        for states in (merged, whole):
            states.take(key, former, record)
    proof.must.update(merged.without(ignored) & whole.without(ignored))
    proof.may.update(merged.without() | whole.without())
    return proof


def find_unended(folder: Path, table: Table) -> set[Key]:
    """The keys whose last record is no delete. Unwrapped records do not show that a snapshot began again."""
    last: dict[Key, bool] = {}
    for record in _lines(folder):
        value = _payload(record["value"])
        if value is not None:
            last[find_key(table, _payload(record["key"]))] = value["__deleted"] == "true"
    return {key for key, is_deleted in last.items() if not is_deleted}


@dataclass(frozen=True)
class Record:
    """former, place: the key of the row before its key changed, and the position in the source. run: of the engine."""

    key: dict[str, Any]
    op: str
    row: dict[str, Any]
    former: dict[str, Any] | None
    place: tuple[int, ...]
    begins: bool = False
    run: str = ""


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text().split("\n")[:-1]:
            yield json.loads(line)


def read_records(folder: Path) -> Iterator[Record]:
    """The captured records of a table that have a value, in order."""
    for record in _lines(folder):
        value, key = _payload(record["value"]), _payload(record["key"])
        if value is not None:
            headers = {one["key"]: _payload(one["value"]) for one in record["headers"]}
            run = headers.get("__debezium.context.runId", "")
            yield replace(_record(key, value, headers.get("__debezium.oldkey")), run=run)


def _record(key: dict[str, Any], value: dict[str, Any], former: dict[str, Any] | None) -> Record:
    if "source" in value:
        commit, place = json.loads(value["source"]["sequence"])
        begins = value["op"] == "t" or (
            value["op"] == "r" and str(value["source"]["snapshot"]) in ("first", "first_in_data_collection")
        )
        order = (int(commit or place), int(place))
        return Record(key or {}, value["op"], value.get("after") or {}, former, order, begins)
    op = "d" if value["__deleted"] == "true" else value["__op"]
    return Record(key, op, value, former, (value["__lsn"] or 0,))


def _payload(found: Any) -> Any:
    return found["payload"] if isinstance(found, dict) and set(found) == {"schema", "payload"} else found


def find_key(table: Table, key: Mapping[str, Any]) -> Key:
    """As the dump has it."""
    days = datetime.date(1970, 1, 1)
    cells = ((kind.name, key[name]) for name, kind in table.key.items() if name in key)
    return tuple(str(days + datetime.timedelta(cell) if name == "date" else cell) for name, cell in cells)


class _States:
    """The columns of each row that no record has a value of.

    forgets: a row that is not complete is not stored, so the next record of it finds no values; and a record that came
    again is taken again, if nothing in it shows that.
    """

    def __init__(self, plan: Plan, forgets: bool = False) -> None:
        self.plan, self.forgets = plan, forgets
        self.missing: dict[Key, set[str]] = {}
        self._moved: dict[Key, set[str]] = {}
        self._deleted: tuple[tuple[int, ...], Key] | None = None
        self._highest: tuple[int, ...] = ()
        self._had: set[tuple[Any, ...]] = set()

    def without(self, ignored: Collection[str] = ()) -> set[Key]:
        """The keys that lack a value of a column, but for these."""
        return {key for key, missing in self.missing.items() if missing.difference(ignored)}

    def take(self, key: Key, former: Key | None, record: Record) -> None:
        if record.op != "r" and self._came(key, record):
            return
        if record.begins:
            self.missing.clear()
        if record.op == "d":
            self._moved[key] = self.missing.pop(key, {"all"})
            self._deleted = (record.place, key)
        elif record.op in ("r", "c", "u"):
            self.missing[key] = self._lacks(self._base(key, former, record), record.row)

    def _came(self, key: Key, record: Record) -> bool:
        if self.plan.form == "unwrapped":
            one = (record.place, record.op, key)
            came = one in self._had
            self._had.add(one)
            return came and not self.forgets
        came = record.place < self._highest
        self._highest = max(self._highest, record.place)
        return came

    def _base(self, key: Key, former: Key | None, record: Record) -> set[str] | None:
        if record.op != "c":
            return self.missing.get(key)
        if self.plan.landed == "whole":
            return self._moved.get(former) if former else None
        if self.plan.form == "unwrapped":
            return None
        place, deleted = self._deleted or ((), ())
        return self._moved.get(deleted) if place == record.place else None

    def _lacks(self, base: set[str] | None, row: Mapping[str, Any]) -> set[str]:
        unsent = {name for name, value in row.items() if _is_unsent(value)}
        if base is None or "all" in base:
            return unsent
        return unsent if self.forgets and base else unsent & base


def _is_unsent(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_unsent, value))
    return isinstance(value, str) and value in _TEXTS
