"""The commands that prove stored files and make lost ledgers again: `verify`, `scrub`, `drill` and `rebuild`."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from tidefold.cli.output.outcomes import ProgressLine, make_runner, print_outcomes, print_restored, print_verified
from tidefold.cli.terminal import LogOrSet, Logs, SnapshotId, Terminal, choose_logs, run_id
from tidefold.cli.whole_set import OfSet, VersionNumber, WholeSet, require_log, require_no_log
from tidefold.errors import CorruptError, InvalidInputError
from tidefold.operations.ground.outcome import Status

if TYPE_CHECKING:
    from tidefold.domain.verify.expected_files import ScrubBudget
    from tidefold.operations.ground.pipeline import Pipeline

Deep = Annotated[bool, typer.Option("--deep/--quick", help="Read all bytes, or check only presence and length.")]
Repair = Annotated[bool, typer.Option("--repair", help="Repair damaged files from a copy that is proved to be intact.")]
Spark = Annotated[bool, typer.Option("--spark", help="Also read the published table through Spark's Delta reader.")]


def verify(
    terminal: Terminal,
    logs: Logs = None,
    snapshot: SnapshotId = None,
    deep: Deep = True,
    repair: Repair = False,
    spark: Spark = False,
) -> int:
    """Find missing, cut or altered files of a log, in every copy, and repair them on request.

    Checks completed and staged snapshots (manifests, data files, Delta logs), the published table, local copies, and
    the segments that the log needs. Hard links to one file count as one copy. --repair first proves another copy by its
    sha256, writes a new file beside the damaged one, renames it, and checks again. A file without an intact copy stays
    as it is, and the outcome names the next step. Exit code 5 if damage is left.

    --spark also reads every row of the published table through Spark's Delta reader, and compares schema and content
    with the judged files. Without --spark no Spark starts.

    Example: tidefold verify accounts --repair

    Next: tidefold restore LOG ID --log-position replay, if no intact copy is left
    """
    from tidefold.operations.ground.outcome import for_each_log
    from tidefold.operations.verify.verify import VerifyRequest
    from tidefold.operations.verify.verify import verify as act

    pipeline = terminal.pipeline()
    asked = VerifyRequest(snapshot, deep, repair, record=True)
    outcomes = for_each_log(
        choose_logs(pipeline, logs),
        lambda log: act(pipeline, log, asked, ProgressLine(lambda text: terminal.note(f"{log}: {text}"))),
    )
    if spark:
        from tidefold.cli.spark_submit import run_step
        from tidefold.operations.verify.scope import add_readers
        from tidefold.spark.steps import VerifyStep

        # The worse of the two results decides.
        compared = run_step(terminal, pipeline, VerifyStep(), [outcome.log for outcome in outcomes])
        outcomes = [add_readers(outcome, readers) for outcome, readers in zip(outcomes, compared, strict=True)]
    return print_verified(terminal, "verify", outcomes)


ShareOfBytes = Annotated[
    str | None,
    typer.Option("--share", help="Share of each log's bytes to read.", metavar="PERCENT", show_default="5%"),
]
Bytes = Annotated[
    str | None,
    typer.Option(
        "--bytes", help="Bytes of each log to read, instead of a share: 500MB, 20GiB, 100000.", metavar="SIZE"
    ),
]
RepairFound = Annotated[
    bool, typer.Option("--repair/--no-repair", help="Repair from a copy that is proved to be intact.")
]


def scrub(
    terminal: Terminal, logs: Logs = None, share: ShareOfBytes = None, bytes: Bytes = None, repair: RepairFound = True
) -> int:
    """Read the next share of each log's files, verify checksums, and repair damage from an intact copy.

    Each run continues where the last one stopped, so several runs together read every file. A run verifies the
    checksums of the data files, segments and local copies in its share. It checks that all other files exist and have
    the right length. It also reads the whole ledger, the manifests and the Delta logs. Damage that remains raises an
    alarm with the file, the effect, and the command that repairs it. Exit code 5 while damage remains. Starts no Spark.

    Example: tidefold scrub --share 10%

    Next: tidefold status, or tidefold verify LOG to read all files at once
    """
    from tidefold.operations.ground.outcome import for_each_log
    from tidefold.operations.verify.scrub import scrub as act

    budget = _budget(share, bytes)
    pipeline = terminal.pipeline()
    outcomes = for_each_log(
        choose_logs(pipeline, logs),
        lambda log: act(
            pipeline,
            log,
            budget,
            repair=repair,
            tell=ProgressLine(lambda text: terminal.note(f"{log}: {text}")),
        ),
    )
    return print_verified(terminal, "scrub", outcomes)


def _budget(share: str | None, size: str | None) -> ScrubBudget:
    from tidefold.config import count_bytes
    from tidefold.domain.verify.expected_files import ScrubBudget
    from tidefold.operations.verify.scrub import parse_share

    if size is None:
        return ScrubBudget() if share is None else ScrubBudget(parse_share(share))
    if share is not None:
        raise InvalidInputError(
            "SCRUB_SHARE_INVALID", "--share and --bytes exclude each other.", hint="Give one of them."
        )
    bound = int(size) if size.isdecimal() else count_bytes(size)
    if bound < 1:
        message = f"`{size}` is not a number of bytes."
        raise InvalidInputError(
            "SCRUB_SHARE_INVALID", message, hint="Give a size such as `500MB`, `20GiB` or `100000`."
        )
    return ScrubBudget(bytes=bound)


Tried = Annotated[
    int | None,
    typer.Argument(help="Id of the snapshot.", metavar="SNAPSHOT", min=1, show_default="the newest completed one"),
]
Scratch = Annotated[
    str | None,
    typer.Option("--scratch", help="Folder for the scratch copy.", metavar="DIR", show_default="var/drill"),
]


def drill(
    terminal: Terminal,
    log: LogOrSet = None,
    snapshot: Tried = None,
    scratch: Scratch = None,
    of_set: OfSet = None,
    version: VersionNumber = None,
) -> int:
    """Test whether a snapshot can be restored: restore it into a scratch folder, check it, record the result.

    Reads the files as a restore does: from the local copy, the store, or an older snapshot and the log. Checks the row
    count, every checksum, and the Delta log of the result. Then deletes the scratch copy. history and status show the
    newest drill of each snapshot. --set drills all tables of a set's version, and compares the configured sums. Exit
    code 5 if the rows cannot be restored. Nothing else changes.

    Example: tidefold drill accounts

    Next: tidefold verify LOG, if the drill failed
    """
    from tidefold.operations.restore.export import Trial
    from tidefold.operations.restore.export import drill as act

    pipeline = terminal.pipeline()
    if of_set is not None:
        return WholeSet(terminal, pipeline, require_no_log(of_set, log, snapshot)).drill(version, scratch)
    name = pipeline.log(require_log(log, of_set, version)).id
    outcome = act(pipeline, name, snapshot, Trial(scratch, make_runner(terminal, name)))
    return print_restored(terminal, "drill", [outcome])


Yes = Annotated[bool, typer.Option("--yes", help="Write it. Without it, only the plan is printed.")]
Table = Annotated[bool, typer.Option("--table", help="Make the lost published table of LOG again, not the ledger.")]
PlanOnly = Annotated[bool, typer.Option("--dry-run", help="Change nothing: print the plan. This is also the default.")]


def rebuild(
    terminal: Terminal,
    log: LogOrSet = None,
    yes: Yes = False,
    dry_run: PlanOnly = False,
    of_set: OfSet = None,
    table: Table = False,
) -> int:
    """Rebuild a lost ledger, or one that is older than the tables; with --table, a lost published table.

    Use it only if you have no newer copy of logs/LOG. The manifests and the commits of the table tell the command which
    snapshots exist, and from which position ingest has to read the source again. Verdicts, tags, holds and counts of
    refused records are lost. The command aborts snapshots that were never published. Starts no Spark.

    --set rebuilds the ledger of a set from the commits of its tables. Rebuild the ledgers of its logs first.

    --table publishes the newest completed snapshot as version 0 of a new table. Files that only the table had come
    from copies on this machine, else their rows from an older snapshot and the log; the gate judges those.

    Example: tidefold rebuild accounts --yes

    Example: tidefold rebuild accounts --table --yes

    Example: tidefold rebuild --set bank --yes

    Next: tidefold verify LOG, then tidefold ingest LOG, which ingests again what landed after the newest snapshot
    """
    from tidefold.operations.restore.rebuild import RebuildDetails
    from tidefold.operations.restore.rebuild import rebuild as act
    from tidefold.operations.sets.read import RebuiltSetDetails, rebuild_set

    pipeline, plan = terminal.pipeline(), dry_run or not yes
    if table:
        return _rebuild_table(terminal, pipeline, require_log(log, of_set), plan)
    if of_set is None:
        outcome = act(pipeline, require_log(log, of_set), plan)
    else:
        outcome = rebuild_set(pipeline, require_no_log(of_set, log), plan)
    after = f"tidefold rebuild {log if of_set is None else f'--set {of_set}'} --yes" if plan else ""
    code = print_outcomes(terminal, "rebuild", [outcome], after=after)
    for unknown in outcome.details.unknown if isinstance(outcome.details, RebuildDetails | RebuiltSetDetails) else ():
        terminal.line(f"  {outcome.log}: not known any more: {unknown}")
    return code


def _rebuild_table(terminal: Terminal, pipeline: Pipeline, log: str, plan: bool) -> int:
    from tidefold.operations.restore.rebuild import rebuild_table

    try:
        after = f"tidefold rebuild {log} --table --yes" if plan else ""
        return print_outcomes(terminal, "rebuild", [rebuild_table(pipeline, log, plan)], after=after)
    except CorruptError as error:
        if plan or error.code != "TABLE_FILES_LOST" or pipeline.config.set_of(log):
            raise
        terminal.note(f"{error.message} Their rows are made again.")
    snapshot = _restore_newest(terminal, pipeline, log)
    return print_outcomes(terminal, "rebuild", [rebuild_table(pipeline, log, plan, snapshot)]) if snapshot else 5


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
