"""Compares the rows of two snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tidefold.changelog.removed import reads_of
from tidefold.changelog.segment import Indexes, read_change_set
from tidefold.domain.key_groups import KeyGroups, bucket_ranges
from tidefold.domain.snapshot.manifest import DataFile, Deletions
from tidefold.domain.table.table_spec import Engine, rename_columns
from tidefold.domain.table.types import Schema, column_origins, find_dropped_columns, schema_of
from tidefold.errors import RefusedError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, plan_from, require_state
from tidefold.read.plan import ReadPlan, ReadTask
from tidefold.read.task import KINDS, Difference, compare, read_task
from tidefold.storage import Store


# Files that both snapshots share are not read: the same name and sha256 mean the same rows.
@dataclass(slots=True)
class Diff:
    """The differences of two snapshots.

    counts: the number of rows by kind of change.
    rows: the first of these rows.
    files: the files of both snapshots; a shared one counts once. files_read: how many of them were opened.
    left_out: columns that only one of the two has.
    """

    log: str
    before: int
    after: int
    files: int
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    rows: list[Difference] = field(default_factory=list)
    files_read: int = 0
    bytes_read: int = 0
    left_out: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def diff(pipeline: Pipeline, log: str, before: int, after: int, limit: int = 20) -> Diff:
    """Compares the rows of snapshot `before` with snapshot `after`; either may be tail-only.

    Snapshots of different schemas are compared by their common columns. Raises NotFoundError if a snapshot is not
    retained, RefusedError if a value does not fit the newer schema or the keys differ, CorruptError if a file is not as
    confirmed.
    """
    state = require_state(pipeline, log)
    is_planned = any(one.reshape and min(before, after) < one.id <= max(before, after) for one in state.snapshots)
    reads = [plan_from(pipeline, state, ReadRequest(snapshot=one)) for one in (before, after)]
    plans, left_out = _alike(reads, is_planned)
    named = {_content(file) for plan in plans for file in plan.files}
    difference = Diff(log, before, after, len(named), left_out=left_out)
    for key_groups in find_ranges(plans):
        with reads_of(pipeline.store, log, [one for plan in plans for one in plan.change_sets]):
            tasks = _tasks(pipeline.store, plans, key_groups)
        if any(task.files or task.change_sets for task in tasks):
            _add(pipeline.store, difference, plans, tasks, limit)
    return difference


def _alike(plans: Sequence[ReadPlan], is_planned: bool) -> tuple[list[ReadPlan], tuple[str, ...]]:
    """Returns both reads with only the common columns, in the newer schema's types; and the other columns.

    is_planned: a plan was applied between them. It gives all columns new numbers, so they are matched by name.
    """
    older, newer = sorted(plans, key=lambda plan: plan.schema)
    keys = [(p.shape.key, p.shape.merge.engine is Engine.HISTORY) for p in (older, newer)]
    if keys[0] != keys[1]:
        told = [f"{', '.join(key) or 'no key'}{' and its versions' if versions else ''}" for key, versions in keys]
        raise RefusedError(
            "DIFF_KEYS",
            f"The keys of the snapshots of `{newer.log}` differ ({told[0]}; later {told[1]}), so no row has a pair.",
            hint=f"`tidefold read {newer.log} --snapshot ID` shows the rows of each.",
        )
    if older.schema == newer.schema:
        return [*plans], ()
    schemas = max((plan.schemas for plan in plans), key=len)
    if is_planned:
        schemas = _match_names(schemas, older.schema, newer.schema)
    origins = column_origins(schemas, older.schema, newer.schema)
    common = tuple(c for c in newer.shape.columns if origins[c.name].name is not None)
    added = (name for name, former in origins.items() if former.name is None)
    shape = rename_columns(newer.shape, common, {c.name: c.name for c in common})
    alike = [
        replace(p, shape=replace(shape, buckets=p.shape.buckets), schema=newer.schema, schemas=schemas) for p in plans
    ]
    return alike, (*added, *find_dropped_columns(schemas, older.schema, newer.schema))


def _match_names(schemas: Sequence[Schema], older: int, newer: int) -> tuple[Schema, ...]:
    """Returns the schemas, where a column of the older one has the number of the newer one's column of that name."""
    before, after = schema_of(schemas, older).named, schema_of(schemas, newer).named
    numbers = {number: after[name] for name, number in before.items() if name in after}
    return tuple(replace(s, ids=tuple(numbers.get(i, i) for i in s.ids)) if s.id <= older else s for s in schemas)


def _add(store: Store, difference: Diff, plans: Sequence[ReadPlan], tasks: Sequence[ReadTask], limit: int) -> None:
    before, after = (read_task(store, plan, task) for plan, task in zip(plans, tasks, strict=True))
    compared = compare(before, after, plans[0].shape, limit - len(difference.rows))
    for kind, count in compared.counts.items():
        difference.counts[kind] += count
    difference.rows += compared.rows
    difference.files_read += sum(len(task.files) for task in tasks)
    difference.bytes_read += sum(file.bytes for task in tasks for file in task.files)


def _content(file: DataFile) -> tuple[str, str, Deletions | None]:
    return file.name, file.sha256, file.deletions


def _tasks(store: Store, plans: Sequence[ReadPlan], key_groups: KeyGroups) -> tuple[ReadTask, ReadTask]:
    """Returns what to read of each side, without files that cannot differ."""
    first, second = (_task(store, plan, key_groups) for plan in plans)
    if first.change_sets == second.change_sets and _contents(first) == _contents(second):
        return ReadTask(key_groups, (), ()), ReadTask(key_groups, (), ())
    if first.change_sets or second.change_sets:
        return first, second
    # Each key is in one file of a snapshot, so shared files contain no key of the other files.
    shared = _contents(first) & _contents(second)
    one, other = (replace(t, files=tuple(f for f in t.files if _content(f) not in shared)) for t in (first, second))
    return one, other


def _contents(task: ReadTask) -> set[tuple[str, str, Deletions | None]]:
    return {_content(file) for file in task.files}


def _task(store: Store, plan: ReadPlan, key_groups: KeyGroups) -> ReadTask:
    files = tuple(f for f in plan.files if f.key_groups.meets(key_groups))
    near = (c for c in plan.change_sets if c.key_groups.meets(key_groups))
    indexes: Indexes = {}
    # The range of a change set covers nearly every bucket, but it may have no change in one of them.
    filled = (c for c in near if read_change_set(store, c, key_groups, indexes).num_rows)
    return ReadTask(key_groups, files, tuple(filled))


def find_ranges(plans: Iterable[ReadPlan]) -> Iterator[KeyGroups]:
    """Yields ranges of key groups that no file or bucket of either side crosses; their buckets may differ in number."""
    spans: list[KeyGroups] = []
    for plan in plans:
        spans += bucket_ranges(plan.shape.key_groups, plan.shape.buckets)
        spans += [file.key_groups for file in plan.files]
    spans.sort()
    current = spans[0]
    for span in spans[1:]:
        if span.first <= current.last:
            current = KeyGroups(current.first, max(current.last, span.last))
        else:
            yield current
            current = span
    yield current
