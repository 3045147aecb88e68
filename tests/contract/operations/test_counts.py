"""What fixed small workloads cost in calls, bytes and rows, against the baseline in tests/data/counts.json."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from support import workloads
from support.counted import CountedStore, check, counted, counting, differences
from support.small_segments import put_segments
from support.workloads import LOG, append, copied, cycle, fold, local, opened, uniform
from tidefold.cli.app import app
from tidefold.compute.runners import in_process
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint
from tidefold.fold.inputs import Inputs
from tidefold.fold.plan import Input
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.requests import Restore
from tidefold.operations.snapshot.materialize import materialize


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workloads.begun(tmp_path_factory.mktemp("counts") / "base")


@pytest.fixture
def root(base: Path, tmp_path: Path) -> Path:
    return copied(base, tmp_path / "root")


def test_one_percent_anywhere(root: Path) -> None:
    append(root, uniform(1_000, 16))
    check("1 % changed anywhere, 16 segments", counted(lambda: cycle(root, "next")))


def test_changes_in_few_key_groups(root: Path) -> None:
    append(root, local(root, 1_000, 4))
    check("1 % changed in 4 of 128 key groups", counted(lambda: cycle(root, "next")))


def test_many_small_segments(root: Path) -> None:
    put_segments(opened(root), LOG, [workloads.rows(ids, 1) for ids in uniform(5_000, 1_000)])
    check("1,000 segments of 5 changes folded", counted(lambda: cycle(root, "next")))


def test_writing(root: Path) -> None:
    check("100 changes written into 100 segments", counted(lambda: append(root, uniform(100, 100))))


def test_an_empty_run_starts_nothing(root: Path) -> None:
    said = []
    command = ["run", LOG, "--config", str(root / "tidefold.yaml")]
    check("nothing to do", counted(lambda: said.append(CliRunner().invoke(app, command))))
    assert said[0].exit_code == 0, said[0].output


def test_ten_in_a_row(root: Path) -> None:
    def ten() -> None:
        for number in range(10):
            append(root, uniform(100, 1, seed=number))
            cycle(root, f"run-{number}")

    check("10 incremental snapshots in a row, 0.1 % each", counted(ten))


def test_a_full_snapshot(root: Path) -> None:
    append(root, local(root, 1_000, 4))
    check("a full snapshot, 4 of 128 key groups changed", counted(lambda: cycle(root, "next", KindPolicy.FULL)))


def test_a_restore(root: Path) -> None:
    append(root, uniform(1_000, 1))
    cycle(root, "next")
    asking = Restore("back", RestorePoint(1, RestoreMode.SKIP))
    check("a restore", counted(lambda: materialize(opened(root), [LOG], asking, in_process)))


def test_a_live_read(root: Path) -> None:
    append(root, uniform(1_000, 16))

    def read() -> None:
        _, rows = read_rows(opened(root), LOG, ReadRequest(What.LIVE))
        assert sum(batch.num_rows for batch in rows) == workloads.ROWS

    check("a live read, 1 % in the tail", counted(read))


def test_reading_the_base_twice_would_be_seen(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(root, local(root, 10, 4))
    other = copied(root, root.parent / "other")
    once = counted(lambda: fold(root, "next"))
    real = Inputs.open

    def twice(self: Inputs, wanted: Input) -> object:
        real(self, wanted)
        return real(self, wanted)

    monkeypatch.setattr(Inputs, "open", twice)
    moved = differences(once, counted(lambda: fold(other, "next")))
    assert [said.partition(" moved")[0] for said in moved] == ["bytes read", "files opened", "range"], moved


def test_a_range_begins_where_reading_does_not_go_on(tmp_path: Path) -> None:
    with counting() as counts:
        store = CountedStore(tmp_path, counts)
        store.put_if_absent("a", b"0123456789")
        with store.open("a") as stream:
            stream.read(2)
            stream.read(2)
            stream.seek(8)
            stream.read()
        store.read("a")
        store.read("a", 2, 3)
    assert (counts["range"], counts["get"], counts["put"], counts["files opened"]) == (3, 1, 1, 1)
    assert (counts["bytes read"], counts["bytes written"]) == (6 + 10 + 3, 10)


def test_sizes_may_move_a_little_and_other_counts_may_not() -> None:
    stored = {"bytes read": 1000, "put": 100}
    assert differences(stored, {"bytes read": 1050, "put": 100}) == []
    assert differences(stored, {"bytes read": 1051, "put": 99, "list": 1}) == [
        "bytes read moved from 1,000 to 1,051 (allowed: 5% either way)",
        "list moved from 0 to 1",
        "put moved from 100 to 99",
    ]
