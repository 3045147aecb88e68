"""Makes one bucket of a snapshot: base rows and changes in, data files out (A1: the PySpark job runs this)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.schema import change_schema, count_changes, table_schema
from tidefold.delta.data_files import write_data_file, write_part
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.paths import DataFileName, data_path
from tidefold.domain.retention.local_copies import CopyName
from tidefold.domain.snapshot.manifest import DataFile, as_hidden, sidecar_path
from tidefold.domain.snapshot.point_in_time import without_times
from tidefold.domain.table.table_spec import Engine
from tidefold.errors import CorruptError, NotFoundError
from tidefold.fold.base_rows import BaseFiles, BucketRows, open_bucket, with_schema
from tidefold.fold.inputs import MANY, Inputs
from tidefold.fold.link_files import link_file
from tidefold.fold.merge.arrow_merge import is_plain, select_keys
from tidefold.fold.merge.merge import are_newer, has_clears, list_left_out, mark_rows, merge_bucket, to_mark
from tidefold.fold.plan import FoldResult, FoldTask, Input, Recipe, RewriteAction
from tidefold.storage.safe_files import open_scratch

# Bytes that one merge may take before it spills.
MERGE_MEMORY = 1_000_000_000
_MANY_FILES = 16


def make_bucket(task: FoldTask, inputs: Inputs) -> FoldResult:
    """Follows the first recipe of a task that can be followed. Raises CorruptError if there is none."""
    failed: list[str] = []
    for number, recipe in enumerate(task.recipes):
        try:
            result = _follow(task, recipe, inputs)
            return replace(result, recipe=number, reads=tuple(inputs.reads), copied=tuple(inputs.copied))
        except (CorruptError, NotFoundError) as error:
            if not task.plan.is_restore:
                raise
            failed.append(f"from {'the log alone' if recipe.snapshot is None else recipe.snapshot}: {error.message}")
    raise CorruptError(
        "NO_GOOD_COPY",
        f"Key groups {task.bucket.first} to {task.bucket.last} of `{task.plan.log}` cannot be rebuilt: "
        f"{' '.join(failed)}",
        hint="Put one of these files back from a backup. `tidefold check verify` lists the damaged files.",
    )


def _follow(task: FoldTask, recipe: Recipe, inputs: Inputs) -> FoldResult:
    plan = task.plan
    # A store that was restored from a backup repeats its numbers, with other change sets.
    work = (plan.target.root, plan.log, plan.snapshot, plan.epoch, plan.checksums)
    least = 1 if plan.gathers else MANY
    read = inputs.changes(work, plan.segments, plan.index, task.find_change_sets(recipe), task.bucket, least)
    aligned = (task.plan.aligner.changes(_in_time(task, one), schema) for one, schema in read)
    changes = pa.concat_tables([change_schema(task.plan.shape).empty_table(), *aligned])
    if changes.num_rows == 0:
        if recipe.unchanged.action is RewriteAction.KEEP:
            return FoldResult(task.bucket, touched=False)
        if recipe.unchanged.action is RewriteAction.LINK:
            # All of them are proved first: a recipe that cannot be followed leaves nothing.
            proved = [(one.file, *inputs.open(one)) for one in recipe.base]
            taken = [link_file(task, *one, inputs) for one in proved]
            files = tuple(file for file, _ in taken)
            copied = sum(copied for _, copied in taken)
            return FoldResult(task.bucket, True, files, bytes_copied=copied, cleared=recipe.cleared)
    if _only_adds(task, recipe, changes):
        return replace(_merge_bucket(task, replace(recipe, base=()), changes, inputs), added=True)
    return _merge_bucket(task, recipe, changes, inputs, to_mark(task, recipe, changes))


def _in_time(task: FoldTask, changes: pa.Table) -> pa.Table:
    """Returns the changes that were committed early enough."""
    if task.plan.before is None:
        return changes
    if changes.column("_ts").null_count:
        raise without_times(task.plan.log, changes.column("_ts").null_count)
    return changes.filter(pc.field("_ts") < task.plan.before)


def _only_adds(task: FoldTask, recipe: Recipe, changes: pa.Table) -> bool:
    """Whether existing files stay and new rows get a new file: a table without a key, unless it has many small ones."""
    if task.plan.shape.merge.engine is not Engine.APPEND or recipe.unchanged.action is not RewriteAction.KEEP:
        return False
    return len(recipe.base) < _MANY_FILES and not has_clears(changes)


def _merge_bucket(
    task: FoldTask, recipe: Recipe, changes: pa.Table, inputs: Inputs, large: Input | None = None
) -> FoldResult:
    """Merges the changes into the bucket.

    large: a file that stays, with the replaced rows marked as deleted.
    """
    before_expiry, shape = _Count(), task.plan.shape
    based = BaseFiles([one for one in recipe.base if one is not large], task.plan.aligner, recipe.schema)
    if large and not is_plain(changes, shape):
        keys = select_keys(changes, shape)
        if not are_newer(changes, large, keys, shape, inputs):
            # The old rows count, too. All of these keys leave the large file, whether their change counts or not.
            based = BaseFiles(recipe.base, task.plan.aligner, recipe.schema, large, keys)
    # Each file is sorted; several come one after the other.
    how = {
        "with_keys": large is not None and based.large is None,
        "is_sorted": sum(not one.file.hidden for one in based.files) <= 1,
    }
    with (
        open_scratch() as scratch,
        open_bucket(inputs, based, task.bucket) as base,
        merge_bucket(
            base, changes, shape, recipe.cleared, task.plan.horizon, memory=MERGE_MEMORY, scratch=scratch, **how
        ) as done,
    ):
        mine = done.bucket.select_owned(task.plan.only)
        mine = replace(mine, rows=before_expiry.count(mine.rows or ()))
        written = _write_bucket(task, inputs, mine.without_expired(task.plan.expire, shape))
        gone = done.keys if based.keys is None else based.keys
        stays = mark_rows(large, gone, inputs) if large and gone is not None else None
    files = (stays, *written) if stays else written
    upserts = done.upserts - sum(batch.num_rows for batch in done.left_out)
    expired = before_expiry.rows - sum(one.rows for one in written if not one.hidden)
    out = sum(one.rows for one in files if not one.hidden) + expired
    return FoldResult(
        task.bucket,
        touched=True,
        files=files,
        upserts=upserts,
        deletes=done.deletes,
        replaced=max(0, sum(i.file.rows for i in recipe.base if not i.file.hidden) + upserts - out),
        changes=count_changes(changes),
        expired=expired,
        cleared=done.cleared,
        clears=done.clears,
        cleared_rows=done.cleared_rows,
        ties=done.ties,
        stays=stays.name if stays else "",
    )


def _write_bucket(task: FoldTask, inputs: Inputs, bucket: BucketRows) -> tuple[DataFile, ...]:
    """Writes the rows, then the sidecar."""
    shape = task.plan.shape
    file = _write_file(task, inputs, bucket.rows or (), table_schema(shape), task.part)
    sidecar = bucket.read_sidecar()
    if sidecar is None:
        return (file,) if file else ()
    part = sidecar_path(task.part) if task.part else None
    hidden = _write_file(task, inputs, sidecar.to_batches(), sidecar.schema, part)
    left_out = list_left_out(sidecar, shape)
    both = (file, hidden and as_hidden(hidden, left_out.count, left_out.listed))
    return tuple(one for one in both if one)


def _write_file(
    task: FoldTask, inputs: Inputs, rows: Iterable[pa.RecordBatch], schema: pa.Schema, part: str | None = None
) -> DataFile | None:
    """Writes a data file and, if the task has copies on its host, its copy there; or a `part` for other engines."""
    store, folder, name = inputs.store(task.plan.target), task.plan.target.path, _new_name(task)
    if part:
        return write_part(store, f"{folder}/{part}", task.bucket, with_schema(rows, schema), schema)
    host = inputs.host if _is_copied(task) else None
    if host is None:
        return write_data_file(store, folder, name, rows, schema)
    copy = CopyName(task.plan.log, task.plan.snapshot)
    file = write_data_file(store, folder, name, rows, schema, partial(host.create, store, copy))
    if file:
        path, final = data_path(folder, file.name), f"{copy}/{file.sha256}"
        inputs.copied.append(host.keep(copy, path, file.bytes, [final]))
    return file


def _is_copied(task: FoldTask) -> bool:
    """Whether the host of the task keeps a copy of what it writes: of a snapshot, not of an export."""
    return task.plan.target.where is StorageTier.STORE and not task.part


def _new_name(task: FoldTask) -> DataFileName:
    return DataFileName(task.bucket, task.plan.snapshot, task.plan.epoch, uuid.uuid4().hex, task.plan.token)


class _Count:
    """Counts the rows that pass."""

    rows = 0

    def count(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.rows += batch.num_rows
            yield batch
