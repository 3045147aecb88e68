"""A captured table whose log orders one of its columns by another (`merge: partial` with `groups`).

The order of the group only grows until a TRUNCATE, and begins again after it. So the log's rows are those of the table.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from torture.person import FoundError, Person
from torture.servers import Session

NAME = "grouped"


class Grouped:
    """Changes the table, describes its log, and compares both.

    topic: of its records; empty: none is tried. Unwrapped records have no truncates (docs/reference/debezium.md).
    """

    def __init__(self, rnd: random.Random, session: Session, folder: Path, topic: str) -> None:
        self.rnd, self.session, self.folder, self.topic = rnd, session, folder, topic
        self.counts: Counter[str] = Counter()
        self._keys: set[int] = set()
        self._order = 0

    def create(self) -> None:
        self.session.execute(f"create table {NAME} (id int primary key, a int, g int)")

    def write(self) -> None:
        if not self.topic:
            return
        if self._keys and self.rnd.random() < 0.06:
            self.counts["truncate of a group"] += 1
            self._keys, self._order = set(), 0
            self.session.execute(f"truncate table {NAME}")
        for _ in range(self.rnd.choice((0, 1, 2)) if self._order else 1):
            self._order += 1
            key, value = self.rnd.randint(1, 6), self.rnd.randint(1, 99)
            change = f"update {NAME} set a={value}, g={self._order} where id={key}"
            if key not in self._keys:
                change = f"insert into {NAME} values ({key}, {value}, {self._order})"
            self._keys.add(key)
            self.session.execute(change)

    def configure(self, person: Person) -> None:
        """Makes a log of what `init` proposes for the topic."""
        if not self.topic:
            return
        merge = {"engine": "partial", "deletes": "ignore", "groups": [{"columns": ["a"], "order": ["g"]}]}
        columns = dict.fromkeys(("id", "a", "g"), "int")
        own = {"key": ["id"], "columns": columns, "merge": merge, "quality": {"max_row_drop": 1}}
        buckets = {"key_groups": 16, "buckets": self.rnd.choice((1, 3))}
        person.config["logs"][NAME] = {**person.proposed[self.topic], **own, **buckets}
        person.write()

    def compare(self, when: str) -> None:
        import polars

        if not self.topic:
            return
        path = self.folder / "var/store/tables" / NAME
        names = ("id", "a", "g")
        found = {tuple(map(str, row)) for row in polars.read_delta(str(path)).select(names).iter_rows()}
        expected = {tuple(map(str, row)) for row in self.session.rows(f"select id, a, g from {NAME}")}
        if found != expected:
            shown = f"{sorted(expected - found)[:4]} are {sorted(found - expected)[:4]}"
            raise FoundError(f"unequal: {NAME} after {when}: {shown}")
