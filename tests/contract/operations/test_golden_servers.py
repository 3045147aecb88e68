"""What topics and a database left in a store stays readable, also when no server is there: I27, decision 0013."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from golden.kinds import list_rows, read_table
from golden.servers import list_marks
from support.arrival import Landing
from support.golden import SERVER_ARCHIVES
from support.pipelines import contents
from tidefold.domain.paths import LogPaths
from tidefold.domain.sets.progress import NEVER
from tidefold.operations.verify.scope import find_proof
from tidefold.sources.debezium.loaded_rows import read_marks
from tidefold.sources.kafka.accepted_gaps import list_accepted_gaps
from tidefold.sources.kafka.landed import LandedOffsets
from tidefold.storage import open_store

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")


@pytest.fixture(params=SERVER_ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Landing:
    with tarfile.open(request.param) as packed:
        packed.extractall(tmp_path, filter="data")
    return Landing(tmp_path)


def check_rows(kept: Landing, what: str, *logs: str) -> None:
    truth = json.loads((kept.folder / "truth.json").read_text())["logs"]
    for log in logs or truth:
        assert kept.rows(log) == list_rows(truth[log][what]), log
        assert list_rows(read_table(str(kept.folder / "store/tables" / log))) == list_rows(truth[log][what]), log


def test_marks_of_topics_are_read(kept: Landing) -> None:
    store = open_store("store", kept.folder)
    for log, marks in json.loads((kept.folder / "truth.json").read_text())["marks"].items():
        assert list_marks(kept.folder, log) == marks
    events, newest = (LandedOffsets.read(store, LogPaths(log)) for log in ("events", "newest"))
    assert (events.compacted, events.first, events.whole_from) == (False, {0: 0}, NEVER)
    assert sorted(events.marks[0]) == [("empty", 4, 6), ("given-up", 9, 11), ("hole", 6, 8)]
    assert (newest.compacted, newest.first) == (True, {0: 0})
    assert events.topic_id != newest.topic_id
    [gap] = list_accepted_gaps(store, LogPaths("events"))
    assert (gap.begin, gap.end, gap.why) == (9, 11, "the topic kept too little")
    assert "the topic kept too little" in " ".join(kept.call("snapshot", "history", "events").output.split())


def test_a_load_and_a_proof_are_read_and_no_byte_changes(kept: Landing) -> None:
    before = contents(kept.folder)
    check_rows(kept, "rows")
    root = str(kept.folder / "store" / LogPaths("items").landed)
    [load], [begun] = read_marks(root), read_marks(root, begun=True)
    assert (load.files, load.start, load.slot, load.table) == ((9,), 0, "tidefold", "public.items")
    assert (begun.slot, begun.by) == ("left", "ann")
    proof = find_proof(open_store("store", kept.folder), "items")
    assert proof
    assert proof.source
    assert [key for key, *_ in proof.source.waiting] == ["5,"]
    assert "7 keys equal at rest, 0 still moving, 0 differ" in " ".join(kept.call("status").output.split())
    assert contents(kept.folder) == before
    kept.call("check", "verify")


def publish(kept: Landing, *logs: str) -> None:
    """Ingests what has landed, although no broker says what else there is, and publishes it."""
    assert "KAFKA_UNREADABLE" in kept.call("step", "ingest", *logs, code=None).output
    for step in ("materialize", "quality"):
        kept.call("step", step, *logs)
    for log in logs:
        kept.call("step", "confirm", log)


def test_the_life_goes_on_without_a_server(kept: Landing) -> None:
    """What had landed is ingested; the rows of the load and of a topic come back from what landed."""
    publish(kept, "events", "items")
    check_rows(kept, "later")
    kept.call("retain", "drop", "items", "--yes")
    kept.call("run", "items")
    check_rows(kept, "later")
    # Nothing is published of a log that begins without its broker; its landed records are there.
    kept.call("retain", "drop", "newest", "--yes")
    assert "KAFKA_UNREADABLE" in kept.call("step", "ingest", "newest", code=None).output
    live = json.loads(kept.call("read", "newest", "--live", "--format", "json").stdout)["rows"]
    assert [one["id"] for one in list_rows(live)] == [1, 2, 9]
