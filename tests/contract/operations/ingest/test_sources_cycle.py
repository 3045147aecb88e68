"""Rows of files, JSON records and change feeds all the way into the table: equal to the definition, however they came.

Promises I5, I25.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from support import delta_tables
from support.effort import choose
from support.landing import fold_waiting, take
from support.landing_rows import land_parquet, land_text, make_rows_landing
from tidefold.domain.paths import LogPaths
from tidefold.wiring import Pipeline

OP = "op: {column: op, upsert: [I], delete: [D]}"
Row = tuple[str, int, str | None, int]


def table(pipeline: Pipeline) -> dict[int, str | None]:
    uri = pipeline.store.uri(LogPaths("items").table)
    found = DeltaTable(uri).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(uri) else []
    rows = {row["id"]: row["text"] for row in found}
    assert len(rows) == len(found)
    return rows


def expected(rows: list[Row]) -> dict[int, str | None]:
    """The definition: sort by what orders them, apply one by one."""
    state: dict[int, str | None] = {}
    for op, item, text, _ in sorted(rows, key=lambda row: row[3]):
        state.pop(item, None)
        if op == "I":
            state[item] = text
    return state


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Changes of which no two have one order, in any order."""
    count = draw(st.integers(1, 14))
    orders = draw(st.permutations(range(count)))
    texts = st.sampled_from(["a", "b,c", 'd"', "", None])
    return [(draw(st.sampled_from("IID")), draw(st.integers(0, 3)), draw(texts), order) for order in orders]


@pytest.mark.rotates(2)
@pytest.mark.parametrize("source", ["csv", "parquet"])
@given(rows=histories(), data=st.data())
@settings(max_examples=choose(4, 10), deadline=None)
def test_files_in_any_split_order_and_fold(
    source: str, rows: list[Row], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("rows")
    pipeline = make_rows_landing(root, f"{source}, {OP}")
    again = data.draw(st.permutations([*rows, *rows[: data.draw(st.integers(0, 3))]]))
    begin = 0
    while begin < len(again):
        end = data.draw(st.integers(begin + 1, len(again)))
        _land(root, source, f"{data.draw(st.integers(0, 99))}-{begin}", again[begin:end])
        assert take(pipeline).error_code is None
        if data.draw(st.booleans()):
            fold_waiting(pipeline, f"run-{begin}")
        begin = end
    fold_waiting(pipeline, "last")
    assert table(pipeline) == expected(rows)


def _land(root: Path, source: str, name: str, rows: list[Row]) -> None:
    if source == "parquet":
        names = ("op", "id", "text", "seq")
        land_parquet(root, f"{name}.parquet", [dict(zip(names, row, strict=True)) for row in rows], SCHEMA)
        return
    lines = (f"{op},{item},{'' if text is None else quoted(text)},{seq}\n" for op, item, text, seq in rows)
    land_text(root, f"{name}.csv", "op,id,text,seq\n" + "".join(lines))


SCHEMA = pa.schema([("op", "string"), ("id", "int32"), ("text", "string"), ("seq", "int64")])


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@given(data=st.data())
@settings(max_examples=choose(4, 8), deadline=None)
def test_a_change_feed_makes_the_table_that_it_is_of(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("feed")
    delta_tables.write(root, [delta_tables.row(item) for item in range(5)])
    pipeline = delta_tables.fed_pipeline(root)
    for number in range(data.draw(st.integers(1, 5))):
        step = data.draw(st.sampled_from(["update", "delete", "insert", "rekey", "fold", "take"]))
        item, feeding = data.draw(st.integers(0, 6)), DeltaTable(str(root / "table"))
        if step == "update":
            feeding.update({"text": f"'t{number}'"}, predicate=f"id >= {item}")
        elif step == "delete":
            feeding.delete(f"id = {item}")
        elif step == "insert":
            delta_tables.write(root, [delta_tables.row(100 + number)])
        elif step == "rekey":
            feeding.update({"id": f"id + {1000 * (number + 1)}"}, predicate=f"id = {item}")
        else:
            take(pipeline)
        if step == "fold":
            fold_waiting(pipeline, f"run-{number}")
    take(pipeline)
    fold_waiting(pipeline, "last")
    found = DeltaTable(str(root / "table")).to_pyarrow_table().to_pylist()
    assert table(pipeline) == {row["id"]: row["text"] for row in found}


def test_json_records_of_many_partitions_ordered_by_columns(tmp_path: Path) -> None:
    source = f"json, {OP}"
    rows: list[Row] = [("I", i % 4, f"t{i}", (i * 7) % 20) for i in range(20)]
    rows[11] = ("D", *rows[11][1:])
    pipeline = make_rows_landing(tmp_path, source)
    for partition in (0, 1):
        lines = []
        for offset, (op, item, text, seq) in enumerate(rows[partition::2]):
            value: dict[str, Any] = {"op": op, "id": item, "text": text, "seq": seq}
            lines.append(json.dumps({"topic": "items", "partition": partition, "offset": offset, "value": value}))
        land_text(tmp_path, f"items+{partition}+0000000000.jsonl", "\n".join(lines) + "\n")
        take(pipeline)
        fold_waiting(pipeline, f"run-{partition}")
    assert table(pipeline) == expected(rows)
