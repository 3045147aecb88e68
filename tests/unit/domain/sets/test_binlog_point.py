"""The point of a set on a binlog: kills in the middle of transactions, connectors that number anew, late files.

A naive oracle knows every row of every transaction. Decision 0051.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from support.effort import choose
from tidefold.domain.sets.point import FoundPoint, SetPoint, find_point
from tidefold.domain.sets.progress import LogProgress, SourceRecord, TransactionEnd, follow_records

TABLES = ("a", "b", "c")
OTHER = "other"  # A table that the connector captures and the set does not have.
SNAPSHOT = 500


@dataclass
class Binlog:
    """A server, a connector that is killed, and the topics.

    transactions: the table of each row. goes_on: whether the connector goes on with its numbers after a kill (3.6.1).
    rows: for each topic, which row of which transaction each record is.
    marks: the transaction topic: BEGIN (None) or END (counts), and the transaction.
    """

    transactions: list[list[str]]
    goes_on: bool
    topics: dict[str, list[SourceRecord]] = field(default_factory=lambda: {t: [] for t in TABLES})
    rows: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: {t: [] for t in TABLES})
    marks: list[tuple[int, dict[str, int] | None]] = field(default_factory=list)

    def snapshot(self) -> None:
        for table in TABLES:
            for n in range(2):
                row = SourceRecord(0, after=SNAPSHOT, is_snapshot=True, begins=n == 0, ends=n == 1)
                self._send(table, row, (-1, n))

    def plan(self, begin: tuple[int, int]) -> list[tuple[str, int, int]]:
        """Returns what a run of the connector sends: (kind, transaction, row), from a stored place on."""
        first, skip = begin
        found: list[tuple[str, int, int]] = []
        for i in range(first, len(self.transactions)):
            skipped = skip if i == first else 0
            if not (self.goes_on and skipped):
                found.append(("BEGIN", i, skipped))
            found += [("row", i, r) for r in range(skipped, len(self.transactions[i]))]
            found.append(("END", i, skipped))
        return found

    def run(self, begin: tuple[int, int], sent: int, lost: dict[str, int]) -> None:
        """Sends the first events of a run. `lost`: how many of its last records each topic lost in the kill."""
        events = self.plan(begin)[:sent]
        kept: dict[str, int] = Counter(self._topic_of(one) for one in events)
        for topic, count in lost.items():
            kept[topic] -= count
        numbers: Counter[str] = Counter()
        for one in events:
            kind, i, r = one
            if kind == "BEGIN" or (kind == "row" and self.goes_on and r and not numbers):
                numbers = Counter()
                if self.goes_on and r:
                    numbers = Counter(self.transactions[i][:r])
            topic = self._topic_of(one)
            if kind == "row":
                table = self.transactions[i][r]
                numbers[table] += 1
            elif kind == "END":
                done = self.transactions[i] if self.goes_on else self.transactions[i][r:]
                numbers = Counter()
            kept[topic] -= 1
            if kept[topic] < 0:
                continue
            if kind == "row" and table != OTHER:
                place = self.place(i, r)
                record = SourceRecord(0, f"t{i}", numbers[table], place - 1, place=place, renumbers=not self.goes_on)
                self._send(table, record, (i, r))
            elif kind != "row":
                self.marks.append((i, dict(Counter(done)) if kind == "END" else None))

    def place(self, i: int, r: int) -> int:
        return 1000 * (i + 1) + 10 * (r + 1)

    def _topic_of(self, one: tuple[str, int, int]) -> str:
        kind, i, r = one
        return self.transactions[i][r] if kind == "row" else "marks"

    def _send(self, table: str, record: SourceRecord, row: tuple[int, int]) -> None:
        self.topics[table].append(replace(record, offset=len(self.topics[table])))
        self.rows[table].append(row)

    def find_ends(self, after: int, upto: int) -> list[TransactionEnd]:
        """As the reader of the transaction topic finds them."""
        partial: set[int] = set()
        begun: int | None = None
        found: list[TransactionEnd] = []
        for offset, (i, counts) in enumerate(self.marks[after + 1 : upto], after + 1):
            if counts is None:
                partial = partial | {i} if begun == i else partial - {i}
                begun = i
                found = [replace(end, is_restarted=end.is_restarted or end.rank == i) for end in found]
            else:
                begun = None
                found.append(TransactionEnd(f"t{i}", None, offset, counts, i, is_partial=i in partial))
        return found


@dataclass(frozen=True)
class Landed:
    """What has landed of each topic: the first records, without those of one late file."""

    upto: dict[str, int]
    late: dict[str, tuple[int, int]]

    def has(self, table: str, offset: int) -> bool:
        begin, end = self.late.get(table, (0, 0))
        return offset < self.upto[table] and not begin <= offset < end


@st.composite
def binlogs(draw: st.DrawFn) -> tuple[Binlog, list[Landed]]:
    rows = st.lists(st.sampled_from((*TABLES, OTHER)), max_size=5)
    log = Binlog([*draw(st.lists(rows, min_size=1, max_size=6)), [OTHER, *TABLES]], draw(st.booleans()))
    log.snapshot()
    stored = (0, 0)
    for _ in range(draw(st.integers(0, 3))):
        events = log.plan(stored)
        sent = draw(st.integers(0, len(events) - len(log.transactions[-1]) - 2))
        acked = draw(st.integers(0, sent))
        tail = Counter(log._topic_of(one) for one in events[acked:sent])
        log.run(stored, sent, {topic: draw(st.integers(0, count)) for topic, count in tail.items()})
        if acked:
            kind, i, r = events[acked - 1]
            stored = {"BEGIN": (i, r), "row": (i, r + 1), "END": (i + 1, 0)}[kind]
            # With all rows stored but not the END, a restart reads the transaction again from its beginning.
    log.run(stored, len(log.plan(stored)), {})
    sizes = {**{t: len(log.topics[t]) for t in TABLES}, "marks": len(log.marks)}
    upto, steps = dict.fromkeys(sizes, 0), []
    for _ in range(draw(st.integers(1, 4))):
        before, upto = upto, {t: draw(st.integers(upto[t], sizes[t])) for t in sizes}
        late = {}
        for table in TABLES:
            if draw(st.booleans()):
                begin = draw(st.integers(before[table], upto[table]))
                late[table] = (begin, draw(st.integers(begin, upto[table])))
        steps.append(Landed(upto, late))
    return log, [*steps, Landed(sizes, {})]


@dataclass
class Step:
    """A run. taken: the offsets that each log has ingested after it."""

    found: FoundPoint
    taken: dict[str, set[int]]


def _follow(log: Binlog, steps: list[Landed]) -> list[Step]:
    point: SetPoint | None = None
    taken: dict[str, set[int]] = {table: set() for table in TABLES}
    done = []
    for landed in steps:
        logs: dict[str, LogProgress] = {}
        new = {t: [r for r in log.topics[t] if landed.has(t, r.offset) and r.offset not in taken[t]] for t in TABLES}
        for table in TABLES:
            to = max(taken[table], default=-1) + 1
            gaps = [(offset, offset + 1) for offset in range(to) if offset not in taken[table]]
            logs[table] = follow_records(table, new[table], to, known=point is not None, gaps=gaps)
        found = find_point(log.find_ends(point.read_to if point else -1, landed.upto["marks"]), logs, point)
        assert found.disorder == ""
        point = found.point or point
        for table in TABLES:
            cut = found.point.find_cut(table) if found.point else None
            ingested = {r.offset for r in new[table] if cut and r.offset < cut.bound}
            taken = {**taken, table: taken[table] | ingested}
            assert cut is None or max(taken[table], default=-1) + 1 == cut.offset
        done.append(Step(found, taken))
    return done


def _last_of(point: SetPoint) -> int:
    return int(point.transaction[1:]) if point.transaction else -1


@settings(max_examples=choose(120, 300))
@given(binlogs())
def test_a_point_has_every_row_before_it_and_none_after_it(given_binlog: tuple[Binlog, list[Landed]]) -> None:
    log, steps = given_binlog
    held = -2
    for step in _follow(log, steps):
        if step.found.point is None:
            continue
        last = _last_of(step.found.point)
        assert last >= held
        held = last
        for table in TABLES:
            there = {log.rows[table][offset] for offset in step.taken[table]}
            assert all(i <= last for i, _ in there)
            wanted = {
                (i, r)
                for i, rows in enumerate(log.transactions[: last + 1])
                for r, of_table in enumerate(rows)
                if of_table == table
            }
            assert wanted <= there


@settings(max_examples=choose(80, 200))
@given(binlogs())
def test_everything_that_has_landed_is_reached(given_binlog: tuple[Binlog, list[Landed]]) -> None:
    """The last transaction has a record of every table, so all before it are proved."""
    log, steps = given_binlog
    result = _follow(log, steps)[-1].found
    event(f"goes on: {log.goes_on}, marks: {len(log.marks) - 2 * len(log.transactions)} more than without a kill")
    assert result.point is not None
    assert _last_of(result.point) == len(log.transactions) - 1
    assert result.waits == {}


def test_a_late_file_whose_records_fill_a_gap_lets_the_point_go_on() -> None:
    """Its first record belongs to the point and is ingested, its second does not: it proves what comes after it."""
    log = Binlog([[], ["b"], ["a", "b"], [OTHER, *TABLES]], goes_on=False)
    log.snapshot()
    log.run((0, 0), 8, {})
    log.run((0, 0), 6, {})
    log.run((2, 0), len(log.plan((2, 0))), {})
    before = Landed({"a": 2, "b": 5, "c": 2, "marks": 4}, late={"b": (2, 4)})
    after = Landed({**{t: len(log.topics[t]) for t in TABLES}, "marks": len(log.marks)}, late={})
    first, second = _follow(log, [before, after])
    assert first.taken["b"] == {0, 1, 4}
    assert second.found.waits == {}
    assert second.taken["b"] == set(range(7))


def _partly_sent() -> Binlog:
    """A transaction of three rows. The connector was killed after two, had stored one, and numbers the rest anew."""
    log = Binlog([["a", "a", "b"]], goes_on=False)
    log.snapshot()
    log.run((0, 0), 3, {})
    log.run((0, 1), 4, {})
    return log


def test_a_count_of_a_part_of_a_transaction_proves_nothing() -> None:
    """The END counts one row of `a`, and two belong to the transaction: the first one is in a late file."""
    log = _partly_sent()
    assert log.marks[-1] == (0, {"a": 1, "b": 1})
    sizes = {t: len(log.topics[t]) for t in TABLES} | {"marks": len(log.marks)}
    late = Landed(sizes, {"a": (2, 3)})
    point = _follow(log, [late])[0].found.point
    assert point is not None
    assert point.transaction == ""


def test_a_kill_that_loses_a_begin_and_keeps_records_proves_nothing() -> None:
    """Two runs begin with the same record in the middle of the transaction. The BEGIN of the first one is lost."""
    log = Binlog([["a", "a", "c"]], goes_on=False)
    log.snapshot()
    log.run((0, 0), 3, {})
    log.run((0, 2), 2, {"marks": 1})
    log.run((0, 2), 3, {})
    assert log.marks == [(0, None), (0, None), (0, {"c": 1})]
    landed = Landed({"a": 2, "b": 2, "c": 4, "marks": 3}, {})
    point = _follow(log, [landed])[0].found.point
    assert point is not None
    assert point.transaction == ""


def test_such_a_transaction_is_proved_by_a_later_record_of_each_table() -> None:
    log = _partly_sent()
    whole = Landed({t: len(log.topics[t]) for t in TABLES} | {"marks": len(log.marks)}, {})
    waits = _follow(log, [whole])[0].found.waits
    assert set(waits) == set(TABLES)
    assert "killed while it sent that transaction" in waits["a"]
    log.transactions.append([*TABLES])
    log.run((1, 0), 5, {})
    later = Landed({t: len(log.topics[t]) for t in TABLES} | {"marks": len(log.marks)}, {})
    point = _follow(log, [whole, later])[1].found.point
    assert point is not None
    assert point.transaction == "t1"


def test_a_transaction_is_whole_if_the_connector_started_before_it() -> None:
    log = Binlog([["a"], ["a", "a", "b"]], goes_on=False)
    log.snapshot()
    log.run((0, 0), 6, {})
    log.run((0, 0), 8, {})
    landed = Landed({t: len(log.topics[t]) for t in TABLES} | {"marks": len(log.marks)}, {})
    point = _follow(log, [landed])[0].found.point
    assert point is not None
    assert point.transaction == "t1"


@pytest.mark.parametrize("ranks", [(5, 7, 6, 8), (5, 6, 4, 7)])
def test_transactions_in_another_order_than_their_ids_are_refused(ranks: tuple[int, ...]) -> None:
    ends = [TransactionEnd(f"0-1-{n}", None, i, {}, n) for i, n in enumerate(ranks)]
    found = find_point(ends, {"a": follow_records("a", [], 0, known=True)}, SetPoint(5, "0-1-3", -1, (), 3))
    assert "0-1-" in found.disorder


def test_positions_that_go_back_are_refused() -> None:
    """The connector reads another server, whose binlog has other positions."""
    records = [SourceRecord(i, f"0-1-{i}", 1, p - 1, place=p) for i, p in enumerate((900, 100))]
    ends = [TransactionEnd(f"0-1-{i}", None, i, {"a": 1}, i) for i in range(2)]
    found = find_point(ends, {"a": follow_records("a", records, 0, known=True)}, SetPoint(5, "", -1, ()))
    assert found.disorder == "transaction 0-1-1 is at position 100, and position 900 came before"
