"""Which change made a row, against the kernel that makes it, and what is told of others. Issue 6; promises I5, I7."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.builders import SHAPE, appended, manifest_of, new_log, verdict_for
from support.effort import choose
from support.folding import bucket_of, read_all
from tidefold.changelog.schema import DELETE, UPSERT, change_schema, place_columns, table_schema
from tidefold.domain.explain.key_history import (
    ChangeOutcome,
    FoldedRange,
    KeyChange,
    KeyHistory,
    RowAgreement,
    explain,
    layers,
    standing,
    unknown,
)
from tidefold.domain.log_state import LogState, SnapshotKind
from tidefold.domain.snapshot import claim, transitions
from tidefold.domain.snapshot.claim import Claim, RestoreMode, RestorePoint
from tidefold.fold.merge.compaction import compact_changes
from tidefold.fold.merge.merge import merge_bucket

CHANGE = st.fixed_dictionaries(
    {
        "_op": st.sampled_from([UPSERT, UPSERT, DELETE]),
        "_o0": st.integers(-1, 3),
        "_o1": st.integers(0, 3),
        "_partition": st.integers(0, 1),
        "id": st.integers(0, 2),
    }
)


def table_of(rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{"_kg": 0, "_ts": 0, **row} for row in rows], schema=change_schema(SHAPE))


def changes_of(rows: Sequence[dict[str, Any]], key: int) -> list[KeyChange]:
    return [
        KeyChange(i, row["sqn"], tuple(row[name] for name in place_columns(SHAPE)), row["_op"] == DELETE)
        for i, row in enumerate(rows)
        if row["id"] == key
    ]


@settings(max_examples=choose(24, 60))
@given(
    folds=st.lists(st.lists(CHANGE, max_size=8), min_size=1, max_size=3),
    again=st.booleans(),
    seed=st.randoms(use_true_random=False),
)
def test_the_winner_is_the_row_that_the_kernel_keeps(folds: list[list[dict[str, Any]]], again: bool, seed: Any) -> None:
    """One fold upon the other, each by the kernel: of every key the row is the one of the change that is named."""
    rows: list[dict[str, Any]] = []
    base, view = table_schema(SHAPE).empty_table(), []
    for number, fold in enumerate(folds):
        mine = [
            {**row, "sqn": number + 1, "_offset": 100 * number + i, "text": f"{number} {i}"}
            for i, row in enumerate(fold)
        ]
        mine += seed.sample(mine, len(mine) // 2) if again else []
        seed.shuffle(mine)
        rows += mine
        view.insert(0, FoldedRange(number, number + 1, number + 1, f"run-{number}"))
        with (
            tempfile.TemporaryDirectory() as scratch,
            merge_bucket(bucket_of(base, None), table_of(mine), SHAPE, memory=100_000_000, scratch=scratch) as done,
        ):
            base = read_all(done.bucket, SHAPE)
    kept = {row["id"]: row["text"] for row in base.to_pylist()}
    for key in range(3):
        told = explain(new_log(), view, changes_of(rows, key))
        made = None if told.winner is None or told.winner.delete else rows[told.winner.number]["text"]
        assert made == kept.get(key)
        fates = [one.fate for one in told.changes]
        assert fates.count(ChangeOutcome.CURRENT) == (told.winner is not None)
        assert len(fates) == sum(row["id"] == key for row in rows)
        assert not {ChangeOutcome.WAITING, ChangeOutcome.LATER, ChangeOutcome.SKIPPED, ChangeOutcome.REPEATED} & set(
            fates
        )


@settings(max_examples=choose(24, 60))
@given(rows=st.lists(CHANGE, min_size=1, max_size=12))
def test_of_what_is_squashed_the_winner_is_left(rows: list[dict[str, Any]]) -> None:
    placed = [{**row, "sqn": 1, "_offset": i, "text": f"{i}"} for i, row in enumerate(rows)]
    left = {row["id"]: row["text"] for row in compact_changes(table_of(placed), SHAPE).to_pylist()}
    for key, text in left.items():
        winner = explain(new_log(), [FoldedRange(0, 1, 1, "run")], changes_of(placed, key)).winner
        assert winner is not None
        assert placed[winner.number]["text"] == text


def completed(state: LogState, run: str, restore: RestorePoint | None = None) -> LogState:
    state = claim.claim(state, Claim(run, "", SnapshotKind.FULL, "", restore=restore))
    assert state.open_attempt
    one = state.open_attempt.id
    state = transitions.stage(state, manifest_of(state, state.open_attempt), f"digest-{one}")
    staged = state.snapshot(one)
    assert staged
    return transitions.record_publication(
        transitions.confirm(transitions.record_verdict(state, one, verdict_for(staged)), one), one, one
    )


def change(sqn: int, *place: int, delete: bool = False, repeated: bool = False) -> KeyChange:
    return KeyChange(100 * sqn + place[-1], sqn, place, delete, repeated)


def fates(told: KeyHistory) -> list[tuple[ChangeOutcome, int | None, str]]:
    return [(one.fate, one.snapshot, one.run) for one in told.changes]


def test_each_change_is_told_what_became_of_it() -> None:
    state = completed(appended(appended(new_log())), "run-1")
    state = appended(completed(appended(state), "run-2"))
    changes = [
        change(1, 1, 9, 0, 0),
        change(2, 1, 5, 0, 1),
        change(2, 1, 7, 0, 2),
        change(3, 1, 8, 0, 3),
        change(3, 1, 8, 0, 4),
        change(3, 1, 2, 0, 5, repeated=True),
        change(4, 1, 10, 0, 6),
    ]
    told = explain(state, layers(state, state.snapshot(2)), changes)
    assert told.winner == changes[4]
    assert fates(told) == [
        (ChangeOutcome.REPLACED, 1, "run-1"),
        (ChangeOutcome.OLDER, 1, "run-1"),
        (ChangeOutcome.OLDER, 1, "run-1"),
        (ChangeOutcome.EARLIER, 2, "run-2"),
        (ChangeOutcome.CURRENT, 2, "run-2"),
        (ChangeOutcome.REPEATED, None, ""),
        (ChangeOutcome.WAITING, None, ""),
    ]
    live = explain(state, layers(state, state.latest, live=True), changes)
    assert fates(live)[-1] == (ChangeOutcome.CURRENT, None, "")
    first = explain(state, layers(state, state.snapshot(1)), changes)
    assert fates(first)[0] == (ChangeOutcome.CURRENT, 1, "run-1")
    assert fates(first)[3] == (ChangeOutcome.LATER, 2, "run-2")


@pytest.mark.parametrize(
    ("mode", "fate"),
    [(RestoreMode.SKIP, (ChangeOutcome.SKIPPED, 3, "back")), (RestoreMode.REPLAY, (ChangeOutcome.WAITING, None, ""))],
)
def test_a_restore_leaves_out_or_lets_wait(mode: RestoreMode, fate: tuple[ChangeOutcome, int | None, str]) -> None:
    state = completed(appended(completed(appended(new_log()), "run-1")), "run-2")
    state = completed(state, "back", RestorePoint(1, mode))
    told = explain(state, layers(state, state.latest), [change(1, 1, 1, 0, 0), change(2, 1, 2, 0, 1)])
    assert fates(told) == [(ChangeOutcome.CURRENT, 1, "run-1"), fate]
    earlier = explain(state, layers(state, state.snapshot(2)), [change(2, 1, 2, 0, 1)])
    assert fates(earlier) == [(ChangeOutcome.CURRENT, 2, "run-2")]
    # Undone by one more restore: it counts again.
    undone = completed(state, "undone", RestorePoint(2, RestoreMode.SKIP))
    assert fates(explain(undone, layers(undone, undone.latest), [change(2, 1, 2, 0, 1)])) == [
        (ChangeOutcome.CURRENT, 2, "run-2")
    ]


def test_what_cannot_be_known_any_more_is_named() -> None:
    state = appended(appended(appended(appended(new_log()))))
    cut = replace(state, change_sets=state.change_sets[1:], truncated_to=1)
    one = replace(cut, change_sets=(cut.change_sets[0], replace(cut.change_sets[2], first=3)))
    view = layers(one, None, live=True)
    assert unknown(one, view) == ((1, 1), (3, 4))
    assert unknown(state, layers(state, None, live=True)) == ()
    assert explain(one, view, [change(2, 1, 1, 0, 0)]).partly_cut


def test_how_the_row_agrees_with_the_log() -> None:
    made = KeyHistory(change(1, 1, 1, 0, 0), ())
    gone = KeyHistory(change(1, 1, 1, 0, 0, delete=True), ())
    expiring = replace(made, dropping=(FoldedRange(0, 1, 1, "run"),))
    assert standing(made, True, True, True) is RowAgreement.MADE
    assert standing(made, True, False, True) is RowAgreement.DIFFERS
    assert standing(replace(made, partly_cut=True), True, False, True) is RowAgreement.CUT
    assert standing(made, False, False, True) is RowAgreement.DIFFERS
    assert standing(expiring, False, False, True) is RowAgreement.EXPIRED
    assert standing(gone, False, True, True) is RowAgreement.DELETED
    assert standing(gone, True, False, True) is RowAgreement.DIFFERS
    assert standing(KeyHistory(None, ()), True, False, True) is RowAgreement.CUT
    assert standing(KeyHistory(None, ()), False, False, True) is RowAgreement.CUT
    assert standing(KeyHistory(None, ()), False, False, False) is RowAgreement.ABSENT
