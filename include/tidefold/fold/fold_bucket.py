"""The work of a fold's tasks: each reads the base rows of one bucket and makes it (A1: the PySpark job runs this)."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.schema import change_schema, count_changes, table_schema
from tidefold.changelog.segment import Indexes
from tidefold.delta.data_files import require_same, write_data_file, write_part
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.paths import DataFileName, data_path
from tidefold.domain.retention.local_copies import CopyName
from tidefold.domain.snapshot.manifest import DataFile, as_hidden, beside_path
from tidefold.domain.snapshot.point_in_time import without_times
from tidefold.domain.table.table_spec import Engine
from tidefold.errors import AlreadyExistsError, CorruptError, NotFoundError
from tidefold.fold.base_rows import BaseFiles, BucketRows, open_bucket, with_schema
from tidefold.fold.inputs import MANY, Inputs
from tidefold.fold.merge.arrow_merge import is_plain
from tidefold.fold.merge.merge import has_clears, list_left_out, mark_rows, merge_bucket, to_mark
from tidefold.fold.plan import Address, FoldPlan, FoldResult, FoldTask, Input, Recipe, RewriteAction
from tidefold.storage import link_data_file
from tidefold.storage.addresses import meeting
from tidefold.storage.local_copies.host_copies import HostCopies
from tidefold.storage.object_client import require_not_cancelled
from tidefold.storage.safe_files import open_scratch
from tidefold.typed_json import decode_json

# Bytes that one merge may take before it spills.
MERGE_MEMORY = 1_000_000_000
_CHUNK = 1 << 20
_MANY_FILES = 16


class FoldWork:
    """Makes buckets: takes the text of a task of `deal`, returns a FoldResult as JSON.

    A process keeps the decoded plans, and the indexes of the segments that its tasks have read. Raises CorruptError if
    no recipe of a task can be followed.
    """

    def __init__(self, plans: tuple[str, ...]) -> None:
        self.plans = plans
        self._decoded: dict[int, FoldPlan] = {}
        self._indexes: dict[str, Indexes] = {}
        self._hosts: dict[tuple[str, int], HostCopies] = {}

    def __reduce__(self) -> tuple[type[FoldWork], tuple[tuple[str, ...]]]:
        return FoldWork, (self.plans,)

    def __call__(self, text: str) -> str:
        task = self.task(text)
        return msgspec.json.encode(_make(task, Inputs(indexes=self._indexes, host=self._find_host(task.plan)))).decode()

    def prefer(self, text: str, present: Set[str]) -> tuple[str, ...]:
        """Returns the names of the host, of those that are present, that should run a task; empty: any."""
        task = self.task(text)
        return task.plan.hosts.prefer(f"{task.plan.log} {task.bucket.first}", present) if task.plan.hosts else ()

    def _find_host(self, plan: FoldPlan) -> HostCopies | None:
        if plan.hosts is None:
            return None
        key = plan.log, plan.snapshot
        if key not in self._hosts:
            self._hosts[key] = HostCopies(plan.hosts)
        return self._hosts[key]

    def task(self, text: str) -> FoldTask:
        """Returns the task with this text."""
        dealt = decode_json(text, _DealtTask)
        if dealt.plan not in self._decoded:
            self._decoded[dealt.plan] = decode_json(self.plans[dealt.plan], FoldPlan)
        return FoldTask(self._decoded[dealt.plan], dealt.bucket, dealt.recipes, dealt.part)


class _DealtTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A FoldTask whose plan is a number."""

    plan: int
    bucket: KeyGroups
    recipes: tuple[Recipe, ...]
    part: str | None = None


def deal(tasks: Sequence[FoldTask]) -> tuple[FoldWork, list[str]]:
    """Returns what a runner needs: the work, which has each plan once, and the text of each task."""
    plans = {id(task.plan): task.plan for task in tasks}
    numbers = {plan: number for number, plan in enumerate(plans)}
    dealt = (_DealtTask(numbers[id(task.plan)], task.bucket, task.recipes, task.part) for task in tasks)
    texts = [msgspec.json.encode(one).decode() for one in dealt]
    return FoldWork(tuple(msgspec.json.encode(plan).decode() for plan in plans.values())), texts


def _make(task: FoldTask, inputs: Inputs) -> FoldResult:
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
    read = inputs.changes(work, plan.segments, plan.index, task.near(recipe), task.bucket, least)
    aligned = (task.plan.aligner.changes(_in_time(task, one), schema) for one, schema in read)
    changes = pa.concat_tables([change_schema(task.plan.shape).empty_table(), *aligned])
    if changes.num_rows == 0:
        if recipe.unchanged.action is RewriteAction.KEEP:
            return FoldResult(task.bucket, touched=False)
        if recipe.unchanged.action is RewriteAction.LINK:
            # All of them are proved first: a recipe that cannot be followed leaves nothing.
            proved = [(one.file, *inputs.open(one)) for one in recipe.base]
            taken = [_take_file(task, *one, inputs) for one in proved]
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


def _take_file(
    task: FoldTask, file: DataFile, source: Address, opened: AbstractContextManager[BinaryIO], inputs: Inputs
) -> tuple[DataFile, int]:
    """Links a file that was proved, and returns the number of bytes that the store copied.

    The file gets a new name if the table's file of the same name is not the one that was proved.
    """
    plan = task.plan
    target = plan.target
    shown = plan.table is None or (source.root, source.path) == (target.root, data_path(plan.table, file.name))
    if not shown:
        unique = uuid.uuid4().hex
        file = replace(file, name=str(DataFileName(file.key_groups, plan.snapshot, plan.epoch, unique, plan.token)))
    file = replace(file, carried=shown and plan.table is not None)
    path = data_path(target.path, file.name)
    if source.root != target.root:
        how = _bring_file(task, source, opened, file, path, inputs)
        return (replace(file, carried=True), file.bytes if how == "copy" else 0) if how else (file, 0)
    store = inputs.store(target)
    done = "kept" if source.path == path else link_data_file(store, source.path, path, file.bytes, task.plan.copy)
    return file, file.bytes if done == "copy" and file.carried else 0


def _bring_file(
    task: FoldTask,
    source: Address,
    opened: AbstractContextManager[BinaryIO],
    file: DataFile,
    path: str,
    inputs: Inputs,
) -> str:
    """Transfers the file from another store: `link` or `copy` if the stores do it without this process, else empty."""
    if source.where is StorageTier.EXTERNAL and not task.plan.copy:
        shared = meeting(source.root, task.plan.target.root)
        if shared:
            root, below, above = shared
            return inputs.store(replace(source, root=root)).link(f"{below}{source.path}", f"{above}{path}")
    store = inputs.store(task.plan.target)
    try:
        with opened as old, store.create(path) as new:
            _copy(old, new, file.sha256, source)
    except AlreadyExistsError:
        require_same(store, path, file.sha256)
    return ""


def _copy(old: BinaryIO, new: BinaryIO, sha256: str, source: Address) -> None:
    digest = hashlib.sha256()
    while chunk := old.read(_CHUNK):
        require_not_cancelled()
        digest.update(chunk)
        new.write(chunk)
    if digest.hexdigest() != sha256:
        raise CorruptError("DATA_FILE_CORRUPT", f"`{source}` changed during the read.", hint="Call again.")


def _merge_bucket(
    task: FoldTask, recipe: Recipe, changes: pa.Table, inputs: Inputs, large: Input | None = None
) -> FoldResult:
    """Merges the changes into the bucket.

    large: a file that stays, with the replaced rows marked as deleted.
    """
    before_expiry, shape = _Count(), task.plan.shape
    based = BaseFiles([one for one in recipe.base if one is not large], task.plan.aligner, recipe.schema)
    if large and not is_plain(changes, shape):
        # The old rows count, too. All of these keys leave the large file, whether their change counts or not.
        schema = pa.schema([table_schema(shape).field(name) for name in shape.key])
        keys = changes.select(list(shape.key)).cast(schema)
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
    """Writes the rows, then what is kept beside them."""
    shape = task.plan.shape
    file = _write_file(task, inputs, bucket.rows or (), table_schema(shape), task.part)
    beside = bucket.read_beside()
    if beside is None:
        return (file,) if file else ()
    part = beside_path(task.part) if task.part else None
    hidden = _write_file(task, inputs, beside.to_batches(), beside.schema, part)
    left_out = list_left_out(beside, shape)
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
