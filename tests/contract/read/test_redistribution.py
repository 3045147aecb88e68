"""What several workers read of a log, whatever its buckets were (L8, L9)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines import judge_all, make_pipeline, put, with_log_shape
from tidefold.compute.runners import in_process
from tidefold.domain.key_groups import RedistributionMode, Share
from tidefold.errors import InvalidInputError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, plan_read, read_rows
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    made = make_pipeline(tmp_path_factory.mktemp("distribution"))
    put(made, [{"id": i, "text": f"a {i}"} for i in range(100)])
    materialize(made, ["accounts"], Fold("run-1"), in_process)
    judge_all(made)
    confirm(made, "accounts")
    put(made, [{"id": i, "text": f"b {i}"} for i in range(50, 120)])
    return made


def ids(pipeline: Pipeline, what: What, share: Share) -> list[int]:
    _, batches = read_rows(pipeline, "accounts", ReadRequest(what, share=share))
    return [row["id"] for batch in batches for row in batch.to_pylist()]


@pytest.mark.rotates(6)
@pytest.mark.parametrize("what", [What.TABLE, What.LIVE, What.LOG])
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 16, 20])
def test_split_gives_every_row_to_exactly_one_worker(pipeline: Pipeline, what: What, workers: int) -> None:
    """Also with more workers than buckets (4) and than key groups (16)."""
    everything = sorted(ids(pipeline, what, Share(1, 1)))
    shares = [ids(pipeline, what, Share(worker, workers)) for worker in range(1, workers + 1)]
    assert sorted(i for share in shares for i in share) == everything
    assert len(everything) == {What.TABLE: 100, What.LIVE: 120, What.LOG: 170}[what]


@pytest.mark.parametrize("how", [RedistributionMode.UNION, RedistributionMode.BROADCAST])
def test_union_and_broadcast_give_every_row_to_each(pipeline: Pipeline, how: RedistributionMode) -> None:
    assert all(sorted(ids(pipeline, What.TABLE, Share(w, 3, how))) == list(range(100)) for w in (1, 2, 3))


def test_a_share_names_only_the_files_that_it_meets(pipeline: Pipeline) -> None:
    """L8: the intersection alone is read."""
    plan = plan_read(pipeline, "accounts", ReadRequest(share=Share(1, 8)))
    [task] = plan.tasks
    assert (task.bucket.first, task.bucket.last) == (0, 1)
    assert len(task.files) == 1 < len(plan.files)


def test_shares_do_not_depend_on_the_number_of_buckets(tmp_path: Path) -> None:
    found = []
    for buckets in (1, 4, 16):
        folder = tmp_path / str(buckets)
        folder.mkdir()
        made = with_log_shape(make_pipeline(folder), buckets=buckets)
        put(made, [{"id": i, "text": "a"} for i in range(100)])
        materialize(made, ["accounts"], Fold("run-1"), in_process)
        judge_all(made)
        confirm(made, "accounts")
        found.append([sorted(ids(made, What.TABLE, Share(worker, 5))) for worker in range(1, 6)])
    assert found[0] == found[1] == found[2]


@given(st.integers(1, 300), st.integers(1, 400))
def test_the_shares_cover_all_key_groups_once(key_groups: int, workers: int) -> None:
    spans = [Share(worker, workers).key_groups(key_groups) for worker in range(1, workers + 1)]
    covered = [group for span in spans if span for group in range(span.first, span.last + 1)]
    assert covered == list(range(key_groups))
    sizes = [span.last - span.first + 1 if span else 0 for span in spans]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("text", ["", "0/3", "4/3", "1", "1/0", "a/b", "-1/2", "1/2/3", "1 / 2"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a share"):
        Share.parse(text)
