"""Savepoints, imports, exports; stop, resume or rebuild a log.

savepoint writes a copy that tidefold never deletes, and stops the log with --stop. import brings a copy in. export
writes a table of its own. resume lets a stopped log continue. rebuild makes a lost ledger or table again.

Example: tidefold move savepoint accounts --to /backup/accounts-may
"""

from __future__ import annotations

import getpass
import re
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tidefold.cli.output.outcomes import act_on_log, make_runner, print_outcomes, print_restored
from tidefold.cli.terminal import Log, LogOrSet, OptionalSnapshot, RunId, SnapshotId, Takeover, Terminal, run_id
from tidefold.cli.whole_set import OfSet, VersionNumber, name_target
from tidefold.domain.external_snapshot import Layout, Ownership
from tidefold.errors import CorruptError, InvalidInputError
from tidefold.operations.ground.outcome import Status

if TYPE_CHECKING:
    from tidefold.domain.key_groups import KeyGroups
    from tidefold.operations.ground.pipeline import Pipeline

SaveTo = Annotated[
    str | None,
    typer.Option(
        "--to", help="A new or empty folder or s3:// address; default: in `snapshots.savepoints`.", metavar="ADDRESS"
    ),
]
SavedLayout = Annotated[Layout, typer.Option("--as", help="native: a Delta table; canonical: plain Parquet.")]
Overwrite = Annotated[bool, typer.Option("--overwrite-unfinished", help="Replace an unfinished one there.")]
Stop = Annotated[bool, typer.Option("--stop", help="First stop the log, and publish its changes. See resume.")]
By = Annotated[str | None, typer.Option("--by", help="With --stop: who stops it.", show_default="your user name")]
StopReason = Annotated[str, typer.Option("--reason", help="With --stop: the reason.")]
OriginalAddress = Annotated[str, typer.Argument(help="A savepoint, or a full snapshot in another store.")]
ClaimMode = Annotated[Ownership, typer.Option("--claim-mode", help="Who owns the files of the original; see above.")]
To = Annotated[str, typer.Option("--to", help="An empty folder or s3:// address.", metavar="PATH")]
Groups = Annotated[str | None, typer.Option("--key-groups", help="Only these, such as 0-31.", metavar="A-B")]
ShareOfRows = Annotated[str | None, typer.Option("--share", help="Only the part of worker I of N: 2/8.", metavar="I/N")]
Yes = Annotated[bool, typer.Option("--yes", help="Write it. Without it, only the plan is printed.")]
Table = Annotated[bool, typer.Option("--table", help="Make the lost published table of LOG again, not the ledger.")]
PlanOnly = Annotated[bool, typer.Option("--dry-run", help="Change nothing: print the plan. This is also the default.")]


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
    """Write a copy of a snapshot, which tidefold never deletes.

    The default is the newest completed snapshot. A tail-only snapshot is folded during the write. --as native writes a
    self-contained Delta table with copies of the snapshot's files. --as canonical writes plain Parquet for any engine.
    tidefold verifies all bytes. It writes savepoint.json last: a folder without it is not a savepoint. --stop first
    stops the log, then folds, judges, confirms and saves its changes. After an interruption, call the same command
    again to continue. Needs Spark only with --stop, above `spark.above` bytes.

    Example: tidefold move savepoint accounts --to /backup/accounts-may --as canonical

    Next: tidefold move import LOG ADDRESS; after --stop: tidefold move resume LOG
    """
    from tidefold.cli.full_run import save_stopped
    from tidefold.operations.ingest.stop_resume import stop as stop_log
    from tidefold.operations.restore.target_location import open_place
    from tidefold.operations.savepoint.take import SavepointRequest, take_savepoint

    pipeline = terminal.pipeline()
    log_id = pipeline.log(log).id
    wanted = SavepointRequest(to, snapshot, layout, overwrite)
    if not stop:
        return print_outcomes(terminal, [take_savepoint(pipeline, log_id, wanted, terminal.note)])
    if snapshot is not None:
        message = "--stop saves the state at the stop, so --snapshot cannot choose another one."
        raise InvalidInputError("SAVEPOINT_OPTIONS", message, hint="Leave out --snapshot or --stop.")
    if to is None:
        # The command may have to be called again with the same one.
        raise InvalidInputError("SAVEPOINT_OPTIONS", "--stop needs --to.", hint="Give --to ADDRESS.")
    stopped = stop_log(pipeline, log_id, open_place(pipeline, to).address, by or getpass.getuser(), reason)
    return save_stopped(terminal, pipeline, log_id, wanted, stopped, takeover)


def import_(
    terminal: Terminal,
    log: Log,
    address: OriginalAddress,
    claim_mode: ClaimMode = Ownership.NO_CLAIM,
    run: RunId = None,
    takeover: Takeover = False,
) -> int:
    """Bring in a savepoint or a snapshot of another store, staged.

    Readers do not see it yet. ADDRESS is a savepoint of any store, or a full snapshot in another store
    (STORE/snapshots/LOG/ID). tidefold checks its description, columns, key and files before it changes anything.
    Continue with tidefold step quality and tidefold step confirm. A new log continues where the savepoint ends. If the
    log has changes that are not folded yet, the import leaves them out for good and records this. To undo an import,
    restore the snapshot before it.

    --claim-mode no-claim (default) never touches the original; you may delete it after the import is confirmed.
    --claim-mode claim takes ownership of the original and deletes it when the snapshot is retired. --claim-mode legacy
    uses its files and never deletes them. Starts Spark only for large canonical savepoints.

    Example: tidefold move import accounts /backup/accounts-may

    Next: tidefold step quality LOG, then tidefold step confirm LOG
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.ground.originals import open_address
    from tidefold.operations.requests import Import
    from tidefold.spark.steps import MaterializeStep

    pipeline = terminal.pipeline()
    request = Import(run_id(run), open_address(address).address, claim_mode, takeover)
    outcomes = run_step(terminal, pipeline, MaterializeStep(request), [pipeline.log(log).id])
    return print_outcomes(terminal, outcomes, after=f"tidefold step quality {log}, then tidefold step confirm {log}")


def resume(terminal: Terminal, log: Log) -> int:
    """Let a stopped log accept changes again.

    savepoint --stop, and restore --log-position stay, stop a log. The next ingest also ingests the files that landed
    during the stop. Starts no Spark.

    Example: tidefold move resume accounts

    Next: tidefold run LOG
    """
    from tidefold.operations.ingest.stop_resume import resume as act

    return act_on_log(terminal, log, act, after=f"tidefold run {log}")


def export(
    terminal: Terminal,
    to: To,
    log: LogOrSet = None,
    snapshot: OptionalSnapshot = None,
    key_groups: Groups = None,
    share: ShareOfRows = None,
    of_set: OfSet = None,
    version: VersionNumber = None,
) -> int:
    """Write the rows of a snapshot as a separate Delta table.

    Does not change the log. tidefold reads each file as a restore does: from the local copy, the store, or an older
    snapshot and the log. --set writes all tables of a set's version. Starts no Spark.

    Example: tidefold move export accounts 12 --to /data/accounts-12

    Next: read it with any Delta reader
    """
    from tidefold.domain.key_groups import Share
    from tidefold.operations.restore.export import restore_to
    from tidefold.operations.sets.restore import export_set, find_earlier_version

    pipeline, name = terminal.pipeline(), name_target(log, of_set, version, snapshot, key_groups, share)
    if of_set is not None:
        earlier = find_earlier_version(pipeline, name, version)
        return print_restored(terminal, export_set(pipeline, earlier, to, partial(make_runner, terminal)))
    if snapshot is None:
        raise InvalidInputError("SNAPSHOT_MISSING", "An export needs the id of a snapshot.")
    if share and key_groups:
        raise InvalidInputError("SHARE_OPTIONS", "--share and --key-groups exclude each other.")
    part, runner = Share.parse(share) if share else None, make_runner(terminal, name)
    outcome = restore_to(pipeline, pipeline.log(name).id, snapshot, to, _groups(key_groups), runner, part)
    return print_restored(terminal, [outcome])


def _groups(text: str | None) -> KeyGroups | None:
    from tidefold.domain.key_groups import KeyGroups

    if text is None:
        return None
    span = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    if not span:
        message = f"`{text}` is not a range of key groups."
        raise InvalidInputError("KEY_GROUPS_INVALID", message, hint="Write it as `0-31`.")
    return KeyGroups(int(span[1]), int(span[2]))


def rebuild(
    terminal: Terminal,
    log: LogOrSet = None,
    yes: Yes = False,
    dry_run: PlanOnly = False,
    of_set: OfSet = None,
    table: Table = False,
) -> int:
    """Make a lost ledger, or a lost published table, again.

    Also a ledger that is older than the tables. Use it only if you have no newer copy of logs/LOG. The manifests and
    the commits of the table tell the command which snapshots exist, and from which position ingest has to read the
    source again. Verdicts, tags, holds and counts of refused records are lost. The command aborts snapshots that were
    never published. Starts no Spark.

    --set rebuilds the ledger of a set from the commits of its tables. Rebuild the ledgers of its logs first.

    --table publishes the newest completed snapshot as version 0 of a new table. Files that only the table had come from
    copies on this machine, else their rows from an older snapshot and the log; the gate judges those.

    Example: tidefold move rebuild accounts --yes

    Example: tidefold move rebuild accounts --table --yes

    Example: tidefold move rebuild --set bank --yes

    Next: tidefold check verify LOG, then tidefold step ingest LOG, which ingests again what landed after the newest
    snapshot
    """
    from tidefold.operations.restore.rebuild import RebuildDetails
    from tidefold.operations.restore.rebuild import rebuild as act
    from tidefold.operations.sets.read import RebuiltSetDetails, rebuild_set

    pipeline, plan, name = terminal.pipeline(), dry_run or not yes, name_target(log, of_set, None, table)
    if table:
        return _rebuild_table(terminal, pipeline, name, plan)
    outcome = act(pipeline, name, plan) if of_set is None else rebuild_set(pipeline, name, plan)
    after = f"tidefold move rebuild {'' if of_set is None else '--set '}{name} --yes" if plan else ""
    unknown = outcome.details.unknown if isinstance(outcome.details, RebuildDetails | RebuiltSetDetails) else ()
    lines = [f"not known any more: {one}" for one in unknown]
    return print_outcomes(terminal, [outcome], after=after, below=lambda outcome: lines)


def _rebuild_table(terminal: Terminal, pipeline: Pipeline, log: str, plan: bool) -> int:
    from tidefold.operations.restore.rebuild import rebuild_table

    try:
        after = f"tidefold move rebuild {log} --table --yes" if plan else ""
        return print_outcomes(terminal, [rebuild_table(pipeline, log, plan)], after=after)
    except CorruptError as error:
        if plan or error.code != "TABLE_FILES_LOST" or pipeline.config.set_of(log):
            raise
        terminal.note(f"{error.message} Their rows are made again.")
    snapshot = _restore_newest(terminal, pipeline, log)
    return print_outcomes(terminal, [rebuild_table(pipeline, log, plan, snapshot)]) if snapshot else 5


def _restore_newest(terminal: Terminal, pipeline: Pipeline, log: str) -> int | None:
    """Stages and judges the rows of the newest completed snapshot. Returns the new one; None: that failed."""
    from tidefold.cli.output.outcomes import print_lines
    from tidefold.cli.spark_submit import SparkApplication
    from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
    from tidefold.operations.restore.restore import Restore
    from tidefold.spark.steps import MaterializeStep, QualityStep

    latest = pipeline.ledger(log).read().latest
    assert latest
    request = Restore(run_id(None), RestorePoint(latest.id, RestoreMode.REPLAY), by=getpass.getuser())
    with SparkApplication(terminal, pipeline) as application:
        for step in (MaterializeStep(request), QualityStep(request.run)):
            [outcome] = application.run_step(step, [log])
            print_lines(terminal, [outcome])
            if outcome.error or outcome.status is Status.FAILED:
                return None
    return outcome.snapshot
