"""The runner of the tiers: what it counts, compares and tells."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from local_airflow.settings import PROJECT
from test_tiers import __main__ as runner
from test_tiers.durations import (
    RecordedTest,
    count_outcomes,
    list_grown,
    list_slowest,
    read_records,
    sum_files,
)
from test_tiers.pace import Pace
from test_tiers.run import RunResult
from test_tiers.tiers import Tier

RECORDS = [
    RecordedTest("tests/a.py::one", 1.5, "passed", False),
    RecordedTest("tests/a.py::two", 2.0, "failed", False),
    RecordedTest("tests/a.py::three", 9.0, "passed", True),
    RecordedTest("tests/b.py::one", 0.1, "skipped", False),
]


def test_files_are_summed_without_random_tests() -> None:
    assert sum_files(RECORDS) == {"tests/a.py": 3.5, "tests/b.py": 0.1}
    assert count_outcomes(RECORDS) == "2 passed, 1 failed, 1 skipped"
    assert [line.split()[-1] for line in list_slowest(RECORDS, 2)] == ["tests/a.py::three", "tests/a.py::two"]


def test_what_clearly_grew_is_named_and_the_rest_is_not() -> None:
    accepted = {"small": 0.1, "slow": 10.0, "slower": 10.0, "as before": 30.0}
    now = {"small": 1.9, "slow": 16.0, "slower": 25.0, "as before": 34.0, "new": 5.0}
    assert [line.split()[-1] for line in list_grown(accepted, now)] == ["slower", "slow", "new"]


_TESTS = """
import subprocess, sys

WORK = "import time\\nwhile time.process_time() < 1: pass"

def test_works_in_a_process_that_outlives_its_parent():
    started = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {WORK!r}])"
    subprocess.run([sys.executable, "-c", started], check=True)

def test_fails():
    assert False
"""


_RUN = """
import sys
from pathlib import Path
from test_tiers import __main__ as runner
from test_tiers.tiers import Lane, Tier

runner._RECORDS, runner._FAILED_SEEDS = Path(sys.argv[1]) / "records", Path(sys.argv[1]) / "none"
runner.TIERS["tiny"] = Tier("tiny", 0, (Lane("only", ((str(Path(sys.argv[1]) / "test_it.py"),),)),))
sys.exit(runner.main(["tiny"]))
"""


def test_a_run_counts_orphans_and_names_failures_seed_and_budget(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(_TESTS)
    env = {**os.environ, "TIDEFOLD_TEST_SEED": "7", "PYTHONPATH": "scripts"}
    command = [sys.executable, "-c", _RUN, str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.endswith("1 passed, 1 failed, 0 skipped\n")
    assert "more than 1.3 times its budget" in done.stdout
    assert "TIDEFOLD_TEST_SEED=7 .venv/bin/python -m pytest --hypothesis-seed=7 '" in done.stdout
    assert {record.outcome for record in read_records(tmp_path / "records" / "tiny")} == {"passed", "failed"}
    seconds = re.search(r"tiny: (\d+) CPU seconds", done.stdout)
    assert seconds
    assert int(seconds[1]) >= 1


def test_a_budget_is_judged_at_the_pace_of_the_machine_unless_it_is_too_slow(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tier = Tier("tiny", 100, ())
    for cpu, slowness, code in ((131, 1.0, 1), (190, 1.45, 1), (180, 1.45, 0), (500, 1.6, 0)):
        assert runner._conclude(tier, [], RunResult(0, cpu, slowness), 1.0, 7) == code
    assert "Not judged on so slow a machine" in capsys.readouterr().out


def test_the_pace_is_that_of_fixed_work_and_its_seconds_are_known() -> None:
    pace = Pace()
    assert (pace.slowness, pace.cpu) == (1.0, 0)
    pace.measure()
    pace.measure()
    assert pace.cpu > 0
    assert pace.slowness > 0.2
