"""What the random lives and the crash simulator found, each as the shortest story; and guards that no life reaches.

Promises I3, I4, I10, I12, I20, I22.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from model.world import small_pages
from support.builders import SHAPE, appended, arrival, manifest_of, new_log, verdict_for
from support.dict_store import DictStore
from tidefold.changelog import write_intents
from tidefold.changelog.segment import write_segment
from tidefold.changelog.write_intents import Intent, IntentLog
from tidefold.domain.ingest.append import append
from tidefold.domain.log_state import ChangeSet, Consumer, DeletionState, LogState, SnapshotKind
from tidefold.domain.paths import LogPaths
from tidefold.domain.retention import log_bounds, references
from tidefold.domain.retention.log_bounds import Grace
from tidefold.domain.snapshot import claim, transitions
from tidefold.errors import AlreadyExistsError, ConflictError, RefusedError, SupersededError
from tidefold.ledger import Ledger
from tidefold.operations.ground import recovery
from tidefold.operations.ground.sweep import plan_halves
from tidefold.operations.retention.truncate import plan_orphans, plan_release

INSTANT = "2026-01-01T00:00:00+00:00"


def confirmed(state: LogState, run: str) -> LogState:
    state = claim.claim(appended(state), claim.Claim(run, "r", SnapshotKind.FULL, INSTANT))
    attempt = state.open_attempt
    assert attempt
    state = transitions.stage(state, manifest_of(state, attempt), f"digest-{attempt.id}")
    assert state.open_attempt
    return transitions.confirm(transitions.judge(state, attempt.id, verdict_for(state.open_attempt)), attempt.id)


def published(state: LogState, run: str) -> LogState:
    state = confirmed(state, run)
    assert state.latest
    return transitions.record_publication(state, state.latest.id, state.latest.id - 1)


def test_pages_that_a_stray_version_names_stay_for_the_writer_who_moves_again() -> None:
    """He sleeps before his put while his place is pruned; woken, he names the same pages in a version that counts."""
    store = DictStore()
    with small_pages():
        ledger = Ledger(store, "accounts")
        ledger.begin(SHAPE)
        for _ in range(3):
            ledger.commit(appended)
        slept = Ledger(store, "accounts")
        real, asleep = store.put_if_absent, [True]

        def put(path: str, data: bytes) -> None:
            if "/ledger/" in path and asleep:
                asleep.clear()
                for _ in range(4):
                    others = Ledger(store, "accounts")
                    others.commit(lambda state: references.register(state, Consumer("x", len(state.consumers))))
                    others.commit(lambda state: references.unregister(state, "x"))
                Ledger(store, "accounts").prune(keep=2)
            real(path, data)

        store.put_if_absent = put  # type: ignore[method-assign]
        state = slept.commit(lambda state: append(state, [arrival(state)]))
        store.put_if_absent = real  # type: ignore[method-assign]
        assert Ledger(store, "accounts").prune(keep=2)
        assert Ledger(store, "accounts").read() == state


def test_a_run_that_somebody_else_squashed_with_more_is_gone_and_no_crash() -> None:
    state = published(new_log(), "run")
    for _ in range(4):
        state = appended(state)
    one, other = state.unfolded[:2], state.unfolded[:3]
    rest = appended(appended(log_bounds.compact(state, _squash_of(other))))
    with pytest.raises(ConflictError) as gone:
        log_bounds.compact(rest, _squash_of(one))
    assert gone.value.code == "RUN_GONE"


def _squash_of(run: tuple[ChangeSet, ...]) -> ChangeSet:
    location = replace(run[-1].location, segment=f"changelog/squash-{len(run)}.seg")
    return replace(run[-1], first=run[0].begin, location=location)


def test_a_segment_whose_beginning_was_cut_is_needed_again_when_its_writer_brings_the_rest() -> None:
    state = published(new_log(), "run")
    segment = state.change_sets[0].location.segment
    cut = log_bounds.truncate(state, 1)
    assert cut.garbage == (segment,)
    rest = arrival(cut)
    assert rest.change_set
    location = replace(rest.change_set.location, segment=segment, ordinal=1)
    told = append(cut, [replace(rest, change_set=replace(rest.change_set, location=location))])
    assert told.garbage == ()
    assert segment in log_bounds.truncate(published(told, "next"), 1).garbage


def test_a_writer_who_told_a_log_of_one_change_set_and_was_given_up_cannot_tell_it_of_another() -> None:
    store = DictStore({"changelog/x.seg": b"bytes"})
    ledger = Ledger(store, "accounts")
    fence = ledger.begin(SHAPE).fence
    write_intents.begin(
        store, Intent("writer", 0, INSTANT, (IntentLog("accounts", SHAPE, fence),), ("changelog/x.seg",))
    )
    ledger.commit(lambda state: append(state, [_in_segment(state, 0)], fence))
    [run] = write_intents.read_announced(store)
    recovery.recover_run(store, run)
    assert "changelog/x.seg" in store.files
    with pytest.raises(SupersededError):
        ledger.commit(lambda state: append(state, [_in_segment(state, 1)], fence))


def _in_segment(state: LogState, ordinal: int):  # type: ignore[no-untyped-def]
    found = arrival(state)
    assert found.change_set
    location = replace(found.change_set.location, segment="changelog/x.seg", ordinal=ordinal)
    return replace(found, change_set=replace(found.change_set, location=location))


def test_a_segment_stays_whose_writer_brought_the_rest_between_the_cut_and_the_look_at_who_needs_it() -> None:
    store = DictStore()
    change = pa.table({"_op": pa.array([0], pa.int8()), "_kg": pa.array([0], pa.int32())})
    write_segment(store, "changelog/x.seg", [("accounts", change)] * 2)
    ledger = Ledger(store, "accounts")
    ledger.begin(SHAPE)
    ledger.commit(lambda state: append(state, [_in_segment(state, 0)]))
    ledger.commit(lambda state: published(state, "run"))
    cut = ledger.commit(lambda state: log_bounds.truncate(state, 1))
    assert [entry.path for entry in plan_release(store, cut).unneeded] == ["changelog/x.seg"]
    ledger.commit(lambda state: append(state, [_in_segment(state, 1)]))
    assert plan_release(store, cut).unneeded == ()


def test_an_interrupted_drop_of_one_log_does_not_stop_the_others_of_its_run() -> None:
    store = DictStore()
    ledger = Ledger(store, "accounts")
    fence = ledger.begin(SHAPE).fence
    write_intents.begin(store, Intent("run", 0, INSTANT, (IntentLog("accounts", SHAPE, fence),), ("changelog/x.seg",)))
    ledger.commit(lambda state: replace(state, deletion=DeletionState.GOING))
    [run] = write_intents.read_announced(store)
    recovery.recover_run(store, run)
    assert list(write_intents.read_announced(store)) == []


def test_what_a_run_wrote_after_it_was_given_up_is_found_when_nobody_names_it() -> None:
    store = DictStore()
    Ledger(store, "accounts").begin(SHAPE)
    quarantine = f"{LogPaths('accounts').quarantine}/x.jsonl"
    store.put_if_absent(quarantine, b"{}")
    store.unfinished["changelog/day/y.seg.0123.part"] = b"half"
    assert plan_orphans(store, ["accounts"]) == ("changelog/day/y.seg.0123.part", quarantine)
    logs = (IntentLog("accounts", SHAPE, 0),)
    write_intents.begin(store, Intent("run", 0, INSTANT, logs, ("changelog/day/y.seg", quarantine)))
    assert plan_orphans(store, ["accounts"]) == ()


def test_halves_are_left_only_where_somebody_may_still_complete_them() -> None:
    store, paths = DictStore(), LogPaths("accounts")
    state = Ledger(store, "accounts").begin(SHAPE)
    taken, free = f"{paths.ledger_version(1)}.0123.part", f"{paths.ledger_version(2)}.0123.part"
    store.unfinished |= {taken: b"", free: b""}
    assert plan_halves(store, state) == (taken,)


def test_what_readers_see_now_stays_though_no_grace_is_asked_for() -> None:
    """Its successor is confirmed and not published yet."""
    state = log_bounds.subsume(confirmed(published(new_log(), "one"), "two"), 1)
    assert log_bounds.list_subsumed(state)
    assert log_bounds.deletable(state, Grace(0), INSTANT) == ()


def test_a_base_that_moved_is_refused_also_when_nobody_fenced_the_attempt() -> None:
    state = confirmed(published(new_log(), "one"), "two")
    forged = replace(state, snapshots=tuple(replace(s, base=None) if s.id == 2 else s for s in state.snapshots))
    forged = forged.with_snapshot(replace(forged.snapshots[1], state=forged.snapshots[1].state.STAGED))
    with pytest.raises(SupersededError) as moved:
        transitions.confirm(forged, 2)
    assert moved.value.code == "BASE_MOVED"


def test_a_snapshot_is_not_confirmed_before_the_last_one_is_published() -> None:
    state = confirmed(published(new_log(), "one"), "two")
    first = replace(state.snapshots[0], table_version=None)
    forged = state.with_snapshot(first).with_snapshot(
        replace(state.snapshots[1], state=state.snapshots[1].state.STAGED)
    )
    with pytest.raises(RefusedError) as refused:
        transitions.confirm(forged, 2)
    assert refused.value.code == "NOT_PUBLISHED"


def test_a_version_is_put_once() -> None:
    store = DictStore()
    Ledger(store, "accounts").begin(SHAPE)
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent(LogPaths("accounts").ledger_version(1), b"")
