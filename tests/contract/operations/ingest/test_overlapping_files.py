"""Files of one partition that bring the same offsets: nothing is called repeated because of its number alone (I30)."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.landing import COUNTS, TOPIC, land, make_landing, offsets, quarantined, record, state_of, take, text_of
from tidefold.changelog.segment import read_change_set
from tidefold.compute.runners import in_process
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.wiring import open_pipeline

CONFIG = """\
version: 1
store: store
logs:
  items:
    source: {{{source}, path: landing/shop.public.items}}
    key: [id]
    columns: {{id: int, text: string}}
    key_groups: 16
    buckets: 4
"""
VALUES = "format: json, record: value"


def make(root: Path, source: str = VALUES) -> Pipeline:
    (root / "landing" / TOPIC).mkdir(parents=True, exist_ok=True)
    path = root / "tidefold.yaml"
    path.write_text(CONFIG.format(source=source))
    return open_pipeline(path)


def row(item: int, text: str = "t") -> dict[str, Any]:
    return {"id": item, "text": text}


def counts(pipeline: Pipeline) -> dict[str, int]:
    """What is in which count, over all files ever landed."""
    total: Counter[str] = Counter()
    for entry in state_of(pipeline).landed:
        total.update({name: getattr(entry, name) for name in ("records", *COUNTS)})
    return {name: number for name, number in total.items() if number}


def test_two_files_that_overlap_with_other_content_lose_nothing(tmp_path: Path) -> None:
    """5 lines from offset 0 and 3 other lines from offset 2: these 3 were counted as repeated and lost."""
    pipeline = make(tmp_path)
    land(tmp_path, 0, [row(i) for i in range(5)])
    land(tmp_path, 2, [row(i) for i in (12, 13, 14)])
    outcome = take(pipeline)
    assert (outcome.facts["changes"], outcome.facts["repeated"]) == (5, 0)
    assert outcome.facts["refused"] == {"OFFSET_TWICE": 3}
    assert [(q["offset"], json.loads(q["record"])["id"]) for q in quarantined(pipeline)] == [(2, 12), (3, 13), (4, 14)]
    assert f"`{TOPIC}+0+0000000000.jsonl`" in quarantined(pipeline)[0]["detail"]


@pytest.mark.parametrize("in_one_run", [True, False])
@pytest.mark.parametrize("extension", ["json", "json.gz"])
def test_the_same_bytes_at_the_same_offsets_are_repeated(tmp_path: Path, extension: str, in_one_run: bool) -> None:
    pipeline = make(tmp_path)
    land(tmp_path, 0, [row(i) for i in range(5)])
    if not in_one_run:
        take(pipeline)
    land(tmp_path, 3, [row(3), row(4, "other"), row(5), row(6)], extension)
    take(pipeline)
    assert counts(pipeline) == {"records": 9, "changes": 7, "repeated": 1, "quarantined": 1}
    assert offsets(pipeline) == list(range(7))


def test_what_cannot_be_compared_any_more_is_unproved(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    old = land(tmp_path, 0, [row(i) for i in range(5)])
    take(pipeline)
    old.unlink()
    land(tmp_path, 0, [row(i) for i in range(4)], "json")
    outcome = take(pipeline)
    assert (outcome.facts["unproved"], outcome.facts["repeated"]) == (4, 0)
    assert "4 unproved" in outcome.message
    assert counts(pipeline) == {"records": 9, "changes": 5, "unproved": 4}


def test_a_file_that_was_edited_since_proves_nothing(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    land(tmp_path, 0, [row(i) for i in range(3)])
    take(pipeline)
    land(tmp_path, 0, [row(i) for i in (7, 8, 9)])
    land(tmp_path, 1, [row(i) for i in (1, 2, 3)])
    outcome = take(pipeline)
    assert (outcome.facts["unproved"], outcome.facts["changes"]) == (2, 1)


def test_a_file_that_was_renamed_is_repeated_by_its_checksum(tmp_path: Path) -> None:
    """The old one is not there any more: that all bytes are those that were taken is proof enough."""
    pipeline = make(tmp_path)
    old = land(tmp_path, 0, [row(i) for i in range(5)])
    take(pipeline)
    (old.parent / "2026-11").mkdir()
    old.rename(old.parent / "2026-11" / old.name)
    assert take(pipeline).facts["repeated"] == 5
    # The same bytes at other offsets are other records.
    land(tmp_path, 3, [row(i) for i in range(5)])
    take(pipeline)
    assert counts(pipeline) == {"records": 15, "changes": 8, "repeated": 5, "quarantined": 2}


def test_a_record_in_a_gap_of_what_was_taken_is_quarantined(tmp_path: Path) -> None:
    """It was called repeated: the interval of the file around it was taken, and the record never was."""
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(0), record(5)])
    take(pipeline)
    land(tmp_path, 3, [record(3), record(5), record(6)])
    outcome = take(pipeline)
    assert (outcome.facts["refused"], outcome.facts["repeated"]) == ({"OFFSET_TWICE": 1}, 1)
    assert offsets(pipeline) == [0, 5, 6]


def test_what_debezium_sends_again_is_told_apart_from_what_is_repeated(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(i, i, order=100 + i) for i in range(4)])
    land(tmp_path, 2, [record(2, 2, order=102), record(3, 3, order=103), record(4, 1, order=101)])
    outcome = take(pipeline)
    assert "2 repeated, 1 re-sent" in outcome.message
    assert counts(pipeline) == {"records": 7, "changes": 4, "repeated": 2, "resent": 1}


def test_a_file_that_grew_around_another_one_proves_its_own_records(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    first = [record(0), record(1)]
    land(tmp_path, 0, first)
    take(pipeline)
    land(tmp_path, 2, [record(2), record(3)])
    take(pipeline)
    land(tmp_path, 0, [*first, record(3), record(4)])
    take(pipeline)
    land(tmp_path, 0, [record(i) for i in (0, 1, 2, 3, 4)], "json")
    take(pipeline)
    assert counts(pipeline) == {"records": 11, "changes": 5, "repeated": 6}


def parquet(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    source = pa.struct([("sequence", pa.string()), ("snapshot", pa.string()), ("ts_us", pa.int64())])
    item = pa.struct([("id", pa.int64()), ("text", pa.string())])
    value = pa.struct([("before", item), ("after", item), ("source", source), ("op", pa.string())])
    fields = [("topic", pa.string()), ("partition", pa.int64()), ("offset", pa.int64())]
    schema = pa.schema([*fields, ("key", pa.struct([("id", pa.int64())])), ("value", value)])
    pq.write_table(pa.Table.from_pylist(list(lines), schema), path, write_page_checksum=True)


def text(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    data = text_of(lines)
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)


Writer = Callable[[Path, Iterable[dict[str, Any]]], None]
SOURCES: dict[str, tuple[str, str, Writer]] = {
    "debezium-json": ("format: debezium-json, connector: postgresql", "jsonl.gz", text),
    "debezium-parquet": ("format: debezium-parquet, connector: postgresql", "parquet", parquet),
    "json": ("format: json, record: value", "jsonl", text),
    "state-json": ("format: state-json, kind: value, state_key: [id], record: value", "jsonl", text),
}


def made(source: str, offset: int, item: int) -> dict[str, Any]:
    if source.startswith("debezium"):
        return record(offset, item, order=1000 + offset)
    return row(item) if source == "json" else {"op": "set", "key": {"id": item}, "value": {"text": "t"}}


@pytest.mark.rotates(6)
@given(
    files=st.lists(
        st.tuples(st.integers(0, 8), st.lists(st.booleans(), min_size=1, max_size=4), st.booleans()),
        min_size=1,
        max_size=5,
    )
)
@pytest.mark.parametrize("source", SOURCES)
@settings(max_examples=choose(5, 12), deadline=None)
def test_each_record_of_each_file_is_in_exactly_one_count(
    source: str, files: list[tuple[int, list[bool], bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Counted from outside: what lies at an offset first is a change, the same again repeated, anything else refused.

    A file that begins below what was taken, and brings an offset that never was, is not taken at all and named.
    """
    root = tmp_path_factory.mktemp("files")
    config, extension, write = SOURCES[source]
    pipeline = make(root, config)
    landed: dict[str, list[tuple[int, bool]]] = {}
    for number, (start, lines, run) in enumerate(files):
        name = f"{number}/{TOPIC}+0+{start:010d}.{extension}"
        path = root / "landing" / TOPIC / name
        path.parent.mkdir()
        write(path, [made(source, start + i, start + i + 100 * other) for i, other in enumerate(lines)])
        landed[name] = [(start + i, other) for i, other in enumerate(lines)]
        if run:
            ingest(pipeline, ["items"], in_process)
    [outcome] = ingest(pipeline, ["items"], in_process)
    state = state_of(pipeline)
    taken = {entry.name: entry for entry in state.landed}
    named = {p["file"] for p in outcome.facts["problems"]}
    # `LANDED_REFUSED`: the run took files, and none of their records is a new change.
    assert outcome.error_code in (None, "LANDED_LATE", "LANDED_REFUSED")
    if outcome.error_code == "LANDED_REFUSED":
        assert outcome.facts["quarantined"] > outcome.facts["changes"] == 0
    held_up = {name for name in landed if name not in taken} - named
    assert not held_up or named, "a file that is not taken waits behind one that is named"
    first: dict[int, bool] = {}
    expected: Counter[str] = Counter()
    for entry in state.landed:
        assert entry.records == len(landed[entry.name]) == sum(getattr(entry, name) for name in COUNTS)
        for offset, other in landed[entry.name]:
            kind = "changes" if offset not in first else "repeated" if first[offset] == other else "quarantined"
            expected[kind] += 1
            first.setdefault(offset, other)
    assert {k: v for k, v in counts(pipeline).items() if k != "records"} == dict(expected)
    ids = [i for c in state.change_sets for i in read_change_set(pipeline.store, c).column("id").to_pylist()]
    assert sorted(ids) == sorted(offset + 100 * other for offset, other in first.items())
