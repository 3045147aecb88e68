"""Reads the rows of a ReadPlan, task by task: in this process for the command line, in its workers for Spark."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.schema import change_schema, table_schema
from tidefold.changelog.segment import Indexes, read_change_set
from tidefold.domain.log_state import ChangeSet, DeletionState, State, TableSpec
from tidefold.errors import CorruptError, NotFoundError, RefusedError, TidefoldError
from tidefold.fold.base_rows import BaseFiles, open_base, read_hidden, with_schema
from tidefold.fold.change_cache import MANY, changes_for
from tidefold.fold.change_set_index import ChangeSetIndex
from tidefold.fold.expiry import drop_expired
from tidefold.fold.fold_bucket import MERGE_MEMORY
from tidefold.fold.inputs import Inputs
from tidefold.fold.merge.merge import MergeState, merge_bucket
from tidefold.fold.owned_rows import keep_owned
from tidefold.ledger import Ledger
from tidefold.read.plan import OneKey, ReadPlan, ReadTask
from tidefold.storage import Store
from tidefold.storage.scratch import open_scratch

SQN = "_sqn"
_BATCH_ROWS = 65_536


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
    read = partial(read_change_set, store, known={})
    work = (plan.store, plan.log, plan.snapshot, plan.change_sets)
    least = MANY if plan.key or plan.share else 1
    index = ChangeSetIndex(plan.change_sets)
    found = changes_for(work, index, index.near(task.bucket), task.bucket, read, least)
    tables = [plan.aligner.changes(table, schema) for table, schema in found]
    if not any(table.num_rows for table in tables):
        # File by file: a look at the first rows of a large table reads one file. (A dataset's reader threads hang the
        # process at its end when not all of it was read.)
        for file in (one for one in task.files if not one.hidden):
            one = BaseFiles(plan.inputs((file,)), plan.aligner, plan.based)
            with open_base(Inputs(), one, task.bucket) as rows:
                yield from rows or ()
        return
    based = BaseFiles(plan.inputs(task.files), plan.aligner, plan.based)
    before = MergeState(read_hidden(Inputs(), based, task.bucket), plan.cleared)
    with (
        open_scratch() as scratch,
        open_base(Inputs(), based, task.bucket) as base,
        merge_bucket(base, pa.concat_tables(tables), plan.shape, before, memory=MERGE_MEMORY, scratch=scratch) as done,
    ):
        yield from with_schema(done.rows, table_schema(plan.shape))


def _changes(store: Store, plan: ReadPlan, task: ReadTask) -> Iterator[pa.RecordBatch]:
    schema = _changes_schema(plan.shape)
    known: Indexes = {}
    for change_set in task.change_sets:
        table = plan.aligner.changes(read_change_set(store, change_set, task.bucket, known), change_set.schema)
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
            hint="Read again. The new read uses the current files.",
        )
    if isinstance(error, NotFoundError):
        return CorruptError(
            "FILE_MISSING",
            f"{error.message} The ledger needs it.",
            hint="Run `tidefold verify --repair`, or restore the file from a backup.",
        )
    return error


def _is_outdated(store: Store, plan: ReadPlan, task: ReadTask) -> bool:
    try:
        state = Ledger(store, plan.log).read()
    except TidefoldError:
        return False
    base = state.snapshot(plan.snapshot) if task.files and plan.snapshot else None
    retired = base is not None and base.state not in (State.COMPLETED, State.STAGED)
    return (
        retired or state.deletion is not DeletionState.NO or not _places(task.change_sets) <= _places(state.change_sets)
    )


def _places(change_sets: tuple[ChangeSet, ...]) -> set[tuple[str, int]]:
    return {(c.location.segment, c.location.ordinal) for c in change_sets}
