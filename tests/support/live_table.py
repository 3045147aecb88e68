"""A table of a real PostgreSQL whose changes land as a connector would send them, at once, later or never."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.landing import fold_waiting, land, make_landing, record, take
from tidefold.operations.ground.pipeline import Pipeline
from torture.servers import PostgresSession


class LiveTable:
    """`public.items` with a key `id`, and the log `items`. `held`: records that have not landed."""

    def __init__(
        self, session: PostgresSession, root: Path, columns: str = "{id: int, text: string}", **ddl: str
    ) -> None:
        self.session, self.root = session, root
        self.pipeline: Pipeline = make_landing(root, columns)
        self.held: list[dict[str, Any]] = []
        self.next = self.runs = self.commit = 0
        more = "".join(f", {name} {type_}" for name, type_ in ddl.items())
        session.execute("drop table if exists items", f"create table items (id int primary key, text text{more})")

    def write(self, statement: str, is_sent: bool = True) -> None:
        """Runs a statement on `items`; each row that it returns by RETURNING becomes a record."""
        op = {"insert": "c", "update": "u", "delete": "d"}[statement.split()[0]]
        position = self._find_position()
        rows = self.session.rows(f"with done as ({statement} returning *) select row_to_json(done)::text from done")
        for number, (text,) in enumerate(rows):
            row = json.loads(text)
            # A row takes more than a byte of the log of the server.
            sequence = json.dumps([str(self.commit), str(position + number)])
            if is_sent:
                images = {"before": row, "after": None} if op == "d" else {"after": row}
                self.held.append(record(self.next, row["id"], op, sequence=sequence, **images))
            self.next += 1
        self.commit = self._find_position() - 1

    def _find_position(self) -> int:
        [(position,)] = self.session.rows("select (pg_current_wal_insert_lsn() - '0/0')::bigint")
        return int(position)

    def land(self) -> None:
        """Lands and ingests what is held."""
        if self.held:
            land(self.root, self.held[0]["offset"], self.held)
            self.held = []
            take(self.pipeline)

    def publish(self) -> None:
        """Lands what is held, and publishes."""
        self.land()
        self.runs += 1
        fold_waiting(self.pipeline, f"r{self.runs}")
