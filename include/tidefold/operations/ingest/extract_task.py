"""One task of a full extract: finds the rows of some key groups that the log does not have yet."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa

from tidefold.changelog.duckdb_connections import connect
from tidefold.changelog.key_group_hash import quote_name, with_key_groups
from tidefold.changelog.schema import DELETE, UPSERT, change_schema, table_schema
from tidefold.changelog.segment import WrittenChangeSet, read_change_set
from tidefold.changelog.writer.retry import run_attempts
from tidefold.changelog.writer.settings import Metrics, MetricsSnapshot
from tidefold.domain.log_state import ChangeSet, Column, TableSpec
from tidefold.domain.table.table_spec import VALID_TO, Engine
from tidefold.domain.uploads import NO_UPLOADS, ONCE, RetryPolicy, UploadTotals
from tidefold.errors import WireError, to_wire, wrap_unexpected
from tidefold.fold.fold_bucket import MERGE_MEMORY
from tidefold.fold.merge.engines.statements import exact
from tidefold.operations.ingest.parse import write_segment_with_copy
from tidefold.read.plan import ReadPlan, ReadTask
from tidefold.read.task import read_task
from tidefold.sources.extract.source import DELETE_RANK, ROW_RANK
from tidefold.storage import Store, open_store
from tidefold.storage.local_copies.host_copies import HostFolders
from tidefold.storage.safe_files import open_scratch
from tidefold.typed_json import decode_json

_BATCH_ROWS = 65_536
_FILE = "_file"


@dataclass(frozen=True, slots=True)
class ExtractTask:
    """Some buckets of one extract.

    plan: how to read the rows that the log had before the extract.
    buckets: the buckets of the plan to read.
    rows: the change sets with the rows of the extract, for each of its files.
    instant: the number that orders the extract.
    time: its instant in microseconds since 1970; None: not known.
    keeps_missing: whether keys that the extract lacks stay, because some of its rows were refused.
    segments: the folder in the store for the segment of the task.
    local: the folder for a local copy of the segment, or how its host finds it; None: no copy.
    no_copy: why there is no copy.
    policy: how often it is tried.
    """

    plan: ReadPlan
    buckets: tuple[ReadTask, ...]
    rows: tuple[tuple[ChangeSet, ...], ...]
    instant: int
    time: int | None
    keeps_missing: bool
    segments: str
    local: str | HostFolders | None = None
    no_copy: str = ""
    policy: RetryPolicy = ONCE


@dataclass(slots=True)
class ExtractDifference:
    """The result of a task, which adds up what it finds in each bucket.

    changed: for each file of the extract, how many of its rows are new or differ.
    before: how many rows the log had.
    missing: how many of them the extract lacks.
    twice: how many keys the extract has with different rows.
    deletes, upserts: the change sets that it wrote.
    example: a key that the extract has with different rows, as text.
    uploads: what the upload cost.
    """

    changed: list[int] = field(default_factory=list)
    before: int = 0
    missing: int = 0
    twice: int = 0
    deletes: WrittenChangeSet | None = None
    upserts: WrittenChangeSet | None = None
    example: str = ""
    no_copy: str = ""
    error: WireError | None = None
    uploads: UploadTotals = NO_UPLOADS


def find_difference(text: str) -> str:
    """Runs an ExtractTask and returns its ExtractDifference, both as JSON. An attempt writes at most one segment."""
    task = decode_json(text, ExtractTask)
    metrics = Metrics()
    try:
        store = open_store(task.plan.store, Path("/"))
        difference = run_attempts(
            task.policy, lambda: _find_difference(store, task), lambda late: _discard(store, late), metrics
        )
        difference = replace(difference, uploads=_count_uploads(difference, metrics.read()))
    except Exception as error:
        difference = ExtractDifference(error=to_wire(wrap_unexpected(error)))
    return msgspec.json.encode(difference).decode()


def _discard(store: Store, late: ExtractDifference) -> None:
    store.delete({one.location.segment for one in (late.deletes, late.upserts) if one})


def _count_uploads(difference: ExtractDifference, measured: MetricsSnapshot) -> UploadTotals:
    written = [one.location for one in (difference.deletes, difference.upserts) if one]
    if not written:
        return NO_UPLOADS
    size = sum(one.length for one in written)
    return UploadTotals.of_upload(size, measured.failures, measured.latency.high, batch=1, queue=0)


def _find_difference(store: Store, task: ExtractTask) -> ExtractDifference:
    difference = ExtractDifference([0] * len(task.rows))
    deletes: list[pa.Table] = []
    upserts: list[pa.Table] = []
    with open_scratch() as scratch, connect(MERGE_MEMORY, scratch) as connection:
        for bucket in task.buckets:
            _compare(connection, store, task, bucket, difference)
            deletes += [] if task.keeps_missing else _read_changes(connection, task, "gone", DELETE, DELETE_RANK)
            upserts += _read_changes(connection, task, "brought", UPSERT, ROW_RANK)
    parts = [pa.concat_tables(some) for some in (deletes, upserts) if some]
    if not parts:
        return difference
    log, segment = task.plan.log, f"{task.segments}/{uuid.uuid4().hex}.seg"
    written, no_copy = write_segment_with_copy(store, task.local, segment, ((log, part) for part in parts))
    difference.deletes = written.pop(0) if deletes else None
    difference.upserts = written.pop() if upserts else None
    difference.no_copy = no_copy or task.no_copy
    return difference


def _compare(
    connection: duckdb.DuckDBPyConnection,
    store: Store,
    task: ExtractTask,
    bucket: ReadTask,
    difference: ExtractDifference,
) -> None:
    """Makes the tables `gone` (keys) and `brought` (rows), and adds to the difference. DuckDB may spill to disk."""
    shape = task.plan.shape
    key = ", ".join(quote_name(name) for name in shape.key)
    connection.register(
        "landed", pa.RecordBatchReader.from_batches(_row_schema(shape), _read_rows(store, task, bucket))
    )
    newest = f"row_number() OVER (PARTITION BY {key} ORDER BY _offset DESC, {_FILE}) AS _rank"
    connection.execute(f"CREATE OR REPLACE TEMP TABLE ranked AS SELECT *, {newest} FROM landed")
    columns = ", ".join(quote_name(column.name) for column in shape.columns)
    rows = f"SELECT DISTINCT {columns} FROM ranked"
    differ = f"SELECT {key} FROM ({rows}) GROUP BY {key} HAVING count(*) > 1"
    connection.execute(f"CREATE OR REPLACE TEMP TABLE twice AS {differ}")
    schema = table_schema(shape)
    base = pa.RecordBatchReader.from_batches(schema, read_task(store, task.plan, bucket))
    connection.register("read", base)
    valid = f" WHERE {VALID_TO} IS NULL" if shape.merge.engine is Engine.HISTORY else ""
    connection.execute(f"CREATE OR REPLACE TEMP TABLE known AS SELECT {columns} FROM read{valid}")
    connection.execute("CREATE OR REPLACE TEMP TABLE given AS SELECT * EXCLUDE (_rank) FROM ranked WHERE _rank = 1")
    same = " AND ".join(f"known.{quote_name(name)} = given.{quote_name(name)}" for name in shape.key)
    equal = " AND ".join(map(_equal, shape.columns))
    connection.execute(f"CREATE OR REPLACE TEMP TABLE gone AS SELECT {key} FROM known ANTI JOIN given ON {same}")
    connection.execute(f"CREATE OR REPLACE TEMP TABLE brought AS SELECT * FROM given ANTI JOIN known ON {equal}")
    [(before, missing, twice)] = connection.execute(
        "SELECT (SELECT count(*) FROM known), (SELECT count(*) FROM gone), (SELECT count(*) FROM twice)"
    ).fetchall()
    difference.before += before
    difference.missing += missing
    difference.twice += twice
    if twice and not difference.example:
        example = connection.execute("SELECT * FROM twice ORDER BY ALL LIMIT 1").fetchall()[0]
        difference.example = ", ".join(map(str, example))
    for file, number in connection.execute(f"SELECT {_FILE}, count(*) FROM brought GROUP BY 1").fetchall():
        difference.changed[file] += number


def _equal(column: Column) -> str:
    """Returns SQL that compares a column on both sides. Floats are compared exactly, as text: -0.0 is not 0.0."""
    name, cast = quote_name(column.name), exact(column)[0]
    return f"known.{name}{cast} IS NOT DISTINCT FROM given.{name}{cast}"


def _row_schema(shape: TableSpec) -> pa.Schema:
    fields = [pa.field(_FILE, pa.int32()), pa.field("_offset", pa.int64())]
    return pa.schema([*fields, *(change_schema(shape).field(column.name) for column in shape.columns)])


def _read_rows(store: Store, task: ExtractTask, bucket: ReadTask) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the extract in a bucket, each with the number of its file."""
    schema = _row_schema(task.plan.shape)
    for number, change_set in ((number, one) for number, some in enumerate(task.rows) for one in some):
        if not change_set.key_groups.meets(bucket.bucket):
            continue
        rows = read_change_set(store, change_set, bucket.bucket)
        numbered = rows.append_column(_FILE, pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows))
        yield from numbered.select(schema.names).cast(schema).to_batches(max_chunksize=_BATCH_ROWS)


def _read_changes(
    connection: duckdb.DuckDBPyConnection, task: ExtractTask, table: str, op: int, rank: int
) -> Iterator[pa.Table]:
    rows = connection.sql(f"SELECT * FROM {table}").to_arrow_table()
    if not rows.num_rows:
        return
    shape, count = task.plan.shape, rows.num_rows
    schema = change_schema(shape)
    constants = {"_op": op, "_o0": task.instant, "_o1": rank, "_partition": 0, "_offset": 0, "_ts": task.time}
    columns = {name: pa.repeat(pa.scalar(value, schema.field(name).type), count) for name, value in constants.items()}
    columns |= {name: rows.column(name) for name in rows.column_names if name in schema.names}
    columns |= {f.name: pa.nulls(count, f.type) for f in schema if f.name not in columns}
    changes = pa.table([columns[name] for name in schema.names], names=schema.names).cast(schema)
    yield with_key_groups(changes, shape)
