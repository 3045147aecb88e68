"""The side of the log in a comparison with its source: published rows as hashes, and the keys that changed since."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.duckdb_connections import connect
from tidefold.changelog.removed import reads_of
from tidefold.changelog.schema import CLEAR
from tidefold.changelog.segment import read_change_set
from tidefold.domain.log_state import Expire, LogState, Snapshot
from tidefold.domain.table.table_spec import VALID_TO, Engine
from tidefold.errors import RefusedError
from tidefold.fold.base_rows import drop_expired
from tidefold.fold.fold_bucket import MERGE_MEMORY
from tidefold.operations.ground.pipeline import Pipeline, find_current_limit, find_last_clean_up
from tidefold.operations.ground.read import ReadRequest, What, find_published, plan_from, require_state
from tidefold.read.plan import ReadPlan
from tidefold.read.task import read_task
from tidefold.sources.database.comparison import RowComparison
from tidefold.storage.safe_files import open_scratch


@dataclass(frozen=True, slots=True)
class PublishedRows:
    """What readers see of a log at one moment. expire: which rows are not compared, because they are too old."""

    state: LogState
    snapshot: Snapshot
    plan: ReadPlan
    expire: Expire | None

    @classmethod
    def find(cls, pipeline: Pipeline, log: str) -> PublishedRows:
        """Raises NotFoundError if nothing is published."""
        state = require_state(pipeline, log)
        snapshot = find_published(state)
        limits = [one for one in (find_current_limit(pipeline, state), find_last_clean_up(state)) if one]
        expire = max(limits, key=lambda one: one.before, default=None)
        return cls(state, snapshot, plan_from(pipeline, state, ReadRequest(snapshot=snapshot.id)), expire)


class LocalRows:
    """The published rows as hashes in DuckDB, which spills to disk."""

    def __init__(self, duck: duckdb.DuckDBPyConnection, comparison: RowComparison) -> None:
        self._duck, self._comparison = duck, comparison
        self._duck.execute("CREATE TEMP TABLE hashes (k VARCHAR, g INTEGER, h BIGINT)")

    def load(self, batches: Iterator[pa.RecordBatch], keys: Collection[str] | None) -> None:
        """Takes the hashes of rows with the columns of the log instead of former ones. keys: of these alone."""
        self._duck.execute("DELETE FROM hashes")
        self._ask("k", keys or ())
        only = "" if keys is None else " SEMI JOIN asked USING (k)"
        for batch in batches:
            self._register(batch)
            self._duck.execute(f"INSERT INTO hashes FROM ({self._comparison.select_local('batch')}){only}")

    def read_sums(self) -> dict[int, tuple[int, str]]:
        """Returns number of rows and checksum of each group."""
        rows = self._duck.execute("SELECT g, count(*), sum(h::HUGEINT)::VARCHAR FROM hashes GROUP BY g").fetchall()
        return {group: (count, checksum) for group, count, checksum in rows}

    def find_different(
        self, theirs: pa.Table, by: str, asked: Collection[object]
    ) -> dict[str, tuple[int | None, int | None]]:
        """Returns the keys whose hashes differ, with those of the source and of the log; None: it has no such row.

        theirs: the rows of the source, with k and h. by: `g` or `k`. asked: the groups, or the keys, that they are of.
        Raises RefusedError if a key is of several rows of the source.
        """
        self._duck.register("theirs", theirs)
        self._ask(by, asked)
        [(rows, keys)] = self._duck.execute("SELECT count(*), count(DISTINCT k) FROM theirs").fetchall()
        if rows != keys:
            raise RefusedError("ATTEST_KEYS", f"{rows - keys:,} rows of the source have the key of another one.")
        ours = f"(FROM hashes SEMI JOIN asked USING ({by}))"
        joined = f"theirs t FULL JOIN {ours} o ON t.k = o.k WHERE t.h IS DISTINCT FROM o.h"
        different = self._duck.execute(f"SELECT coalesce(t.k, o.k), t.h, o.h FROM {joined}").fetchall()
        return {key: (one, other) for key, one, other in different}

    def read_texts(self, batches: Iterator[pa.RecordBatch], keys: Collection[str]) -> dict[str, dict[str, str | None]]:
        """Returns the text of each value of some keys."""
        texts: dict[str, dict[str, str | None]] = {}
        self._ask("k", keys)
        for batch in batches:
            self._register(batch)
            query = f"FROM ({self._comparison.select_local_texts('batch')}) SEMI JOIN asked USING (k)"
            for key, *values in self._duck.execute(query).fetchall():
                texts[key] = self._comparison.name_texts(values)
        return texts

    def _ask(self, by: str, asked: Collection[object]) -> None:
        type_ = pa.int32() if by == "g" else pa.string()
        self._duck.register("asked", pa.table({by: pa.array(list(asked), type_)}))

    def _register(self, batch: pa.RecordBatch) -> None:
        # By place: names of columns are the user's, and DuckDB takes `id` and `ID` for one.
        arrays = [batch.column(one.name) for one in self._comparison.columns]
        self._duck.register("batch", pa.table(arrays, [f"c{i}" for i in range(len(arrays))]))


@contextmanager
def open_local_rows(comparison: RowComparison) -> Iterator[LocalRows]:
    """Opens a place for hashes, which ends with its scratch folder."""
    with open_scratch() as scratch, connect(MERGE_MEMORY, scratch) as duck:
        try:
            yield LocalRows(duck, comparison)
        finally:
            duck.execute("DROP TABLE IF EXISTS hashes")


def read_rows(pipeline: Pipeline, published: PublishedRows) -> Iterator[pa.RecordBatch]:
    """Yields the published rows; of a history the newest version of each key. Raises CorruptError, RefusedError."""
    plan = published.plan
    for task in plan.tasks:
        for batch in read_task(pipeline.store, plan, task):
            rows = (
                batch.filter(pc.is_null(batch.column(VALID_TO))) if plan.shape.merge.engine is Engine.HISTORY else batch
            )
            yield from drop_expired([rows], published.expire)


def find_changed(
    pipeline: Pipeline, state: LogState, after: int, comparison: RowComparison, keys: Collection[str]
) -> set[str]:
    """Returns which of the keys the log changes after a change set; all, if the table was emptied."""
    aligner = plan_from(pipeline, state, ReadRequest(What.LOG)).aligner
    named = [(f"c{i}", one.name) for i, one in enumerate(comparison.columns) if one.name in comparison.key]
    changed = set[str]()
    for change_set in state.change_sets_in(after, state.last_sqn):
        with reads_of(pipeline.store, state.log, [change_set]):
            changes = aligner.changes(read_change_set(pipeline.store, change_set), change_set.schema)
        if pc.any(pc.equal(changes["_op"], CLEAR)).as_py():
            return set(keys)
        with connect() as duck:
            duck.register("changed", pa.table({number: changes[name] for number, name in named}))
            duck.register("asked", pa.table({"k": pa.array(sorted(keys), pa.string())}))
            query = f"FROM (SELECT DISTINCT {comparison.local_key} AS k FROM changed) SEMI JOIN asked USING (k)"
            changed |= {key for (key,) in duck.execute(query).fetchall()}
    return changed
