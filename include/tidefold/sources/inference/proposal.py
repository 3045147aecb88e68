"""Proposed logs, columns and questions, as a sample of landed files shows them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidefold.domain.paths import RESERVED_ID

# What a question is about that the types of columns ask; their names follow.
COLUMNS = "columns."
# What numbers may be that come as text.
NUMERIC = "decimal(38,9)"


@dataclass(frozen=True, slots=True)
class ProposedColumn:
    """A column as the sample shows it.

    type: None if no type of this version fits.
    note: what the sample shows about the column.
    encoding: how the source writes the values, if that is not the default.
    alias: the name in the source, if a table cannot have that name.
    optional: records may lack the column.
    other: another type that fits all of the sample.
    """

    name: str
    type: str | None
    note: str = ""
    encoding: str = ""
    alias: str = ""
    optional: bool = False
    other: str = ""

    def make_optional(self) -> ProposedColumn:
        """Returns the column as one that records may lack."""
        note = f"{self.note}; " if self.note else ""
        return replace(self, optional=True, note=f"{note}some records lack it, and are null there")


@dataclass(frozen=True, slots=True)
class ProposalQuestion:
    """A question that the sampled files do not answer.

    about: the key of `tidefold.yaml` that it is about.
    candidates: possible answers, the likeliest first.
    sure: the first candidate is so likely that the log uses it until somebody corrects it.
    because: the evidence for the first candidate.
    has_default: whether an empty answer takes the first candidate.
    """

    about: str
    text: str
    candidates: tuple[str, ...] = ()
    sure: bool = False
    because: str = ""
    has_default: bool = True


@dataclass(frozen=True, slots=True)
class ProposedLog:
    """A log as the sample shows it.

    path: relative to the sampled folder.
    usable: False if a person must decide something first; `notes` describes what.
    options: the options of its source besides format, connector and path.
    sampled: what was sampled, if not records.
    warnings: what a person should know of the log, such as what it would refuse of the sample.
    questions: questions for a person. A question that is not `sure` keeps the log commented out.
    refused: how many more rows of the sample a run would refuse.
    op_column: the column that is proposed to say what a row does.
    appends: as it is proposed, each row is one more row of the table.
    merge: the merge engine; empty: the default.
    has_transactions: its changes name their transactions, or only an initial snapshot has landed.
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
    warnings: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    questions: tuple[ProposalQuestion, ...] = ()
    ignored: tuple[str, ...] = ()
    has_transactions: bool = False
    appends: bool = False
    merge: str = ""
    refused: int = 0
    op_column: ProposedColumn | None = None


def log_ids(topics: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """Returns ids made from table names, different from `taken`. Ids that collide get more of the topic's name."""
    ids = list(taken)
    for topic in topics:
        parts = topic.split(".")
        candidates = [_sanitize("_".join(parts[-n:])) for n in range(1, len(parts) + 1)]
        free = [c for c in candidates if c not in ids]
        ids.append(free[0] if free else f"{candidates[-1][:55]}_{len(ids)}")
    return ids[len(taken) :]


def _sanitize(name: str) -> str:
    text = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")
    return (text if text[:1].isalpha() and text != RESERVED_ID else f"log_{text}")[:63]
