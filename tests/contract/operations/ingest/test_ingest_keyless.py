"""Logs without a key: every row stays, also one like another, and what the source sends again is left out by order and
count. Facts: decision 0003.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import shutil
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.landing import TOPIC, changes_of, land, record, state_of, take
from support.older import older_program
from tidefold.compute.runners import in_process
from tidefold.config import load_config
from tidefold.domain.log_state import Position
from tidefold.domain.source_progress import StreamPosition
from tidefold.domain.source_progress_history import positions_at
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.quarantine.retry import retry
from tidefold.storage import open_store

BANK = Path(__file__).parents[3] / "data" / "bank"
HISTORY = "bank.public.pgbench_history"
CONFIG = f"""\
version: 1
store: store
logs:
  items:
    source: {{format: debezium-json, connector: postgresql, path: landing/{TOPIC}}}
    merge: append
    columns: {{id: int, text: string}}
    key_groups: 16
    buckets: 4
  history:
    source: {{format: debezium-json, connector: postgresql, path: landing/{HISTORY}}}
    merge: append
    columns: {{tid: int, bid: int, aid: int, delta: int, mtime: timestamp, filler: string}}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return begun(tmp_path)


def begun(root: Path) -> Pipeline:
    (root / "tidefold.yaml").write_text(CONFIG)
    for topic in (TOPIC, HISTORY):
        (root / "landing" / topic).mkdir(parents=True, exist_ok=True)
    return Pipeline(load_config(root / "tidefold.yaml"), open_store("store", root))


def truth(phase: int) -> Counter[tuple[Any, ...]]:
    with gzip.open(BANK / "truth" / f"phase{phase}" / "pgbench_history.csv.gz") as raw:
        rows = list(csv.DictReader(io.TextIOWrapper(raw, "utf-8")))
    return Counter((*(int(r[n]) for n in ("tid", "bid", "aid", "delta")), instant(r["mtime"]), None) for r in rows)


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def live(pipeline: Pipeline, log: str) -> Counter[tuple[Any, ...]]:
    _, batches = read_rows(pipeline, log, ReadRequest(What.LIVE))
    return Counter(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def test_the_banks_history_equals_the_truth_after_every_phase(pipeline: Pipeline, tmp_path: Path) -> None:
    repeated = 0
    for phase in (2, 3):
        shutil.copytree(
            BANK / "landing" / f"phase{phase}" / HISTORY, tmp_path / "landing" / HISTORY, dirs_exist_ok=True
        )
        [outcome] = ingest(pipeline, ["history"], in_process)
        repeated += outcome.facts["resent"]
        assert live(pipeline, "history") == truth(phase)
    assert repeated > 300  # The connector was killed once.


@pytest.mark.parametrize("seed", range(3))
def test_it_does_not_depend_on_how_the_records_are_split_into_files_and_runs(tmp_path: Path, seed: int) -> None:
    """I25: files of one run are read side by side, and give what they give one after the other."""
    pipeline, chance = begun(tmp_path), random.Random(seed)
    files = sorted((BANK / "landing").glob(f"phase*/{HISTORY}/*.gz"), key=lambda path: path.name)
    lines = [line for path in files for line in gzip.decompress(path.read_bytes()).splitlines()]
    while lines:
        part, lines = lines[: (size := chance.randint(1, 500))], lines[size:]
        name = f"{HISTORY}+0+{json.loads(part[0])['offset']:010d}.jsonl"
        (tmp_path / "landing" / HISTORY / name).write_bytes(b"\n".join(part) + b"\n")
        if chance.random() < 0.2 or not lines:
            ingest(pipeline, ["history"], in_process)
    assert live(pipeline, "history") == truth(3)


def row(offset: int, order: int, text: str = "same", **changes: Any) -> dict[str, Any]:
    return record(offset, 1, order=order, key=None, **{"after": {"id": 1, "text": text}, **changes})


def test_equal_rows_of_one_position_stay_and_only_what_came_again_is_left_out(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    """A COPY writes many rows at one position; nothing but their number tells how many of them came again."""
    land(tmp_path, 0, [row(0, 10), row(1, 20), row(2, 20), row(3, 20)])
    assert take(pipeline).facts["changes"] == 4
    # The stream goes back to 10: three rows at 20 were there before, the fourth is new.
    again = [row(4, 10), row(5, 20), row(6, 20)]
    land(tmp_path, 4, again)
    assert take(pipeline).facts["resent"] == 3
    land(tmp_path, 7, [row(7, 20), row(8, 20), row(9, 30)])
    assert take(pipeline).facts["resent"] == 1
    assert [c["_offset"] for c in changes_of(pipeline)] == [0, 1, 2, 3, 8, 9]
    [position] = state_of(pipeline).positions
    assert position.stream.counted[:3] == ((30, 30), 1, None)


def in_run(run: str, one: dict[str, Any]) -> dict[str, Any]:
    return one | {"headers": [{"key": "__debezium.context.runId", "value": run}]}


def test_a_connector_that_starts_again_at_the_highest_position_brings_no_row_twice(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    """The partition has the records of one table: after a kill the first that comes again may be the last that came."""
    land(tmp_path, 0, [in_run("a", one) for one in (row(0, 10), row(1, 20), row(2, 20))])
    assert take(pipeline).facts["changes"] == 3
    again = [in_run("b", row(3, 20)), in_run("b", row(4, 20)), in_run("c", row(5, 20)), in_run("c", row(6, 20))]
    land(tmp_path, 3, [*again, in_run("c", row(7, 20)), in_run("c", row(8, 30))])
    facts = take(pipeline).facts
    assert (facts["changes"], facts["resent"]) == (2, 4)
    assert [c["_offset"] for c in changes_of(pipeline)] == [0, 1, 2, 7, 8]


def test_a_position_of_mariadb_is_that_of_one_row(tmp_path: Path) -> None:
    (tmp_path / "tidefold.yaml").write_text(CONFIG.replace("postgresql", "mariadb"))
    (tmp_path / "landing" / TOPIC).mkdir(parents=True)
    pipeline = Pipeline(load_config(tmp_path / "tidefold.yaml"), open_store("store", tmp_path))

    def at(offset: int, pos: int, number: int, mark: str = "false") -> dict[str, Any]:
        return row(offset, 1, file="bin.1", pos=pos, row=number, snapshot=mark, op="c" if mark == "false" else "r")

    snapshot = [at(n, 5, 0, mark) for n, mark in enumerate(("first", "true", "last"))]
    land(tmp_path, 0, [*snapshot, at(3, 9, 0), at(4, 9, 1)])
    assert take(pipeline).facts["changes"] == 5
    land(tmp_path, 5, [at(5, 9, 1), at(6, 9, 2)])
    facts = take(pipeline).facts
    assert (facts["changes"], facts["resent"]) == (1, 1)


def test_changes_of_rows_are_refused_and_clears_are_taken(pipeline: Pipeline, tmp_path: Path) -> None:
    truncate = record(4, order=50, op="t", key=None, before=None, after=None)
    land(tmp_path, 0, [row(0, 10), row(1, 20, op="u"), row(2, 30, op="d"), row(3, 40), truncate, row(5, 60, "new")])
    outcome = take(pipeline)
    assert outcome.facts["refused"] == {"KEYLESS_CHANGE": 2}
    assert live(pipeline, "items") == {(1, "new"): 1}
    # A snapshot that was interrupted and is made anew, first at the same position, then at a later one.
    marks = ("first", "true", "true")
    part = [row(6 + i, 70, op="r", snapshot=mark) for i, mark in enumerate(marks[:2])]
    same = [row(8 + i, 70, op="r", snapshot=mark) for i, mark in enumerate(marks)]
    land(tmp_path, 6, [*part, *same])
    take(pipeline)
    assert live(pipeline, "items") == {(1, "same"): 3}
    land(tmp_path, 11, [row(11 + i, 90, "later", op="r", snapshot=mark) for i, mark in enumerate(marks[:2])])
    take(pipeline)
    assert live(pipeline, "items") == {(1, "later"): 2}


def test_rows_of_one_time_lie_together(pipeline: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, 0, [row(i, i) for i in range(50)])
    land(tmp_path, 1 << 20, [row((1 << 20) + i, 100 + i) for i in range(50)])
    take(pipeline)
    groups = [change["_kg"] for change in changes_of(pipeline)]
    assert len(set(groups[:50])) == len(set(groups[50:])) == 1
    assert set(groups[:50]) != set(groups[50:])


Rows = list[tuple[int, str]]
Stream = tuple[Rows, list[tuple[int, str, int]], list[int]]


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Rows as (position, text), the same with runs that go back to an earlier position, and where files begin.

    What is sent is (position, text, run of the connector).
    """
    rows: Rows = []
    position = 0
    for _ in range(draw(st.integers(1, 12))):
        position += draw(st.integers(0, 1)) or (0 if rows else 1)
        rows.append((position, draw(st.sampled_from("ab"))))
    sent: list[tuple[int, str, int]] = []
    done = run = 0
    while done < len(rows):
        upto = draw(st.integers(done + 1, len(rows)))
        sent += [(*one, run) for one in rows[done:upto]]
        done = upto
        # A connector sends again from the first record of a position.
        back = [i for i in range(done) if i == 0 or rows[i - 1][0] < rows[i][0]]
        if draw(st.booleans()) and len(sent) < 60:
            done, run = draw(st.sampled_from(back)), run + 1
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(sent) - 1)), max_size=5)))
    return rows, sent, cuts


def test_a_file_that_goes_on_with_records_sent_again_knows_the_file_before(pipeline: Pipeline, tmp_path: Path) -> None:
    """Fault: two files of one run; the second was read with the count from before the first, and rows were lost."""
    sent = [(1, "0")] * 2 + [(1, "1")] * 3 + [(1, "2")] * 11 + [(2, "2")]
    for number, (first, end) in enumerate(pairwise([0, 2, 14, len(sent)])):
        land(tmp_path, first, [in_run(sent[i][1], row(i, sent[i][0], "a", ts_us=1)) for i in range(first, end)])
        if number != 1:
            take(pipeline)
    assert sorted(c["_o1"] for c in changes_of(pipeline)) == [*[1] * 11, 2]


@settings(max_examples=choose(6, 15), deadline=None, suppress_health_check=list(HealthCheck))
@given(stream=streams(), runs=st.sets(st.integers(0, 6)))
def test_any_stream_that_goes_back_gives_every_row_once(
    stream: Stream, runs: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows, sent, cuts = stream
    root = tmp_path_factory.mktemp("keyless")
    pipeline = begun(root)
    bounds = [0, *(c for c in cuts if c < len(sent)), len(sent)]
    for number, (first, end) in enumerate(pairwise(bounds)):
        land(root, first, [in_run(str(sent[i][2]), row(i, *sent[i][:2], ts_us=1)) for i in range(first, end)])
        if number in runs or end == len(sent):
            take(pipeline)
    assert sorted((c["_o1"], c["text"]) for c in changes_of(pipeline)) == sorted(rows)


def test_refused_rows_that_can_be_read_now_all_come_in(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key no row is newer than another: equal ones come in side by side, but not those before a truncate."""
    with older_program(monkeypatch, most=100):
        big = {"id": 500, "text": "big"}
        truncate = record(2, order=30, op="t", key=None, before=None, after=None)
        rows = [row(0, 10), row(1, 20, after=big), truncate, row(3, 40, after=big), row(4, 50, after=big), row(5, 60)]
        land(tmp_path, 0, rows)
        assert take(pipeline).facts["refused"] == {"VALUE_INVALID": 3}
    found = retry(pipeline, "items").facts
    assert (found["changes"], found["staying"]) == (3, 0)  # The fold leaves out what a clear is newer than.
    assert live(pipeline, "items") == {(1, "same"): 1, (500, "big"): 2}


def test_after_a_restore_the_count_is_what_it_was(pipeline: Pipeline, tmp_path: Path) -> None:
    """The ledger keeps with each file how many records carried the highest position, so it can go back to any."""
    for start, order in ((0, 10), (2, 20), (4, 30)):
        land(tmp_path, start, [row(start, order, ts_us=start), row(start + 1, order, ts_us=start + 1)])
        take(pipeline)
    state = state_of(pipeline)
    for sqn, (high, next_offset) in enumerate(((10, 2), (20, 4), (30, 6)), 1):
        [position] = positions_at(state, sqn)
        counted = StreamPosition((high, high), records_at_max=2, max_commit_time=next_offset - 1, early=(10, high, 0))
        assert position == Position(TOPIC, 0, next_offset, counted)
