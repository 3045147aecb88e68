"""What DuckDB reads from a stream of this process."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from tidefold.changelog.duckdb_connections import connect, open_stream
from tidefold.errors import StorageError

SCHEMA = pa.schema([pa.field("id", pa.int64())])


def test_the_error_of_a_stream_keeps_its_code_and_its_next_step() -> None:
    """Fault: an outage while a fold read its base was a bug to report, with exit code 1, which nobody sends again."""

    def read() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([1, 2])], SCHEMA)
        raise StorageError("STORAGE", "S3 does not answer.")

    with pytest.raises(StorageError) as told, connect() as duck, open_stream(SCHEMA, read()) as rows:
        duck.register("arriving", rows).execute("CREATE TEMP TABLE kept AS SELECT * FROM arriving")
    assert (told.value.code, told.value.exit_code, told.value.transient) == ("STORAGE", 6, True)
