"""What a run asks for when it may take over attempts of others that show no progress."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from tidefold.cli.terminal import Terminal
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.heartbeat import find_stalled
from tidefold.operations.snapshot.request import Asking

_PROGRESS_SECONDS = 5.0


def asking_for(
    terminal: Terminal, pipeline: Pipeline, logs: Sequence[str], asking: Asking, patience: float | None
) -> Asking:
    """The asking, with the attempts that showed no progress for `patience` seconds (None: nobody is waited for)."""
    if patience is None or asking.run is None:
        return asking

    def wait(seconds: float) -> None:
        terminal.note(f"materialize: waiting {seconds:.0f} s for a sign of life of another run's attempt")
        _sleep(terminal, seconds)

    stalled = find_stalled(pipeline, logs, asking.run, patience, wait)
    for log, attempt in stalled.items():
        terminal.note(f"{log}: taking over snapshot {attempt.id} of run {attempt.run}, which shows no progress")
    return replace(asking, stalled=stalled)


def _sleep(terminal: Terminal, seconds: float) -> None:
    """Says every few seconds that it still waits."""
    begun = time.monotonic()
    while (left := seconds - (time.monotonic() - begun)) > 0:
        time.sleep(min(left, _PROGRESS_SECONDS))
        if left > _PROGRESS_SECONDS:
            terminal.note(f"materialize: still waiting, {time.monotonic() - begun:.0f} s")
