"""A PostgreSQL with transactions that are open together, and its connector, as captures show it (decision 0068)."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from support.landing import record

KEYS = range(1, 9)


@dataclass
class Transaction:
    """events: position, key and value of each change; None: the row is deleted. commit, time: after and at its end."""

    events: list[tuple[int, int, int | None]] = field(default_factory=list)
    commit: int = 0
    time: int = 0


@dataclass
class Place:
    """Where a connector is: in which transaction (by its number), behind which event, which commit it knows.

    processed: what it processed last, or its snapshot.
    is_said: that the commit is what it processed last: it has seen none.
    """

    transaction: int
    processed: int
    event: int | None = None
    commit: int | None = None
    is_said: bool = False


class SimulatedPostgres:
    """rows: those that are committed. topic: for each partition, what the connector has sent.

    newest: the position of the newest snapshot that replaces rows; 0: there was only one.
    begins_unsaid: a partition begins with an event below it whose commit is none, which nothing shows (decision 0068).
    """

    def __init__(self, rnd: Random, partitions: int = 1) -> None:
        self.rnd, self.partitions = rnd, partitions
        self.position, self.time, self.rows = 1000, 0, dict[int, int]()
        self.open: list[Transaction] = []
        self.done: list[Transaction] = []
        self.topic: list[list[dict[str, Any]]] = [[] for _ in range(partitions)]
        self.newest, self.begins_unsaid = -1, False
        self.at: Place | None = None
        self.stored: Place | None = None

    def write(self) -> None:
        """A change of a row that no other open transaction has changed."""
        if not self.open or (len(self.open) < 3 and self.rnd.random() < 0.4):
            self.open.append(Transaction())
        one = self.rnd.choice(self.open)
        locked = {key for other in self.open if other is not one for _, key, _ in other.events}
        if free := [key for key in KEYS if key not in locked]:
            key = self.rnd.choice(free)
            there = {**self.rows, **{k: v for _, k, v in one.events}}.get(key)
            self.position += 10
            gone = there is not None and self.rnd.random() < 0.3
            one.events.append((self.position, key, None if gone else self.rnd.choice((self.position % 89, 110))))

    def commit(self) -> None:
        if self.open:
            self._end(self.open.pop(self.rnd.randrange(len(self.open))))

    def _end(self, one: Transaction) -> None:
        self.position += 10
        self.time += 1
        one.commit, one.time = self.position, self.time
        self.done.append(one)
        for _, key, value in one.events:
            self.rows.pop(key, None)
            if value is not None:
                self.rows[key] = value

    def snapshot(self, rows: int | None = None) -> None:
        """A slot is made, and the snapshot at its position. rows: the connector is killed after so many."""
        self.position += 10
        self.time += 5
        # No record says that a table is empty.
        if not self.rows:
            self.position += 10
            self._end(Transaction([(self.position, 9, 1)]))
        marked = sorted(self.rows.items())
        self.newest = self.position if self.newest >= 0 else 0
        for number, (key, value) in enumerate(marked):
            if number == rows:
                self.at = self.stored = None
                return
            mark = "first" if not number else "last" if number == len(marked) - 1 else "true"
            self._send("r", key, value, None, self.position, self.time, snapshot=mark)
        self.at = Place(len(self.done), self.position)
        self.stored = Place(len(self.done), self.position)

    def stream(self, events: int) -> None:
        """Sends events of committed transactions. The connector may store its place after each."""
        while self.at and events and self.at.transaction < len(self.done):
            one = self.done[self.at.transaction]
            rest = [event for event in one.events if self.at.event is None or event[0] > self.at.event]
            for position, key, value in rest[:events]:
                is_first = not self.topic[key % self.partitions]
                self.begins_unsaid |= is_first and self.at.is_said and position < self.newest
                self._send("d" if value is None else "u", key, value, self.at.commit, position, one.time)
                self.at.event = position
                if self.rnd.random() < 0.4:
                    self.stored = Place(self.at.transaction, position, position, self.at.commit)
            if len(rest) > events:
                return
            events -= len(rest)
            self.at = Place(self.at.transaction + 1, one.commit, None, one.commit)

    def kill(self) -> None:
        """The connector goes on where it stored its place. Without a commit it says what it processed last instead."""
        if self.stored:
            at = self.stored
            said = at.processed if self.rnd.random() < 0.8 else None
            is_said = at.commit is None and said is not None
            self.at = Place(at.transaction, at.processed, at.event, said if is_said else at.commit, is_said)

    def _send(
        self,
        op: str,
        key: int,
        value: int | None,
        commit: int | None,
        event: int,
        time: int,
        **mark: Any,
    ) -> None:
        said = "null" if commit is None else f'"{commit}"'
        topic = self.topic[key % self.partitions]
        row = None if value is None else {"id": key, "n": value}
        whole = record(len(topic), key, op, sequence=f'[{said},"{event}"]', ts_us=time, after=row, **mark)
        whole["value"]["before"], whole["partition"] = ({"id": key} if op == "d" else None), key % self.partitions
        topic.append(whole)


def play(rnd: Random, partitions: int = 1) -> SimulatedPostgres:
    """A random history, at the end of which the connector has sent everything."""
    made = SimulatedPostgres(rnd, partitions)
    for _ in range(rnd.randint(0, 8)):
        made.write()
    made.commit()
    steps = ["write"] * 8 + ["commit"] * 4 + ["stream"] * 4 + ["kill"] * 2 + ["again", "killed"]
    made.snapshot()
    for step in rnd.choices(steps, k=rnd.randint(5, 40)):
        if step == "stream":
            made.stream(rnd.randint(1, 4))
        elif step == "killed":
            made.snapshot(rnd.randint(0, 3))
            made.snapshot()
        elif step == "again":
            made.snapshot()
        else:
            getattr(made, step)()
    while made.open:
        made.commit()
    made.stream(10**6)
    return made
