"""Random tables: their columns, keys and how the database declares them; and the dump of their rows."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from torture.kinds import Kind, quoted, text
from torture.maria_kinds import maria_kinds, maria_text
from torture.plan import Plan
from torture.postgres_kinds import postgres_kinds
from torture.servers import Server, Session

Key = tuple[str, ...]
# The name of the kind of a column that was added NOT NULL with a default.
WITH_DEFAULT = "int with default"
# The column of the first tables whose scale a plan may change.
SCALED = "scaled"


@dataclass(frozen=True)
class Alteration:
    """One ALTER TABLE: `what` is add, drop, rename or type; `default` what existing rows have in an added column."""

    what: str
    column: str
    to: str = ""
    kind: Kind | None = None
    default: str | None = None


@dataclass
class Table:
    """`keys` are the literals of the keys of its rows; `held` those that an open transaction of another session has.
    `history` has each alteration; `policy` says how the person who runs tidefold meets a new column; `moves`: whether
    keys of its rows change; `deferred`: whether its keys are checked at the end of a transaction.
    """

    name: str
    key: dict[str, Kind]
    columns: dict[str, Kind]
    policy: str
    full_identity: bool = False
    keys: set[Key] = field(default_factory=set)
    held: set[Key] = field(default_factory=set)
    history: list[Alteration] = field(default_factory=list)
    numbers: int = 0
    locked: bool = False
    moves: bool = True
    deferred: bool = False
    expected: tuple[str, Kind] | None = None

    @property
    def gone(self) -> list[str]:
        """The names of columns that were dropped."""
        return [one.column for one in self.history if one.what == "drop" and one.column not in self.columns]

    @property
    def reused(self) -> set[str]:
        """The names of columns that were dropped, and came again."""
        dropped = {one.column for one in self.history if one.what == "drop"}
        return {one.column for one in self.history if one.what == "add"} & dropped

    @property
    def altered(self) -> list[str]:
        """Its alterations, to be shown."""
        return [f"{a.what} {a.column} {a.to}{a.kind.name if a.kind else ''}{a.default or ''}" for a in self.history]

    def new_key(self, rnd: random.Random) -> Key:
        """A key that no row has had, of as many columns as the table's key."""
        self.numbers += 1
        return tuple(_KEYS[kind.name](self.numbers, rnd) for kind in self.key.values())


def _uuid(number: int, rnd: random.Random) -> str:
    return f"'{number:08x}-0000-4000-8000-{rnd.randrange(2**48):012x}'"


_KEYS = {
    "int": lambda number, rnd: str(number if number % 7 else -number),
    "bigint": lambda number, rnd: str(2**62 + number if number % 5 else -(2**62) - number),
    "text": lambda number, rnd: quoted(f"{rnd.choice(('k', 'ключ', '🙂', 'a b', 'x:y,z'))}{number}"),
    "uuid": _uuid,
    "date": lambda number, rnd: f"'{1990 + number // 300}-{number // 25 % 12 + 1:02d}-{number % 25 + 1:02d}'",
}


def key_literal(kind: str, cell: Any) -> str:
    """The literal of a value of a key column, as `new_key` has it. cell: as a record has it."""
    if kind == "date":
        return f"'{datetime.date(1970, 1, 1) + datetime.timedelta(cell)}'"
    return f"'{cell}'" if kind == "uuid" else str(cell) if isinstance(cell, int) else quoted(cell)


def _key_kinds(connector: str, kinds: dict[str, Kind]) -> dict[str, Kind]:
    """The kinds of key columns, each with the name that draws its values."""
    if connector == "postgresql":
        found = {"int": "int4", "bigint": "int8", "text": "varchar", "uuid": "uuid", "date": "date"}
    else:
        found = {"int": "int", "bigint": "bigint", "text": "varchar", "date": "date"}
    return {name: _renamed(kinds[of], name) for name, of in found.items()}


def _renamed(kind: Kind, name: str) -> Kind:
    return Kind(**{**{f: getattr(kind, f) for f in Kind.__dataclass_fields__}, "name": name})


_SHAPES = (("int",), ("bigint",), ("text",), ("uuid",), ("int", "text"), ("date", "bigint"), ("text", "int", "date"))
# Of the tables whose keys are checked late, the deeds of a plan may alter the first.
_DEFERRED = (0, 2)
_POLICIES = ("stop", "stop", "evolve", "quarantine", "ignored", "nullable")


def random_kinds(rnd: random.Random, connector: str, modes: dict[str, str]) -> dict[str, Kind]:
    kinds = postgres_kinds(rnd) if connector == "postgresql" else maria_kinds(rnd)
    if modes["schemas"] == "off":
        # Nothing in a record shows that a float became a double: docs/how-to/change-columns.md.
        kinds = [replace(kind, widens=()) if {*kind.widens} & {"float8", "double"} else kind for kind in kinds]
    return {kind.name: kind for kind in kinds if kind.fits(modes)}


def random_tables(rnd: random.Random, kinds: dict[str, Kind], number: int, plan: Plan) -> list[Table]:
    """Tables of which the last has no key, and every one of the others a large column.

    Each has a key where nothing shows which records come again, or which rows never came. No row that the connector
    never sent moves to another key, unless its values are sent: such a record waits for a value that no record has.
    """
    connector, unwrapped = plan.connector, plan.form == "unwrapped"
    keys = _key_kinds(connector, kinds)
    shapes = [shape for shape in _SHAPES if set(shape) <= set(keys)]
    large = [kind for kind in kinds.values() if kind.large]
    tables = []
    for place in range(number):
        is_keyless = place == number - 1 and not (unwrapped or plan.unseen) and plan.landed == "whole"
        shape = () if is_keyless else rnd.choice(shapes)
        some = rnd.sample(sorted(kinds), rnd.randint(4, 9))
        columns = {f"c{n}": kinds[name] for n, name in enumerate(some)}
        columns["big"] = rnd.choice(large)
        # The first tables have what the deeds of a plan alter; two, as an open transaction may hold one.
        policy = "stop" if not shape or place < 2 else rnd.choice(_POLICIES)
        if place < 2 and "numeric-scaled" in kinds:
            columns[SCALED] = kinds["numeric-scaled"]
        deferred = plan.deferred and place in _DEFERRED
        identity = rnd.random() < (0.4 if unwrapped else 0.15) or deferred
        key = {f"k{n}": keys[name] for n, name in enumerate(shape)}
        moves = identity or not plan.unseen
        tables.append(Table(f"t{place}", key, columns, policy, identity, moves=moves, deferred=deferred))
    return tables


def create(table: Table, server: Server, session: Session) -> None:
    q = server.quote
    lines = [f"{q(name)} {kind.ddl} not null" for name, kind in table.key.items()]
    lines += [f"{q(name)} {kind.ddl}" for name, kind in table.columns.items()]
    if table.key:
        when = " deferrable initially deferred" if table.deferred else ""
        lines.append(f"primary key ({', '.join(map(q, table.key))}){when}")
    session.execute(f"create table {q(table.name)} ({', '.join(lines)})")
    if server.connector == "postgresql":
        for name, kind in table.columns.items():
            if kind.large:
                session.execute(f"alter table {q(table.name)} alter column {q(name)} set storage external")
        if table.full_identity and table.key:
            session.execute(f"alter table {q(table.name)} replica identity full")


def literal(kind: Kind, rnd: random.Random) -> str:
    return "NULL" if kind.name != WITH_DEFAULT and rnd.random() < 0.12 else kind.value(rnd)


def drawn_text(connector: str, rnd: random.Random) -> str:
    return quoted(text(rnd) if connector == "postgresql" else maria_text(rnd))


def dump(table: Table, server: Server, session: Session, leave_out: set[str]) -> tuple[list[str], Counter[Any]]:
    """The names of the columns, and the rows in canonical form with how often each is there."""
    kinds = {name: kind for name, kind in (table.key | table.columns).items() if name not in leave_out}
    shown = []
    for name, kind in kinds.items():
        expression = kind.shown.format(server.quote(name))
        postgres = server.connector == "postgresql"
        shown.append(f"({expression})::text" if postgres else f"hex(cast({expression} as char character set utf8mb4))")
    rows: Counter[Any] = Counter()
    for row in session.rows(f"select {', '.join(shown)} from {server.quote(table.name)}"):
        cells = row if server.connector == "postgresql" else [c and bytes.fromhex(c).decode() for c in row]
        rows[_canonical([kind.source for kind in kinds.values()], cells)] += 1
    return list(kinds), rows


def _canonical(canons: list[Any], cells: Any) -> tuple[Any, ...]:
    return tuple(None if cell is None else canon(cell) for canon, cell in zip(canons, cells, strict=True))


def published(table: Table, names: list[str], path: str) -> Counter[Any]:
    """The rows that a plain Delta reader finds, in canonical form.

    A column that the table does not have is null in every row: a log adds it with the first row that has it. A column
    that was renamed after the last record still has its old name.
    """
    import polars

    kinds = table.key | table.columns
    frame = polars.read_delta(path)
    former = {one.to: one.column for one in table.history if one.what == "rename" and one.to not in frame.columns}
    shown = {name: former.get(name, name) for name in names}
    columns = (polars.col(of) if of in frame.columns else polars.lit(None) for of in shown.values())
    frame = frame.select(one.alias(name) for name, one in zip(shown, columns, strict=True))
    return Counter(_canonical([kinds[name].table for name in names], row) for row in frame.iter_rows())
