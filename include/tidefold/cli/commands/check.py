"""Check surroundings and stored files; try whether they restore.

doctor checks what the pipeline relies on. verify reads the stored files and repairs them. drill proves that a snapshot
can be restored.

Example: tidefold check doctor
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidefold.cli.output.outcomes import ProgressLine, make_runner, print_restored, print_verified
from tidefold.cli.terminal import LogOrSet, Logs, SnapshotId, Terminal, choose_logs
from tidefold.cli.whole_set import OfSet, VersionNumber, name_target
from tidefold.errors import InvalidInputError, TidefoldError
from tidefold.operations.ground.outcome import Outcome, for_each_log

if TYPE_CHECKING:
    from tidefold.operations.ground.pipeline import Pipeline

Seconds = Annotated[float, typer.Option("--seconds", help="How long a check may take.", min=1, max=600)]
_FAILED = 1
Deep = Annotated[bool, typer.Option("--deep/--quick", help="Read all bytes, or check only presence and length.")]
Repair = Annotated[bool, typer.Option("--repair", help="Repair damaged files from a copy that is proved to be intact.")]
Spark = Annotated[bool, typer.Option("--spark", help="Also read the published table through Spark's Delta reader.")]
ShareOfFiles = Annotated[
    str | None, typer.Option("--share", help="Read only the next files: 5%, or 20GiB of each log.", metavar="SHARE")
]
Tried = Annotated[int | None, typer.Argument(help="Default: the newest completed.", metavar="SNAPSHOT", min=1)]
Scratch = Annotated[str | None, typer.Option("--scratch", help="Where; default: var/drill.", metavar="DIR")]


def doctor(terminal: Terminal, seconds: Seconds = 20.0) -> int:
    """Check what the pipeline relies on, with the next step for each problem.

    Checks the configuration and its suites, versions of packages, Java, Spark, its jars, memory, disks, the store (with
    scratch objects: conditional writes, listings, clock), landing folders, retention, alarms, and Airflow with its DAG
    files. Each line is ok, warn or fail. Works without a store and without Airflow. A check that hangs fails after
    --seconds (Airflow: four times as long) and does not delay the others. Exit code 1 if a line is fail. Starts no
    Spark.

    Example: tidefold check doctor --format json

    Next: mend what is `fail`, then tidefold status
    """
    from tidefold.config import load_config
    from tidefold.installation import CLONE
    from tidefold.operations.doctor.doctor import Surroundings, diagnose
    from tidefold.operations.doctor.finding import DoctorFinding, FindingLevel, count_failed, summarize
    from tidefold.spark.jars import list_jars
    from tidefold.spark.local_server import find_fault

    findings = diagnose(Surroundings(CLONE, terminal.config_path, tuple(list_jars())), seconds)
    with suppress(TidefoldError):  # The configuration is a finding already.
        if fault := find_fault(load_config(terminal.config_path)):
            findings.append(DoctorFinding("spark", FindingLevel.WARN, fault, "Ask `tidefold spark status`."))
    code = _FAILED if count_failed(findings) else 0
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:<4}  {finding.check:<13}  {finding.message}")
        lines += [f"{'':<21}next: {finding.hint}"] if finding.hint else []
    data = {"command": terminal.command, "exit_code": code, "findings": [asdict(finding) for finding in findings]}
    terminal.result(data, *lines, f"{summarize(findings)}.")
    return code


def verify(
    terminal: Terminal,
    logs: Logs = None,
    snapshot: SnapshotId = None,
    deep: Deep = True,
    repair: Repair = False,
    spark: Spark = False,
    share: ShareOfFiles = None,
) -> int:
    """Find missing, cut or altered files, in every copy, and repair them.

    Checks completed and staged snapshots (manifests, data files, Delta logs), the published table, local copies, and
    the segments that the log needs. Hard links to one file count as one copy. --repair first proves another copy by its
    sha256, writes a new file beside the damaged one, renames it, and checks again. A file without an intact copy stays
    as it is, and the outcome names the next step. Exit code 5 if damage is left.

    --share reads only the next files, of this share or size. Each such call continues where the last one stopped, so
    that several calls together read every file. It checks that all other files exist and have the right length. Damage
    that remains raises an alarm with the file, the effect, and the command that repairs it.

    --spark also reads every row of the published table through Spark's Delta reader, and compares schema and content
    with the judged files. Without --spark no Spark starts.

    Example: tidefold check verify accounts --repair

    Example: tidefold check verify --share 5% --repair

    Next: tidefold restore LOG ID --log-position replay, if no intact copy is left
    """
    from tidefold.operations.verify.scrub import parse_budget, scrub
    from tidefold.operations.verify.verify import VerifyRequest
    from tidefold.operations.verify.verify import verify as verify_all

    if share is not None and (snapshot is not None or spark or not deep):
        message = "--share excludes --snapshot, --quick and --spark."
        raise InvalidInputError("SCRUB_SHARE_INVALID", message, hint="Give --share without them.")
    budget = parse_budget(share) if share is not None else None
    pipeline = terminal.pipeline()

    def act(log: str) -> Outcome:
        tell = ProgressLine(lambda text: terminal.note(f"{log}: {text}"))
        if budget:
            return scrub(pipeline, log, budget, repair=repair, tell=tell)
        return verify_all(pipeline, log, VerifyRequest(snapshot, deep, repair, record=True), tell)

    outcomes = for_each_log(choose_logs(pipeline, logs), act)
    return print_verified(terminal, _verify_on_spark(terminal, pipeline, outcomes) if spark else outcomes)


def _verify_on_spark(terminal: Terminal, pipeline: Pipeline, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Compares the published tables through Spark's Delta reader, too. The worse of the two results decides."""
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.verify.scope import add_readers
    from tidefold.spark.steps import VerifyStep

    compared = run_step(terminal, pipeline, VerifyStep(), [outcome.log for outcome in outcomes])
    return [add_readers(outcome, readers) for outcome, readers in zip(outcomes, compared, strict=True)]


def drill(
    terminal: Terminal,
    log: LogOrSet = None,
    snapshot: Tried = None,
    scratch: Scratch = None,
    of_set: OfSet = None,
    version: VersionNumber = None,
) -> int:
    """Test whether a snapshot can be restored, in a scratch folder.

    Restores it, checks it, and records the result. Reads the files as a restore does: from the local copy, the store,
    or an older snapshot and the log. Checks the row count, every checksum, and the Delta log of the result. Then
    deletes the scratch copy. history and status show the newest drill of each snapshot. --set drills all tables of a
    set's version, and compares the configured sums. Exit code 5 if the rows cannot be restored. Nothing else changes.

    Example: tidefold check drill accounts

    Next: tidefold check verify LOG, if the drill failed
    """
    from tidefold.operations.restore.export import Trial
    from tidefold.operations.restore.export import drill as drill_log
    from tidefold.operations.sets.checks import drill_set
    from tidefold.operations.sets.restore import find_earlier_version

    pipeline, name = terminal.pipeline(), name_target(log, of_set, version, snapshot)

    def make_trial(log: str) -> Trial:
        return Trial(scratch, make_runner(terminal, log))

    if of_set is None:
        outcomes = [drill_log(pipeline, pipeline.log(name).id, snapshot, make_trial(name))]
    else:
        outcomes = drill_set(pipeline, name, find_earlier_version(pipeline, name, version), make_trial)
    return print_restored(terminal, outcomes)
