"""`tidefold as-of`: makes, judges and keeps a snapshot of each log with the rows of a past instant."""

from __future__ import annotations

from tidefold.cli.options import At, DryRun, Logs, RunId, Takeover, run_id
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal, choose_logs
from tidefold.cli.whole_set import OfSet, WholeSet, require_no_log


def as_of(
    terminal: Terminal,
    at: At,
    logs: Logs = None,
    run: RunId = None,
    takeover: Takeover = False,
    dry_run: DryRun = False,
    of_set: OfSet = None,
) -> int:
    """Make a full snapshot of everything that the source had committed before an instant.

    Only the commit time at the source counts, not the time of arrival. The quality gate judges the snapshot. A tag
    (as-of-2026-11-05) keeps it until you run untag and subsume. tidefold never publishes it and never builds another
    snapshot on it, so the table, the log and scheduled runs are not affected. If a snapshot of that instant exists, the
    command does nothing. If the log was truncated after the instant, the command is refused and names the oldest
    possible instant. --dry-run only prints the base snapshot and the number of changes to fold. --set makes the
    snapshots of all logs of a set, and records that they belong together.

    Example: tidefold as-of accounts --at 2026-11-05T00:00:00Z

    Next: tidefold read LOG --snapshot ID, tidefold diff LOG, tidefold restore LOG ID --log-position skip
    """
    from tidefold.cli.full_run import open_run, print_run
    from tidefold.operations.outcome import for_each_log
    from tidefold.operations.snapshot.point_in_time import PointInTime, explain_point_in_time, parse_instant

    request = PointInTime(run_id(run), parse_instant(at), takeover)
    pipeline = terminal.pipeline()
    if of_set is not None:
        return WholeSet(terminal, pipeline, require_no_log(of_set, logs, dry_run)).as_of(request)
    chosen = choose_logs(pipeline, logs)
    if dry_run:
        return print_outcomes(
            terminal, "as-of", for_each_log(chosen, lambda log: explain_point_in_time(pipeline, log, request))
        )
    with open_run(terminal, pipeline, request) as whole:
        whole.fold(chosen)
    return print_run(terminal, whole, "as-of")
