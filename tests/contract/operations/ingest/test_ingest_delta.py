"""The change feed of a Delta table through a whole ingest: every version once, in order, and nothing else."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from support.delta_tables import FEED, SCHEMA, fed_pipeline, row, write
from support.effort import choose
from support.landing import changes_of, state_of, take
from support.s3_server import S3Bucket
from tidefold.changelog.schema import DELETE, UPSERT
from tidefold.sources.delta.log import DeltaLog, open_source
from tidefold.sources.delta.rows import snapshot_rows
from tidefold.sources.delta.source_version import read_files, read_version
from tidefold.storage import open_store
from tidefold.storage.local_store import LocalStore
from tidefold.wiring import Pipeline


def seen(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    """All changes by version and rank: what each does."""
    return sorted((r["_o0"], r["_o1"], r["_op"], r["id"], r["text"]) for r in changes_of(pipeline))


def folded(pipeline: Pipeline) -> dict[int, str | None]:
    """The rows by the definition: changes one after the other, by their order."""
    rows: dict[int, str | None] = {}
    for _, _, op, item, text in sorted(
        ((r["_o0"], r["_o1"], r["_op"], r["id"], r["text"]) for r in changes_of(pipeline)), key=lambda r: r[:2]
    ):
        if op == DELETE:
            rows.pop(item, None)
        else:
            rows[item] = text
    return rows


def table_rows(root: Path) -> dict[int, str | None]:
    return {r["id"]: r["text"] for r in DeltaTable(str(root / "table")).to_pyarrow_table().to_pylist()}


def refused(pipeline: Pipeline) -> str | None:
    return take(pipeline).error_code


def test_it_begins_with_the_rows_that_are_there_and_goes_on_with_changes(tmp_path: Path) -> None:
    write(tmp_path, [row(1), row(2)])
    table = write(tmp_path, [row(3, None)])
    pipeline = fed_pipeline(tmp_path)
    assert take(pipeline).facts["changes"] == 3
    assert seen(pipeline) == [(1, 1, UPSERT, 1, "a"), (1, 1, UPSERT, 2, "a"), (1, 1, UPSERT, 3, None)]
    table.update({"text": "'b'"}, predicate="id = 2")
    table.delete("id = 3")
    outcome = take(pipeline)
    assert (outcome.facts["files"], outcome.facts["changes"], outcome.facts["ignored"]) == (2, 2, 1)
    assert seen(pipeline)[3:] == [(2, 1, UPSERT, 2, "b"), (3, 0, DELETE, 3, None)]
    assert take(pipeline).status == "nothing"
    [position] = state_of(pipeline).positions
    assert (position.topic, position.next_offset, position.stream.max_order) == (str(table.metadata().id), 4, (3, 1))
    assert all(r["_ts"] > 1_600_000_000_000_000 for r in changes_of(pipeline)[3:])


def test_it_may_begin_with_a_version(tmp_path: Path) -> None:
    for item in range(4):
        write(tmp_path, [row(item)])
    pipeline = fed_pipeline(tmp_path, ", from_version: 2")
    take(pipeline)
    assert [(v, item) for v, _, _, item, _ in seen(pipeline)] == [(2, 2), (3, 3)]


_KINDS = st.sampled_from(["append", "update", "delete", "merge", "rekey", "optimize", "overwrite", "take"])
_STEPS = st.lists(st.tuples(_KINDS, st.integers(0, 4)), max_size=8)


@given(steps=_STEPS)
@settings(max_examples=choose(8, 20), deadline=None)
def test_whatever_a_table_goes_through_the_changes_make_its_rows(
    steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """I5: the rows of the table, at every point where changes are taken."""
    root = tmp_path_factory.mktemp("feed")
    table = write(root, [row(item) for item in range(0, 10, 2)])
    pipeline = fed_pipeline(root)
    for number, (step, item) in enumerate(steps):
        table = DeltaTable(str(root / "table"))
        _step(table, root, step, item, f"s{number}")
        if step == "take":
            take(pipeline)
            assert folded(pipeline) == table_rows(root)
    take(pipeline)
    assert folded(pipeline) == table_rows(root)


def _step(table: DeltaTable, root: Path, step: str, item: int, text: str) -> None:
    if step == "append":
        new = next(n for n in range(1, 100) if n not in table_rows(root))
        write(root, [row(new, text)])
    elif step == "update":
        table.update({"text": f"'{text}'"}, predicate=f"id <= {item}")
    elif step == "rekey":
        # No two versions give one key: the feed of a table with a key twice has no one answer.
        table.update({"id": f"id + {1000 * (table.version() + 1)}"}, predicate=f"id = {item}")
    elif step == "delete":
        table.delete(f"id = {item}")
    elif step == "merge":
        source = pa.Table.from_pylist([row(item, text), row(item + 50, text)], SCHEMA)
        merging = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        merging.when_matched_update_all().when_not_matched_insert_all().execute()
    elif step == "optimize":
        table.optimize.compact()
    elif step == "overwrite":
        write(root, [row(item, text)], mode="overwrite")


def test_an_update_of_the_key_removes_the_old_row(tmp_path: Path) -> None:
    table = write(tmp_path, [row(1), row(2)])
    pipeline = fed_pipeline(tmp_path)
    take(pipeline)
    table.update({"id": "id + 1"})
    take(pipeline)
    assert folded(pipeline) == table_rows(tmp_path) == {2: "a", 3: "a"}


def test_partition_columns_have_their_values(tmp_path: Path) -> None:
    write(tmp_path, [row(1, "x y/z"), row(2, None)], partition_by=["text"])
    pipeline = fed_pipeline(tmp_path)
    take(pipeline)
    table = write(tmp_path, [row(3, "é%")], partition_by=["text"])
    table.delete("id = 1")
    take(pipeline)
    assert folded(pipeline) == table_rows(tmp_path) == {2: None, 3: "é%"}


def test_a_version_that_was_cleaned_up_is_refused_by_name(tmp_path: Path) -> None:
    """Complaint: a feed whose next version is gone goes on with a later one, or with nothing."""
    write(tmp_path, [row(0)])
    pipeline = fed_pipeline(tmp_path)
    take(pipeline)
    before = seen(pipeline)
    for item in range(1, 5):
        write(tmp_path, [row(item)])
    DeltaTable(str(tmp_path / "table")).create_checkpoint()
    for version in (1, 2):
        (tmp_path / f"table/_delta_log/{version:020d}.json").unlink()
    outcome = take(pipeline)
    assert outcome.error_code == "DELTA_SOURCE_GONE"
    assert "version 1 " in outcome.message
    assert "first version that can still be read is 4" in outcome.message
    assert seen(pipeline) == before


def test_a_file_of_changes_that_was_vacuumed_is_refused_by_name(tmp_path: Path) -> None:
    table = write(tmp_path, [row(0), row(1)])
    pipeline = fed_pipeline(tmp_path)
    take(pipeline)
    table.update({"text": "'b'"}, predicate="id = 0")
    write(tmp_path, [row(2)])
    shutil.rmtree(tmp_path / "table/_change_data")
    outcome = take(pipeline)
    assert outcome.error_code == "DELTA_SOURCE_GONE"
    assert "version 1 " in outcome.message
    assert "first version that can still be read is 2" in outcome.message


@pytest.mark.parametrize("versions", [1, 3])
def test_a_table_that_was_replaced_is_refused(versions: int, tmp_path: Path) -> None:
    write(tmp_path, [row(0)])
    pipeline = fed_pipeline(tmp_path)
    take(pipeline)
    shutil.rmtree(tmp_path / "table")
    for item in range(versions):
        write(tmp_path, [row(item)])
    assert refused(pipeline) == "DELTA_SOURCE_REPLACED"


def test_a_table_that_was_set_back_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [row(0)])
    shutil.copytree(tmp_path / "table", tmp_path / "kept")
    write(tmp_path, [row(1)])
    pipeline = fed_pipeline(tmp_path)
    take(pipeline)
    shutil.rmtree(tmp_path / "table")
    (tmp_path / "kept").rename(tmp_path / "table")
    assert refused(pipeline) == "DELTA_SOURCE_REPLACED"


def test_a_table_that_records_no_changes_gives_its_rows_and_then_is_refused(tmp_path: Path) -> None:
    table = write(tmp_path, [row(0)], configuration={})
    pipeline = fed_pipeline(tmp_path)
    assert take(pipeline).facts["changes"] == 1
    write(tmp_path, [row(1)], configuration={})
    assert refused(pipeline) == "DELTA_SOURCE_FEED"
    table = DeltaTable(str(tmp_path / "table"))
    table.alter.set_table_properties(FEED)
    assert refused(pipeline) == "DELTA_SOURCE_FEED", "what came before is not skipped"


@pytest.mark.parametrize(
    "columns", ["{id: int}", "{id: int, text: string, more: int}", "{id: int, text: int}", "{id: date, text: string}"]
)
def test_other_columns_or_types_are_refused(columns: str, tmp_path: Path) -> None:
    """I28: no implicit schema."""
    write(tmp_path, [row(0)])
    assert refused(fed_pipeline(tmp_path, columns=columns)) == "LANDED_SCHEMA"
    assert not list((tmp_path / "store").rglob("*.seg"))


def test_a_column_that_comes_waits_until_it_is_configured(tmp_path: Path) -> None:
    """S5: the version is not taken, nothing is skipped; with a value of before, older versions fit the columns too."""
    write(tmp_path, [row(0)])
    pipeline = fed_pipeline(tmp_path)
    take(pipeline)
    table = write(tmp_path, [row(1)])
    added = SCHEMA.append(pa.field("more", pa.int32()))
    rows = pa.Table.from_pylist([{**row(2), "more": 5}], schema=added)
    write_deltalake(table, rows, mode="append", schema_mode="merge")
    outcome = take(pipeline)
    assert (outcome.facts["changes"], [p["code"] for p in outcome.facts["problems"]]) == (1, ["LANDED_SCHEMA"])
    columns = "{id: int, label: {type: string, aliases: [text]}, more: {type: int, default: 7}}"
    assert take(fed_pipeline(tmp_path, columns=columns)).facts["changes"] == 1
    assert [c.schema for c in state_of(pipeline).change_sets] == [1, 1, 2]
    assert changes_of(pipeline)[-1]["more"] == 5


def test_no_table_is_said_so(tmp_path: Path) -> None:
    assert refused(fed_pipeline(tmp_path)) == "DELTA_SOURCE_MISSING"


def test_a_table_in_s3(s3: S3Bucket, tmp_path: Path) -> None:
    address = f"{s3.address}/source"
    store = open_store(address, tmp_path)
    rows = pa.Table.from_pylist([row(item) for item in range(3)], SCHEMA)
    write_deltalake(store.uri(""), rows, configuration=FEED, storage_options=store.options())
    pipeline = fed_pipeline(tmp_path, table=address)
    assert take(pipeline).facts["changes"] == 3
    table = DeltaTable(store.uri(""), storage_options=store.options())
    table.update({"text": "'b'"}, predicate="id = 1")
    take(pipeline)
    assert folded(pipeline) == {0: "a", 1: "b", 2: "a"}


def test_versions_without_data_only_move_on(tmp_path: Path) -> None:
    table = write(tmp_path, [row(0)])
    pipeline = fed_pipeline(tmp_path)
    take(pipeline)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    table.delete("id = 99")
    outcome = take(pipeline)
    assert (outcome.facts["changes"], state_of(pipeline).positions[0].next_offset) == (0, table.version() + 1)


OUTSIDE = {
    "above": lambda root: "../other/secret.parquet",
    "above, encoded": lambda root: "%2e%2e/other/secret.parquet",
    "absolute": lambda root: f"{root}/other/secret.parquet",
    "an address": lambda root: f"file://{root}/other/secret.parquet",
    "a link": lambda root: "link.parquet",
    "below a link": lambda root: "folder/secret.parquet",
}


@pytest.mark.parametrize("place", OUTSIDE)
@pytest.mark.parametrize("kind", ["rows", "add", "cdc"])
def test_no_file_outside_the_table_is_read(tmp_path: Path, kind: str, place: str) -> None:
    """Who may write the table must not read other files of the machine with it."""
    table = write(tmp_path, [row(1)])
    pipeline = fed_pipeline(tmp_path)
    if kind != "rows":
        assert take(pipeline).facts["changes"] == 1
    secret = tmp_path / "other" / "secret.parquet"
    secret.parent.mkdir()
    pq.write_table(pa.Table.from_pylist([row(7) | {"_change_type": "insert"}]), secret)
    (tmp_path / "table" / "link.parquet").symlink_to(secret)
    (tmp_path / "table" / "folder").symlink_to(secret.parent)
    action = {"path": OUTSIDE[place](tmp_path), "partitionValues": {}, "size": secret.stat().st_size}
    action |= {"dataChange": kind != "cdc"} | ({} if kind == "cdc" else {"modificationTime": 0})
    lines = [{"cdc" if kind == "cdc" else "add": action}, {"commitInfo": {"timestamp": 1}}]
    log = tmp_path / "table" / "_delta_log" / f"{table.version() + 1:020d}.json"
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert refused(pipeline) in ("PATH_OUTSIDE_ROOT", "STORAGE", "DELTA_SOURCE_GONE")
    assert pipeline.ledger("items").find() is None or 7 not in folded(pipeline)


def test_a_link_that_replaces_a_file_after_it_was_opened_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, [row(1)])
    [file] = (tmp_path / "table").glob("*.parquet")
    secret = tmp_path / "secret.parquet"
    pq.write_table(pa.Table.from_pylist([row(7)], SCHEMA), secret)
    open_file = LocalStore.open

    @contextmanager
    def open_and_exchange(store: LocalStore, path: str) -> Iterator[BinaryIO]:
        with open_file(store, path) as stream:
            if path == file.name:
                file.unlink(missing_ok=True)
                file.symlink_to(secret)
            yield stream

    monkeypatch.setattr(LocalStore, "open", open_and_exchange)
    pipeline = fed_pipeline(tmp_path)
    take(pipeline)
    assert folded(pipeline) == {1: "a"}


@pytest.mark.parametrize("folder", [False, True])
def test_a_link_in_the_log_of_a_table_is_refused_and_nothing_of_it_is_quoted(tmp_path: Path, folder: bool) -> None:
    table = write(tmp_path, [row(1)])
    pipeline = fed_pipeline(tmp_path)
    take(pipeline)
    log, name = tmp_path / "table" / "_delta_log", f"{table.version() + 1:020d}.json"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / name).write_text('"a secret"')
    if folder:
        shutil.copytree(log, tmp_path / "other", dirs_exist_ok=True)
        shutil.rmtree(log)
        log.symlink_to(tmp_path / "other")
    else:
        (log / name).symlink_to(tmp_path / "other" / name)
    outcome = take(pipeline)
    assert outcome.error_code == "STORAGE"
    assert "symbolic link" in outcome.message
    assert "secret" not in outcome.message


def test_the_first_rows_are_those_that_the_library_reads(tmp_path: Path) -> None:
    """Partitions with names that must be escaped, null, and types; a column that older files lack."""
    day, time = datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC)
    rows = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int32()),
            "part": ["a b/ü%2F", None, ""],
            "day": [day, day, None],
            "time": pa.array([time, None, time], pa.timestamp("us", "UTC")),
            "price": pa.array([Decimal("1.50"), None, Decimal("-2.00")], pa.decimal128(9, 2)),
        }
    )
    address = str(tmp_path / "table")
    write_deltalake(address, rows, partition_by=["part", "day", "time", "price"])
    more = pa.table({"id": pa.array([4], pa.int32()), "text": ["new"]})
    write_deltalake(address, more, mode="append", schema_mode="merge")
    log = DeltaLog(open_source(address))
    found = snapshot_rows(log.store, read_version(log, 1), read_files(log, 1))
    expected = DeltaTable(address).to_pyarrow_table()
    assert found.schema.equals(expected.schema)
    assert found.sort_by("id").to_pylist() == expected.sort_by("id").to_pylist()
