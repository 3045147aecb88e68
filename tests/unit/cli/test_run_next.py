"""What `tidefold run` says at its end about a log that the gate held."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import typer

from tidefold.cli.full_run import print_next_steps
from tidefold.cli.output.outcomes import print_lines
from tidefold.cli.terminal import Format, Terminal
from tidefold.errors import NotFoundError
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.snapshot.request import Fold
from tidefold.spark.full_run import FullRun


class Notes:
    """A terminal that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_log_that_failed_the_gate_gets_its_next_steps() -> None:
    terminal = Notes()
    run = FullRun(cast(Any, None), Fold("r1"), cast(Any, None))
    run.outcomes["quality"] = [Outcome("good", Status.PASSED, ""), Outcome("held", Status.FAILED, "row count 1 < 50")]
    print_next_steps(cast(Any, terminal), run)
    [said] = terminal.notes
    assert "`tidefold report held`" in said
    assert "`tidefold confirm held --override-by NAME --reason REASON`" in said


def test_an_error_of_a_log_and_one_of_the_command_have_one_layout(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(Path("tidefold.yaml"), Format.TEXT, debug=False)
    error = NotFoundError("SNAPSHOT_UNKNOWN", "There is no snapshot 9.", hint="See `tidefold history`.")
    print_lines(terminal, [Outcome.of_error("accounts", error)])
    with pytest.raises(typer.Exit), terminal.errors():
        raise error
    assert capsys.readouterr().err.splitlines() == [
        "error accounts: [SNAPSHOT_UNKNOWN] There is no snapshot 9.",
        "next: See `tidefold history`.",
        "error [SNAPSHOT_UNKNOWN] There is no snapshot 9.",
        "next: See `tidefold history`.",
    ]
