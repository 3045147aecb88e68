"""Of several changes of a key the newest counts: late, after a delete, sent twice, or of one instant (I5, I25).

Users of neighbouring systems complain of the opposite; the issues belong to the repositories named.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from support.timed_rows import LOG, gone, land, opened, publish, put, rows, take
from tidefold.compute.runners import in_process
from tidefold.operations.ground.read import What
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.materialize import materialize


def test_a_deleted_row_does_not_come_back(tmp_path: Path) -> None:
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


def test_several_changes_of_a_key_are_reduced_and_a_true_conflict_is_named(tmp_path: Path) -> None:
    """delta-io/delta#131, #218, #325, #4129, #1232, ardent-data/weevr#185: "multiple source rows matched", and nobody
    says which.
    """
    pipeline = opened(tmp_path)
    land(tmp_path, 0, [put(1, 1, "a"), put(1, 3, "c"), put(1, 2, "b"), put(2, 7, "one"), put(2, 7, "other")])
    take(pipeline)
    manifest = publish(pipeline, "run-1")
    assert rows(pipeline) == [(1, 3, "c"), (2, 7, "other")]
    assert (manifest.ties, [json.loads(one) for one in manifest.tied]) == (1, [{"id": 2, "order": [7]}])


def test_what_is_read_twice_is_taken_once(tmp_path: Path) -> None:
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
def test_insert_and_delete_of_one_instant_have_a_documented_order(tmp_path: Path, turned: bool) -> None:
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
