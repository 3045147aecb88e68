"""Which heavy modules commands load, seen from outside: they run one after the other in a new process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from local_airflow.settings import PROJECT

SPARK = ("pyspark", "py4j", "great_expectations", "airflow")
_PROBE = """
import json, sys
from typer.testing import CliRunner
from tidefold.cli.app import app
heavy, commands = json.loads(sys.argv[1])
found = []
for command in commands:
    before = {name for name in heavy if sys.modules.get(name)}
    result = CliRunner().invoke(app, command)
    found.append([result.exit_code, [name for name in heavy if sys.modules.get(name) and name not in before]])
print(json.dumps(found))
"""


def run_and_find_loaded(
    commands: Sequence[Sequence[str]], heavy: Sequence[str] = SPARK
) -> list[tuple[int, tuple[str, ...]]]:
    """Returns for each command its exit code and which of the heavy modules it was the first to load."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROBE, json.dumps([heavy, commands])],
        env={**os.environ, "PYTHONPATH": str(PROJECT / "include")}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [(code, tuple(loaded)) for code, loaded in json.loads(done.stdout.splitlines()[-1])]
