"""The changes of one landed file need no more memory than a limit, and stay the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidefold.changelog import schema
from tidefold.changelog.schema import CLEAR, UPSERT, change_schema
from tidefold.domain.log_state import Column, TableSpec
from tidefold.domain.table.table_spec import Engine, Merge
from tidefold.sources.records import change_batches
from tidefold.sources.records.change_batches import ChangeSpool, fill_key_groups

SHAPE = TableSpec(("id",), (Column("id", "long"), Column("text", "string")), "arrival", 16, 4)
_rows = st.lists(st.tuples(st.integers(0, 99), st.text(max_size=9), st.none() | st.lists(st.text(max_size=3))))


def batch_of(rows: list[tuple[int, str, list[str] | None]], clears: bool = False) -> pa.RecordBatch:
    made = [{"_op": UPSERT, "id": i, "text": text, "_absent": absent} for i, text, absent in rows]
    made += [{"_op": CLEAR, "_kg": group} for group in range(16 if clears else 0)]
    return pa.RecordBatch.from_pylist(made, schema=change_schema(SHAPE))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(_rows, max_size=6), limit=st.integers(0, 400), keyed=st.booleans(), clears=st.booleans())
def test_changes_are_the_same_whether_they_stay_in_memory_or_not(
    batches: list[Any], limit: int, keyed: bool, clears: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each key group has its changes in their order; a clear of everything stays in the group that it is for."""
    shape = SHAPE if keyed else replace(SHAPE, key=(), merge=Merge(Engine.APPEND))

    def spooled(limit: int) -> list[dict[str, Any]]:
        monkeypatch.setattr(change_batches, "SPOOL_MEMORY", limit)
        spool = ChangeSpool(shape)
        for batch in batches:
            spool.add(batch_of(batch, clears))
        table = spool.to_table()
        assert table is None or table.schema == change_schema(SHAPE)
        if table is None or not keyed:
            return table.to_pylist() if table else []
        [filled] = fill_key_groups([table], shape)
        return sorted(filled.to_pylist(), key=lambda row: row["_kg"])

    assert repr(spooled(limit)) == repr(spooled(1 << 30))


def test_many_changes_are_mapped_from_a_file_and_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has parts of few key groups: its sort by key group holds a few of them."""
    monkeypatch.setattr(change_batches, "SPOOL_MEMORY", 1 << 18)
    monkeypatch.setattr(schema, "SORTED_AT_ONCE", 1 << 16)
    spool, held = ChangeSpool(replace(SHAPE, key_groups=4096)), []
    before = pa.total_allocated_bytes()
    for start in range(0, 50_000, 1_000):
        spool.add(batch_of([(i, "", None) for i in range(start, start + 1_000)]))
        held.append(pa.total_allocated_bytes() - before)
    table = spool.to_table()
    assert table is not None
    groups = [batch.column("_kg") for batch in table.to_batches()]
    assert all(one[-1].as_py() - one[0].as_py() < 4096 // 16 for one in groups)
    ids = []
    for batch in schema.sort_by_key_group(table, 1_000):
        ids += batch["id"].to_pylist()
        held.append(pa.total_allocated_bytes() - before)
    assert sorted(ids) == list(range(50_000))
    assert max(held) < 1 << 20 < table.nbytes
