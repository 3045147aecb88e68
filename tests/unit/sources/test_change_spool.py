"""The changes of one landed file need no more memory than a limit, and stay the same."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidefold.sources.records import change_batches
from tidefold.sources.records.change_batches import ChangeSpool

_TYPES = pa.schema([("id", pa.int64()), ("text", pa.string()), ("tags", pa.list_(pa.string()))])
_rows = st.lists(st.tuples(st.integers(0, 99), st.text(max_size=9), st.lists(st.text(max_size=3), max_size=3)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(_rows, max_size=6), limit=st.integers(0, 400))
def test_changes_are_the_same_whether_they_stay_in_memory_or_not(
    batches: list[list[tuple[int, str, list[str]]]], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_batches, "SPOOL_MEMORY", limit)
    spool = ChangeSpool()
    rows = []
    for batch in batches:
        made = [dict(zip(_TYPES.names, row, strict=True)) for row in batch]
        rows += made
        spool.add(pa.RecordBatch.from_pylist(made, schema=_TYPES))
    table = spool.to_table()
    assert (table.to_pylist() if table else []) == rows
    assert table is None or table.schema == _TYPES


def test_many_changes_are_mapped_from_a_file_and_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_batches, "SPOOL_MEMORY", 1 << 16)
    spool, held = ChangeSpool(), []
    before = pa.total_allocated_bytes()
    for start in range(0, 200_000, 10_000):
        spool.add(pa.RecordBatch.from_pydict({"id": range(start, start + 10_000)}))
        held.append(pa.total_allocated_bytes() - before)
    table = spool.to_table()
    assert table is not None
    assert table["id"].to_pylist() == list(range(200_000))
    assert max(held) < 1 << 20 < table.nbytes
