"""Compares what Spark users read from the published table with the snapshot that was judged and published.

The other checks of `verify` compare files and Delta logs. This one reads through delta-spark and compares the schema,
the protocol, the rows and values of each file, the bytes of files and the Delta log with the manifest (decision 0063).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from itertools import product
from typing import Protocol

from tidefold.delta.deletion_vectors import places
from tidefold.delta.published_table import delta_schema
from tidefold.delta.raw_commit import TableProtocol
from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.domain.verify.proof_record import ReaderProof
from tidefold.domain.wording import count_noun
from tidefold.errors import CorruptError, RefusedError
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import ErrorInfo, Outcome, Status, for_each_log
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.verify.check_delta_tables import find_log_differences, find_shown, find_way_out, name_files
from tidefold.operations.verify.scope import ReaderComparison, ReadersDetails, find_proof, write_proof
from tidefold.read.delta_reader import FileContent, ReaderColumn, TableContent, TableScan, parse_columns

# Logs at the same time: most of the work is the driver's.
_READERS = 4
# Of a larger table a sample has the rows of each file, and the bytes of some files.
_SMALL, _SAMPLED = 64 << 20, 32
# Spark hashes a file in memory.
_LARGEST = 128 << 20
# Delta lists them also for protocols that do not name features.
_ALWAYS = frozenset(("appendOnly", "invariants"))


class DeltaReader(Protocol):
    """A reader of Delta tables that does not belong to tidefold."""

    def read(self, log: str, uri: str, scan: TableScan) -> TableContent:
        """Reads the newest version of the table. Raises CorruptError."""
        ...

    def describe_newest(self, uri: str) -> str:
        """Names the newest commit."""
        ...


def is_due(pipeline: Pipeline, log: str, sample: bool) -> bool:
    """Whether the log has a published table. With `sample`: whether it shows a snapshot that was not read back."""
    state = pipeline.ledger(pipeline.log(log).id).find()
    shown = find_shown(state) if state else []
    if not shown or not sample:
        return bool(shown)
    proof = find_proof(pipeline.store, log)
    return not (proof and proof.readers and proof.readers.snapshot == shown[-1].id and not proof.readers.error)


def check_readers(
    pipeline: Pipeline, logs: Iterable[str], reader: DeltaReader | None, *, sample: bool = False
) -> list[Outcome]:
    """Returns one outcome a log: an error (exit code 5) if readers get another table than was judged. Records it.

    sample: only snapshots that were not read back, and of a large table a share of the files.
    """

    def act(log: str) -> Outcome:
        state = pipeline.ledger(log).find()
        if state is None or not is_due(pipeline, log, sample):
            return Outcome(log, Status.NOTHING, "no published snapshot is to be read")
        if reader is None:
            message = f"This check reads the published table of `{log}` with Spark, and there is no Spark session."
            raise RefusedError("SPARK_NEEDED", message)
        try:
            outcome = _check(pipeline, state, reader, sample)
        except CorruptError as error:
            outcome = Outcome.of_error(log, CorruptError(error.code, error.message, hint=_advise(state)))
            outcome = replace(outcome, snapshot=find_shown(state)[0].id)
        warning = _record(pipeline, outcome)
        return replace(outcome, message=f"{outcome.message}; {warning}") if warning else outcome

    return for_each_log(logs, act, _READERS)


def _check(pipeline: Pipeline, state: LogState, reader: DeltaReader, sample: bool) -> Outcome:
    """Compares with the published snapshot, or with the one that is being published if that is equal."""
    compared: list[ReaderComparison] = []
    for snapshot in find_shown(state):
        compared.append(_compare(pipeline, state.log, snapshot, reader, sample))
        if not compared[-1].differences:
            message = (
                f"Spark reads the {count_noun(compared[-1].rows, 'row')} of snapshot {snapshot.id} as they were judged"
            )
            details = ReadersDetails(readers=compared[-1])
            return Outcome(state.log, Status.WHOLE, message, snapshot.id, details=details)
    newest = pipeline.ledger(state.log).read()
    # If a snapshot was published meanwhile, the reader may have read that one.
    if find_shown(newest) != find_shown(state):
        return _check(pipeline, newest, reader, sample)
    return _describe(pipeline, state, compared[0], reader)


def _describe(pipeline: Pipeline, state: LogState, comparison: ReaderComparison, reader: DeltaReader) -> Outcome:
    newest = reader.describe_newest(pipeline.store.uri(LogPaths(state.log).table))
    what = f"{'; '.join(comparison.differences)}. Its newest commit is {newest}"
    message = f"Spark reads another table than snapshot {comparison.snapshot}, which was judged: {what}."
    shown = next(s for s in find_shown(state) if s.id == comparison.snapshot)
    foreign = find_way_out(pipeline.store, read_manifest(pipeline.store, state.log, shown), shown)
    hint = f"Another program wrote. {foreign}" if foreign else _advise(state)
    error = CorruptError("READERS_DIFFER", message, hint=hint)
    details = ReadersDetails(readers=comparison)
    return Outcome(state.log, Status.DAMAGED, str(error), comparison.snapshot, ErrorInfo.of(error), details)


def _advise(state: LogState) -> str:
    """Returns the next step for a table that readers do not get as it was judged, and that nobody else wrote to."""
    older = [s.id for s in state.snapshots if s.in_main_lineage and s.state is State.COMPLETED][:-1]
    back = f" `tidefold restore {state.log} {older[-1]} --log-position replay` stages the one before." if older else ""
    return f"`tidefold check verify {state.log} --repair` repairs damaged files.{back}"


def _record(pipeline: Pipeline, outcome: Outcome) -> str:
    """Writes the proof of one log, for `status`, the page and alarms. Returns a warning, or nothing."""
    details, error = outcome.details, outcome.error
    proof = ReaderProof(outcome.snapshot or 0, now())
    if isinstance(details, ReadersDetails):
        proof = replace(proof, rows=details.readers.rows, files=details.readers.files, hashed=details.readers.hashed)
    if error:
        proof = replace(proof, error=error.message, hint=error.hint)
    add = lambda before: replace(before, number=before.number + 1, readers=proof)  # noqa: E731
    return write_proof(pipeline.store, outcome.log, add)


def _compare(pipeline: Pipeline, log: str, snapshot: Snapshot, reader: DeltaReader, sample: bool) -> ReaderComparison:
    manifest = read_manifest(pipeline.store, log, snapshot)
    scan = plan_scan(manifest, sample)
    content = reader.read(log, pipeline.store.uri(LogPaths(log).table), scan)
    return ReaderComparison(
        snapshot=snapshot.id,
        rows=sum(file.rows for file in content.files.values()),
        expected_rows=sum(file.rows for file in manifest.shown),
        files=len(content.files),
        hashed=len(content.hashes),
        differences=(*find_differences(manifest, scan, content), *find_log_differences(pipeline.store, manifest)),
    )


def plan_scan(manifest: Manifest, sample: bool) -> TableScan:
    """Plans the read of a snapshot's table: all of it, or of a large one a sample, the newest files first."""
    is_small = sum(file.bytes for file in manifest.shown) <= _SMALL
    hashed = [file for file in manifest.shown if file.bytes <= _LARGEST]
    if sample and not is_small:
        hashed = _take(sorted(hashed, key=lambda file: file.carried), _SMALL)[:_SAMPLED]
    return TableScan(
        columns=() if sample and not is_small else tuple(column.name for column in _expect_columns(manifest)),
        hashed=tuple(f"_data/{file.name}" for file in hashed),
        places=any(file.deletions for file in manifest.shown),
        small=is_small,
    )


def _take(files: Iterable[DataFile], budget: int) -> list[DataFile]:
    """Returns the first files that fit into the budget together, and at least one."""
    chosen: list[DataFile] = []
    for file in files:
        budget -= file.bytes
        if chosen and budget < 0:
            break
        chosen.append(file)
    return chosen


def find_differences(manifest: Manifest, scan: TableScan, content: TableContent) -> Iterator[str]:
    """Returns how the content of a table differs from what its manifest says, for people."""
    wanted, columns = ([str(asdict(column)) for column in of] for of in (_expect_columns(manifest), content.columns))
    yield from (f"missing: {column}" for column in wanted if column not in columns)
    yield from (f"foreign: {column}" for column in columns if column not in wanted)
    if wanted != columns and sorted(wanted) == sorted(columns):
        yield "the columns have another order"
    protocols = [TableProtocol(vectors or scan.places, feed) for vectors, feed in product((False, True), repeat=2)]
    if (content.versions, content.features) not in [(p.versions, _ALWAYS | set(p.writer_features)) for p in protocols]:
        yield f"the protocol is {content.versions} with {', '.join(sorted(content.features))}"
    judged = {file.name: _expect_content(file, scan) for file in manifest.shown if file.rows}
    rows, read = (sum(file.rows for file in files.values()) for files in (judged, content.files))
    if rows != read:
        yield f"{count_noun(read, 'row')} instead of {rows:,}"
    yield from name_files("not judged", content.files.keys() - judged.keys())
    yield from name_files("not read", judged.keys() - content.files.keys())
    pairs = {name: (judged[name], content.files[name]) for name in judged.keys() & content.files.keys()}
    yield from name_files(
        "with other rows", [name for name, (one, other) in pairs.items() if one.has_other_rows(other)]
    )
    differ = {column for one, other in pairs.values() for column in one.find_other_values(other)}
    if differ:
        yield f"other values in {', '.join(sorted(differ))}"
    hashes = {file.name: file.sha256 for file in manifest.shown}
    yield from name_files(
        "with other bytes", [name for name, sha256 in content.hashes.items() if sha256 != hashes[name]]
    )


def _expect_columns(manifest: Manifest) -> tuple[ReaderColumn, ...]:
    return parse_columns(delta_schema(manifest).to_json())


def _expect_content(file: DataFile, scan: TableScan) -> FileContent:
    """Returns what a reader gets of a file."""
    nulls = {} if file.deletions else json.loads(file.stats).get("nullCount", {})
    values = {name: file.rows - nulls[name] for name in scan.columns if isinstance(nulls.get(name), int)}
    if not scan.places:
        return FileContent(file.rows, values=values)
    count, deleted = file.rows_written, [int(place) for place in places(file.deletions)]
    return FileContent(file.rows, count * (count - 1) // 2 - sum(deleted), values)
