"""Savepoints of both kinds: whole, readable by any engine without tidefold, and never half. N9, I12, I26, I27."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.arrival import Landing
from support.pipelines import contents, make_pipeline, table_rows
from support.s3_server import S3Bucket
from support.savepoints import FIRST, THIRD, Rows, canonical_rows, changed, make, save, saved_rows
from tidefold.compute.runners import in_process
from tidefold.domain.external_snapshot import Layout
from tidefold.domain.paths import STORED_FORMAT
from tidefold.domain.snapshot.manifest import BEGUN, DESCRIPTION
from tidefold.errors import InvalidInputError, NotFoundError, RefusedError, TidefoldError
from tidefold.ledger import read_description
from tidefold.operations.ground.originals import open_address
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.savepoint.take import SavepointRequest, take_savepoint
from tidefold.operations.snapshot.compact_log import take_tail
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return make(tmp_path / "one")


@pytest.mark.parametrize("layout", list(Layout))
def test_a_savepoint_stays_readable_when_the_store_is_gone(tmp_path: Path, pipeline: Pipeline, layout: Layout) -> None:
    """N9: by deltalake and Polars, or by pyarrow, DuckDB and Polars."""
    saved = save(pipeline, tmp_path / "save", layout)
    assert (saved.status, saved.snapshot, saved.facts["rows"]) == ("saved", 3, len(THIRD))
    shutil.rmtree(tmp_path / "one")
    assert saved_rows(tmp_path / "save", layout) == THIRD
    assert not (tmp_path / "save" / BEGUN).exists()


def test_a_savepoint_without_an_address_has_a_folder_of_its_own(tmp_path: Path, pipeline: Pipeline) -> None:
    """Flink's savepoint-dir. The same call again returns the same savepoint; without the folder it is refused."""
    with pytest.raises(InvalidInputError, match="SAVEPOINT_OPTIONS"):
        take_savepoint(pipeline, "accounts", SavepointRequest(None))
    path = tmp_path / "one/tidefold.yaml"
    path.write_text(path.read_text() + "snapshots: {savepoints: saved}\n")
    configured = open_pipeline(path)
    for status in ("saved", "already"):
        assert take_savepoint(configured, "accounts", SavepointRequest(None)).status == status
    take_savepoint(configured, "accounts", SavepointRequest(None, snapshot=2, layout=Layout.CANONICAL))
    folder = tmp_path / "one/saved"
    assert sorted(p.name for p in folder.iterdir()) == ["accounts-2-canonical", "accounts-3-native"]
    assert saved_rows(folder / "accounts-3-native", Layout.NATIVE) == THIRD


def test_the_bytes_of_a_savepoint_are_its_own(tmp_path: Path, pipeline: Pipeline) -> None:
    save(pipeline, tmp_path / "save")
    files = [p for p in (tmp_path / "save").rglob("*") if p.is_file()]
    assert {p.stat().st_nlink for p in files} == {1}


@pytest.mark.parametrize("layout", list(Layout))
def test_the_description_says_what_is_there(tmp_path: Path, pipeline: Pipeline, layout: Layout) -> None:
    """I27: field by field, as docs/how-to/recover.md has it; I26: nothing of the store's place."""
    save(pipeline, tmp_path / "save", layout, snapshot=2)
    text = (tmp_path / "save" / DESCRIPTION).read_text()
    assert str(tmp_path) not in text
    found = json.loads(text)
    assert list(found) == [
        "format", "version", "kind", "log", "snapshot", "sqn", "instant", "rows", "shape", "progress", "files",
        "delta_log", "cleared", "redistribution", "checksum",
    ]  # fmt: skip
    assert (found["format"], found["version"], found["kind"]) == ("tidefold-savepoint", STORED_FORMAT, str(layout))
    assert (found["log"], found["snapshot"], found["sqn"], found["rows"]) == ("accounts", 2, 2, 36)
    assert found["shape"] == {
        "key": ["id"],
        "columns": [
            {"name": "id", "type": "int", "encoding": "", "aliases": [], "default": None, "optional": False},
            {"name": "text", "type": "string", "encoding": "", "aliases": [], "default": None, "optional": False},
        ],
        "order": "postgresql",
        "key_groups": 16,
        "buckets": 4,
        "order_by": [],
        "merge": {"engine": "last", "deletes": "apply", "groups": [], "aggregates": []},
        "spread": 0,
        "ignored": [],
        "reading": [],
    }
    # Where the source stood at snapshot 2: not where it stands now.
    [position] = found["progress"]["positions"]
    assert (position["topic"], position["partition"]) == ("accounts", 0)
    assert (position["next_offset"], position["stream"][0]) == (47, [1, 46])
    for file in found["files"]:
        data = (tmp_path / "save" / file["path"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        assert file["rows"] == pq.read_metadata(tmp_path / "save" / file["path"]).num_rows
        assert json.loads(file["stats"])["numRecords"] == file["rows"]
    there = {str(p.relative_to(tmp_path / "save")) for p in (tmp_path / "save").rglob("*") if p.is_file()}
    assert there == {f["path"] for f in found["files"]} | set(found["delta_log"]) | {DESCRIPTION}


def test_canonical_rows_are_plain_parquet_sorted_by_key(tmp_path: Path, pipeline: Pipeline) -> None:
    save(pipeline, tmp_path / "save", Layout.CANONICAL)
    for path in (tmp_path / "save/rows").iterdir():
        file = pq.ParquetFile(path)
        assert file.metadata.metadata is None
        assert file.metadata.row_group(0).column(0).compression == "SNAPPY"
        assert file.schema_arrow == pa.schema(
            [pa.field("id", pa.int32(), nullable=False), pa.field("text", pa.string())]
        )
        keys = file.read().column("id").to_pylist()
        assert keys == sorted(keys)


@pytest.mark.parametrize("layout", list(Layout))
def test_a_tail_is_folded_while_it_is_written(tmp_path: Path, pipeline: Pipeline, layout: Layout) -> None:
    rows = changed(pipeline, THIRD, {8: None, 52: "d 52"})
    tail = take_tail(pipeline, "accounts", "tail").snapshot
    changed(pipeline, rows, {53: "later"})
    saved = save(pipeline, tmp_path / "save", layout)
    assert (saved.snapshot, saved.facts["sqn"]) == (tail, 4)
    assert saved_rows(tmp_path / "save", layout) == rows
    assert saved.facts["positions"][0]["next_offset"] == 51


@pytest.mark.parametrize("layout", list(Layout))
def test_damage_in_the_store_is_gone_round_as_a_restore_does(
    tmp_path: Path, pipeline: Pipeline, layout: Layout
) -> None:
    """I17: another copy, else an older snapshot and the log; the bytes are proved on the way."""
    state = pipeline.ledger("accounts").read()
    found = sorted((tmp_path / "one/store").rglob("*.s0000000003.*.parquet"))
    assert state.latest
    assert found
    for path in found:
        path.write_bytes(b"damaged")
    saved = save(pipeline, tmp_path / "save", layout)
    assert saved_rows(tmp_path / "save", layout) == THIRD
    assert saved.facts["read"]["older"]
    assert {tried["why"] for tried in saved.facts["read"]["failed"]} == {"altered"}


def test_the_same_call_again_is_already_and_another_one_is_refused(tmp_path: Path, pipeline: Pipeline) -> None:
    """I4; a savepoint is the user's: nothing of it is ever changed."""
    save(pipeline, tmp_path / "save")
    before = contents(tmp_path / "save")
    assert save(pipeline, tmp_path / "save").status == "already"
    for how in ({"snapshot": 1}, {"layout": Layout.CANONICAL}, {"snapshot": 2, "overwrite": True}):
        with pytest.raises(RefusedError) as refused:
            save(pipeline, tmp_path / "save", **how)  # type: ignore[arg-type]
        assert refused.value.code == "SAVEPOINT_EXISTS"
    assert contents(tmp_path / "save") == before


def test_what_is_not_confirmed_is_never_given_out(tmp_path: Path, pipeline: Pipeline) -> None:
    """I14."""
    changed(pipeline, THIRD, {1: "x"})
    materialize(pipeline, ["accounts"], Fold("run-4"), in_process)
    with pytest.raises(RefusedError) as refused:
        save(pipeline, tmp_path / "save", snapshot=4)
    assert refused.value.code == "WRONG_STATE"
    assert save(pipeline, tmp_path / "save").snapshot == 3
    with pytest.raises(NotFoundError):
        save(make_pipeline(tmp_path / "two"), tmp_path / "other")


@pytest.mark.parametrize("place", ["one/store/x", "one/store", "one", "one/landing/accounts/x", "one/landing"])
def test_a_place_of_the_pipeline_itself_is_refused(tmp_path: Path, pipeline: Pipeline, place: str) -> None:
    before = contents(tmp_path)
    with pytest.raises(InvalidInputError) as refused:
        save(pipeline, tmp_path / place)
    assert refused.value.code == "ADDRESS_TAKEN"
    assert contents(tmp_path) == before


def test_a_folder_with_other_things_is_refused_and_left(tmp_path: Path, pipeline: Pipeline) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("x")
    for overwrite in (False, True):
        with pytest.raises(RefusedError) as refused:
            save(pipeline, tmp_path / "mine", overwrite=overwrite)
        assert refused.value.code == "ADDRESS_NOT_EMPTY"
    assert contents(tmp_path / "mine") == {"notes.txt": b"x"}


def test_half_a_savepoint_is_said_and_filled_anew_on_request(tmp_path: Path, pipeline: Pipeline) -> None:
    save(pipeline, tmp_path / "save")
    whole = contents(tmp_path / "save")
    (tmp_path / "save" / DESCRIPTION).unlink()
    (tmp_path / "save" / BEGUN).write_bytes(b'{"log":"accounts","snapshot":3,"token":"x"}')
    with pytest.raises(RefusedError) as refused:
        save(pipeline, tmp_path / "save")
    assert refused.value.code == "SAVEPOINT_UNFINISHED"
    assert "--overwrite-unfinished" in refused.value.hint
    save(pipeline, tmp_path / "save", overwrite=True)
    assert {n: d for n, d in contents(tmp_path / "save").items() if "_delta_log" not in n} == {
        n: d for n, d in whole.items() if "_delta_log" not in n
    }
    # Files of ours without the mark of one that was begun may be anybody's.
    (tmp_path / "save" / DESCRIPTION).unlink()
    with pytest.raises(RefusedError) as refused:
        save(pipeline, tmp_path / "save", overwrite=True)
    assert refused.value.code == "ADDRESS_NOT_EMPTY"


def test_an_error_leaves_nothing_behind(tmp_path: Path, pipeline: Pipeline) -> None:
    for path in (tmp_path / "one/store/changelog").rglob("*.seg"):
        path.write_bytes(b"damaged")
    for path in (tmp_path / "one/store").rglob("*.parquet"):
        if "k00000" in path.name:
            path.write_bytes(b"damaged")
    with pytest.raises(TidefoldError) as failed:
        save(pipeline, tmp_path / "save")
    assert failed.value.code == "NO_GOOD_COPY"
    assert contents(tmp_path) == {n: d for n, d in contents(tmp_path).items() if not n.startswith("save/")}


@pytest.mark.parametrize("layout", list(Layout))
def test_an_empty_table_has_a_savepoint(tmp_path: Path, layout: Layout) -> None:
    from support.savepoints import bring_in, cycle, snapshot_rows

    pipeline = make_pipeline(tmp_path / "one")
    changed(pipeline, {}, {1: None})
    cycle(pipeline, "run-1")
    assert save(pipeline, tmp_path / "save", layout).facts["files"] == 0
    other = make_pipeline(tmp_path / "two")
    bring_in(other, tmp_path / "save")
    assert snapshot_rows(other, 1) == {}


@pytest.mark.parametrize("layout", list(Layout))
def test_a_savepoint_in_s3(tmp_path: Path, pipeline: Pipeline, s3: S3Bucket, layout: Layout) -> None:
    save(pipeline, s3.address, layout)
    store = open_address(s3.address)
    savepoint, _ = read_description(store)
    assert {e.path for e in store.list("")} == {f.path for f in savepoint.files} | {*savepoint.delta_log, DESCRIPTION}
    for file in savepoint.files:
        path = tmp_path / "down" / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.read(file.path))
    if layout is Layout.CANONICAL:
        assert canonical_rows(tmp_path / "down") == THIRD
    else:
        from support.pipelines import rows_of

        assert rows_of(store.uri(""), store.options()) == THIRD


def test_an_older_snapshot_can_be_saved(tmp_path: Path, pipeline: Pipeline) -> None:
    save(pipeline, tmp_path / "save", snapshot=1)
    rows: Rows = saved_rows(tmp_path / "save", Layout.NATIVE)
    assert rows == FIRST
    assert table_rows(pipeline) == THIRD


def test_a_savepoint_says_what_stays_behind(tmp_path: Path) -> None:
    """Fault: a log moved, its refused record and a later change did not, and nothing said so."""
    log = "key: [id]\norder: [at]\ncolumns: {id: int, at: long}\nquality: {max_refused: 1}"
    landing = Landing.make(tmp_path, {"a": log}, source="format: csv")
    landing.land("1.csv", "id,at\n1,1\nx,2\n")
    landing.call("run")
    landing.land("2.csv", "id,at\n3,3\n")
    landing.call("step", "ingest")
    told = " ".join(landing.call("move", "savepoint", "a", "--to", str(tmp_path / "save")).stdout.split())
    assert "without 1 change after the snapshot" in told
    assert "without 1 refused record, which no import reads again: before a move, `tidefold quarantine retry a`" in told
