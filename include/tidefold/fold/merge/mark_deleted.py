"""Folds small changes into a large file: marks the replaced rows as deleted, and writes the new rows to a small file.

The bucket is then one large file with deletions and one small file, which each fold writes again. If these grow too
large, the fold writes the whole bucket again (decision 0021).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.delta.deletion_vectors import Places, deletions, places
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.fold.inputs import Inputs
from tidefold.fold.merge.arrow_merge import is_plain, rows_of
from tidefold.fold.merge.merge import has_clears
from tidefold.fold.plan import Input, Recipe
from tidefold.fold.rewrite import RewriteAction
from tidefold.fold.task import FoldTask

# The deleted rows of the large file, and the rows in the small one, are at most this share of its rows. A rewrite costs
# about ten times as much a row as a search for keys, and readers pay for every deleted row.
SHARE = 0.15
# The Delta log and the manifest contain the vectors and are read whole. So the vector of a file has at most about
# 26,000 scattered places, and all vectors of a snapshot have four million.
_LONGEST, _ALL = 64 << 10, 8 << 20
_BATCH_ROWS = 262_144


def to_mark(task: FoldTask, recipe: Recipe, changes: pa.Table) -> Input | None:
    """Returns the file whose rows should be marked instead of rewritten; None: there is none."""
    shown = [one for one in recipe.base if not one.file.hidden]
    if not shown or not task.plan.marks or not _can_mark(task, recipe, changes):
        return None
    large = max(shown, key=lambda one: one.file.rows_written)
    file, beside = large.file, sum(one.file.rows for one in shown if one is not large)
    gone = file.rows_written - file.rows + changes.num_rows
    few = max(gone, beside + changes.num_rows) <= file.rows_written * SHARE
    short = _length(file, gone) <= min(_LONGEST, _ALL // task.plan.shape.buckets)
    return large if few and short and file.is_within(task.bucket) else None


def _length(file: DataFile, gone: int) -> int:
    """Estimates the maximal length of a vector: for each 65,536 rows two bytes a deleted row, or one bit a row."""
    spans = file.rows_written // 65_536 + 1
    return (min(2 * gone, spans * 8_192) + spans * 16) * 5 // 4


def _can_mark(task: FoldTask, recipe: Recipe, changes: pa.Table) -> bool:
    """Whether each change that replaces a row contains the whole row, so that the old row need not be read."""
    stays = (
        recipe.unchanged.action is RewriteAction.KEEP and recipe.schema == task.plan.schema and task.plan.expire is None
    )
    return stays and is_plain(changes, task.plan.shape) and not has_clears(changes)


def mark_rows(large: Input, keys: pa.Table, inputs: Inputs) -> DataFile | None:
    """Marks the rows of these keys as deleted, and returns the file; None: no row is left."""
    file = large.file
    with inputs.open(large)[1] as stream:
        found = list(_find_places(pq.ParquetFile(stream), keys))
    gone = np.unique(np.concatenate([places(file.deletions), *found]))
    left = file.rows_written - len(gone)
    return replace(file, rows=left, deletions=deletions(gone), carried=True) if left else None


def _find_places(parquet: pq.ParquetFile, keys: pa.Table) -> Iterator[Places]:
    """Yields the places of the rows with these keys, including deleted rows."""
    start = 0
    for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, columns=keys.column_names):
        yield (rows_of(batch, keys) + start).astype(np.uint64)
        start += batch.num_rows
