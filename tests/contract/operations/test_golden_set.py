"""A store with a set that released code wrote stays readable, and lives on: promises I27 and I34, decision 0013.

The truth has the rows of both tables at each point, from dicts that took every transaction.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

from support.golden import SET_ARCHIVES, Golden, collect, listed, read, unpacked
from support.pipelines import contents, judge_all
from tidefold.compute.runners import in_process
from tidefold.domain.paths import STORED_FORMAT
from tidefold.domain.sets.set_state import SetState
from tidefold.errors import TidefoldError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.read import ReadRequest
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.inspect.status import status
from tidefold.operations.requests import Fold
from tidefold.operations.retention.clean import clean
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.sets.confirm import confirm_logs
from tidefold.operations.sets.read import find_tables, rebuild_set
from tidefold.operations.sets.restore import RestoreSet, restore_set
from tidefold.operations.sets.status import read_sets, release_set
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import verify

NAME, LOGS = "pair", ("left", "right")


@pytest.fixture(params=SET_ARCHIVES, ids=lambda archive: archive.name.partition(".")[0])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return unpacked(request.param, tmp_path)


def state_of(golden: Golden) -> SetState:
    return golden.pipeline.set_ledger(NAME).read()


def check_readers(golden: Golden, rows: dict[str, list[Any]]) -> None:
    """Requires that a plain reader of the pointer gets these rows of both tables."""
    for log, one in find_tables(golden.pipeline, NAME).items():
        assert listed(DeltaTable(one.address, version=one.version).to_pyarrow_table().to_pylist()) == rows[log], log


def check_versions(golden: Golden) -> None:
    """Requires that each version with files has its rows."""
    state, kept = state_of(golden), golden.truth["rows"]
    checked = {}
    for version in state.versions:
        rows = kept.get(str(version.number))
        for member in version.members if rows else ():
            found = read(golden, member.log, ReadRequest(snapshot=member.snapshot))
            assert found == rows[member.log], (version, member)
            checked[member.log, member.snapshot] = True
    assert len(checked) >= 2 * (len(kept) - 1)


def test_all_is_read_as_it_was_written_and_reading_changes_nothing(golden: Golden) -> None:
    before, truth, state = contents(golden.root), golden.truth, state_of(golden)
    assert json.loads(msgspec.json.encode(state)) == truth["state"]
    assert [[one.number, one.position, one.restored] for one in state.versions] == truth["versions"]
    assert state.published
    check_readers(golden, truth["rows"][str(state.published.number)])
    check_versions(golden)
    [one] = read_sets(golden.pipeline, status(golden.pipeline, list(LOGS)))
    assert (one.error, one.version, one.decided, one.lag) == (None, state.published.number, state.decided.number, 1)  # type: ignore[union-attr]
    assert "a snapshot by signal begins at offset" in " ".join(reason.why for reason in one.waits)
    assert all(verify(golden.pipeline, log).status == "whole" for log in LOGS)
    assert contents(golden.root) == before


def test_every_kept_version_of_the_ledger_is_read_and_has_every_field(golden: Golden) -> None:
    ledger, fields = golden.pipeline.set_ledger(NAME), defaultdict[Any, set[str]](set)
    paths = sorted((golden.root / "store/sets" / NAME / "ledger").iterdir())
    assert int(paths[0].stem) == golden.truth["oldest"] > 1
    states = [ledger.read_version(int(path.stem)) for path in paths]
    assert [one.version for one in states] == [int(path.stem) for path in paths]
    for path in paths:
        collect(SetState, json.loads(path.read_bytes())["state"], fields)
    for kind, names in fields.items():
        assert {one.name for one in dataclasses.fields(kind)} <= names, f"{kind}: decision 0013 says what to do"
    # Something of each kind, so that no list of the state is empty in all of them.
    for name in SetState.__dataclass_fields__:
        assert any(getattr(one, name) for one in states), name


def _fold(golden: Golden, run: str, request: Any = None) -> None:
    for outcome in materialize(golden.pipeline, LOGS, request or Fold(run), in_process):
        assert outcome.error is None, outcome
    _judge_and_confirm(golden, run)


def _judge_and_confirm(golden: Golden, run: str) -> None:
    for log in LOGS:
        judge_all(golden.pipeline, log)
    for outcome in confirm_logs(golden.pipeline, LOGS, run):
        assert outcome.error is None, outcome


def test_the_life_goes_on(golden: Golden) -> None:
    """What was decided is published, what held the set is released, the rest comes, an old version comes back."""
    pipeline, truth, begun = golden.pipeline, golden.truth, state_of(golden)
    assert begun.decided
    last, newest = truth["newest"]
    ingest(pipeline, LOGS, in_process)
    after = state_of(golden)
    assert after.published
    assert (after.published.number, after.decided) == (begun.decided.number, None)
    [chosen] = pipeline.config.sets.values()
    release_set(pipeline, chosen, after.published.position, "bob", "goes on")
    assert {outcome.error for outcome in ingest(pipeline, LOGS, in_process)} == {None}
    _fold(golden, "life-1")
    published = state_of(golden).published
    assert published
    assert (published.number, published.position) == (begun.decided.number + 1, last)
    check_readers(golden, newest)
    check_versions(golden)
    oldest = int(next(iter(truth["rows"])))
    request = RestoreSet("life-2", NAME, oldest)

    def step(logs: Sequence[str]) -> list[Outcome]:
        return materialize(pipeline, logs, request, in_process)

    assert not any(outcome.error for outcome in restore_set(pipeline, request, step))
    _judge_and_confirm(golden, "life-2")
    check_readers(golden, truth["rows"][str(oldest)])
    _fold(golden, "life-3")
    check_readers(golden, newest)
    for log in LOGS:
        for outcome in (subsume(pipeline, log), truncate(pipeline, log), *clean(pipeline, [log])):
            assert outcome.error is None, outcome
        assert verify(pipeline, log).status == "whole"
    check_readers(golden, newest)


def test_a_lost_ledger_is_made_again_from_the_tables(golden: Golden) -> None:
    before = state_of(golden).published
    for path in (golden.root / "store/sets" / NAME / "ledger").iterdir():
        path.unlink()
    assert rebuild_set(golden.pipeline, NAME, plan=False).error is None
    after = state_of(golden).published
    assert before
    assert after
    assert after.members == before.members
    check_readers(golden, golden.truth["rows"][str(before.number)])


def test_a_set_of_a_newer_version_is_refused_by_name(golden: Golden) -> None:
    """I23: a program on a newer store changes nothing. Ledgers of logs may follow the configuration."""

    def shown() -> dict[str, bytes]:
        return {
            path: data for path, data in contents(golden.root).items() if "/ledger/" not in path or "/sets/" in path
        }

    head = max((golden.root / "store/sets" / NAME / "ledger").iterdir())
    data = json.loads(head.read_bytes())
    head.unlink()
    head.write_text(json.dumps({**data, "format": STORED_FORMAT + 1, "another field": 1}))
    before = shown()
    acts = [
        lambda: find_tables(golden.pipeline, NAME),
        lambda: confirm_logs(golden.pipeline, LOGS, "x")[0],
        lambda: ingest(golden.pipeline, LOGS, in_process)[0],
        lambda: rebuild_set(golden.pipeline, NAME, plan=False),
        lambda: subsume(golden.pipeline, "left"),
    ]
    for act in acts:
        assert _refusal(act) == "STORE_NEWER"
        assert shown() == before


def _refusal(act: Callable[[], object]) -> str | None:
    try:
        outcome = act()
    except TidefoldError as error:
        return error.code
    assert isinstance(outcome, Outcome)
    return outcome.error_code
