"""verify: each kind of damage in each kind of copy is named exactly, and repaired only from a copy that is proved.

Requirements L1, N1; promises I10, I11, I12, I16, I17, I22, I23.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from support.arrival import Landing
from support.faults import Fault, FaultyStore, Killed
from support.local_copies import disk, grown, land, make, take
from support.pipelines import CONFIG, contents, judge_all, make_pipeline, publish, put, snapshot_rows, table_rows
from support.s3_server import S3Bucket
from support.segments import write_segment
from tidefold.changelog.segment import read_change_set
from tidefold.compute.runners import in_process
from tidefold.delta.published_table import COMMIT
from tidefold.domain.log_state import LogState
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.domain.table.table_spec import Column, TableSpec
from tidefold.domain.verify.expected_files import Damage, DamageKind, FileRole, StoredLocation
from tidefold.errors import NotFoundError, StorageError
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.sweep import manifest_files
from tidefold.operations.local_copies.manage import retain_local
from tidefold.operations.requests import Fold, Restore
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.compact_log import take_tail
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify import verify as verification
from tidefold.operations.verify.scope import _hint
from tidefold.operations.verify.verify import VerifyRequest, verify
from tidefold.storage.local_copies.roots import LocalRoots
from tidefold.storage.local_store import LocalStore

PATHS = LogPaths("accounts")
SHAPE = TableSpec(("id",), (Column("id", "long"),), "position", 4, 2)
HARMS = ("missing", "cut", "altered")


def put_and_publish(pipeline: Pipeline, run: str, changes: list[dict[str, Any]]) -> None:
    put(pipeline, changes)
    publish(pipeline, run)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Snapshots 1 and 2 are kept, 2 is published; 3 of 4 files are shared by both and the table."""
    made = make_pipeline(tmp_path)
    put_and_publish(made, "run-1", [{"id": i, "text": f"a {i}"} for i in range(100)])
    put_and_publish(made, "run-2", [{"id": 7, "text": "b"}])
    return made


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    made = grown(make(folder), 2)
    land(made, 90, 5)
    take(made)
    return folder


@pytest.fixture
def copied(template: Path, tmp_path: Path) -> Pipeline:
    """Two snapshots of `items` with local copies of both; the change sets after the second wait to be folded."""
    return on_copy(template, tmp_path / "copied")


def on_copy(template: Path, folder: Path) -> Pipeline:
    """Hard links stay links; the folder of the local copies keeps its name, made of the template's address."""
    shutil.rmtree(folder, ignore_errors=True)
    seen: dict[int, Path] = {}
    for path in sorted(p for p in template.rglob("*") if p.is_file()):
        to = folder / path.relative_to(template)
        to.parent.mkdir(parents=True, exist_ok=True)
        first = seen.setdefault(path.stat().st_ino, to)
        if first is to:
            shutil.copy2(path, to)
        else:
            os.link(first, to)
    [local] = (folder / "local").iterdir()
    return replace(make(folder), local=LocalRoots([LocalStore(local)]))


def found(pipeline: Pipeline, log: str = "accounts", **asked: Any) -> list[dict[str, Any]]:
    return list(verify(pipeline, log, VerifyRequest(**asked)).facts["damage"])


def brief(damage: list[dict[str, Any]]) -> list[tuple[str, str, list[int], list[str], list[str]]]:
    return [(d["part"], d["harm"], d["snapshots"], d["paths"], d["good"]) for d in damage]


def full(pipeline: Pipeline, path: str) -> Path:
    store = disk(pipeline) if path.startswith("local:") else pipeline.store
    return Path(store.uri(path.removeprefix("local:")))


def harm(path: Path, how: str, at: int | None = None) -> None:
    """Damages the bytes themselves: all names of the file hold what is written here."""
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "altered" and path.name.endswith(".json"):
        # A plausible one, that says something else of a file.
        path.write_text(data.decode().replace('\\"numRecords\\": ', '\\"numRecords\\": 1', 1))
    else:
        middle = len(data) // 2 if at is None else at
        with path.open("r+b") as stream:
            stream.write(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
            if how == "cut":
                stream.truncate(len(data) - 3)


def alone(path: Path) -> None:
    """Gives a name bytes of its own, as a copy to another disk would."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)


def file_of(pipeline: Pipeline, snapshot: int, log: str = "accounts", shared: bool = False) -> str:
    """A data file of the snapshot, that it carried over or that it wrote."""
    known = pipeline.ledger(log).read().snapshot(snapshot)
    assert known
    return next(f.name for f in read_manifest(pipeline.store, log, known).files if f.carried == shared)


def own(snapshot: int, name: str, log: str = "accounts") -> str:
    return f"snapshots/{log}/{snapshot:010d}/_data/{name}"


def in_table(name: str, log: str = "accounts") -> str:
    return f"tables/{log}/_data/{name}"


def check_whole(pipeline: Pipeline, log: str = "accounts") -> Outcome:
    outcome = verify(pipeline, log)
    assert (outcome.status, outcome.error_code, outcome.facts["damage"]) == ("whole", None, [])
    return outcome


def no_halves(pipeline: Pipeline) -> None:
    stores = [pipeline.store, *([pipeline.local] if pipeline.local else [])]
    assert [e.path for s in stores for e in s.list("", unfinished=True) if e.path.endswith(".part")] == []


# What is found.


def test_a_whole_log_is_looked_at_and_nothing_is_changed(pipeline: Pipeline, tmp_path: Path) -> None:
    """Names that share a file by hard link are one copy: 5 data files in 5 copies, though they have 14 names."""
    before = contents(tmp_path)
    outcome = check_whole(pipeline)
    facts = outcome.facts
    assert (facts["files"], facts["copies"], facts["single"]) == (5 + 2, 5 + 2, 5 + 2)
    assert facts["snapshots"] == [1, 2]
    assert verify(pipeline, "accounts", VerifyRequest(repair=True)).status == "whole"
    assert verify(pipeline, "tellers").status == "nothing"
    assert contents(tmp_path) == before


@pytest.mark.parametrize("how", ["cut", "altered"])
@pytest.mark.parametrize("repair", [False, True])
def test_a_file_that_table_and_snapshots_share_by_hard_link_is_one_copy(
    pipeline: Pipeline, how: str, repair: bool
) -> None:
    """Found once, with all its names; no name of it is a second copy, so nothing is repaired from it."""
    name = file_of(pipeline, 2, shared=True)
    names = [own(1, name), own(2, name), in_table(name)]
    harm(full(pipeline, names[0]), how)
    before = contents(full(pipeline, ""))
    outcome = verify(pipeline, "accounts", VerifyRequest(repair=repair))
    [damage] = outcome.facts["damage"]
    assert brief([damage]) == [("data file", how, [1, 2], names, [])]
    assert (outcome.error_code, outcome.error.exit_code, damage["repaired"]) == ("DAMAGED", 5, "")
    assert "`tidefold restore accounts 2 --log-position replay`" in damage["hint"]
    assert damage["why"] == ("no copy of the file is proved to be intact" if repair else "")
    assert contents(full(pipeline, "")) == before


def test_a_bucket_of_no_whole_snapshot_is_made_again_from_the_log_as_it_is_advised(pipeline: Pipeline) -> None:
    before = table_rows(pipeline)
    harm(full(pipeline, own(1, file_of(pipeline, 2, shared=True))), "altered")
    [damage] = found(pipeline)
    assert "`tidefold restore accounts 2 --log-position replay` makes the bucket again" in damage["hint"]
    materialize(pipeline, ["accounts"], Restore("again", RestorePoint(2, RestoreMode.REPLAY)), in_process)
    judge_all(pipeline)
    confirm(pipeline, "accounts")
    assert table_rows(pipeline) == before


def test_where_the_log_was_cut_a_file_without_a_good_copy_comes_from_a_backup_alone() -> None:
    damage = Damage(FileRole.DATA, DamageKind.CUT, (StoredLocation("x"),), (2,))
    assert "backup" in _hint(replace(LogState("accounts", SHAPE), truncated_to=3), damage, {1, 2})
    assert "restore" in _hint(LogState("accounts", SHAPE), damage, {1, 2})


def test_where_no_good_copy_is_left_the_newest_whole_snapshot_is_named(pipeline: Pipeline) -> None:
    name = file_of(pipeline, 2)
    harm(full(pipeline, own(2, name)), "altered")
    [damage] = found(pipeline)
    assert brief([damage]) == [("data file", "altered", [2], [own(2, name), in_table(name)], [])]
    assert "`tidefold restore accounts 1 --log-position replay`" in damage["hint"]


def test_an_older_snapshot_without_a_good_copy_is_retired_while_readers_see_a_whole_one(pipeline: Pipeline) -> None:
    [first, second] = pipeline.ledger("accounts").read().snapshots
    kept = {file.name for file in read_manifest(pipeline.store, "accounts", second).files}
    name = next(f.name for f in read_manifest(pipeline.store, "accounts", first).files if f.name not in kept)
    harm(full(pipeline, own(1, name)), "altered")
    [damage] = found(pipeline)
    assert damage["snapshots"] == [1]
    assert "Readers see snapshot 2, which is whole. With `retention: {snapshots: 1}`" in damage["hint"]
    kept_one = CONFIG.replace("store: store\n", "store: store\nretention: {snapshots: 1}\n")
    assert subsume(make_pipeline(pipeline.config.path.parent, kept_one), "accounts").status == "subsumed"
    assert found(pipeline) == []


def test_a_staged_snapshot_that_is_damaged_is_to_be_aborted(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 8, "text": "c"}])
    materialize(pipeline, ["accounts"], Fold("run-3"), in_process)
    name = file_of(pipeline, 3)
    harm(full(pipeline, own(3, name)), "cut")
    [damage] = found(pipeline)
    assert brief([damage]) == [("data file", "cut", [3], [own(3, name), in_table(name)], [])]
    assert damage["hint"].startswith("`tidefold step abort accounts`")


def test_a_snapshot_that_is_aborted_while_it_is_checked_is_no_damage(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(pipeline, [{"id": 1, "text": "new"}])
    [staged] = materialize(pipeline, ["accounts"], Fold("run-x"), in_process)
    read = verification.read_manifest_at

    def aborted_before(store: Any, path: str, snapshot: Any) -> Any:
        if snapshot.id == staged.snapshot:
            abort(pipeline, "accounts", "not wanted")
            # The manifest is deleted by the sweep that comes next.
            pipeline.store.delete(manifest_files("accounts", snapshot))
        return read(store, path, snapshot)

    monkeypatch.setattr(verification, "read_manifest_at", aborted_before)
    assert verify(pipeline, "accounts", VerifyRequest(deep=False)).status == "whole"


@pytest.mark.parametrize("at", ["table", "snapshot"])
def test_a_name_that_is_gone_is_found_and_linked_to_the_copy_that_is_there(pipeline: Pipeline, at: str) -> None:
    """As many copies afterwards as before: it is the same file again under all its names."""
    name = file_of(pipeline, 2, shared=True)
    gone, there = (in_table(name), own(1, name)) if at == "table" else (own(2, name), in_table(name))
    harm(full(pipeline, gone), "missing")
    snapshots = [1, 2] if at == "table" else [2]
    expected = [("data file", "missing", snapshots, [gone], [own(1, name)])]
    assert brief(found(pipeline)) == expected
    assert "tidefold check verify accounts --repair" in found(pipeline)[0]["hint"]
    assert brief(found(pipeline, deep=False)) == expected
    outcome = verify(pipeline, "accounts", VerifyRequest(repair=True))
    assert (outcome.status, outcome.error_code) == ("repaired", None)
    assert full(pipeline, gone).samefile(full(pipeline, there))
    check_whole(pipeline)


def test_a_staged_file_need_not_lie_beside_the_table_yet(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 8, "text": "c"}])
    materialize(pipeline, ["accounts"], Fold("run-3"), in_process)
    full(pipeline, in_table(file_of(pipeline, 3))).unlink()
    check_whole(pipeline)
    judge_all(pipeline)
    confirm(pipeline, "accounts")
    check_whole(pipeline)


@pytest.mark.rotates(6)
@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("part", ["data", "manifest", "delta", "segment"])
@pytest.mark.parametrize("where", ["store", "local"])
def test_each_damage_in_each_copy_is_found_and_repaired_from_the_other(
    copied: Pipeline, where: str, part: str, how: str
) -> None:
    """L1, I16, I17: the report is exact, the other copy is named, and after the repair everything is whole."""
    name = file_of(copied, 2, "items")
    last = copied.ledger("items").read().change_sets[-1]
    segment, of_items = last.location.segment, last.location.offset + last.location.length // 2
    store = {
        "data": [own(2, name, "items"), in_table(name, "items")],
        "manifest": [LogPaths("items").manifest(2)],
        "delta": [f"snapshots/items/0000000002/{COMMIT}"],
        "segment": [segment],
    }[part]
    local = {
        "data": [f"local:items/0000000002/_data/{name}"],
        "manifest": ["local:items/0000000002/manifest"],
        "delta": [f"local:items/0000000002/{COMMIT}"],
        "segment": [f"local:{segment}"],
    }[part]
    bad, good = (store, local) if where == "store" else (local, store)
    whole = contents(copied.config.path.parent)
    for path in bad if how == "missing" else bad[:1]:
        harm(full(copied, path), how, of_items if part == "segment" else None)
    if where == "local" and how == "missing" and part in ("manifest", "segment"):
        # Without a manifest there is no copy; a segment need not have one.
        check_whole(copied, "items")
        return
    harms = {"delta": {"cut": "unreadable"}, "manifest": {"cut": "altered"}}.get(part, {})
    expected_harm = harms.get(how, how)
    ids = [] if part == "segment" else [2]
    words = {"data": "data file", "delta": "delta log"}.get(part, part)
    damaged = [[p] for p in bad] if how == "missing" else [bad]
    sources = [LogPaths("items").manifest(2)] if part == "delta" else good[:1]
    damage = found(copied, "items")
    assert sorted(brief(damage)) == sorted((words, expected_harm, ids, paths, sources) for paths in damaged)
    outcome = verify(copied, "items", VerifyRequest(repair=True))
    assert (outcome.status, [d["repaired"] for d in outcome.facts["damage"]]) == ("repaired", sources * len(damaged))
    check_whole(copied, "items")
    no_halves(copied)
    after = contents(copied.config.path.parent)
    if part == "delta":  # It says when it was made, which is information only.
        assert set(after) == set(whole)
        return
    assert after == whole


def test_names_that_shared_the_damaged_bytes_share_the_new_ones(copied: Pipeline) -> None:
    """As many copies as before, and the damaged bytes are left to whoever still reads them: a new file is renamed."""
    name = file_of(copied, 2, "items")
    snapshot, table = full(copied, own(2, name, "items")), full(copied, in_table(name, "items"))
    harm(snapshot, "altered")
    with snapshot.open("rb") as reader:
        spoilt = snapshot.read_bytes()
        assert verify(copied, "items", VerifyRequest(repair=True)).status == "repaired"
        assert reader.read() == spoilt
    assert snapshot.samefile(table)
    assert snapshot.stat().st_nlink == 2
    assert snapshot.read_bytes() == full(copied, f"local:items/0000000002/_data/{name}").read_bytes() != spoilt


def test_another_snapshot_s_real_copy_repairs_the_shared_file(pipeline: Pipeline) -> None:
    name = file_of(pipeline, 2, shared=True)
    alone(full(pipeline, own(1, name)))
    assert check_whole(pipeline).facts["copies"] == 5 + 2 + 1
    harm(full(pipeline, own(2, name)), "altered")
    damage = found(pipeline)
    assert brief(damage) == [("data file", "altered", [1, 2], [own(2, name), in_table(name)], [own(1, name)])]
    assert verify(pipeline, "accounts", VerifyRequest(repair=True)).status == "repaired"
    # Two copies they were, two copies they are.
    assert check_whole(pipeline).facts["copies"] == 5 + 2 + 1
    assert len(snapshot_rows(pipeline, 2)) == len(table_rows(pipeline)) == 100


def test_a_copy_on_another_device_is_a_copy(pipeline: Pipeline, tmp_path: Path) -> None:
    """The inode alone is no identity: numbers begin anew on each device."""
    name = file_of(pipeline, 2, shared=True)
    folders = [folder for folder in map(Path, ("/dev/shm", "/var/tmp")) if folder.is_dir()]
    others = [folder for folder in folders if folder.stat().st_dev != tmp_path.stat().st_dev]
    if not others:
        pytest.skip("needs a second file system")
    elsewhere = others[0] / f"{tmp_path.name}-{os.getpid()}"
    elsewhere.mkdir()
    try:
        one = full(pipeline, own(1, name))
        shutil.move(one, elsewhere / name)
        one.symlink_to(elsewhere / name)
        assert pipeline.store.identity(own(1, name)) != pipeline.store.identity(own(2, name))
        harm(full(pipeline, own(2, name)), "altered")
        assert brief(found(pipeline))[0][4] == [own(1, name)]
        assert verify(pipeline, "accounts", VerifyRequest(repair=True)).status == "repaired"
    finally:
        shutil.rmtree(elsewhere)


def test_a_quick_look_finds_what_is_missing_or_cut_and_reads_no_data(pipeline: Pipeline) -> None:
    name, other = file_of(pipeline, 2, shared=True), file_of(pipeline, 2)
    harm(full(pipeline, own(1, name)), "altered")
    assert found(pipeline, deep=False) == []
    harm(full(pipeline, own(2, other)), "cut")
    assert [d["harm"] for d in found(pipeline, deep=False)] == ["cut"]


def test_a_quick_repair_proves_its_source_first(copied: Pipeline) -> None:
    """I17: a copy of the right length and of other bytes repairs nothing."""
    name = file_of(copied, 2, "items")
    for path in (own(2, name, "items"), in_table(name, "items")):
        harm(full(copied, path), "missing")
    harm(full(copied, f"local:items/0000000002/_data/{name}"), "altered")
    outcome = verify(copied, "items", VerifyRequest(deep=False, repair=True))
    assert [(d["harm"], d["why"]) for d in outcome.facts["damage"]] == [
        ("missing", "no copy of the file is proved to be intact")
    ] * 2
    assert not full(copied, own(2, name, "items")).exists()


def test_one_snapshot_is_looked_at_and_others_only_as_sources(pipeline: Pipeline) -> None:
    name, shared = file_of(pipeline, 1), file_of(pipeline, 2, shared=True)
    first = next(
        n for n in (f.name for f in full(pipeline, own(1, "")).iterdir())
        if not full(pipeline, own(2, n)).exists()
    )  # fmt: skip
    assert name
    harm(full(pipeline, own(1, first)), "cut")
    assert found(pipeline, snapshot=2) == []
    assert brief(found(pipeline, snapshot=1)) == [("data file", "cut", [1], [own(1, first), in_table(first)], [])]
    alone(full(pipeline, own(1, shared)))
    harm(full(pipeline, own(2, shared)), "cut")
    assert brief(found(pipeline, snapshot=2))[0][4] == [own(1, shared)]
    with pytest.raises(NotFoundError):
        verify(pipeline, "accounts", VerifyRequest(snapshot=9))


def test_a_tail_only_snapshot_is_its_base_and_its_change_sets(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": "tail"}])
    take_tail(pipeline, "accounts", "tail-1")
    segment = pipeline.ledger("accounts").read().change_sets[-1].location.segment
    harm(full(pipeline, segment), "altered")
    put(pipeline, [{"id": 1, "text": "later"}])
    harm(full(pipeline, pipeline.ledger("accounts").read().change_sets[-1].location.segment), "missing")
    assert brief(found(pipeline, snapshot=3)) == [("segment", "altered", [], [segment], [])]
    name = file_of(pipeline, 2)
    harm(full(pipeline, own(2, name)), "cut")
    assert [d["part"] for d in found(pipeline, snapshot=3)] == ["data file", "segment"]


def test_segments_say_whether_their_changes_are_in_a_snapshot_already(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": "waits"}])
    first, _, last = (c.location.segment for c in pipeline.ledger("accounts").read().change_sets)
    harm(full(pipeline, first), "missing")
    harm(full(pipeline, last), "cut")
    folded, waits = found(pipeline)
    assert brief([folded, waits]) == [("segment", "missing", [], [first], []), ("segment", "cut", [], [last], [])]
    assert "Snapshot 2 holds its changes already" in folded["hint"]
    assert "in no snapshot yet" in waits["hint"]


def test_a_segment_is_repaired_only_from_a_copy_that_every_log_in_it_recognises(copied: Pipeline) -> None:
    """I12: what is right for one log and wrong for its neighbour would harm the neighbour."""
    change_sets = [copied.ledger(log).read().change_sets[-1] for log in ("items", "orders")]
    [path] = {c.location.segment for c in change_sets}
    harm(full(copied, path), "missing")
    theirs = change_sets[1]
    with full(copied, f"local:{path}").open("r+b") as stream:
        stream.seek(theirs.location.offset + theirs.location.length // 2)
        stream.write(b"?????")
    outcome = verify(copied, "items", VerifyRequest(repair=True))
    [damage] = outcome.facts["damage"]
    assert (damage["repaired"], damage["why"]) == ("", "no copy of the file is proved to be intact")
    assert not full(copied, path).exists()


def test_a_segment_that_is_whole_and_not_the_neighbour_s_repairs_nothing(copied: Pipeline) -> None:
    """I12: its footer agrees with its bytes, and the ledger of the other log does not agree with its footer."""
    change_sets = {log: copied.ledger(log).read().change_sets[-1] for log in ("items", "orders")}
    first, second = sorted(change_sets, key=lambda log: change_sets[log].location.ordinal)
    path = change_sets[first].location.segment
    tables = [read_change_set(copied.store, change_sets[log]) for log in (first, second)]
    local = full(copied, f"local:{path}")
    local.unlink()
    write_segment(disk(copied), path, [(first, tables[0]), (second, tables[1].slice(1))])
    assert check_whole(copied, first)
    harm(full(copied, path), "missing")
    [damage] = found(copied, first, repair=True)
    assert (damage["good"], damage["why"]) == ([f"local:{path}"], "no copy of the file is proved to be intact")
    assert not full(copied, path).exists()


@pytest.mark.parametrize("how", HARMS)
def test_a_snapshot_s_own_delta_log_is_made_anew_from_the_manifest(pipeline: Pipeline, how: str) -> None:
    path = f"snapshots/accounts/0000000002/{COMMIT}"
    log = full(pipeline, path)
    if how == "altered":  # A plausible one, in which readers would miss a file.
        lines = log.read_text().splitlines()
        dropped = next(line for line in lines if '"add"' in line)
        log.write_text("\n".join(line for line in lines if line != dropped))
    else:
        harm(log, how)
    [damage] = found(pipeline)
    shown = "unreadable" if how == "cut" else how
    assert brief([damage]) == [("delta log", shown, [2], [path], [PATHS.manifest(2)])]
    assert verify(pipeline, "accounts", VerifyRequest(repair=True)).status == "repaired"
    check_whole(pipeline)
    assert len(snapshot_rows(pipeline, 2)) == 100


@pytest.mark.parametrize("how", ["removed", "cut"])
def test_the_next_step_of_a_published_table_fits_its_damage(pipeline: Pipeline, how: str) -> None:
    """`rebuild --table` makes a table that is missing. It does nothing where a log is that nobody can read."""
    log = full(pipeline, f"{PATHS.table}/_delta_log")
    for commit in log.glob("*.json"):
        commit.unlink() if how == "removed" else commit.write_bytes(commit.read_bytes()[:50])
    [damage] = [one for one in found(pipeline) if one["part"] == "published table"]
    assert ("move it out of the store" in damage["hint"]) == (how == "cut")
    if how == "cut":
        log.rename(pipeline.config.path.parent / "moved")
    [step] = re.findall(r"`tidefold ([^`]+)`", damage["hint"])
    Landing(pipeline.config.path.parent).call(*step.split())
    check_whole(pipeline)


def test_statistics_that_would_hide_rows_are_found(pipeline: Pipeline) -> None:
    log = full(pipeline, f"snapshots/accounts/0000000002/{COMMIT}")
    text = log.read_text()
    spoilt = text.replace('\\"maxValues\\": {\\"id\\": ', '\\"maxValues\\": {\\"id\\": -', 1)
    assert spoilt != text
    log.write_text(spoilt)
    assert [(d["part"], d["harm"]) for d in found(pipeline)] == [("delta log", "altered")]


def test_what_others_committed_is_named_and_not_repaired(pipeline: Pipeline) -> None:
    DeltaTable(pipeline.store.uri(PATHS.snapshot(1))).optimize.compact()
    DeltaTable(pipeline.store.uri(PATHS.table)).delete("id = 1")
    outcome = verify(pipeline, "accounts", VerifyRequest(repair=True))
    table, own_log = outcome.facts["damage"]
    assert brief([own_log])[0][:3] == ("delta log", "foreign", [1])
    assert own_log["why"] == "other programs committed to it: 00000000000000000001.json"
    assert brief([table]) == [("published table", "foreign", [2], ["tables/accounts/_delta_log"], [])]
    assert "RESTORE to version 1" in table["hint"]
    assert outcome.error_code == "DAMAGED"


MORE = [Field("more", PrimitiveType("string"))]
UNDO, RECONCILE, MOVE = "RESTORE to version 1", "--reconcile", "out of the store"
# What somebody did to the published table, and the ways that lead on.
FOREIGN: dict[str, tuple[Callable[[DeltaTable], object], tuple[str, ...]]] = {
    "DELETE": (lambda table: table.delete("id = 1"), (UNDO, RECONCILE)),
    "column": (lambda table: table.alter.add_columns(MORE), (UNDO,)),
    "column and check": (
        lambda table: (table.alter.add_columns(MORE), table.alter.add_constraint({"positive": "id >= 0"})),
        (MOVE,),
    ),
}


@pytest.mark.parametrize(("what", "way"), [(what, way) for what, (_, ways) in FOREIGN.items() for way in ways])
def test_the_ways_out_of_a_foreign_commit_that_verify_names_work(pipeline: Pipeline, what: str, way: str) -> None:
    make, ways = FOREIGN[what]
    address = pipeline.store.uri(PATHS.table)
    make(DeltaTable(address))
    [damage] = found(pipeline)
    assert tuple(name for name in (UNDO, RECONCILE, MOVE) if name in damage["hint"]) == ways
    if way == UNDO:
        DeltaTable(address).restore(1)
    if way == MOVE:
        full(pipeline, f"{PATHS.table}/_delta_log").rename(pipeline.config.path.parent / "moved")
    for step in re.findall(r"`tidefold ([^`]+)`", damage["hint"]) if way != UNDO else ():
        Landing(pipeline.config.path.parent).call(*step.split())
    check_whole(pipeline)


def test_a_table_that_is_gone_is_found(pipeline: Pipeline) -> None:
    shutil.rmtree(full(pipeline, "tables/accounts/_delta_log"))
    [damage] = found(pipeline)
    assert (damage["part"], damage["harm"]) == ("published table", "missing")


def test_a_manifest_without_a_copy_hides_no_other_damage(pipeline: Pipeline) -> None:
    harm(full(pipeline, PATHS.manifest(1)), "altered")
    name = file_of(pipeline, 2)
    harm(full(pipeline, own(2, name)), "cut")
    damage = found(pipeline, repair=True)
    assert [(d["part"], d["harm"], d["snapshots"]) for d in damage] == [
        ("manifest", "altered", [1]), ("data file", "cut", [2]),
    ]  # fmt: skip


class BadSectors(LocalStore):
    """A disk that no longer gives the bytes of some names."""

    bad: frozenset[str] = frozenset()

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        if path in self.bad and not Path(self.uri(path)).stat().st_ino == getattr(self, "healed", None):
            raise StorageError("STORAGE", path) from OSError(errno.EIO, "Input/output error")
        with super().open(path) as stream:
            yield stream


def test_bytes_that_the_disk_does_not_give_are_damage_and_a_silent_store_is_not(copied: Pipeline) -> None:
    """I23: EIO is of one file; any other failure of a store is an error, and nothing is called damaged for it."""
    name = file_of(copied, 2, "items")
    store = BadSectors(full(copied, ""))
    store.bad = frozenset({own(2, name, "items"), in_table(name, "items")})
    [damage] = found(replace(copied, store=store), "items")
    assert brief([damage])[0][:2] == ("data file", "unreadable")
    assert damage["good"] == [f"local:items/0000000002/_data/{name}"]

    class Silent(LocalStore):
        def list(self, folder: str, unfinished: bool = False) -> Any:
            raise StorageError("STORAGE", "no answer")

    with pytest.raises(StorageError):
        verify(replace(copied, store=Silent(full(copied, ""))), "items", VerifyRequest(repair=True))


def test_local_copies_that_cannot_be_looked_at_are_a_warning(copied: Pipeline) -> None:
    """I15: what is primary is verified all the same."""

    class Gone(LocalStore):
        def list(self, folder: str, unfinished: bool = False) -> Any:
            raise StorageError("STORAGE", "no such device")

    outcome = verify(replace(copied, local=LocalRoots([Gone(disk(copied).root)])), "items")
    assert (outcome.status, len(outcome.facts["warnings"])) == ("whole", 1)
    assert "no such device" in outcome.message


# In S3.


@pytest.fixture
def in_s3(s3: S3Bucket, tmp_path: Path) -> Pipeline:
    made = make_pipeline(tmp_path, CONFIG.replace("store: store\n", f"store: {s3.address}\n"))
    put_and_publish(made, "run-1", [{"id": i, "text": f"a {i}"} for i in range(20)])
    return made


def test_in_s3_what_is_gone_is_put_back_from_another_object(in_s3: Pipeline) -> None:
    """Each object is a copy of its own."""
    assert check_whole(in_s3).facts["copies"] == 2 * 4 + 1
    name = file_of(in_s3, 1)
    in_s3.store.delete([own(1, name)])
    assert brief(found(in_s3)) == [("data file", "missing", [1], [own(1, name)], [in_table(name)])]
    assert verify(in_s3, "accounts", VerifyRequest(repair=True)).status == "repaired"
    in_s3.store.delete([f"snapshots/accounts/0000000001/{COMMIT}"])
    assert [d["part"] for d in found(in_s3)] == ["delta log"]
    assert verify(in_s3, "accounts", VerifyRequest(repair=True)).status == "repaired"
    check_whole(in_s3)


def test_in_s3_what_is_altered_is_named_and_not_replaced_until_it_is_removed(in_s3: Pipeline) -> None:
    name = file_of(in_s3, 1)
    right = in_s3.store.read(own(1, name))
    in_s3.store.delete([own(1, name)])
    in_s3.store.put_if_absent(own(1, name), right[:-1] + b"?")
    [damage] = found(in_s3, repair=True)
    assert brief([damage]) == [("data file", "altered", [1], [own(1, name)], [in_table(name)])]
    assert "never replaces an object in S3" in damage["why"]
    assert f"aws s3 rm {in_s3.store.uri(own(1, name))}" in damage["hint"]
    in_s3.store.delete([own(1, name)])
    assert verify(in_s3, "accounts", VerifyRequest(repair=True)).status == "repaired"
    assert in_s3.store.read(own(1, name)) == right


# What goes on meanwhile.


def test_what_was_removed_on_purpose_meanwhile_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I22: retention of snapshots and local copies runs between planning and looking; nothing of it is put back."""
    pipeline = grown(make(tmp_path), 3)
    looked, seen = verification.examine, []

    def looks_late(*given: Any, **how: Any) -> Any:
        subsume(pipeline, "items")
        retain_local(pipeline, ["items"])
        found = looked(*given, **how)
        seen.extend(copy for copies in found.values() for copy in copies if copy.damaged)
        return found

    monkeypatch.setattr(verification, "examine", looks_late)
    outcome = verify(pipeline, "items", VerifyRequest(repair=True))
    assert seen
    assert outcome.facts["damage"] == []
    assert pipeline.store.list(LogPaths("items").snapshot(1)) == []
    monkeypatch.undo()
    check_whole(pipeline, "items")


def test_what_is_put_back_for_a_snapshot_that_is_retired_in_that_moment_goes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I22: the clean-up may be over when the repaired file appears, and would never look there again."""
    pipeline = grown(make(tmp_path), 3)
    name = file_of(pipeline, 1, "items")
    harm(full(pipeline, own(1, name, "items")), "altered")
    repaired = verification.repair_file

    def repairs_late(*given: Any) -> Any:
        subsume(pipeline, "items")
        return repaired(*given)

    # The local copy is the good one.
    monkeypatch.setattr(verification, "repair_file", repairs_late)
    assert verify(pipeline, "items", VerifyRequest(repair=True)).facts["damage"] == []
    assert pipeline.store.list(LogPaths("items").snapshot(1)) == []


def test_a_publication_meanwhile_is_no_foreign_commit(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    put(pipeline, [{"id": 8, "text": "c"}])
    materialize(pipeline, ["accounts"], Fold("run-3"), in_process)
    judge_all(pipeline)
    looked = verification.examine

    def looks_late(*given: Any, **how: Any) -> Any:
        confirm(pipeline, "accounts")
        return looked(*given, **how)

    monkeypatch.setattr(verification, "examine", looks_late)
    assert found(pipeline) == []


# Dying while repairing.


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name.lower())
def test_a_repair_that_fails_at_any_call_is_finished_by_the_next(template: Path, tmp_path: Path, fault: Fault) -> None:
    """I11, I19: a reader finds the damaged bytes or the right ones, never others; nothing is left behind."""
    pipeline = on_copy(template, tmp_path / "copied")
    name = file_of(pipeline, 2, "items")
    paths = [own(2, name, "items"), in_table(name, "items"), LogPaths("items").manifest(2)]
    right = {path: full(pipeline, path).read_bytes() for path in paths}
    calls, at = 1, 0
    while at < calls:
        pipeline = on_copy(template, tmp_path / "copied")
        harm(full(pipeline, paths[0]), "altered")
        harm(full(pipeline, paths[2]), "cut")
        spoilt = {path: full(pipeline, path).read_bytes() for path in paths}
        store = FaultyStore(tmp_path / "copied/store", at, fault)
        with suppress(Killed, StorageError):
            verify(replace(pipeline, store=store), "items", VerifyRequest(repair=True))
        assert all(full(pipeline, p).read_bytes() in (right[p], spoilt[p]) for p in paths)
        assert verify(pipeline, "items", VerifyRequest(repair=True)).error_code is None
        assert {path: full(pipeline, path).read_bytes() for path in paths} == right
        no_halves(pipeline)
        # Whoever is killed makes no more calls: an undisturbed one says how many there are.
        calls, at = max(calls, store.calls + (store.calls > at)), at + 1
    assert calls > 2


@pytest.mark.parametrize("after", [False, True])
def test_a_process_that_dies_at_any_system_call_of_a_repair_leaves_old_or_new_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """The dead do nothing more: no clean-up of theirs runs either."""
    calls = ("replace", "link", "fsync", "unlink")
    number = 0
    while True:
        folder = tmp_path / str(number)
        store = LocalStore(folder)
        store.put_if_absent("a/one", b"spoilt")
        store.link("a/one", "b/two")
        died = _repaired_until(store, number, after, calls, monkeypatch)
        assert {store.read("a/one"), store.read("b/two")} <= {b"spoilt", b"right"}
        parts = [e.path for e in store.list("", unfinished=True) if e.path.endswith(".part")]
        # Whatever is left lies beside a name that is still to be repaired, so the next repair finds it.
        assert all(store.read(part.split(".")[0]) == b"spoilt" for part in parts)
        if not died:
            assert (store.read("a/one"), store.read("b/two"), parts) == (b"right", b"right", [])
            assert store.identity("a/one") == store.identity("b/two")
            assert number > 5
            return
        number += 1


def test_new_bytes_are_on_disk_before_they_get_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I21: a power cut leaves no name with bytes that were never written; then the names are made durable."""
    store = LocalStore(tmp_path)
    store.put_if_absent("a/one", b"spoilt")
    store.put_if_absent("b/two", b"spoilt")
    done: list[str] = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *given, name=name, real=real: (done.append(name), real(*given))[1])
    with store.replace(["a/one", "b/two"]) as stream:
        stream.write(b"right")
    assert done == ["fsync", "replace", "replace", "fsync", "fsync"]


def _repaired_until(
    store: LocalStore, number: int, after: bool, calls: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> bool:
    counted = 0
    with monkeypatch.context() as patch:
        for name in calls:

            def dying(*given: Any, real: Callable[..., Any], **how: Any) -> Any:
                nonlocal counted
                counted += 1
                if counted > number + 1 or (counted == number + 1 and not after):
                    raise Killed
                done = real(*given, **how)
                if counted == number + 1:
                    raise Killed
                return done

            patch.setattr(os, name, partial(dying, real=getattr(os, name)))
        try:
            with store.replace(["a/one", "b/two"]) as stream:
                stream.write(b"right")
        except Killed:
            return True
    return False
