"""Every call of every operation fails in turn, in every way, then again during recovery; in memory, without Spark.

Promises I1, I4, I5, I7, I9, I10, I11, I12, I13, I19, I22; requirement N7. The rows come from the landed records alone.
"""

from __future__ import annotations

import pytest

from support.effort import choose, rotate
from support.scenarios import SCENARIOS, Scenario, Stage, run_case, templates
from support.simulated import Fault, list_different_ways, simulated_tables

# Each of so many cases, and which ones differs between scenarios: they share the calls of most operations.
PART = choose(10, 1)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    with simulated_tables():
        return templates(tmp_path_factory.mktemp("stage"))


@pytest.mark.rotates(6)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_after_any_fault_the_next_run_ends_as_if_nothing_had_happened(stage: Stage, scenario: Scenario) -> None:
    with simulated_tables():
        kinds = stage.kinds_of(scenario)
        assert len(kinds) > 3
        cases = [(at, *way) for at in range(len(kinds)) for way in list_different_ways(kinds, at)]
        chosen = cases[rotate(PART, SCENARIOS.index(scenario)) :: PART]
        for case in chosen:
            run_case(stage, scenario, [case])
    print(f"{scenario.name}: {len(kinds)} calls, {len(chosen)} cases of {len(cases)} different ones")


@pytest.mark.rotates(6)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_after_a_second_crash_during_recovery_too(stage: Stage, scenario: Scenario) -> None:
    """A sample; `make soak` runs all of them."""
    with simulated_tables():
        calls = stage.calls_of(scenario)
        pairs = [(first, second) for first in range(calls) for second in range(calls + 5)]
        step = max(1, len(pairs) // choose(8, 60))
        chosen = pairs[rotate(step) :: step]
        for number, (first, second) in enumerate(chosen):
            faults = list(Fault)
            fault, again = faults[number % len(faults)], faults[number // len(faults) % len(faults)]
            run_case(stage, scenario, [(first, fault, False), (second, again, False)])
    print(f"{scenario.name}: {len(chosen)} double crashes")
