"""A published table and the dump of its database."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from torture.lost import find_lost, read_written
from torture.person import FoundError
from torture.proof import find_unended, prove
from torture.tables import Table, dump, published

if TYPE_CHECKING:
    from torture.seed import Seed


def compare_table(seed: Seed, table: Table, when: str) -> None:
    """Raises FoundError if a published table differs from the database's own dump."""
    ignored = set(seed.person.config["logs"][table.name].get("ignored", []))
    names, expected = dump(table, seed.server, seed.work.session, ignored)
    found = published(table, names, str(seed.folder / "var/store/tables" / table.name))
    seed.totals.comparisons += 1
    if seed.form == "unwrapped":
        found = _without_unended(seed, table, expected, found)
    if missing := expected - found:
        expected -= _find_lost(seed, table, missing)
    if seed.plan.leaves_out and table.key:
        expected = _without_left_out(seed, table, when, expected, found)
    seed.totals.rows += expected.total()
    if expected != found:
        raise FoundError(f"unequal: {table.name} after {when}: {_difference(table, names, expected, found)}")


def _without_unended(seed: Seed, table: Table, expected: Counter[Any], found: Counter[Any]) -> Counter[Any]:
    """The rows that are found, without those whose end no record says: docs/reference/debezium.md."""
    count = len(table.key)
    surplus = {row[:count] for row in found} - {row[:count] for row in expected}
    if surplus:
        surplus &= find_unended(seed.capture.out / seed.landing.topics[table.name], table)
    seed.totals.workload["rows whose end never came"] += len(surplus)
    return Counter({row: n for row, n in found.items() if row[:count] not in surplus})


def _find_lost(seed: Seed, table: Table, missing: Counter[Any]) -> Counter[Any]:
    """The missing rows that the connector lost, as the log of the database proves."""
    folder = seed.capture.out / seed.landing.topics[table.name]
    written = read_written(seed.server.written())
    lost = find_lost(folder, table, missing, written) if written else Counter()
    seed.totals.workload["rows that the connector lost"] += lost.total()
    return lost


def _without_left_out(seed: Seed, table: Table, when: str, expected: Counter[Any], found: Counter[Any]) -> Counter[Any]:
    """The rows of the dump that the table can have: of the others, records prove that a value was never sent."""
    count = len(table.key)
    ignored = set(seed.person.config["logs"][table.name].get("ignored", []))
    proof = prove(seed.capture.out / seed.landing.topics[table.name], table, seed.plan, ignored)
    unknown = {row[:count] for row in expected} - proof.seen if seed.plan.unseen else set()
    absent = {row[:count] for row in expected} - {row[:count] for row in found} - unknown
    if wrong := proof.require(table, absent, seed.person.status(table.name)):
        raise FoundError(f"{wrong}, after {when}")
    if absent and not seed.person.exits[table.name]:
        raise FoundError(f"silent: {table.name}: {len(absent)} rows are missing, and `run` exited 0, after {when}")
    seed.totals.workload["rows left out"] += len(absent)
    return Counter({row: n for row, n in expected.items() if row[:count] not in absent | unknown})


def _difference(table: Table, names: list[str], expected: Counter[Any], found: Counter[Any]) -> str:
    """How many rows differ, and of some of them the columns that do: the value of the database, then the other."""
    missing, surplus = expected - found, found - expected
    by_key = {row[: len(table.key)]: row for row in surplus}
    shown = []
    for row in sorted(missing, key=str)[:4]:
        key = row[: len(table.key)]
        pairs = zip(names, row, by_key.get(key, ()), strict=False)
        shown.append({"key": key, **{name: [str(a)[:90], str(b)[:90]] for name, a, b in pairs if a != b}})
    more = [row[: len(table.key)] for row in sorted(surplus, key=str)[:4]]
    counted = f"{missing.total()} of {expected.total()} rows missing, {surplus.total()} surplus"
    kinds = {name: kind.name for name, kind in table.columns.items()}
    return f"{counted}: {shown}; surplus keys {more}; policy {table.policy}; {kinds}; {table.altered}"
