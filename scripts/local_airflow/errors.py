"""The one error of the local Airflow: a sentence, and the end of the log that explains it."""

from __future__ import annotations

from pathlib import Path


class LocalAirflowError(Exception):
    """Something did not start, answer or stop."""

    def __init__(self, message: str, log: Path | None = None) -> None:
        super().__init__(message if log is None else f"{message}\nEnd of {log}:\n{tail(log)}")


def tail(path: Path, lines: int = 25) -> str:
    """The last lines of a log file, indented."""
    if not path.exists():
        return "  (no such file)"
    return "\n".join(f"  {line}" for line in path.read_text(errors="replace").splitlines()[-lines:])
