"""What a log can be fed from. A source is one small class; docs/sources.md shows how to add one.

What a log is fed from, as plain values: it is made of the configuration, and goes to Spark tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    # Names of types only: DAG files load this module while they are parsed.
    import pyarrow as pa

    from tidefold.domain.log_state import LogState, TableSpec
    from tidefold.sources.ingest.accounting import Account, Batch, FilePosition
    from tidefold.sources.ingest.plan import FileTask
    from tidefold.sources.landing.completeness import Ending
    from tidefold.sources.landing.listing import LandedFile
    from tidefold.sources.landing.problems import FileProblem
    from tidefold.sources.quarantine.writer import QuarantineWriter
    from tidefold.sources.records.errors import RefusedRecordError


@dataclass(frozen=True, slots=True)
class Feed:
    """A format, the folder (absolute) or address where its input lies, and what only the format has, as JSON has it."""

    format: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listing:
    """The files that belong to a log, ordered by partition, start and name, and what is wrong with the others."""

    files: tuple[LandedFile, ...]
    problems: tuple[FileProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """What a file holds: its account, its changes (None: it has none), the sha256 of its bytes up to `until`.

    `table` has the columns of a change set, key groups not yet filled, and one row for each change of the account.
    """

    account: Account
    table: pa.Table | None
    checksum: str


class UnfitFileError(Exception):
    """Nothing is taken of this file."""

    def __init__(self, problem: FileProblem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class SchemaStopError(Exception):
    """A record of another schema ends its partition: so many `records` of the file come before it. It is on `line` and
    was `refused` for that.
    """

    def __init__(self, records: int, line: int, refused: RefusedRecordError) -> None:
        super().__init__(f"line {line}: {refused}")
        self.records = records
        self.line = line
        self.refused = refused


class RecordReader(Protocol):
    """Takes the records of one file one after the other; `Accounting` has all but `take`."""

    batch: Batch
    offset: int | None
    line: bytes

    @property
    def account(self) -> Account: ...

    def begin(self) -> None: ...

    def begin_single_record(self, offset: int | None) -> None: ...

    def preview_chunk(self, data: bytes) -> None: ...

    def take(self, record: bytes, /) -> None:
        """Takes one. Raises RefusedRecordError (it is quarantined) or LateOffsetError (the file is not taken)."""

    def refuse(self, reason: str) -> None: ...

    def drain_batch(self) -> Batch: ...


class Source(Protocol):
    """One format. It is made anew wherever it is needed, in the driver and in Spark tasks, and keeps nothing."""

    def __init__(self, feed: Feed) -> None: ...

    def listing(self, state: LogState) -> Listing:
        """The files that there are. Raises TidefoldError when it cannot be said for certain."""

    def ending(self, file: LandedFile, taken: int) -> Ending:
        """How much of a file of which `taken` bytes were taken is complete; asked where it may still be written."""

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        """Reads one file exactly as it was planned. Raises UnfitFileError when that cannot be."""

    def reader(self, shape: TableSpec, place: FilePosition) -> RecordReader | None:
        """What reads refused records, as the quarantine has them, a second time; None: they cannot be read alone."""
