"""Compares the published table of a log with its source, key by key, while both change.

Sound by restriction (decision 0095): a key counts only while the log does not change it after the published position.
What differs is looked at again; only a key that differs at rest in two looks is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidefold.domain.log_state import Consumer, LogState
from tidefold.domain.retention import references
from tidefold.domain.snapshot.snapshot_signal import find_table
from tidefold.domain.table.table_spec import POSTGRESQL, Engine
from tidefold.domain.wording import count_noun
from tidefold.errors import RefusedError
from tidefold.operations.attest.faults import NAMED, name_faults
from tidefold.operations.attest.proof import AttestRequest, Course, News, Suspect, conclude, find_waiting
from tidefold.operations.attest.sides import LocalRows, PublishedRows, find_changed, open_local_rows, read_rows
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import find_published
from tidefold.sources.database.catalogue import read_table
from tidefold.sources.database.comparison import RowComparison
from tidefold.sources.database.connection import Database, Reader

if TYPE_CHECKING:
    import pyarrow as pa

# Rows above which keys are counted in many groups: else one changed key in a hundred would touch every group.
_MANY_ROWS, _GROUPS, _MANY_GROUPS = 1_000_000, 1 << 10, 1 << 16
_CONSUMER = "attest"
_ENGINES = {
    Engine.AGGREGATE: "its rows are aggregates, which the source does not have",
    Engine.APPEND: "its rows have no key",
    Engine.FIRST: "it keeps the first change of each key",
}
# The server's position: on a replica what it has replayed.
_POSITION = """
select (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_insert_lsn() end
        - '0/0'::pg_lsn)::bigint as position
"""
_PAUSE, _LONGEST, _TOLD = 0.5, 10, 10


def attest(pipeline: Pipeline, log: str, request: AttestRequest) -> Outcome:
    """Compares the published table with the source, and records the proof. Changes nothing else.

    An outcome with CorruptError (exit code 5): it differs. Raises RefusedError if nothing can be told, StorageError.
    """
    published = PublishedRows.find(pipeline, log)
    shape = published.plan.shape
    if why := _ENGINES.get(shape.merge.engine):
        raise RefusedError("ATTEST_ENGINE", f"`{log}` cannot be attested: {why}.")
    database = Database.find(request.connection, pipeline.connections)
    table = database.ask(lambda reader: read_table(reader, request.table or _name_table(published.state)))
    if table.has_policies:
        message = f"Row level security hides rows of `{table.full_name}` from the user of `{request.connection}`."
        raise RefusedError("ATTEST_POLICIES", message)
    groups = _MANY_GROUPS if published.snapshot.rows > _MANY_ROWS else _GROUPS
    columns = [one for one in shape.columns if one.name not in request.left_out]
    comparison = RowComparison.plan(table, shape.key, columns, groups, published.expire)
    course = Course(suspects=find_waiting(pipeline, log, table.full_name))
    with _consume(pipeline, log, published), open_local_rows(comparison) as local:
        _Looks(pipeline, log, request, database, comparison, local).run(course, published)
        named = sorted(course.faults)[:NAMED]
        theirs = database.ask(lambda reader: comparison.read_texts(reader, named)) if named else {}
        newest = replace(PublishedRows.find(pipeline, log), expire=published.expire)
        faults = name_faults(pipeline, newest, comparison, local, theirs, named)
    return conclude(pipeline, log, request, comparison, course, faults)


def _name_table(state: LogState) -> str:
    """Returns `schema.table` of the topic from which the log has its changes."""
    topics = {one.topic for one in state.landed if one.topic}
    table = find_table(next(iter(topics))) if len(topics) == 1 else ""
    if "." not in table:
        message = f"No topic of `{state.log}` names the table of its source."
        raise RefusedError("ATTEST_TABLE", message, hint="Name it with `--table schema.table`.")
    return table


@contextmanager
def _consume(pipeline: Pipeline, log: str, published: PublishedRows) -> Iterator[None]:
    """Keeps the changes after the published position, which excuse keys, while the comparison goes on."""
    consumer = Consumer(_CONSUMER, published.snapshot.to_sqn)
    ledger = pipeline.ledger(log)
    ledger.commit(lambda state: references.register(state, consumer))
    try:
        yield
    finally:
        ledger.commit(lambda state: references.unregister(state, _CONSUMER))


@dataclass(frozen=True, slots=True)
class _Looks:
    """The looks at one table."""

    pipeline: Pipeline
    log: str
    request: AttestRequest
    database: Database
    comparison: RowComparison
    local: LocalRows

    def run(self, course: Course, published: PublishedRows) -> None:
        """Looks until every key is decided, or as often as asked."""
        self._look(course, published)
        while course.undecided and course.looks < self.request.looks:
            published = self._find_next(course, published)
            self._look(course, published)

    def _look(self, course: Course, published: PublishedRows) -> None:
        if course.snapshots[-1:] != [published.snapshot.id]:
            course.snapshots.append(published.snapshot.id)
            self.local.load(read_rows(self.pipeline, published), course.open)
        begun = self.request.clock()
        with self.database.begin() as reader:
            position = self._require_reached(reader, published)
            by, asked, theirs = self._ask(reader, course)
        course.seconds += self.request.clock() - begun
        differ = self.local.find_different(theirs, by, asked)
        ledger = self.pipeline.ledger(self.log)
        # In the order of the stream, all that was committed before this position comes before it.
        many = count_noun(len(differ), "key differs", "keys differ")
        awaited = f"{many}; waiting for changes of `{self.log}` up to position {position:,}"
        news = self._await(awaited, lambda: _find_reached(ledger.read()) >= position) if differ else News.CAME
        state = ledger.read()
        if state.truncated_to > published.snapshot.to_sqn:
            raise RefusedError("ATTEST_TRUNCATED", f"Changes of `{self.log}` that this comparison needs were deleted.")
        changed = find_changed(self.pipeline, state, published.snapshot.to_sqn, self.comparison, differ)
        suspects = {key: Suspect(*hashes, begun) for key, hashes in differ.items()}
        course.add_look(len(theirs), suspects, changed, news, self.request.lag)

    def _ask(self, reader: Reader, course: Course) -> tuple[str, Collection[object], pa.Table]:
        """Returns the rows of the source that are to be compared: of the groups that differ, or of keys that are open.

        Before them: by what they were asked for, `g` or `k`, and which.
        """
        if course.open is not None:
            return "k", course.open, self.comparison.read_keys(reader, course.open)
        theirs, ours = self.comparison.read_sums(reader), self.local.read_sums()
        course.equal = sum(count for count, _ in theirs.values())
        course.apart = self.comparison.count_apart(reader)
        course.sums = ours
        groups = [group for group in theirs.keys() | ours.keys() if theirs.get(group) != ours.get(group)]
        return "g", groups, self.comparison.read_groups(reader, groups)

    def _require_reached(self, reader: Reader, published: PublishedRows) -> int:
        """Returns the source's position. Raises RefusedError if a replica has not reached what is published."""
        [row] = reader.list(_POSITION)
        position, needed = int(row["position"]), _find_reached(published.state)
        if position < needed:
            raise RefusedError(
                "ATTEST_BEHIND",
                f"The database of `{self.request.connection}` is at position {position}, and `{self.log}` has changes "
                f"up to {needed}: it is a replica that lags, or another server.",
            )
        return position

    def _find_next(self, course: Course, published: PublishedRows) -> PublishedRows:
        """Returns what is published when some keys have moved: the next snapshot, or the same after a while."""
        at, ledger = published.snapshot.to_sqn, self.pipeline.ledger(self.log)
        if moving := (course.open or set()) - course.suspects.keys() - course.faults:
            many = count_noun(len(moving), "key moves", "keys move")
            awaited = f"{many}; waiting for the next snapshot of `{self.log}`"
            self._await(awaited, lambda: find_published(ledger.read()).to_sqn > at)
        return replace(PublishedRows.find(self.pipeline, self.log), expire=published.expire)

    def _await(self, awaited: str, happens: Callable[[], bool]) -> News:
        """Waits for something as long as the request says since the last news of the log, and ten times that at all.

        Tells of it now and then.
        """
        ledger, clock, patience = self.pipeline.ledger(self.log), self.request.clock, self.request.patience
        begun = since = next_told = clock()
        last = ledger.read().last_sqn
        while not happens():
            if (newest := ledger.read().last_sqn) != last:
                last, since = newest, clock()
            if clock() - since >= patience:
                return News.SILENT
            if clock() - begun >= _LONGEST * patience:
                return News.LATE
            if clock() >= next_told:
                self.request.tell(f"{awaited}; no news for {clock() - since:.0f} of {patience:.0f} s")
                next_told += _TOLD
            self.request.sleep(_PAUSE)
        return News.CAME


def _find_reached(state: LogState) -> int:
    """Returns the position of the source up to which the log has changes; 0: its changes have none."""
    if state.shape.order != POSTGRESQL:
        return 0
    return max((number for one in state.positions for number in one.stream.max_order), default=0)
