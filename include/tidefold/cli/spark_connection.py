"""The steps of a command on a Spark Connect server: in this process, and all in one session there."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from tidefold.cli.terminal import Terminal
from tidefold.compute.connect_session import close_connected, interrupt_connected
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.spark.connect import run_connected
from tidefold.spark.steps import AnyStep

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class SparkConnection(AbstractContextManager["SparkConnection"]):
    """Within it, Ctrl-C and SIGTERM cancel what the server does for this process, and then end the process."""

    def __init__(self, terminal: Terminal, pipeline: Pipeline) -> None:
        self._terminal = terminal
        self._pipeline = pipeline
        self._handlers = {number: signal.signal(number, _interrupt) for number in _SIGNALS}

    def __exit__(self, *error: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        close_connected()

    def run_step(self, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
        """Returns one outcome for each log."""
        self._terminal.note(f"{step.name}: the Spark Connect server works on {', '.join(logs)}")
        began = time.monotonic()
        outcomes = run_connected(self._pipeline, step, logs)
        self._terminal.note(f"{step.name}: Spark done after {time.monotonic() - began:.0f} s")
        return outcomes


def _interrupt(number: int, frame: Any) -> None:
    interrupt_connected()
    raise KeyboardInterrupt
