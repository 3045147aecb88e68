"""Who removes which file. Requirements C5, C7, C9."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.writing import BreakingStore, InlineExecutor, ManualExecutor, paths
from tidefold.changelog.writer.segment_ownership import DeferredDelete, LocalRegistry, TaskRegistry
from tidefold.errors import InvalidInputError


@pytest.fixture
def store() -> BreakingStore:
    store = BreakingStore()
    for name in ("x", "y", "z"):
        store.put_if_absent(name, b"bytes")
    return store


@pytest.fixture
def tasks(store: BreakingStore) -> TaskRegistry:
    return TaskRegistry(DeferredDelete(store, InlineExecutor()))


@pytest.fixture
def copies(store: BreakingStore) -> LocalRegistry:
    return LocalRegistry(DeferredDelete(store, InlineExecutor()))


def test_a_file_goes_when_the_last_log_does_not_use_it(store: BreakingStore, tasks: TaskRegistry) -> None:
    """C5."""
    tasks.start_tracking("x", ["a", "b"])
    tasks.not_used("x", "a")
    tasks.not_used("x", "a")
    assert "x" in paths(store, "")
    tasks.not_used("x", "b")
    assert paths(store, "") == ["y", "z"]


def test_a_file_whose_ownership_passed_on_is_left_alone(store: BreakingStore, tasks: TaskRegistry) -> None:
    """C5."""
    tasks.start_tracking("x", ["a", "b"])
    tasks.not_used("x", "a")
    assert tasks.stop_tracking("x") == {"b"}
    tasks.not_used("x", "b")
    assert paths(store, "") == ["x", "y", "z"]
    assert not tasks.tracks("x")


def test_a_file_that_is_not_tracked_is_left_alone(store: BreakingStore, tasks: TaskRegistry) -> None:
    tasks.not_used("y", "a")
    assert tasks.stop_tracking("y") == frozenset()
    assert "y" in paths(store, "")


def test_tracking_for_nobody_is_a_mistake(tasks: TaskRegistry) -> None:
    with pytest.raises(InvalidInputError):
        tasks.start_tracking("x", [])


def test_a_failed_removal_is_a_warning_and_what_follows_is_not_done(store: BreakingStore, tasks: TaskRegistry) -> None:
    """C5: the intent stays open, so that a recovery finds the file."""
    done: list[str] = []
    follow: Callable[[], None] = lambda: done.append("then")  # noqa: E731
    store.breaks("delete", times=1)
    tasks.start_tracking("x", ["a"])
    tasks.not_used("x", "a", follow)
    assert done == []
    tasks.start_tracking("y", ["a"])
    tasks.not_used("y", "a", follow)
    assert done == ["then"]
    assert paths(store, "") == ["x", "z"]


def test_the_highest_snapshot_of_a_handle_counts(store: BreakingStore, copies: LocalRegistry) -> None:
    """C7."""
    copies.register("x", "a", 5)
    copies.register("x", "a", 3)
    assert copies.discard_up_to("a", 5) == frozenset()
    assert "x" in paths(store, "")
    assert copies.discard_up_to("a", 6) == {"x"}
    assert "x" not in paths(store, "")


def test_what_was_just_confirmed_is_never_discarded(store: BreakingStore, copies: LocalRegistry) -> None:
    """C7, C9: `discard up to n` removes what is older than n."""
    copies.register("x", "a", 1)
    copies.register("y", "a", 2)
    copies.register("z", "a", 2)
    assert copies.discard_up_to("a", 2) == {"x"}
    assert paths(store, "") == ["y", "z"]


def test_prune_removes_exactly_one_aborted_snapshot(store: BreakingStore, copies: LocalRegistry) -> None:
    """C7."""
    copies.register("x", "a", 1)
    copies.register("y", "a", 2)
    copies.register("z", "a", 3)
    assert copies.prune("a", 2) == {"y"}
    assert copies.prune("a", 2) == frozenset()
    assert paths(store, "") == ["x", "z"]


def test_a_prune_does_not_take_what_a_later_snapshot_uses(store: BreakingStore, copies: LocalRegistry) -> None:
    """C7."""
    copies.register("x", "a", 1)
    copies.register("x", "a", 2)
    assert copies.prune("a", 1) == frozenset()
    assert "x" in paths(store, "")


def test_snapshots_of_another_log_do_not_count(store: BreakingStore, copies: LocalRegistry) -> None:
    """C7: numbers are a log's own, and a file is shared by several."""
    copies.register("x", "a", 7, waiting=["b"])
    assert copies.discard_up_to("a", 8) == {"x"}
    assert "x" in paths(store, "")  # `b` has not confirmed its part yet.
    copies.register("x", "b", 2)
    assert copies.discard_up_to("a", 100) == frozenset()
    assert copies.discard_up_to("b", 3) == {"x"}
    assert "x" not in paths(store, "")


def test_a_log_that_gives_up_its_part_lets_go_of_the_copy(store: BreakingStore, copies: LocalRegistry) -> None:
    copies.register("x", "a", 7, waiting=["b"])
    copies.discard_up_to("a", 8)
    copies.not_used("x", "b")
    assert "x" not in paths(store, "")


def test_discarding_runs_in_the_background_and_failures_are_warnings(store: BreakingStore) -> None:
    """C7."""
    executor = ManualExecutor()
    copies = LocalRegistry(DeferredDelete(store, executor))
    copies.register("x", "a", 1)
    copies.register("y", "a", 1)
    copies.discard_up_to("a", 2)
    assert paths(store, "") == ["x", "y", "z"]
    store.breaks("delete", times=1)
    executor.run()
    assert len(paths(store, "")) == 2


def test_after_the_shutdown_files_are_removed_at_once(store: BreakingStore) -> None:
    executor = ManualExecutor()
    executor.down = True
    copies = LocalRegistry(DeferredDelete(store, executor))
    copies.register("x", "a", 1)
    copies.discard_up_to("a", 2)
    assert "x" not in paths(store, "")


Step = tuple[str, str, str, int]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["register", "discard", "prune"]),
            st.sampled_from("xyz"),
            st.sampled_from("ab"),
            st.integers(0, 4),
        ),
        max_size=25,
    )
)
def test_copies_equal_a_naive_model(steps: list[Step]) -> None:
    """C7, against a plain dictionary: a file is there exactly while some log's highest snapshot needs it."""
    store = BreakingStore()
    copies, model = LocalRegistry(DeferredDelete(store, InlineExecutor())), {}
    for act, handle, log, snapshot in steps:
        if act == "register":
            if handle not in paths(store, ""):
                store.put_if_absent(handle, b"bytes")
            copies.register(handle, log, snapshot)
            model[handle, log] = max(snapshot, model.get((handle, log), snapshot))
        elif act == "discard":
            copies.discard_up_to(log, snapshot)
            model = {k: v for k, v in model.items() if not (k[1] == log and v < snapshot)}
        else:
            copies.prune(log, snapshot)
            model = {k: v for k, v in model.items() if not (k[1] == log and v == snapshot)}
        assert paths(store, "") == sorted({handle for handle, _ in model})
