"""Transactions of PostgreSQL in which two rows have one key for a while, since keys are checked at their end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torture.tables import Key, Table, literal

if TYPE_CHECKING:
    from torture.workload import Workload


def swap(work: Workload, table: Table) -> list[str]:
    """Two rows change places in one statement."""
    keys = work.some(table, 2)
    return [_move(work, table, keys, [*keys[1:], keys[0]])] if len(keys) == 2 else []


def shift(work: Workload, table: Table) -> list[str]:
    """Each row takes the key of the next one: `update t set id = id + 1`."""
    keys = sorted(work.some(table, work.rnd.randint(2, 4)))
    return [_move(work, table, keys, [*keys[1:], table.new_key(work.rnd)])] if len(keys) > 1 else []


def take_over(work: Workload, table: Table) -> list[str]:
    """A row takes the key of another, which is deleted after that."""
    keys = work.some(table, 2)
    if len(keys) < 2:
        return []
    gone, moved = keys
    deleted = f"with gone as (delete from {work.name(table)} where {work.where(table, gone)}) "
    return [deleted + work.update_row(table, moved, gone, values=work.rnd.random() < 0.3)]


def insert_over(work: Workload, table: Table) -> list[str]:
    """A row comes with the key of another, which is deleted after that."""
    deleted = "with gone as (delete from {} where {}) "
    return [
        deleted.format(work.name(table), work.where(table, key)) + work.insert_rows(table, [key])
        for key in work.some(table)
    ]


def scramble(work: Workload, table: Table) -> list[str]:
    """Rows move to any of some keys, change, come and go; at the end each key has one row."""
    rnd, keys = work.rnd, work.some(table, work.rnd.randint(2, 4))
    if len(keys) < 2:
        return []
    return [_Scramble(work, table, keys).draw(rnd)]


DEEDS = (swap, shift, take_over, insert_over, scramble)


def _move(work: Workload, table: Table, old: Sequence[Key], new: Sequence[Key]) -> str:
    """One UPDATE that gives each row its new key, and perhaps all of them one value."""
    quote, kinds = work.server.quote, list(table.key.values())
    casts = [f"cast({{}} as {kind.ddl})" for kind in kinds]
    rows = ", ".join(
        "(" + ", ".join(cast.format(cell) for cast, cell in zip([*casts, *casts], [*a, *b], strict=True)) + ")"
        for a, b in zip(old, new, strict=True)
    )
    names = [*(f"o{n}" for n in range(len(kinds))), *(f"n{n}" for n in range(len(kinds)))]
    sets = [f"{quote(name)}=m.n{n}" for n, name in enumerate(table.key)]
    small = [name for name, kind in table.columns.items() if not kind.large]
    if small and work.rnd.random() < 0.3:
        changed = work.rnd.choice(small)
        sets.append(f"{quote(changed)}={literal(table.columns[changed], work.rnd)}")
    where = " and ".join(f"t.{quote(name)}=m.o{n}" for n, name in enumerate(table.key))
    table.keys = (table.keys - {*old}) | {*new}
    return (
        f"update {work.name(table)} as t set {', '.join(sets)} from (values {rows}) as m ({', '.join(names)}) "
        f"where {where}"
    )


class _Scramble:
    """A block of PL/pgSQL, which knows each row by its place, whatever its key is."""

    def __init__(self, work: Workload, table: Table, keys: list[Key]) -> None:
        self.work, self.table = work, table
        self.held = dict(enumerate(keys))
        self.pool = [*keys, table.new_key(work.rnd)]
        self.lines = [
            f"select ctid into strict p{n} from {work.name(table)} where {work.where(table, key)};"
            for n, key in self.held.items()
        ]
        self.rows = len(keys)
        table.keys -= {*keys}

    def draw(self, rnd: random.Random) -> str:
        for _ in range(rnd.randint(3, 9)):
            deed = rnd.choices(("move", "change", "delete", "insert"), (5, 3, 1, 1))[0]
            if deed == "insert":
                self._insert(rnd.choice(self.pool))
            elif self.held:
                row = rnd.choice(sorted(self.held))
                self.delete_row(row) if deed == "delete" else self._update(row, rnd, deed == "move")
        for row, key in sorted(self.held.items()):
            if list(self.held.values()).count(key) > 1:
                self._move(row, self._free())
        self.table.keys |= {*self.held.values()}
        places = "".join(f"p{n} tid; " for n in range(self.rows))
        return f"do $do$ declare {places}begin {' '.join(self.lines)} end $do$"

    def _free(self) -> Key:
        free = [key for key in self.pool if key not in self.held.values()]
        return free[0] if free else self.table.new_key(self.work.rnd)

    def _insert(self, key: Key) -> None:
        self.lines.append(f"{self.work.insert_rows(self.table, [key])} returning ctid into strict p{self.rows};")
        self.table.keys.discard(key)
        self.held[self.rows] = key
        self.rows += 1

    def delete_row(self, row: int) -> None:
        self.lines.append(f"delete from {self.work.name(self.table)} where ctid=p{row};")
        del self.held[row]

    def _update(self, row: int, rnd: random.Random, moves: bool) -> None:
        if moves:
            self._move(row, rnd.choice(self.pool))
        else:
            name = rnd.choice(list(self.table.columns))
            self._set(row, {name: literal(self.table.columns[name], rnd)})

    def _move(self, row: int, key: Key) -> None:
        self.held[row] = key
        self._set(row, dict(zip(self.table.key, key, strict=True)))

    def _set(self, row: int, values: dict[str, str]) -> None:
        sets = ", ".join(f"{self.work.server.quote(name)}={value}" for name, value in values.items())
        changed = f"update {self.work.name(self.table)} set {sets} where ctid=p{row}"
        self.lines.append(f"{changed} returning ctid into strict p{row};")
