"""`tidefold restore`: brings back the rows of a snapshot, in the log or elsewhere."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tidefold.cli.options import DryRun, LogOrSet, RunId, Takeover, run_id
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.output.progress import BucketLine
from tidefold.cli.output.restore import plan_lines, print_reads
from tidefold.cli.terminal import Terminal
from tidefold.cli.whole_set import OfSet, VersionNumber, WholeSet, require_log, require_no_log
from tidefold.domain.snapshot.claim import RestoreMode
from tidefold.errors import InvalidInputError

if TYPE_CHECKING:
    from tidefold.domain.key_groups import KeyGroups
    from tidefold.operations.pipeline import Pipeline
    from tidefold.operations.restore.restore import Restore

OldId = Annotated[
    int | None,
    typer.Argument(help="Id of the snapshot to restore.", metavar="SNAPSHOT", min=1, show_default=False),
]
LogPosition = Annotated[
    RestoreMode | None,
    typer.Option(
        "--log-position",
        help="Changes after the snapshot: replay folds them again later, skip leaves them out, carry does not fold "
        "those of a tail either.",
        show_default=False,
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        help="Write a separate Delta table to this empty folder or s3:// address.",
        metavar="PATH",
        show_default=False,
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        "--key-groups", help="With --to: only these key groups, such as 0-31.", metavar="A-B", show_default="all"
    ),
]
ShareOfRows = Annotated[
    str | None,
    typer.Option(
        "--share",
        help="With --to: only one worker's share, by the redistribution of the snapshot: 2/8 is the second of eight.",
        metavar="I/N",
        show_default=False,
    ),
]


def restore(
    terminal: Terminal,
    log: LogOrSet = None,
    snapshot: OldId = None,
    log_position: LogPosition = None,
    run: RunId = None,
    takeover: Takeover = False,
    dry_run: DryRun = False,
    to: To = None,
    key_groups: Groups = None,
    share: ShareOfRows = None,
    of_set: OfSet = None,
    version: VersionNumber = None,
) -> int:
    """Restore the rows of an older snapshot as a new, staged snapshot. Readers do not see it yet.

    Continue with tidefold quality and tidefold confirm, as for any snapshot. The gate compares the row count with the
    newest snapshot. If the gate fails because rows are fewer, confirm with an override. --log-position replay also sets
    the log back: the next run folds the later changes again. It is refused if those changes were truncated.
    --log-position skip leaves the later changes out for good, and records this. --log-position carry restores the base
    of a tail-only snapshot and leaves its changes in the log, to be folded by the next run. To undo a restore, restore
    again.
    Nothing is deleted. A full snapshot needs no Spark. A tail-only snapshot is folded in one Spark job.

    tidefold reads each file from the local copy. If there is none, it reads the store; if that fails, it rebuilds the
    file from an older snapshot and the log. The checksum must match, and the outcome names the source of each file.
    --dry-run prints this plan and changes nothing. --to writes the rows as a separate Delta table, and does not change
    the log. --set with --version restores all tables of a set at one point; one confirm publishes them together.

    Example: tidefold restore accounts 12 --log-position replay

    Example: tidefold restore --set bank --version 3 --log-position replay

    Example: tidefold restore accounts 12 --to /mnt/audit/accounts --key-groups 0-31

    Next: tidefold quality LOG, then tidefold confirm LOG
    """
    from tidefold.domain.snapshot.claim import RestorePoint
    from tidefold.operations.restore.restore import Restore

    pipeline = terminal.pipeline()
    if of_set is not None:
        _check_set(log_position, dry_run, to, require_no_log(of_set, log, snapshot, key_groups, share))
        whole = WholeSet(terminal, pipeline, of_set)
        return _restore_set(whole, run_id(run), version, takeover, dry_run=dry_run, to=to)
    name = pipeline.log(require_log(log, of_set, version)).id
    _check(log_position, dry_run, to, key_groups, share)
    if snapshot is None:
        hint = f"`tidefold history {name}` lists the snapshots."
        raise InvalidInputError("SNAPSHOT_MISSING", "A restore needs the id of a snapshot.", hint=hint)
    if to is not None:
        return _restore_to(terminal, pipeline, name, snapshot, to, key_groups, share)
    point = RestorePoint(snapshot, log_position or RestoreMode.REPLAY)
    request = Restore(run_id(run), point, takeover)
    if dry_run:
        return _print_plan(terminal, pipeline, name, request)
    return _restore(terminal, pipeline, name, request)


def _restore_set(
    whole: WholeSet, run: str, version: int | None, takeover: bool, *, dry_run: bool, to: str | None
) -> int:
    if to is not None:
        return whole.export(version, to)
    wanted = whole.build_restore(run, version, takeover)
    return whole.plan_restore(wanted) if dry_run else whole.restore(wanted)


def _check(
    log_position: RestoreMode | None, dry_run: bool, to: str | None, key_groups: str | None, share: str | None
) -> None:
    if to is None and log_position is None:
        message = "A restore needs --log-position, or --to to write a separate table."
        raise InvalidInputError(
            "LOG_POSITION_MISSING",
            message,
            hint="`--log-position replay` folds the later changes again; `--log-position skip` leaves them out; "
            "`--log-position carry` does not fold the changes of a tail either.",
        )
    if to is not None and (log_position is not None or dry_run):
        message = "--to does not change the log, so --log-position and --dry-run have no effect with it."
        raise InvalidInputError("LOG_POSITION_WITH_TO", message, hint="Leave them out.")
    if key_groups is not None and to is None:
        message = "--key-groups needs --to: the published table always has all key groups."
        raise InvalidInputError("KEY_GROUPS_WITHOUT_TO", message, hint="Add --to PATH.")
    if share is not None and (to is None or key_groups is not None):
        message = "--share needs --to, and works without --key-groups."
        raise InvalidInputError("SHARE_OPTIONS", message, hint="Give --to PATH --share I/N.")


def _check_set(log_position: RestoreMode | None, dry_run: bool, to: str | None, name: str) -> None:
    """Refuses to leave out changes of a set: its later versions would be no point of the source's log."""
    _check(log_position, dry_run, to, None, None)
    if log_position in (RestoreMode.REPLAY, None):
        return
    raise InvalidInputError(
        "SET_REPLAYS",
        f"The restore of set `{name}` needs `--log-position replay`: if changes are left out, later versions are no "
        "point of the source's log.",
        hint=f"Give `--log-position replay`. `tidefold restore --set {name} --to FOLDER` writes the tables elsewhere.",
    )


def _restore(terminal: Terminal, pipeline: Pipeline, log: str, request: Restore) -> int:
    from tidefold.cli.spark_submit import run_step
    from tidefold.spark.steps import MaterializeStep

    outcomes = run_step(terminal, pipeline, MaterializeStep(request), [log])
    code = print_outcomes(terminal, "restore", outcomes, after=f"tidefold quality {log}, then tidefold confirm {log}")
    print_reads(terminal, outcomes)
    return code


def _print_plan(terminal: Terminal, pipeline: Pipeline, log: str, request: Restore) -> int:
    from tidefold.operations.restore.explain import RestorePlanDetails, explain

    outcome = explain(pipeline, log, request)
    code = print_outcomes(terminal, "restore", [outcome])
    assert isinstance(outcome.details, RestorePlanDetails)
    for line in plan_lines(outcome.details):
        terminal.line(f"  {line}")
    return code


def _restore_to(
    terminal: Terminal, pipeline: Pipeline, log: str, snapshot: int, to: str, key_groups: str | None, share: str | None
) -> int:
    from tidefold.compute.runners import in_threads
    from tidefold.domain.key_groups import Share
    from tidefold.operations.restore.export import restore_to

    run = in_threads(partial(BucketLine(terminal.note), log))
    part = Share.parse(share) if share else None
    outcome = restore_to(pipeline, log, snapshot, to, _groups(key_groups), run, part)
    code = print_outcomes(terminal, "restore", [outcome])
    print_reads(terminal, [outcome])
    return code


def _groups(given: str | None) -> KeyGroups | None:
    from tidefold.domain.key_groups import KeyGroups

    if given is None:
        return None
    found = re.fullmatch(r"(\d{1,5})-(\d{1,5})", given)
    if not found:
        raise InvalidInputError(
            "KEY_GROUPS_INVALID", f"`{given}` is not a range of key groups.", hint="Write it as `0-31`."
        )
    return KeyGroups(int(found[1]), int(found[2]))
