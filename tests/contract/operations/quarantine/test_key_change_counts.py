"""What changes of a key cost in calls and bytes: nothing where every value was sent (tests/data/counts.json)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.counted import check, counted
from support.landing import land, make_landing, record, take, tombstone
from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.config import load_config
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

ROWS, CHANGES, MOVES = 5_000, 1_000, 20
GONE = "__debezium_unavailable_value"


@pytest.fixture
def published(tmp_path: Path) -> Path:
    pipeline = make_landing(tmp_path, "{id: long, n: int, text: string}")
    path = tmp_path / "tidefold.yaml"
    path.write_text(path.read_text().replace("key_groups: 16", "key_groups: 128").replace("buckets: 4", "buckets: 16"))
    pipeline = Pipeline(load_config(path), pipeline.store)
    land(tmp_path, 0, [row(n, n) for n in range(ROWS)])
    take(pipeline)
    materialize(pipeline, ["items"], Fold("first"), in_process)
    judge_all(pipeline, "items")
    assert confirm(pipeline, "items", Confirmation(run="first")).status == "published"
    return tmp_path


def row(offset: int, key: int, op: str = "c", order: int | None = None, **changes: Any) -> dict[str, Any]:
    after = {"id": key, "n": 1, "text": changes.pop("text", f"text of {key}")}
    return record(offset, key, op, order, **{"after": after, **changes})


def moved(offset: int, old: int, text: str) -> list[dict[str, Any]]:
    """A change of the key: three records with one order."""
    order, headers = 1000 + offset, [{"key": "__debezium.oldkey", "value": {"id": old}}]
    delete = row(offset, old, "d", order, before={"id": old}, after=None)
    create = row(offset + 2, ROWS + old, order=order, text=text, headers=headers)
    return [delete, tombstone(offset + 1, old), create]


def ingested(root: Path, moves: list[list[dict[str, Any]]]) -> Counter[str]:
    """The counts of an ingest of updates and changes of keys: always as many records, in one file."""
    records = [one for move in moves for one in move]
    offset = ROWS + len(records)
    updates = (row(offset + n, n % 997 + 1_000, "u", text=f"new {n}") for n in range(CHANGES - len(records)))
    land(root, ROWS, [*records, *updates])

    def act() -> None:
        pipeline = open_pipeline(root / "tidefold.yaml")
        outcome = take(pipeline)
        assert (outcome.error_code, outcome.facts["refused"]) == (None, {}), outcome

    return counted(act)


def test_without_changes_of_keys_nothing_is_looked_up(published: Path) -> None:
    check("ingest: 1,000 records, no change of a key", ingested(published, []))


def test_changes_of_keys_with_all_values_cost_nothing_more(published: Path) -> None:
    """The same reads, puts and commits as without them, although the published table has the old rows."""
    counts = ingested(published, [moved(ROWS + 3 * n, n, f"text of {n}") for n in range(MOVES)])
    check("ingest: 1,000 records, 20 changes of a key with all values", counts)


def test_values_that_were_not_sent_are_looked_up_once_a_run(published: Path) -> None:
    """One more commit; of the table, the buckets of the old keys are read once, however many keys changed."""
    counts = ingested(published, [moved(ROWS + 3 * n, n, GONE) for n in range(MOVES)])
    check("ingest: 1,000 records, 20 changes of a key, values looked up", counts)
