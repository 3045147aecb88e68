"""What each command loads: no command pays for the import of something that it does not use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tidefold.cli.sample import land, prepare

HEAVY = (
    "airflow", "botocore", "deltalake", "duckdb", "great_expectations", "jinja2", "numpy", "pandas", "py4j", "pyarrow",
    "pydantic", "pyspark", "pyspark.ml", "s3fs", "scipy.optimize", "sqlalchemy",
)  # fmt: skip
# Each command runs in a fork of a process that has loaded what `tidefold` itself loads, and nothing more.
PROBE = """
import json, os, sys
from typer.testing import CliRunner
from tidefold.cli.app import app
heavy, commands = json.loads(sys.argv[1])
for command in commands:
    if not os.fork():
        result = CliRunner().invoke(app, command)
        loaded = [name for name in heavy if sys.modules.get(name)]
        print(json.dumps([result.exit_code, loaded, result.output]), flush=True)
        os._exit(0)
    os.wait()
"""


@dataclass(frozen=True)
class Step:
    """A command, and the heavy modules that it may load."""

    arguments: str
    loads: frozenset[str]


def step(arguments: str, loads: str = "") -> Step:
    return Step(arguments, frozenset(loads.split()))


LEDGER = "pydantic"
FILES = f"{LEDGER} numpy pyarrow"
WORK = f"{FILES} deltalake duckdb jinja2"
# One after the other, on one store. Spark, its gate and Airflow are nowhere.
STEPS = (
    step("--help"),
    # It reads a landed file of each log as a run would. Arrow loads pandas itself for arrays of Python values.
    step("validate", f"{WORK} pandas"),
    step("step ingest branches tellers", f"{WORK} pandas"),
    step("step materialize branches tellers", f"{WORK} pandas"),
    step("status", LEDGER),
    step("snapshot history tellers", LEDGER),
    # Great Expectations loads Spark's classes, not its machine learning, and starts nothing.
    step("step quality tellers", f"{WORK} pandas great_expectations pyspark py4j"),
    step("step quality tellers", WORK),
    step("step confirm tellers", f"{FILES} deltalake"),
    step("step abort branches", FILES),
    step("retain subsume", LEDGER),
    # Which logs a segment serves is in its index.
    step("retain truncate", FILES),
    step("retain clean --local", FILES),
    step("snapshot report tellers", LEDGER),
    step("retain clean", f"{FILES} deltalake"),
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, frozenset[str], str]]:
    config = prepare(tmp_path_factory.mktemp("sample"), None)
    land(config, "phase1")
    commands = [one.arguments.split() for one in STEPS]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROBE, json.dumps([HEAVY, commands])],
        env={**os.environ, "TIDEFOLD_CONFIG": str(config)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = map(json.loads, done.stdout.splitlines())
    return [(code, frozenset(loaded), output) for code, loaded, output in found]


@pytest.mark.parametrize("number", range(len(STEPS)), ids=[f"{n} {one.arguments}" for n, one in enumerate(STEPS)])
def test_a_command_loads_what_it_uses(number: int, found: list[tuple[int, frozenset[str], str]]) -> None:
    code, loaded, output = found[number]
    assert code == 0, output
    assert loaded <= STEPS[number].loads
