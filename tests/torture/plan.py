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


@dataclass(frozen=True)
class Plan:
    """`deeds` has, for each phase, what happens besides transactions: the step and the deed, in order.

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
        return values | deeds


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
        first = 1 + (place + dealt) % (PHASES - 1)
        deeds[first].append((rnd.randrange(STEPS // 2), deed))
        if deed == "drop":
            # A column of its name comes later in the phase, or in the next one.
            later = min(first + rnd.randrange(2), PHASES - 1)
            deeds[later].append((rnd.randrange(STEPS // 2 + 1, STEPS), "come back"))
    begins = tuple(rnd.randrange(STEPS) if phase and rnd.random() < 0.3 else 0 for phase in range(PHASES))
    return Plan(
        connector,
        form,
        schemas,
        decimal,
        modes[place % len(modes)],
        ROTATIONS[place % len(ROTATIONS)],
        tuple(tuple(sorted(phase)) for phase in deeds),
        begins,
    )


def _draw_deeds(rnd: random.Random, form: str) -> list[tuple[int, str]]:
    # Unwrapped records have no truncates (docs/debezium.md).
    chances = {deed: chance for deed, chance in _CHANCES.items() if (deed, form) != ("truncate", "unwrapped")}
    return [(rnd.randrange(STEPS), deed) for deed, chance in chances.items() if rnd.random() < chance]


def _dealt(place: int, connector: str, says_scale: bool) -> list[str]:
    """A column dropped and added again in two of three seeds, a blocking snapshot in two of three others."""
    dealt = ["drop"] if place % 3 != 1 else []
    dealt += ["blocking"] if place % 3 != 0 else []
    dealt += ["scale"] if says_scale else []
    return dealt + (["copy"] if connector == "postgresql" else [])
