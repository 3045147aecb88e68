"""What a seed tries, drawn from its number alone: so a test counts over many seeds what they try."""

from __future__ import annotations

import random
from dataclasses import dataclass

PHASES, STEPS = 4, 25
CONNECTORS = ("postgresql", "mariadb")
# Of ten seeds in a row, four have envelopes, two a set of all tables, four unwrapped records.
FORMS = ("envelope", "set", "unwrapped", "envelope", "unwrapped")
ROTATIONS = (5, 37, 400)
# Modes of bytes in which a connector tells a large value that did not change from null.
BINARY_MODES = {"postgresql": ("bytes", "hex"), "mariadb": ("bytes", "base64", "base64-url-safe", "hex")}
_CHANCES = {
    "kill": 0.4,
    "truncate": 0.4,
    "alter": 0.9,
    "alter again": 0.5,
    "incremental": 0.5,
    "incremental again": 0.2,
    "blocking": 0.3,
}


# What lands of a record; a log without the rest knows less (docs/reference/debezium.md).
LANDED = ("whole", "no headers", "values")
# When a transaction commits that was open while the connector began: before it reads the tables, after it, or after
# the connector was killed while it read them, or was started again before it saw any commit (and PostgreSQL's once
# more, within the transaction).
OVERLAPS = ("at once", "late", "killed", "restarted")


@dataclass(frozen=True)
class Plan:
    """`deeds` has, for each phase, what happens besides transactions: the step and the deed, in order.

    landed: one of LANDED. overlap: one of OVERLAPS, or empty.
    deferred: whether some tables have keys that are checked at the end of a transaction.
    unseen: whether the connector makes no snapshot, so that it sends values of rows that nobody has seen.

    rotate: records of a captured file; few of them cut snapshots, whose chunks have nine rows.
    begins: for each phase the step at which a stopped engine starts again; 0: it was not stopped.
    """

    connector: str
    form: str
    schemas: str
    decimal: str
    binary: str
    rotate: int
    deeds: tuple[tuple[tuple[int, str], ...], ...]
    begins: tuple[int, ...]
    landed: str
    overlap: str
    deferred: bool
    unseen: bool

    @property
    def leaves_out(self) -> bool:
        """Whether rows are left out of a table, because a value of them was never sent.

        Only PostgreSQL leaves values out. An unwrapped record without headers does not name its former key.
        """
        return self.connector == "postgresql" and (self.unseen or (self.form == "unwrapped" and self.landed != "whole"))

    @property
    def modes(self) -> dict[str, str]:
        return {"form": self.form, "schemas": self.schemas, "decimal": self.decimal, "binary": self.binary}

    @property
    def says_scale(self) -> bool:
        """Whether a decimal whose scale changes can be read: from its schema, or from its text."""
        return self.schemas == "on" or self.decimal == "string"

    @property
    def dimensions(self) -> set[str]:
        """What the seed tries."""
        deeds = {deed.removesuffix(" again") for phase in self.deeds for _, deed in phase}
        values = {f"schemas {self.schemas}", f"decimals {self.decimal}", f"bytes {self.binary}"}
        values |= {f"files of {self.rotate} records", *(["engine stopped"] if any(self.begins) else [])}
        values |= {f"landed {self.landed}", *([f"open at the start: {self.overlap}"] if self.overlap else [])}
        flags = {"deferred keys": self.deferred, "no first snapshot": self.unseen, "rows left out": self.leaves_out}
        return values | deeds | {name for name, value in flags.items() if value}


def draw_plan(number: int, connector: str = "") -> Plan:
    """The number deals what a draw would leave out too often; chance adds to it."""
    rnd, place = random.Random(f"plan {number}"), number // len(CONNECTORS)
    connector = connector or CONNECTORS[number % len(CONNECTORS)]
    form, turn = FORMS[place % len(FORMS)], place // len(FORMS)
    nth = turn * FORMS.count(form) + FORMS[: place % len(FORMS)].count(form)
    modes = BINARY_MODES[connector]
    schemas = "off" if form == "unwrapped" else ("on", "off")[nth % 2]
    decimal = ("precise", "string", "precise", "string")[(nth // 2 if form == "envelope" else nth) % 4]
    deeds = [_draw_deeds(rnd, form) if phase else [] for phase in range(PHASES)]
    for dealt, deed in enumerate(_dealt(place, connector, schemas == "on" or decimal == "string")):
        # An unwrapped record that lacks a column stops nothing: the DROP is described before the name comes again.
        waits = deed == "drop" and form == "unwrapped"
        first = 1 + (place + dealt) % (PHASES - 1 - waits)
        deeds[first].append((rnd.randrange(STEPS // 2), deed))
        if deed == "drop":
            # A column of its name comes later in the phase, or in the next one.
            later = first + 1 if waits else min(first + rnd.randrange(2), PHASES - 1)
            deeds[later].append((rnd.randrange(STEPS // 2 + 1, STEPS), "come back"))
    begins = tuple(rnd.randrange(STEPS) if phase and rnd.random() < 0.3 else 0 for phase in range(PHASES))
    unseen, landed = _is_unseen(connector, form, nth), _landed(form, nth)
    # In small files of values alone a change of a key often lies at the border of two.
    size = 0 if (form, landed) == ("envelope", "values") else place % len(ROTATIONS)
    return Plan(
        connector,
        form,
        schemas,
        decimal,
        modes[place % len(modes)],
        ROTATIONS[size],
        tuple(tuple(sorted(phase)) for phase in deeds),
        begins,
        landed,
        "" if unseen else _overlap(form, nth),
        connector == "postgresql" and place % 3 != 1,
        unseen,
    )


def _landed(form: str, nth: int) -> str:
    if form == "unwrapped":
        return LANDED[nth % len(LANDED)]
    return "values" if form == "envelope" and nth % 3 == 2 else "whole"


def _is_unseen(connector: str, form: str, nth: int) -> bool:
    """In a set every table needs its first snapshot."""
    return connector == "postgresql" and (form, nth) in {("envelope", 1), ("envelope", 4), ("unwrapped", 0)}


def _overlap(form: str, nth: int) -> str:
    return OVERLAPS[(nth if form == "set" else nth * 2 // 3) % len(OVERLAPS)]


def _draw_deeds(rnd: random.Random, form: str) -> list[tuple[int, str]]:
    # Unwrapped records have no truncates (docs/reference/debezium.md).
    chances = {deed: chance for deed, chance in _CHANCES.items() if (deed, form) != ("truncate", "unwrapped")}
    return [(rnd.randrange(STEPS), deed) for deed, chance in chances.items() if rnd.random() < chance]


def _dealt(place: int, connector: str, says_scale: bool) -> list[str]:
    """A column dropped and added again in two of three seeds, a blocking snapshot in two of three others."""
    dealt = ["drop"] if place % 3 != 1 else []
    dealt += ["blocking"] if place % 3 != 0 else []
    dealt += ["scale"] if says_scale else []
    return dealt + (["copy"] if connector == "postgresql" else [])
