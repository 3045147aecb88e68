"""What `tidefold run` says at its end about a log that the gate held."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer

from tidefold.cli.full_run import print_next_steps
from tidefold.cli.output.outcomes import print_lines
from tidefold.cli.terminal import Format, Terminal
from tidefold.errors import NotFoundError
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.requests import Fold
from tidefold.spark.full_run import FullRun


class Notes:
    """A terminal that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_log_that_failed_the_gate_gets_its_next_steps() -> None:
    terminal = Notes()
    sets = {"held": SimpleNamespace(logs=("other", "held"))}
    config = SimpleNamespace(set_of=sets.get)
    run = FullRun(cast(Any, SimpleNamespace(config=config)), Fold("r1"), cast(Any, None))
    run.outcomes["quality"] = [
        Outcome("good", Status.PASSED, ""),
        Outcome("alone", Status.FAILED, "row count 1 < 50"),
        Outcome("held", Status.FAILED, "row count 1 < 50"),
    ]
    print_next_steps(cast(Any, terminal), run)
    alone, held = terminal.notes
    assert "`tidefold snapshot report alone`" in alone
    assert "`tidefold step materialize alone`" in alone
    assert "`tidefold step confirm alone --override-by NAME --reason REASON`" in alone
    # The tables of a set are published together.
    assert "`tidefold step materialize other held`" in held
    assert "`tidefold step confirm held --override-by NAME --reason REASON`" in held


def test_an_error_of_a_log_and_one_of_the_command_have_one_layout(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(Path("tidefold.yaml"), Format.TEXT, debug=False)
    error = NotFoundError("SNAPSHOT_UNKNOWN", "There is no snapshot 9.", hint="See `tidefold snapshot history`.")
    print_lines(terminal, [Outcome.of_error("accounts", error)])
    with pytest.raises(typer.Exit), terminal.errors():
        raise error
    assert capsys.readouterr().err.splitlines() == [
        "error accounts: [SNAPSHOT_UNKNOWN] There is no snapshot 9.",
        "next: See `tidefold snapshot history`.",
        "error [SNAPSHOT_UNKNOWN] There is no snapshot 9.",
        "next: See `tidefold snapshot history`.",
    ]
