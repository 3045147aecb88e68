"""Compares what Spark users read from the published table with the snapshot that was judged and published.

The other checks of `verify` compare files and Delta logs. This one scans every row through delta-spark and compares
schema and content with the files that the manifest names (decision 0029).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Protocol

from tidefold.delta.table_state import build_table
from tidefold.domain.log_state import LogState, Snapshot
from tidefold.domain.paths import LogPaths
from tidefold.errors import CorruptError, RefusedError, TidefoldError
from tidefold.ledger import read_manifest
from tidefold.operations.inspect.read import ReadRequest, plan_from
from tidefold.operations.outcome import ErrorInfo, Outcome, Status, for_each_log
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.verify.check_delta_tables import find_shown
from tidefold.operations.verify.result import ReaderComparison, ReadersDetails
from tidefold.read.content_checksum import ContentChecksum, compute_checksum
from tidefold.read.delta_reader import DeltaContent, parse_columns
from tidefold.read.task import read_task

_READERS = 4


class DeltaReader(Protocol):
    """A reader of Delta tables that does not belong to tidefold."""

    def read(self, uri: str) -> DeltaContent:
        """Reads the newest version of the table. Raises CorruptError."""
        ...


def has_table(pipeline: Pipeline, log: str) -> bool:
    """Whether the log has a published table, so that a comparison needs Spark."""
    state = pipeline.ledger(pipeline.log(log).id).find()
    return state is not None and bool(find_shown(state))


def check_readers(pipeline: Pipeline, logs: Iterable[str], reader: DeltaReader | None) -> list[Outcome]:
    """Returns one outcome a log: an error (exit code 5) if readers get other columns or rows than were judged."""
    return for_each_log(logs, lambda log: _check(pipeline, log, reader))


def _check(pipeline: Pipeline, log: str, reader: DeltaReader | None) -> Outcome:
    state = pipeline.ledger(log).find()
    while state and (shown := find_shown(state)):
        if reader is None:
            raise RefusedError(
                "SPARK_NEEDED",
                f"This check reads the published table of `{log}` with Spark, and there is no Spark session.",
            )
        found = _compare_any(pipeline, state, shown, reader)
        newest = pipeline.ledger(log).find()
        # If a snapshot was published meanwhile, the reader may have read that one.
        if found.equal or newest is None or find_shown(newest) == shown:
            return _describe(log, found)
        state = newest
    return Outcome(log, Status.NOTHING, "no snapshot is published yet")


def _compare_any(pipeline: Pipeline, state: LogState, shown: list[Snapshot], reader: DeltaReader) -> ReaderComparison:
    """Compares with the published snapshot, or with the one that is being published if that is equal."""
    store = pipeline.store
    content = reader.read(store.uri(LogPaths(state.log).table))
    compared = (_compare(pipeline, state, snapshot, content) for snapshot in shown)
    first = next(compared)
    return first if first.equal else next((one for one in compared if one.equal), first)


def _compare(pipeline: Pipeline, state: LogState, snapshot: Snapshot, content: DeltaContent) -> ReaderComparison:
    manifest = read_manifest(pipeline.store, state.log, snapshot)
    columns = parse_columns(build_table(manifest)[0].schema)
    expected = _checksum_of(pipeline, state, snapshot, len(columns))
    found = content.checksum
    schema = tuple(_schema_differences([str(asdict(c)) for c in columns], [str(asdict(c)) for c in content.columns]))
    pairs = zip(columns, expected.columns, found.columns, strict=False)
    differ = tuple(column.name for column, judged, read in pairs if judged != read)
    return ReaderComparison(
        snapshot=snapshot.id,
        rows=found.rows,
        expected_rows=expected.rows,
        checksum=str(found),
        expected_checksum=str(expected),
        schema=schema,
        columns=() if schema else differ,
    )


def _checksum_of(pipeline: Pipeline, state: LogState, snapshot: Snapshot, columns: int) -> ContentChecksum:
    """Returns the checksum of the rows of the files that the manifest names, read without Spark."""
    plan = plan_from(pipeline, state, ReadRequest(snapshot=snapshot.id))
    with ThreadPoolExecutor(_READERS) as pool:
        parts = pool.map(
            lambda task: compute_checksum(read_task(pipeline.store, plan, task), columns),
            plan.tasks,
        )
        return sum(parts, ContentChecksum(0, 0, (0,) * columns))


def _schema_differences(expected: list[str], found: list[str]) -> Iterator[str]:
    yield from (f"missing: {column}" for column in expected if column not in found)
    yield from (f"foreign: {column}" for column in found if column not in expected)
    if expected != found and sorted(expected) == sorted(found):
        yield "the columns have another order"


def _describe(log: str, found: ReaderComparison) -> Outcome:
    details = ReadersDetails(readers=found)
    if found.equal:
        message = f"Spark reads the {found.rows:,} rows of snapshot {found.snapshot} as they were judged"
        return Outcome(log, Status.WHOLE, message, found.snapshot, details=details)
    what = [f"{found.rows:,} rows instead of {found.expected_rows:,}"] if found.rows != found.expected_rows else []
    what += found.schema
    if found.columns:
        what.append(f"other values in {', '.join(found.columns)}")
    elif not what:
        what.append("other rows, of the same values")
    error: TidefoldError = CorruptError(
        "READERS_DIFFER",
        f"Spark reads another table than snapshot {found.snapshot}, which was judged: {'; '.join(what)}.",
        hint=f"`tidefold verify {log}` names damaged files. `tidefold confirm {log} --reconcile` replaces what other "
        "programs committed with the next snapshot.",
    )
    return Outcome(log, Status.DAMAGED, str(error), found.snapshot, ErrorInfo.of(error), details)
