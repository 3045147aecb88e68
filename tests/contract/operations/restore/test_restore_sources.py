"""From where the rows of a restored snapshot come when copies are damaged: local, the store, an older snapshot and the
log; and that a restore fails, and changes nothing, exactly when all of them do. Real stores, no Spark.

Requirements L6, L7, N7, C10; promises I5, I10, I13, I16, I17. Row "restore" of the fault matrix: 7 x 3 x 3.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from support.faults import Fault, FaultyStore, Killed
from support.pipelines import make_pipeline, put, rows_of, snapshot_rows, table_rows, with_log_shape
from support.restoring import (
    BATCHES,
    FIRST,
    LOG,
    SECOND,
    THIRD,
    Bench,
    bench,
    configured,
    copy_of,
    cycle,
    files_of,
    flip,
    names_of,
    publish,
    restore,
    rows_after,
    spoil,
    stored,
    take,
)
from tidefold.compute.runners import TaskAnswer, TaskWork, in_process
from tidefold.domain.log_state import SnapshotKind, State
from tidefold.domain.paths import LogPaths, data_path
from tidefold.domain.retention import log_bounds
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint
from tidefold.errors import TidefoldError
from tidefold.fold import inputs
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Restore
from tidefold.operations.retention.subsume import find_files_to_delete, subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.compact_log import take_tail
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import VerifyRequest, verify
from tidefold.storage.local_store import LocalStore

LOCAL = ("ok", "missing", "partial", "corrupt", "stale id", "wrong pipeline", "unreadable")
PRIMARY = ("ok", "missing", "corrupt")
OLDER = ("ok", "corrupt", "none")


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bench]:
    """With snapshot 1 to fall back on, without it, and another pipeline with a log of the same name and ids. The log
    is cut behind the oldest kept snapshot, so that it alone can make none.
    """
    root = tmp_path_factory.mktemp("restore")
    return {
        "three": bench(root / "three", configured(), only_copy=2),
        "two": bench(root / "two", configured(retention="2"), only_copy=2),
        "other": bench(root / "other", configured(), only_copy=2),
    }


def harm_local(pipeline: Pipeline, how: str, other: Pipeline) -> None:
    folder = copy_of(pipeline, 2)
    files = sorted((folder / "_data").iterdir())
    if how in ("missing", "wrong pipeline"):
        shutil.rmtree(folder)
    if how == "wrong pipeline":
        shutil.copytree(copy_of(other, 2), folder)
    for path in files[::2] if how == "partial" else files if how == "unreadable" else []:
        path.unlink()
    for path in files if how == "unreadable" else []:
        path.mkdir()
    for path in files if how == "corrupt" else []:
        flip(path)
    if how == "stale id":
        make_stale(pipeline, folder)


def make_stale(pipeline: Pipeline, folder: Path) -> None:
    """Ids began anew with the store: the copy under this id is of another snapshot."""
    others = {f.key_groups: f.name for f in files_of(pipeline, 3)}
    for file in files_of(pipeline, 2):
        other = data_path(LogPaths(LOG).snapshot(3), others[file.key_groups])
        (folder / "_data" / file.name).write_bytes(pipeline.store.read(other))
    (folder / "manifest").write_bytes(pipeline.store.read(LogPaths(LOG).manifest(3)))


def expected_sources(pipeline: Pipeline, local: str, primary: str, older: str) -> dict[str, str] | None:
    """The place that serves each file of snapshot 2, or None when one cannot be had."""
    names = sorted(f.name for f in files_of(pipeline, 2))
    good = {"ok": names, "partial": names[1::2]}.get(local, [])
    found = {}
    for name in names:
        if name in good:
            found[name] = f"local:{LOG}/0000000002/_data/{name}"
        elif primary == "ok":
            found[name] = f"store:tables/{LOG}/_data/{name}"
        elif older == "ok":
            found[name] = "older:1"
        else:
            return None
    return found


@pytest.mark.rotates(6)
@pytest.mark.parametrize("older", OLDER)
@pytest.mark.parametrize("primary", PRIMARY)
@pytest.mark.parametrize("local", LOCAL)
def test_each_file_comes_from_the_first_place_that_has_it(
    benches: dict[str, Bench], local: str, primary: str, older: str
) -> None:
    """L6, L7, I16, I17."""
    pipeline = benches["two" if older == "none" else "three"].reset()
    expected = expected_sources(pipeline, local, primary, older)
    wanted = {f.name for f in files_of(pipeline, 2)}
    harm_local(pipeline, local, benches["other"].reset())
    if primary != "ok":
        spoil(pipeline, 2, primary)
    if older == "corrupt":
        spoil(pipeline, 1, "corrupt")
    before = stored(pipeline)
    outcome = restore(pipeline, 2)
    if expected is None:
        check_failed(pipeline, outcome, before, wanted)
        return
    assert outcome.status == "staged", outcome
    read = outcome.facts["read"]
    sources = read["sources"]
    assert {name: sources[name] for name in wanted} == expected
    check_account(read, expected)
    publish(pipeline)
    assert table_rows(pipeline) == snapshot_rows(pipeline, 4) == SECOND
    check_whole(pipeline, 4)


def check_account(read: dict[str, Any], expected: dict[str, str]) -> None:
    """The sums and the lists say the same as the files."""
    at = [place.partition(":")[0] for place in expected.values()]
    assert read["local"]["files"] == at.count("local")
    assert len(read["older"]) == at.count("older")
    # Of an older one the base file and the change set are read, both from the store.
    assert read["store"]["files"] == at.count("store") + 2 * at.count("older")
    assert all(one["why"] and one["seconds"] >= 0 for one in read["failed"])
    tried = {(one["file"], one["place"].partition(":")[0]) for one in read["failed"]}
    for name, place in expected.items():
        if place.startswith("older:"):
            assert (name, "store") in tried


def check_whole(pipeline: Pipeline, snapshot: int) -> None:
    found = verify(pipeline, LOG, VerifyRequest(snapshot))
    assert found.status == "whole", found


def check_failed(pipeline: Pipeline, outcome: Outcome, before: dict[str, bytes], wanted: set[str]) -> None:
    """A typed error that names each try; nothing is changed, nothing is left."""
    assert (outcome.status, outcome.error_code, outcome.error.exit_code) == ("error", "NO_GOOD_COPY", 5)
    assert any(name in outcome.message for name in wanted)
    assert outcome.message.count("store:tables/") + outcome.message.count("store:snapshots/") >= 2
    assert stored(pipeline) == before
    state = pipeline.ledger(LOG).read()
    assert (state.snapshots[-1].id, state.snapshots[-1].state) == (4, State.ABORTED)
    assert (state.open_attempt, state.latest and state.latest.id) == (None, 3)
    assert table_rows(pipeline) == THIRD


@pytest.mark.parametrize("bad", ["table", "snapshot", "both"])
def test_a_snapshot_with_bytes_of_its_own_serves_where_the_table_s_are_bad(tmp_path: Path, bad: str) -> None:
    """I17: with `copy_files: always` there are two copies in the store."""
    pipeline = bench(tmp_path, configured(local=False, copy_files="always")).reset()
    paths, names = LogPaths(LOG), [f.name for f in files_of(pipeline, 2)]
    for name in names:
        inodes = {path.stat().st_ino for path in names_of(pipeline, 2, name)}
        assert len(inodes) == 2
        for folder in {"table": [paths.table], "snapshot": [paths.snapshot(2)]}.get(
            bad, [paths.table, paths.snapshot(2)]
        ):
            flip(Path(pipeline.store.uri(data_path(folder, name))))
    sources = restore(pipeline, 2).facts["read"]["sources"]
    places = {"table": f"store:{paths.snapshot(2)}/_data/{{}}", "snapshot": f"store:{paths.table}/_data/{{}}"}
    served = places.get(bad, "older:1")
    assert {name: sources[name] for name in names} == {name: served.format(name) for name in names}
    publish(pipeline)
    assert table_rows(pipeline) == snapshot_rows(pipeline, 4) == SECOND
    check_whole(pipeline, 4)
    if bad != "snapshot":
        # Nobody is shown the damaged file again: what stood in for it has another name.
        assert not {f.name for f in files_of(pipeline, 4)} & set(names)


@pytest.mark.parametrize("older", OLDER)
def test_the_store_s_manifest_is_damaged(benches: dict[str, Bench], older: str) -> None:
    """I16: the local copy's serves, if it is the one that the ledger names; else an older snapshot's."""
    for local in ("ok", "stale id"):
        pipeline = benches["two" if older == "none" else "three"].reset()
        files = sorted(f.name for f in files_of(pipeline, 2))
        harm_local(pipeline, local, pipeline)
        path = Path(pipeline.store.uri(LogPaths(LOG).manifest(2)))
        if older == "corrupt":
            flip(path)
            flip(Path(pipeline.store.uri(LogPaths(LOG).manifest(1))))
        else:
            path.unlink()
        outcome = restore(pipeline, 2)
        if local == "stale id" and older != "ok":
            assert outcome.error_code in ("NO_GOOD_COPY", "CHECKSUM", "FILE_MISSING")
            assert outcome.error.exit_code == 5
            assert pipeline.ledger(LOG).read().snapshots[-1].state is State.ABORTED
            continue
        said = [one["place"] for one in outcome.facts["manifests"]]
        assert said[0] == f"store:{LogPaths(LOG).manifest(2)}"
        sources = outcome.facts["read"]["sources"]
        if local == "ok":
            assert all(sources[name].startswith("local:") for name in files)
        else:
            assert set(outcome.facts["read"]["older"].values()) == {1}
        publish(pipeline)
        assert table_rows(pipeline) == snapshot_rows(pipeline, 4) == SECOND
        check_whole(pipeline, 4)


def test_the_log_alone_serves_where_nothing_else_does(tmp_path: Path) -> None:
    """I5, I17: from the first change on."""
    pipeline = bench(tmp_path, configured(local=False), cut=False).reset()
    for snapshot in (1, 2):
        spoil(pipeline, snapshot, "missing")
    outcome = restore(pipeline, 2)
    read = outcome.facts["read"]
    assert set(read["older"].values()) == {None}
    assert {read["sources"][f.name] for f in files_of(pipeline, 2)} == {"older:log"}
    publish(pipeline)
    assert table_rows(pipeline) == SECOND
    check_whole(pipeline, 4)


def test_the_chain_goes_on_from_one_older_snapshot_to_the_next(tmp_path: Path) -> None:
    """I17: bucket by bucket."""
    pipeline = bench(tmp_path, configured(local=False), only_copy=None).reset()
    [first, *rest] = sorted(files_of(pipeline, 3), key=lambda f: f.key_groups)
    spoil(pipeline, 3, "missing", {first.name, rest[0].name})
    [worse] = [f.name for f in files_of(pipeline, 2) if f.key_groups == first.key_groups]
    spoil(pipeline, 2, "corrupt", {worse})
    outcome = restore(pipeline, 3)
    assert outcome.facts["read"]["older"] == {"0-3": 1, "4-7": 2}
    sources = outcome.facts["read"]["sources"]
    assert [sources[f.name].partition("/")[0] for f in (first, *rest)] == [
        "older:1", "older:2", "store:tables", "store:tables",
    ]  # fmt: skip
    publish(pipeline)
    assert table_rows(pipeline) == THIRD
    check_whole(pipeline, 4)


INCREMENTAL = configured(local=False, kind="incremental")


@pytest.mark.rotates(6)
@pytest.mark.parametrize("kind", [KindPolicy.INCREMENTAL, KindPolicy.FULL])
@pytest.mark.parametrize(
    ("primary", "older"),
    [("ok", "ok"), ("missing", "ok"), ("corrupt", "ok"), ("missing", "corrupt"), ("corrupt", "none")],
)
def test_the_same_for_incremental_snapshots(tmp_path: Path, kind: KindPolicy, primary: str, older: str) -> None:
    """N2, N7: their files have one name in the store; restored as either kind."""
    config = INCREMENTAL.replace("snapshots: 3", "snapshots: 2") if older == "none" else INCREMENTAL
    pipeline = bench(tmp_path, config).reset()
    files = sorted(f.name for f in files_of(pipeline, 2))
    assert all(len(names_of(pipeline, 2, name)) == 1 for name in files)
    if primary != "ok":
        spoil(pipeline, 2, primary)
    if older == "corrupt":
        spoil(pipeline, 1, "corrupt")
    before = stored(pipeline)
    outcome = restore(pipeline, 2, kind=kind)
    if primary != "ok" and older != "ok":
        assert (outcome.status, outcome.error_code) == ("error", "NO_GOOD_COPY")
        assert stored(pipeline) == before
        return
    served = "older:1" if primary != "ok" else "store:tables/"
    assert all(outcome.facts["read"]["sources"][name].startswith(served) for name in files)
    publish(pipeline)
    assert table_rows(pipeline) == SECOND
    assert pipeline.ledger(LOG).read().snapshots[-1].kind is SnapshotKind(kind)
    check_whole(pipeline, 4)
    # And on from there, as either kind: replay folds the third batch again.
    for number, then in enumerate((KindPolicy.FULL, KindPolicy.INCREMENTAL)):
        cycle(pipeline, f"on-{number}", {100 + number: "later"}, then)
    assert table_rows(pipeline) == {**THIRD, 100: "later", 101: "later"}


@pytest.mark.rotates(6)
@pytest.mark.parametrize("local", ["ok", "partial", "corrupt"])
@pytest.mark.parametrize("primary", ["ok", "missing"])
def test_a_local_copy_of_an_incremental_snapshot_serves_too(tmp_path: Path, local: str, primary: str) -> None:
    """L6, L7, N7."""
    made = bench(tmp_path, INCREMENTAL)
    plain = made.reset()
    pipeline = make_pipeline(made.work, configured(kind="incremental"))
    folder = copy_of(pipeline, 2)
    (folder / "_data").mkdir(parents=True)
    files = sorted(f.name for f in files_of(plain, 2))
    for name in files:
        shutil.copyfile(plain.store.uri(data_path(LogPaths(LOG).table, name)), folder / "_data" / name)
    shutil.copyfile(plain.store.uri(LogPaths(LOG).manifest(2)), folder / "manifest")
    good = {"ok": files, "partial": files[1:], "corrupt": []}[local]
    for name in set(files) - set(good):
        (folder / "_data" / name).unlink() if local == "partial" else flip(folder / "_data" / name)
    if primary == "missing":
        spoil(pipeline, 2, "missing")
    outcome = restore(pipeline, 2, kind=KindPolicy.FULL)
    assert outcome.status == "staged", outcome
    sources = outcome.facts["read"]["sources"]
    rest = "store:tables" if primary == "ok" else "older:1"
    assert {name: sources[name].partition("/")[0] for name in files} == {
        name: f"local:{LOG}" if name in good else rest for name in files
    }
    publish(pipeline)
    assert table_rows(pipeline) == snapshot_rows(pipeline, 4) == SECOND
    check_whole(pipeline, 4)


@pytest.mark.rotates(6)
@pytest.mark.parametrize("kind", ["full", "incremental"])
@pytest.mark.parametrize(("primary", "older"), [("ok", "ok"), ("corrupt", "ok"), ("missing", "none")])
def test_the_same_for_tails(tmp_path: Path, kind: str, primary: str, older: str) -> None:
    """C10, I10: of a tail the base is made from what is left of it, and its changes are folded in."""
    pipeline = bench(tmp_path, configured(local=False, kind=kind)).reset()
    take(pipeline, {5: None, 60: "tail"})
    assert take_tail(pipeline, LOG, "tail").snapshot == 4
    take(pipeline, {61: "after"})
    files = sorted(f.name for f in files_of(pipeline, 3))
    if primary != "ok":
        spoil(pipeline, 3, primary)
    if older == "none":
        spoil(pipeline, 1, "missing")
        spoil(pipeline, 2, "missing")
    before = stored(pipeline)
    outcome = restore(pipeline, 4, RestoreMode.SKIP)
    if older == "none":
        assert (outcome.error_code, outcome.error.exit_code) == ("NO_GOOD_COPY", 5)
        assert stored(pipeline) == before
        return
    served = "older:2" if primary != "ok" else "store:"
    assert all(outcome.facts["read"]["sources"][name].startswith(served) for name in files)
    publish(pipeline)
    assert table_rows(pipeline) == rows_after(*BATCHES, {5: None, 60: "tail"})
    check_whole(pipeline, 5)


def test_an_unreadable_local_root_is_no_reason_to_fail(benches: dict[str, Bench], tmp_path: Path) -> None:
    """I15."""
    pipeline = benches["three"].reset()
    (tmp_path / "file").write_text("no folder")
    outcome = restore(replace(pipeline, local=LocalStore(tmp_path / "file" / "local")), 2)
    assert outcome.status == "staged", outcome
    assert outcome.facts["read"]["local"]["files"] == 0


def test_after_every_cut_what_is_kept_still_restores(tmp_path: Path) -> None:
    """I10, N7: also where a kept snapshot's own files are lost and the log is cut behind the oldest of the newest N."""
    pipeline = bench(tmp_path, configured(local=False, retention="2")).reset()
    truths = {2: SECOND, 3: THIRD}
    for number in range(4, 7):
        cycle(pipeline, f"run-{number}", {i: f"r{number} {i}" for i in range(number, 40)})
        truths[number] = table_rows(pipeline)
        subsume(pipeline, LOG)
        truncate(pipeline, LOG)
        state = pipeline.ledger(LOG).read()
        kept = [s.id for s in state.snapshots if s.state is State.COMPLETED]
        assert kept == [number - 1, number]
        made = Bench(tmp_path / "work", tmp_path / f"template-{number}", pipeline.config.path.read_text())
        shutil.copytree(tmp_path / "work", made.template)
        for lost in (False, True):
            copy = made.reset()
            if lost:
                spoil(copy, number, "missing")
            outcome = restore(copy, number)
            assert outcome.status == "staged", outcome
            assert set(outcome.facts["read"]["older"].values()) == ({number - 1} if lost else set())
            publish(copy)
            assert table_rows(copy) == truths[number]
        pipeline = made.reset()


def test_rows_that_went_for_their_age_do_not_come_back(tmp_path: Path) -> None:
    """N10, I5: also not where the rows are made again from a snapshot that still has them."""
    config = configured(local=False).replace("{id: int, text: string}", "{id: int, text: string, day: date}")
    aged = config.replace("    buckets: 4\n", "    buckets: 4\n    ttl: {column: day, days: 30}\n", 1)
    new, old = date(2999, 1, 1), date(2000, 1, 1)
    pipeline = make_pipeline(tmp_path, config)
    put_days(pipeline, {1: new, 2: old, 3: old})
    cycle(pipeline, "run-1", {})
    pipeline = make_pipeline(tmp_path, aged)
    put_days(pipeline, {4: new})
    cycle(pipeline, "run-2", {})
    assert set(rows_of(pipeline.store.uri(LogPaths(LOG).table))) == {1, 4}
    spoil(pipeline, 2, "missing")
    for number, (config_now, kind) in enumerate(
        [
            (aged, KindPolicy.FULL),
            (aged, KindPolicy.INCREMENTAL),
            (config, KindPolicy.FULL),
            (config, KindPolicy.INCREMENTAL),
        ],
        1,
    ):
        pipeline = make_pipeline(tmp_path, config_now)
        asking = Restore(f"back-{number}", RestorePoint(2, RestoreMode.REPLAY), kind=kind)
        [outcome] = materialize(pipeline, [LOG], asking, in_process)
        assert outcome.status == "staged", outcome
        assert set(outcome.facts["read"]["older"].values()) == {1}
        publish(pipeline)
        assert set(rows_of(pipeline.store.uri(LogPaths(LOG).table))) == {1, 4}
        spoil(pipeline, 2 + number, "missing")


def test_an_older_way_that_would_bring_aged_rows_back_is_no_way(tmp_path: Path) -> None:
    """N10, I5: behind an incremental snapshot lies one that dropped rows, and nothing drops them any more."""
    config = configured(local=False).replace("{id: int, text: string}", "{id: int, text: string, day: date}")
    aged = config.replace("    buckets: 4\n", "    buckets: 4\n    ttl: {column: day, days: 30}\n", 1)
    new, old = date(2999, 1, 1), date(2000, 1, 1)
    for number, (config_now, days, kind) in enumerate(
        [
            (config, {1: new, 2: old}, KindPolicy.FULL),
            (aged, {3: new}, KindPolicy.FULL),
            (aged, {1: new}, KindPolicy.INCREMENTAL),
        ],
        1,
    ):
        pipeline = make_pipeline(tmp_path, config_now)
        put_days(pipeline, days)
        cycle(pipeline, f"run-{number}", {}, kind)
    assert set(rows_of(pipeline.store.uri(LogPaths(LOG).table))) == {1, 3}
    spoil(pipeline, 3, "missing")
    spoil(pipeline, 2, "missing")
    pipeline = make_pipeline(tmp_path, config)
    refused = restore(pipeline, 3)
    assert (refused.status, refused.error_code) == ("error", "NO_GOOD_COPY")
    # Where the restore itself drops them, the first one serves.
    pipeline = make_pipeline(tmp_path, aged)
    asking = Restore("again", RestorePoint(3, RestoreMode.REPLAY), kind=KindPolicy.FULL)
    [outcome] = materialize(pipeline, [LOG], asking, in_process)
    assert 1 in outcome.facts["read"]["older"].values(), outcome
    publish(pipeline)
    assert set(rows_of(pipeline.store.uri(LogPaths(LOG).table))) == {1, 3}


def put_days(pipeline: Pipeline, days: dict[int, Any]) -> None:
    put(pipeline, [{"id": i, "text": f"t {i}", "day": day} for i, day in days.items()])


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[Pipeline], None]:
    """Lets tasks read and write through the failing store of a pipeline."""

    def through(pipeline: Pipeline) -> None:
        real = inputs.open_store

        def opens(address: str, base: Path) -> Any:
            return pipeline.store if address == pipeline.store.uri("") else real(address, base)

        monkeypatch.setattr(inputs, "open_store", opens)

    return through


@pytest.mark.rotates(2)
@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.KILLED_AFTER])
def test_a_failure_at_any_call_to_the_store_leaves_no_file_of_the_restore(
    benches: dict[str, Bench], opened: Callable[[Pipeline], None], monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """I13, I19: where some files come from the local copy, some from the store, some are made again."""

    def damaged(at: int | None = None) -> Pipeline:
        monkeypatch.undo()
        pipeline = benches["three"].reset()
        files = sorted(files_of(pipeline, 2), key=lambda f: f.key_groups)
        folder = copy_of(pipeline, 2) / "_data"
        for file in files[1:]:
            (folder / file.name).unlink()
        spoil(pipeline, 2, "missing", {files[2].name})
        failing = replace(pipeline, store=FaultyStore(benches["three"].work / "store", at=at, fault=fault))
        opened(failing)
        return failing

    def act(pipeline: Pipeline) -> Outcome:
        asking = Restore("back", RestorePoint(2, RestoreMode.REPLAY))
        return materialize(pipeline, [LOG], asking, in_process)[0]

    whole = damaged()
    assert act(whole).facts["read"]["older"] == {"8-11": 1}
    assert isinstance(whole.store, FaultyStore)
    calls = whole.store.calls
    assert calls > 8
    for at in range(calls):
        pipeline = damaged(at)
        before = stored_in_primary(pipeline)
        with suppress(Killed, TidefoldError):
            act(pipeline)
        monkeypatch.undo()
        again = make_pipeline(benches["three"].work, benches["three"].config)
        assert table_rows(again) == THIRD
        abort(again, LOG, "by hand")
        left = stored_in_primary(again)
        assert {name for name in left if name not in before} == set(), (at, fault)
        assert left == before
        assert restore(again, 2).status in ("staged", "already")
        publish(again)
        assert table_rows(again) == SECOND


def stored_in_primary(pipeline: Pipeline) -> dict[str, bytes]:
    return {name: data for name, data in stored(pipeline).items() if not name.startswith("local/")}


def test_what_is_said_is_plain_json(benches: dict[str, Bench]) -> None:
    pipeline = benches["three"].reset()
    spoil(pipeline, 2, "corrupt")
    said = json.loads(json.dumps(restore(pipeline, 2).to_dict()))
    assert set(said["facts"]["read"]) == {"local", "store", "external", "failed", "older", "sources"}
    assert FIRST != SECOND


def test_a_lost_manifest_of_the_newest_snapshot_holds_up_neither_fold_nor_confirm(tmp_path: Path) -> None:
    """L6: the local copy's serves, as the ledger knows it by its checksum."""
    made = bench(tmp_path, configured(local=True), only_copy=3)
    pipeline = made.reset()
    Path(pipeline.store.uri(LogPaths(LOG).manifest(3))).unlink()
    cycle(pipeline, "run-4", {1: "d"})
    assert table_rows(pipeline) == rows_after(*BATCHES, {1: "d"})


def test_what_a_restore_may_fall_back_on_is_not_retired_under_it(tmp_path: Path) -> None:
    """I10, I12, I14: the rows of a damaged snapshot are made from an older one whose file is taken over by its name; a
    clean-up that was planned meanwhile must not remove it.
    """
    pipeline = make_pipeline(tmp_path, configured(local=False, retention="2"))
    wide = with_log_shape(pipeline, buckets=8)
    cycle(wide, "run-1", FIRST)
    cycle(pipeline, "run-2", {}, KindPolicy.FULL)  # The same rows in other files: four buckets.
    cycle(pipeline, "run-3", {i: f"c {i}" for i in range(40)})
    cycle(pipeline, "run-4", {i: f"d {i}" for i in range(40)})
    going: list[str] = []

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        wanted = pipeline.ledger(LOG).commit(lambda state: log_bounds.subsume(state, 2))
        retired = log_bounds.deletable(wanted, pipeline.config.retention.grace, "2030-01-01T00:00:00+00:00")
        going.extend(e.path for e in find_files_to_delete(pipeline.store, wanted, retired))
        return in_process(work, tasks)

    for file in files_of(pipeline, 2):
        for path in names_of(pipeline, 2, file.name):
            path.unlink()
    asking = Restore("back", RestorePoint(2, RestoreMode.SKIP), kind=KindPolicy.INCREMENTAL)
    [outcome] = materialize(pipeline, [LOG], asking, run)
    assert outcome.status == "staged", outcome
    publish(pipeline)
    pipeline.store.delete(going)
    assert table_rows(pipeline) == FIRST
