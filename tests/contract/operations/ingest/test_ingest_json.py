"""Plain JSON files through a whole ingest: any split in files and runs gives the same changes, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.landing import changes_of, land, quarantined, state_of, take
from tidefold.config import load_config
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.quarantine.retry import retry
from tidefold.storage import open_store

TOPIC = "shop.public.items"
CONFIG = """\
version: 1
store: store
logs:
  items:
    source: {{format: json, path: landing/shop.public.items{more}}}
    key: [id]
    columns: {columns}
    key_groups: 16
    buckets: 4
    on_bad_record: quarantine
"""


def make(root: Path, more: str = "", columns: str = "{id: int, text: string}") -> Pipeline:
    (root / "landing" / TOPIC).mkdir(parents=True, exist_ok=True)
    path = root / "tidefold.yaml"
    path.write_text(CONFIG.format(more=more, columns=columns))
    return Pipeline(load_config(path), open_store("store", root))


def record(offset: int, item: int, text: str | None = "t") -> dict[str, Any]:
    value = None if text is None else {"id": item, "text": text}
    return {"topic": TOPIC, "partition": 0, "offset": offset, "key": item, "value": value}


def seen(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    return [(r["_offset"], r["_op"], r["id"], r["text"], r["_kg"]) for r in changes_of(pipeline)]


@given(cuts=st.sets(st.integers(1, 11)), runs=st.sets(st.integers(1, 11)), form=st.sampled_from(["kafka", "value"]))
@settings(max_examples=choose(6, 15), deadline=None)
def test_any_split_in_files_and_runs_gives_the_same_changes(
    cuts: set[int], runs: set[int], form: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """I25: files are cut after any record, and may grow between runs."""
    whole = [record(i, i % 3, None if form == "kafka" and i % 5 == 4 else f"t{i}") for i in range(12)]
    lines = [one if form == "kafka" else one["value"] for one in whole]
    root = tmp_path_factory.mktemp("split")
    pipeline = make(root, f", record: {form}")
    for end in sorted(runs | {12}):
        starts = sorted({0} | {c for c in cuts if c < end})
        for start, stop in zip(starts, [*starts[1:], end], strict=True):
            land(root, start, lines[start:stop])
        take(pipeline)
    expected = [(i, one["value"] is None, i % 3, one["value"] and f"t{i}") for i, one in enumerate(whole)]
    assert [(offset, bool(op), key, text) for offset, op, key, text, _ in seen(pipeline)] == expected
    [position] = state_of(pipeline).positions
    assert (position.next_offset, position.stream.max_order) == (12, ())


def test_a_refused_value_alone_comes_in_at_its_own_offset(tmp_path: Path) -> None:
    land(tmp_path, 10, [{"id": 1, "text": "a"}, {"id": 2, "text": "b", "more": 1}, {"id": 3, "text": "c"}])
    pipeline = make(tmp_path, ", record: value")
    take(pipeline)
    assert [(e["reason"], e["offset"], e["line"]) for e in quarantined(pipeline)] == [("UNKNOWN_COLUMN", 11, 2)]
    assert retry(pipeline, "items").facts["reasons"] == {"UNKNOWN_COLUMN": 1}
    assert [offset for offset, *_ in seen(pipeline)] == [10, 12]


def test_the_newest_file_may_still_be_written_and_zipped(tmp_path: Path) -> None:
    pipeline = make(tmp_path, ", record: value")
    land(tmp_path, 0, [{"id": 1, "text": "a"}], "jsonl.gz")
    torn = json.dumps({"id": 2, "text": "b"}).encode()
    land(tmp_path, 1, torn + b"\n" + torn[:5])
    outcome = take(pipeline)
    assert (outcome.facts["changes"], len(outcome.facts["still_writing"])) == (2, 1)
    land(tmp_path, 1, torn + b"\n" + torn + b"\n")
    assert take(pipeline).facts["changes"] == 1
    assert [offset for offset, *_ in seen(pipeline)] == [0, 1, 2]


def test_plain_json_has_every_type_and_encoding(tmp_path: Path) -> None:
    """Decimals are numbers or texts there, digit by digit; an encoding says what else a value is."""
    columns = "{id: 'decimal(20,2)', at: {type: timestamp, encoding: iso}, tags: array<string>, data: binary}"
    pipeline = make(tmp_path, columns=columns)
    row = '{"id": 12345678901234567.89, "at": "2026-01-01T00:00:00Z", "tags": ["a", null], "data": "YQ=="}'
    lines = [row, row.replace("67.89", "67.891"), row.replace("2026-01-01T", "2026-01-01U")]
    head = f'{{"topic": "{TOPIC}", "partition": 0, "key": null, "offset": '
    land(tmp_path, 0, [f'{head}{i}, "value": {line}}}' for i, line in enumerate(lines)])
    assert take(pipeline).facts["refused"] == {"VALUE_INVALID": 2}
    [change] = changes_of(pipeline)
    assert (str(change["id"]), change["tags"], change["data"]) == ("12345678901234567.89", ["a", None], b"a")
    assert change["at"].isoformat() == "2026-01-01T00:00:00+00:00"


@pytest.mark.parametrize("format_", ["json", "debezium-json, connector: postgresql"])
def test_a_time_as_text_names_the_encoding_that_reads_it(format_: str, tmp_path: Path) -> None:
    pipeline = make(tmp_path, columns="{id: int, at: timestamp}")
    pipeline.config.path.write_text(pipeline.config.path.read_text().replace("format: json", f"format: {format_}"))
    pipeline = Pipeline(load_config(pipeline.config.path), open_store("store", tmp_path))
    row, source = {"id": 1, "at": "2026-01-31T08:00:00Z"}, {"sequence": '[null,"1"]', "snapshot": "false"}
    value = row if format_ == "json" else {"op": "c", "after": row, "source": source}
    land(tmp_path, 0, [{**record(0, 1), "key": {"id": 1}, "value": value}])
    take(pipeline)
    [refused] = quarantined(pipeline)
    assert refused["reason"] == "VALUE_INVALID"
    assert "`at: {type: timestamp, encoding: iso}`" in refused["detail"]
