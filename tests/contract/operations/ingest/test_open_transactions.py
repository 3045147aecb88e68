"""Changes of transactions that were open while the slot was made, against the rows of the source (decision 0068; I25).

Random histories of open transactions, snapshots that are made again or killed, connectors that start again before they
have seen a commit; any cut into files, any number of runs, refused records that are read again alone.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.landing import TOPIC, land, make_landing, record, take
from support.older import older_program
from support.simulated_postgres import play
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.quarantine.inspect import count_refused
from tidefold.operations.quarantine.retry import retry


def rows_of(pipeline: Pipeline) -> dict[int, int]:
    if not pipeline.ledger("items").exists():
        return {}
    _, batches = read_rows(pipeline, "items", ReadRequest(What.LIVE))
    return {row["id"]: row["n"] for batch in batches for row in batch.to_pylist()}


@settings(max_examples=choose(25, 400), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_the_rows_are_those_of_the_source(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rnd = Random(seed)
    source = play(rnd)
    [topic] = source.topic
    with tempfile.TemporaryDirectory() as folder:
        pipeline = make_landing(Path(folder), "{id: long, n: int}")
        begin, is_old = 0, rnd.random() < 0.5
        while begin < len(topic):
            end = (
                rnd.randint(begin + 1, len(topic)) if rnd.random() < 0.3 else min(begin + rnd.randint(1, 6), len(topic))
            )
            land(Path(folder), begin, topic[begin:end])
            begin = end
            if rnd.random() < 0.4:
                with older_program(monkeypatch, most=99 if is_old else 200):
                    assert take(pipeline).error_code in (None, "LANDED_REFUSED")
        assert take(pipeline).error_code in (None, "LANDED_REFUSED")
        if count_refused(pipeline, "items"):
            retry(pipeline, "items")
            assert count_refused(pipeline, "items") == []
        assert rows_of(pipeline) == source.rows


@settings(max_examples=choose(15, 200), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
@example(seed=62)  # The first event of an open transaction was in another file than its last one.
@example(seed=237)
def test_several_partitions_have_the_rows_of_the_source_or_stop_by_name(seed: int) -> None:
    """Partitions land in any order. A new snapshot that removes rows of all of them may then be undecidable."""
    rnd = Random(seed)
    source = play(rnd, rnd.choice((2, 3)))
    with tempfile.TemporaryDirectory() as folder:
        pipeline = make_landing(Path(folder), "{id: long, n: int}")
        at = [0] * source.partitions
        while left := [number for number, topic in enumerate(source.topic) if at[number] < len(topic)]:
            number = rnd.choice(left)
            end = min(at[number] + rnd.randint(1, 8), len(source.topic[number]))
            name = f"{TOPIC}+{number}+{at[number]:010d}.jsonl"
            land(Path(folder), at[number], source.topic[number][at[number] : end], name=name)
            at[number] = end
            if rnd.random() < 0.1:
                take(pipeline)
        code = take(pipeline).error_code
        is_right = source.begins_unsaid or rows_of(pipeline) == source.rows
        assert code == "TABLE_EVENT" or (code is None and is_right), seed


def test_one_snapshot_in_several_partitions_never_stops(tmp_path: Path) -> None:
    """Changes of the open transaction are in a partition without a row of the snapshot, which has removed nothing."""
    rows = [record(0, key, "r", sequence='[null,"50"]', snapshot=mark) for key, mark in ((2, "first"), (4, "last"))]
    events = [record(0, 1, sequence='[null,"30"]'), record(1, 3, sequence='["60","70"]')]
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [{**one, "offset": offset} for offset, one in enumerate(rows)])
    assert take(pipeline).error_code is None
    land(tmp_path, 0, [{**one, "partition": 1} for one in events], name=f"{TOPIC}+1+0000000000.jsonl")
    assert take(pipeline).error_code is None
    _, batches = read_rows(pipeline, "items", ReadRequest(What.LIVE))
    assert sorted(row["id"] for batch in batches for row in batch.to_pylist()) == [1, 2, 3, 4]
