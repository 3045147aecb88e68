"""`tidefold verify`: checks every stored byte of a log, and repairs damage on request."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.options import Logs, SnapshotId
from tidefold.cli.output.damage import print_damage
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.output.progress import ProgressLine
from tidefold.cli.terminal import Terminal, choose_logs

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
    from tidefold.operations.outcome import for_each_log
    from tidefold.operations.verify.verify import Asked
    from tidefold.operations.verify.verify import verify as act

    pipeline = terminal.pipeline()
    asked = Asked(snapshot, deep, repair, record=True)
    outcomes = for_each_log(
        choose_logs(pipeline, logs),
        lambda log: act(pipeline, log, asked, ProgressLine(lambda text: terminal.note(f"{log}: {text}"))),
    )
    if spark:
        from tidefold.cli.spark_submit import run_step
        from tidefold.operations.verify.result import add_readers
        from tidefold.spark.steps import VerifyStep

        # The worse of the two results decides.
        found = run_step(terminal, pipeline, VerifyStep(), [outcome.log for outcome in outcomes])
        outcomes = [add_readers(outcome, readers) for outcome, readers in zip(outcomes, found, strict=True)]
    code = print_outcomes(terminal, "verify", outcomes)
    for outcome in outcomes:
        print_damage(terminal, outcome)
    return code
