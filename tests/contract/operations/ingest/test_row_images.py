"""A session of MariaDB wrote minimal row images (`binlog_row_image=MINIMAL`) while Debezium 3.5.0 captured its table.

tests/data/connectors/mariadb-minimal.jsonl is that capture, with its large texts cut: three rows of the initial
snapshot; then nothing, since the connector ends at the first minimal row; after `FULL` was set again and the
connector's offsets were removed, a second initial snapshot, an update, a change of a key with its large value, and a
delete.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from support.landing import TOPIC, land, make_landing, take
from tidefold.config import load_config
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.storage import open_store

CAPTURE = Path(__file__).parents[3] / "data/connectors/mariadb-minimal.jsonl"
COLUMNS = '{id: int, name: string, price: {type: "decimal(10,2)", encoding: string}, big: string, note: string}'
# What MariaDB's own SELECT gave after the last change.
TRUTH = [
    {"id": 1, "name": "one", "price": Decimal("9.99"), "big": "x" * 12, "note": None},
    {"id": 5, "name": "FIVE", "price": Decimal("5.00"), "big": "w" * 12, "note": "e"},
    {"id": 30, "name": "two", "price": Decimal("1.25"), "big": "z" * 12, "note": None},
]


@pytest.mark.parametrize("pieces", [[13], [3, 10], [4, 4, 5], [1] * 13])
def test_after_minimal_row_images_a_new_snapshot_gives_the_rows_of_the_source(
    pieces: list[int], tmp_path: Path
) -> None:
    make_landing(tmp_path, COLUMNS)
    path = tmp_path / "tidefold.yaml"
    path.write_text(path.read_text().replace("connector: postgresql", "connector: mariadb"))
    pipeline = Pipeline(load_config(path), open_store("store", tmp_path))
    records: list[dict[str, Any]] = [json.loads(line) for line in CAPTURE.read_text().splitlines()]
    start = 0
    for size in pieces:
        land(tmp_path, start, [{"topic": TOPIC, "partition": 0, **one} for one in records[start : start + size]])
        outcome = take(pipeline)
        assert (outcome.error_code, outcome.facts["refused"]) == (None, {}), outcome
        start += size
    _, batches = read_rows(pipeline, "items", ReadRequest(What.LIVE))
    assert sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["id"]) == TRUTH
