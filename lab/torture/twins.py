"""Two captured tables of a set: each transaction brings one row to both, so whatever is published has the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torture.person import SET, FoundError, Person
from torture.servers import Session

NAMES = ("twin_a", "twin_b")


class Twins:
    """Makes the rows, describes the logs as members of the set, and compares them after each publication.

    prefix: of the topics; empty: there is no set.
    """

    def __init__(self, session: Session, folder: Path, prefix: str) -> None:
        self.session, self.folder = session, folder
        self.topics = {name: f"{prefix}.{name}" for name in NAMES if prefix}
        self._rows = 0

    def create(self) -> None:
        self.session.execute(*(f"create table {name} (id int primary key)" for name in NAMES), *self.statements())

    def statements(self) -> list[str]:
        """What a transaction does to both tables, apart from each other."""
        self._rows += 1
        return [f"insert into {name} values ({self._rows})" for name in NAMES if self.topics]

    def configure(self, person: Person) -> None:
        """Makes logs of what `init` proposes for the topics."""
        for name, topic in self.topics.items():
            own: dict[str, Any] = {"key": ["id"], "columns": {"id": "int"}, "quality": {"max_row_drop": 1}}
            person.config["logs"][name] = {**person.proposed[topic], **own}
        if self.topics:
            person.config["sets"][SET]["logs"] += list(NAMES)
            person.published = self.require_equal
            person.write()

    def require_equal(self) -> None:
        """Raises FoundError if the published tables differ from each other."""
        one, other = map(self._published, NAMES)
        if one != other:
            shown = f"{sorted(one - other)[:4]} and {sorted(other - one)[:4]} are in one only"
            raise FoundError(f"silent: the tables of the set are not of one point: {shown}")

    def compare(self, when: str) -> None:
        for name in self.topics:
            expected = {int(row[0]) for row in self.session.rows(f"select id from {name}")}
            if self._published(name) != expected:
                wrong = sorted(self._published(name) ^ expected)
                raise FoundError(f"unequal: {name} after {when}: {len(wrong)} of {len(expected)} rows: {wrong[:4]}")

    def _published(self, name: str) -> set[int]:
        import polars

        path = self.folder / "var/store/tables" / name
        return set(polars.read_delta(str(path))["id"]) if path.exists() else set()
