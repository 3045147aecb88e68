"""Bad input 29 to 64, one case for each number: what is taken, what is put aside, what stops, and that nothing else
changes. docs/contributors/bad-input.md says the same for users; `test_bad_files.py` looks closer at single ones.

Every case begins with a published table of one row. A refused or failed input leaves that row; an ingest that ends in
an error leaves every byte of the store as it was.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.landing import TOPIC, make_landing, quarantined, record, state_of, take, text_of, tombstone
from support.landing import land as land_lines
from support.pipelines import contents, judge_all
from tidefold.compute.runners import TaskAnswer, TaskWork, in_process
from tidefold.errors import CorruptError
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import read_rows
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.inspect.status import status
from tidefold.operations.quarantine.retry import retry
from tidefold.operations.requests import Fold
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.presentation.remarks import remarks
from tidefold.wiring import open_pipeline

PAGE = Path(__file__).parents[4] / "docs" / "contributors" / "bad-input.md"
Records = Sequence[Any] | bytes
# (first offset in the name, lines or bytes, extension)
Landing = tuple[int, Records, str]


@dataclass(frozen=True, slots=True)
class Case:
    """One bad input. `files` land at once; `rows` are the table's after a fold, beside the kept one.

    `error` is the outcome's code, `refused` counts reasons in quarantine, `counts` the rest of the account.
    """

    what: str
    files: Sequence[Landing]
    refused: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    rows: Sequence[tuple[Any, ...]] = ()
    error: str | None = None
    problems: Sequence[str] = ()
    waiting: int = 0
    columns: str = "{id: int, text: string}"
    kept: tuple[Any, str] = ("t1000", "t1000")


def lines(start: int, *records: Any, extension: str = "jsonl") -> Landing:
    return start, records, extension


def raw(start: int, data: bytes, extension: str = "jsonl") -> Landing:
    return start, data, extension


def changed(offset: int, old: str, new: str) -> str:
    """A record with a part of its text replaced."""
    text = json.dumps(record(offset))
    assert old in text
    return text.replace(old, new)


def decimal(unscaled: int) -> str:
    return base64.b64encode(unscaled.to_bytes(4, "big", signed=True)).decode()


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def row(offset: int, **values: Any) -> dict[str, Any]:
    return record(offset, values["id"], after=values)


ZIPPED = gzip.compress(text_of([record(10, 1), record(11, 2)]))
ONE = [(1, "t1010")]
CASES = [
    Case("29 zero-byte file before newer ones", [raw(10, b""), lines(20, record(20))], error="LANDED_EMPTY"),
    Case("29 zero-byte file, the newest", [raw(10, b"")], waiting=1),
    Case(
        "30 truncated last line, newer files there",
        [raw(10, text_of([record(10), record(11)])[:-9]), lines(20, record(20, 2))],
        {"TORN_LINE": 1},
        {"changes": 2},
        [*ONE, (2, "t1020")],
    ),
    Case(
        "30 truncated last line of the newest file",
        [raw(10, text_of([record(10), record(11)])[:-9])],
        {},
        {"changes": 1},
        ONE,
        waiting=1,
    ),
    Case(
        "31 truncated gzip before newer files",
        [raw(10, ZIPPED[:-20], "jsonl.gz"), lines(20, record(20))],
        error="LANDED_TRUNCATED",
    ),
    Case("32 bit flip in a gzip file", [raw(10, flipped(ZIPPED, len(ZIPPED) - 6), "json.gz")], error="LANDED_DAMAGED"),
    Case("33 plain lines named .gz", [raw(10, text_of([record(10)]), "jsonl.gz")], error="LANDED_FORMAT"),
    Case("33 gzip named as plain lines", [raw(10, ZIPPED, "jsonl"), lines(20, record(20))], error="LANDED_FORMAT"),
    Case(
        "34 invalid UTF-8",
        [lines(10, record(10), changed(11, "t1011", "X").encode().replace(b"X", b"\xff\xfe"))],
        {"NOT_UTF8": 1},
        {"changes": 1},
        ONE,
    ),
    Case(
        "34 lone surrogate",
        [lines(10, record(10), changed(11, "t1011", "\\ud800"))],
        {"BROKEN_JSON": 1},
        {"changes": 1},
        ONE,
    ),
    Case(
        "35 blank lines, CRLF, byte order mark",
        [
            lines(
                10,
                b"\xef\xbb\xbf" + json.dumps(record(10)).encode() + b"\r",
                "",
                " \t",
                json.dumps(record(11, 2)) + "\r",
            )
        ],
        {},
        {"changes": 2},
        [*ONE, (2, "t1011")],
    ),
    Case(
        "36 JSON array instead of lines",
        [lines(10, record(10), json.dumps([record(11), record(12)]))],
        {"NOT_A_RECORD": 1},
        {"changes": 1},
        ONE,
    ),
    Case(
        "37 a JSON name twice",
        [lines(10, changed(10, '"op": "c"', '"op": "d", "op": "c"'))],
        {},
        {"changes": 1},
        ONE,
    ),
    Case(
        "38 NaN, 1e400, 2^63+1",
        [
            lines(
                10,
                record(10),
                changed(11, '"t1011"', "NaN"),
                changed(12, '"after": {"id": 1', '"after": {"id": 1e400'),
                row(13, id=2**63 + 1, text=""),
            )
        ],
        {"BROKEN_JSON": 1, "VALUE_INVALID": 2},
        {"changes": 1},
        ONE,
    ),
    Case(
        "39 nesting 10,000 deep",
        [lines(10, record(10), changed(11, "[]", "[" * 10_000 + "]" * 10_000))],
        {"BROKEN_JSON": 1},
        {"changes": 1},
        ONE,
    ),
    Case(
        "41 op missing, null, unknown, upper case",
        [
            lines(
                10,
                record(10),
                record(11, value={"after": {"id": 1, "text": "a"}, "source": {}}),
                record(12, op=None),
                record(13, op="x"),
                record(14, op="C"),
            )
        ],
        {"OP_UNKNOWN": 4},
        {"changes": 1},
        ONE,
    ),
    Case(
        "42 update without after",
        [lines(10, record(10), record(11, op="u", after=None))],
        {"AFTER_MISSING": 1},
        {"changes": 1},
        ONE,
    ),
    Case(
        "43 delete with before null",
        [lines(10, record(10), record(11, 2), record(12, 2, "d", before=None))],
        {},
        {"changes": 3},
        ONE,
    ),
    Case(
        "44 tombstone alone, and before its delete",
        [lines(10, record(10), tombstone(11, 9), record(12, 2), tombstone(13, 2), record(14, 2, "d"))],
        {},
        {"changes": 3, "tombstones": 2},
        ONE,
    ),
    Case(
        "45 null key",
        [lines(10, record(10), record(11, None, key=None), record(12, 1, "d", key=None, before=None))],
        {"KEY_NULL": 2},
        {"changes": 1},
        ONE,
    ),
    Case(
        "46 changed key, the create before the delete",
        [
            lines(
                10,
                record(10, 2),
                record(11, 1, order=1010, after={"id": 1, "text": "t1010"}),
                record(12, 2, "d", order=1011),
                tombstone(13, 2),
            )
        ],
        {},
        {"changes": 3, "tombstones": 1},
        ONE,
    ),
    Case(
        "47 the same log position twice, equal content",
        [lines(10, record(10), record(11, order=1010))],
        {},
        {"changes": 2},
        ONE,
    ),
    Case(
        "48 the same offset twice, other content",
        [lines(10, record(10), record(10, after={"id": 1, "text": "other"}))],
        {"OFFSET_TWICE": 1},
        {"changes": 1},
        ONE,
    ),
    Case(
        "49 files landed out of order",
        [lines(30, record(30, 3)), lines(10, record(10)), lines(20, record(20, 2))],
        {},
        {"changes": 3},
        [*ONE, (2, "t1020"), (3, "t1030")],
    ),
    Case(
        "49 offsets out of order in a file",
        [lines(10, record(10), record(15, 2), record(12, 3))],
        {"OFFSET_ORDER": 1},
        {"changes": 2},
        [*ONE, (2, "t1015")],
    ),
    Case(
        "50 gaps between Kafka offsets",
        [lines(10, record(10), record(5_000, 2))],
        {},
        {"changes": 2},
        [*ONE, (2, "t6000")],
    ),
    Case(
        "52 a snapshot row after newer changes",
        [
            lines(
                10,
                record(10, 2, "u"),
                record(11, 1, "u", after={"id": 1, "text": "t1010"}),
                record(12, 7, "r", order=50),
            )
        ],
        {},
        {"changes": 2, "resent": 1},
        [*ONE, (2, "t1010")],
    ),
    Case(
        "54 message, heartbeat, transaction, schema change",
        [
            lines(
                10,
                record(10),
                record(11, op="m", after=None),
                record(12, value={"ts_ms": 1}),
                record(13, value={"status": "END", "id": "1"}),
                record(14, value={"ddl": "ALTER TABLE items ADD x int", "source": {}}),
            )
        ],
        {},
        {"changes": 1, "ignored": 4},
        ONE,
    ),
    Case(
        "55 placeholder in a create",
        [lines(10, record(10), row(11, id=2, text="__debezium_unavailable_value"))],
        {"UNAVAILABLE_VALUE": 1},
        {"changes": 1},
        ONE,
    ),
    Case(
        "56 decimals of another scale, damaged base64",
        [
            lines(
                10,
                row(10, id=1, text=decimal(1234)),
                row(12, id=3, text="###"),
                row(13, id=4, text={"scale": 3, "value": decimal(1234)}),
                row(14, id=5, text=12.34),
            )
        ],
        {"VALUE_INVALID": 3},
        {"changes": 1},
        [(1, "12.34")],
        columns="{id: int, text: {type: 'decimal(4,2)', encoding: base64(2)}}",
        kept=("AGQ=", "1.00"),
    ),
    Case(
        "57 times in other units, years 0 and 10000",
        [
            lines(
                10,
                row(10, id=1, text=1_700_000_000_000_000),
                row(11, id=2, text=1_700_000_000_000_000_000),
                row(12, id=3, text=253_402_300_799_999_999),
                row(13, id=4, text=253_402_300_800_000_000),
                row(14, id=5, text=-62_135_596_800_000_001),
                row(15, id=6, text="2026-01-01T00:00:00Z"),
            )
        ],
        {"VALUE_INVALID": 4},
        {"changes": 2},
        [(1, "2023-11-14 22:13:20+00:00"), (3, "9999-12-31 23:59:59.999999+00:00")],
        columns="{id: int, text: timestamp}",
        kept=(0, "1970-01-01 00:00:00+00:00"),
    ),
    Case(
        "58 column added, dropped, renamed, retyped in mid file",
        [
            lines(
                10,
                record(10),
                row(11, id=2, text="", more=1),
                row(12, id=3),
                row(13, id=4, words=""),
                row(14, id=5, text=5),
            )
        ],
        {"UNKNOWN_COLUMN": 2, "MISSING_COLUMN": 1, "VALUE_INVALID": 1},
        {"changes": 1},
        ONE,
    ),
    Case(
        "59 names in other case, with dot, back-tick, quote, newline",
        [
            lines(
                10,
                record(10),
                *(
                    row(11 + i, id=2, text="", **{name: 1})
                    for i, name in enumerate(("TEXT", "a.b", "a`b", 'a"b', "a\nb"))
                ),
                record(16, 2, key={"ID": 2}, after={"ID": 2, "text": ""}),
            )
        ],
        {"UNKNOWN_COLUMN": 6},
        {"changes": 1},
        ONE,
    ),
    Case(
        "60 records of another topic or partition",
        [lines(10, record(10), record(11, topic="shop.public.other"), record(12, partition=1))],
        {"WRONG_PARTITION": 2},
        {"changes": 1},
        ONE,
    ),
    Case("60 a file of another kind", [raw(10, b"hello", "txt")], problems=["FOREIGN_FILE"]),
    Case("61 a file that is still uploaded", [raw(10, text_of([record(10)]), "jsonl.part")]),
    Case(
        "64 types that do not fit become no nulls",
        [
            lines(
                10,
                record(10),
                row(11, id="2", text=""),
                row(12, id=3, text={"a": 1}),
                row(13, id=4, text=True),
                row(14, id=5.5, text=""),
            )
        ],
        {"VALUE_INVALID": 4},
        {"changes": 1},
        ONE,
    ),
]


def land(folder: Path, files: Sequence[Landing]) -> None:
    for start, records, extension in files:
        land_lines(folder, start, records, extension)


def publish(pipeline: Pipeline, run: str) -> Outcome:
    """Folds what waits and publishes it, if there is anything."""
    [outcome] = materialize(pipeline, ["items"], Fold(run), in_process)
    if outcome.status == "staged":
        judge_all(pipeline, "items")
        assert confirm(pipeline, "items", Confirmation(run=run)).status == "published"
    return outcome


def rows(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    """(id, text as text) of the published table."""
    _, batches = read_rows(pipeline, "items")
    return sorted((r["id"], str(r["text"])) for batch in batches for r in batch.to_pylist())


def begun(folder: Path, columns: str = "{id: int, text: string}", kept: Any = "t1000") -> Pipeline:
    """A published table with the row 7. It is made once a form of columns, and copied."""
    made = folder.parent / f"begun-{zlib.crc32(columns.encode())}"
    if not made.exists():
        making = folder.parent / f"{made.name}.making"
        pipeline = make_landing(making, columns)
        land_lines(making, 0, [record(0, 7, after={"id": 7, "text": kept})])
        assert take(pipeline).status == "taken"
        assert publish(pipeline, "run-0").status == "staged"
        making.rename(made)
    # Landed files keep their times: what was taken is known by them.
    shutil.copytree(made, folder, dirs_exist_ok=True)
    return open_pipeline(folder / "tidefold.yaml")


def codes(outcome: Outcome) -> list[str]:
    return [problem["code"] for problem in outcome.facts["problems"]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_a_bad_input(tmp_path: Path, case: Case) -> None:
    pipeline = begun(tmp_path, case.columns, case.kept[0])
    land(tmp_path, case.files)
    before = contents(tmp_path / "store")
    outcome = take(pipeline)
    assert outcome.error_code == case.error
    assert len(outcome.facts.get("still_writing") or ()) == case.waiting
    if case.error or not (case.counts or case.refused):
        # Only that the file is there is recorded.
        after = contents(tmp_path / "store")
        new = {name for name in after if name not in before and "/ledger/" not in name and name != "store.json"}
        assert (new, {name: after.get(name) for name in before}) == (set(), before)
        assert codes(outcome) == list(filter(None, [*case.problems, case.error]))
    else:
        counted = {
            name: outcome.facts[name] for name in ("changes", "tombstones", "repeated", "resent", "unproved", "ignored")
        }
        assert {name: count for name, count in counted.items() if count} == case.counts
        assert (outcome.facts["refused"], outcome.facts["quarantined"]) == (case.refused, sum(case.refused.values()))
        put_aside = quarantined(pipeline)
        assert sorted(entry["reason"] for entry in put_aside) == sorted(_spread(case.refused))
        assert all(entry["file"].startswith(TOPIC) and entry["line"] > 0 and entry["detail"] for entry in put_aside)
    publish(pipeline, "run-1")
    assert rows(pipeline) == sorted([*case.rows, (7, case.kept[1])])
    if not case.error:
        assert take(pipeline).status in ("nothing", "incomplete")


def _spread(counts: Mapping[str, int]) -> list[str]:
    return [reason for reason, count in counts.items() for _ in range(count)]


def parquet_file(path: Path) -> bytes:
    pq.write_table(pa.table({"id": pa.array(range(3), pa.int32()), "text": ["a"] * 3}), path)
    return path.read_bytes()


def avro_file(path: Path) -> bytes:
    kinds = [{"name": "id", "type": "int"}, {"name": "text", "type": "string"}]
    stream = io.BytesIO()
    fastavro.writer(stream, {"type": "record", "name": "r", "fields": kinds}, [{"id": 1, "text": "a"}] * 50)
    path.write_bytes(stream.getvalue())
    return path.read_bytes()


BINARY = {
    "31 truncated Parquet": ("format: parquet", "key: [id]\n    order: file", parquet_file, "parquet"),
    "31 truncated Avro": ("format: debezium-avro, connector: postgresql", "key: [id]", avro_file, "avro"),
}


@pytest.mark.parametrize("what", BINARY)
def test_31_a_truncated_binary_file_is_never_taken(tmp_path: Path, what: str) -> None:
    source, key, make, extension = BINARY[what]
    make_landing(tmp_path)
    text = (tmp_path / "tidefold.yaml").read_text()
    text = text.replace("format: debezium-json, connector: postgresql", source).replace("key: [id]", key)
    (tmp_path / "tidefold.yaml").write_text(text)
    pipeline = open_pipeline(tmp_path / "tidefold.yaml")
    path = tmp_path / "landing" / TOPIC / f"{TOPIC}+0+0000000010.{extension}"
    whole = make(path)
    for cut in (5, len(whole) // 3, len(whole) - 4):
        path.write_bytes(whole[:cut])
        outcome = take(pipeline)
        assert (outcome.facts["records"], outcome.facts["still_writing"]) == (0, [path.name])
    if extension == "avro":  # It may not be passed over: a partition is taken in its order.
        path.with_name(path.name.replace("10.", "20.")).write_bytes(whole)
        before = contents(tmp_path / "store")
        assert take(pipeline).error_code == "LANDED_TRUNCATED"
        assert contents(tmp_path / "store") == before


def test_32_a_bit_flip_in_what_was_taken_already(tmp_path: Path) -> None:
    """Of a file that grew: what was taken must be the same bytes. Of a segment: a fold uses only what is whole."""
    pipeline = begun(tmp_path)
    path = tmp_path / "landing" / TOPIC / f"{TOPIC}+0+0000000000.jsonl"
    whole = path.read_bytes()
    path.write_bytes(flipped(whole, whole.index(b"t1000")) + text_of([record(1)]))
    before = contents(tmp_path / "store")
    assert take(pipeline).error_code == "LANDED_CHANGED"
    assert contents(tmp_path / "store") == before
    path.write_bytes(whole + text_of([record(1)]))
    take(pipeline)
    segment = tmp_path / "store" / state_of(pipeline).change_sets[-1].location.segment
    segment.write_bytes(flipped(segment.read_bytes(), 40))
    outcome = publish(pipeline, "run-1")
    assert (outcome.status, outcome.error_code) == ("error", "SEGMENT_CORRUPT")
    assert rows(pipeline) == [(7, "t1000")]


def test_48_one_log_position_other_content_is_counted_and_listed(tmp_path: Path) -> None:
    """Two changes of one key and order are a tie: the later offset counts, and people are told."""
    pipeline = begun(tmp_path)
    other = record(11, order=1010, after={"id": 1, "text": "other"})
    land_lines(tmp_path, 10, [record(10), other])
    assert take(pipeline).facts["changes"] == 2
    publish(pipeline, "run-1")
    latest = state_of(pipeline).latest
    assert latest
    manifest = read_manifest(pipeline.store, "items", latest)
    assert (manifest.ties, json.loads(manifest.tied[0])["id"]) == (1, 1)
    assert rows(pipeline) == [(1, "other"), (7, "t1000")]


def test_50_a_gap_between_sequence_numbers_is_an_error(tmp_path: Path) -> None:
    pipeline = begun(tmp_path)
    for start in (10, 20, 30):
        land_lines(tmp_path, start, [record(start)])
        take(pipeline)
    state = state_of(pipeline)
    gap = replace(state, change_sets=tuple(c for c in state.change_sets if c.sqn != 3))
    before = contents(tmp_path / "store")
    with pytest.raises(CorruptError) as found:
        pipeline.ledger("items").commit(lambda _: gap)
    assert found.value.code == "SQN_GAP"
    assert contents(tmp_path / "store") == before


def test_51_a_range_that_overlaps_what_was_cut_from_the_log(tmp_path: Path) -> None:
    pipeline = begun(tmp_path)
    old = contents(tmp_path / "landing")
    for number in (1, 2, 3):
        land_lines(tmp_path, 10 * number, [record(10 * number, number)])
        take(pipeline)
        publish(pipeline, f"run-{number}")
    config = pipeline.config.model_copy(
        update={"retention": pipeline.config.retention.model_copy(update={"snapshots": 2})}
    )
    pipeline = replace(pipeline, config=config)
    subsume(pipeline, "items")
    truncate(pipeline, "items")
    assert state_of(pipeline).truncated_to > 0
    [(_, data)] = old.items()
    land_lines(tmp_path, 0, data, "json")
    assert take(pipeline).facts["repeated"] == 1
    assert publish(pipeline, "run-9").status == "nothing"
    assert len(rows(pipeline)) == 4


def test_40_a_line_of_more_than_64_mib_is_refused_and_the_next_one_taken(tmp_path: Path) -> None:
    pipeline = begun(tmp_path)
    land_lines(tmp_path, 10, [record(10), changed(11, "t1011", "x" * (65 << 20)), record(12, 2)])
    outcome = take(pipeline)
    assert (outcome.facts["changes"], outcome.facts["refused"]) == (2, {"LINE_TOO_LONG": 1})
    [entry] = quarantined(pipeline)
    assert (entry["line"], len(entry["record"])) == (2, 8192)
    publish(pipeline, "run-1")
    assert rows(pipeline) == [(1, "t1010"), (2, "t1012"), (7, "t1000")]


def test_53_a_truncate_removes_what_came_before_it(tmp_path: Path) -> None:
    pipeline = begun(tmp_path)
    truncated = record(12, op="t", key=None, before=None, after=None)
    land_lines(tmp_path, 10, [record(10), record(11, 2), truncated, record(13, 3)])
    assert take(pipeline).facts["changes"] == 4
    publish(pipeline, "run-1")
    assert rows(pipeline) == [(3, "t1013")]


def test_55_a_placeholder_takes_the_row_s_value_or_leaves_its_key_out(tmp_path: Path) -> None:
    pipeline = begun(tmp_path)
    land_lines(tmp_path, 10, [record(10, 7, "u", after={"id": 7, "text": "__debezium_unavailable_value"})])
    take(pipeline)
    publish(pipeline, "run-1")
    assert rows(pipeline) == [(7, "t1000")]
    land_lines(tmp_path, 20, [record(20, 8, "u", after={"id": 8, "text": "__debezium_unavailable_value"})])
    assert take(pipeline).facts["changes"] == 1
    publish(pipeline, "run-2")
    assert rows(pipeline) == [(7, "t1000")]
    latest = state_of(pipeline).latest
    assert latest
    assert latest.unresolved == 1
    [told] = [one for one in remarks(status(pipeline, ["items"])) if "UNAVAILABLE_VALUE" in one]
    assert 'leaves out keys (UNAVAILABLE_VALUE, 1 in all): {"id": 8}' in told


def test_58_a_column_that_was_added_to_the_configuration_is_no_error(tmp_path: Path) -> None:
    """What was refused for it comes in by `quarantine retry`."""
    pipeline = begun(tmp_path)
    land_lines(tmp_path, 10, [record(10), row(11, id=2, text="b", more=1)])
    assert take(pipeline).facts["refused"] == {"UNKNOWN_COLUMN": 1}
    text = (tmp_path / "tidefold.yaml").read_text()
    (tmp_path / "tidefold.yaml").write_text(text.replace("text: string}", "text: string, more: int}"))
    pipeline = open_pipeline(tmp_path / "tidefold.yaml")
    land_lines(tmp_path, 20, [row(20, id=3, text="c", more=2)])
    assert take(pipeline).facts["changes"] == 1
    assert retry(pipeline, "items").facts["changes"] == 1
    publish(pipeline, "run-1")
    _, batches = read_rows(pipeline, "items")
    found = {r["id"]: r["more"] for batch in batches for r in batch.to_pylist()}
    assert found == {1: None, 2: 1, 3: 2, 7: None}


def test_61_of_an_upload_in_two_files_the_second_came_first(tmp_path: Path) -> None:
    """Offsets may have gaps, so the second is taken; the first is refused by name then, never put behind newer rows."""
    pipeline = begun(tmp_path)
    land_lines(tmp_path, 20, [record(20, 2)])
    assert take(pipeline).facts["changes"] == 1
    before = contents(tmp_path / "store")
    land_lines(tmp_path, 10, [record(10)])
    assert take(pipeline).error_code == "LANDED_LATE"
    assert contents(tmp_path / "store") == before
    publish(pipeline, "run-1")
    assert rows(pipeline) == [(2, "t1020"), (7, "t1000")]


@pytest.mark.parametrize(
    ("meddle", "code"),
    [
        (lambda path: path.unlink(), "LANDED_GONE"),
        (lambda path: path.write_bytes(text_of([record(10, 9)])), "LANDED_CHANGED"),
    ],
    ids=["deleted", "replaced"],
)
def test_62_a_file_that_is_deleted_or_replaced_after_planning(
    tmp_path: Path, meddle: Callable[[Path], object], code: str
) -> None:
    pipeline = begun(tmp_path)
    path = land_lines(tmp_path, 10, [record(10)])
    before = contents(tmp_path / "store")

    def meddling(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        meddle(path)
        return in_process(work, tasks)

    [outcome] = ingest(pipeline, ["items"], meddling)
    assert (outcome.status, outcome.error_code) == ("error", code)
    assert {name: data for name, data in contents(tmp_path / "store").items() if "/intents/" not in name} == before
    publish(pipeline, "run-1")
    assert rows(pipeline) == [(7, "t1000")]


def test_63_very_many_tiny_files_become_few(tmp_path: Path) -> None:
    pipeline = begun(tmp_path)
    folder = tmp_path / "landing" / TOPIC
    for offset in range(10, 510):
        (folder / f"{TOPIC}+0+{offset:010d}.jsonl").write_bytes(text_of([record(offset, offset % 50)]))
    outcome = take(pipeline)
    assert (outcome.facts["files"], outcome.facts["changes"]) == (500, 500)
    segments = {c.location.segment for c in state_of(pipeline).change_sets}
    assert len(segments) == 2
    publish(pipeline, "run-1")
    assert len(rows(pipeline)) == 50
    assert take(pipeline).status == "nothing"


def test_every_number_has_a_case_and_a_line_in_the_page() -> None:
    here = Path(__file__).read_text()
    cases = {int(case.what.split()[0]) for case in CASES} | {int(n) for n in re.findall(r"def test_(\d\d)_", here)}
    assert sorted(cases) == list(range(29, 65))
    said = [int(n) for n in re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE)]
    # Those from 94 on are tried through Airflow too: tests/airflow/test_bad_parameters.py.
    assert [n for n in said if n < 94] == list(range(29, 65))
