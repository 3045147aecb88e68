"""Deletion vectors: small changes mark rows of a large file, which stays. Decision 0021; L1, N2-N5; I5, I10."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from support.arrival import Landing
from support.pipelines import CONFIG, judge_all, make_pipeline, put, rows_of, table_rows
from support.planning import pending
from support.savepoints import bring_in, save
from tidefold.changelog.schema import DELETE, MERGE
from tidefold.changelog.writer import Changelog
from tidefold.compute.runners import in_process
from tidefold.delta.deletion_vectors import deletions, descriptor, places
from tidefold.domain.external_snapshot import Layout
from tidefold.domain.log_state import Column
from tidefold.domain.paths import vector_name
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.errors import RefusedError
from tidefold.fold import fold_bucket
from tidefold.fold.merge import merge
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, read_rows
from tidefold.operations.ground.sweep import KEPT
from tidefold.operations.inspect.diff import diff
from tidefold.operations.requests import Fold, Restore, SnapshotRequest
from tidefold.operations.restore.export import Trial, drill
from tidefold.operations.retention.clean import clean
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import verify
from tidefold.quality.run.file_rows import file_rows
from tidefold.wiring import open_pipeline

Rows = dict[int, str | None]
VECTORS = CONFIG.replace("buckets: 4\n", "buckets: 4\n    deletion_vectors: true\n", 1).replace(
    "store: store\n", "store: store\nlocal: {mode: files, path: local}\nsnapshots: {kind: incremental}\n"
)
FIRST: Rows = {i: f"a {i}" for i in range(400)}


def cycle(pipeline: Pipeline, run: str, changes: Rows, kind: KindPolicy | None = None) -> Outcome:
    put(pipeline, [{"id": i, "text": t, **({} if t else {"_op": DELETE})} for i, t in changes.items()])
    return finished(pipeline, Fold(run, kind=kind))


def finished(pipeline: Pipeline, asking: SnapshotRequest, log: str = "accounts") -> Outcome:
    [outcome] = materialize(pipeline, [log], asking, in_process)
    assert outcome.status == "staged", outcome
    judge_all(pipeline, log)
    confirm(pipeline, log, Confirmation(run=asking.run))
    return outcome


def manifest_of(pipeline: Pipeline, log: str = "accounts") -> Manifest:
    latest = pipeline.ledger(log).read().latest
    assert latest
    return read_manifest(pipeline.store, log, latest)


def live(pipeline: Pipeline, snapshot: int | None = None) -> Rows:
    _, batches = read_rows(pipeline, "accounts", ReadRequest(snapshot=snapshot))
    return {row["id"]: row["text"] for batch in batches for row in batch.to_pylist()}


def after(*changes: Rows) -> Rows:
    merged: Rows = {}
    for one in changes:
        merged |= one
    return {i: t for i, t in merged.items() if t}


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = make_pipeline(tmp_path, VECTORS)
    cycle(made, "run-1", FIRST)
    return made


SECOND: Rows = {1: "b", 2: "b", 3: None, 4: None, 500: "new"}
THIRD: Rows = {1: "c", 3: "back", 500: None, 501: "new", 9: None}


@pytest.fixture
def marked(pipeline: Pipeline) -> Pipeline:
    """Snapshots 2 and 3 mark rows, of files and of what they themselves brought."""
    cycle(pipeline, "run-2", SECOND)
    cycle(pipeline, "run-3", THIRD)
    return pipeline


def test_a_few_changes_mark_rows_and_write_what_they_bring(pipeline: Pipeline) -> None:
    before = {f.name: f for f in manifest_of(pipeline).files}
    outcome = cycle(pipeline, "run-2", SECOND)
    manifest = manifest_of(pipeline)
    stayed = [f for f in manifest.files if f.name in before]
    assert len(stayed) == len(before) == 4
    assert sum(f.deletions.rows for f in stayed if f.deletions) == 4
    assert all(f.carried and f.rows_written == before[f.name].rows for f in stayed)
    assert manifest.rows == outcome.facts["rows"] == len(after(FIRST, SECOND))
    assert outcome.facts["replaced"] == 4
    assert 0 < manifest.bytes_written < sum(f.bytes for f in stayed) / 2
    assert table_rows(pipeline) == live(pipeline) == after(FIRST, SECOND)
    protocol = DeltaTable(pipeline.store.uri("tables/accounts")).protocol()
    assert (protocol.min_reader_version, protocol.reader_features) == (3, ["deletionVectors"])


def test_what_came_since_stays_one_small_file_a_bucket(marked: Pipeline) -> None:
    """A row that was marked and came back, one that came and went: in no file twice."""
    files = manifest_of(marked).shown
    assert len(files) <= 8
    assert table_rows(marked) == live(marked) == after(FIRST, SECOND, THIRD)
    assert live(marked, 2) == after(FIRST, SECOND)
    assert live(marked, 1) == FIRST


def test_auto_marks_a_few_rows_though_links_cost_nothing(pipeline: Pipeline) -> None:
    """A full snapshot would write each bucket with a marked row anew: its cost follows the size of the table."""
    outcome = cycle(pipeline, "run-2", SECOND, KindPolicy.AUTO)
    assert (outcome.facts["kind"], outcome.facts["because"]) == (
        "incremental", "deletion vectors can mark the rows of 5 changes; a full snapshot rewrites all files",
    )  # fmt: skip
    assert sum(f.deletions.rows for f in manifest_of(pipeline).files if f.deletions) == 4
    many = cycle(pipeline, "run-3", dict.fromkeys(range(100), "c"), KindPolicy.AUTO)
    assert (many.facts["kind"], many.facts["because"].split(" ")[0:2]) == ("full", ["the", "store"])
    assert table_rows(pipeline) == after(FIRST, SECOND, dict.fromkeys(range(100), "c"))


def test_without_the_setting_no_reader_needs_to_know_them(tmp_path: Path) -> None:
    plain = make_pipeline(tmp_path, VECTORS.replace("    deletion_vectors: true\n", ""))
    cycle(plain, "run-1", FIRST)
    cycle(plain, "run-2", SECOND)
    assert not any(f.deletions for f in manifest_of(plain).files)
    assert DeltaTable(plain.store.uri("tables/accounts")).protocol().min_reader_version == 1


def test_a_full_snapshot_has_none_and_copies_read_alone(marked: Pipeline) -> None:
    """The local copy of an incremental one is a Delta table with vectors; a full one is for every reader."""
    copy = next(Path(marked.config.path.parent / "local").rglob("0000000003"))
    assert rows_of(str(copy)) == after(FIRST, SECOND, THIRD)
    put(marked, [{"id": 7, "text": "d"}])
    outcome = finished(marked, Fold("run-4", kind=KindPolicy.FULL))
    assert outcome.facts["kind"] == "full"
    assert not any(f.deletions for f in manifest_of(marked).files)
    rows = {**after(FIRST, SECOND, THIRD), 7: "d"}
    assert rows_of(marked.store.uri("snapshots/accounts/0000000004")) == table_rows(marked) == rows


def test_a_full_one_on_request_when_nothing_is_new(marked: Pipeline) -> None:
    """It writes the buckets with deletions anew."""
    assert pending(marked, ["accounts"], Fold("run-4", kind=KindPolicy.FULL)) == ["accounts"]
    finished(marked, Fold("run-4", kind=KindPolicy.FULL))
    assert not any(f.deletions for f in manifest_of(marked).files)
    assert table_rows(marked) == after(FIRST, SECOND, THIRD)


@pytest.mark.parametrize("wanted", [1, 2, 3])
def test_any_of_them_can_be_restored(marked: Pipeline, wanted: int) -> None:
    rows = live(marked, wanted)
    cycle(marked, "run-4", dict.fromkeys(range(20, 30), "d"))
    finished(marked, Restore("back", RestorePoint(wanted, RestoreMode.SKIP)))
    assert table_rows(marked) == live(marked) == rows
    cycle(marked, "run-5", {5: "e"})
    assert table_rows(marked) == {**rows, 5: "e"}
    assert verify(marked, "accounts").error_code is None


def test_a_restore_that_writes_rows_anew_is_work_for_spark(marked: Pipeline) -> None:
    assert pending(marked, ["accounts"], Restore("back", RestorePoint(2, RestoreMode.SKIP))) == ["accounts"]
    assert pending(marked, ["accounts"], Restore("back", RestorePoint(1, RestoreMode.SKIP))) == []


def test_the_gate_reads_files_from_before_a_column_was_added(marked: Pipeline) -> None:
    """The workers that read marked files know only what the file has; the rest is null, as to every reader."""
    shape = marked.log("accounts").shape
    wider = replace(shape, columns=(*shape.columns, Column("note", "string")))
    files = manifest_of(marked).shown
    found = [batch for file in files for batch in file_rows(marked.store, "tables/accounts", file, wider)]
    rows = [row for batch in found for row in batch.to_pylist()]
    assert {row["id"]: row["text"] for row in rows} == after(FIRST, SECOND, THIRD)
    assert {row["note"] for row in rows} == {None}


@pytest.mark.parametrize("layout", [Layout.NATIVE, Layout.CANONICAL])
def test_a_savepoint_has_the_rows_that_count(marked: Pipeline, tmp_path: Path, layout: Layout) -> None:
    save(marked, tmp_path / "saved", layout)
    other = make_pipeline(tmp_path / "other", VECTORS)
    bring_in(other, tmp_path / "saved")
    assert table_rows(other) == after(FIRST, SECOND, THIRD)


def test_drill_verify_and_diff_know_them(marked: Pipeline, tmp_path: Path) -> None:
    assert drill(marked, "accounts", 3, Trial(str(tmp_path / "drill"))).error_code is None
    assert verify(marked, "accounts").error_code is None
    found = diff(marked, "accounts", 2, 3)
    assert sum(found.counts.values()) == len(THIRD)


def test_more_than_a_few_are_written_anew(pipeline: Pipeline) -> None:
    changes: Rows = dict.fromkeys(range(100), "b")
    cycle(pipeline, "run-2", changes)
    assert not any(f.deletions for f in manifest_of(pipeline).files)
    assert table_rows(pipeline) == {**FIRST, **changes}


def test_few_again_and_again_are_written_anew_in_the_end(pipeline: Pipeline) -> None:
    """So neither what is deleted nor what lies beside a large file grows for ever."""
    rows, anew = FIRST, 0
    for number in range(2, 14):
        changes: Rows = {(number * 10 + i) % 400: f"{number}" for i in range(10)}
        rows = {**rows, **changes}
        names = {f.name for f in manifest_of(pipeline).files if f.rows_written > 50}
        cycle(pipeline, f"run-{number}", changes)
        files = manifest_of(pipeline).files
        large = {f.name: f for f in files if f.rows_written > 50}
        anew += len(large.keys() - names)
        assert all(not f.deletions or f.deletions.rows <= f.rows_written * merge.MARKED_SHARE for f in large.values())
        assert len(files) <= 8
        assert table_rows(pipeline) == rows
    assert anew >= 4
    # Readers need not read all vectors that ever were.
    log = Path(pipeline.store.uri("tables/accounts/_delta_log").removeprefix("file://"))
    assert (log / "00000000000000000010.checkpoint.parquet").exists()
    for version in range(10):
        (log / f"{version:020d}.json").unlink()
    assert table_rows(pipeline) == rows


def test_a_vector_that_would_be_too_long_is_none(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "_LONGEST", 8)
    cycle(pipeline, "run-2", SECOND)
    assert not any(f.deletions for f in manifest_of(pipeline).files)
    assert table_rows(pipeline) == after(FIRST, SECOND)


def test_all_rows_of_a_file_may_go(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "MARKED_SHARE", 2.0)
    gone: Rows = dict.fromkeys(range(400))
    cycle(pipeline, "run-2", {**gone, 1000: "left"})
    assert len(manifest_of(pipeline).files) == 1
    assert table_rows(pipeline) == {1000: "left"}


def test_files_stay_sorted_by_their_key(marked: Pipeline) -> None:
    """Also when a bucket of two files is written anew: readers skip row groups by it."""
    put(marked, [{"id": i, "text": "d"} for i in range(50, 200)])
    finished(marked, Fold("run-4", kind=KindPolicy.FULL))
    for file in manifest_of(marked).files:
        path = marked.store.uri(f"snapshots/accounts/0000000004/_data/{file.name}").removeprefix("file://")
        ids = pq.read_table(path).column("id").to_pylist()
        assert ids == sorted(ids)


# Their files


def vector_files(pipeline: Pipeline) -> set[str]:
    return {path.name for path in Path(pipeline.store.uri("tables/accounts/_data")).glob("*.bin")}


def named_vectors(pipeline: Pipeline, *snapshots: int) -> set[str]:
    state = pipeline.ledger("accounts").read()
    named = [read_manifest(pipeline.store, "accounts", s) for s in state.snapshots if s.id in snapshots]
    return {vector_name(f.deletions.vector) for manifest in named for f in manifest.files if f.deletions}


def test_the_table_has_its_vectors_in_files(marked: Pipeline) -> None:
    """Spark's VACUUM ends with a MatchError at one in the log. Other readers take both."""
    actions = [action for version in range(3) for action in _commit(marked, version)]
    vectors = [one["deletionVector"] for action in actions for one in action.values() if "deletionVector" in one]
    assert {vector["storageType"] for vector in vectors} == {"u"}
    assert vector_files(marked) == named_vectors(marked, 2, 3)
    assert table_rows(marked) == after(FIRST, SECOND, THIRD)


def test_a_vector_that_no_snapshot_needs_is_deleted(tmp_path: Path) -> None:
    marked = make_pipeline(tmp_path, f"{VECTORS}\nretention: {{snapshots: 1, grace_versions: 1}}\n")
    for number, changes in enumerate((FIRST, SECOND, THIRD), 1):
        cycle(marked, f"run-{number}", changes)
    folder = Path(marked.store.uri("tables/accounts/_data"))
    (folder / "deletion_vector_0f4a2f4e-0000-4000-8000-000000000000.bin").write_bytes(b"of a killed publisher")
    clean(marked, ["accounts"])
    assert vector_files(marked) == named_vectors(marked, 2, 3)
    cycle(marked, "run-4", dict.fromkeys(range(50, 60), "4"))
    gone = named_vectors(marked, 2) - named_vectors(marked, 4)
    assert gone
    for number in (5, 6):
        cycle(marked, f"run-{number}", {11: f"{number}"})
        subsume(marked, "accounts")
    kept = {s.id for s in marked.ledger("accounts").read().snapshots if s.state in KEPT}
    assert vector_files(marked) == named_vectors(marked, *kept)
    assert not vector_files(marked) & gone
    assert table_rows(marked) == {**after(FIRST, SECOND, THIRD), **dict.fromkeys(range(50, 60), "4"), 11: "6"}
    assert verify(marked, "accounts").error_code is None


def versions(pipeline: Pipeline) -> list[int]:
    """How many rows Polars reads of each version of the table."""
    address = pipeline.store.uri("tables/accounts")
    count = DeltaTable(address).version() + 1
    return [len(polars.read_delta(address, version=version)) for version in range(count)]


@pytest.mark.rotates(4)
@pytest.mark.parametrize("which", ["of the newest version", "of an older one"])
@pytest.mark.parametrize("harm", ["missing", "cut", "altered"])
def test_a_damaged_vector_is_found_and_repaired(marked: Pipeline, harm: str, which: str) -> None:
    """Its manifest has all of it. Readers of each version that is kept need it."""
    cycle(marked, "run-4", dict.fromkeys(range(20, 40), "d"))
    newest, older = named_vectors(marked, 4), named_vectors(marked, 3)
    names = newest if which == "of the newest version" else older - newest
    assert names
    for path in (Path(marked.store.uri("tables/accounts/_data")) / name for name in names):
        data = path.read_bytes()
        path.unlink()
        if harm != "missing":
            path.write_bytes(data[:-3] if harm == "cut" else bytes(len(data)))
    told = Landing(marked.config.path.parent).call("check", "verify", code=5).output
    assert told.count(f"deletion vector {harm}") == len(names)
    assert "published table" not in told
    take_steps(marked, told)
    assert verify(marked, "accounts").error_code is None
    assert versions(marked) == [400, 399, 399, 399]


@pytest.mark.parametrize("lost", ["the log of the table", "the ledger"])
def test_what_is_rebuilt_has_its_vectors(marked: Pipeline, lost: str) -> None:
    at = Landing(marked.config.path.parent)
    folder = Path(marked.store.uri("tables/accounts")) / "_delta_log" if "table" in lost else at.folder / "store/logs"
    shutil.rmtree(folder if "table" in lost else folder / "accounts/ledger")
    for name in named_vectors(marked, 3) if "table" in lost else ():  # A publication mends those that it needs.
        (folder.parent / "_data" / name).write_bytes(b"cut")
    at.call("move", "rebuild", "accounts", *(["--table"] if "table" in lost else []), "--yes")
    assert table_rows(marked) == after(FIRST, SECOND, THIRD)
    again = open_pipeline(marked.config.path)
    cycle(again, "run-4", {11: "d"})
    assert table_rows(again) == {**after(FIRST, SECOND, THIRD), 11: "d"}
    assert verify(again, "accounts").error_code is None
    clean(again, ["accounts"])
    assert versions(again) == ([399, 399] if "table" in lost else [400, 399, 399, 399])


# Others in the table


def commit(pipeline: Pipeline, *actions: dict[str, Any]) -> None:
    version = DeltaTable(pipeline.store.uri("tables/accounts")).version() + 1
    lines = b"\n".join(map(msgspec.json.encode, actions))
    pipeline.store.put_if_absent(f"tables/accounts/_delta_log/{version:020d}.json", lines)


FIVE = deletions(np.arange(5, dtype=np.uint64))
assert FIVE
FIVE_ROWS = descriptor(FIVE, is_file=False)


def remove(added: dict[str, Any]) -> dict[str, Any]:
    kept = {key: added[key] for key in ("path", "dataChange", "deletionVector") if key in added}
    return {"remove": {**kept, "deletionTimestamp": 0}}


@pytest.mark.parametrize("how", ["RESTORE", "--reconcile"])
@pytest.mark.parametrize("what", ["deletes rows", "brings rows back", "adds a file"])
def test_vectors_that_somebody_else_changes_are_noticed(marked: Pipeline, what: str, how: str) -> None:
    """Refused until it is undone, as RESTORE does it, or replaced. One path with two vectors is two files to Delta."""
    added = newest_add(marked, next(f"_data/{f.name}" for f in manifest_of(marked).files if f.deletions))
    theirs = {
        "deletes rows": {**added, "deletionVector": FIVE_ROWS},
        "brings rows back": {key: value for key, value in added.items() if key != "deletionVector"},
        "adds a file": {**added, "path": "of-another.parquet", "deletionVector": FIVE_ROWS},
    }[what]
    gone = [] if what == "adds a file" else [remove(added)]
    commit(marked, *gone, {"add": theirs})
    put(marked, [{"id": 12, "text": "e"}])
    materialize(marked, ["accounts"], Fold("run-5"), in_process)
    judge_all(marked)
    at = Landing(marked.config.path.parent)
    said = at.call("step", "confirm", "accounts", code=3).output
    assert "[FOREIGN_COMMIT] Another program changed deletion vectors" in said or what == "adds a file"
    assert "RESTORE to version 2" in said
    if how == "RESTORE":
        commit(marked, remove(theirs), *([{"add": added}] if gone else []))
    take_steps(marked, said, *(["--reconcile"] if how == "--reconcile" else []))
    assert table_rows(marked) == {**after(FIRST, SECOND, THIRD), 12: "e"}
    cycle(marked, "run-6", {13: "f"})
    assert table_rows(marked) == {**after(FIRST, SECOND, THIRD), 12: "e", 13: "f"}
    assert verify(marked, "accounts").error_code is None


def take_steps(pipeline: Pipeline, said: str, *having: str) -> None:
    """Runs the first command that the output names as a next step, with these options in it."""
    steps = re.findall(r"`tidefold ([^`]+)`", said[said.index("next: Readers") if "next: Readers" in said else 0 :])
    step = next(one for one in steps if all(option in one for option in having))
    Landing(pipeline.config.path.parent).call(*step.split())


def test_a_log_that_somebody_else_shortened_begins_again(marked: Pipeline) -> None:
    """Which vectors the table has is not known any more."""
    added = newest_add(marked, next(f"_data/{f.name}" for f in manifest_of(marked).files if f.deletions))
    commit(marked, remove(added), {"add": added})
    address = marked.store.uri("tables/accounts")
    DeltaTable(address).create_checkpoint()
    (Path(address) / f"_delta_log/{3:020d}.json").unlink()
    put(marked, [{"id": 12, "text": "e"}])
    materialize(marked, ["accounts"], Fold("run-5"), in_process)
    judge_all(marked)
    at = Landing(marked.config.path.parent)
    said = at.call("step", "confirm", "accounts", "--reconcile", code=3).output
    assert "[FOREIGN_COMMIT] Another program changed commits" in said
    assert "Move `tables/accounts/_delta_log` out of the store" in said
    (Path(address) / "_delta_log").rename(at.folder / "moved")
    at.call("move", "rebuild", "accounts", "--table", "--yes")
    at.call("step", "confirm", "accounts")
    assert table_rows(marked) == {**after(FIRST, SECOND, THIRD), 12: "e"}


def test_other_features_of_the_table_are_not_ours_to_write(marked: Pipeline) -> None:
    protocol = {
        "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors", "appendOnly", "invariants", "rowTracking", "domainMetadata"],
    }  # fmt: skip
    commit(marked, {"protocol": protocol})
    assert refused(marked) == "FOREIGN_COMMIT"


def refused(pipeline: Pipeline) -> str:
    """How the next snapshot is refused, also when it is asked to be reconciled."""
    put(pipeline, [{"id": 12, "text": "e"}])
    materialize(pipeline, ["accounts"], Fold("run-5"), in_process)
    judge_all(pipeline)
    codes = set()
    for reconcile in (False, True):
        with pytest.raises(RefusedError) as error:
            confirm(pipeline, "accounts", Confirmation(run="run-5", reconcile=reconcile))
        codes.add(error.value.code)
    [code] = codes
    return code


def newest_add(pipeline: Pipeline, path: str) -> dict[str, Any]:
    versions = range(DeltaTable(pipeline.store.uri("tables/accounts")).version() + 1)
    found = [a["add"] for version in versions for a in _commit(pipeline, version) if "add" in a]
    return next(add for add in reversed(found) if add["path"] == path)


def test_what_somebody_else_put_together_can_be_reconciled(marked: Pipeline) -> None:
    """As OPTIMIZE does: files with vectors are gone, one without is there."""
    active = {f"_data/{f.name}" for f in manifest_of(marked).shown}
    gone = [newest_add(marked, path) for path in sorted(active)]
    rest = {**gone[0], "path": "_data/of-another.parquet"}
    rest.pop("deletionVector", None)
    said = [
        {"remove": {"path": a["path"], "dataChange": True, "deletionTimestamp": 0}
         | ({"deletionVector": a["deletionVector"]} if "deletionVector" in a else {})}
        for a in gone
    ]  # fmt: skip
    commit(marked, *said, {"add": rest})
    put(marked, [{"id": 12, "text": "e"}])
    [_] = materialize(marked, ["accounts"], Fold("run-5"), in_process)
    judge_all(marked)
    with pytest.raises(RefusedError, match="FOREIGN_COMMIT"):
        confirm(marked, "accounts", Confirmation(run="run-5"))
    confirm(marked, "accounts", Confirmation(run="run-5", reconcile=True))
    assert table_rows(marked) == {**after(FIRST, SECOND, THIRD), 12: "e"}


def _commit(pipeline: Pipeline, version: int) -> list[dict[str, Any]]:
    data = pipeline.store.read(f"tables/accounts/_delta_log/{version:020d}.json")
    return [msgspec.json.decode(line) for line in data.splitlines()]


# Keys of all kinds

KEYS = """
version: 1
store: store
snapshots: {{kind: incremental}}
logs:
  keyed:
    key: [{names}]
    columns: {{a: {a}, b: {b}, n: int}}
    order: arrival
    key_groups: 4
    buckets: 2
    deletion_vectors: true
"""
INSTANT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("names", "a", "b", "values"),
    [
        ("a", "string", "int", lambda i: (f"k'{i}", i)),
        ("a", "timestamp", "int", lambda i: (INSTANT.replace(microsecond=i), i)),
        ("a, b", "string", "long", lambda i: (f"k{i % 7}", i // 7)),
    ],
    ids=["text", "instant", "two columns"],
)
def test_keys_of_all_kinds(tmp_path: Path, names: str, a: str, b: str, values: Any) -> None:
    (tmp_path / "tidefold.yaml").write_text(KEYS.format(names=names, a=a, b=b))
    pipeline = open_pipeline(tmp_path / "tidefold.yaml")
    held: dict[Any, int] = {}
    for step, (first, last) in enumerate([(0, 300), (10, 20), (15, 18), (290, 310)]):
        rows = [dict(zip(("a", "b"), values(i), strict=True), n=step) for i in range(first, last)]
        held |= {tuple(row[name] for name in names.split(", ")): step for row in rows}
        with Changelog(pipeline.store) as changelog:
            log = changelog.log("keyed", pipeline.log("keyed").shape)
            log.append(pa.Table.from_pylist(rows))
        finished(pipeline, Fold(f"run-{step}"), "keyed")
        _, batches = read_rows(pipeline, "keyed", ReadRequest())
        found = [row for batch in batches for row in batch.to_pylist()]
        assert {tuple(row[name] for name in names.split(", ")): row["n"] for row in found} == held
        assert len(found) == len(held)
    assert any(f.deletions for f in manifest_of(pipeline, "keyed").files)


# The vectors themselves


COMPARED = """
version: 1
store: store
snapshots: {{kind: incremental}}
logs:
  accounts:
    key: [id]
    columns: {{id: int, at: long, text: string, n: long}}
    order: {order}
    merge: {merge}
    buckets: 4
    deletion_vectors: {vectors}
"""


@pytest.mark.rotates(4)
@pytest.mark.parametrize(
    "order", ["[at]\n    source: {format: csv, path: landing}", "arrival"], ids=["columns", "arrival"]
)
@pytest.mark.parametrize(
    "merge", ["last", "first", "partial", "{engine: aggregate, aggregates: {at: max, n: max, text: min}}"]
)
def test_a_change_that_counts_with_the_old_row(tmp_path: Path, order: str, merge: str) -> None:
    """Late changes, deletes, values that are not sent, new keys: as where files are rewritten."""
    deletes, op = merge in ("last", "partial"), {"_op": MERGE} if "aggregate" in merge else {}
    sent = {"_absent": ["text"], "text": None} if merge == "partial" else {}

    def change(key: int, at: int, **values: Any) -> dict[str, Any]:
        placed = {"_o0": at, "_o1": None} if order.startswith("[at]") else {"_o0": None, "_o1": None}
        return {"id": key, "at": at, "text": f"{key} at {at}", "n": key * at, **op, **placed, **values}

    rounds = [
        [change(key, 100 + key) for key in range(400)],
        # A newer one, a late one, one of the same order, a delete, a late delete, a new key.
        [change(1, 900, **sent), change(2, 50), change(3, 103), change(400, 5)]
        + [change(4, 901, _op=DELETE), change(5, 1, _op=DELETE)] * deletes,
        # What the small file has by now, and what the vector marks.
        [change(1, 500), change(1, 950), change(2, 10, **sent), change(400, 4), change(4, 902), change(6, 960)],
    ]
    tables = []
    for vectors in ("true", "false"):
        pipeline = make_pipeline(tmp_path / vectors, COMPARED.format(order=order, merge=merge, vectors=vectors))
        for number, changes in enumerate(rounds):
            put(pipeline, changes)
            outcome = finished(pipeline, Fold(f"run-{number}"))
        _, batches = read_rows(pipeline, "accounts", ReadRequest())
        rows = sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["id"])
        tables.append((rows, {name: outcome.facts[name] for name in ("rows", "upserts", "deletes", "replaced")}))
        assert any(file.deletions for file in manifest_of(pipeline).files) == (vectors == "true")
    assert tables[0] == tables[1]


@pytest.mark.rotates(3)
@pytest.mark.parametrize("order", ["[at]", "[at, n]", "file"])
@pytest.mark.parametrize("seed", range(4))
def test_rows_that_all_changes_replace_are_not_read(
    tmp_path: Path, order: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random rounds against the change of each key with the highest place. In some rounds changes come late."""
    source = "\n    source: {format: csv, path: landing}"
    pipeline = make_pipeline(tmp_path, COMPARED.format(order=f"{order}{source}", merge="last", vectors="true"))
    random, offset, told = np.random.default_rng(seed), 0, list[bool]()
    monkeypatch.setattr(fold_bucket, "are_newer", lambda *given: told.append(merge.are_newer(*given)) or told[-1])
    newest: dict[int, tuple[tuple[int, ...], str | None]] = {}
    for number, is_late in enumerate((False, False, True, False, True)):
        changes = []
        for key in range(400) if number == 0 else random.choice(410, 12).tolist():
            at = 100 * (int(random.integers(number + 1)) if is_late else number) + int(random.integers(100))
            place = (at, int(random.integers(3))) if order == "[at, n]" else (at,)
            text = None if number and random.integers(4) == 0 else f"{number} of {offset}"
            op = {} if text else {"_op": DELETE}
            placed = dict(zip(("_o0", "_o1"), (*place, None), strict=False))
            changes.append({"id": key, "at": at, "text": text, "n": offset, **placed, **op})
            newest[key] = max(newest.get(key, ((), None)), ((*place, 0, offset), text))
            offset += 1
        put(pipeline, changes)
        before = len(told)
        finished(pipeline, Fold(f"run-{number}"))
        assert is_late or number == 0 or (told[before:] and all(told[before:]))
        assert live(pipeline) == {key: text for key, (_, text) in newest.items() if text}
    assert not all(told)


@given(st.sets(st.integers(0, 300_000), min_size=1, max_size=200))
def test_a_vector_says_what_was_put_in(given_places: set[int]) -> None:
    made = deletions(np.array(sorted(given_places), np.uint64))
    assert made
    assert places(made).tolist() == sorted(given_places)
    assert made.rows == len(given_places)
    assert len(made.vector) == -(-made.bytes // 4) * 5
