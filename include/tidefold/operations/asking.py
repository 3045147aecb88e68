"""What a run asks of the logs: the same value for the command line, the Spark jobs and Airflow."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tidefold.lifecycle import claims
from tidefold.lifecycle.errors import InvalidInputError
from tidefold.lifecycle.values import Kind, Snapshot
from tidefold.operations.pipeline import now


@dataclass(frozen=True, slots=True)
class Asking:
    """A fold of what is new, or with `restore` the return of a snapshot. `run` is the id of the run, if it has one.

    `takeover` supersedes an attempt of another run; `stalled` names, by log, attempts that were seen without progress.
    """

    run: str | None = None
    takeover: bool = False
    stalled: Mapping[str, Snapshot] = field(default_factory=dict)
    restore: claims.Restore | None = None

    def of(self, log: str) -> claims.Claim:
        """The claim on one log, with the sha256 of what is asked for. Raises InvalidInputError without a run id."""
        if self.run is None:
            raise InvalidInputError("RUN_MISSING", "A materialization needs a run id.", hint="Give it one.")
        wanted = {"kind": Kind.FULL, "restore": self.restore} if self.restore else {"kind": Kind.FULL}
        return claims.Claim(
            self.run, request_of(wanted), Kind.FULL, now(), self.takeover, self.stalled.get(log), self.restore
        )


def request_of(wanted: Mapping[str, Any]) -> str:
    """The sha256 of what is asked for, by which a run that asks for something else is known."""
    return hashlib.sha256(msgspec.json.encode(wanted)).hexdigest()
