"""`tidefold report`: prints the address of a quality report."""

from __future__ import annotations

from tidefold.cli.options import Log, SnapshotId
from tidefold.cli.terminal import Terminal


def report(terminal: Terminal, log: Log, snapshot: SnapshotId = None) -> None:
    """Print the address of the newest quality report of a log.

    The report is one self-contained HTML page. --snapshot selects the report of one snapshot.

    Example: xdg-open "$(tidefold report accounts)"

    Next: tidefold confirm LOG, or tidefold abort LOG
    """
    from tidefold.operations.inspect.history import newest_report

    pipeline = terminal.pipeline()
    found, address = newest_report(pipeline, pipeline.log(log).id, snapshot)
    passed = bool(found.verdict and found.verdict.passed)
    terminal.result({"log": log, "snapshot": found.id, "passed": passed, "report": address}, address)
