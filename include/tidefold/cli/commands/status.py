"""`tidefold status`: shows the state of each log."""

from __future__ import annotations

from dataclasses import asdict

from tidefold.cli.options import Logs
from tidefold.cli.terminal import Terminal, choose_logs


def status(terminal: Terminal, logs: Logs = None) -> int:
    """Show the state of each log.

    Shows the published snapshot, the open attempt, changes that are not folded yet, source positions, refused records,
    and why the newest snapshot was not published. It also shows the newest tail, holds, consumers, segments to delete,
    local copies, the newest proof of the files (scrub, verify) and the newest restore drill. A proof or drill older
    than 35 days is marked OLD. ALARM marks each value over a threshold of `alarms` in the configuration. A set shows
    its point, its lag, its slowest log, and why it waits. Starts no Spark.

    Example: tidefold status accounts --format json

    Next: tidefold history LOG, tidefold report LOG
    """
    from tidefold.cli.output.outcomes import exit_code
    from tidefold.operations.inspect.status import status as read_status
    from tidefold.operations.local_copies.inventory import local_use
    from tidefold.operations.pipeline import now
    from tidefold.operations.sets.status import read_sets, set_lines
    from tidefold.presentation.proofs import describe_status, proof_lines
    from tidefold.presentation.tables import alarm_lines, local_lines, position_table, remarks, status_table

    pipeline = terminal.pipeline()
    found = read_status(pipeline, choose_logs(pipeline, logs), proofs=True)
    parts = [
        status_table(found),
        "",
        *([position_table(found), ""] if any(p.next_offset for s in found for p in s.positions) else []),
    ]
    use = local_use(pipeline)
    sets = read_sets(pipeline, found)
    data = {
        "logs": [describe_status(s) for s in found],
        "sets": [asdict(one) for one in sets],
        "local": asdict(use) if use else None,
    }
    lines = [line for s in found for line in proof_lines(s, now())]
    of_sets = [line for one in sets for line in set_lines(one)]
    terminal.result(data, *parts, *alarm_lines(found), *of_sets, *remarks(found), *lines, *local_lines(use))
    return exit_code(s.error for s in found if s.error)
