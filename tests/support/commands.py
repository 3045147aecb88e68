"""Commands as a terminal runs them, in the folder where the test is."""

from __future__ import annotations

import json
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from tidefold.cli.app import app


def call(*words: str, code: int | None = 0) -> Result:
    """Runs a command, and asserts its exit code. None: any."""
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(words))
    assert code is None or done.exit_code == code, done.output
    return done


def attempt(*words: str) -> Result:
    """Runs a command under the name of the program, whatever its exit code."""
    return CliRunner().invoke(app, list(words), prog_name="tidefold")


def call_json(*words: str) -> Any:
    """Returns what a command prints on stdout, which must be one JSON object and nothing else."""
    return json.loads(attempt(*words, "--format", "json").stdout)
