"""Local copies of everything that a log is: compacted and written segments, bases of tails. C6, C7, C11, N5.

Each copy is proved by a fold or a restore after the primary segment was taken away.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.local_copies import cycle, disk, land, make, segments_here, stage, take
from support.pipelines import judge_all, table_rows
from tidefold.changelog.writer import Changelog, WriterSettings
from tidefold.domain.log_state import State
from tidefold.domain.retention.local_copies import CopyName
from tidefold.errors import CorruptError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.inspect.status import status
from tidefold.operations.local_copies.manage import retain_local
from tidefold.operations.restore.export import restore_to
from tidefold.operations.snapshot.compact_log import compact_log, take_tail
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.storage import open_store
from tidefold.wiring import open_changelog

LOG = "items"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return make(tmp_path)


def ingest(pipeline: Pipeline, *starts: int) -> None:
    for start in starts:
        land(pipeline, start, 3, [LOG])
        take(pipeline, [LOG])


def remove_primary_segments(pipeline: Pipeline) -> list[str]:
    """Removes each segment that waits to be folded, and returns their paths."""
    paths = sorted({c.location.segment for c in pipeline.ledger(LOG).read().unfolded})
    pipeline.store.delete(paths)
    return paths


def publish(pipeline: Pipeline, run: str) -> None:
    outcome = stage(pipeline, run, LOG)
    assert outcome.status == "staged", outcome
    judge_all(pipeline, LOG)
    confirm(pipeline, LOG, Confirmation(run=run))


def test_a_compacted_segment_is_written_twice(pipeline: Pipeline) -> None:
    """C6, C12."""
    ingest(pipeline, 0, 10, 20)
    assert compact_log(pipeline, LOG).status == "compacted"
    [path] = remove_primary_segments(pipeline)
    assert path in segments_here(pipeline)
    publish(pipeline, "run-1")
    assert len(table_rows(pipeline, LOG)) == 9


def test_what_a_writer_flushed_is_folded_from_the_local_copies_of_the_pipeline(tmp_path: Path) -> None:
    """C6, C7: in the root of the pipeline; it outlives the writer, and local retention deletes it after the fold."""
    pipeline = make(tmp_path)
    shape = pipeline.log(LOG).shape
    with open_changelog(pipeline, WriterSettings(name="program")) as changelog:
        log = changelog.log(LOG, shape)
        for number in range(3):
            log.append({"id": number, "text": "a", "_o0": 1, "_o1": number})
            log.flush()
    paths = remove_primary_segments(pipeline)
    assert sorted(segments_here(pipeline)) == paths
    [found] = status(pipeline, [LOG])
    assert found.change_sets == 3
    publish(pipeline, "run-1")
    assert len(table_rows(pipeline, LOG)) == 3
    assert retain_local(pipeline, [LOG])[0].facts["files"] == 3
    assert segments_here(pipeline) == []


@pytest.mark.parametrize("keeps", [False, True])
def test_a_writer_with_a_disk_of_its_own_leaves_nothing_there(tmp_path: Path, keeps: bool) -> None:
    """C7: Flink's dispose() deletes the files that the task owns. Nobody else would know of them."""
    pipeline = make(tmp_path)
    own = open_store("own", tmp_path)
    for number in range(2):
        with Changelog(pipeline.store, WriterSettings(name="program"), local=own, keeps_copies=keeps) as changelog:
            log = changelog.log(LOG, pipeline.log(LOG).shape)
            log.append({"id": number, "text": "a", "_o0": 1, "_o1": number})
            log.flush()
            assert len(own.list("")) == 1 + number * keeps
    assert len(own.list("")) == 2 * keeps
    assert len(pipeline.ledger(LOG).read().change_sets) == 2


def copied(pipeline: Pipeline) -> set[int]:
    names = {CopyName.of(entry.path) for entry in disk(pipeline).list("")}
    return {name.snapshot for name in names if name and name.log == LOG}


def test_the_base_of_a_newer_tail_keeps_its_local_copy(pipeline: Pipeline, tmp_path: Path) -> None:
    """C11: Flink's ChangelogTaskLocalStateStoreTest. The tail is taken while snapshot 2 is judged, so it is on 1."""
    ingest(pipeline, 0)
    publish(pipeline, "run-1")
    ingest(pipeline, 10)
    assert stage(pipeline, "run-2", LOG).status == "staged"
    tail = take_tail(pipeline, LOG, "tail")
    assert (tail.snapshot, tail.facts["base"]) == (3, 1)
    judge_all(pipeline, LOG)
    confirm(pipeline, LOG, Confirmation(run="run-2"))
    retain_local(pipeline, [LOG])
    assert copied(pipeline) == {1, 2}
    segments = {c.location.segment for c in pipeline.ledger(LOG).read().change_sets_in(1, 2)}
    assert segments <= set(segments_here(pipeline))
    # The primary loses what the tail needs of the log: the local copy has it.
    pipeline.store.delete(sorted(segments))
    assert restore_to(pipeline, LOG, 3, str(tmp_path / "to")).facts["rows"] == 6

    ingest(pipeline, 20)
    publish(pipeline, "run-4")
    retain_local(pipeline, [LOG])
    assert copied(pipeline) == {4}, "the tail is older than snapshot 4 now"
    with pytest.raises(CorruptError):
        restore_to(pipeline, LOG, 3, str(tmp_path / "again"))


def test_a_tail_reports_its_size(pipeline: Pipeline) -> None:
    """N5: the whole is the base and the log after it; written is what no snapshot had before."""
    ingest(pipeline, 0)
    cycle(pipeline, "run-1", [LOG])
    lengths = []
    for number in (1, 2):
        ingest(pipeline, number * 10)
        take_tail(pipeline, LOG, f"tail-{number}")
        lengths.append(pipeline.ledger(LOG).read().change_sets[-1].location.length)
    base, *tails = [s for s in pipeline.ledger(LOG).read().snapshots if s.state is State.COMPLETED]
    assert [one.bytes_written for one in tails] == lengths
    assert [one.bytes_full - base.bytes_full for one in tails] == [lengths[0], sum(lengths)]
    # What the store holds is counted once.
    stored = sum(c.location.length for c in pipeline.ledger(LOG).read().change_sets)
    assert status(pipeline, [LOG])[0].stored_bytes == base.bytes_written + stored
