"""The merge of one bucket: base rows and changes in, merged rows out, all as Arrow.

Arrow itself does the plainest case (`arrow_merge`). DuckDB does all others, and spills to disk if it must.

The result is a pure function of the set of changes and the merge engine of the log. The order of two changes decides
which one counts, and at equal order their source position. It does not matter how the changes were split, or in
which order they came.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidefold.changelog.duckdb_connections import connect
from tidefold.changelog.key_group_hash import quote_name
from tidefold.changelog.schema import (
    CLEAR,
    DELETE,
    LEFT_OUT,
    has_absent,
    order_columns,
    place_columns,
    sidecar_schema,
    table_schema,
)
from tidefold.delta.deletion_vectors import Places, deletions, places
from tidefold.domain.snapshot.manifest import NAMED, DataFile
from tidefold.domain.snapshot.select_kind import MARKED_SHARE
from tidefold.domain.table.table_spec import ORDER, Engine, TableSpec
from tidefold.errors import InvalidInputError, TidefoldError
from tidefold.fold.base_rows import BucketRows
from tidefold.fold.inputs import Inputs
from tidefold.fold.merge import arrow_merge
from tidefold.fold.merge.engines import statements
from tidefold.fold.merge.engines.statements import key_list, order
from tidefold.fold.plan import FoldTask, Input, Recipe, RewriteAction

_UNFIT = ("Out of Range Error", "Conversion Error")
# The deleted rows of the large file, and the rows in the small one, are at most MARKED_SHARE of its rows. A rewrite
# costs about ten times as much a row as a search for keys, and readers pay for every deleted row.
# The Delta log and the manifest contain the vectors and are read whole. So the vector of a file has at most about
# 26,000 scattered places, and all vectors of a snapshot have four million.
_LONGEST, _ALL = 64 << 10, 8 << 20
_BATCH_ROWS = 262_144


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The result of a merge.

    bucket: its rows are to be read within the context.
    upserts: the rows that come from changes, with those that are left out.
    deletes: the keys that changes remove.
    cleared: the order of the highest clear.
    keys: the keys that have a change, if requested.
    ties: keys with changes that have the same order and differ; complete after all rows were read.
    left_out: the keys that the changes leave out, and what they lack; complete after all rows were read.
    clears, cleared_rows: how often the table was cleared, and how many rows changes had brought before.
    """

    bucket: BucketRows
    upserts: int
    deletes: int
    cleared: tuple[int, ...]
    keys: pa.Table | None = None
    ties: arrow_merge.ListedKeys = field(default_factory=arrow_merge.ListedKeys)
    left_out: list[pa.RecordBatch] = field(default_factory=list)
    clears: int = 0
    cleared_rows: int = 0


@contextmanager
def merge_bucket(
    base: BucketRows,
    changes: pa.Table,
    shape: TableSpec,
    cleared: tuple[int, ...] = (),
    horizon: int | None = None,
    *,
    memory: int,
    scratch: str,
    with_keys: bool = False,
    is_sorted: bool = True,
) -> Iterator[MergeResult]:
    """Merges the changes of a bucket into its rows. Raises InvalidInputError for an impossible value.

    base: its rows are consumed once, batch by batch, unless they were cleared completely.
    cleared: the order of the highest clear so far.
    horizon: deletes before it are forgotten.
    memory: bytes above which the merge spills into `scratch`.
    is_sorted: the base is in the order of its key, or the order does not matter.
    """
    hidden, clears, is_first = base.read_sidecar(), has_clears(changes), base.rows is None and not cleared
    newest = None if clears or not is_sorted or hidden else arrow_merge.find(changes, cleared, shape, memory, is_first)
    if newest:
        yield _replace_rows(base, newest, cleared, shape)
        return
    with _values_explained(), connect(memory, scratch) as connection:
        connection.register("changes", changes)
        highest = _make_live(connection, clears, shape, cleared)
        emptied = highest > cleared and shape.merge.engine is not Engine.HISTORY
        clears_rows = _count_cleared(connection, shape, highest) if emptied else (0, 0)
        since = highest if emptied and shape.clears_by_columns else ()
        rows, beside = (None, None) if emptied and not since else (base.rows, hidden)
        _make_kept(connection, "base", table_schema(shape), rows, clears, shape, since)
        _make_kept(connection, "hidden", sidecar_schema(shape), beside, clears, shape)
        queries = statements(shape, with_absent=has_absent(changes), horizon=horizon)
        ties, left_out = arrow_merge.find_ties(connection, shape), list[pa.RecordBatch]()
        for name, query in queries.tables:
            connection.execute(f"CREATE TEMP TABLE {name} AS {query}")
        if shape.merge.engine is Engine.HISTORY and not shape.source_ordered:
            ties = arrow_merge.find_tied_versions(connection, shape)
        [(upserts, deletes)] = connection.execute(queries.counts).fetchall()
        # A log in its own order has nothing beside its rows, unless keys were left out.
        others = None if shape.replaces_rows and hidden is None else queries.hidden
        sidecars = [connection.sql(others).to_arrow_table().cast(sidecar_schema(shape))] if others else []
        keys = connection.sql(f"SELECT {key_list(shape)} FROM touched").to_arrow_table() if with_keys else None
        # Last: while it is open the connection can do nothing else.
        stream = connection.sql(queries.rows).to_arrow_reader(65_536)
        stream = arrow_merge.without_marks(stream, shape, ties, left_out) if queries.marks else stream
        bucket = BucketRows(stream, lambda: _join_sidecar(sidecars, left_out, shape))
        yield MergeResult(bucket, upserts, deletes, highest, keys, ties, left_out, *clears_rows)


def _replace_rows(
    base: BucketRows, newest: arrow_merge.Newest, before: tuple[int, ...], shape: TableSpec
) -> MergeResult:
    replaced = arrow_merge.replace_rows(base.rows or (), newest.keys, newest.rows)
    bucket = BucketRows(pa.RecordBatchReader.from_batches(table_schema(shape), replaced))
    return MergeResult(bucket, newest.rows.num_rows, newest.deletes, before, newest.keys)


@contextmanager
def _values_explained() -> Iterator[None]:
    """Converts the error text of DuckDB, or of Arrow reading from it, about an impossible value."""
    try:
        yield
    except TidefoldError:
        raise
    except Exception as error:
        line = str(error).splitlines()[0] if str(error) else ""
        if any(kind in line for kind in _UNFIT):
            raise InvalidInputError("VALUE_OUT_OF_RANGE", f"A value does not fit its column: {line}.") from error
        raise


def _make_live(
    connection: duckdb.DuckDBPyConnection, clears: bool, shape: TableSpec, before: tuple[int, ...]
) -> tuple[int, ...]:
    """Makes `live`, the changes that no clear removes, and `clears`; returns the highest clear of all rows."""
    _make_clears(connection, shape)
    if not clears and not before:
        _make_view(connection, "live", "SELECT * FROM changes")
        return before
    whole = f"{quote_name(shape.key[0])} IS NULL" if shape.key else "true"
    [(highest,)] = connection.execute(f"SELECT max(_order) FILTER ({whole}) FROM clears").fetchall()
    cleared = max(before, tuple(highest or ()))
    if shape.merge.engine is Engine.HISTORY:
        _make_view(connection, "live", f"SELECT * FROM changes WHERE _op <> {CLEAR}")
        return cleared
    of_key = " AND ".join(f"clears.{quote_name(n)} = placed.{quote_name(n)}" for n in shape.spread_key) or "false"
    removed = f"SELECT 1 FROM clears WHERE {of_key} AND clears._order > placed._place"
    placed = f"SELECT *, {_place_clears(shape)} AS _place FROM changes WHERE _op <> {CLEAR}"
    newer = f"_place >= {list(cleared)}::BIGINT[] AND NOT EXISTS ({removed})"
    _make_view(connection, "live", f"SELECT * EXCLUDE (_place) FROM ({placed}) placed WHERE {newer}")
    return cleared


def _count_cleared(
    connection: duckdb.DuckDBPyConnection, shape: TableSpec, cleared: tuple[int, ...]
) -> tuple[int, int]:
    """Counts the clears of the whole table, and the rows that changes brought before the last one."""
    whole = f"{quote_name(shape.key[0])} IS NULL" if shape.key else "true"
    [(clears,)] = connection.execute(f"SELECT count(DISTINCT _order) FILTER ({whole}) FROM clears").fetchall()
    rows = f"count(DISTINCT ({key_list(shape)}))" if shape.key else "count(*)"
    upserts = f"_op NOT IN ({CLEAR}, {DELETE}) AND {_place_clears(shape)} < {list(cleared)}::BIGINT[]"
    [(before,)] = connection.execute(f"SELECT {rows} FROM changes WHERE {upserts}").fetchall()
    return clears, before


def _make_clears(connection: duckdb.DuckDBPyConnection, shape: TableSpec) -> None:
    """Makes `clears`. A clear comes before the changes of its own order."""
    names = [*(quote_name(name) for name in shape.spread_key), *(order_columns(shape) or ("_offset",)), "_ts"]
    at = f"list_concat([{', '.join(order_columns(shape))}], [-1, -1])" if shape.order_width else order(shape)
    _make_view(
        connection,
        "clears",
        f"SELECT {', '.join(names)}, {_place_clears(shape)} AS _order, {at} AS _place FROM changes WHERE _op = {CLEAR}",
    )


def _place_clears(shape: TableSpec) -> str:
    """Returns the place by which clears and changes compare. Columns may have one value for several changes."""
    places = (*order_columns(shape), "_partition", "_offset")
    return f"[{', '.join(places)}]" if shape.clears_by_columns else order(shape)


def _make_kept(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    schema: pa.Schema,
    rows: Iterable[pa.RecordBatch] | pa.Table | None,
    clears: bool,
    shape: TableSpec,
    since: tuple[int, ...] = (),
) -> None:
    """Makes `base` or `hidden`: what no clear of some keys removes. In a log's own order every clear is newer.

    rows: what was there before; None: nothing, or it was cleared completely.
    since: rows of a lower order were cleared. A clear that comes late is older than rows that columns order.
    """
    connection.register(f"given_{name}", schema.empty_table() if rows is None else rows)
    if since:
        newer = f"{ORDER} >= {list(since)}::BIGINT[]"
        _make_view(connection, name, f"SELECT * FROM given_{name} WHERE {newer}")
        return
    if not clears or not shape.key or shape.merge.engine is Engine.HISTORY:
        _make_view(connection, name, f"SELECT * FROM given_{name}")
        return
    of_key = " AND ".join(f"clears.{quote_name(n)} = given_{name}.{quote_name(n)}" for n in shape.spread_key)
    _make_view(connection, name, f"SELECT * FROM given_{name} WHERE NOT EXISTS (SELECT 1 FROM clears WHERE {of_key})")


def _make_view(connection: duckdb.DuckDBPyConnection, name: str, query: str) -> None:
    connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {query}")


def has_clears(changes: pa.Table) -> bool:
    """Whether a change removes more than its own key."""
    # MERGE has a higher number than CLEAR, so the highest op does not show a CLEAR.
    return bool(pc.any(pc.equal(changes.column("_op"), CLEAR)).as_py())


def _join_sidecar(kept: Sequence[pa.Table], left_out: Sequence[pa.RecordBatch], shape: TableSpec) -> pa.Table | None:
    tables, schema = list(kept), sidecar_schema(shape)
    for batch in left_out:
        missing = pc.binary_join_element_wise(LEFT_OUT, batch.column(-1), "")
        places = pa.nulls(batch.num_rows, schema.field("_order").type)
        tables.append(pa.table([*batch.columns[:-1], missing, places], names=schema.names).cast(schema))
    joined = pa.concat_tables([schema.empty_table(), *tables])
    return joined if len(joined) else None


def list_left_out(sidecar: pa.Table, shape: TableSpec) -> arrow_merge.ListedKeys:
    """Returns the keys of a sidecar that are left out until they are whole or deleted."""
    rows = sidecar.filter(pc.starts_with(sidecar.column("_column"), LEFT_OUT)).select([*shape.key, "_column"])
    pairs = ((row.pop("_column").removeprefix(LEFT_OUT).split(", "), row) for row in rows.slice(0, NAMED).to_pylist())
    return arrow_merge.ListedKeys(
        len(rows), tuple(json.dumps({"columns": c, "key": key}, default=str) for c, key in pairs)
    )


# The bucket is then one large file with deletions and one small file, which each fold writes again. If these grow too
# large, the fold writes the whole bucket again (decision 0021).
def to_mark(task: FoldTask, recipe: Recipe, changes: pa.Table) -> Input | None:
    """Returns the file whose rows should be marked instead of rewritten; None: there is none."""
    plan, shown = task.plan, [one for one in recipe.base if not one.file.hidden]
    stays = recipe.unchanged.action is RewriteAction.KEEP and recipe.schema == plan.schema and plan.expire is None
    if not (shown and plan.marks and stays and plan.shape.marks_rows) or has_clears(changes):
        return None
    large = max(shown, key=lambda one: one.file.rows_written)
    file, others = large.file, sum(one.file.rows for one in shown if one is not large)
    gone = file.rows_written - file.rows + changes.num_rows
    few = max(gone, others + changes.num_rows) <= file.rows_written * MARKED_SHARE
    short = _length(file, gone) <= min(_LONGEST, _ALL // plan.shape.buckets)
    return large if few and short and file.is_within(task.bucket) else None


def _length(file: DataFile, gone: int) -> int:
    """Estimates the maximal length of a vector: for each 65,536 rows two bytes a deleted row, or one bit a row."""
    spans = file.rows_written // 65_536 + 1
    return (min(2 * gone, spans * 8_192) + spans * 16) * 5 // 4


def mark_rows(large: Input, keys: pa.Table, inputs: Inputs) -> DataFile | None:
    """Marks the rows of these keys as deleted, and returns the file; None: no row is left."""
    file = large.file
    with inputs.open(large)[1] as stream:
        listed = list(_find_places(pq.ParquetFile(stream), keys))
    gone = np.unique(np.concatenate([places(file.deletions), *listed]))
    left = file.rows_written - len(gone)
    return replace(file, rows=left, deletions=deletions(gone), carried=True) if left else None


def are_newer(changes: pa.Table, large: Input, keys: pa.Table, shape: TableSpec, inputs: Inputs) -> bool:
    """Whether the changes come after all rows of these keys in the file, so that none of these rows counts.

    Only keys and orders are decoded: a quarter of the CPU of whole rows, which an unordered change needs.
    """
    if shape.merge.engine is not Engine.LAST or not shape.stores_order or has_absent(changes):
        return False
    # The first number alone: changes that come later have a higher one.
    place = changes.column(place_columns(shape)[0])
    if place.null_count:
        return False
    lowest = pc.min(place)
    with inputs.open(large)[1] as stream:
        names = [*keys.column_names, ORDER]
        for batch in pq.ParquetFile(stream).iter_batches(batch_size=_BATCH_ROWS, columns=names):
            orders = batch.column(ORDER).take(pa.array(arrow_merge.rows_of(batch, keys)))
            if not pc.all(pc.less(pc.list_element(orders, 0), lowest), skip_nulls=False).as_py():
                return False
    return True


def _find_places(parquet: pq.ParquetFile, keys: pa.Table) -> Iterator[Places]:
    """Yields the places of the rows with these keys, including deleted rows."""
    start = 0
    for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, columns=keys.column_names):
        yield (arrow_merge.rows_of(batch, keys) + start).astype(np.uint64)
        start += batch.num_rows
