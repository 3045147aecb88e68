"""A restore with a tail folds only the buckets that the tail touches; the files of all others are carried (C10, N1)."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from support import workloads
from support.counted import counted
from support.effort import choose
from support.pipelines import make_pipeline, rows_of, table_rows
from support.restoring import LOG, Rows, configured, cycle, files_of, publish, restore, rows_after, take
from tidefold.changelog.key_group_hash import key_groups_of
from tidefold.compute.runners import in_process
from tidefold.domain.key_groups import KeyGroups, bucket_ranges
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.restore.export import restore_to
from tidefold.operations.snapshot.compact_log import take_tail

IDS, TEXTS = st.integers(0, 39), st.one_of(st.none(), st.sampled_from(["x", "y", "z"]))
KINDS = st.sampled_from([KindPolicy.FULL, KindPolicy.INCREMENTAL])
BASE: Rows = {i: f"base {i}" for i in range(30)}


def buckets_of(pipeline: Pipeline, ids: Sequence[int], buckets: int) -> set[KeyGroups]:
    shape = pipeline.log(LOG).shape
    table = pa.table({"id": pa.array(ids, pa.int64())})
    groups = set(key_groups_of(table, shape).to_pylist())
    return {one for one in bucket_ranges(shape.key_groups, buckets) if groups & set(range(one.first, one.last + 1))}


def opened(root: Path, buckets: int) -> Pipeline:
    config = configured(local=False)
    assert "buckets: 4" in config
    return make_pipeline(root, config.replace("buckets: 4", f"buckets: {buckets}"))


def check_carried(before: Sequence[DataFile], after: Sequence[DataFile], touched: set[KeyGroups]) -> None:
    """Every file of a bucket without changes has the bytes that it had; no file of another one has."""
    same = {one.sha256 for one in before if one.key_groups not in touched}
    assert same <= {one.sha256 for one in after}
    assert {one.sha256 for one in after if one.key_groups not in touched} == same


@given(
    tail=st.dictionaries(IDS, TEXTS, min_size=1, max_size=6),
    later=st.dictionaries(IDS, TEXTS, max_size=6),
    kinds=st.tuples(KINDS, KINDS, KINDS),
    buckets=st.tuples(st.sampled_from([4, 8, 16]), st.sampled_from([2, 4, 16])),
    mode=st.sampled_from(RestoreMode),
)
@settings(max_examples=choose(5, 12), deadline=None)
def test_the_rows_are_those_of_a_plain_fold_and_untouched_files_are_carried(
    tail: Rows, later: Rows, kinds: tuple[KindPolicy, ...], buckets: tuple[int, int], mode: RestoreMode
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        pipeline = opened(root, buckets[0])
        cycle(pipeline, "first", BASE, kinds[0])
        take(pipeline, tail)
        snapshot = take_tail(pipeline, LOG, "tail").snapshot or 0
        # The newest snapshot has another number of buckets; what comes back has those of its own base.
        pipeline = opened(root, buckets[1])
        cycle(pipeline, "later", later, kinds[1])
        wanted, touched = rows_after(BASE, tail), buckets_of(pipeline, list(tail), buckets[0])

        outcome = restore_to(pipeline, LOG, snapshot, str(root / "elsewhere"), run=in_process)
        assert outcome.error_code is None, outcome.message
        assert rows_of(root / "elsewhere") == wanted

        back = restore(pipeline, snapshot, mode, kinds[2])
        assert back.status == "staged", back
        carries = mode is RestoreMode.CARRY
        check_carried(files_of(pipeline, 1), files_of(pipeline, back.snapshot or 0), set() if carries else touched)
        publish(pipeline)
        assert table_rows(pipeline) == (BASE if carries else wanted)


def test_what_a_tail_in_few_key_groups_costs(tmp_path: Path) -> None:
    """Of 16 files 2 are read by column and written; the others are proved and copied, or linked."""
    root = workloads.begun(tmp_path / "root")
    pipeline = workloads.opened(root)
    [ids] = workloads.local(root, 1_000, 16)
    workloads.append(root, [ids])
    tail = take_tail(pipeline, LOG, "tail").snapshot or 0
    outcomes: list[Outcome] = []
    plain = counted(lambda: restore_to(pipeline, LOG, 1, str(tmp_path / "plain"), run=in_process))
    tailed = counted(lambda: outcomes.append(restore_to(pipeline, LOG, tail, str(tmp_path / "tailed"), run=in_process)))
    assert len(rows_of(tmp_path / "tailed")) == workloads.ROWS
    names = [{p.name for p in (tmp_path / name / "_data").iterdir()} for name in ("plain", "tailed")]
    assert (len(names[0] & names[1]), len(names[1] - names[0])) == (14, 2)
    # Two files of about 6,250 rows are decoded, and the changes.
    assert plain["rows decoded"] == 0
    assert tailed["rows decoded"] < 16_000
    # The segment's index is read once for both buckets; each finds its own part.
    assert tailed["files opened"] - plain["files opened"] <= 4
    assert tailed["bytes read"] < plain["bytes read"] * 1.2


def test_a_restore_in_place_writes_what_the_tail_touches_and_names_the_rest(tmp_path: Path) -> None:
    root = workloads.begun(tmp_path / "root")
    pipeline = workloads.opened(root)
    workloads.append(root, workloads.local(root, 1_000, 16))
    tail = take_tail(pipeline, LOG, "tail").snapshot or 0
    outcome = restore(pipeline, tail, RestoreMode.SKIP, KindPolicy.INCREMENTAL)
    assert outcome.facts["files"] == 16
    assert outcome.facts["files_carried"] == 14
    written = sum(one.bytes for one in files_of(pipeline, outcome.snapshot or 0) if not one.carried)
    assert written == outcome.facts["bytes_written"]
