"""The protocol of sources. A source is one small class; docs/sources.md shows how to add one.

A feed is the configured input of a log, as plain values that Spark tasks receive.
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
    """The configured input of a log.

    path: the absolute folder, or the address.
    options: keys that only this format has, as JSON values.
    """

    format: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a log, ordered by partition, start and name, and the problems of the others."""

    files: tuple[LandedFile, ...]
    problems: tuple[FileProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The content of a file.

    table: one row for each change, with the columns of a change set, key groups not yet filled; None: no change.
    checksum: the sha256 of the bytes up to `until`.
    """

    account: Account
    table: pa.Table | None
    checksum: str


class UnfitFileError(Exception):
    """Nothing of this file can be ingested."""

    def __init__(self, problem: FileProblem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class SchemaStopError(Exception):
    """A record with another schema stops its partition.

    records: how many records of the file come before it.
    refused: why it was refused.
    """

    def __init__(self, records: int, line: int, refused: RefusedRecordError) -> None:
        super().__init__(f"line {line}: {refused}")
        self.records = records
        self.line = line
        self.refused = refused


class RecordReader(Protocol):
    """Reads the records of one file in order; `RecordAccounting` has all but `take`."""

    batch: Batch
    offset: int | None
    line: bytes

    @property
    def account(self) -> Account: ...

    def begin(self) -> None: ...

    def begin_single_record(self, offset: int | None) -> None: ...

    def preview_chunk(self, data: bytes) -> None: ...

    def take(self, record: bytes, /) -> None:
        """Reads a record. Raises RefusedRecordError (it is quarantined) or LateOffsetError (the file is refused)."""

    def refuse(self, reason: str) -> None: ...

    def drain_batch(self) -> Batch: ...


class Source(Protocol):
    """One format. The driver and the Spark tasks create it whenever they need it; it has no state."""

    def __init__(self, feed: Feed) -> None: ...

    def listing(self, state: LogState) -> Listing:
        """Returns the existing files. Raises TidefoldError if the list may be incomplete."""

    def ending(self, file: LandedFile, taken: int) -> Ending:
        """Returns how much of a file is complete; it may still be written. `taken`: bytes that were ingested before."""

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        """Reads one file exactly as planned. Raises UnfitFileError if that is impossible."""

    def reader(self, shape: TableSpec, place: FilePosition) -> RecordReader | None:
        """Returns the reader of refused records from the quarantine; None: they cannot be read alone."""
