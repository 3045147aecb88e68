"""The writer of one log: numbers, persist, confirm, reset, truncate, close. Requirements C1, C5, C8, C9; I11, I20."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.dict_store import DictStore
from support.writing import SHAPE, BreakingStore, FakeTimer, ManualExecutor, make_changelog, paths, rows
from tidefold.changelog import write_intents
from tidefold.changelog.reader import ChangelogReader
from tidefold.changelog.writer.changelog import Changelog
from tidefold.changelog.writer.log_writer import LogWriter
from tidefold.domain.ingest.append import give_up
from tidefold.domain.log_state import Column
from tidefold.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    RefusedError,
    StorageError,
    SupersededError,
    UnknownOutcomeError,
)
from tidefold.ledger import Ledger
from tidefold.storage import Store


def ids(store: Store, log: str = "a") -> list[list[int]]:
    """What the log holds, change set by change set."""
    return [sorted(table["id"].to_pylist()) for table in ChangelogReader(store, log).tables()]


def confirmed(writer: LogWriter, snapshot: int = 1, frm: int = 0) -> None:
    to = writer.next_sqn
    writer.persist(frm).result(0)
    writer.confirm(frm, to, snapshot)


@pytest.fixture
def store() -> BreakingStore:
    return BreakingStore(below="changelog/")


@pytest.fixture
def local() -> BreakingStore:
    return BreakingStore(below="changelog/")


@pytest.fixture
def changelog(store: BreakingStore) -> Changelog:
    return make_changelog(store)


@pytest.fixture
def writer(changelog: Changelog) -> LogWriter:
    return changelog.log("a", SHAPE)


Act = Callable[[LogWriter], Any]


@pytest.mark.parametrize(
    ("act", "appended", "expected"),
    [
        (lambda w: w.next_sqn, False, 0),
        (lambda w: w.next_sqn, True, 1),
        (lambda w: w.persist(0), False, 0),
        (lambda w: w.persist(0), True, 1),
        (lambda w: w.append(rows(1)), False, 0),
        (lambda w: w.append(rows(1)), True, 0),
        (lambda w: w.append([]), False, 0),
        (lambda w: w.truncate(0), False, 0),
        (lambda w: w.truncate(w.next_sqn), True, 1),
    ],
)
def test_what_makes_a_new_number(writer: LogWriter, act: Act, appended: bool, expected: int) -> None:
    """C1: changes appended one after the other share a number until somebody asks for the next one, or persists."""
    if appended:
        writer.append(rows(1))
    act(writer)
    assert writer._pending.next == expected


def test_appending_writes_nothing(store: BreakingStore, writer: LogWriter) -> None:
    """C1."""
    assert [writer.append(rows(i)) for i in range(3)] == [0, 0, 0]
    assert store.list("") == []


def test_a_large_log_persists_before_anybody_asks(store: BreakingStore) -> None:
    """C3: a writer's own size threshold."""
    writer = make_changelog(store, settings={"log_bytes": 100}).log("a", SHAPE)
    writer.append(rows(*range(100)))
    assert len(paths(store)) == 1
    writer.persist(0).result(0)
    assert len(paths(store)) == 1


def test_persist_answers_where_everything_is(store: BreakingStore, writer: LogWriter) -> None:
    """C1, C2."""
    writer.append(rows(1, 2))
    persisted = writer.persist(0).result(0)
    [one] = persisted.change_sets
    assert (persisted.from_sqn, persisted.to_sqn, persisted.local) == (0, 1, None)
    assert (one.log, one.place, one.written.rows, [one.path]) == ("a", 0, 2, paths(store))
    assert persisted.bytes == one.bytes


def test_persisting_again_uploads_nothing_again(store: BreakingStore, writer: LogWriter) -> None:
    """C1: neither after an upload nor after a confirm."""
    writer.append(rows(1))
    first = writer.persist(0).result(0)
    assert writer.persist(0).result(0) == first
    writer.confirm(0, 1, 1)
    assert writer.persist(0).result(0) == first
    assert len(paths(store)) == 1


def test_persisting_before_the_first_upload_ended_uploads_nothing_again(store: BreakingStore) -> None:
    """C1."""
    executor = ManualExecutor()
    writer = make_changelog(store, executor=executor).log("a", SHAPE)
    writer.append(rows(1))
    futures = [writer.persist(0), writer.persist(0)]
    assert len(executor.work) == 1
    executor.run()
    assert futures[0].result(0) == futures[1].result(0)


def test_only_what_is_new_is_uploaded(store: BreakingStore, writer: LogWriter) -> None:
    """C1."""
    writer.append(rows(1))
    writer.persist(0)
    writer.append(rows(2))
    assert len(writer.persist(0).result(0).change_sets) == 2
    assert len(paths(store)) == 2


def test_a_failed_upload_fails_the_persist_and_the_next_one_tries_again(
    store: BreakingStore, writer: LogWriter
) -> None:
    """C1: nothing is lost by a failed upload; a deliberate difference to Flink, where the job would fail over."""
    store.breaks("write", times=1)
    writer.append(rows(1))
    with pytest.raises(StorageError):
        writer.persist(0).result(0)
    assert store.list("") == []
    writer.append(rows(2))
    assert len(writer.persist(0).result(0).change_sets) == 2


def test_an_early_upload_that_failed_goes_with_the_next_persist(store: BreakingStore) -> None:
    writer = make_changelog(store, settings={"log_bytes": 1}).log("a", SHAPE)
    store.breaks("write", times=1)
    writer.append(rows(1))
    assert paths(store) == []
    confirmed(writer)
    assert ids(store) == [[1]]


def test_what_could_not_be_uploaded_does_not_fill_the_memory(store: BreakingStore) -> None:
    """C3: append raises the upload's error instead."""
    limits = {"log_bytes": 1, "batch_bytes": 1, "max_bytes_in_flight": 2000}
    writer = make_changelog(store, settings=limits).log("a", SHAPE)
    store.breaks("open")

    def fill() -> None:
        for number in range(1000):
            writer.append(rows(*range(number * 10, number * 10 + 10)))

    with pytest.raises(StorageError):
        fill()
    appended = writer.offset
    assert 0 < appended < 1000
    store.breaks("nothing")
    writer.flush()
    assert sum(len(part) for part in ids(store)) == appended


def test_confirmed_change_sets_are_in_the_log(store: BreakingStore, writer: LogWriter) -> None:
    """C1: and nothing before; the ledger is the truth."""
    writer.append(rows(1, 2))
    writer.persist(0).result(0)
    assert Ledger(store, "a").find() is None
    writer.confirm(0, 1, 1)
    assert ids(store) == [[1, 2]]
    state = Ledger(store, "a").read()
    assert [(p.topic, p.next_offset, p.stream.max_order) for p in state.positions] == [("writer", 2, (1,))]
    assert [(entry.name, entry.changes) for entry in state.landed] == [("writer+0+0000000000", 2)]


def test_confirming_twice_changes_nothing(store: BreakingStore, writer: LogWriter) -> None:
    """C1, I4."""
    writer.append(rows(1))
    confirmed(writer)
    before = store.list("")
    writer.confirm(0, 1, 2)
    assert store.list("") == before


def test_what_is_not_durable_cannot_be_confirmed(store: BreakingStore) -> None:
    executor = ManualExecutor()
    writer = make_changelog(store, executor=executor).log("a", SHAPE)
    writer.append(rows(1))
    writer.persist(0)
    with pytest.raises(RefusedError) as refused:
        writer.confirm(0, 1, 1)
    assert refused.value.code == "NOT_PERSISTED"
    executor.run()
    writer.confirm(0, 1, 1)
    assert ids(store) == [[1]]


def test_a_gap_cannot_be_confirmed(store: BreakingStore, writer: LogWriter) -> None:
    """The ledger takes the stream in order: what is skipped would be lost without anybody noticing."""
    for number in range(3):
        assert writer.append(rows(number)) == number == writer.next_sqn - 1
    writer.persist(0).result(0)
    with pytest.raises(RefusedError) as refused:
        writer.confirm(2, 3, 1)
    assert refused.value.code == "CONFIRM_GAP"
    writer.truncate(2)
    writer.confirm(2, 3, 1)
    assert ids(store) == [[2]]


@pytest.mark.parametrize(("frm", "to"), [(-1, 1), (1, 0), (0, 2), (3, 3)])
def test_a_range_that_is_none_is_refused(writer: LogWriter, frm: int, to: int) -> None:
    writer.append(rows(1))
    writer.persist(0)
    with pytest.raises(InvalidInputError):
        writer.confirm(frm, to, 1)
    with pytest.raises(InvalidInputError):
        writer.reset(1, 0, 1)
    with pytest.raises(InvalidInputError):
        writer.persist(7)
    with pytest.raises(InvalidInputError):
        writer.truncate(7)


def test_after_a_reset_the_change_sets_can_be_persisted_and_confirmed(store: BreakingStore, writer: LogWriter) -> None:
    """C1: an aborted snapshot loses nothing."""
    writer.append(rows(1))
    writer.persist(0).result(0)
    writer.reset(0, 1, 1)
    confirmed(writer, snapshot=2)
    assert ids(store) == [[1]]
    assert len(paths(store)) == 1


def test_truncated_change_sets_cannot_be_persisted(store: BreakingStore, writer: LogWriter) -> None:
    """C1, C5: their uploads are removed."""
    writer.append(rows(1))
    writer.persist(0).result(0)
    writer.append(rows(2))
    writer.truncate(1)
    assert store.list("") == []
    with pytest.raises(InvalidInputError) as truncated:
        writer.persist(0)
    assert truncated.value.code == "SQN_TRUNCATED"
    confirmed(writer, frm=1)
    assert ids(store) == [[2]]


def test_truncating_leaves_what_is_confirmed(store: BreakingStore, writer: LogWriter) -> None:
    """C5: it belongs to the ledger."""
    writer.append(rows(1))
    confirmed(writer)
    writer.truncate(1)
    assert ids(store) == [[1]]


def test_truncating_what_is_being_uploaded_removes_it_when_it_is_there(store: BreakingStore) -> None:
    """C5; whoever waits for it learns that it is gone."""
    executor = ManualExecutor()
    writer = make_changelog(store, executor=executor).log("a", SHAPE)
    writer.append(rows(1))
    future = writer.persist(0)
    writer.truncate(1)
    with pytest.raises(InvalidInputError):
        future.result(0)
    executor.run()
    assert store.list("") == []


def test_closing_removes_what_is_not_confirmed(store: BreakingStore, changelog: Changelog, writer: LogWriter) -> None:
    """C1, C5."""
    writer.append(rows(1))
    confirmed(writer)
    writer.append(rows(2))
    writer.persist(1).result(0)
    assert len(paths(store)) == 2
    writer.close()
    writer.close()
    assert len(paths(store)) == 1
    assert list(write_intents.read_announced(store)) == []
    for act in (lambda: writer.append(rows(3)), lambda: writer.persist(0), lambda: writer.confirm(0, 1, 1)):
        with pytest.raises(RefusedError):
            act()


def test_truncate_and_close_gives_up_the_tail(store: BreakingStore, writer: LogWriter) -> None:
    """C1."""
    writer.append(rows(1))
    confirmed(writer)
    writer.append(rows(2))
    future = writer.persist(1)
    writer.truncate_and_close(1)
    assert future.result(0).to_sqn == 2  # It was durable then.
    assert ids(store) == [[1]]
    assert len(paths(store)) == 1


def test_an_upload_that_ends_after_the_close_is_removed(store: BreakingStore) -> None:
    """C5."""
    executor = ManualExecutor()
    writer = make_changelog(store, executor=executor).log("a", SHAPE)
    writer.append(rows(1))
    future = writer.persist(0)
    writer.close()
    with pytest.raises(InvalidInputError):
        future.result(0)
    executor.run()
    assert store.list("") == []


def test_a_shared_segment_stays_for_the_log_that_confirmed_it(store: BreakingStore) -> None:
    """C2, C5: one log confirms, the other gives up; its intent ends with the last of them."""
    timer = FakeTimer()
    changelog = make_changelog(store, timer=timer, settings={"persist_delay": 1.0})
    a, b = changelog.log("a", SHAPE), changelog.log("b", SHAPE)
    a.append(rows(1))
    b.append(rows(2))
    futures = [a.persist(0), b.persist(0)]
    timer.move(1.0)
    assert futures[0].result(0).change_sets[0].path == futures[1].result(0).change_sets[0].path
    a.confirm(0, 1, 1)
    assert [set(one.logs) for one in write_intents.read_announced(store)] == [{"a", "b"}]
    b.close()
    assert list(write_intents.read_announced(store)) == []
    assert ids(store, "a") == [[1]]


def test_an_intent_stays_until_all_of_a_log_in_its_segment_is_settled(store: BreakingStore, writer: LogWriter) -> None:
    """Else the ledger could cut the first change set, and the segment with it, before the second is confirmed."""
    for number in (1, 2):
        writer.append(rows(number))
        assert writer.next_sqn == number
    writer.persist(0).result(0)
    writer.confirm(0, 1, 1)
    assert len(list(write_intents.read_announced(store))) == 1
    writer.confirm(1, 2, 1)
    assert list(write_intents.read_announced(store)) == []


def test_a_segment_is_announced_before_it_is_written(store: BreakingStore) -> None:
    """And forgotten when writing it failed."""
    seen: list[tuple[str, ...]] = []

    class Watching(BreakingStore):
        def hit(self, at: str, path: str = "") -> bool:
            if at == "open" and path.endswith(".seg"):
                seen.extend(one.files for one in write_intents.read_announced(self))
                assert seen[-1] == (path,)
            return super().hit(at, path)

    watching = Watching(below="changelog/")
    writer = make_changelog(watching).log("a", SHAPE)
    writer.append(rows(1))
    watching.breaks("close", times=1)
    with pytest.raises(StorageError):
        writer.persist(0).result(0)
    assert len(seen) == 1
    assert watching.list("") == []


def test_a_segment_that_cannot_be_announced_is_not_written(store: BreakingStore) -> None:
    class Mute(BreakingStore):
        def put_if_absent(self, path: str, data: bytes) -> None:
            if "intents/" in path:
                raise StorageError("STORAGE", "full")
            super().put_if_absent(path, data)

    mute = Mute()
    writer = make_changelog(mute).log("a", SHAPE)
    writer.append(rows(1))
    with pytest.raises(StorageError):
        writer.persist(0).result(0)
    assert mute.created == []


def test_after_a_lost_answer_the_file_is_looked_after_when_closing(store: BreakingStore) -> None:
    """I11: the file may be there, so its intent stays; nobody will name it, so it goes in the end."""

    class Lossy(BreakingStore):
        def put_if_absent(self, path: str, data: bytes) -> None:
            super().put_if_absent(path, data)
            if path.endswith(".seg") and self.hit("lost", path):
                raise UnknownOutcomeError("UNKNOWN_OUTCOME", "The answer was lost.")

    lossy = Lossy(below="changelog/")
    changelog = make_changelog(lossy)
    writer = changelog.log("a", SHAPE)
    writer.append(rows(1))
    lossy.breaks("lost", times=1)
    with pytest.raises(UnknownOutcomeError):
        writer.persist(0).result(0)
    assert len(list(write_intents.read_announced(lossy))) == 1
    writer.flush()
    changelog.close()
    assert list(write_intents.read_announced(lossy)) == []
    assert ids(lossy) == [[1]]
    assert len(paths(lossy)) == 1


def test_two_writers_of_one_name_are_found_out(store: BreakingStore, writer: LogWriter) -> None:
    """I20."""
    other = make_changelog(store).log("a", SHAPE)
    writer.append(rows(1))
    other.append(rows(2))
    confirmed(writer)
    other.persist(0).result(0)
    with pytest.raises(ConflictError) as taken:
        other.confirm(0, 1, 1)
    assert taken.value.code == "OFFSETS_TAKEN"
    assert "`writer`" in taken.value.message
    assert "open it again" in taken.value.hint
    assert "ingest" not in str(taken.value)
    other.close()
    assert ids(store) == [[1]]
    assert len(paths(store)) == 1


def test_writers_of_two_names_share_a_log(store: BreakingStore, writer: LogWriter) -> None:
    other = make_changelog(store, settings={"name": "other"}).log("a", SHAPE)
    writer.append(rows(1))
    other.append(rows(2))
    confirmed(writer)
    confirmed(other)
    assert ids(store) == [[1], [2]]


def test_a_reopened_writer_goes_on_where_the_ledger_stands(store: BreakingStore, writer: LogWriter) -> None:
    writer.append(rows(1, 2))
    confirmed(writer)
    writer.append(rows(9))
    writer.close()
    again = make_changelog(store).log("a")
    assert again.offset == 2
    again.append(rows(3))
    confirmed(again)
    assert ids(store) == [[1, 2], [3]]
    offsets = [table["_offset"].to_pylist() for table in ChangelogReader(store, "a").tables()]
    assert [sorted(part) for part in offsets] == [[0, 1], [2]]


class Forgetful(BreakingStore):
    """Applies a put of the ledger, or not, and then loses the answer and what would settle it."""

    applied = True

    def put_if_absent(self, path: str, data: bytes) -> None:
        if "/ledger/" in path and not path.endswith("01.json") and self.hit("ledger", "changelog/"):
            if self.applied:
                super().put_if_absent(path, data)
            raise UnknownOutcomeError("UNKNOWN_OUTCOME", "The answer was lost.")
        super().put_if_absent(path, data)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        if "/ledger/" in path and self.hit("read", "changelog/"):
            raise StorageError("STORAGE", "The answer was lost again.")
        return super().read(path, start, length)

    def hit(self, at: str, path: str = "") -> bool:
        hit = super().hit(at, path)
        if hit and at == "ledger":
            self.breaks("read", times=1)
        return hit


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("then", ["confirm again", "confirm more", "close"])
def test_an_unknown_outcome_deletes_nothing_and_can_be_settled(applied: bool, then: str) -> None:
    """I11: the change sets may be in the ledger. Confirming again tells, also together with others."""
    store = Forgetful(below="changelog/")
    store.applied = applied
    writer = make_changelog(store).log("a", SHAPE)
    for number in (1, 2):
        writer.append(rows(number))
        assert writer.next_sqn == number
    writer.persist(0).result(0)
    store.breaks("ledger", times=1)
    with pytest.raises(StorageError):
        writer.confirm(0, 2, 1)
    store.breaks("nothing")
    if then == "close":
        writer.close()
        assert len(paths(store)) == len(list(write_intents.read_announced(store))) == 1
        assert ids(store) == ([[1], [2]] if applied else [])
        return
    if then == "confirm more":
        writer.append(rows(3))
        writer.persist(0).result(0)
    writer.confirm(0, writer.next_sqn, 1)
    assert ids(store) == [[1], [2], [3]][: writer.next_sqn]
    assert list(write_intents.read_announced(store)) == []


def test_what_was_announced_before_a_recovery_is_refused_after_it() -> None:
    """Each change set stands under the fence it was announced with, whatever the writer learnt since."""
    store = Forgetful(below="changelog/")
    writer = make_changelog(store).log("a", SHAPE)
    for number in (1, 2):
        writer.append(rows(number))
        writer.persist(0).result(0)
    store.breaks("ledger", times=1)
    with pytest.raises(StorageError):
        writer.confirm(0, 1, 1)
    store.breaks("nothing")
    Ledger(store, "a").commit(lambda state: give_up(state, state.fence))
    with pytest.raises(SupersededError):
        writer.confirm(0, 2, 1)
    assert ids(store) == [[1]]


def test_what_a_recovery_gave_up_is_refused_and_must_be_appended_again(store: BreakingStore, writer: LogWriter) -> None:
    """The fence of the ledger: the writer continues under the new one."""
    writer.append(rows(1))
    confirmed(writer)
    writer.append(rows(2))
    writer.persist(1).result(0)
    Ledger(store, "a").commit(lambda state: give_up(state, state.fence))
    with pytest.raises(SupersededError) as superseded:
        writer.confirm(1, 2, 1)
    assert superseded.value.code == "CHANGE_SETS_GIVEN_UP"
    assert "1 to 1" in superseded.value.message
    assert writer.append(rows(2)) == 2
    writer.flush()
    assert ids(store) == [[1], [2]]
    assert len(paths(store)) == 2


def test_an_unknown_log_needs_a_shape(changelog: Changelog) -> None:
    with pytest.raises(NotFoundError):
        changelog.log("a")
    with pytest.raises(InvalidInputError):
        changelog.log("../a", SHAPE)


def test_a_log_keeps_its_shape(store: BreakingStore, changelog: Changelog, writer: LogWriter) -> None:
    """I28."""
    other = replace(SHAPE, columns=(Column("id", "int"), Column("text", "int")))
    with pytest.raises(RefusedError):
        changelog.log("a", other)
    writer.append(rows(1))
    confirmed(writer)
    with pytest.raises(RefusedError):
        make_changelog(store).log("a", other)
    assert changelog.log("a") is changelog.log("a", SHAPE)


def test_a_local_result_is_offered_only_if_all_parts_have_a_copy(store: BreakingStore, local: BreakingStore) -> None:
    """C8: otherwise the primary result alone."""
    writer = make_changelog(store, local=local).log("a", SHAPE)
    writer.append(rows(1))
    first = writer.persist(0).result(0)
    assert first.local == tuple(one.path for one in first.change_sets)
    local.breaks("close", times=1)
    writer.append(rows(2))
    assert writer.persist(0).result(0).local is None
    assert writer.persist(1).result(0).local is None
    writer.append(rows(3))
    assert writer.persist(2).result(0).local is not None


def test_the_log_says_why_no_local_result_is_offered(
    store: BreakingStore, local: BreakingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C8."""
    said: list[str] = []
    monkeypatch.setattr(
        "tidefold.changelog.writer.log_writer._LOGGER.info", lambda text, *given: said.append(text % given)
    )
    writer = make_changelog(store, local=local).log("a", SHAPE)
    writer.append(rows(1))
    local.breaks("open")
    [one] = writer.persist(0).result(0).change_sets
    assert said == [f"Log `a`: no local result, `{one.path}` has no local copy"]


def test_a_confirm_hands_local_copies_over_and_drops_older_ones(store: BreakingStore, local: BreakingStore) -> None:
    """C9: those of the snapshot just confirmed stay."""
    writer = make_changelog(store, local=local).log("a", SHAPE)
    writer.append(rows(1))
    confirmed(writer, snapshot=1)
    assert len(paths(local)) == 1
    writer.append(rows(2))
    confirmed(writer, snapshot=2)  # From 0 on: snapshot 2 uses both.
    assert len(paths(local)) == 2
    writer.append(rows(3))
    writer.persist(2).result(0)
    writer.confirm(2, 3, 3)  # Snapshot 3 uses the last one alone.
    assert len(paths(local)) == 1
    assert len(paths(store)) == 3
    assert writer.persist(0).result(0).local is None
    assert writer.persist(2).result(0).local is not None


def test_the_local_copy_of_an_unconfirmed_change_set_goes_with_it(store: BreakingStore, local: BreakingStore) -> None:
    """C5, C6."""
    writer = make_changelog(store, local=local).log("a", SHAPE)
    writer.append(rows(1))
    writer.persist(0).result(0)
    assert len(paths(local)) == 1
    writer.truncate(1)
    assert (paths(store), paths(local)) == ([], [])


def test_reset_prunes_exactly_the_aborted_snapshot(store: BreakingStore, local: BreakingStore) -> None:
    """C1, C7."""
    writer = make_changelog(store, local=local).log("a", SHAPE)
    writer.append(rows(1))
    confirmed(writer, snapshot=1)
    writer.append(rows(2))
    writer.persist(1).result(0)
    writer.confirm(1, 2, 1)
    writer.reset(0, 2, 7)
    assert len(paths(local)) == 2
    writer.reset(0, 2, 1)
    assert paths(local) == []
    assert ids(store) == [[1], [2]]
    assert writer.persist(0).result(0).local is None


def test_subsume_drops_the_copies_that_only_older_snapshots_use(store: BreakingStore, local: BreakingStore) -> None:
    """C1: strictly older ones. The snapshot of the call keeps its copies."""
    writer = make_changelog(store, local=local).log("a", SHAPE)
    writer.append(rows(1))
    confirmed(writer, snapshot=3)
    writer.subsume(2)
    assert len(paths(local)) == 1
    writer.subsume(3)
    assert len(paths(local)) == 1
    writer.subsume(4)
    assert paths(local) == []
    assert ids(store) == [[1]]


def test_a_shared_local_copy_stays_for_the_log_that_has_not_confirmed(
    store: BreakingStore, local: BreakingStore
) -> None:
    """C9: snapshot numbers are a log's own."""
    timer = FakeTimer()
    changelog = make_changelog(store, timer=timer, local=local, settings={"persist_delay": 1.0})
    a, b = changelog.log("a", SHAPE), changelog.log("b", SHAPE)
    a.append(rows(1))
    b.append(rows(2))
    a.persist(0)
    b.persist(0)
    timer.move(1.0)
    a.confirm(0, 1, 1)
    a.subsume(2)
    assert len(paths(local)) == 1
    b.confirm(0, 1, 5)
    assert b.persist(0).result(0).local is not None
    b.subsume(6)
    assert paths(local) == []


def test_a_local_failure_costs_nothing_but_the_copy(store: BreakingStore, local: BreakingStore) -> None:
    """C6, I15: also one that fails at removing."""
    for at in ("open", "write", "tell", "close", "delete"):
        local.breaks(at)
        log = make_changelog(store, local=local, settings={"name": at}).log("a", SHAPE)
        log.append(rows(1))
        log.flush()
        log.subsume(99)
    assert ids(store) == [[1]] * 5


def test_leaving_the_context_flushes_everything() -> None:
    store = DictStore()
    with make_changelog(store) as changelog:
        for name in ("a", "b"):
            changelog.log(name, SHAPE).append(rows(1))
    assert (ids(store, "a"), ids(store, "b")) == ([[1]], [[1]])
    with pytest.raises(RefusedError):
        changelog.log("a")


def test_leaving_the_context_with_an_error_gives_up_the_rest() -> None:
    store = DictStore()

    def fail() -> None:
        with make_changelog(store) as changelog:
            log = changelog.log("a", SHAPE)
            log.append(rows(1))
            log.flush()
            log.append(rows(2))
            log.persist(1).result(0)
            raise KeyError("a")

    with pytest.raises(KeyError):
        fail()
    assert ids(store) == [[1]]
    assert len(paths(store)) == 1


def test_one_log_that_fails_stops_no_other(store: BreakingStore) -> None:
    changelog = make_changelog(store)
    bad, good = changelog.log("a", SHAPE), changelog.log("b", SHAPE)
    rival = make_changelog(store).log("a", SHAPE)
    rival.append(rows(5))
    rival.flush()
    bad.append(rows(1))
    good.append(rows(2))
    with pytest.raises(ConflictError):
        changelog.flush()
    assert ids(store, "b") == [[2]]


def test_a_closed_log_can_be_opened_again(store: BreakingStore, changelog: Changelog, writer: LogWriter) -> None:
    writer.append(rows(1))
    writer.flush()
    writer.close()
    again = changelog.log("a")
    again.append(rows(2))
    again.flush()
    assert ids(store) == [[1], [2]]


def test_a_flush_keeps_no_more_than_it_needs(store: BreakingStore, local: BreakingStore) -> None:
    """Without local copies nothing that is confirmed; with them, what no snapshot has folded yet."""
    plain = make_changelog(store).log("a", SHAPE)
    copied = make_changelog(store, local=local, settings={"name": "copied"}).log("a", SHAPE)
    for number in range(5):
        for log in (plain, copied):
            log.append(rows(number))
            log.flush()
    assert len(plain._pending.change_sets) == 0
    assert len(copied._pending.change_sets) == 5
    assert len(paths(local)) == 5
