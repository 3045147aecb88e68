"""`tidefold restore`: the rows of an older snapshot, brought back as a new one."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tidefold.cli.output.outcomes import plan_lines, print_outcomes, print_restored
from tidefold.cli.terminal import DryRun, LogOrSet, OptionalSnapshot, RunId, Takeover, Terminal, run_id
from tidefold.cli.whole_set import OfSet, VersionNumber, name_target
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.errors import InvalidInputError
from tidefold.operations.ground.outcome import Outcome

if TYPE_CHECKING:
    from tidefold.operations.ground.pipeline import Pipeline
    from tidefold.operations.restore.restore import Restore
    from tidefold.operations.sets.restore import RestoreSet


LogPosition = Annotated[
    RestoreMode | None,
    typer.Option(
        "--log-position",
        help="Changes after the snapshot: stay stops the log until `tidefold move resume LOG`, skip leaves them out "
        "for good, replay lets the next run fold them again. carry: as replay, and those of a tail wait, too.",
    ),
]
MaxBuckets = Annotated[
    int, typer.Option("--limit", help="With --dry-run: maximum number of buckets whose files to list.", min=0)
]


def restore(
    terminal: Terminal,
    log: LogOrSet = None,
    snapshot: OptionalSnapshot = None,
    log_position: LogPosition = None,
    run: RunId = None,
    takeover: Takeover = False,
    dry_run: DryRun = False,
    limit: MaxBuckets = 0,
    of_set: OfSet = None,
    version: VersionNumber = None,
) -> int:
    """Restore an older snapshot as a new, staged one.

    Readers do not see it yet. The gate compares the row count with the newest snapshot. If the gate fails because rows
    are fewer, confirm with an override. What happens to the later changes is your choice. --log-position stay: go back,
    and stay there until tidefold move resume LOG. Until then the log ingests and folds nothing. --log-position skip: go
    back, and leave the later changes out for good. If a landed file was wrong, choose skip; then land its rows, and
    those of later files, in new files. --log-position replay, for repairs: make the table again from this snapshot; the
    next run, perhaps a scheduled one, folds the later changes again. stay and replay are refused if those changes were
    truncated. The outcome names the change sets. --log-position carry restores the base of a tail-only snapshot and
    leaves its changes in the log, to be folded by the next run. To undo a restore, restore again. Nothing is deleted. A
    tail-only snapshot is folded first, above `spark.above` bytes on Spark; a full one needs no Spark.

    tidefold reads each file from the local copy. If there is none, it reads the store; if that fails, it rebuilds the
    file from an older snapshot and the log. The checksum must match, and the outcome names the source of each file.
    --dry-run prints what it would read and write; --limit also lists files. --set with --version restores all tables of
    a set at one point; one confirm publishes them together. tidefold move export writes the rows as another table.

    Example: tidefold restore accounts 12 --log-position stay

    Example: tidefold restore --set bank --version 3 --log-position replay

    Next: tidefold step quality LOG, then tidefold step confirm LOG
    """
    from tidefold.operations.restore.restore import Restore
    from tidefold.operations.sets.restore import RestoreSet

    pipeline, name, by = terminal.pipeline(), name_target(log, of_set, version, snapshot), getpass.getuser()
    if log_position is None:
        raise InvalidInputError("LOG_POSITION_MISSING", "A restore needs --log-position.")
    if of_set is None:
        if snapshot is None:
            raise InvalidInputError("SNAPSHOT_MISSING", "A restore needs the id of a snapshot.")
        request = Restore(run_id(run), RestorePoint(snapshot, log_position), takeover, by=by)
        return _restore(terminal, pipeline, request, name, limit if dry_run else None)
    if version is None:
        hint = f"`tidefold set show {name}` lists the versions."
        raise InvalidInputError("SET_VERSION_MISSING", "The restore of a set needs --version.", hint=hint)
    whole = RestoreSet(run_id(run), name, version, takeover, log_position, by)
    return _restore(terminal, pipeline, whole, name, limit if dry_run else None)


def _restore(
    terminal: Terminal, pipeline: Pipeline, request: Restore | RestoreSet, name: str, limit: int | None
) -> int:
    """Restores. limit: prints the plan only, with the files of so many buckets; None: no dry run."""
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.restore.restore import Restore, explain
    from tidefold.operations.sets.read import find_set
    from tidefold.operations.sets.restore import explain_set, restore_set
    from tidefold.spark.steps import MaterializeStep

    logs = [pipeline.log(name).id] if isinstance(request, Restore) else find_set(pipeline, name).logs
    if limit is not None:
        outcomes = (
            [explain(pipeline, logs[0], request)] if isinstance(request, Restore) else explain_set(pipeline, request)
        )
        return print_outcomes(terminal, outcomes, below=partial(plan_lines, limit=limit))

    def stage(logs: Sequence[str]) -> list[Outcome]:
        return run_step(terminal, pipeline, MaterializeStep(request), logs)

    after = f"tidefold step quality {' '.join(logs)}, then tidefold step confirm {logs[0]}"
    if isinstance(request, Restore):
        return print_restored(terminal, stage(logs), after=after)
    outcomes = restore_set(pipeline, request, stage)
    return print_restored(terminal, outcomes, after=f"{after}, which publishes the whole set")
