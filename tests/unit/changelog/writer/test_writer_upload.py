"""One upload: what a segment holds and what is answered. Requirements C2, C6, C8."""

from __future__ import annotations

import pyarrow as pa
import pytest

from support.writing import SHAPE, BreakingStore, rows
from tidefold.changelog.segment import read_change_set, read_index
from tidefold.changelog.writer.rows_to_arrow import change_table
from tidefold.changelog.writer.upload_scheduler import Uploaded, upload
from tidefold.errors import InvalidInputError, StorageError


def part(log: str, offset: int, *ids: int) -> tuple[str, pa.Table]:
    return log, change_table(rows(*ids), SHAPE, offset, 0)


PARTS = [part("a", 0, 1, 2), part("a", 2, 3), part("b", 0, 4), part("c", 7, 5, 6, 7)]


def read_back(store: BreakingStore, one: Uploaded) -> list[int]:
    return sorted(read_change_set(store, one.written.change_set(high=(0,)))["id"].to_pylist())


@pytest.mark.parametrize("compress", [True, False])
def test_each_change_set_has_its_own_handle_in_both_stores(compress: bool) -> None:
    """C2: primary handle, local handle, offset (in both), place, size."""
    primary, local = BreakingStore(), BreakingStore()
    answers = upload(primary, local, "x.seg", PARTS, compress=compress)
    assert [(one.log, one.place, one.written.rows) for one in answers] == [
        ("a", 0, 2),
        ("a", 2, 1),
        ("b", 0, 1),
        ("c", 7, 3),
    ]
    assert [one.written.location.offset for one in answers] == [entry.offset for entry in read_index(primary, "x.seg")]
    for one in answers:
        assert (one.path, one.local) == ("x.seg", "x.seg")
        assert read_back(primary, one) == read_back(local, one)
    assert [read_back(primary, one) for one in answers] == [[1, 2], [3], [4], [5, 6, 7]]


def test_without_a_local_copy_no_local_handle_is_answered() -> None:
    """C2, C8."""
    local = BreakingStore()
    local.breaks("close")
    answers = upload(BreakingStore(), local, "x.seg", PARTS)
    assert {one.local for one in answers} == {None}


@pytest.mark.parametrize("at", ["open", "write", "tell", "close"])
def test_a_primary_failure_at_any_point_leaves_no_file(at: str) -> None:
    """C6."""
    primary, local = BreakingStore(), BreakingStore()
    primary.breaks(at)
    with pytest.raises(StorageError):
        upload(primary, local, "x.seg", PARTS)
    assert (primary.list(""), local.list("")) == ([], [])


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([part("b", 0, 1), part("a", 0, 2)], "PARTS_UNSORTED"),
        ([part("a", 5, 1), part("a", 0, 2)], "PARTS_UNSORTED"),
        ([part("a", 0, 1, 2), part("a", 1, 2)], "PARTS_UNSORTED"),
        ([part("a", 0, 1), part("a", 0, 1)], "PARTS_UNSORTED"),
        ([part("a", 0)], "PART_EMPTY"),
        ([], "SEGMENT_EMPTY"),
    ],
)
def test_parts_come_sorted_and_filled(parts: list[tuple[str, pa.Table]], code: str) -> None:
    """C2: sorted by log, then by place, without an overlap."""
    primary = BreakingStore()
    with pytest.raises(InvalidInputError) as wrong:
        upload(primary, None, "x.seg", parts)
    assert wrong.value.code == code
    assert primary.list("") == []
