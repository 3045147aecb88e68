"""A part of the fault matrix, two coordinators and eight processes; the whole of each runs by a command. I11, I20, I29.

`make fault-matrix`, `make two-coordinators` and `make soak` run all of it and write docs/contributors/reliability.md.
"""

from __future__ import annotations

import pytest

from faults import sets
from faults.coordinators import race_on_disk, race_on_s3
from faults.history import check_order
from faults.history import play as play_history
from faults.injection import CallFault
from faults.matrix import play
from faults.page import PAGE, read_record, render
from faults.product import forget_syncs_of_folders
from faults.stages import LOSSES, OPERATIONS
from faults.unsynced import play as play_power_cuts
from support.effort import choose, rotate
from support.processes import alone

# Operations of which each case by some number is played here.
_PART = ["ingest", "confirm", "abort", "clean", "rebuild"]
PART = choose(12, 6)


def test_the_page_is_what_the_runs_recorded() -> None:
    assert PAGE.read_text() == render(read_record())


def test_every_operation_was_tried_with_every_fault_and_no_cell_fails() -> None:
    recorded = read_record()["matrix"]
    assert sorted(recorded) == sorted(operation.name for operation in OPERATIONS)
    for operation, row in recorded.items():
        assert {fault.value for fault in CallFault} <= row.keys(), operation
        assert not [fault for fault, cell in row.items() if cell["failed"]], operation
    # Not every store has everything that can be lost: the store of `rebuild` has no ledger.
    assert {loss for row in recorded.values() for loss in row} >= LOSSES.keys()


def test_every_operation_of_a_set_was_tried_with_every_damage_and_no_cell_fails() -> None:
    recorded = read_record()["sets"]
    assert recorded.keys() == sets.OPERATIONS.keys()
    for operation, row in recorded.items():
        assert row.keys() == set(sets.PLAYED), operation
        assert not [fault for fault, cell in row.items() if cell["failed"]], operation


def test_a_part_of_the_matrix_is_as_recorded() -> None:
    recorded = read_record()["matrix"]
    for (operation, fault), cell in play(_PART, most=1, pick=lambda number: number % PART == rotate(PART)).items():
        assert not cell.failed, (operation, fault, cell.failed)
        if cell.cases and fault in recorded[operation]:
            assert cell.reader.keys() <= recorded[operation][fault]["reader"].keys() | {"the new version"}


@pytest.mark.rotates(2)
@pytest.mark.parametrize("race", [race_on_disk, race_on_s3])
def test_of_two_coordinators_at_least_one_succeeds_and_the_rows_are_right(race) -> None:  # type: ignore[no-untyped-def]
    rounds = choose(2, 3)
    found = alone(race, rounds)
    assert not found.failed
    assert (found.rounds, found.none, found.wrong) == (rounds, 0, 0)


@pytest.mark.rotates(3)
def test_eight_processes_that_are_killed_and_stopped_leave_one_history() -> None:
    found = alone(play_history, 0.15)
    assert not found.wrong
    assert found.killed + found.stopped > 0


def test_what_was_acknowledged_outlives_a_power_cut() -> None:
    """A part of the stores that the loss of unsynced writes can leave; `make unsynced` opens all."""
    found = play_power_cuts(every=choose(74, 37), continues=choose(4, 8))
    assert not found.wrong
    assert found.states > 400


def test_a_file_whose_folder_is_not_synced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program finds what it looks for: Delta's first commit without the sync of its folders."""
    forget_syncs_of_folders(monkeypatch)
    assert play_power_cuts(every=53, continues=99, ends_at_first=True).wrong


def test_the_checker_sees_what_does_not_fit() -> None:
    class History:
        def __init__(self) -> None:
            self.log, self.effects = "accounts", {("published", 1): 5, ("published", 2): 3}

    def event(began: float, ended: float, snapshot: int) -> dict[str, object]:
        outcome = {"log": "accounts", "result": "published", "snapshot": snapshot, "error": None}
        return {"began": began, "ended": ended, "command": "confirm", "outcomes": [outcome]}

    assert check_order(History(), [event(0, 2, 1), event(1, 3, 2)]) == []  # type: ignore[arg-type]
    assert len(check_order(History(), [event(0, 1, 1), event(2, 3, 2)])) == 1  # type: ignore[arg-type]
    assert len(check_order(History(), [event(0, 1, 9)])) == 1  # type: ignore[arg-type]
