"""A small Parquet file may unpack to gigabytes: its rows come in batches of bounded size, or it is refused."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidefold.sources.files import parquet
from tidefold.sources.files.parquet import open_parquet, read_batches
from tidefold.sources.landing.streams import TooLargeError

_LIMIT = 4_000
_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("after", pa.struct([("name", pa.large_string()), ("blob", pa.binary()), ("many", pa.list_(pa.int32()))])),
    ]
)
_text = st.sampled_from([None, "", "short", "x" * 700, "é" * 300])
_rows = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 9),
            "text": _text,
            "tags": st.none() | st.lists(_text, max_size=2),
            "after": st.none()
            | st.fixed_dictionaries(
                {"name": _text, "blob": st.sampled_from([None, b"", b"y" * 500]), "many": st.lists(st.integers(0, 3))}
            ),
        }
    ),
    max_size=60,
)


def write(rows: list[dict[str, Any]], schema: pa.Schema = _SCHEMA, **options: Any) -> io.BytesIO:
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), stream, **options)
    stream.seek(0)
    return stream


def read(stream: io.BytesIO, schema: pa.Schema = _SCHEMA) -> list[pa.RecordBatch]:
    return list(read_batches(open_parquet(stream), schema, 65_536))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(
    rows=_rows,
    group=st.integers(1, 60),
    keeps=st.booleans(),
    packs=st.booleans(),
    limit=st.sampled_from([500, 1 << 20]),
)
def test_batches_are_small_and_have_all_rows(
    monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]], group: int, keeps: bool, packs: bool, limit: int
) -> None:
    monkeypatch.setattr(parquet, "BATCH_BYTES", _LIMIT)
    options = {"row_group_size": group, "store_schema": keeps, "use_dictionary": packs}
    # A writer that meets many values gives its dictionary up within a column.
    batches = read(write(rows, **options, dictionary_pagesize_limit=limit, data_page_size=400, write_batch_size=5))
    assert [row for batch in batches for row in batch.to_pylist()] == rows
    assert all(batch.schema.equals(_SCHEMA) for batch in batches)
    assert all(batch.nbytes <= 2 * _LIMIT or batch.num_rows == 1 for batch in batches)


def test_what_repeats_in_a_file_is_not_unpacked_at_once() -> None:
    """20,000 rows of one value of 1 MiB: 116 kB landed, 20 GB in one piece."""
    value = "x" * (1 << 20)
    schema = pa.schema([("text", pa.string()), ("after", pa.struct([("text", pa.string())]))])
    packed = pa.DictionaryArray.from_arrays(pa.array([0] * 500, pa.int32()), pa.array([value]))
    stream = io.BytesIO()
    table = pa.table({"text": packed, "after": pa.StructArray.from_arrays([packed], names=["text"])})
    pq.write_table(table, stream, store_schema=False)
    stream.seek(0)
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    for batch in read_batches(open_parquet(stream), schema, 65_536):
        most, rows = max(most, pa.total_allocated_bytes() - before), rows + batch.num_rows
    assert (rows, most < 200 << 20) == (500, True), most


def test_a_row_or_a_row_group_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BATCH_BYTES", _LIMIT)
    whole = {"id": 1, "text": None, "tags": ["x" * 700] * 9, "after": None}
    with pytest.raises(TooLargeError, match="a row unpacks to 6,"):
        read(write([whole]))
    monkeypatch.setattr(parquet, "MAX_GROUP", 20_000)
    many = {"id": 1, "text": None, "tags": None, "after": {"name": None, "blob": None, "many": [1] * 300}}
    with pytest.raises(TooLargeError, match="a row group unpacks to"):
        read(write([many] * 10))
    assert len(read(write([many] * 10, row_group_size=5))) >= 2
