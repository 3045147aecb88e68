"""What `tidefold run` says at its end about a log that the gate held."""

from __future__ import annotations

from typing import Any, cast

from tidefold.cli.commands.full_run import WholeRun
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.snapshot.request import Fold


class Notes:
    """A terminal that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_log_that_failed_the_gate_gets_its_next_steps() -> None:
    terminal = Notes()
    run = WholeRun(cast(Any, terminal), cast(Any, None), Fold("r1"))
    run.steps["quality"] = [Outcome("good", Status.PASSED, ""), Outcome("held", Status.FAILED, "row count 1 < 50")]
    run.tell_next()
    [said] = terminal.notes
    assert "`tidefold report held`" in said
    assert "`tidefold confirm held --override-by NAME --reason REASON`" in said
