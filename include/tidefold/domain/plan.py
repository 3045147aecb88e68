"""What a plan found: which rows an edit of a log's configuration changes, and what made them before and now.

A plan is stored as this record. Text, JSON, page and report show what is in it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidefold.domain.log_state import Snapshot


@dataclass(frozen=True, slots=True)
class ColumnEdits:
    """The columns that only the edited table has, those that only the present one has, and those of another type."""

    new: tuple[str, ...]
    dropped: tuple[str, ...]
    retyped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """A row that differs. Values are as JSON has them.

    before, after: its values; None: there is no row.
    was, now: which change made or deleted it on each side, for people; empty: no row has its key there.
    """

    change: str
    key: Mapping[str, Any]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    was: str
    now: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What an edit changes in the rows of a log.

    edit: names the edited configuration: the same edit has the same name.
    made_at: when it was made (ISO 8601, for people).
    snapshot, manifest: of the plan: its id in the shadow store, and the sha256 of its manifest.
    base, base_manifest: of the published snapshot that it was compared with; None and empty: there was none.
    checksum: sha256 of both manifests: what an approval is bound to.
    edits: what the configuration changes, for people; empty: nothing of the table definition.
    ingested, gate: what became of the steps, for people. passed: whether the gate passed.
    refused: how many records of a landed file this configuration cannot use, if there are any.
    rows, counts, values, joined_by, lost: as in a Comparison.
    columns: which the edit adds, drops or changes.
    examples: the first rows of each kind.
    gone: landed files of the log that are not there any more, or have other bytes.
    folder: the shadow store. landed_bytes, written_bytes: how much was read for it and lies in it.
    table_bytes: the size of the table now.
    cpu_seconds: of the process that planned, without Spark's.
    """

    log: str
    edit: str
    made_at: str
    snapshot: int
    manifest: str
    base: int | None
    base_manifest: str
    checksum: str
    edits: tuple[str, ...]
    ingested: str
    gate: str
    passed: bool
    refused: Mapping[str, int]
    rows: tuple[int, int]
    counts: Mapping[str, int]
    values: Mapping[str, int]
    joined_by: tuple[str, ...]
    columns: ColumnEdits
    examples: tuple[Example, ...]
    gone: tuple[str, ...]
    lost: int
    folder: str
    landed_bytes: int
    written_bytes: int
    table_bytes: int
    cpu_seconds: float

    @property
    def run(self) -> str:
        """The run that applies exactly this plan."""
        return f"plan-{self.manifest[:16]}"

    def is_compared_with(self, shown: Snapshot | None) -> bool:
        """Whether readers still see the snapshot that it was compared with."""
        return self.base_manifest == ((shown.manifest or "") if shown else "")


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """The record of one edit of a log.

    number: counts the records of the edit.
    begun_at: when it was last planned (ISO 8601). It decides only when `clean` deletes the plan.
    plan: None: it is being planned, or was interrupted.
    """

    number: int = 0
    begun_at: str = ""
    plan: Plan | None = None
