"""Commands as a terminal runs them, in the folder where the test is."""

from __future__ import annotations

from click.testing import Result
from typer.testing import CliRunner

from tidefold.cli.app import app


def call(*words: str, code: int | None = 0) -> Result:
    """Runs a command, and asserts its exit code. None: any."""
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(words))
    assert code is None or done.exit_code == code, done.output
    return done
