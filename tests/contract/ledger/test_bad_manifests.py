"""Damaged, forged and foreign ledgers, manifests and claims: bad inputs 65 to 78. Promises I11, I23.

Each is a typed error that says so and what to do; no step deletes or changes a file because of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.pipelines import CONFIG, contents, copy_pipeline, judge_all, make_pipeline, put, table_rows
from tidefold.compute.runners import in_process
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot import claim as claims
from tidefold.errors import CorruptError, RefusedError, TidefoldError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, read_rows
from tidefold.operations.inspect.status import status
from tidefold.operations.requests import Fold
from tidefold.operations.retention.clean import clean, drop
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.compact_log import compact_log, take_tail
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize

PATHS = LogPaths("accounts")
KEEPS_TWO = CONFIG.replace("store: store", "store: store\nretention: {snapshots: 2}")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three published snapshots, of which one may be retired, and changes that wait."""
    made = make_pipeline(tmp_path_factory.mktemp("template"), KEEPS_TWO)
    for number in range(3):
        put(made, [{"id": i, "text": f"{number} {i}"} for i in range(20)])
        materialize(made, ["accounts"], Fold(f"run-{number}"), in_process)
        judge_all(made)
        assert confirm(made, "accounts", Confirmation(run=f"run-{number}")).status == "published"
    put(made, [{"id": 1, "text": "waits"}])
    put(made, [{"id": 1, "text": "waits more"}])
    return made.config.path.parent


@pytest.fixture
def pipeline(template: Path, tmp_path: Path) -> Pipeline:
    return copy_pipeline(template, tmp_path)


def head_path(pipeline: Pipeline) -> Path:
    return sorted((pipeline.config.path.parent / "store" / PATHS.ledger).iterdir())[-1]


def overwrite(path: Path, data: bytes) -> None:
    path.chmod(0o600)
    # A file of its own: the store's own are immutable, and may be one file with another name.
    path.unlink()
    path.write_bytes(data)


def forged(pipeline: Pipeline, change: Callable[[LogState], LogState]) -> None:
    """The newest head, changed, with checksums that fit: as if a bug had written it."""
    ledger = pipeline.ledger("accounts")
    state = change(ledger.read())
    pages, recent = ledger._pages.split(state)
    overwrite(head_path(pipeline), ledger._encode(state, pages, recent, "forger"))


def with_head(pipeline: Pipeline, change: Callable[[dict[str, Any]], None]) -> None:
    head = json.loads(head_path(pipeline).read_bytes())
    change(head)
    head["checksum"] = hashlib.sha256(body := json.dumps(head["state"]).encode()).hexdigest()
    text = json.dumps({**head, "state": "STATE"}).encode().replace(b'"STATE"', body)
    overwrite(head_path(pipeline), text)


def acts(pipeline: Pipeline) -> dict[str, Callable[[], object]]:
    """Everything that works on a log, and above all what deletes."""

    def first(outcomes: list[Outcome]) -> Outcome:
        return outcomes[-1]

    return {
        "materialize": lambda: first(materialize(pipeline, ["accounts"], Fold("run-x"), in_process)),
        "subsume": lambda: subsume(pipeline, "accounts"),
        "truncate": lambda: truncate(pipeline, "accounts"),
        "drop": lambda: drop(pipeline, "accounts", plan=False),
        "clean": lambda: first(clean(pipeline, ["accounts"])),
        "confirm": lambda: confirm(pipeline, "accounts"),
        "abort": lambda: abort(pipeline, "accounts", "asked"),
        "tail": lambda: take_tail(pipeline, "accounts", "tail-x"),
        "squash": lambda: compact_log(pipeline, "accounts"),
    }


def error_of(act: Callable[[], object]) -> str | None:
    try:
        outcome = act()
    except TidefoldError as error:
        return error.code if error.hint else "without a hint"
    return outcome.error_code if isinstance(outcome, Outcome) else None


def check_refused_everywhere(pipeline: Pipeline, code: str) -> None:
    store = pipeline.config.path.parent / "store"
    before = contents(store)
    for name, act in acts(pipeline).items():
        assert error_of(act) == code, name
        assert contents(store) == before, name
    [one] = status(pipeline, ["accounts"])
    assert one.error is not None
    assert one.error.error_code == code
    assert "Next:" in one.error.message


def change_set(state: LogState, key_groups: KeyGroups | None = None, **where: Any) -> LogState:
    """The newest change set is stored elsewhere, or names other key groups."""
    *others, last = state.change_sets
    last = replace(last, location=replace(last.location, **where), key_groups=key_groups or last.key_groups)
    return replace(state, change_sets=(*others, last))


def snapshot(state: LogState, **changes: Any) -> LogState:
    return state.with_snapshot(replace(state.snapshots[-1], **changes))


HEADS: dict[str, tuple[Callable[[Path], None], str]] = {
    "65 empty": (lambda path: overwrite(path, b""), "UNREADABLE"),
    "66 truncated": (lambda path: overwrite(path, path.read_bytes()[:-20]), "UNREADABLE"),
    "66 no JSON": (lambda path: overwrite(path, b"\xff\xfe\x00"), "UNREADABLE"),
    "69 altered": (lambda path: overwrite(path, path.read_bytes().replace(b'"epoch":3', b'"epoch":4')), "CHECKSUM"),
}


@pytest.mark.parametrize("case", HEADS)
def test_a_damaged_head(pipeline: Pipeline, case: str) -> None:
    damage, code = HEADS[case]
    damage(head_path(pipeline))
    check_refused_everywhere(pipeline, code)


def test_67_a_head_with_fields_that_no_version_knows(pipeline: Pipeline) -> None:
    with_head(pipeline, lambda head: head.update(colour="red"))
    check_refused_everywhere(pipeline, "STORE_NEWER")


def test_68_a_head_of_a_newer_version(pipeline: Pipeline) -> None:
    with_head(pipeline, lambda head: head.update(format=99, colour="red"))
    check_refused_everywhere(pipeline, "STORE_NEWER")


def test_70_a_head_under_another_number(pipeline: Pipeline) -> None:
    path = head_path(pipeline)
    number = int(path.stem) + 1
    path.with_name(f"{number:010d}.json").write_bytes(path.read_bytes())
    check_refused_everywhere(pipeline, "LEDGER_MISPLACED")


STATES: dict[str, tuple[Callable[[LogState], LogState], str]] = {
    "71 completed and aborted": (
        lambda s: replace(s, snapshots=(*s.snapshots, replace(s.snapshots[-1], state=State.ABORTED))),
        "SNAPSHOT_TWICE",
    ),
    "72 missing base": (lambda s: snapshot(s, base=99), "BASE_MISSING"),
    "72 a base that is itself": (lambda s: snapshot(s, base=s.snapshots[-1].id), "BASE_MISSING"),
    "73 a segment outside": (lambda s: change_set(s, segment="../outside.seg"), "PATH_OUTSIDE_ROOT"),
    "73 garbage outside": (lambda s: replace(s, garbage=("/etc/passwd",)), "PATH_OUTSIDE_ROOT"),
    "74 a snapshot that ends before it begins": (lambda s: snapshot(s, to_sqn=0, from_sqn=2), "RANGE_NEGATIVE"),
    "74 a negative length": (lambda s: change_set(s, length=-5), "RANGE_NEGATIVE"),
    "75 a change set twice": (
        lambda s: change_set(s, segment=s.change_sets[-2].location.segment, ordinal=s.change_sets[-2].location.ordinal),
        "SEGMENT_TWICE",
    ),
    "77 a missing change set": (
        lambda s: replace(s, change_sets=(*s.change_sets[:-2], s.change_sets[-1])),
        "SQN_GAP",
    ),
}


@pytest.mark.parametrize("case", STATES)
def test_a_state_that_cannot_be(pipeline: Pipeline, case: str) -> None:
    change, code = STATES[case]
    forged(pipeline, change)
    check_refused_everywhere(pipeline, code)


def test_77_a_missing_page(pipeline: Pipeline) -> None:
    for number in range(70):
        put(pipeline, [{"id": 1, "text": f"more {number}"}])
    page = next((pipeline.config.path.parent / "store" / "logs" / "accounts" / "pages").iterdir())
    head = json.loads(head_path(pipeline).read_bytes())
    named = [digest for pages in head["pages"].values() for digest in pages]
    page.with_name(f"{named[0]}.json").unlink()
    # A pipeline reads a page once: the next command finds that it is gone.
    check_refused_everywhere(replace(pipeline, pages={}), "FILE_MISSING")


def test_77_a_version_missing_below_the_newest_is_history_and_no_damage(pipeline: Pipeline) -> None:
    versions = sorted(head_path(pipeline).parent.iterdir())
    versions[2].unlink()
    assert take_tail(pipeline, "accounts", "tail").status == "completed"
    assert materialize(pipeline, ["accounts"], Fold("run-x"), in_process)[0].status == "staged"


MANIFESTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "65 empty": (lambda data: b"", "CHECKSUM"),
    "66 truncated": (lambda data: data[:-30], "CHECKSUM"),
    "67 more fields": (lambda data: data[:-1] + b',"colour":"red"}', "CHECKSUM"),
    "69 altered": (lambda data: data.replace(b'"rows":', b'"rows": ', 1), "CHECKSUM"),
}


def manifest_file(pipeline: Pipeline, snapshot: int) -> Path:
    return pipeline.config.path.parent / "store" / PATHS.manifest(snapshot)


def check_manifest_refused(pipeline: Pipeline, code: str) -> None:
    """The newest snapshot's manifest is damaged: nothing is built on it, and nothing goes."""
    store = pipeline.config.path.parent / "store"
    table = table_rows(pipeline)
    data = {p: b for p, b in contents(store).items() if "/ledger/" not in p and "/manifest" not in p}
    for name in ("subsume", "materialize"):
        assert error_of(acts(pipeline)[name]) == code, name
    with pytest.raises(CorruptError) as corrupt:
        list(read_rows(pipeline, "accounts", ReadRequest())[1])
    assert corrupt.value.code == code
    after = {p: b for p, b in contents(store).items() if "/ledger/" not in p and "/manifest" not in p}
    assert after == data
    assert table_rows(pipeline) == table


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_damaged_manifest(pipeline: Pipeline, case: str) -> None:
    damage, code = MANIFESTS[case]
    path = manifest_file(pipeline, 3)
    overwrite(path, damage(path.read_bytes()))
    check_manifest_refused(pipeline, code)


def with_manifest(pipeline: Pipeline, **changes: Any) -> None:
    """The manifest of snapshot 3, changed, and a ledger that names it so: as if a bug had staged it."""
    path = manifest_file(pipeline, 3)
    data = msgspec.json.encode({**json.loads(path.read_bytes()), **changes})
    overwrite(path, data)
    digest = hashlib.sha256(data).hexdigest()
    forged(pipeline, lambda s: snapshot(s, manifest=digest))


def test_70_a_manifest_of_another_snapshot(pipeline: Pipeline) -> None:
    with_manifest(pipeline, snapshot=2)
    check_manifest_refused(pipeline, "MANIFEST_OF_ANOTHER")


def test_73_a_manifest_that_names_files_outside(pipeline: Pipeline) -> None:
    files = json.loads(manifest_file(pipeline, 3).read_bytes())["files"]
    with_manifest(pipeline, files=[{**files[0], "name": "../../../outside.parquet"}, *files[1:]])
    check_manifest_refused(pipeline, "DATA_FILE_NAME")


def test_75_a_manifest_that_names_a_file_twice(pipeline: Pipeline) -> None:
    files = json.loads(manifest_file(pipeline, 3).read_bytes())["files"]
    with_manifest(pipeline, files=[*files, files[0]])
    check_manifest_refused(pipeline, "MANIFEST_INVALID")


def test_73_a_segment_name_never_leaves_the_store(pipeline: Pipeline, tmp_path: Path) -> None:
    outside = tmp_path / "outside.seg"
    outside.write_bytes(b"somebody else's")
    forged(pipeline, lambda s: replace(s, garbage=("../outside.seg",)))
    assert error_of(acts(pipeline)["truncate"]) == "PATH_OUTSIDE_ROOT"
    assert outside.read_bytes() == b"somebody else's"


def claim(run: str, **more: Any) -> claims.Claim:
    return claims.Claim(run, "request", SnapshotKind.FULL, "2999-01-01T00:00:00+00:00", **more)


def attempt(pipeline: Pipeline, instant: str) -> Snapshot:
    asked = replace(claim("other"), instant=instant)
    state = pipeline.ledger("accounts").commit(lambda now: claims.claim(now, asked))
    assert state.open_attempt
    return state.open_attempt


@pytest.mark.parametrize("instant", ["1999-01-01T00:00:00+00:00", "2999-01-01T00:00:00+00:00"])
def test_76_an_open_attempt_blocks_whatever_its_clock_said(pipeline: Pipeline, instant: str) -> None:
    """A claim of a dead, a living and a future writer look the same: only its progress or a person tells."""
    seen = attempt(pipeline, instant)
    before = contents(pipeline.config.path.parent / "store")
    assert error_of(acts(pipeline)["materialize"]) == "ATTEMPT_OPEN"
    assert contents(pipeline.config.path.parent / "store") == before
    ledger = pipeline.ledger("accounts")
    ledger.commit(lambda now: now.with_snapshot(replace(seen, run="renewed")))
    with pytest.raises(RefusedError) as alive:
        ledger.commit(lambda now: claims.claim(now, claim("mine", stalled=claims.WatchedAttempt(seen, 0))))
    assert alive.value.code == "ATTEMPT_OPEN"
    still = ledger.read().open_attempt
    assert still
    taken = ledger.commit(lambda now: claims.claim(now, claim("mine", stalled=claims.WatchedAttempt(still, 1))))
    assert taken.open_attempt
    assert (taken.open_attempt.run, taken.open_attempt.epoch) == ("mine", seen.epoch + 1)


def test_78_a_ledger_that_names_a_table_version_that_is_not_there(pipeline: Pipeline) -> None:
    store = pipeline.config.path.parent / "store"
    log = sorted((store / PATHS.table / "_delta_log").glob("*.json"))
    log[-1].unlink()
    materialize(pipeline, ["accounts"], Fold("run-3"), in_process)
    judge_all(pipeline)
    before = {p: b for p, b in contents(store).items() if "/ledger/" not in p}
    with pytest.raises(TidefoldError) as refused:
        confirm(pipeline, "accounts", Confirmation(run="run-3"))
    assert refused.value.code == "FOREIGN_COMMIT"
    assert refused.value.hint
    after = {p: b for p, b in contents(store).items() if "/ledger/" not in p}
    assert after == before


def test_an_index_entry_that_names_bytes_beyond_the_segment(pipeline: Pipeline) -> None:
    forged(pipeline, lambda s: change_set(s, offset=10**9, length=10**9))
    outcome = materialize(pipeline, ["accounts"], Fold("run-x"), in_process)[0]
    assert outcome.error_code in (None, "SEGMENT_CORRUPT")


def test_a_change_set_that_says_other_key_groups_than_it_has(pipeline: Pipeline) -> None:
    """Its checksum is of the segment's own index, so the fold reads what is there and not what is said."""
    forged(pipeline, lambda s: change_set(s, checksum="00" * 32, key_groups=KeyGroups(0, 15)))
    assert materialize(pipeline, ["accounts"], Fold("run-x"), in_process)[0].error_code == "SEGMENT_CORRUPT"
