"""`tidefold restore`, `savepoint`, `import` and `resume`: rows of a snapshot, brought back or kept elsewhere."""

from __future__ import annotations

import getpass
import re
from typing import TYPE_CHECKING, Annotated

import typer

from tidefold.cli.output.outcomes import make_runner, plan_lines, print_outcomes, print_restored
from tidefold.cli.terminal import DryRun, Log, LogOrSet, RunId, SnapshotId, Takeover, Terminal, run_id
from tidefold.cli.whole_set import OfSet, VersionNumber, WholeSet, require_log, require_no_log
from tidefold.domain.external_snapshot import Layout, Ownership
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.errors import InvalidInputError

if TYPE_CHECKING:
    from tidefold.domain.key_groups import KeyGroups
    from tidefold.operations.ground.pipeline import Pipeline

OldId = Annotated[
    int | None,
    typer.Argument(help="Id of the snapshot to restore.", metavar="SNAPSHOT", min=1, show_default=False),
]
LogPosition = Annotated[
    RestoreMode | None,
    typer.Option(
        "--log-position",
        help="Changes after the snapshot: stay stops the log until `tidefold resume LOG`, skip leaves them out for "
        "good, replay lets the next run fold them again. carry: as replay, and those of a tail wait, too.",
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

    The gate compares the row count with the newest snapshot. If the gate fails because rows are fewer, confirm with an
    override. What happens to the later changes is your choice. --log-position stay: go back, and stay there until
    tidefold resume LOG. Until then the log ingests and folds nothing. --log-position skip: go back, and leave the later
    changes out for good. If a landed file was wrong, choose skip; then land its rows, and those of later files, in new
    files. --log-position replay, for repairs: make the table again from this snapshot; the next run, perhaps a
    scheduled one, folds the later changes again. stay and replay are refused if those changes were truncated. The
    outcome names the change sets. --log-position carry restores the base of a tail-only snapshot and leaves its changes
    in the log, to be folded by the next run. To undo a restore, restore again. Nothing is deleted. A tail-only snapshot
    is folded in one Spark job; a full one needs no Spark.

    tidefold reads each file from the local copy. If there is none, it reads the store; if that fails, it rebuilds the
    file from an older snapshot and the log. The checksum must match, and the outcome names the source of each file.
    --dry-run prints this plan and changes nothing. --to writes the rows as a separate Delta table, and does not change
    the log. --set with --version restores all tables of a set at one point; one confirm publishes them together.

    Example: tidefold restore accounts 12 --log-position stay

    Example: tidefold restore --set bank --version 3 --log-position replay

    Next: tidefold quality LOG, then tidefold confirm LOG
    """
    pipeline, mode = terminal.pipeline(), log_position or RestoreMode.REPLAY
    if of_set is not None:
        require_no_log(of_set, log, snapshot, key_groups, share)
    name = of_set or pipeline.log(require_log(log, of_set, version)).id
    _check(log_position, dry_run, to, key_groups, share)
    if of_set is not None:
        whole = WholeSet(terminal, pipeline, of_set)
        return whole.export(version, to) if to else whole.restore(run_id(run), version, takeover, mode, dry_run)
    if snapshot is None:
        raise InvalidInputError("SNAPSHOT_MISSING", "A restore needs the id of a snapshot.")
    if to is not None:
        return _restore_to(terminal, pipeline, name, snapshot, to, key_groups, share)
    return _restore(terminal, pipeline, name, RestorePoint(snapshot, mode), run_id(run), takeover, dry_run)


def _check(
    log_position: RestoreMode | None, dry_run: bool, to: str | None, key_groups: str | None, share: str | None
) -> None:
    if to is None and log_position is None:
        message = "A restore needs --log-position, or --to to write a separate table."
        raise InvalidInputError("LOG_POSITION_MISSING", message)
    if to is not None and (log_position is not None or dry_run):
        message = "--to does not change the log, so --log-position and --dry-run have no effect with it."
        raise InvalidInputError("LOG_POSITION_WITH_TO", message)
    if key_groups is not None and to is None:
        message = "--key-groups needs --to: the published table always has all key groups."
        raise InvalidInputError("KEY_GROUPS_WITHOUT_TO", message)
    if share is not None and (to is None or key_groups is not None):
        message = "--share needs --to, and works without --key-groups."
        raise InvalidInputError("SHARE_OPTIONS", message)


def _restore(
    terminal: Terminal, pipeline: Pipeline, log: str, point: RestorePoint, run: str, takeover: bool, dry_run: bool
) -> int:
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.restore.restore import Restore, RestorePlanDetails, explain
    from tidefold.spark.steps import MaterializeStep

    request = Restore(run, point, takeover, by=getpass.getuser())
    if dry_run:
        outcome = explain(pipeline, log, request)
        code = print_outcomes(terminal, "restore", [outcome])
        assert isinstance(outcome.details, RestorePlanDetails)
        for line in plan_lines(outcome.details):
            terminal.line(f"  {line}")
        return code
    outcomes = run_step(terminal, pipeline, MaterializeStep(request), [log])
    return print_restored(terminal, "restore", outcomes, after=f"tidefold quality {log}, then tidefold confirm {log}")


def _restore_to(
    terminal: Terminal, pipeline: Pipeline, log: str, snapshot: int, to: str, key_groups: str | None, share: str | None
) -> int:
    from tidefold.domain.key_groups import Share
    from tidefold.operations.restore.export import restore_to

    part = Share.parse(share) if share else None
    outcome = restore_to(pipeline, log, snapshot, to, _groups(key_groups), make_runner(terminal, log), part)
    return print_restored(terminal, "restore", [outcome])


def _groups(text: str | None) -> KeyGroups | None:
    from tidefold.domain.key_groups import KeyGroups

    if text is None:
        return None
    span = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    if not span:
        raise InvalidInputError(
            "KEY_GROUPS_INVALID", f"`{text}` is not a range of key groups.", hint="Write it as `0-31`."
        )
    return KeyGroups(int(span[1]), int(span[2]))


SaveTo = Annotated[
    str | None,
    typer.Option(
        "--to",
        help="Folder or s3:// address that does not exist or is empty.",
        metavar="ADDRESS",
        show_default="a folder in `snapshots.savepoints`",
    ),
]
SavedLayout = Annotated[
    Layout, typer.Option("--as", help="native: a Delta table of the snapshot's own files; canonical: plain Parquet.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite-unfinished", help="Replace an unfinished savepoint at this address.")
]
Stop = Annotated[
    bool, typer.Option("--stop", help="First stop the log; fold, judge and confirm its changes. See resume.")
]


By = Annotated[str | None, typer.Option("--by", help="With --stop: who stops it.", show_default="your user name")]
StopReason = Annotated[str, typer.Option("--reason", help="With --stop: the reason.")]


def savepoint(
    terminal: Terminal,
    log: Log,
    to: SaveTo = None,
    snapshot: SnapshotId = None,
    layout: SavedLayout = Layout.NATIVE,
    overwrite: Overwrite = False,
    stop: Stop = False,
    by: By = None,
    reason: StopReason = "a savepoint was asked for",
    takeover: Takeover = False,
) -> int:
    """Write a copy of a completed snapshot to an address of your choice. tidefold never deletes it.

    The default is the newest completed snapshot. A tail-only snapshot is folded during the write. --as native writes a
    self-contained Delta table with copies of the snapshot's files. --as canonical writes plain Parquet for any engine.
    tidefold verifies all bytes. It writes savepoint.json last: a folder without it is not a savepoint. --stop first
    stops the log, then folds, judges, confirms and saves its changes. After an interruption, call the same command
    again to continue. Starts Spark only with --stop.

    Example: tidefold savepoint accounts --to /backup/accounts-may --as canonical

    Next: tidefold import LOG ADDRESS; after --stop: tidefold resume LOG
    """
    from tidefold.cli.full_run import save_stopped
    from tidefold.operations.ingest.stop_resume import stop as stop_log
    from tidefold.operations.restore.target_location import open_place
    from tidefold.operations.savepoint.take import SavepointRequest, take_savepoint

    pipeline = terminal.pipeline()
    log_id = pipeline.log(log).id
    wanted = SavepointRequest(to, snapshot, layout, overwrite)
    if not stop:
        return print_outcomes(terminal, "savepoint", [take_savepoint(pipeline, log_id, wanted, terminal.note)])
    if snapshot is not None:
        message = "--stop saves the state at the stop, so --snapshot cannot choose another one."
        raise InvalidInputError("SAVEPOINT_OPTIONS", message, hint="Leave out --snapshot or --stop.")
    if to is None:
        # The command may have to be called again with the same one.
        raise InvalidInputError("SAVEPOINT_OPTIONS", "--stop needs --to.", hint="Give --to ADDRESS.")
    stopped = stop_log(pipeline, log_id, open_place(pipeline, to).address, by or getpass.getuser(), reason)
    return save_stopped(terminal, pipeline, log_id, wanted, stopped, takeover)


OriginalAddress = Annotated[
    str, typer.Argument(help="Folder or s3:// address of a savepoint, or of a full snapshot in another store.")
]
ClaimMode = Annotated[
    Ownership,
    typer.Option(
        "--claim-mode",
        help="no-claim: never touch the original; claim: delete it when retired; legacy: use and keep it.",
    ),
]


def import_(
    terminal: Terminal,
    log: Log,
    address: OriginalAddress,
    claim_mode: ClaimMode = Ownership.NO_CLAIM,
    run: RunId = None,
    takeover: Takeover = False,
) -> int:
    """Import a snapshot from outside the store as a new, staged snapshot. Readers do not see it yet.

    ADDRESS is a savepoint of any store, or a full snapshot in another store (STORE/snapshots/LOG/ID). tidefold checks
    its description, columns, key and files before it changes anything. Continue with tidefold quality and tidefold
    confirm. A new log continues where the savepoint ends. If the log has changes that are not folded yet, the import
    leaves them out for good and records this. To undo an import, restore the snapshot before it.

    --claim-mode no-claim (default) never touches the original; you may delete it after the import is confirmed.
    --claim-mode claim takes ownership of the original and deletes it when the snapshot is retired. --claim-mode legacy
    uses its files and never deletes them. Starts Spark only for large canonical savepoints.

    Example: tidefold import accounts /backup/accounts-may

    Next: tidefold quality LOG, then tidefold confirm LOG
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.ground.originals import open_address
    from tidefold.operations.requests import Import
    from tidefold.spark.steps import MaterializeStep

    pipeline = terminal.pipeline()
    request = Import(run_id(run), open_address(address).address, claim_mode, takeover)
    outcomes = run_step(terminal, pipeline, MaterializeStep(request), [pipeline.log(log).id])
    return print_outcomes(terminal, "import", outcomes, after=f"tidefold quality {log}, then tidefold confirm {log}")


def resume(terminal: Terminal, log: Log) -> int:
    """Let a log accept changes again after savepoint --stop, or after restore --log-position stay.

    The next ingest also ingests the files that landed during the stop. Starts no Spark.

    Example: tidefold resume accounts

    Next: tidefold run LOG
    """
    from tidefold.operations.ingest.stop_resume import resume as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "resume", [act(pipeline, pipeline.log(log).id)], after=f"tidefold run {log}")
