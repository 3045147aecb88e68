"""The protocol of sources, and those that there are, by format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, cast

from tidefold.errors import NotFoundError
from tidefold.sources.feed import PLACEHOLDER, Feed

if TYPE_CHECKING:
    import pyarrow as pa

    from tidefold.domain.log_state import LogState, TableSpec
    from tidefold.sources.landing.completeness import Ending
    from tidefold.sources.landing.listing import LandedFile, Listing
    from tidefold.sources.landing.plan import FileTask
    from tidefold.sources.landing.problems import FileProblem
    from tidefold.sources.quarantine.writer import QuarantineWriter
    from tidefold.sources.records.accounting import Account, ReaderPosition
    from tidefold.sources.records.errors import RefusedRecordError

# Reads the current record of a file: appends its changes to the position, or counts it. Raises RefusedRecordError (the
# record is quarantined) or LateOffsetError (the file is refused).
RecordReader = Callable[["ReaderPosition", bytes], None]
# Imported when they are needed: each brings libraries of its own.
_CLASSES = {
    "csv": "tidefold.sources.files.base:Csv",
    "debezium-avro": "tidefold.sources.debezium.typed_records:DebeziumAvro",
    "debezium-json": "tidefold.sources.debezium.json_source:DebeziumJson",
    "debezium-parquet": "tidefold.sources.debezium.typed_records:DebeziumParquet",
    "delta": "tidefold.sources.extract.delta:DeltaExtracts",
    "delta-cdf": "tidefold.sources.delta.source:DeltaFeed",
    "json": "tidefold.sources.json_lines.source:Json",
    "parquet": "tidefold.sources.files.parquet:Parquet",
    "state-json": "tidefold.sources.state.source:StateJson",
}
_FULL_EXTRACTS = "tidefold.sources.extract.source:FullExtracts"
CUSTOM = "custom"
# Where installed packages name their sources. A configuration cannot have code loaded from anywhere else.
GROUP = "tidefold.sources"
# Keys of the configuration that count for every source with a landing folder, and what they are without it.
_SHARED: tuple[tuple[str, Any], ...] = (("leave_out", []), ("placeholder", PLACEHOLDER))


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The content of a file.

    table: one row for each change, with the columns of a change set, key groups not yet filled; None: no change.
    checksum: the sha256 of the bytes up to `until`; of a later part of a file: empty.
    numbers: how many numbers of rows it used, if a later part counts its own from there.
    """

    account: Account
    table: pa.Table | None
    checksum: str
    numbers: int = 0


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


class Source(Protocol):
    """One format. The driver and the Spark tasks create it whenever they need it; it has no state."""

    def __init__(self, feed: Feed) -> None: ...

    def listing(self, state: LogState) -> Listing:
        """Returns the existing files. Raises TidefoldError if the list may be incomplete."""

    def ending(self, file: LandedFile, taken: int) -> Ending:
        """Returns how much of a file is complete; it may still be written. `taken`: bytes that were ingested before."""

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        """Reads one file exactly as planned. Raises UnfitFileError if that is impossible."""

    def reader(self, shape: TableSpec) -> RecordReader | None:
        """Returns the reader of refused records from the quarantine; None: they cannot be read alone."""


def split_file(source: Source, task: FileTask, shape: TableSpec, size: int) -> list[FileTask]:
    """Returns the parts of a file that may be read side by side, or the file, if its source reads it as one."""
    can_split = getattr(source, "can_split", None)  # It knows about `part` and `parts` of a task.
    return task.split(size) if can_split and can_split(task, shape) else [task]


def custom_sources() -> tuple[str, ...]:
    """The names of the sources that installed packages bring."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def source_of(feed: Feed) -> Source:
    """The source that reads a feed. Raises NotFoundError when the package that brings it is not installed."""
    if feed.format == CUSTOM:
        return _custom(feed)
    source: Source = _load(_CLASSES[feed.format])(feed)
    whole = feed.options.get("extract") and feed.format != "delta"
    return cast("Source", _load(_FULL_EXTRACTS)(feed, source)) if whole else source


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _custom(feed: Feed) -> Source:
    name = str(feed.options["name"])
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if not points:
        raise NotFoundError(
            "SOURCE_UNKNOWN",
            f"No installed package provides a source `{name}`.",
            hint=f"Install the package that provides it. Installed sources: {', '.join(custom_sources()) or 'none'}.",
        )
    shared = {key: feed.options[key] for key, usual in _SHARED if feed.options.get(key, usual) != usual}
    source: Source = points[0].load()(Feed(feed.format, feed.path, shared | feed.options["options"]))
    return source
