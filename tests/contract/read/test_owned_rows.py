"""Rows of several owners, handed to any number of workers: the mode is stored with the snapshot (L8, L9).

Each of three tasks wrote its own rows. This is how operator state of Flink looks as a table.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.config import ConfigError
from tidefold.domain.external_snapshot import Layout, Ownership
from tidefold.domain.key_groups import Redistribution, RedistributionMode, Share
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.errors import RefusedError
from tidefold.ledger import read_manifest
from tidefold.operations.ground.originals import open_address
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.requests import Fold, Import, SnapshotRequest
from tidefold.operations.restore.export import restore_to
from tidefold.operations.restore.restore import Restore
from tidefold.operations.savepoint.take import SavepointRequest, take_savepoint
from tidefold.operations.snapshot.compact_log import take_tail
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_changelog, open_pipeline

CONFIG = """
version: 1
store: store
logs:
  state:
    order: arrival
    key: [task, name]
    columns: {{task: int, name: string, value: long}}
    key_groups: 16
    buckets: {buckets}
    redistribution: {mode}
"""
SPLIT, UNION = "split", "{mode: union, owner: task}"
BROADCAST = "{mode: broadcast, owner: task}"
OWNERS, NAMES = (0, 2, 10), tuple(f"n{number}" for number in range(6))
# A row as its owner and its name.
Row = tuple[int, str]
EVERYTHING: list[Row] = [(task, name) for task in OWNERS for name in NAMES]


def configure(folder: Path, mode: str, buckets: int = 4) -> Pipeline:
    folder.mkdir(exist_ok=True)
    (folder / "tidefold.yaml").write_text(CONFIG.format(mode=mode, buckets=buckets))
    return open_pipeline(folder / "tidefold.yaml")


def write(pipeline: Pipeline, value: int) -> None:
    """Each owner writes the same names."""
    with open_changelog(pipeline) as changelog:
        log = changelog.log("state", pipeline.log("state").shape)
        log.append([{"task": task, "name": name, "value": value} for task, name in EVERYTHING])


def publish(pipeline: Pipeline, request: SnapshotRequest) -> int:
    [outcome] = materialize(pipeline, ["state"], request, in_process)
    assert outcome.status == "staged", outcome
    judge_all(pipeline, "state")
    confirm(pipeline, "state", Confirmation(run=request.run))
    assert outcome.snapshot
    return outcome.snapshot


def make(folder: Path, mode: str) -> Pipeline:
    pipeline = configure(folder, mode)
    write(pipeline, 1)
    publish(pipeline, Fold("run-1"))
    return pipeline


def share(
    pipeline: Pipeline, worker: int, workers: int, what: What = What.TABLE, snapshot: int | None = None
) -> list[Row]:
    wanted = ReadRequest(what, snapshot=snapshot, share=Share(worker, workers))
    _, batches = read_rows(pipeline, "state", wanted)
    return sorted((row["task"], row["name"]) for batch in batches for row in batch.to_pylist())


def shares(pipeline: Pipeline, workers: int, snapshot: int | None = None) -> list[list[Row]]:
    return [share(pipeline, worker, workers, snapshot=snapshot) for worker in range(1, workers + 1)]


def expect(mode: str, workers: int) -> list[list[Row]] | None:
    """What Flink gives each worker; None: any split in which each row comes once."""
    if mode == UNION:
        return [EVERYTHING] * workers
    if mode == BROADCAST:
        return [[(OWNERS[worker % 3], name) for name in NAMES] for worker in range(workers)]
    return None


def check(found: list[list[Row]], mode: str) -> None:
    wanted = expect(mode, len(found))
    if wanted is None:
        assert sorted(row for rows in found for row in rows) == EVERYTHING
    else:
        assert found == wanted


@pytest.fixture(scope="module", params=[SPLIT, UNION, BROADCAST])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Pipeline]:
    return request.param, make(tmp_path_factory.mktemp("owners"), request.param)


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_each_worker_gets_what_the_mode_of_the_snapshot_says(made: tuple[str, Pipeline], workers: int) -> None:
    """The number of workers is not that of the owners: a rescale."""
    mode, pipeline = made
    check(shares(pipeline, workers), mode)


@pytest.mark.parametrize("workers", [2, 4])
def test_a_restore_by_share_gives_the_same(made: tuple[str, Pipeline], tmp_path: Path, workers: int) -> None:
    mode, pipeline = made
    found = []
    for worker in range(1, workers + 1):
        to = tmp_path / str(worker)
        outcome = restore_to(pipeline, "state", 1, str(to), run=in_process, share=Share(worker, workers))
        rows = DeltaTable(str(to)).to_pyarrow_table().to_pylist()
        assert (outcome.facts["rows"], outcome.facts["share"]) == (len(rows), f"{worker}/{workers}")
        assert outcome.facts["redistribution"] in mode
        found.append(sorted((row["task"], row["name"]) for row in rows))
    check(found, mode)


def test_union_and_broadcast_differ(tmp_path: Path) -> None:
    """The same rows: union gives each worker three rows of a name, broadcast one."""
    union, broadcast = make(tmp_path / "union", UNION), make(tmp_path / "broadcast", BROADCAST)
    assert len(share(union, 1, 3)) == 3 * len(share(broadcast, 1, 3)) == len(EVERYTHING)


def test_the_mode_lies_in_the_manifest_and_a_tail_has_that_of_its_base(tmp_path: Path) -> None:
    pipeline = make(tmp_path, BROADCAST)
    write(pipeline, 2)
    tail = take_tail(pipeline, "state", "run-t").snapshot
    [first, _] = pipeline.ledger("state").read().snapshots
    manifest = read_manifest(pipeline.store, "state", first)
    assert manifest.redistribution == Redistribution(RedistributionMode.BROADCAST, "task")
    check(shares(pipeline, 3, tail), BROADCAST)
    check([share(pipeline, worker, 3, What.LIVE) for worker in (1, 2, 3)], BROADCAST)


def test_another_mode_counts_from_the_next_snapshot_on(tmp_path: Path) -> None:
    make(tmp_path, BROADCAST)
    pipeline = configure(tmp_path, UNION)
    check(shares(pipeline, 3), BROADCAST)
    write(pipeline, 2)
    publish(pipeline, Fold("run-2"))
    check(shares(pipeline, 3), UNION)
    check(shares(pipeline, 3, 1), BROADCAST)


def test_a_restore_keeps_the_mode_of_what_it_restores_and_a_rescale_changes_nothing(tmp_path: Path) -> None:
    make(tmp_path, BROADCAST)
    pipeline = configure(tmp_path, UNION)
    write(pipeline, 2)
    publish(pipeline, Fold("run-2"))
    restored = publish(pipeline, Restore("run-3", RestorePoint(1, RestoreMode.SKIP)))
    check(shares(pipeline, 3, restored), BROADCAST)
    rescaled = configure(tmp_path, BROADCAST, buckets=16)
    write(rescaled, 3)
    made = publish(rescaled, Fold("run-4"))
    check(shares(rescaled, 5, made), BROADCAST)


@pytest.mark.parametrize("layout", list(Layout))
def test_a_savepoint_takes_the_mode_with_it(tmp_path: Path, layout: Layout) -> None:
    pipeline = make(tmp_path / "one", BROADCAST)
    take_savepoint(pipeline, "state", SavepointRequest(str(tmp_path / "saved"), 1, layout), in_process)
    other = configure(tmp_path / "other", UNION)
    publish(other, Import("run-1", open_address(str(tmp_path / "saved")).address, Ownership.NO_CLAIM))
    check(shares(other, 3), BROADCAST)


def test_a_read_may_ask_for_another_mode(tmp_path: Path) -> None:
    pipeline = make(tmp_path, BROADCAST)
    _, batches = read_rows(pipeline, "state", ReadRequest(share=Share(1, 3, RedistributionMode.UNION)))
    assert sum(batch.num_rows for batch in batches) == len(EVERYTHING)


def test_more_workers_than_key_groups_leave_one_without_a_restore(tmp_path: Path) -> None:
    pipeline = make(tmp_path / "one", SPLIT)
    with pytest.raises(RefusedError) as refused:
        restore_to(pipeline, "state", 1, str(tmp_path / "to"), share=Share(17, 17))
    assert refused.value.code == "SHARE_EMPTY"


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        ("{mode: split, owner: task}", "OWNER_INVALID"),
        ("{mode: union, owner: value}", "OWNER_INVALID"),
        ("{mode: broadcast, owner: nobody}", "OWNER_INVALID"),
        ("round-robin", "CONFIG_UNKNOWN_VALUE"),
    ],
)
def test_what_has_no_meaning_is_refused(tmp_path: Path, mode: str, code: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        configure(tmp_path, mode)
    assert wrong.value.problems[0].code == code
