"""The point of a set, compared with a naive search over everything that a simulated source sent."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import choose
from tidefold.domain.sets.point import FoundPoint, SetPoint, SnapshotRelease, explain_missing_ends, find_point
from tidefold.domain.sets.progress import Cut, LogProgress, SourceRecord, TransactionEnd, follow_records

TABLES = ("accounts", "tellers", "history")
SNAPSHOT = 5


@dataclass
class Source:
    """A source with three tables and its connector's topics.

    transactions: for each one the number of records of each table; its position is 10, 20, 30, ...
    """

    transactions: list[tuple[int, ...]]
    topics: dict[str, list[SourceRecord]] = field(default_factory=lambda: {t: [] for t in TABLES})
    ends: list[TransactionEnd] = field(default_factory=list)
    rows: tuple[int, ...] = (0, 0, 0)

    def snapshot(self, rows: tuple[int, ...]) -> None:
        self.rows = rows
        for table, count in zip(TABLES, rows, strict=True):
            for n in range(count):
                marks = {"begins": n == 0 and count > 1, "ends": n == count - 1}
                self._send(table, SourceRecord(0, after=SNAPSHOT, is_snapshot=True, **marks))

    def stream(self, begin: int, end: int) -> None:
        for i in range(begin, end):
            for table, count in zip(TABLES, self.transactions[i], strict=True):
                for n in range(count):
                    # The first transaction after the snapshot has no commit before it, only its own position: lower
                    # than that of the snapshot if it was open then.
                    is_sent = any((r.transaction, r.number) == (f"t{i}", n + 1) for r in self.topics[table])
                    record = SourceRecord(0, f"t{i}", n + 1, 10 * i or 3, is_early=not i and not is_sent)
                    self._send(table, record)
            counts = {t: n for t, n in zip(TABLES, self.transactions[i], strict=True) if n}
            self.ends.append(TransactionEnd(f"t{i}", 10 * (i + 1), len(self.ends), counts))

    def lose(self, lost: dict[str, int]) -> None:
        """The records at the end of each topic that a kill takes with it."""
        for table in TABLES:
            if lost.get(table):
                del self.topics[table][-lost[table] :]
        if lost.get("ends"):
            del self.ends[-lost["ends"] :]

    def _send(self, table: str, record: SourceRecord) -> None:
        topic = self.topics[table]
        values = {f: getattr(record, f) for f in SourceRecord.__slots__}
        topic.append(SourceRecord(**{**values, "offset": len(topic)}))

    def landed(self, upto: dict[str, int], before: SetPoint | None) -> dict[str, LogProgress]:
        found = {}
        for table, rows in zip(TABLES, self.rows, strict=True):
            cut = (before.cut(table) if before else None) or 0
            records = self.topics[table][cut : max(cut, upto[table])]
            found[table] = follow_records(table, records, cut, known=before is not None, may_be_empty=not rows)
        return found

    def is_complete(self, position: int, upto: dict[str, int], rows: tuple[int, ...]) -> bool:
        """Whether every record up to a position has landed, found by looking at all of them."""
        for place, table in enumerate(TABLES):
            here = self.topics[table][: upto[table]]
            if sum(r.is_snapshot for r in here) < rows[place]:
                return False
            for i, counts in enumerate(self.transactions):
                numbers = {r.number for r in here if r.transaction == f"t{i}"}
                if 10 * (i + 1) <= position and len(numbers) < counts[place]:
                    return False
        return True


@st.composite
def sources(draw: st.DrawFn) -> tuple[Source, tuple[int, ...], list[dict[str, int]]]:
    counts = st.tuples(*[st.sampled_from((0, 0, 1, 1, 2, 3)) for _ in TABLES]).filter(any)
    source = Source(draw(st.lists(counts, max_size=8)))
    rows = draw(st.tuples(*[st.integers(0, 3) for _ in TABLES]))
    source.snapshot(rows)
    sent = len(source.transactions)
    if draw(st.booleans()) and sent:
        killed, stored = draw(st.integers(1, sent)), 0
        source.stream(0, killed)
        stored = draw(st.integers(0, killed - 1))
        later = {t: sum(c[p] for c in source.transactions[stored:killed]) for p, t in enumerate(TABLES)}
        later["ends"] = killed - stored
        source.lose({t: draw(st.integers(0, n)) for t, n in later.items()})
        source.stream(stored, sent)
    else:
        source.stream(0, sent)
    steps, upto = [], dict.fromkeys([*TABLES, "ends"], 0)
    for _ in range(draw(st.integers(1, 4))):
        sizes = {**{t: len(source.topics[t]) for t in TABLES}, "ends": len(source.ends)}
        upto = {t: draw(st.integers(upto[t], sizes[t])) for t in sizes}
        steps.append(upto)
    return source, rows, [*steps, sizes]


def _follow(source: Source, steps: list[dict[str, int]]) -> list[tuple[dict[str, int], FoundPoint]]:
    point: SetPoint | None = None
    found = []
    for upto in steps:
        read_from = point.read_to + 1 if point else 0
        result = find_point(source.ends[read_from : upto["ends"]], source.landed(upto, point), point)
        point = result.point or point
        found.append((upto, result))
    return found


@settings(max_examples=choose(160, 400))
@given(sources())
def test_a_point_has_all_records_before_it_and_none_after_it(given_source) -> None:
    source, rows, steps = given_source
    last = -1
    for upto, result in _follow(source, steps):
        if result.point is None:
            continue
        position = result.point.position
        assert position >= last
        last = position
        assert source.is_complete(position, upto, rows)
        for table in TABLES:
            cut = result.point.cut(table)
            assert cut is not None
            before = source.topics[table][:cut]
            assert all(r.transaction is None or 10 * (int(r.transaction[1:]) + 1) <= position for r in before)
            # Nothing that belongs to the point waits, except records that the source sends again.
            have = {(r.transaction, r.number) for r in before}
            wanted = {
                (f"t{i}", n + 1)
                for i, counts in enumerate(source.transactions)
                for n in range(counts[TABLES.index(table)])
                if 10 * (i + 1) <= position
            }
            assert wanted <= have


@settings(max_examples=choose(120, 300))
@given(sources())
def test_everything_that_has_landed_is_reached(given_source) -> None:
    """When all topics have landed completely, the point is the last transaction."""
    source, rows, steps = given_source
    result = _follow(source, steps)[-1][1]
    nothing = not any(rows) and not source.transactions
    if source.transactions:
        assert result.point is not None
        assert result.point.position == 10 * len(source.transactions)
        assert result.waits == {}
    elif not nothing:
        assert result.point is not None
        assert result.point.position == SNAPSHOT


@settings(max_examples=choose(120, 300))
@given(sources())
def test_a_single_search_finds_the_highest_point(given_source) -> None:
    source, rows, steps = given_source
    for upto in steps:
        found = find_point(source.ends[: upto["ends"]], source.landed(upto, None), None).point
        proved = [end.position for end in source.ends[: upto["ends"]] if source.is_complete(end.position, upto, rows)]
        landed_none = [t for t in TABLES if upto[t] == 0 and source.topics[t]]
        if proved and not landed_none:
            assert found is not None
            assert found.position == max(proved)


def _records(*given: tuple[str, int, int]) -> list[SourceRecord]:
    return [SourceRecord(i, t, n, after) for i, (t, n, after) in enumerate(given)]


def _log(records: list[SourceRecord], table: str = "a", taken_to: int = 0, **how: bool) -> LogProgress:
    return follow_records(table, records, taken_to, **{"known": True, **how})


def test_a_slow_log_holds_the_set_and_is_named() -> None:
    ends = [TransactionEnd("t0", 10, 1, {"a": 1, "b": 1}), TransactionEnd("t1", 20, 3, {"a": 1, "b": 1})]
    logs = {"a": _log(_records(("t0", 1, 5), ("t1", 1, 10))), "b": _log(_records(("t0", 1, 5)), "b")}
    found = find_point(ends, logs, SetPoint(5, "", -1, ()))
    assert found.point == SetPoint(10, "t0", 1, found.point.cuts)
    assert [(c.log, c.offset) for c in found.point.cuts] == [("a", 1), ("b", 1)]
    assert found.waits == {"b": "records of the transaction at position 20 have not landed"}


def test_an_end_whose_records_were_before_the_point_does_not_hold_the_set() -> None:
    """The connector was killed after it had sent the records and the END, and sends only the END again."""
    ends = [TransactionEnd("t0", 10, 7, {"a": 1}), TransactionEnd("t1", 20, 9, {"a": 1})]
    found = find_point(ends, {"a": _log(_records(("t1", 1, 10)))}, SetPoint(10, "t0", 1, ()))
    assert found.point is not None
    assert found.point.position == 20


def test_a_change_without_a_transaction_holds_its_log() -> None:
    logs = {"a": _log([SourceRecord(0, is_untracked=True)])}
    found = find_point([TransactionEnd("t0", 10, 0, {"b": 1})], logs, SetPoint(5, "", -1, ()))
    assert found.waits["a"].startswith("the record at offset 0 has no transaction; the connector writes it with ")


def test_a_transaction_without_an_end_is_named() -> None:
    """The topic of the transactions is slow, or nothing of it lands."""
    point = SetPoint(10, "t0", 0, (Cut("a", 1), Cut("b", 0)))
    records = _records(("t0", 1, 5), ("t1", 1, 10), ("t2", 1, 20), ("t2", 2, 20))
    logs = {"a": _log(records), "b": _log(_records(("t2", 1, 20)), "b")}
    why = "the END of transaction t1 has not landed; its records of `a` begin at offset 1"
    assert explain_missing_ends([], logs, point) == (why, 2)
    ended = [TransactionEnd("t1", 20, 1, {"a": 1}), TransactionEnd("t2", 30, 2, {"a": 2, "b": 1})]
    assert explain_missing_ends(ended, logs, point) == ("", 0)


def test_a_record_that_is_sent_again_does_not_wait_for_an_end() -> None:
    """The END of its transaction is before the point, and is not read again."""
    logs = {"a": _log(_records(("t0", 1, 5), ("t1", 1, 10), ("t0", 1, 5)))}
    assert explain_missing_ends([], logs, SetPoint(20, "t1", 1, (Cut("a", 2),))) == ("", 0)


def test_a_transaction_from_before_the_first_commit_waits_for_its_end_unless_it_is_sent_again() -> None:
    """Its position is that of an event, below the snapshot. A record after the next commit shows which one it was."""
    early, point = SourceRecord(0, "t0", 1, 3, is_early=True), SetPoint(5, "", -1, (Cut("a", 0),))
    why = "the END of transaction t0 has not landed; its records of `a` begin at offset 0"
    assert explain_missing_ends([], {"a": _log([early])}, point) == (why, 1)
    again = {"a": _log([early, SourceRecord(1, "t1", 1, 10)])}
    assert explain_missing_ends([], again, SetPoint(20, "t1", 1, (Cut("a", 0),))) == ("", 0)


def test_a_log_that_was_ingested_before_begins_with_its_first_new_transaction() -> None:
    adopted = {"known": False}
    ends = [TransactionEnd("t0", 10, 0, {"a": 1}), TransactionEnd("t1", 20, 1, {"a": 1})]
    waiting = {"a": _log([], taken_to=3, **adopted)}
    assert find_point(ends, waiting, None).point is None
    begun = {"a": _log([SourceRecord(3, "t1", 1, 10)], taken_to=3, **adopted)}
    found = find_point(ends, begun, None).point
    assert found is not None
    assert (found.position, found.cut("a")) == (20, 4)


def test_a_log_ahead_of_the_point_keeps_its_cut_until_a_newer_point_is_proved() -> None:
    before = SetPoint(10, "t0", 0, (found_cuts(3)[0],))
    found = find_point([], {"a": _log([], taken_to=7, known=False)}, before)
    assert found.point == before


def test_a_new_log_of_a_published_set_has_no_cut_before_its_snapshot_is_whole() -> None:
    rows = [SourceRecord(0, after=5, is_snapshot=True, begins=True)]
    found = find_point([], {"a": _log(rows, known=False)}, SetPoint(10, "t0", 0, ()))
    assert found.point == SetPoint(10, "t0", 0, ())


def test_an_adopted_log_may_have_the_begin_of_its_first_transaction() -> None:
    records = [SourceRecord(3, "t1", 2, 10), SourceRecord(4, "t1", 3, 10)]
    ends = [TransactionEnd("t0", 10, 0, {"a": 3}), TransactionEnd("t1", 20, 1, {"a": 3})]
    found = find_point(ends, {"a": _log(records, taken_to=3, known=False)}, None).point
    assert found is not None
    assert (found.position, found.cut("a")) == (20, 5)


def test_a_late_file_of_an_initial_snapshot_holds_the_set() -> None:
    rows = [SourceRecord(i, after=5, is_snapshot=True, begins=i == 0, ends=i == 2) for i in range(3)]
    logs = {"a": _log([rows[0], rows[2]], known=False)}
    assert find_point([], logs, None).point is None
    assert find_point([], {"a": _log(rows, known=False)}, None).point == SetPoint(5, "", -1, found_cuts(3))


def found_cuts(offset: int) -> tuple:
    return (Cut("a", offset),)


def test_a_table_is_not_published_at_a_point_before_its_snapshot() -> None:
    """The transaction topic is older than the connector's snapshot of this table."""
    rows = [SourceRecord(0, after=25, is_snapshot=True, begins=True), SourceRecord(1, after=25, is_snapshot=True)]
    ends = [TransactionEnd("t0", 10, 0, {"b": 1}), TransactionEnd("t1", 20, 1, {"b": 1})]
    logs = {"a": _log(rows, known=False), "b": _log(_records(("t0", 1, 5), ("t1", 1, 10)), "b", known=False)}
    found = find_point(ends, logs, None)
    assert found.point is None
    assert found.waits == {"a": "its initial snapshot is newer"}


def test_a_gap_between_offsets_does_not_move_the_cut() -> None:
    """Records of the topic may be missing for good, as in a compacted topic. Ingest stands after the last record."""
    records = [SourceRecord(0, "t0", 1, 5), SourceRecord(7, "t1", 1, 10)]
    found = find_point([TransactionEnd("t0", 10, 0, {"a": 1})], {"a": _log(records)}, SetPoint(5, "", -1, ()))
    assert found.point is not None
    assert found.point.cut("a") == 1


def test_a_second_snapshot_of_one_log_waits_for_the_others() -> None:
    again = [SourceRecord(0, after=15, is_snapshot=True, begins=True), SourceRecord(1, after=15, is_snapshot=True)]
    ends = [TransactionEnd("t0", 10, 0, {"b": 1}), TransactionEnd("t1", 20, 1, {"b": 1})]
    other = _log(_records(("t0", 1, 5), ("t1", 1, 10)), "b")
    found = find_point(ends, {"a": _log(again), "b": other}, SetPoint(5, "", -1, ()))
    assert found.point is not None
    assert (found.point.position, found.point.cut("a")) == (10, 0)
    whole = [*again, SourceRecord(2, after=15, is_snapshot=True, ends=True)]
    found = find_point(ends, {"a": _log(whole), "b": other}, SetPoint(5, "", -1, ()))
    assert found.point is not None
    assert (found.point.position, found.point.cut("a")) == (20, 3)


@settings(max_examples=choose(120, 300))
@given(st.data())
def test_rows_of_a_snapshot_by_signal_are_never_before_its_end(data: st.DataObject) -> None:
    """They have the position of the last commit before the signal, and show what was committed up to a later one."""
    counts = st.tuples(*[st.sampled_from((0, 0, 1, 2)) for _ in TABLES]).filter(any)
    source = Source(data.draw(st.lists(counts, min_size=2, max_size=8)))
    source.snapshot(data.draw(st.tuples(*[st.integers(0, 3) for _ in TABLES])))
    sent = len(source.transactions)
    at, count, table = (
        data.draw(st.integers(1, sent - 1)),
        data.draw(st.integers(1, 3)),
        data.draw(st.sampled_from(TABLES)),
    )
    ended = data.draw(st.integers(at, sent))
    source.stream(0, at)
    first = len(source.topics[table])
    # Not every connector shows it: then it is known by what the log has before.
    shows = not any(r.transaction for r in source.topics[table]) or data.draw(st.booleans())
    for n in range(count):
        marks = {"begins": n == 0 and count > 1, "ends": n == count - 1}
        source._send(table, SourceRecord(0, after=10 * at, is_snapshot=True, is_signalled=shows, **marks))
    source.stream(at, sent)
    release = SnapshotRelease({table: first}, 10 * ended, "ann", "seen", "")
    point, upto, released = None, dict.fromkeys([*TABLES, "ends"], 0), []
    sizes = {**{t: len(source.topics[t]) for t in TABLES}, "ends": len(source.ends)}
    for step in range(4):
        released = released or data.draw(st.sampled_from([[], [release]]))
        upto = {t: data.draw(st.integers(upto[t], sizes[t])) if step < 3 else sizes[t] for t in sizes}
        result = find_point(
            source.ends[point.read_to + 1 if point else 0 : upto["ends"]], source.landed(upto, point), point, released
        )
        point = result.point or point
        if point is None:
            continue
        cut = point.cut(table)
        shown = range(first, min(first + count, cut or 0))
        assert not shown or (released and point.position >= 10 * ended and len(shown) == count)
    assert point is not None
    assert point.position == 10 * sent if released else point.position >= 10 * at
    assert bool(result.held) == (not released)
