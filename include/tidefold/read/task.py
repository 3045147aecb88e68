"""Reads the rows of a ReadPlan, task by task, here or in Spark's workers, and compares rows with rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.duckdb_connections import connect
from tidefold.changelog.removed import are_replaced
from tidefold.changelog.schema import change_schema, table_schema
from tidefold.changelog.segment import Indexes, read_change_set
from tidefold.domain.log_state import DeletionState, State, TableSpec
from tidefold.errors import CorruptError, NotFoundError, RefusedError, TidefoldError
from tidefold.fold.base_rows import BaseFiles, drop_expired, keep_owned, open_base, open_bucket, with_schema
from tidefold.fold.fold_bucket import MERGE_MEMORY
from tidefold.fold.inputs import MANY, Inputs, changes_for
from tidefold.fold.merge.merge import merge_bucket
from tidefold.fold.plan import ChangeSetIndex
from tidefold.ledger import Ledger
from tidefold.read.plan import OneKey, ReadPlan, ReadTask
from tidefold.storage import Store
from tidefold.storage.safe_files import open_scratch

SQN = "_sqn"
_BATCH_ROWS = 65_536
ADDED, CHANGED, REMOVED = "added", "changed", "removed"
KINDS = (ADDED, CHANGED, REMOVED)


def plan_schema(plan: ReadPlan) -> pa.Schema:
    """Returns the schema of the rows: the table's, or that of the change sets with the sqn before all other columns."""
    return table_schema(plan.shape) if plan.folded else _changes_schema(plan.shape)


def _changes_schema(shape: TableSpec) -> pa.Schema:
    # Spark has no unsigned types.
    fields = [f.with_type(pa.int32()) if f.type == pa.uint16() else f for f in change_schema(shape)]
    return pa.schema([pa.field(SQN, pa.int64(), nullable=False), *fields])


def read_task(store: Store, plan: ReadPlan, task: ReadTask) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one task, each batch with `plan_schema`. It writes nothing.

    Raises CorruptError, and RefusedError if files of the plan were removed since it was made.
    """
    batches = drop_expired(_fold_rows(store, plan, task), plan.expire) if plan.folded else _changes(store, plan, task)
    try:
        for batch in keep_owned(batches, plan.only):
            yield from _of_key(batch, plan.key, plan_schema(plan)) if plan.key else (batch,)
    except (CorruptError, NotFoundError) as error:
        raise _explain_error(store, plan, task, error) from error


def _fold_rows(store: Store, plan: ReadPlan, task: ReadTask) -> Iterator[pa.RecordBatch]:
    read = partial(read_change_set, store, indexes={})
    work = (plan.store, plan.log, plan.snapshot, plan.change_sets)
    least = MANY if plan.key or plan.share else 1
    index = ChangeSetIndex(plan.change_sets)
    changes = changes_for(work, index, index.find_overlapping(task.bucket), task.bucket, read, least)
    tables = [plan.aligner.changes(table, schema) for table, schema in changes]
    if not any(table.num_rows for table in tables):
        # File by file: a look at the first rows of a large table reads one file. (A dataset's reader threads hang the
        # process at its end when not all of it was read.)
        for file in (one for one in task.files if not one.hidden):
            one = BaseFiles(plan.inputs((file,)), plan.aligner, plan.based)
            with open_base(Inputs(), one, task.bucket) as rows:
                yield from rows or ()
        return
    based = BaseFiles(plan.inputs(task.files), plan.aligner, plan.based)
    changed, shape = pa.concat_tables(tables), plan.shape
    with (
        open_scratch() as scratch,
        open_bucket(Inputs(), based, task.bucket) as base,
        merge_bucket(base, changed, shape, plan.cleared, memory=MERGE_MEMORY, scratch=scratch) as done,
    ):
        yield from with_schema(done.bucket.rows or (), table_schema(shape))


def _changes(store: Store, plan: ReadPlan, task: ReadTask) -> Iterator[pa.RecordBatch]:
    schema = _changes_schema(plan.shape)
    indexes: Indexes = {}
    for change_set in task.change_sets:
        table = plan.aligner.changes(read_change_set(store, change_set, task.bucket, indexes), change_set.schema)
        # Segments keep changes by key group; people follow them as they came.
        table = table.sort_by([("_partition", "ascending"), ("_offset", "ascending")])
        numbered = table.add_column(0, schema.field(SQN), pa.array([change_set.sqn] * len(table), pa.int64()))
        yield from numbered.cast(schema).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)


def _of_key(batch: pa.RecordBatch, key: OneKey, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    equal = [pc.field(name) == pa.scalar(value, schema.field(name).type) for name, value in key.values]
    yield from pa.Table.from_batches([batch]).filter(reduce(and_, equal)).to_batches()


def _explain_error(store: Store, plan: ReadPlan, task: ReadTask, error: CorruptError | NotFoundError) -> TidefoldError:
    """Distinguishes files that were removed on purpose since the plan was made from lost or damaged files."""
    if _is_outdated(store, plan, task):
        return RefusedError(
            "READ_OUTDATED",
            f"Files of `{plan.log}` that this read needs were removed after it was planned ({error.message}).",
        )
    if isinstance(error, NotFoundError):
        return CorruptError(
            "FILE_MISSING",
            f"{error.message} The ledger needs it.",
            hint="Run `tidefold check verify --repair`, or restore the file from a backup.",
        )
    return error


def _is_outdated(store: Store, plan: ReadPlan, task: ReadTask) -> bool:
    try:
        state = Ledger(store, plan.log).read()
    except TidefoldError:
        return False
    base = state.snapshot(plan.snapshot) if task.files and plan.snapshot else None
    retired = base is not None and base.state not in (State.COMPLETED, State.STAGED)
    return retired or state.deletion is not DeletionState.NO or are_replaced(task.change_sets, state)


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that differs: `before` is None if it was added, `after` if it was removed."""

    change: str
    key: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Compared:
    """The numbers of different rows, by kind, and the first of them in the order of the key."""

    counts: dict[str, int]
    rows: tuple[Difference, ...]


def compare(
    before: Iterable[pa.RecordBatch], after: Iterable[pa.RecordBatch], shape: TableSpec, limit: int
) -> Compared:
    """Compares rows with the columns of `shape`, whose keys are unique on each side; returns at most `limit` rows.

    Rows of a table without a key are only added or removed: equal rows cancel each other out.

    Errors of the iterables are raised. The comparison spills to disk above the memory of a merge.
    """
    with open_scratch() as scratch, connect(MERGE_MEMORY, scratch) as connection:
        # Loaded batch by batch, not scanned by DuckDB: it would wrap the errors of the file reader.
        has_batches = [load_batches(connection, "before", before), load_batches(connection, "after", after)]
        if has_batches == [False, False]:
            return Compared(dict.fromkeys(KINDS, 0), ())
        if has_batches == [False, True]:
            connection.execute("CREATE TEMP TABLE before AS FROM after LIMIT 0")
        if has_batches == [True, False]:
            connection.execute("CREATE TEMP TABLE after AS FROM before LIMIT 0")
        connection.execute(_differences(shape) if shape.key else _differences_of_all(len(shape.columns)))
        counted = dict(connection.execute("SELECT change, count(*) FROM differences GROUP BY ALL").fetchall())
        listed = connection.sql(f"FROM differences ORDER BY ALL LIMIT {int(limit)}").to_arrow_table().to_pylist()
        rows = (_difference(tuple(row.values()), shape) for row in listed)
        return Compared({kind: counted.get(kind, 0) for kind in KINDS}, tuple(rows))


def load_batches(connection: duckdb.DuckDBPyConnection, name: str, batches: Iterable[pa.RecordBatch]) -> bool:
    """Makes and fills a table. Returns false if there was no batch; then there is no table."""
    is_made = False
    for batch in batches:
        # By place: names of columns are the user's, and DuckDB takes `id` and `ID` for one.
        rows = pa.Table.from_batches([batch.rename_columns([f"c{i}" for i in range(batch.num_columns)])])
        connection.register("batch", rows)
        connection.execute(f"INSERT INTO {name} FROM batch" if is_made else f"CREATE TEMP TABLE {name} AS FROM batch")
        is_made = True
    return is_made


def _differences(shape: TableSpec) -> str:
    names = [column.name for column in shape.columns]
    key = [f"c{names.index(name)}" for name in shape.key]
    same_key = " AND ".join(f"b.{c} = a.{c}" for c in key)
    columns = [f"c{i}" for i in range(len(names))]
    other = " OR ".join(f"b.{c} IS DISTINCT FROM a.{c}" for c in columns)
    # A key is never null, so a null key belongs to no row.
    change = f"CASE WHEN b.{key[0]} IS NULL THEN '{ADDED}' WHEN a.{key[0]} IS NULL THEN '{REMOVED}' "
    change += f"ELSE '{CHANGED}' END"
    keys = ", ".join(f"coalesce(b.{c}, a.{c}) AS k{i}" for i, c in enumerate(key))
    sides = ", ".join(f"{side}.{c} AS {side}_{c}" for side in ("b", "a") for c in columns)
    return (
        f"CREATE TEMP TABLE differences AS SELECT {keys}, {change} AS change, {sides} "
        f"FROM before b FULL JOIN after a ON {same_key} WHERE {other}"
    )


def _differences_of_all(width: int) -> str:
    columns = [f"c{i}" for i in range(width)]
    parts = []
    for change, one, other in ((ADDED, "after", "before"), (REMOVED, "before", "after")):
        sides = (f"{c if side == one else 'NULL'} AS {side[0]}_{c}" for side in ("before", "after") for c in columns)
        rows = f"(FROM {one} EXCEPT ALL FROM {other})"
        parts.append(f"SELECT '{change}' AS change, {', '.join(sides)} FROM {rows}")
    return f"CREATE TEMP TABLE differences AS {' UNION ALL '.join(parts)}"


def _difference(row: tuple[Any, ...], shape: TableSpec) -> Difference:
    names = [column.name for column in shape.columns]
    keys, change = row[: len(shape.key)], row[len(shape.key)]
    values = row[len(shape.key) + 1 :]
    before, after = dict(zip(names, values, strict=False)), dict(zip(names, values[len(names) :], strict=True))
    return Difference(
        change,
        dict(zip(shape.key, keys, strict=True)),
        None if change == ADDED else before,
        None if change == REMOVED else after,
    )
