"""Segments: slices, floors, damage. Requirement C2; promise I23; bad inputs 30, 32."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.builders import SHAPE
from support.dict_store import DictStore
from support.effort import choose
from support.segments import write_segment
from tidefold.changelog import schema
from tidefold.changelog.key_group_hash import with_key_groups
from tidefold.changelog.schema import change_schema, sort_by_key_group
from tidefold.changelog.segment import _batch_rows, check_pieces, read_change_set, read_index
from tidefold.domain.key_groups import KeyGroups, bucket_ranges
from tidefold.domain.log_state import ChangeSet
from tidefold.errors import CorruptError
from tidefold.storage import Store, open_store


def changes(ids: list[int], order: int = 1) -> pa.Table:
    count = len(ids)
    table = pa.table(
        {
            "_op": [0] * count,
            "_kg": [0] * count,
            "_o0": [order] * count,
            "_o1": list(range(count)),
            "_partition": [0] * count,
            "_offset": list(range(count)),
            "_ts": [0] * count,
            "_absent": [None] * count,
            "id": ids,
            "text": [f"row {i}" for i in ids],
        },
        schema=change_schema(SHAPE),
    )
    return with_key_groups(table, SHAPE)


def written(store: Store, *tables: pa.Table, compress: bool = True) -> list[ChangeSet]:
    parts = write_segment(store, "a.seg", [("accounts", t) for t in tables], compress=compress)
    return [replace(part.change_set((1, 0)), sqn=i + 1) for i, part in enumerate(parts)]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path), tmp_path)


@pytest.mark.parametrize("compress", [True, False])
def test_each_change_set_comes_back_alone(store: Store, compress: bool) -> None:
    first, second = written(store, changes([1, 2, 3]), changes(list(range(50_000))), compress=compress)
    assert sorted(read_change_set(store, first)["id"].to_pylist()) == [1, 2, 3]
    assert sorted(read_change_set(store, second)["id"].to_pylist()) == list(range(50_000))


@settings(max_examples=choose(25, 400), deadline=None)
@given(
    groups=st.lists(st.lists(st.sampled_from([0, 1, 2, 3, 9, 9, 65_535]), max_size=9), min_size=1, max_size=5),
    sizes=st.sampled_from([(8,), (1, 200)]),
    limit=st.sampled_from([1, 100, 300, 1 << 20]),
    rows=st.integers(1, 4),
    is_sorted=st.booleans(),
)
def test_changes_are_sorted_by_key_group_a_range_at_a_time(
    groups: list[list[int]], sizes: tuple[int, ...], limit: int, rows: int, is_sorted: bool
) -> None:
    """Equal ones keep their order. Long rows, one large key group, and batches that are sorted: the same result."""
    batches, count, types = [], 0, pa.schema([("_kg", pa.uint16()), ("n", pa.int64()), ("text", pa.string())])
    for some in groups:
        texts = ["x" * sizes[i % len(sizes)] for i in range(len(some))]
        numbers = range(count, count := count + len(some))
        listed = sorted(some) if is_sorted else some
        batches.append(pa.record_batch([pa.array(listed, pa.uint16()), numbers, texts], schema=types))
    table = pa.Table.from_batches(batches, types)
    with patch.object(schema, "SORTED_AT_ONCE", limit):
        found = list(sort_by_key_group(table, rows))
    assert pa.Table.from_batches(found, table.schema).to_pylist() == sorted(table.to_pylist(), key=lambda r: r["_kg"])
    assert all(0 < batch.num_rows <= rows for batch in found)


def test_a_sort_of_many_changes_holds_a_range_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "SORTED_AT_ONCE", 1 << 18)
    table = pa.concat_tables([changes(list(range(start, start + 10_000))) for start in range(0, 50_000, 10_000)])
    before, held = pa.total_allocated_bytes(), []
    for _ in sort_by_key_group(table, 1_000):
        held.append(pa.total_allocated_bytes() - before)
    assert max(held) < 1 << 20 < table.nbytes


def test_buckets_share_the_changes_without_overlap(store: Store) -> None:
    [change_set] = written(store, changes(list(range(40_000))))
    slices = [read_change_set(store, change_set, b)["id"].to_pylist() for b in bucket_ranges(16, 4)]
    assert sorted(i for part in slices for i in part) == list(range(40_000))


@pytest.mark.parametrize(("rows", "batches"), [(4_096, 1), (5_000, 2), (50_000, 13), (1_048_576, 64)])
def test_the_more_changes_the_more_batches_as_long_as_they_are_not_small(rows: int, batches: int) -> None:
    assert -(-rows // _batch_rows(rows)) == batches


def test_a_few_changes_are_as_short_without_compression_and_many_are_not(tmp_path: Path) -> None:
    lengths = {}
    for compress in (True, False):
        store = open_store(str(tmp_path / str(compress)), tmp_path)
        lengths[compress] = [
            c.location.length for c in written(store, changes([1, 2]), changes(list(range(5_000))), compress=compress)
        ]
    assert lengths[True][0] == lengths[False][0]
    assert lengths[True][1] < lengths[False][1] / 2


FEW, MANY = [1, 2], list(range(5_000))
ZSTD = b"\x28\xb5\x2f\xfd"  # How each frame of zstd begins.


@pytest.mark.parametrize(
    ("parts", "compress", "flags"),
    [
        ([FEW], True, 0),
        ([FEW, MANY], True, 1),
        ([MANY, FEW], True, 1),
        ([FEW, MANY], False, 0),
    ],
)
def test_the_header_says_what_the_bytes_are(
    store: Store, tmp_path: Path, parts: list[list[int]], compress: bool, flags: int
) -> None:
    """C2: not what the writer was told. Read from the raw file."""
    change_sets = written(store, *(changes(ids) for ids in parts), compress=compress)
    raw = (tmp_path / "a.seg").read_bytes()
    assert raw[:8] == b"TDFSEG" + bytes([2, flags])
    assert (ZSTD in raw) == bool(flags)
    assert (b"row 1row 2" in raw) == (FEW in parts)
    assert [sorted(read_change_set(store, one)["id"].to_pylist()) for one in change_sets] == parts


@pytest.mark.parametrize(("ids", "flags", "whole"), [(MANY, 0, False), (FEW, 1, True), (FEW, 2, False)])
def test_a_header_that_contradicts_the_bytes_is_damage(
    store: Store, tmp_path: Path, ids: list[int], flags: int, whole: bool
) -> None:
    """C2: a change set that is read proves `not compressed`, the whole segment proves `compressed`."""
    [change_set] = written(store, changes(ids))
    raw = bytearray((tmp_path / "a.seg").read_bytes())
    raw[7] = flags
    (tmp_path / "a.seg").write_bytes(raw)
    read = partial(check_pieces, store, "a.seg", ()) if whole else partial(read_change_set, store, change_set)
    with pytest.raises(CorruptError):
        read()


def test_a_slice_reads_only_the_batches_it_needs(store: Store) -> None:
    [change_set] = written(store, changes(list(range(100_000))))
    [entry] = read_index(store, "a.seg")
    wanted = KeyGroups(0, 0)
    needed = [b for b in entry.batches if wanted.meets(KeyGroups(b.first, b.last))]
    assert len(needed) < len(entry.batches) / 2
    assert set(read_change_set(store, change_set, wanted)["_kg"].to_pylist()) == {0}


def test_changes_below_the_floor_do_not_count(store: Store) -> None:
    [change_set] = written(store, changes([5, 6, 7, 8]))
    floored = replace(change_set, floor=(1, 2))
    assert sorted(read_change_set(store, floored)["_o1"].to_pylist()) == [2, 3]


@given(place=st.integers(0, 10**9), size=st.integers(1, 300))
def test_any_altered_byte_is_found(place: int, size: int) -> None:
    store = DictStore()
    [change_set] = written(store, changes(list(range(size))))
    data = bytearray(store.read("a.seg"))
    [entry] = read_index(store, "a.seg")
    at = place % len(data)
    data[at] ^= 0x40
    store.delete(["a.seg"])
    store.put_if_absent("a.seg", bytes(data))
    end = entry.offset + entry.length
    if at in (6, 7) or end - 8 <= at < end:
        return  # The header's version and flag bytes describe; a stream's end mark is never read. They hold no data.
    with pytest.raises(CorruptError):
        read_change_set(store, change_set)


@pytest.mark.parametrize("keep", [0, 5, 100, -1, -14])
def test_a_cut_file_is_found(store: Store, tmp_path: Path, keep: int) -> None:
    [change_set] = written(store, changes([1, 2, 3]))
    data = (tmp_path / "a.seg").read_bytes()
    (tmp_path / "a.seg").write_bytes(data[:keep])
    with pytest.raises(CorruptError) as corrupt:
        read_change_set(store, change_set)
    assert corrupt.value.code == "SEGMENT_CORRUPT"


def test_another_segment_under_the_name_is_found(store: Store) -> None:
    [change_set] = written(store, changes([1, 2, 3]))
    store.delete(["a.seg"])
    written(store, changes([1, 2, 4]))
    with pytest.raises(CorruptError):
        read_change_set(store, change_set)
