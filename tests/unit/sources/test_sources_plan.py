"""Planning an ingest: pure, from a listing and a state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.builders import SHAPE
from tidefold.domain.log_state import LandedFileRecord, LogState, Position
from tidefold.domain.source_progress import StreamPosition
from tidefold.operations.ingest.parse import find_task_bytes
from tidefold.sources.landing.completeness import Ending
from tidefold.sources.landing.landing_place import Stamp
from tidefold.sources.landing.listing import LandedFile
from tidefold.sources.landing.plan import FilePlan, FileTask, bins, newest_files, plan_files


def file(start: int, size: int = 100, partition: int = 0, extension: str = "jsonl") -> LandedFile:
    name = f"t+{partition}+{start:010d}.{extension}"
    return LandedFile(name, f"/landing/{name}", Stamp(1, size, 0.0), "t", partition, start, extension.endswith("gz"))


def taken(known: LandedFile, first: int, end: int, length: int | None = None, records: int = 10) -> LandedFileRecord:
    return LandedFileRecord(
        number=1,
        name=known.name,
        length=known.size if length is None else length,
        checksum="sha",
        topic="t",
        partition=known.partition,
        first_offset=first,
        next_offset=end,
        records=records,
        changes=records,
        tombstones=0,
        repeated=0,
        quarantined=0,
        ignored=0,
        sqn=None,
    )


def state(*landed: LandedFileRecord) -> LogState:
    ends = {entry.partition: entry.next_offset for entry in landed}
    positions = tuple(Position("t", partition, end, StreamPosition((0, 5))) for partition, end in sorted(ends.items()))
    return replace(LogState("log", SHAPE), landed=landed, positions=positions)


def names(plan: FilePlan) -> list[str]:
    return [task.file.name for task in plan.take]


def test_new_files_are_taken_in_order_from_their_beginning() -> None:
    plan = plan_files([file(0), file(10), file(0, partition=1)], {}, state())
    assert [(t.file.start, t.file.partition, t.begin, t.until, t.stream.max_order) for t in plan.take] == [
        (0, 0, 0, 100, ()),
        (10, 0, 0, 100, ()),
        (0, 1, 0, 100, ()),
    ]


def test_what_was_taken_is_done_and_only_the_newest_undone_file_is_looked_at() -> None:
    old, new = file(0), file(10)
    after = state(taken(old, 0, 10))
    assert newest_files([old], after) == ()
    assert newest_files([old, new], after) == ((new, 0),)
    assert names(plan_files([old, new], {new.name: Ending(100)}, after)) == [new.name]


def test_of_a_longer_file_the_rest_is_taken() -> None:
    grown = file(0, size=150)
    [task] = plan_files([grown], {grown.name: Ending(150)}, state(taken(file(0), 0, 10))).take
    assert (task.begin, task.begin_checksum, task.until, task.records, task.next_offset) == (100, "sha", 150, 10, 10)


def test_a_longer_gzip_file_is_read_again_past_the_records_that_were_taken() -> None:
    grown = file(0, size=150, extension="jsonl.gz")
    accounts = (taken(replace(grown, stamp=Stamp(1, 60, 0.0)), 0, 4, records=4), taken(grown, 4, 10, 100, records=6))
    [task] = plan_files([grown], {grown.name: Ending(150)}, state(*accounts)).take
    assert (task.begin, task.records) == (100, 10)


def test_a_shorter_file_is_an_error_that_holds_its_partition_up_and_no_other() -> None:
    files = [file(0, size=99), file(10), file(0, partition=1)]
    plan = plan_files(files, {}, state(taken(file(0), 0, 10)))
    assert [p.code for p in plan.problems] == ["LANDED_CHANGED"]
    assert names(plan) == ["t+1+0000000000.jsonl"]


def test_an_empty_file_is_left_when_newest_and_an_error_otherwise() -> None:
    newest = plan_files([file(0), file(10, size=0)], {}, state())
    assert (names(newest), list(newest.left)) == (["t+0+0000000000.jsonl"], ["t+0+0000000010.jsonl"])
    inner = plan_files([file(0), file(5, size=0), file(10)], {}, state())
    assert names(inner) == ["t+0+0000000000.jsonl"]
    assert [(p.code, p.file) for p in inner.problems] == [("LANDED_EMPTY", "t+0+0000000005.jsonl")]


@pytest.mark.parametrize(
    ("ending", "until", "left"),
    [
        (Ending(100), 100, False),
        (Ending(60, torn=True), 60, True),
        (Ending(0, torn=True), None, True),
    ],
)
def test_of_a_newest_file_what_is_complete_is_taken(ending: Ending, until: int | None, left: bool) -> None:
    plan = plan_files([file(0)], {file(0).name: ending}, state())
    assert [t.until for t in plan.take] == ([] if until is None else [until])
    assert bool(plan.left) == left


def test_a_torn_end_that_did_not_move_is_left_again_and_nothing_taken() -> None:
    torn = {file(0).name: Ending(60, torn=True)}
    plan = plan_files([file(0)], torn, state(taken(file(0), 0, 5, length=60)))
    assert (plan.take, list(plan.left)) == ((), [file(0).name])


def test_a_file_below_the_next_offset_gets_to_know_what_was_taken() -> None:
    known = state(taken(file(0), 0, 10), taken(file(10), 10, 20), taken(file(30), 30, 40))
    [task] = plan_files([replace(file(5), name="other")], {}, known).take
    assert (task.next_offset, task.taken) == (40, ((0, 20), (30, 40)))


def test_only_the_newest_file_of_a_partition_may_still_grow() -> None:
    plan = plan_files([file(0), file(10), file(0, partition=1)], {}, state())
    assert [t.newest for t in plan.take] == [False, True, True]


def test_neighbouring_files_share_a_task_up_to_its_size() -> None:
    tasks = plan_files([file(i * 10, size=size) for i, size in enumerate([40, 40, 40, 500, 10])], {}, state()).take
    assert [[t.file.start for t in members] for members in bins(tasks, 100)] == [[0, 10], [20], [30], [40]]
    assert bins([], 100) == []


MB = 1_000_000
LANDED = {"one of 102 MB": [102], "16 of 6 MB": [6] * 16, "32 of 10 MB": [10] * 32, "400 of 10 kB": [0.01] * 400}


@pytest.mark.parametrize(
    ("landed", "tasks"),
    {
        # By cores: 1, 2, 4, 16.
        "one of 102 MB": [2, 4, 8, 32],
        "16 of 6 MB": [2, 4, 8, 32],
        "32 of 10 MB": [6, 6, 8, 32],
        "400 of 10 kB": [2, 2, 2, 2],
    }.items(),
)
def test_tasks_by_landed_bytes_and_cores(landed: str, tasks: list[int]) -> None:
    """Two for each core, as far as there are bytes for them. A file is split only for cores that are known."""
    sizes = [int(size * MB) for size in LANDED[landed]]
    files = [FileTask(replace(file(n, size=size), alone=True), size) for n, size in enumerate(sizes)]
    found = []
    for cores in (1, 2, 4, 16):
        size = find_task_bytes(sum(sizes), cores)
        parts = [part for one in files for part in one.split(size)]
        packed = bins(parts, size)
        # A task has one part of a file, as refused records do not say theirs.
        assert all(len({part.file.name for part in some}) == len(some) for some in packed)
        found.append(len(packed))
    assert found == tasks
