"""The work of one Spark task: makes one bucket (requirement A1: this is what the PySpark job runs)."""

from __future__ import annotations

import hashlib
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import BinaryIO

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidefold.changelog.alignment import Aligner
from tidefold.changelog.columns import change_schema, hidden_schema, table_schema
from tidefold.changelog.key_group import connect, key_groups_of
from tidefold.fold.inputs import Inputs
from tidefold.fold.kernel import Before, merged
from tidefold.fold.parquet import write_data_file, write_part
from tidefold.fold.plan import has_expired
from tidefold.fold.task import Address, FoldResult, FoldTask, Input, Recipe, Untouched
from tidefold.lifecycle.copies import Where
from tidefold.lifecycle.errors import CorruptError, NotFoundError, RefusedError
from tidefold.lifecycle.key_groups import KeyGroups
from tidefold.lifecycle.manifest import DataFile
from tidefold.lifecycle.names import DataFileName, data_path
from tidefold.lifecycle.values import Expire, Shape
from tidefold.storage import Store
from tidefold.storage.addresses import meeting

# What DuckDB may take for one merge before it spills.
MERGE_MEMORY = "1GB"
_CHUNK = 1 << 20


def fold_bucket(text: str) -> str:
    """Takes a FoldTask and gives a FoldResult, both as JSON. Raises CorruptError when no recipe can be followed."""
    task = msgspec.json.decode(text, type=FoldTask)
    return msgspec.json.encode(_make(task, Inputs())).decode()


def _make(task: FoldTask, inputs: Inputs) -> FoldResult:
    failed: list[str] = []
    for number, recipe in enumerate(task.recipes):
        try:
            return replace(_follow(task, recipe, inputs), recipe=number, reads=tuple(inputs.reads))
        except (CorruptError, NotFoundError) as error:
            # Files that are of no snapshot of this log are an import's, which has one way only.
            imported = recipe.snapshot is None and recipe.base
            if len(task.recipes) == 1 and (imported or task.untouched is not Untouched.TAKE):
                raise
            failed.append(f"from {'the log alone' if recipe.snapshot is None else recipe.snapshot}: {error.message}")
    raise CorruptError(
        "NO_GOOD_COPY",
        f"Key groups {task.bucket.first} to {task.bucket.last} of `{task.log}` cannot be made: {' '.join(failed)}",
        hint="Put one of these files back from a backup; `tidefold verify` lists what is damaged.",
    )


def _follow(task: FoldTask, recipe: Recipe, inputs: Inputs) -> FoldResult:
    read = [(inputs.change_set(task.segments, c, task.bucket), c.schema) for c in recipe.change_sets]
    aligned = (task.aligner.changes(one, schema) for one, schema in read)
    changes = pa.concat_tables([change_schema(task.shape).empty_table(), *aligned])
    if changes.num_rows == 0:
        if task.untouched is Untouched.LEAVE:
            return FoldResult(task.bucket, touched=False)
        if task.untouched is Untouched.TAKE and _can_stay(task, recipe):
            # All of them are proved first: a recipe that cannot be followed leaves nothing.
            proved = [(one.file, *inputs.open(one)) for one in recipe.base]
            taken = [_taken(task, *one, inputs) for one in proved]
            files = tuple(file for file, _ in taken)
            return FoldResult(task.bucket, True, files, bytes_copied=sum(copied for _, copied in taken))
    return _merged(task, recipe, changes, inputs)


def _can_stay(task: FoldTask, recipe: Recipe) -> bool:
    """Whether the files are as they would be written: nothing of other buckets in them, nothing too old, and the values
    that columns have today.
    """
    if task.aligner.must_rewrite(recipe.schema):
        return False
    return all(_is_within(one.file, task.bucket) and not has_expired(one.file, task.expire) for one in recipe.base)


def _is_within(file: DataFile, bucket: KeyGroups) -> bool:
    return bucket.first <= file.key_groups.first and file.key_groups.last <= bucket.last


def _taken(
    task: FoldTask, file: DataFile, source: Address, opened: AbstractContextManager[BinaryIO], inputs: Inputs
) -> tuple[DataFile, int]:
    """A file that was proved, and how many bytes were copied by the store: under its own name, or a new one where the
    table's file of that name is not the one that was proved.
    """
    target = task.target
    shown = task.table is None or (source.root, source.path) == (target.root, data_path(task.table, file.name))
    if not shown:
        unique = uuid.uuid4().hex
        file = replace(file, name=str(DataFileName(file.key_groups, task.snapshot, task.epoch, unique)))
    file = replace(file, carried=shown and task.table is not None)
    path = data_path(target.path, file.name)
    if source.root != target.root:
        how = _brought(task, source, opened, file, path, inputs)
        return (replace(file, carried=True), file.bytes if how == "copy" else 0) if how else (file, 0)
    done = "kept" if source.path == path else inputs.store(target).link(source.path, path, copy=task.copy)
    return file, file.bytes if done == "copy" and file.carried else 0


def _brought(
    task: FoldTask,
    source: Address,
    opened: AbstractContextManager[BinaryIO],
    file: DataFile,
    path: str,
    inputs: Inputs,
) -> str:
    """Brings the file from another store: `link` or `copy` without passing its bytes through here, where the original
    is taken over as it is and the stores meet somewhere; else empty.
    """
    if source.where is Where.EXTERNAL and not task.copy:
        shared = meeting(source.root, task.target.root)
        if shared:
            root, below, above = shared
            return inputs.store(replace(source, root=root)).link(f"{below}{source.path}", f"{above}{path}")
    with opened as old, inputs.store(task.target).create(path) as new:
        _copy(old, new, file.sha256, source)
    return ""


def _copy(old: BinaryIO, new: BinaryIO, sha256: str, source: Address) -> None:
    digest = hashlib.sha256()
    while chunk := old.read(_CHUNK):
        digest.update(chunk)
        new.write(chunk)
    if digest.hexdigest() != sha256:
        raise CorruptError("DATA_FILE_CORRUPT", f"`{source}` changed while it was read.", hint="Call again.")


def _merged(task: FoldTask, recipe: Recipe, changes: pa.Table, inputs: Inputs) -> FoldResult:
    expired = _Count()
    based = Based(recipe.base, task.aligner, recipe.schema)
    before = Before(read_hidden(inputs, based, task.bucket), recipe.cleared, task.horizon)
    with (
        tempfile.TemporaryDirectory(prefix="tidefold-") as scratch,
        open_base(inputs, based, task.bucket) as base,
        merged(base, changes, task.shape, before, memory=MERGE_MEMORY, scratch=scratch) as done,
    ):
        store = inputs.store(task.target)
        file = _written(task, store, _unexpired(done.rows, task.expire, expired))
        beside = _written_beside(task, store, done.hidden)
    out = (file.rows if file else 0) + expired.rows
    return FoldResult(
        task.bucket,
        touched=True,
        files=tuple(filter(None, (file, beside))),
        upserts=done.upserts,
        deletes=done.deletes,
        replaced=max(0, sum(i.file.rows for i in recipe.base if not i.file.hidden) + done.upserts - out),
        changes=changes.num_rows,
        expired=expired.rows,
        cleared=done.cleared,
        ties=done.ties,
    )


def _written(task: FoldTask, store: Store, rows: Iterable[pa.RecordBatch]) -> DataFile | None:
    schema, folder = table_schema(task.shape), task.target.path
    if task.part:
        return write_part(store, f"{folder}/{task.part}", task.bucket, with_schema(rows, schema), schema)
    return write_data_file(store, folder, task.bucket, task.snapshot, task.epoch, rows, schema)


def _written_beside(task: FoldTask, store: Store, hidden: pa.Table | None) -> DataFile | None:
    """What is kept beside the rows; a canonical savepoint has the rows alone."""
    if hidden is None or task.part:
        return None
    batches, schema = hidden.to_batches(), hidden.schema
    file = write_data_file(store, task.target.path, task.bucket, task.snapshot, task.epoch, batches, schema)
    return replace(file, hidden=True) if file else None


class _Count:
    """How many rows went by."""

    rows = 0


@dataclass(frozen=True, slots=True)
class Based:
    """Files of a snapshot, with what brings their rows, which are of `schema`, to the shape that is wanted."""

    files: Sequence[Input]
    aligner: Aligner
    schema: int


@contextmanager
def open_base(inputs: Inputs, base: Based, bucket: KeyGroups) -> Iterator[pa.RecordBatchReader | None]:
    """The rows of a bucket in some files as one stream; None when there is no file. Raises CorruptError."""
    shown = [one for one in base.files if not one.file.hidden]
    if not shown:
        yield None
        return
    with ExitStack() as opened:
        # Opened and checked before the merge begins: inside it DuckDB would wrap the error.
        streams = [(one.file, opened.enter_context(inputs.open(one)[1])) for one in shown]
        files = [(file, pq.ParquetFile(stream)) for file, stream in streams]
        failed: list[RefusedError] = []
        batches = _noted((b for file, parquet in files for b in _rows(file, parquet, base, bucket, opened)), failed)
        try:
            yield pa.RecordBatchReader.from_batches(table_schema(base.aligner.shape), batches)
        except duckdb.Error as error:
            raise (failed[0] if failed else error) from error


def _noted(batches: Iterator[pa.RecordBatch], failed: list[RefusedError]) -> Iterator[pa.RecordBatch]:
    """The batches; what DuckDB makes of an error that comes while it reads them does not say why."""
    try:
        yield from batches
    except RefusedError as error:
        failed.append(error)
        raise


def read_hidden(inputs: Inputs, base: Based, bucket: KeyGroups) -> pa.Table | None:
    """What was kept beside the rows of a bucket; None when there is nothing. Raises CorruptError."""
    shape = base.aligner.shape
    found = []
    for one in base.files:
        if one.file.hidden:
            with ExitStack() as opened:
                stream = opened.enter_context(inputs.open(one)[1])
                kept = base.aligner.hidden(pq.ParquetFile(stream).read(), base.schema).to_batches()
                batches = list(_of_bucket(one.file, iter(kept), shape, bucket, opened))
                found.append(pa.Table.from_batches(batches, hidden_schema(shape)))
    return pa.concat_tables(found) if found else None


def _rows(
    file: DataFile, parquet: pq.ParquetFile, base: Based, bucket: KeyGroups, opened: ExitStack
) -> Iterator[pa.RecordBatch]:
    """The rows of a file that belong to a bucket: of one written for other buckets only some (L8)."""
    there = set(parquet.schema_arrow.names)
    names = [name for name in base.aligner.names(base.schema) if name in there]
    batches = base.aligner.rows(parquet.iter_batches(batch_size=65_536, columns=names), base.schema)
    yield from _of_bucket(file, batches, base.aligner.shape, bucket, opened)


def _of_bucket(
    file: DataFile, batches: Iterator[pa.RecordBatch], shape: Shape, bucket: KeyGroups, opened: ExitStack
) -> Iterator[pa.RecordBatch]:
    if _is_within(file, bucket):
        yield from batches
        return
    connection = opened.enter_context(connect())
    for batch in batches:
        table = pa.Table.from_batches([batch])
        groups = key_groups_of(table, shape, connection)
        mine = pc.and_(pc.greater_equal(groups, bucket.first), pc.less_equal(groups, bucket.last))
        yield from table.filter(mine).to_batches()


def _unexpired(batches: Iterable[pa.RecordBatch], expire: Expire | None, expired: _Count) -> Iterator[pa.RecordBatch]:
    """Without the rows that are too old; one without an age stays."""
    for batch in batches:
        if expire is None:
            yield batch
            continue
        age = batch.column(expire.column)
        limit = pa.scalar(expire.before.rstrip("Z")).cast(pa.timestamp("us")).cast(age.type)
        kept = batch.filter(pc.fill_null(pc.greater_equal(age, limit), True))
        expired.rows += batch.num_rows - kept.num_rows
        yield kept


def with_schema(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The same rows with exactly these types and nullability."""
    for batch in batches:
        yield from pa.Table.from_batches([batch]).cast(schema).to_batches()
