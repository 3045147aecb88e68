"""Logs as a look at landed files proposes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class ProposedColumn:
    """A column as the sample shows it; `type` is None when no type of this version fits. `note` says what was seen.

    `encoding`: how the source writes the values, where it is not the usual way. `alias`: what the source calls it,
    where no table can have that name. `optional`: records may lack it.
    """

    name: str
    type: str | None
    note: str = ""
    encoding: str = ""
    alias: str = ""
    optional: bool = False

    def make_optional(self) -> ProposedColumn:
        """The column, which records may lack."""
        note = f"{self.note}; " if self.note else ""
        return replace(self, optional=True, note=f"{note}some records lack it, and are null there")


@dataclass(frozen=True, slots=True)
class ProposalQuestion:
    """What a look at files cannot know.

    about: the key of `tidefold.yaml` that it is about.
    text: the question.
    candidates: answers that were found, the likeliest first.
    sure: the first one is so likely that the log is used with it until somebody says otherwise.
    because: what speaks for the first one.
    """

    about: str
    text: str
    candidates: tuple[str, ...] = ()
    sure: bool = False
    because: str = ""


@dataclass(frozen=True, slots=True)
class ProposedLog:
    """A log as the sample shows it. `path` is relative to the sampled folder.

    `usable` is False when something must be decided by a person first: `notes` say what. `options` are what its source
    has beside format, connector and path; `sampled` says what was looked at, where that were no records; `refused` what
    the proposal would refuse of the sample. `questions` are those that a person should answer; each that is not `sure`
    holds the log back.
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
    options: tuple[tuple[str, Any], ...] = ()
    sampled: str = ""
    refused: str = ""
    order_by: tuple[str, ...] = ()
    questions: tuple[ProposalQuestion, ...] = ()
    ignored: tuple[str, ...] = ()


def log_ids(topics: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """Ids after the table names, none of them `taken`; with more of the topic's name where two would share one."""
    ids = list(taken)
    for topic in topics:
        parts = topic.split(".")
        candidates = [_sanitize("_".join(parts[-n:])) for n in range(1, len(parts) + 1)]
        free = [c for c in candidates if c not in ids]
        ids.append(free[0] if free else f"{candidates[-1][:55]}_{len(ids)}")
    return ids[len(taken) :]


def _sanitize(name: str) -> str:
    text = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")
    return (text if text[:1].isalpha() else f"log_{text}")[:63]
