"""Stores that released code wrote stay readable, and live on: promise I27, decision 0013.

Every archive in tests/data/golden is taken, so a later format is added by dropping a file there. In each lies the
store as its code left it, with the landed files, local copies, and `truth.json`: what must be read of it. The rows of
the truth come from a dict that took every change.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.golden import (
    ARCHIVES,
    Fields,
    Golden,
    add_fields,
    check_kept_rows,
    check_old_versions,
    check_table,
    end_what_waits,
    fold,
    kept_rows,
    one_more,
    read,
    retire,
    rows_of,
    state_of,
    table,
    unpacked,
)
from support.pipelines import contents
from tidefold.changelog import write_intents
from tidefold.compute.runners import in_process
from tidefold.domain.explain.key_history import RowAgreement
from tidefold.domain.log_state import SnapshotKind, State
from tidefold.domain.paths import FIRST_FORMAT, STORED_FORMAT, LogPaths
from tidefold.domain.retention import log_bounds
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.errors import TidefoldError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.read import ReadRequest, What
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.inspect.explain_key import explain_key
from tidefold.operations.inspect.status import history, status
from tidefold.operations.quarantine.inspect import count_refused
from tidefold.operations.requests import Fold
from tidefold.operations.retention.clean import clean, drop
from tidefold.operations.retention.references import hold, tag
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.compact_log import compact_log, take_tail
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import verify

# What this version writes and no archive has yet: allowed until it is released, then an archive has it (decision 0013).
UNRELEASED: set[str] = set()


def named(archive: Path) -> str:
    return archive.name.partition(".")[0]


@pytest.fixture(params=ARCHIVES, ids=named)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return unpacked(request.param, tmp_path)


@pytest.fixture(scope="module", params=ARCHIVES, ids=named)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """One for all tests that only read."""
    return unpacked(request.param, tmp_path_factory.mktemp("golden"))


def test_every_row_is_read_as_it_was_written(kept: Golden) -> None:
    before = contents(kept.root)
    for log, truth in kept.logs.items():
        check_table(kept, log, truth["table"])
        assert read(kept, log, ReadRequest(What.LIVE)) == truth["live"]
        state = state_of(kept, log)
        ids = [s.id for s in state.snapshots if s.state in (State.COMPLETED, State.STAGED)]
        assert ids == list(kept_rows(truth))
        changes = rows_of(kept, log, ReadRequest(What.LOG))
        assert len(changes) == sum(number for _, _, number in truth["change_sets"])
    check_kept_rows(kept, {log: kept_rows(truth) for log, truth in kept.logs.items()})
    assert contents(kept.root) == before


def test_one_key_is_found(kept: Golden) -> None:
    """Keys are spread over the files as they were: another hash would look in the wrong bucket."""
    for log, truth in kept.logs.items():
        key = kept.pipeline.log(log).shape.key
        for row in truth["live"][:3]:
            wanted = ReadRequest(What.LIVE, key=json.dumps({name: row[name] for name in key}))
            assert read(kept, log, wanted) == [row]


def test_rows_are_explained_and_refused_records_counted(kept: Golden) -> None:
    before = contents(kept.root)
    for log, truth in kept.logs.items():
        key = kept.pipeline.log(log).shape.key
        for row in truth["live"][:3]:
            found = explain_key(kept.pipeline, log, json.dumps({name: row[name] for name in key}), live=True)
            assert json.loads(json.dumps(found.row, default=lambda value: value.isoformat())) == row
            assert found.standing in (RowAgreement.MADE, RowAgreement.CUT)
        counted = sum(one.count for one in count_refused(kept.pipeline, log))
        assert counted == len(truth["refused"]) == status(kept.pipeline, [log])[0].quarantined
    assert contents(kept.root) == before


def test_verify_finds_nothing_wrong(kept: Golden) -> None:
    before = contents(kept.root)
    for log in kept.logs:
        outcome = verify(kept.pipeline, log)
        assert (outcome.status, outcome.facts["damage"], outcome.facts["warnings"]) == ("whole", [], [])
        assert outcome.facts["files"]
    assert contents(kept.root) == before


def test_history_and_status_are_what_they_were(kept: Golden) -> None:
    before = contents(kept.root)
    for log, truth in kept.logs.items():
        found = [*reversed(history(kept.pipeline, log))]
        assert len(found) == len(truth["history"])
        for snapshot, told in zip(found, truth["history"], strict=True):
            own = msgspec.to_builtins(snapshot)
            own |= {"passed": snapshot.verdict.passed if snapshot.verdict else None}
            assert {name: own[name] for name in told} == told
        [one] = status(kept.pipeline, [log])
        assert one.error is None
        assert [s.id if s else None for s in (one.latest, one.attempt)] == [truth["latest"], truth["attempt"]]
        for name in ("tags", "holds", "consumers"):
            assert [dataclasses.asdict(entry) for entry in getattr(one, name)] == truth[name]
        assert one.garbage == truth["garbage"]
    assert contents(kept.root) == before


def test_the_log_and_what_keeps_it_are_what_they_were(kept: Golden) -> None:
    for log, truth in kept.logs.items():
        state = state_of(kept, log)
        assert [[c.begin, c.sqn, c.rows] for c in state.change_sets] == truth["change_sets"]
        bounds = log_bounds.bounds(state, kept.pipeline.config.retention.keep)
        assert [[bound.name, bound.sqn] for bound in bounds] == truth["bounds"]
        assert {name: msgspec.to_builtins(state)[name] for name in truth["numbers"]} == truth["numbers"]
        assert (state.truncated_to, len(state.landed)) == (truth["truncated_to"], truth["landed"])
        assert state.positions[0].next_offset == truth["next_offset"]
        paths = dict.fromkeys(entry.quarantine for entry in state.landed if entry.quarantine)
        refused = [json.loads(line) for path in paths for line in kept.pipeline.store.read(path).splitlines()]
        assert [[r["reason"], r["file"], r["line"]] for r in refused] == truth["refused"]
    left = [
        {"written": r.takings is not None, "logs": sorted(r.logs)}
        for r in write_intents.read_announced(kept.pipeline.store)
    ]
    assert sorted(left, key=json.dumps) == sorted(kept.truth["left"], key=json.dumps)


def test_every_kept_version_of_the_ledger_is_read(kept: Golden) -> None:
    assert any(truth["oldest"]["version"] > 1 for truth in kept.logs.values()), "nothing was pruned"
    check_old_versions(kept)


def test_files_that_were_links_are_links(kept: Golden) -> None:
    """The archive is the store as it was, or verify and repair would count copies that never were."""
    store, shared = kept.pipeline.store, 0
    for log in kept.logs:
        beside = {Path(e.path).name: e.path for e in store.list(f"{LogPaths(log).table}/_data")}
        for entry in store.list(LogPaths(log).snapshots):
            if Path(entry.path).name in beside:
                assert store.identity(entry.path) == store.identity(beside[Path(entry.path).name])
                shared += 1
    assert shared


def test_local_copies_are_offered_at_the_address_that_they_were_made_for(golden: Golden) -> None:
    """L1, I16. Their folder is named after the store's address: unpacked elsewhere, the store has none."""
    for one in status(golden.pipeline, list(golden.logs)):
        assert one.local == ()
    [made] = (golden.root / "local").iterdir()
    digest = hashlib.sha256(golden.pipeline.store.uri("").encode()).hexdigest()
    here = made.rename(made.with_name(f"store-{digest[:8]}"))
    for one in status(golden.pipeline, list(golden.logs)):
        truth = golden.logs[one.log]
        assert list(one.local) == truth["local"]
        for snapshot in one.local:
            assert table(here / one.log / f"{snapshot:010d}") == kept_rows(truth)[snapshot]
        assert verify(golden.pipeline, one.log).status == "whole"
    segments = [path.relative_to(here) for path in here.rglob("*.seg")]
    assert segments
    for path in segments:
        assert (here / path).read_bytes() == golden.pipeline.store.read(str(path))


def test_the_life_goes_on(golden: Golden) -> None:
    """I5, I10, I18: every step of the life cycle on what older code wrote."""
    rows = {log: kept_rows(truth) for log, truth in golden.logs.items()}
    end_what_waits(golden)
    for log, truth in golden.logs.items():
        # Made by the run that was killed in the fold, and came again.
        rows[log].setdefault(state_of(golden, log).snapshots[-1].id, truth["live"])
    for log, now in one_more(golden, "gone on").items():
        rows[log][fold(golden, log, "life-1")] = now
        check_table(golden, log, now)
    check_kept_rows(golden, rows)
    for log in golden.logs:
        oldest = next(s.id for s in log_bounds.with_files(state_of(golden, log).snapshots) if s.id in rows[log])
        rows[log][fold(golden, log, "life-2", RestorePoint(oldest, RestoreMode.SKIP))] = rows[log][oldest]
        check_table(golden, log, rows[log][oldest])
    for log, now in one_more(golden, "after the restore").items():
        rows[log][fold(golden, log, "life-3")] = now
        check_table(golden, log, now)
    check_old_versions(golden)
    before = {log: state_of(golden, log) for log in rows}
    retire(golden)
    for log in golden.logs:
        state = state_of(golden, log)
        deleted = [[s.id for s in one.snapshots if s.state is State.DELETED] for one in (before[log], state)]
        assert deleted[0] < deleted[1]
        assert state.truncated_to >= before[log].truncated_to
        assert verify(golden.pipeline, log).status == "whole"
        assert read(golden, log, ReadRequest(What.LIVE)) == rows[log][max(rows[log])]
    check_kept_rows(golden, rows)
    assert all(outcome.status == "nothing" for outcome in clean(golden.pipeline, list(golden.logs)))


def acts(golden: Golden, log: str) -> dict[str, Callable[[], object]]:
    """What works on a log besides what test_bad_manifests (case 68) calls."""
    pipeline = golden.pipeline
    return {
        "ingest": lambda: ingest(pipeline, [log], in_process)[0],
        "materialize": lambda: materialize(pipeline, [log], Fold("x"), in_process)[0],
        "confirm": lambda: confirm(pipeline, log),
        "subsume": lambda: subsume(pipeline, log),
        "truncate": lambda: truncate(pipeline, log),
        "clean": lambda: clean(pipeline, [log])[-1],
        "drop": lambda: drop(pipeline, log, plan=False),
        "tail": lambda: take_tail(pipeline, log, "x"),
        "squash": lambda: compact_log(pipeline, log),
        "tag": lambda: tag(pipeline, log, "x", 1),
        "hold": lambda: hold(pipeline, log, "x", 1, "x"),
        "verify": lambda: verify(pipeline, log),
        "read": lambda: read(golden, log),
        "status": lambda: status(pipeline, [log])[0].error,
    }


def refusal(act: Callable[[], object]) -> tuple[str | None, str]:
    try:
        outcome = act()
    except TidefoldError as error:
        return error.code, f"{error.message} {error.hint}"
    assert isinstance(outcome, Outcome)
    return outcome.error_code, outcome.message


def test_a_store_of_a_newer_version_is_refused_by_name(golden: Golden) -> None:
    """I23: a program on a newer store says what to do, and changes nothing."""
    for log in golden.logs:
        head = max((golden.root / "store" / LogPaths(log).ledger).iterdir())
        data = json.loads(head.read_bytes())
        head.unlink()
        head.write_text(json.dumps({**data, "format": STORED_FORMAT + 1, "another field": 1}))
    before = contents(golden.root)
    for log in golden.logs:
        for name, act in acts(golden, log).items():
            code, message = refusal(act)
            assert (code, "Update tidefold" in message) == ("STORE_NEWER", True), (name, message)
        assert contents(golden.root) == before, log


def names_of(kind: Any) -> Sequence[str]:
    return [one.name for one in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind._fields


def test_every_stored_field_and_kind_is_in_a_golden_store(tmp_path: Path) -> None:
    """If this fails, a stored value has a new field or kind: decision 0013 says what to do."""
    stores = [unpacked(archive, tmp_path / archive.name) for archive in ARCHIVES]
    found: Fields = defaultdict(set)
    for golden in stores:
        add_fields(golden, found)
    told = [one for golden in stores for truth in golden.logs.values() for one in truth["history"]]
    there = {f"{kind.__name__}.{name}" for kind, names in found.items() for name in names}
    there |= {f"Kind.{one['kind']}" for one in told} | {f"State.{one['state']}" for one in told}
    needed = {f"{kind.__name__}.{name}" for kind in found for name in names_of(kind)}
    needed |= {f"Kind.{kind}" for kind in SnapshotKind} | {f"State.{state}" for state in State}
    assert needed - there <= UNRELEASED
    assert not UNRELEASED & there, "an archive has it now: take its name out"
    assert {golden.truth["format"] for golden in stores} == set(range(FIRST_FORMAT, STORED_FORMAT + 1))
