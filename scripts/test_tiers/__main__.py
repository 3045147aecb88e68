"""`python -m test_tiers TIER`: runs a tier. `python -m test_tiers accept`: its last run becomes what is compared."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from test_tiers.durations import (
    ACCEPTED,
    RecordedTest,
    accept,
    count_outcomes,
    list_grown,
    list_slowest,
    read_accepted,
    read_records,
    sum_files,
)
from test_tiers.run import RunResult, run_lanes
from test_tiers.tiers import TIERS, Lane, Tier

_TOLERANCE = 1.3
# A machine that is slower than this is no judge: what slows it does not slow all tests alike.
_SLOWEST_JUDGE = 1.5
_RECORDS = Path("var/test-records")
_PACE = "slowness.txt"
_FAILED_SEEDS = Path("tests/data/failed-seeds.txt")


def main(words: list[str]) -> int:
    if words == ["accept"]:
        return _accept_last_runs()
    tier = TIERS[words[0]]
    records = _RECORDS / tier.name
    shutil.rmtree(records, ignore_errors=True)
    records.mkdir(parents=True)
    seed, begun = _choose_seed(), time.monotonic()
    lanes = (*tier.lanes, *_list_fixed_seeds(tier))
    result = run_lanes(lanes, records, seed, tuple(words[1:]))
    (records / _PACE).write_text(str(result.slowness))
    return _conclude(tier, _read_paced(tier.name), result, time.monotonic() - begun, seed)


def _read_paced(name: str) -> list[RecordedTest]:
    """Returns what the last run of a tier recorded, in CPU seconds of the reference."""
    folder = _RECORDS / name
    slowness = float((folder / _PACE).read_text()) if (folder / _PACE).exists() else 1.0
    return [replace(record, cpu=record.cpu / slowness) for record in read_records(folder)]


def _choose_seed() -> int:
    """Returns the seed of random tests: of the environment, else of the commit."""
    if given := os.environ.get("TIDEFOLD_TEST_SEED"):
        return int(given)
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout
    return int(head[:8] or "0", 16)


def _list_fixed_seeds(tier: Tier) -> tuple[Lane, ...]:
    """Returns a lane for each seed with which tests once failed: a line of the file has the seed and the test."""
    if tier.name == "test-fast" or not _FAILED_SEEDS.exists():
        return ()
    tests: defaultdict[str, list[str]] = defaultdict(list)
    for line in _FAILED_SEEDS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            seed, _, test = line.partition(" ")
            tests[seed].append(test.strip())
    return tuple(Lane(f"seed {seed}", (tuple(found),), int(seed)) for seed, found in tests.items())


def _conclude(tier: Tier, records: list[RecordedTest], result: RunResult, wall: float, seed: int) -> int:
    """Prints what the run was, and returns its exit code."""
    accepted = read_accepted(tier.name)
    grown = list_grown(accepted, sum_files(records)) if accepted else []
    _print_lines("The ten slowest tests (CPU seconds):", list_slowest(records))
    _print_lines(f"Slower than {ACCEPTED} (`make accept-durations` accepts it):", grown)
    failed = [record.test for record in records if record.outcome == "failed"]
    again = f"TIDEFOLD_TEST_SEED={seed} .venv/bin/python -m pytest --hypothesis-seed={seed}"
    _print_lines("Failed; to repeat one:", [f"{again} '{test}'" for test in failed])
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    code, cpu = result.exit_code, result.cpu / result.slowness
    print(
        f"\n{tier.name}: {cpu:.0f} CPU seconds of {tier.budget}, {wall / 60:.1f} minutes, seed {seed}, load {load}\n"
        f"Measured were {result.cpu:.0f}: this machine took {result.slowness:.2f} times the reference for fixed work."
    )
    if cpu > _TOLERANCE * tier.budget:
        over = f"more than {_TOLERANCE} times its budget of CPU seconds"
        is_judged = result.slowness <= _SLOWEST_JUDGE
        print(f"{tier.name} fails: {over}." if is_judged else f"Not judged on so slow a machine: {over}.")
        code = code or int(is_judged)
    if result.exit_code and not failed:
        print(
            "No test failed, and a lane did not end well: see `ERROR` above, such as a module that cannot be imported."
        )
    print(count_outcomes(records))
    return code


def _print_lines(title: str, lines: list[str]) -> None:
    if lines:
        print("\n".join(["", title, *(f"  {line}" for line in lines)]))


def _accept_last_runs() -> int:
    for name in TIERS:
        if records := _read_paced(name):
            accept(name, sum_files(records))
            print(f"{ACCEPTED}: {name}, {len(records):,} tests")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
