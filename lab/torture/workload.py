"""Random transactions on the tables of a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from torture import deferred
from torture.kinds import Kind
from torture.servers import Server
from torture.tables import SCALED, WITH_DEFAULT, Alteration, Key, Table, literal


class Workload:
    """Draws and runs transactions. `counts` says how often each thing was done."""

    def __init__(self, rnd: random.Random, server: Server, database: str, tables: list[Table], kinds: dict[str, Kind]):
        self.rnd, self.server, self.tables, self.kinds = rnd, server, tables, kinds
        self.database = database
        self.session, self.other = server.session(database), server.session(database)
        self.counts: dict[str, int] = {}
        self._names = 0
        self._open: list[tuple[Table, set[Key]]] = []
        # What each transaction of several statements does besides.
        self.along: Callable[[], list[str]] = list

    def close(self) -> None:
        self.session.close()
        self.other.close()

    # -- statements ---------------------------------------------------------------------------------------------

    def name(self, table: Table) -> str:
        return self.server.quote(table.name)

    def where(self, table: Table, key: Key) -> str:
        return " and ".join(f"{self.server.quote(n)}={v}" for n, v in zip(table.key, key, strict=True))

    def insert_rows(self, table: Table, keys: list[Key]) -> str:
        names = ", ".join(map(self.server.quote, [*table.key, *table.columns]))
        rows = [f"({', '.join([*key, *(literal(kind, self.rnd) for kind in table.columns.values())])})" for key in keys]
        table.keys.update(keys)
        return f"insert into {self.name(table)} ({names}) values {', '.join(rows)}"

    def update_row(self, table: Table, key: Key, to: Key | None = None, values: bool = True) -> str:
        small = [name for name, kind in table.columns.items() if not kind.large] or list(table.columns)
        some = self.rnd.sample(small, self.rnd.randint(1, min(3, len(small)))) if values else []
        large = [name for name, kind in table.columns.items() if kind.large]
        if values and large and self.rnd.random() < 0.15:
            some.append(self.rnd.choice(large))
        new = {name: literal(table.columns[name], self.rnd) for name in dict.fromkeys(some)}
        if to is not None:
            new |= dict(zip(table.key, to, strict=True))
            table.keys.discard(key)
            table.keys.add(to)
        sets = ", ".join(f"{self.server.quote(name)}={value}" for name, value in new.items())
        return f"update {self.name(table)} set {sets} where {self.where(table, key)}"

    def delete_row(self, table: Table, key: Key) -> str:
        table.keys.discard(key)
        return f"delete from {self.name(table)} where {self.where(table, key)}"

    def some(self, table: Table, number: int = 1) -> list[Key]:
        free = sorted(table.keys - table.held)
        return self.rnd.sample(free, min(number, len(free)))

    # -- what a transaction may do ------------------------------------------------------------------------------

    def insert(self, table: Table) -> list[str]:
        return [self.insert_rows(table, [table.new_key(self.rnd) for _ in range(self.rnd.choice((1, 1, 2, 6)))])]

    def copy(self, table: Table) -> list[str]:
        """Rows of one COPY, whose records have one LSN."""
        insert = self.insert_rows(table, [table.new_key(self.rnd) for _ in range(self.rnd.randint(2, 30))])
        name, file = self.name(table), self.server.copy_file
        staged = insert.replace(f"insert into {name} (", "insert into staged (", 1)
        return [
            f"create temp table staged (like {name} including defaults)",
            staged,
            f"copy staged to '{file}'",
            f"copy {name} from '{file}'",
            "drop table staged",
        ]

    def copy_alone(self) -> None:
        self._count("copy")
        self.session.execute(*self.copy(self.rnd.choice(self.tables)))

    def update(self, table: Table) -> list[str]:
        return [self.update_row(table, key) for key in self.some(table, self.rnd.choice((1, 2, 4)))]

    def delete(self, table: Table) -> list[str]:
        return [self.delete_row(table, key) for key in self.some(table)]

    def again(self, table: Table) -> list[str]:
        """Deleted and inserted again at once."""
        return [
            made for key in self.some(table) for made in (self.delete_row(table, key), self.insert_rows(table, [key]))
        ]

    def chain(self, table: Table) -> list[str]:
        """A key changes, and changes again; in between the row may change."""
        made = []
        for key in self.some(table):
            for _ in range(self.rnd.randint(1, 4)):
                to = table.new_key(self.rnd)
                made.append(self.update_row(table, key, to, values=self.rnd.random() < 0.4))
                key = to
                if self.rnd.random() < 0.3:
                    made.append(self.update_row(table, key))
            if self.rnd.random() < 0.15:
                made.append(self.delete_row(table, key))
        return made

    def swap(self, table: Table) -> list[str]:
        both = self.some(table, 2)
        if len(both) < 2:
            return []
        one, two = both
        between = table.new_key(self.rnd)
        steps = ((one, between), (two, one), (between, two))
        return [self.update_row(table, a, b, values=self.rnd.random() < 0.3) for a, b in steps]

    def there_and_back(self, table: Table) -> list[str]:
        made = []
        for key in self.some(table):
            away = table.new_key(self.rnd)
            made.append(self.update_row(table, key, away, values=self.rnd.random() < 0.3))
            if self.rnd.random() < 0.5:
                made.append(self.update_row(table, away))
            made.append(self.update_row(table, away, key, values=self.rnd.random() < 0.3))
        return made

    def reuse(self, table: Table) -> list[str]:
        """A row moves away, and another takes its old key."""
        made = []
        for key in self.some(table):
            made += [self.update_row(table, key, table.new_key(self.rnd), values=False), self.insert_rows(table, [key])]
        return made

    # -- transactions -------------------------------------------------------------------------------------------

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def _steps(self, table: Table) -> list[str]:
        actions: dict[Callable[[Table], list[str]], int] = {self.insert: 5}
        if self.server.connector == "postgresql":
            actions[self.copy] = 1
        if table.key:
            actions |= {self.update: 7, self.delete: 2, self.again: 1}
        if table.key and table.moves:
            actions |= {self.chain: 2, self.swap: 1, self.there_and_back: 1, self.reuse: 1}
        if table.deferred:
            actions |= {partial(deed, self): 1 for deed in deferred.DEEDS}
        action = self.rnd.choices(list(actions), list(actions.values()))[0]
        made = action(table)
        if made:
            self._count(f"deferred {action.func.__name__}" if isinstance(action, partial) else action.__name__)
        return made

    def transaction(self) -> None:
        """One to some actions, each alone or all in one transaction, which may be rolled back, wholly or in part."""
        number = 40 if self.rnd.random() < 0.04 else self.rnd.randint(1, 5)
        kind = self.rnd.choices(("alone", "commit", "rollback", "savepoint"), (4, 4, 1, 1))[0]
        if kind == "alone":
            for _ in range(number):
                self.session.execute(*self._steps(self.rnd.choice(self.tables)))
            return
        self._count(f"transaction: {kind}")
        self.session.execute("begin")
        before = self._keys()
        for place in range(number):
            if kind == "savepoint" and place == number // 2:
                self.session.execute("savepoint s")
                before = self._keys()
            self.session.execute(*self._steps(self.rnd.choice(self.tables)))
        if kind == "savepoint":
            self.session.execute("rollback to savepoint s")
            self._set_keys(before)
            kind = "commit"
        if kind == "rollback":
            self._set_keys(before)
        self.session.execute(*self.along(), kind)

    def _keys(self) -> list[set[Key]]:
        return [set(table.keys) for table in self.tables]

    def _set_keys(self, before: list[set[Key]]) -> None:
        for table, keys in zip(self.tables, before, strict=True):
            table.keys = keys

    def truncate(self) -> None:
        table = self.rnd.choice(self.tables)
        if not table.locked:
            self._count("truncate")
            table.keys = set()
            self.session.execute(f"truncate table {self.name(table)}", *self.insert(table))

    def begin_spanning(self) -> None:
        """A transaction of another session, which stays open while others commit, until `end_spanning`."""
        table = self.rnd.choice(self.tables)
        if self._open or table.locked or not table.moves:
            return
        self._count("transaction: spans phases")
        held = set(self.some(table, 3)) if table.key else set()
        before, statements = set(table.keys), []
        for key in sorted(held):
            to = table.new_key(self.rnd)
            statements.append(self.update_row(table, key, to, values=self.rnd.random() < 0.5))
            statements.append(self.update_row(table, to))
        new = [table.new_key(self.rnd) for _ in range(3)]
        statements.append(self.insert_rows(table, new))
        after = table.keys - before
        table.keys = before
        table.held, table.locked = held, True
        self.other.execute("begin", *statements, *self.along())
        self._open = [(table, after)]

    def begin_overlap(self) -> None:
        """A transaction of another session on all tables, open until `end_spanning`."""
        self._count("transaction: open at the start")
        self.other.execute("begin", *self.along())
        for table in self.tables:
            before, held = set(table.keys), self.some(table, 3) if table.key else []
            statements = []
            for deed, key in zip(("update", "delete", "move"), held, strict=False):
                to = table.new_key(self.rnd) if deed == "move" and table.moves else None
                statements.append(self.delete_row(table, key) if deed == "delete" else self.update_row(table, key, to))
            statements.append(self.insert_rows(table, [table.new_key(self.rnd) for _ in range(2)]))
            self.other.execute(*statements)
            after = table.keys - (before - {*held})
            table.keys, table.held, table.locked = before, {*held}, True
            self._open.append((table, after))

    def end_spanning(self, commits: bool = False) -> None:
        commit = not self._open or commits or self.rnd.random() < 0.8
        if self._open:
            self.other.execute("commit" if commit else "rollback")
        for table, after in self._open:
            if commit:
                table.keys = (table.keys - table.held) | after
            table.held, table.locked = set(), False
        self._open = []

    # -- changes of the schema ----------------------------------------------------------------------------------

    def alter(self, deed: str = "") -> Table | None:
        """One unattended ALTER TABLE of a table with a key: any, or a deed of the plan."""
        keyed = [table for table in self.tables if table.key and not table.locked]
        if deed:
            keyed = [table for table in keyed if table.policy == "stop" and self._planned(table, deed)]
        if not keyed:
            return None
        table = self.rnd.choice(keyed)
        drawn = self._planned(table, deed) if deed else self._alteration(table)
        if drawn is None:
            return None
        self._names += 1
        self._count(f"alter: {deed or drawn.what}")
        q, t = self.server.quote, self.name(table)
        if drawn.what == "add":
            assert drawn.kind is not None
            default = "" if drawn.default is None else f" not null default {drawn.default}"
            self.session.execute(f"alter table {t} add column {q(drawn.column)} {drawn.kind.ddl}{default}")
            table.columns[drawn.column] = drawn.kind
        elif drawn.what == "drop":
            self.session.execute(f"alter table {t} drop column {q(drawn.column)}")
            del table.columns[drawn.column]
            # A record between a DROP and an ADD of the same name. Without one, nothing in the records shows the DROP.
            self.session.execute(*self.insert(table))
        elif drawn.what == "rename":
            self.session.execute(f"alter table {t} rename column {q(drawn.column)} to {q(drawn.to)}")
            table.columns = {drawn.to if n == drawn.column else n: kind for n, kind in table.columns.items()}
        else:
            assert drawn.kind is not None
            verb = "alter column {} type {}" if self.server.connector == "postgresql" else "modify column {} {}"
            self.session.execute(f"alter table {t} {verb.format(q(drawn.column), drawn.kind.ddl)}")
            table.columns[drawn.column] = drawn.kind
        table.history.append(drawn)
        return table

    def _alteration(self, table: Table) -> Alteration | None:
        what = self.rnd.choices(("add", "drop", "rename", "type"), (4, 3, 2, 3))[0]
        free = self._free(table)
        if what == "add":
            if table.expected is not None:
                name, kind = table.expected
                table.expected = None
                return Alteration("add", name, kind=kind)
            default = "7" if table.policy in ("stop", "quarantine") and self.rnd.random() < 0.3 else None
            whole = self.kinds["int4" if self.server.connector == "postgresql" else "int"]
            kind = whole if default else self.kinds[self.rnd.choice(sorted(self.kinds))]
            if default:
                kind = replace(kind, value=lambda rnd: str(rnd.randint(-9, 9)), name=WITH_DEFAULT)
            return Alteration("add", f"n{self._names}", kind=kind, default=default)
        if what == "type":
            changes = [(n, w) for n in free for w in table.columns[n].widens]
            if not changes:
                return None
            name, wide = self.rnd.choice(changes)
            return Alteration("type", name, kind=self.kinds[wide])
        if len(free) < 3:
            return None
        name = self.rnd.choice(free)
        return Alteration(what, name, to=f"r{self._names}" if what == "rename" else "")

    @staticmethod
    def _free(table: Table) -> list[str]:
        """The columns that nobody altered, and that no deed of the plan will."""
        fixed = {one.column for one in table.history} | {one.to for one in table.history} | {SCALED}
        return [name for name in table.columns if name not in fixed]

    def _planned(self, table: Table, deed: str) -> Alteration | None:
        """What a deed of the plan alters in a table; None: it cannot."""
        if deed == "drop" and not table.gone and len(free := self._free(table)) > 2:
            return Alteration("drop", free[0])
        if deed == "come back" and table.gone and not table.reused:
            return Alteration("add", table.gone[0], kind=self.kinds[self.rnd.choice(sorted(self.kinds))])
        if deed == "scale" and SCALED in table.columns and all(one.column != SCALED for one in table.history):
            return Alteration("type", SCALED, kind=self.kinds[table.columns[SCALED].widens[0]])
        return None

    # -- Debezium's signals -------------------------------------------------------------------------------------

    def signal(self, kind: str, altered: set[str]) -> None:
        """An incremental or a blocking snapshot of a table."""
        tables = [table for table in self.tables if table.key and table.name not in altered]
        if not tables:
            return
        self._count(f"{kind} snapshot")
        self.signal_table(kind, self.rnd.choice(tables))

    def signal_table(self, kind: str, table: Table) -> None:
        self._names += 1
        space = "public" if self.server.connector == "postgresql" else self.database
        data = json.dumps({"data-collections": [f"{space}.{table.name}"], "type": kind})
        self.session.execute(f"insert into signals values ('{self._names}', 'execute-snapshot', '{data}')")
