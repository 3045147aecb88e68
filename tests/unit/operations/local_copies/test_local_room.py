"""Which root a copy belongs in, what is left over, and what goes so that a new copy fits; requirements L3, L4, promise
I18.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.builders import appended, manifest_of, new_log
from tidefold.domain.log_state import LogState, SnapshotKind, State
from tidefold.domain.retention.local_copies import (
    CopyName,
    LocalFile,
    PlannedCopy,
    bytes_on_disk,
    leftover,
    plan_eviction,
    root_number,
)
from tidefold.domain.snapshot import claim, transitions


@given(first=st.integers(0, 10**9), count=st.integers(1, 9))
def test_copies_of_snapshots_take_turns(first: int, count: int) -> None:
    """L3: of as many successive snapshots as there are roots each lies in another one, with all its files."""
    names = [CopyName("accounts", first + i) for i in range(count)]
    assert {root_number(str(name), "p", count) for name in names} == set(range(count))
    for name in names:
        inside = [str(name), name.manifest, f"{name}/_data/x.parquet", f"{name}.ongoing/_data/y", f"{name}.ongoing"]
        assert len({root_number(path, pipeline, count) for path in inside for pipeline in "pq"}) == 1


def test_segments_of_a_pipeline_stay_together_and_pipelines_spread() -> None:
    """L3."""
    segments = [f"changelog/2026-11-{day}/{day}a.seg" for day in range(10, 30)]
    assert all(len({root_number(path, pipeline, 3) for path in segments}) == 1 for pipeline in ("a", "b", "store-0f"))
    assert set(Counter(root_number(segments[0], f"store-{i}", 3) for i in range(60))) == {0, 1, 2}
    assert root_number(segments[0], "store", 1) == 0


def in_state(state: LogState, snapshot: int, new: State) -> LogState:
    known = state.snapshot(snapshot)
    assert known
    return state.with_snapshot(replace(known, state=new))


def begun(snapshots: int) -> LogState:
    state = new_log()
    for number in range(1, snapshots + 1):
        state = claim.claim(appended(state), claim.Claim(f"run-{number}", "r", SnapshotKind.FULL, "2026"))
        if number < snapshots:
            state = transitions.abort(state, number, "made to")
    return state


def test_left_over_is_what_nobody_completes_and_what_was_aborted() -> None:
    """L4: of an open snapshot nothing, of one that the state does not know yet nothing, of another log nothing."""
    state = begun(5)
    for snapshot, new in ((1, State.COMPLETED), (2, State.DELETED), (4, State.ABORTED)):
        state = in_state(state, snapshot, new)
    found = {(i, o) for i in range(1, 9) for o in (False, True) if leftover(state, CopyName("accounts", i, o))}
    assert found == {(1, True), (2, True), (3, False), (3, True), (4, False), (4, True)}
    assert not any(leftover(state, CopyName("tellers", i, o)) for i in range(9) for o in (False, True))
    attempt = state.open_attempt
    assert attempt
    staged = transitions.stage(state, manifest_of(state, attempt), "digest")
    assert not leftover(staged, CopyName("accounts", 5, True))


def test_left_over_of_a_log_that_began_anew() -> None:
    """Ids go on above those of the last life: half a copy of that one is left over, one of a new id is not."""
    state = replace(new_log(), last_snapshot=7)
    assert [i for i in range(10) if leftover(state, CopyName("accounts", i, True))] == list(range(8))
    assert not any(leftover(state, CopyName("accounts", i)) for i in range(10))


ROOTS = ("/a", "/b")


def a_copy(
    snapshot: int, files: dict[str, int], root: str = "/a", owner: str = "", whole: bool = True
) -> tuple[LocalFile, ...]:
    """The files of a copy; those of one name, root and `owner` are links of each other."""
    name = CopyName("accounts", snapshot)
    found = [LocalFile(root, f"{name}/_data/{f}", size, f"{root}{owner}:{f}") for f, size in files.items()]
    return (*found, LocalFile(root, name.manifest, 0, f"{root}:m{snapshot}")) if whole else tuple(found)


def wanted(files: dict[str, int], root: str = "/a", snapshot: int = 9) -> PlannedCopy:
    return PlannedCopy(CopyName("accounts", snapshot), root, files)


def test_nothing_goes_while_the_copy_fits() -> None:
    kept, old = a_copy(2, {"x": 10}), a_copy(1, {"w": 10})
    room = plan_eviction(30, wanted({"y": 10}), kept, [old])
    assert (room.fits, room.used, room.needed, room.going) == (True, 20, 10, ())


def test_the_first_ones_go_first_and_no_more_than_must() -> None:
    kept = a_copy(4, {"x": 10})
    removable = [a_copy(i, {f"w{i}": 10}) for i in (1, 2, 3)]
    room = plan_eviction(30, wanted({"y": 10}), kept, removable)
    assert (room.fits, room.going) == (True, (removable[0], removable[1]))


def test_one_that_frees_nothing_stays() -> None:
    """Its files have names in a copy that is kept."""
    kept = a_copy(4, {"x": 10})
    shared, own = a_copy(1, {"x": 10}), a_copy(2, {"w": 10})
    assert plan_eviction(20, wanted({"y": 10}), kept, [shared, own]).going == (own,)


def test_two_that_free_something_together_go_together() -> None:
    first, second = a_copy(1, {"w": 10}), a_copy(2, {"w": 10})
    assert plan_eviction(10, wanted({"y": 10}), (), [first, second]).going == (first, second)


def test_what_is_shared_in_the_same_root_takes_nothing_and_elsewhere_it_does() -> None:
    kept = a_copy(4, {"x": 10, "y": 10})
    files = {"x": 10, "y": 10, "z": 5}
    assert plan_eviction(25, wanted(files), kept, []).fits
    assert not plan_eviction(24, wanted(files), kept, []).fits
    assert not plan_eviction(25, wanted(files, root="/b"), kept, []).fits
    assert plan_eviction(45, wanted(files, root="/b"), kept, []).fits
    # Half a copy, or a file of another length, is nothing to share.
    assert plan_eviction(99, wanted(files), a_copy(4, {"x": 10}, whole=False), []).needed == 25
    assert plan_eviction(99, wanted(files), a_copy(4, {"x": 9}), []).needed == 25


def test_nothing_goes_in_vain() -> None:
    """What is needed and used is told as it is."""
    kept, old = a_copy(2, {"x": 10}), a_copy(1, {"w": 10})
    room = plan_eviction(19, wanted({"y": 10}), kept, [old])
    assert (room.fits, room.used, room.needed, room.going) == (False, 20, 10, ())


FILES = st.dictionaries(st.sampled_from("uvwxyz"), st.integers(1, 9), max_size=4)
COPIES = st.lists(st.tuples(FILES, st.sampled_from(ROOTS), st.sampled_from(["", "own"]), st.booleans()), max_size=6)


def total(want: PlannedCopy, copies: Iterable[Sequence[LocalFile]]) -> int:
    """Said anew: inodes once, and what no whole copy in the same root has under that name with that length."""
    files = [file for copy in copies for file in copy]
    inodes = {file.identity: file.bytes for file in files}
    whole = {CopyName.of(f.path) for f in files if f.path.endswith("/manifest") and f.root == want.root}
    has = {(f.path.rpartition("/")[2], f.bytes) for f in files if f.root == want.root and CopyName.of(f.path) in whole}
    return sum(inodes.values()) + sum(size for name, size in want.files.items() if (name, size) not in has)


@given(found=COPIES, kept_count=st.integers(0, 3), files=FILES, root=st.sampled_from(ROOTS), quota=st.integers(0, 80))
def test_room_is_made_by_what_must_go_and_nothing_else(
    found: list[tuple[dict[str, int], str, str, bool]], kept_count: int, files: dict[str, int], root: str, quota: int
) -> None:
    """I18: the kept never go; the quota holds or nothing changes; any one put back would be too much."""
    lengths: dict[str, int] = {}
    copies = []
    for i, (names, where, owner, whole) in enumerate(found):
        same = {n: lengths.setdefault(f"{where}{owner}{n}", size) for n, size in names.items()}
        copies.append(a_copy(i, same, where, owner, whole))
    kept, removable = copies[:kept_count], copies[kept_count:]
    want = wanted(files, root)
    room = plan_eviction(quota, want, [f for copy in kept for f in copy], removable)
    assert set(room.going) <= set(removable)
    staying = [copy for copy in removable if copy not in room.going]
    assert room.used == bytes_on_disk(f for copy in copies for f in copy)
    assert room.used + room.needed == total(want, copies)
    if room.fits:
        assert total(want, [*kept, *staying]) <= quota
        assert all(total(want, [*kept, *staying, copy]) > quota for copy in room.going)
    else:
        assert room.going == ()
        assert total(want, kept) > quota


@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_empty_copy_always_fits_in_what_is_left(count: int) -> None:
    assert plan_eviction(0, wanted({}), (), [a_copy(i, {"w": 1}, owner=str(i)) for i in range(count)]).fits
