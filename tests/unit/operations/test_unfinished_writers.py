"""What is left of writers that died or were given up: who may still complete it, what nobody needs. I12, I20, I22."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from support.builders import SHAPE, appended, arrival, manifest_of, verdict_for
from support.dict_store import DictStore
from support.segments import write_segment
from tidefold.changelog import write_intents
from tidefold.changelog.write_intents import Intent, IntentLog
from tidefold.domain.ingest.append import append
from tidefold.domain.log_state import DeletionState, LogState, SnapshotKind
from tidefold.domain.paths import LogPaths
from tidefold.domain.retention import log_bounds
from tidefold.domain.snapshot import claim, transitions
from tidefold.errors import SupersededError
from tidefold.ledger import Ledger
from tidefold.operations.ground import recovery
from tidefold.operations.ground.sweep import plan_halves
from tidefold.operations.retention.truncate import SegmentUse, plan_orphans, plan_release

INSTANT = "2026-01-01T00:00:00+00:00"


def published(state: LogState) -> LogState:
    state = claim.claim(appended(state), claim.Claim("run", "r", SnapshotKind.FULL, INSTANT))
    state = transitions.stage(state, manifest_of(state, state.snapshots[-1]), "digest")
    state = transitions.record_verdict(state, 1, verdict_for(state.snapshots[-1]))
    return transitions.record_publication(transitions.confirm(state, 1), 1, 0)


def put_in_segment(state: LogState, ordinal: int):  # type: ignore[no-untyped-def]
    found = arrival(state)
    assert found.change_set
    location = replace(found.change_set.location, segment="changelog/x.seg", ordinal=ordinal)
    return replace(found, change_set=replace(found.change_set, location=location))


def test_a_writer_who_told_a_log_of_one_change_set_and_was_given_up_cannot_tell_it_of_another() -> None:
    store = DictStore({"changelog/x.seg": b"bytes"})
    ledger = Ledger(store, "accounts")
    fence = ledger.begin(SHAPE).fence
    write_intents.begin(
        store, Intent("writer", 0, INSTANT, (IntentLog("accounts", SHAPE, fence),), ("changelog/x.seg",))
    )
    ledger.commit(lambda state: append(state, [put_in_segment(state, 0)], fence))
    [run] = write_intents.read_announced(store)
    recovery.recover_run(store, run)
    assert "changelog/x.seg" in store.files
    with pytest.raises(SupersededError):
        ledger.commit(lambda state: append(state, [put_in_segment(state, 1)], fence))


def test_a_segment_stays_whose_writer_brought_the_rest_between_the_cut_and_the_look_at_who_needs_it() -> None:
    store = DictStore()
    change = pa.table({"_op": pa.array([0], pa.int8()), "_kg": pa.array([0], pa.int32())})
    write_segment(store, "changelog/x.seg", [("accounts", change)] * 2)
    ledger = Ledger(store, "accounts")
    ledger.begin(SHAPE)
    ledger.commit(lambda state: append(state, [put_in_segment(state, 0)]))
    ledger.commit(lambda state: published(state))
    cut = ledger.commit(lambda state: log_bounds.truncate(state, 1))
    assert [entry.path for entry in plan_release(SegmentUse(store), cut).unneeded] == ["changelog/x.seg"]
    ledger.commit(lambda state: append(state, [put_in_segment(state, 1)]))
    assert plan_release(SegmentUse(store), cut).unneeded == ()


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
