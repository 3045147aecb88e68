"""What users of neighbouring systems complain of, each as one test: real files in, snapshots folded, judged, published.

The number is that of the list of complaints; the issues belong to the repositories named. A judge that says yes stands
for Spark's.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.pipelines import contents, judge_all
from tidefold.changelog.segment import read_change_set
from tidefold.compute.runners import in_process
from tidefold.config import load_config
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.errors import InvalidInputError, StorageError
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.retention.clean import clean
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage.local_store import LocalStore
from tidefold.wiring import open_pipeline

LOG = "items"
CONFIG = """
version: 1
store: store
snapshots: {{kind: incremental}}
retention: {{snapshots: 2}}
logs:
  items:
    source: {{format: json, path: landing, record: value, op: {{column: op}}}}
    columns: {{id: int, at: long, text: string}}
    key_groups: 16
    buckets: 4
    {rest}
"""
BY_TIME = "key: [id]\n    order: [at]"


def opened(folder: Path, rest: str = BY_TIME) -> Pipeline:
    (folder / "landing").mkdir(parents=True, exist_ok=True)
    (folder / "tidefold.yaml").write_text(CONFIG.format(rest=rest))
    return open_pipeline(folder / "tidefold.yaml")


def put(item: int, at: int, text: str) -> dict[str, Any]:
    return {"op": "u", "id": item, "at": at, "text": text}


def gone(item: int, at: int) -> dict[str, Any]:
    return {"op": "d", "id": item, "at": at}


def land(folder: Path, start: int, records: Sequence[dict[str, Any] | str]) -> Path:
    path = folder / "landing" / f"items+0+{start:010d}.jsonl"
    lines = [one if isinstance(one, str) else json.dumps(one) for one in records]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def take(pipeline: Pipeline) -> Outcome:
    [outcome] = ingest(pipeline, [LOG], in_process)
    return outcome


def publish(pipeline: Pipeline, run: str) -> Manifest:
    """Folds what waits, and publishes it."""
    [outcome] = materialize(pipeline, [LOG], Fold(run), in_process)
    assert outcome.status == "staged", outcome
    judge_all(pipeline, LOG)
    assert confirm(pipeline, LOG, Confirmation(run=run)).status == "published"
    latest = pipeline.ledger(LOG).read().latest
    assert latest
    return read_manifest(pipeline.store, LOG, latest)


def rows(pipeline: Pipeline, what: What = What.TABLE) -> list[tuple[Any, ...]]:
    """(id, at, text) of all rows, sorted."""
    _, batches = read_rows(pipeline, LOG, ReadRequest(what))
    return sorted((r["id"], r["at"], r["text"]) for batch in batches for r in batch.to_pylist())


def test_1_a_deleted_row_does_not_come_back(tmp_path: Path) -> None:
    """apache/paimon#5387, apache/hudi#17642, apache/hudi#5934: a late change after a delete, also when everything was
    folded and compacted long since, and when the delete comes before what it deletes.
    """
    pipeline = opened(tmp_path)
    batches = [
        [put(1, 10, "a")],
        [gone(1, 20), gone(2, 30)],
        [put(1, 15, "late"), put(2, 25, "late")],
        [put(3, 1, "c")],
    ]
    for number, batch in enumerate(batches):
        land(tmp_path, 10 * number, batch)
        assert take(pipeline).status == "taken"
        publish(pipeline, f"run-{number}")
    assert rows(pipeline) == [(3, 1, "c")]
    land(tmp_path, 100, [put(1, 19, "later still"), put(2, 31, "new")])
    take(pipeline)
    assert rows(pipeline, What.LIVE) == [(2, 31, "new"), (3, 1, "c")]
    publish(pipeline, "run-9")
    assert rows(pipeline) == [(2, 31, "new"), (3, 1, "c")]


def test_2_tombstones_go_at_the_horizon_and_only_touched_ones_are_read(tmp_path: Path) -> None:
    """Review of apache/spark PR 56016: tombstones stay for ever, and all of them are read each time."""
    pipeline = opened(tmp_path, f"{BY_TIME}\n    late: {{allowed_lateness: 100}}")
    land(tmp_path, 0, [gone(i, 10) for i in range(400)])
    take(pipeline)
    first = publish(pipeline, "run-1")
    assert sum(f.rows for f in first.files if f.hidden) == 400
    land(tmp_path, 400, [put(1_000, 50, "one bucket is touched")])
    take(pipeline)
    second = publish(pipeline, "run-2")
    assert sorted(f.carried for f in second.files if f.hidden) == [False, True, True, True]
    land(tmp_path, 500, [put(2_000 + i, 500, "much later") for i in range(40)])
    take(pipeline)
    publish(pipeline, "run-3")
    land(tmp_path, 600, [put(2_000 + i, 501, "the horizon of the snapshot before") for i in range(40)])
    land(tmp_path, 700, [put(5, 11, "too late to know")])
    taken = take(pipeline)
    assert taken.facts["refused"] == {"LATE": 1}
    last = publish(pipeline, "run-4")
    assert [f for f in last.files if f.hidden] == []
    assert len(rows(pipeline)) == 41


def test_3_several_changes_of_a_key_are_reduced_and_a_true_conflict_is_named(tmp_path: Path) -> None:
    """delta-io/delta#131, #218, #325, #4129, #1232, ardent-data/weevr#185: "multiple source rows matched", and nobody
    says which.
    """
    pipeline = opened(tmp_path)
    land(tmp_path, 0, [put(1, 1, "a"), put(1, 3, "c"), put(1, 2, "b"), put(2, 7, "one"), put(2, 7, "other")])
    take(pipeline)
    manifest = publish(pipeline, "run-1")
    assert rows(pipeline) == [(1, 3, "c"), (2, 7, "other")]
    assert (manifest.ties, [json.loads(one) for one in manifest.tied]) == (1, [{"id": 2, "order": [7]}])


def test_4_what_is_read_twice_is_taken_once(tmp_path: Path) -> None:
    """delta-io/delta#527: duplicates after a MERGE from a source that is read twice. Files grow, overlap, come again;
    a run is called again; rows stay unique.
    """
    pipeline = opened(tmp_path, "merge: append")
    records = [put(i, i, "t") for i in range(6)]
    land(tmp_path, 0, records[:3])
    take(pipeline)
    assert take(pipeline).status == "nothing"
    land(tmp_path, 0, records)
    again = take(pipeline)
    assert again.facts["changes"] == 3
    land(tmp_path, 3, records[3:])
    take(pipeline)
    publish(pipeline, "run-1")
    [same] = materialize(pipeline, [LOG], Fold("run-1"), in_process)
    assert same.status == "already"
    assert rows(pipeline) == [(i, i, "t") for i in range(6)]
    state = pipeline.ledger(LOG).read()
    assert sum(entry.changes for entry in state.landed) == 6


@pytest.mark.parametrize("turned", [False, True])
def test_5_insert_and_delete_of_one_instant_have_a_documented_order(tmp_path: Path, turned: bool) -> None:
    """airbytehq/airbyte#32930, #4160: equal timestamps, a random one wins. Here: the later source position, however
    files were cut and folded, and the tie is counted, against the table too.
    """
    pair = [put(1, 5, "a"), gone(1, 5)]
    changes = [*(pair[::-1] if turned else pair), put(2, 5, "b")]
    expected = [(1, 5, "a"), (2, 5, "b")] if turned else [(2, 5, "b")]
    for number, cuts in enumerate(itertools.product([False, True], repeat=2)):
        folder = tmp_path / str(number)
        pipeline = opened(folder)
        starts = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), 3]
        ties = 0
        for start, end in itertools.pairwise(starts):
            land(folder, start, changes[start:end])
            take(pipeline)
            ties += publish(pipeline, f"run-{start}").ties
        assert rows(pipeline) == expected
        assert ties == 1


IGNORED = {
    "a partial update's groups in a table that is none": (
        "key: [id]\n    merge: {engine: last, groups: [{columns: [text]}]}",
        "MERGE_WITHOUT_EFFECT",
    ),
    "aggregates in a table that has none": ("key: [id]\n    merge: {aggregates: {at: sum}}", "MERGE_WITHOUT_EFFECT"),
    "a key of a table without keys": ("key: [id]\n    merge: append", "KEY_WITHOUT_EFFECT"),
    "an order of a table without keys": ("order: [at]\n    merge: append", "ORDER_INVALID"),
    "deletes that could not be exact": (
        f"{BY_TIME}\n    merge: {{engine: first, deletes: apply}}",
        "DELETES_INEXACT",
    ),
    "lateness where nothing can be late": ("key: [id]\n    late: {allowed_lateness: 5}", "LATE_WITHOUT_EFFECT"),
    "an order that the source does not have": ("key: [id]\n    order: postgresql", "ORDER_INVALID"),
    "a word that nobody knows": ("key: [id]\n    dedup_sort: desc", "CONFIG_UNKNOWN_KEY"),
}


@pytest.mark.parametrize("case", IGNORED)
def test_6_an_option_without_effect_is_a_mistake(tmp_path: Path, case: str) -> None:
    """dlt-hub/dlt#2201 and PR 2202 (`dedup_sort`), apache/paimon#8858, #10134: options that are ignored in silence."""
    rest, code = IGNORED[case]
    (tmp_path / "tidefold.yaml").write_text(CONFIG.format(rest=rest))
    with pytest.raises(InvalidInputError) as refused:
        load_config(tmp_path / "tidefold.yaml")
    assert refused.value.code == code
    assert not (tmp_path / "store").exists()


class _BlindStore(LocalStore):
    """Lists nothing any more."""

    def list(self, prefix: str, unfinished: bool = False) -> Any:
        raise StorageError("STORAGE", "A listing failed.")


def test_14_a_clean_up_deletes_only_what_the_ledger_has_released(tmp_path: Path) -> None:
    """apache/paimon#7710, #3074, #6978: orphan clean-up deletes live data. Strangers' files, an attempt under way and
    the table stay; an unanswered listing deletes nothing.
    """
    pipeline = opened(tmp_path)
    for number in range(4):
        land(tmp_path, 100 * number, [put(i, number, f"{number}") for i in range(20)])
        take(pipeline)
        publish(pipeline, f"run-{number}")
    land(tmp_path, 900, [put(1, 9, "under way")])
    take(pipeline)
    [staged] = materialize(pipeline, [LOG], Fold("run-9"), in_process)
    assert staged.status == "staged"
    for path in ("tables/items/_data/notes.txt", "changelog/stranger.bin", "tables/other/_data/0.parquet"):
        stranger = tmp_path / "store" / path
        stranger.parent.mkdir(parents=True, exist_ok=True)
        stranger.write_bytes(b"not ours")
    before = contents(tmp_path / "store")
    blind = Pipeline(pipeline.config, _BlindStore(tmp_path / "store"))
    assert {outcome.status for outcome in clean(blind, [LOG])} == {"error"}
    assert contents(tmp_path / "store") == before
    clean(pipeline, [LOG])
    assert contents(tmp_path / "store") == before
    subsume(pipeline, LOG)
    truncate(pipeline, LOG)
    judge_all(pipeline, LOG)
    assert confirm(pipeline, LOG, Confirmation(run="run-9")).status == "published"
    assert rows(pipeline)[:2] == [(0, 3, "3"), (1, 9, "under way")]
    assert (tmp_path / "store/tables/items/_data/notes.txt").exists()
    assert (tmp_path / "store/changelog/stranger.bin").exists()


def test_22_no_landed_file_is_skipped_and_a_failed_try_moves_nothing(tmp_path: Path) -> None:
    """apache/hudi#2850, #7249 (files older than the newest one are skipped, nobody lists what was read),
    airbytehq/airbyte#12821 (a failed attempt moved the cursor).
    """
    pipeline = opened(tmp_path, f"{BY_TIME}\n    on_bad_record: fail")
    newest = land(tmp_path, 0, [put(0, 0, "a")])
    os.utime(newest, (2_000_000_000, 2_000_000_000))
    take(pipeline)
    before = contents(tmp_path / "store")
    old = land(tmp_path, 10, [put(1, 1, "b")])
    bad = land(tmp_path, 20, [put(2, 2, "c"), "{not json}"])
    land(tmp_path, 30, [put(3, 3, "d")])
    os.utime(old, (1_000_000_000, 1_000_000_000))
    assert take(pipeline).error_code == "BAD_RECORDS"
    assert contents(tmp_path / "store") == before
    land(tmp_path, 20, [put(2, 2, "c")])
    assert (take(pipeline).facts["files"], bad.exists()) == (3, True)
    state = pipeline.ledger(LOG).read()
    assert [entry.name for entry in state.landed] == [f"items+0+{n:010d}.jsonl" for n in (0, 10, 20, 30)]
    assert [entry.changes for entry in state.landed] == [1, 1, 1, 1]
    publish(pipeline, "run-1")
    assert len(rows(pipeline)) == 4


def test_23_the_position_outlives_the_log_and_the_log_does_not_grow(tmp_path: Path) -> None:
    """airbytehq/airbyte#49802, #47547, #46571 (position lost, days of full resync), PeerDB-io/peerdb#4664 (raw table of
    49.5 M rows, growing): the log reaches back to the oldest kept snapshot, and no further.
    """
    pipeline = opened(tmp_path)
    segments = []
    for number in range(12):
        path = land(tmp_path, 10 * number, [put(i, number, f"{number}") for i in range(10)])
        assert take(pipeline).facts["changes"] == 10
        publish(pipeline, f"run-{number}")
        subsume(pipeline, LOG)
        truncate(pipeline, LOG)
        path.unlink()
        segments.append(sum(1 for _ in (tmp_path / "store/changelog").rglob("*.seg")))
    assert max(segments[2:]) <= 2
    state = pipeline.ledger(LOG).read()
    assert (state.positions[0].next_offset, state.truncated_to) == (120, 11)
    assert [len(read_change_set(pipeline.store, c)) for c in state.change_sets] == [10]
    assert take(open_pipeline(tmp_path / "tidefold.yaml")).status == "nothing"
    land(tmp_path, 120, [put(1, 50, "goes on")])
    assert take(pipeline).facts["changes"] == 1
