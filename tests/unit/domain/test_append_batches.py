"""Files that are appended together give the same state as one after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.builders import SHAPE, arrival
from tidefold.domain.ingest.append import IngestedFile, append
from tidefold.domain.log_state import LogState, Position
from tidefold.domain.source_progress import StreamPosition
from tidefold.errors import ConflictError


def place(file: IngestedFile, topic: str, partition: int) -> IngestedFile:
    """Moves a file to another partition."""
    position = replace(file.position, topic=topic, partition=partition)
    return replace(file, landed=replace(file.landed, topic=topic, partition=partition), position=position)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(0, 2)), max_size=12),
    st.integers(0, 3),
)
def test_a_batch_is_its_files_one_by_one(plan: list[tuple[int, str, int]], before: int) -> None:
    state = LogState("accounts", SHAPE, 1)
    for _ in range(before):
        state = append(state, [arrival(state)])
    files, alone = [], state
    for number, (changes, topic, partition) in enumerate(plan, before + 1):
        at = replace(alone, positions=(Position("accounts", 0, number * 20, StreamPosition((0, number * 20))),))
        file = place(arrival(at, changes), topic, partition)
        files.append(file)
        alone = append(alone, [file])
    marked = tuple(f.change_set.location.segment for f in files if f.change_set)[:2]
    garbage = ("another.seg", *marked)
    assert append(replace(state, garbage=garbage), files) == replace(
        alone, garbage=("another.seg",) if files else garbage
    )


def test_two_files_of_a_batch_with_the_same_offsets_are_refused() -> None:
    state = LogState("accounts", SHAPE, 1)
    file = arrival(state)
    other = replace(file, landed=replace(file.landed, name="other"))
    with pytest.raises(ConflictError) as refused:
        append(state, [file, other])
    assert refused.value.code == "OFFSETS_TAKEN"
