"""What keeps snapshots and the log for longer than retention does, and what keeps changes out of the log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tag:
    """A name that somebody gave to a snapshot, so that it is kept for as long as the name stands."""

    name: str
    snapshot: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Keeps a snapshot and the log behind it, for as long as it stands; says why."""

    name: str
    snapshot: int
    why: str


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody who reads the log by himself and has read it up to `sqn`."""

    name: str
    sqn: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """Nothing more is taken into the log: `run` is the one that stopped it, for a savepoint at `address`."""

    run: str
    by: str
    why: str
    address: str
    instant: str
