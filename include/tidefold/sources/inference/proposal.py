"""Logs as a look at landed files proposes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProposedColumn:
    """A column as the sample shows it; `type` is None when no type of this version fits. `note` says what was seen,
    `encoding` how its values are written, where that is not the usual way.
    """

    name: str
    type: str | None
    note: str = ""
    encoding: str = ""


@dataclass(frozen=True, slots=True)
class ProposedLog:
    """A log as the sample shows it. `path` is relative to the sampled folder.

    `usable` is False when something must be decided by a person first: `notes` say what. `options` are what its source
    has beside format, connector and path; `sampled` says what was looked at, where that were no records; `refused` what
    the proposal would refuse of the sample.
    """

    id: str
    topic: str
    path: str
    key: tuple[str, ...]
    columns: tuple[ProposedColumn, ...]
    connector: str
    order: str
    records: int
    usable: bool
    notes: tuple[str, ...]
    format: str = "debezium-json"
    options: tuple[tuple[str, str], ...] = ()
    sampled: str = ""
    refused: str = ""


def log_ids(topics: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """Ids after the table names, none of them `taken`; with more of the topic's name where two would share one."""
    ids = list(taken)
    for topic in topics:
        parts = topic.split(".")
        candidates = [_sanitized("_".join(parts[-n:])) for n in range(1, len(parts) + 1)]
        free = [c for c in candidates if c not in ids]
        ids.append(free[0] if free else f"{candidates[-1][:55]}_{len(ids)}")
    return ids[len(taken) :]


def _sanitized(name: str) -> str:
    text = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")
    return (text if text[:1].isalpha() else f"log_{text}")[:63]
