"""Rows restored to another place, and what a restore would read: real stores, no Spark.

Requirements L6, L8, C10; promises I5, I16, I17, I26. The log stays as it is, whatever happens.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from support.faults import Fault, FaultyStore, Killed
from support.pipelines import contents, make_pipeline, rows_of, with_log_shape
from support.restoring import (
    BATCHES,
    FIRST,
    LOG,
    SECOND,
    THIRD,
    Bench,
    Rows,
    bench,
    configured,
    copy_of,
    cycle,
    files_of,
    flip,
    names_of,
    restore,
    rows_after,
    spoil,
    take,
)
from support.s3_server import S3Bucket
from tidefold.changelog.key_group_hash import key_groups_of
from tidefold.changelog.segment import read_index
from tidefold.compute.runners import in_process
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import State
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint
from tidefold.errors import InvalidInputError, NotFoundError, RefusedError, TidefoldError
from tidefold.fold import inputs
from tidefold.operations.ground import originals as external
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Restore
from tidefold.operations.restore.export import restore_to
from tidefold.operations.restore.plan import RestoredRows
from tidefold.operations.restore.restore import explain
from tidefold.operations.snapshot.compact_log import take_tail
from tidefold.storage import open_store
from tidefold.storage.local_store import LocalStore


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench(tmp_path_factory.mktemp("restore-to"), configured(), only_copy=2)


def everything(pipeline: Pipeline) -> dict[str, bytes]:
    return contents(pipeline.config.path.parent)


def check_described(to: Path, rows: Rows, snapshot: int, sqn: int) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((to / "tidefold-restore.json").read_text())
    assert (said["log"], said["snapshot"], said["sqn"], said["rows"]) == (LOG, snapshot, sqn, len(rows))
    found = {f"_data/{p.name}": hashlib.sha256(p.read_bytes()).hexdigest() for p in (to / "_data").iterdir()}
    assert said["files"] == found
    return said


def test_the_rows_come_as_a_table_of_their_own(made: Bench, tmp_path: Path) -> None:
    """L6: read by deltalake and Polars; with bytes of its own; the log and its store stay as they are."""
    pipeline = made.reset()
    before = everything(pipeline)
    to = tmp_path / "new" / "place"
    outcome = restore_to(pipeline, LOG, 2, str(to))
    assert (outcome.status, outcome.facts["rows"], outcome.facts["to"]) == ("exported", len(SECOND), str(to))
    assert rows_of(str(to)) == SECOND
    said = check_described(to, SECOND, 2, 2)
    assert said["key_groups"] == [0, 15, 16]
    assert {p.name for p in to.iterdir()} == {"_data", "_delta_log", "tidefold-restore.json"}
    assert all(p.stat().st_nlink == 1 for p in (to / "_data").iterdir())
    read = outcome.facts["read"]
    assert (read["local"]["files"], read["store"]["files"], read["failed"]) == (4, 0, [])
    assert everything(pipeline) == before
    shutil.rmtree(made.work)
    assert rows_of(str(to)) == SECOND


@pytest.mark.parametrize("local", ["ok", "corrupt"])
@pytest.mark.parametrize("primary", ["ok", "missing"])
@pytest.mark.parametrize("older", ["ok", "corrupt"])
def test_the_same_places_serve(made: Bench, tmp_path: Path, local: str, primary: str, older: str) -> None:
    """I16, I17."""
    pipeline = made.reset()
    if local == "corrupt":
        for path in (copy_of(pipeline, 2) / "_data").iterdir():
            flip(path)
    if primary == "missing":
        spoil(pipeline, 2, "missing")
    if older == "corrupt":
        spoil(pipeline, 1, "corrupt")
    before = everything(pipeline)
    to = tmp_path / "to"
    if (local, primary, older) == ("corrupt", "missing", "corrupt"):
        with pytest.raises(TidefoldError, match="cannot be rebuilt") as raised:
            restore_to(pipeline, LOG, 2, str(to))
        assert raised.value.exit_code == 5
        assert not to.exists()
    else:
        sources = restore_to(pipeline, LOG, 2, str(to)).facts["read"]["sources"]
        served = "local:" if local == "ok" else "store:" if primary == "ok" else "older:1"
        assert all(sources[f.name].startswith(served) for f in files_of(pipeline, 2))
        assert rows_of(str(to)) == SECOND
        check_described(to, SECOND, 2, 2)
    assert everything(pipeline) == before


def test_a_tail_and_an_incremental_snapshot(tmp_path: Path) -> None:
    """C10, N2."""
    pipeline = bench(tmp_path, configured(local=False, kind="incremental")).reset()
    take(pipeline, {5: None, 60: "tail"})
    assert take_tail(pipeline, LOG, "tail").snapshot == 4
    take(pipeline, {61: "after"})
    rows = rows_after(*BATCHES, {5: None, 60: "tail"})
    restore_to(pipeline, LOG, 4, str(tmp_path / "tail"))
    assert rows_of(str(tmp_path / "tail")) == rows
    check_described(tmp_path / "tail", rows, 4, 4)
    restore_to(pipeline, LOG, 2, str(tmp_path / "incremental"))
    assert rows_of(str(tmp_path / "incremental")) == SECOND


class Counting(LocalStore):
    """Counts which bytes of which file are read."""

    read_spans: list[tuple[str, int, int]]

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        with super().open(path) as stream:
            yield _Counted(stream, path, self.read_spans)  # type: ignore[misc]


class _Counted:
    def __init__(self, stream: BinaryIO, path: str, spans: list[tuple[str, int, int]]) -> None:
        self._stream, self._path, self._spans = stream, path, spans

    def read(self, size: int = -1) -> bytes:
        at = self._stream.tell()
        data = self._stream.read(size)
        self._spans.append((self._path, at, at + len(data)))
        return data

    def readinto(self, buffer: Any) -> int:
        at = self._stream.tell()
        count = self._stream.readinto(buffer)  # type: ignore[attr-defined]
        self._spans.append((self._path, at, at + count))
        return int(count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@pytest.mark.parametrize("damaged", [False, True])
def test_only_the_wanted_key_groups_are_read_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    """L8: files within the range are copied, those across its edge are cut; no other file is opened, and of the change
    sets no other batch.
    """
    monkeypatch.setattr("tidefold.changelog.segment._MOST_ROWS", 2)
    pipeline = bench(tmp_path, configured(local=False)).reset()
    if damaged:
        spoil(pipeline, 2, "missing")
    spans: list[tuple[str, int, int]] = []
    monkeypatch.setattr(Counting, "read_spans", spans, raising=False)
    real = inputs.open_store

    def counted(address: str, base: Path) -> Any:
        return Counting(made_root) if address == str(made_root) else real(address, base)

    made_root = Path(pipeline.store.uri(""))
    monkeypatch.setattr(inputs, "open_store", counted)
    wanted = KeyGroups(2, 7)
    outcome = restore_to(pipeline, LOG, 2, str(tmp_path / "to"), wanted, in_process)
    groups = groups_of(pipeline, SECOND)
    assert rows_of(str(tmp_path / "to")) == {i: SECOND[i] for i, group in groups.items() if 2 <= group <= 7}
    meeting = {f.name: f for f in files_of(pipeline, 1 if damaged else 2) if f.key_groups.meets(wanted)}
    sources = outcome.facts["read"]["sources"]
    read = {name for name, place in sources.items() if name.endswith(".parquet") and not place.startswith("older:")}
    assert read == set(meeting)
    assert {path.rpartition("/")[2] for path, _, _ in spans if path.endswith(".parquet")} == set(meeting)
    kept = {p.name for p in (tmp_path / "to" / "_data").iterdir()}
    # 4-7 lies within the range and is taken as it is; of 0-3 only 2 and 3 are wanted.
    within = {name for name, f in meeting.items() if wanted.first <= f.key_groups.first}
    assert len(kept) == 2
    assert kept & set(meeting) == (set() if damaged else within)
    assert any(name.startswith("k00002-00003.") for name in kept)
    check_batches(pipeline, spans, wanted, damaged)
    assert outcome.facts["key_groups"] == (2, 7, 16)


def test_a_change_set_without_a_wanted_key_is_not_read(tmp_path: Path) -> None:
    """L8: though it is for the same bucket."""
    pipeline = bench(tmp_path, configured(local=False)).reset()
    groups = groups_of(pipeline, THIRD)
    below = next(i for i, group in groups.items() if group in (0, 1))
    take(pipeline, {below: "tail"})
    assert take_tail(pipeline, LOG, "tail").snapshot == 4
    for within, read in ((KeyGroups(2, 3), 0), (KeyGroups(0, 1), 1)):
        to = tmp_path / f"to-{within.first}"
        sources = restore_to(pipeline, LOG, 4, str(to), within).facts["read"]["sources"]
        assert sum(".seg#" in name for name in sources) == read
        rows = {**THIRD, below: "tail"}
        assert rows_of(str(to)) == {i: rows[i] for i, g in groups.items() if within.first <= g <= within.last}


def check_batches(pipeline: Pipeline, spans: list[tuple[str, int, int]], wanted: KeyGroups, any_read: bool) -> None:
    """Which batches of which segments were read."""
    [second] = pipeline.ledger(LOG).read().change_sets_in(1, 2)
    assert {path for path, _, _ in spans if path.endswith(".seg")} == ({second.location.segment} if any_read else set())
    if not any_read:
        return
    [entry] = read_index(pipeline.store, second.location.segment)
    body = range(entry.offset, entry.offset + entry.length)
    wholly = {
        (a, b) for path, a, b in spans if path == second.location.segment and a in body and b - 1 in body and a < b
    }
    # The stream reads by blocks; what was asked for are the pieces.
    batches = {
        (entry.offset + b.offset, entry.offset + b.offset + b.length): KeyGroups(b.first, b.last) for b in entry.batches
    }
    assert len(batches) > 4
    assert {span for span in wholly if span in batches} == {s for s, g in batches.items() if g.meets(wanted)}


def groups_of(pipeline: Pipeline, rows: Rows) -> dict[int, int]:
    shape = pipeline.ledger(LOG).read().shape
    table = pa.table({"id": pa.array(sorted(rows), pa.int32()), "text": [rows[i] for i in sorted(rows)]})
    return dict(zip(sorted(rows), key_groups_of(table, shape).to_pylist(), strict=True))


def test_halves_by_key_group_are_the_whole(made: Bench, tmp_path: Path) -> None:
    """L8: any cut; nobody's row is in both parts or in none."""
    pipeline = made.reset()
    for cut in (0, 3, 6, 14):
        parts = [KeyGroups(0, cut), KeyGroups(cut + 1, 15)]
        found: list[Rows] = []
        for part in parts:
            to = tmp_path / f"{part.first}-{part.last}"
            restore_to(pipeline, LOG, 2, str(to), part)
            found.append(rows_of(str(to)))
        assert not set(found[0]) & set(found[1])
        assert found[0] | found[1] == SECOND


def test_a_place_that_is_not_free_or_not_apart_is_refused_and_left_alone(made: Bench, tmp_path: Path) -> None:
    pipeline = made.reset()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("a file")
    (tmp_path / "link").symlink_to(made.work / "store" / "elsewhere")
    root = made.work
    before = everything(pipeline)
    with pytest.raises(RefusedError, match=r"mine\.txt") as raised:
        restore_to(pipeline, LOG, 2, str(tmp_path / "taken"))
    assert raised.value.code == "PLACE_TAKEN"
    overlapping = [root, root / "store", root / "store" / "x", root / "local" / "x", root / "landing" / LOG / "x"]
    for place in (*overlapping, tmp_path / "file", tmp_path / "link"):
        with pytest.raises(InvalidInputError) as wrong:
            restore_to(pipeline, LOG, 2, str(place))
        assert wrong.value.code == ("ADDRESS_IS_FILE" if place.name == "file" else "ADDRESS_TAKEN")
    for groups, snapshot, code in ((KeyGroups(0, 16), 2, "KEY_GROUPS_INVALID"), (None, 9, "SNAPSHOT_UNKNOWN")):
        with pytest.raises(TidefoldError) as told:
            restore_to(pipeline, LOG, snapshot, str(tmp_path / "new"), groups)
        assert told.value.code == code
    assert not (tmp_path / "new").exists()
    assert contents(tmp_path / "taken") == {"mine.txt": b"mine"}
    assert everything(pipeline) == before


def test_an_empty_folder_is_free_and_is_left_empty_after_an_error(made: Bench, tmp_path: Path) -> None:
    pipeline = made.reset()
    to = tmp_path / "empty"
    to.mkdir()
    for path in (copy_of(pipeline, 2) / "_data").iterdir():
        path.unlink()
    [first, *_] = files_of(pipeline, 2)
    for snapshot in (1, 2):
        spoil(
            pipeline,
            snapshot,
            "missing",
            {f.name for f in files_of(pipeline, snapshot) if f.key_groups == first.key_groups},
        )
    with pytest.raises(TidefoldError):
        restore_to(pipeline, LOG, 2, str(to))
    assert list(to.iterdir()) == []
    restore_to(pipeline, LOG, 3, str(to))
    assert rows_of(str(to)) == THIRD


@pytest.mark.parametrize("fault", list(Fault))
def test_a_failure_at_any_call_leaves_nothing_that_looks_like_a_table(
    made: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """I11, I19: an error leaves nothing at all, but where its outcome is not known; a kill leaves no Delta log."""
    pipeline = made.reset()
    before = everything(pipeline)

    def act(number: int, at: int | None) -> FaultyStore:
        target = FaultyStore(tmp_path / f"{fault.name}-{number}", at=at, fault=fault)
        real = open_store

        def opens(address: str, base: Path) -> Any:
            return target if address == target.uri("") else real(address, base)

        monkeypatch.setattr(inputs, "open_store", opens)
        monkeypatch.setattr(external, "open_store", opens)
        with suppress(Killed, TidefoldError):
            restore_to(pipeline, LOG, 2, target.uri(""), None, in_process)
        monkeypatch.undo()
        return target

    whole = act(0, None)
    assert rows_of(whole.uri("")) == SECOND
    assert whole.calls == 4 + 4
    for at in range(whole.calls):
        target = act(at + 1, at)
        left = [entry.path for entry in LocalStore(target.root).list("", unfinished=True)]
        if any(path.startswith("_delta_log/") and path.endswith(".json") for path in left):
            # All was done: what failed came after it.
            assert rows_of(target.uri("")) == SECOND
            assert at >= whole.calls - 2
        elif fault in (Fault.ERROR_BEFORE, Fault.ERROR_AFTER):
            assert set(left) <= {"_tidefold-restoring"}
            assert not left or at == 0
    assert everything(pipeline) == before


def test_two_at_once_never_mix(made: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I20: whoever finds the other's marker, or its table, is refused and removes nothing of it."""
    pipeline = made.reset()
    to = LocalStore(tmp_path / "to")
    other = tmp_path / "other"
    restore_to(pipeline, LOG, 3, str(other))
    real = LocalStore.put_if_absent

    def overtaken(self: LocalStore, path: str, data: bytes) -> None:
        if path == "_tidefold-restoring":
            shutil.copytree(other, to.root)
        real(self, path, data)

    monkeypatch.setattr(LocalStore, "put_if_absent", overtaken)
    with pytest.raises(RefusedError, match="not empty"):
        restore_to(pipeline, LOG, 2, str(to.root))
    monkeypatch.undo()
    assert contents(to.root) == contents(other)


def test_the_rows_must_be_as_many_as_the_ledger_says(
    made: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I17."""
    pipeline = made.reset()
    monkeypatch.setattr(RestoredRows, "rows", 7)
    with pytest.raises(TidefoldError, match="The restore of `accounts` produced 39 rows, but 7 were recorded"):
        restore_to(pipeline, LOG, 2, str(tmp_path / "to"))
    assert not (tmp_path / "to").exists()
    outcome = restore(pipeline, 2)
    assert (outcome.error_code, outcome.error.exit_code) == ("ROWS_DIFFER", 5)
    assert pipeline.ledger(LOG).read().snapshots[-1].state is State.ABORTED


def test_to_s3_and_from_s3(s3: S3Bucket, tmp_path: Path) -> None:
    """L6: between any two stores."""
    (tmp_path / "work").mkdir()
    config = configured(local=False).replace("store: store", f"store: s3://{s3.name}/store")
    pipeline = make_pipeline(tmp_path / "work", config)
    for number, changes in enumerate(BATCHES[:2], 1):
        cycle(pipeline, f"run-{number}", changes)
    restore_to(pipeline, LOG, 2, str(tmp_path / "to"))
    assert rows_of(str(tmp_path / "to")) == SECOND
    uri = f"s3://{s3.name}/elsewhere/table"
    outcome = restore_to(pipeline, LOG, 2, uri, KeyGroups(0, 9))
    there = open_store(uri, tmp_path)
    assert outcome.facts["rows"] == len(rows_of(uri, there.options())) > 0
    assert "_tidefold-restoring" not in [e.path for e in there.list("")]
    for place, code in (
        (uri, "PLACE_TAKEN"),
        (f"s3://{s3.name}/store/x", "ADDRESS_TAKEN"),
        (f"s3://{s3.name}", "ADDRESS_TAKEN"),
    ):
        with pytest.raises(TidefoldError) as raised:
            restore_to(pipeline, LOG, 2, place)
        assert raised.value.code == code


def asking(snapshot: int, mode: RestoreMode = RestoreMode.REPLAY) -> Restore:
    return Restore("plan", RestorePoint(snapshot, mode))


def test_explain_says_for_each_bucket_what_is_where_and_changes_nothing(made: Bench) -> None:
    """L6: claims nothing."""
    pipeline = made.reset()
    files = sorted(files_of(pipeline, 2), key=lambda f: f.key_groups)
    (copy_of(pipeline, 2) / "_data" / files[0].name).unlink()
    spoil(pipeline, 2, "missing", {files[1].name})
    cut = Path(pipeline.store.uri(f"tables/{LOG}/_data/{files[2].name}"))
    cut.write_bytes(cut.read_bytes()[:-1])
    before = everything(pipeline)
    outcome = explain(pipeline, LOG, asking(2))
    assert everything(pipeline) == before
    facts = json.loads(json.dumps(outcome.to_dict()))["facts"]
    assert (facts["restored"], facts["as"], facts["mode"]) == (2, 4, "replay")
    assert [bucket["key_groups"] for bucket in facts["buckets"]] == [[0, 3], [4, 7], [8, 11], [12, 15]]
    paths, name = LogPaths(LOG), files[0].name
    [first] = facts["buckets"][0]["ways"][0]["files"]
    assert first["places"] == [
        {"place": f"local:{LOG}/0000000002/_data/{name}", "bytes": None, "found": "missing"},
        {"place": f"store:{paths.table}/_data/{name}", "bytes": files[0].bytes, "found": "there"},
        {"place": f"store:{paths.snapshot(2)}/_data/{name}", "bytes": files[0].bytes, "found": "there"},
    ]
    found = [[p["found"] for p in b["ways"][0]["files"][0]["places"]] for b in facts["buckets"]]
    assert found[1:] == [
        ["there", "missing", "missing"],
        ["there", "of another length", "of another length"],
        ["there", "there", "there"],
    ]
    older = [way["snapshot"] for way in facts["buckets"][0]["ways"]]
    assert older == [2, 1]
    assert facts["buckets"][0]["ways"][1]["change_sets"] == [[2, 2]]


def test_explain_is_refused_as_the_restore_would_be(made: Bench) -> None:
    pipeline = made.reset()
    take(pipeline, {1: "z"})
    before = everything(pipeline)
    with pytest.raises(NotFoundError):
        explain(pipeline, LOG, asking(9))
    assert explain(pipeline, LOG, asking(1, RestoreMode.SKIP)).facts["to_sqn"] == 4
    assert everything(pipeline) == before


def test_a_recipe_that_cannot_be_followed_leaves_no_file_in_the_place(tmp_path: Path) -> None:
    """L6, L8: of a bucket that two files of an older snapshot would make one was copied when the other proved bad."""
    pipeline = make_pipeline(tmp_path, configured(local=False, retention="2"))
    cycle(with_log_shape(pipeline, buckets=8), "run-1", FIRST)
    cycle(pipeline, "run-2", {}, KindPolicy.FULL)  # The same rows in other files: four buckets.
    for file in files_of(pipeline, 2):
        for path in names_of(pipeline, 2, file.name):
            path.unlink()
    flip(names_of(pipeline, 1, files_of(pipeline, 1)[1].name)[0])
    outcome = restore_to(pipeline, LOG, 2, str(tmp_path / "there"))
    assert outcome.facts["rows"] == len(FIRST)
    shown = DeltaTable(str(tmp_path / "there")).get_add_actions().column("path").to_pylist()
    assert {f"_data/{path.name}" for path in (tmp_path / "there" / "_data").iterdir()} == set(shown)
