"""Exports of a table beside the capture: rows of one day, so every order is equal and the place of arrival decides."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torture.person import FoundError, Person
from torture.workload import Workload

if TYPE_CHECKING:
    from torture.tables import Table

Cells = tuple[str | None, ...]
LOG, DAY = "exports", "2026-03-04"


class Exports:
    """Writes what changed in one table since the last file, as text, under names of any kind.

    `shown` is what the files describe, by key. Some files repeat rows, and some repeat the whole file before.
    """

    def __init__(self, rnd: random.Random, folder: Path, work: Workload) -> None:
        self.rnd, self.folder, self.work = rnd, folder / "landing" / LOG, work
        self.table: Table = next(table for table in work.tables if table.key)
        self.shown: dict[Cells, Cells] = {}
        self.counts: Counter[str] = Counter()

    def write(self) -> None:
        if not self.folder.exists() or self.rnd.random() > 0.15:
            return
        rows = self._rows()
        changed = [("u", key, row) for key, row in rows.items() if self.shown.get(key) != row]
        changed += [("u", key, rows[key]) for key in self.rnd.sample(sorted(rows, key=str), min(2, len(rows)))]
        changed += [("d", key, self.shown[key]) for key in self.shown if key not in rows]
        if not changed:
            return
        self.shown = rows
        number = self.counts["export"]
        self.counts["export"] += 1
        text = "".join(json.dumps(self._record(*one)) + "\n" for one in changed)
        (self.folder / f"out-{number:05d}.jsonl").write_text(text)
        if self.rnd.random() < 0.2:
            # The same bytes under another name bring nothing.
            self.counts["export again"] += 1
            (self.folder / f"out-{number:05d}-copy.jsonl").write_text(text)

    def _record(self, op: str, key: Cells, row: Cells) -> dict[str, Any]:
        cells = {f"k{n}": cell for n, cell in enumerate(key)} | {"text": json.dumps(row)}
        return {**cells, "op": op, "day": DAY}

    def _rows(self) -> dict[Cells, Cells]:
        """The rows as they are committed now; text of another type shows an ALTER, too."""
        server, table = self.work.server, self.table
        kinds = table.key | {name: kind for name, kind in table.columns.items() if not kind.large}
        text = "({})::text" if server.connector == "postgresql" else "hex(cast({} as char character set utf8mb4))"
        shown = ", ".join(text.format(kind.shown.format(server.quote(name))) for name, kind in kinds.items())
        found = self.work.session.rows(f"select {shown} from {server.quote(table.name)}")
        count = len(table.key)
        return {tuple(row[:count]): tuple(row[count:]) for row in found}

    def configure(self, person: Person) -> None:
        self.folder.mkdir()
        keys = [f"k{n}" for n in range(len(self.table.key))]
        person.config["logs"][LOG] = {
            "source": {
                "format": "json",
                "record": "value",
                "path": f"landing/{LOG}",
                "op": {"column": "op", "delete": ["d"]},
            },
            "key": keys,
            "order": ["day"],
            "columns": {**dict.fromkeys(keys, "string"), "text": "string", "day": {"type": "date", "encoding": "iso"}},
            "key_groups": 16,
            "buckets": self.rnd.choice((1, 3)),
            "quality": {"max_row_drop": 1},
        }
        person.write()

    def compare(self, when: str) -> None:
        import polars

        path = self.folder.parents[1] / "var/store/tables" / LOG
        if not self.shown and not path.exists():
            return
        frame = polars.read_delta(str(path))
        keys = [f"k{n}" for n in range(len(self.table.key))]
        found = {tuple(row[:-1]): tuple(json.loads(row[-1])) for row in frame.select(*keys, "text").iter_rows()}
        if found != self.shown:
            wrong = [key for key in {**found, **self.shown} if found.get(key) != self.shown.get(key)]
            raise FoundError(f"unequal: {LOG} after {when}: {len(wrong)} of {len(self.shown)} rows: {wrong[:4]}")
