"""Finds the attempts of other runs that a run may take over, because they make no progress."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from tidefold.cli.terminal import Terminal
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.heartbeat import find_stalled
from tidefold.operations.snapshot.request import Fold, SnapshotRequest

_PROGRESS_SECONDS = 5.0


def find_takeovers(
    terminal: Terminal, pipeline: Pipeline, logs: Sequence[str], request: SnapshotRequest, patience: float | None
) -> SnapshotRequest:
    """Returns the request with the attempts that made no progress for `patience` seconds; None: takes over nothing."""
    if patience is None or not isinstance(request, Fold):
        return request

    def wait(seconds: float) -> None:
        terminal.note(f"materialize: waiting {seconds:.0f} s for progress of another run's attempt")
        _sleep(terminal, seconds)

    stalled = find_stalled(pipeline, logs, request.run, patience, wait)
    for log, attempt in stalled.items():
        terminal.note(f"{log}: taking over snapshot {attempt.id} of run {attempt.run}, which makes no progress")
    return msgspec.structs.replace(request, stalled=stalled)


def _sleep(terminal: Terminal, seconds: float) -> None:
    """Prints every few seconds that the command still waits."""
    begun = time.monotonic()
    while (left := seconds - (time.monotonic() - begun)) > 0:
        time.sleep(min(left, _PROGRESS_SECONDS))
        if left > _PROGRESS_SECONDS:
            terminal.note(f"materialize: still waiting, {time.monotonic() - begun:.0f} s")
