"""Bounds hide no row: filtered reads equal reading everything and filtering then. Decision 0006; promise I5."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.pipelines import CONFIG, make_pipeline, publish, put
from tidefold.delta.data_files import write_data_file
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.paths import DataFileName, LogPaths
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.storage.local_store import LocalStore

FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "text": (pa.string(), st.text(max_size=40) | st.text("zé\U0010ffff", min_size=31, max_size=34)),
    "double": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates(date(1, 1, 1), date(9999, 12, 31))),
    "timestamp": (pa.timestamp("us", tz="UTC"), st.datetimes(FIRST, LAST, timezones=st.just(UTC))),
    "decimal(38,10)": (pa.decimal128(38, 10), st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: n_digits(n, 10))),
    "decimal(5,2)": (pa.decimal128(5, 2), st.integers(-99_999, 99_999).map(lambda n: n_digits(n, 2))),
    "decimal(20,0)": (pa.decimal128(20, 0), st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: n_digits(n, 0))),
}


def n_digits(unscaled: int, scale: int) -> Decimal:
    return Decimal(unscaled).scaleb(-scale, Context(prec=76))


def table_of(folder: Path, kind: pa.DataType, files: list[list[Any]]) -> str:
    """A Delta table with one data file of ours for each list of values."""
    schema = pa.schema([pa.field("v", kind)])
    store = LocalStore(folder)
    actions = []
    for number, values in enumerate(files):
        batch = pa.record_batch({"v": pa.array(values, kind)}, schema=schema)
        file = write_data_file(
            store, "t", DataFileName(KeyGroups(0, 0), number, 1, uuid.uuid4().hex, ""), [batch], schema
        )
        if file:
            actions.append(AddAction(f"_data/{file.name}", file.bytes, {}, 0, True, file.stats))
    create_table_with_add_actions(store.uri("t"), Schema.from_arrow(schema), actions)
    return store.uri("t")


@pytest.mark.rotates(6)
@pytest.mark.parametrize("name", TYPES)
def test_filters_find_what_is_there(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    kind, values = TYPES[name]

    @settings(max_examples=choose(10, 25), deadline=None, suppress_health_check=list(HealthCheck))
    @given(files=st.lists(st.lists(st.none() | values, min_size=1, max_size=4), min_size=1, max_size=3), data=st.data())
    def check(files: list[list[Any]], data: st.DataObject) -> None:
        uri = table_of(tmp_path_factory.mktemp("table"), kind, files)
        stored = [v for file in files for v in file if v is not None]
        wanted = data.draw(st.sampled_from(stored) | values) if stored else data.draw(values)
        dataset, lazy = DeltaTable(uri).to_pyarrow_dataset(), polars.scan_delta(uri)
        everything = dataset.to_table()
        for compare in ("equal", "less_equal", "greater_equal"):
            expected = pc.filter(everything, getattr(pc, compare)(everything["v"], pa.scalar(wanted, kind))).num_rows
            field = pc.field("v")
            by = {"equal": field == wanted, "less_equal": field <= wanted, "greater_equal": field >= wanted}[compare]
            assert dataset.to_table(filter=by).num_rows == expected, (compare, wanted)
        assert dataset.to_table(filter=pc.field("v").is_null()).num_rows == everything["v"].null_count
        literal = polars.lit(pa.scalar(wanted, kind).as_py(), dtype=lazy.collect_schema()["v"])
        found = lazy.filter(polars.col("v") == literal).collect().height
        assert found == pc.filter(everything, pc.equal(everything["v"], pa.scalar(wanted, kind))).num_rows

    check()


def test_a_dictionary_is_made_only_of_a_column_whose_values_repeat(tmp_path: Path) -> None:
    """Decision 0014; a column that turns out otherwise than its first rows is written all the same."""
    schema = pa.schema([pa.field("once", pa.int64()), pa.field("often", pa.string()), pa.field("later", pa.int64())])
    rows = pa.table(
        {"once": range(30_000), "often": ["a", "b", None] * 10_000, "later": [0] * 10_000 + list(range(20_000))},
        schema=schema,
    )
    batches = rows.to_batches(max_chunksize=10_000)
    name = DataFileName(KeyGroups(0, 0), 1, 1, uuid.uuid4().hex, "")
    file = write_data_file(LocalStore(tmp_path), "t", name, batches, schema)
    assert file
    written = pq.ParquetFile(tmp_path / "t" / "_data" / file.name)
    columns = [written.metadata.row_group(0).column(i) for i in range(3)]
    assert [c.has_dictionary_page for c in columns] == [False, True, True]
    assert written.read() == rows


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        (pa.binary(), [[b"a", None], [b"\xff\x00", b"b"]]),
        (pa.list_(pa.string()), [[["a", None], None], [[], ["b"]]]),
    ],
)
def test_what_has_no_bounds_is_found_all_the_same(kind: pa.DataType, files: list[list[Any]], tmp_path: Path) -> None:
    """Of bytes and arrays a file says only how many are null."""
    uri = table_of(tmp_path, kind, files)
    dataset, lazy = DeltaTable(uri).to_pyarrow_dataset(), polars.scan_delta(uri)
    field = pc.field("v")
    assert dataset.to_table(filter=field.is_null()).num_rows == 1
    assert dataset.to_table(filter=field.is_valid()).num_rows == 3
    assert lazy.filter(polars.col("v").is_null()).collect().height == 1
    if kind == pa.binary():
        assert dataset.to_table(filter=field == b"b").num_rows == 1
        assert lazy.filter(polars.col("v") == b"\xff\x00").collect().height == 1


def test_the_end_of_time_and_years_below_1000_have_right_bounds(tmp_path: Path) -> None:
    """In a published table, as in `test_filters_find_what_is_there` in a file."""
    columns = CONFIG.replace("columns: {id: int, text: string}", "columns: {id: int, text: string, at: timestamp}")
    pipeline = make_pipeline(tmp_path, columns)
    early, last = datetime(201, 5, 6, tzinfo=UTC), LAST.replace(tzinfo=UTC)
    put(pipeline, [{"id": 1, "text": "a", "at": early}, {"id": 2, "text": "b", "at": last}])
    publish(pipeline, "run")
    assert find_ids(pipeline, ("at", "<", datetime(1000, 1, 1, tzinfo=UTC))) == [1]


def test_bounds_of_long_texts_hide_no_row(tmp_path: Path) -> None:
    texts = ["a" * 40, "z" * 40, "z" * 32 + "\U0010ffff", "é" * 50]
    pipeline = make_pipeline(tmp_path)
    put(pipeline, [{"id": number, "text": text} for number, text in enumerate(texts)])
    publish(pipeline, "run")
    assert [find_ids(pipeline, ("text", "=", text)) for text in texts] == [[0], [1], [2], [3]]


def find_ids(pipeline: Pipeline, condition: tuple[str, str, Any]) -> list[int]:
    table = DeltaTable(pipeline.store.uri(LogPaths("accounts").table))
    return table.to_pyarrow_table(filters=[condition])["id"].to_pylist()  # type: ignore[no-any-return]
