"""Each field of a log's state has an origin after a rebuild, an import and a restore: nothing is state that neither
manifest nor savepoint has (I29).
"""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from support.builders import appended, manifest_of, new_log, verdict_for
from tidefold.domain.external_snapshot import External, Layout, Ownership
from tidefold.domain.ledger_evidence import Proof, rebuild
from tidefold.domain.log_state import (
    Consumer,
    FollowedTtl,
    Hold,
    LandedFileRecord,
    LogState,
    SnapshotKind,
    Stopped,
    Tag,
)
from tidefold.domain.snapshot import claim, transitions
from tidefold.domain.snapshot.claim import Claim, RestoreMode, RestorePoint
from tidefold.domain.source_progress import NO_POSITION, NameReading
from tidefold.domain.source_progress_history import progress_at
from tidefold.domain.table.types import Schema
from tidefold.domain.uploads import UploadTotals

SAME, NEW, AGAIN, LOST = "as at the snapshot", "a new value", "begins again", "lost, and said"
# Field -> after a rebuild of a lost ledger, after an import into a new log. A restore keeps all but what it begins.
ORIGINS = {
    "log": (SAME, SAME),
    "shape": (SAME, SAME),
    "version": (NEW, NEW),
    "epoch": (SAME, NEW),
    "change_sets": (LOST, AGAIN),
    "landed": (SAME, SAME),
    "positions": (SAME, SAME),
    "names": (SAME, SAME),
    "last_file": (SAME, SAME),
    "snapshots": (SAME, NEW),
    "tags": (LOST, AGAIN),
    "holds": (LOST, AGAIN),
    "consumers": (LOST, AGAIN),
    "truncated_to": (NEW, NEW),
    "lost_from": (NEW, AGAIN),
    "garbage": (AGAIN, AGAIN),
    "deletion": (AGAIN, AGAIN),
    "last_snapshot": (AGAIN, AGAIN),
    "fence": (NEW, AGAIN),
    "generation": (AGAIN, AGAIN),
    "stopped": (LOST, AGAIN),
    "schemas": (SAME, AGAIN),
    "incarnation": (NEW, NEW),
    "former": (AGAIN, AGAIN),
    "landing": (AGAIN, AGAIN),
    "uploads": (AGAIN, AGAIN),
    "followed_ttl": (SAME, SAME),
    "folders": (AGAIN, AGAIN),
}


def lived() -> LogState:
    """A log of plain rows with a published snapshot, and every field set."""
    state = appended(appended(new_log()))
    named = (replace(entry, next_offset=0, stream=NO_POSITION, name=f"f{entry.number}.csv") for entry in state.landed)
    schema = Schema(1, state.shape.columns, (1, 2), "2026-01-01T00:00:00+00:00", "r")
    state = replace(
        state,
        landed=tuple(named),
        positions=tuple(replace(one, next_offset=0, stream=NO_POSITION) for one in state.positions),
        names=NameReading.ANY,
        incarnation="abc",
        schemas=(schema,),
        fence=3,
        uploads=UploadTotals(segments=2),
        followed_ttl=FollowedTtl(4, 3),
        garbage=("x.seg",),
        folders=("../landing/accounts",),
    )
    state = claim.claim(state, Claim("one", "r", SnapshotKind.FULL, "2026-01-01T00:00:00+00:00", token="t"))
    assert state.open_attempt
    attempt = state.open_attempt
    manifest = replace(
        manifest_of(state, attempt), claim=attempt, schemas=state.schemas, progress=progress_at(state, attempt.to_sqn)
    )
    state = transitions.stage(state, manifest, "digest")
    assert state.open_attempt
    state = transitions.record_verdict(state, 1, verdict_for(state.open_attempt))
    state = transitions.record_publication(transitions.confirm(state, 1), 1, 0)
    return replace(
        state,
        tags=(Tag("t", 1),),
        holds=(Hold("h", 1, "why"),),
        consumers=(Consumer("c", 1),),
        former=("old",),
        stopped=Stopped("r", "ann", "a savepoint", "/save", "2026-01-01T00:00:00+00:00"),
    )


def manifest(state: LogState) -> Proof:
    [snapshot] = state.snapshots
    made = manifest_of(state, snapshot)
    progress = progress_at(state, snapshot.to_sqn)
    made = replace(made, claim=replace(snapshot, manifest=None), schemas=state.schemas, progress=progress)
    return Proof(made, snapshot.manifest or "", snapshot.table_version)


def files_of(state: LogState) -> list[tuple[object, ...]]:
    """What shows that a file was ingested: its number, name and bytes."""

    def known(entry: LandedFileRecord) -> tuple[object, ...]:
        return entry.number, entry.name, entry.length, entry.checksum, entry.records, entry.complete

    return [known(entry) for entry in state.landed]


def test_every_field_has_an_origin() -> None:
    assert set(ORIGINS) == {field.name for field in fields(LogState)}


def check(name: str, origin: str, before: LogState, after: LogState) -> None:
    old, new = getattr(before, name), getattr(after, name)
    if name == "landed":
        old, new = files_of(before), files_of(after)
    if name == "snapshots":
        old, new = ([(s.id, s.state, s.rows) for s in ones] for ones in (old, new))
    empty = getattr(LogState("accounts", before.shape), name)
    if origin == SAME:
        assert new == old, name
    elif origin in (AGAIN, LOST):
        assert new == empty, name
    else:
        assert new != empty or name in ("version", "lost_from"), name


@pytest.mark.parametrize("name", sorted(ORIGINS))
def test_a_rebuild_of_a_lost_ledger(name: str) -> None:
    state = lived()
    made = rebuild(LogState(state.log, state.shape), [manifest(state)], "new")
    check(name, ORIGINS[name][0], state, made.state)
    said = " ".join(made.unknown)
    for lost in ("change sets", "tags", "holds", "consumers", "stops"):
        assert lost in said
    assert made.state.last_file == state.last_file


@pytest.mark.parametrize("name", sorted(ORIGINS))
def test_an_import_into_a_new_log(name: str) -> None:
    state = lived()
    progress = progress_at(state, state.snapshots[0].to_sqn)
    original = External("/save", Ownership.NO_CLAIM, Layout.NATIVE, "ab", "accounts", 1, 2, progress)
    new = LogState(state.log, state.shape, version=1, incarnation="b")
    asked = Claim("in", "r", SnapshotKind.FULL, "2026-01-01T00:00:00+00:00", external=original, token="u")
    new = claim.claim(new, asked)
    assert new.open_attempt
    new = transitions.stage(new, manifest_of(new, new.open_attempt), "digest")
    assert new.open_attempt
    new = transitions.record_verdict(new, 1, verdict_for(new.open_attempt))
    after = transitions.record_publication(transitions.confirm(new, 1), 1, 0)
    check(name, ORIGINS[name][1], state, after)
    assert after.last_file == state.last_file


@pytest.mark.parametrize("mode", [RestoreMode.REPLAY, RestoreMode.SKIP])
def test_a_restore_keeps_all_but_its_own_snapshot(mode: RestoreMode) -> None:
    state = lived()
    asked = Claim("back", "r", SnapshotKind.FULL, "2026-01-01T00:00:00+00:00", restore=RestorePoint(1, mode), token="u")
    after = claim.claim(state, asked)
    changed = {f.name for f in fields(LogState) if getattr(state, f.name) != getattr(after, f.name)}
    assert changed == {"epoch", "snapshots"}
