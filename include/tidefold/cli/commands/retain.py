"""Delete what nothing needs; alone, it only prints the plan.

subsume retires old snapshots, truncate deletes the log before those that are kept, compact merges changes that wait,
and clean deletes what dead runs left. drop deletes a whole log.

Example: tidefold retain, then tidefold retain subsume, then tidefold retain truncate
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from tidefold.cli.output.outcomes import act_on_logs, exit_code, print_lines, print_outcomes, print_removals
from tidefold.cli.terminal import DryRun, Log, Logs, Terminal, choose_logs
from tidefold.operations.ground.outcome import Outcome, Status, for_each_log

Local = Annotated[bool, typer.Option("--local", help="Delete local copies instead, except the newest of each log.")]


def plan(terminal: Terminal, logs: Logs = None) -> int:
    """Print what each command of this group would do now. Change nothing.

    Each plan counts from the present state: after subsume, truncate can delete more. `--dry-run` of a command also
    lists the files. Starts no Spark.

    `tidefold retain` is the same.

    Example: tidefold retain plan accounts

    Next: tidefold retain subsume, then tidefold retain truncate
    """
    from tidefold.operations.local_copies.manage import retain_local
    from tidefold.operations.retention.clean import clean
    from tidefold.operations.retention.subsume import subsume
    from tidefold.operations.retention.truncate import truncate_logs
    from tidefold.operations.snapshot.compact_log import compact_log

    pipeline = terminal.pipeline()
    chosen = choose_logs(pipeline, logs)

    def plan_each(act: Callable[..., Outcome]) -> list[Outcome]:
        return for_each_log(chosen, partial(act, pipeline, plan=True))

    plans = {
        "subsume": plan_each(subsume),
        "truncate": truncate_logs(pipeline, chosen, plan=True),
        "compact": plan_each(compact_log),
        "clean": clean(pipeline, chosen, plan=True),
        "clean --local": retain_local(pipeline, chosen, plan=True),
    }
    for name, outcomes in plans.items():
        due = [one for one in outcomes if one.status is not Status.NOTHING]
        terminal.line(name if due else f"{name}: nothing")
        print_lines(terminal, due, indent="  ")
    code = exit_code(one for outcomes in plans.values() for one in outcomes)
    listed = {name: [one.to_dict() for one in outcomes] for name, outcomes in plans.items()}
    terminal.json({"command": terminal.command, "exit_code": code, "plans": listed})
    return code


def subsume(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Retire completed snapshots beyond `retention.snapshots`, and delete the files that only they need.

    Tagged and held snapshots stay. With `retention.snapshots: all` nothing is retired. Starts no Spark.

    Example: tidefold retain subsume --dry-run

    Next: tidefold retain truncate
    """
    from tidefold.operations.retention.subsume import subsume as act

    return print_removals(terminal, act_on_logs(terminal, logs, act, dry_run))


def truncate(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Delete the part of the log that no snapshot needs, and the segments that nothing needs.

    Prints each reason why a part of the log is kept, and which one keeps the most. The log keeps the change sets that a
    retained snapshot, a tail, an open attempt, a hold, a consumer or a replay needs. The command also deletes old
    ledger versions. Starts no Spark.

    Example: tidefold retain truncate accounts --dry-run

    Next: tidefold status
    """
    from tidefold.operations.retention.truncate import truncate_logs

    pipeline = terminal.pipeline()
    return print_removals(terminal, truncate_logs(pipeline, choose_logs(pipeline, logs), dry_run))


def compact(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Merge waiting change sets: keep only the last change of each key.

    Useful if many small change sets wait, or if the same keys change often: the next materialize and read --live then
    read less. Every snapshot and every replay still gives the same rows. tidefold never merges change sets before and
    after the end of a snapshot or the position of a consumer. Refused records and counts stay. Starts no Spark.

    Example: tidefold retain compact accounts --dry-run

    Next: tidefold retain truncate, which deletes the replaced segments
    """
    from tidefold.operations.snapshot.compact_log import compact_log

    after = "" if dry_run else "tidefold retain truncate"
    return print_outcomes(terminal, act_on_logs(terminal, logs, compact_log, dry_run), after=after)


def clean(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False, local: Local = False) -> int:
    """Delete what dead runs left behind: unfinished ingests, aborted attempts.

    An ingest announces its files before it writes them. clean ends unfinished ingests: it commits their results to the
    logs, or rejects them for good. It leaves an ingest without results alone for an hour. Then clean deletes the files
    that no log needs. It never touches files that a log names. Starts no Spark.

    --local deletes all local copies except the copy of each log's newest completed snapshot, and of a snapshot that is
    being judged. It touches only files below this pipeline's folder in `local.path` or `local.paths`, never the store.
    If it cannot delete a file, it reports a warning. On a Spark cluster each host has its own copies. There it deletes
    those of this machine, and lists the other hosts whose copies are older than the newest ones.

    Example: tidefold retain clean --dry-run

    Example: tidefold retain clean --local

    Next: tidefold step ingest, which ingests the rejected files again
    """
    from tidefold.operations.local_copies.manage import retain_local
    from tidefold.operations.retention.clean import clean as clean_store

    pipeline = terminal.pipeline()
    act = retain_local if local else clean_store
    return print_removals(terminal, act(pipeline, choose_logs(pipeline, logs), dry_run))


def drop(
    terminal: Terminal,
    log: Log,
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Without it, only the plan is printed.")] = False,
) -> int:
    """Delete a log and everything that only it needs: table, snapshots, segments, reports, quarantine, ledger.

    Landed files stay. The log need not be configured any more. This cannot be undone. Starts no Spark.

    Example: tidefold retain drop accounts --yes

    Next: tidefold step ingest LOG starts the log again
    """
    from tidefold.operations.retention.clean import drop as act

    after = "" if yes else f"tidefold retain drop {log} --yes"
    return print_removals(terminal, [act(terminal.pipeline(), log, plan=not yes)], after=after)
