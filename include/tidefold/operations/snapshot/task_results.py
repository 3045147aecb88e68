"""The results of an attempt's tasks: their files, where they read, and which places could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tidefold.compute.runners import TaskAnswer
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.log_state import ReadFrom
from tidefold.errors import CorruptError, TidefoldError
from tidefold.fold.plan import FoldResult, FoldTask, Read
from tidefold.operations.ground.snapshot_details import FailedRead, FilesRead, ReadSources
from tidefold.typed_json import decode_json


def decode_results(answers: Sequence[TaskAnswer]) -> list[FoldResult]:
    """Returns the results of the tasks. Raises the error of the first task that failed."""
    for answer in answers:
        if isinstance(answer, TidefoldError):
            raise answer
    return [decode_json(answer, FoldResult) for answer in answers if isinstance(answer, str)]


def require_rows(log: str, recorded: int | None, results: Sequence[FoldResult]) -> None:
    """Raises CorruptError if the tasks made another number of rows than the ledger recorded (I17).

    `recorded`: None: not known, as for a tail. If a task dropped rows for their age, the number is not checked.
    """
    made = sum(file.rows for result in results for file in result.files if not file.hidden)
    if recorded is not None and made != recorded and not any(result.expired for result in results):
        raise CorruptError(
            "ROWS_DIFFER",
            f"The restore of `{log}` produced {made:,} rows, but {recorded:,} were recorded.",
            hint=f"`tidefold check verify {log}` lists the damaged files.",
        )


def describe_reads(
    tasks: Sequence[FoldTask], results: Sequence[FoldResult], own: int | None, *, places: bool = False
) -> ReadSources:
    """Describes where the rows were read from; with `places` also the place of each file.

    `tasks`, `results`: in the same order.
    `own`: id of the snapshot that the rows should be made from.
    """
    pairs = list(zip(tasks, results, strict=True))
    reads = [read for task, result in pairs for read in _find_served(task, result)]
    served = {where: [read for read in reads if read.where is where] for where in StorageTier}
    older = {
        f"{task.bucket.first}-{task.bucket.last}": task.recipes[result.recipe].snapshot
        for task, result in pairs
        if task.recipes[result.recipe].snapshot != own
    }
    return ReadSources(
        local=_sum(served[StorageTier.LOCAL]),
        store=_sum(served[StorageTier.STORE]),
        external=_sum(served[StorageTier.EXTERNAL]),
        failed=find_failed_reads(read for result in results for read in result.reads),
        older=older,
        sources=_find_places(tasks, results) if places else None,
    )


def read_from(results: Iterable[FoldResult]) -> ReadFrom:
    """Sums up how many bytes were read, by tier."""
    sums = dict.fromkeys(StorageTier, 0)
    for read in (read for result in results for read in result.reads):
        sums[read.where] += read.bytes
    return ReadFrom(sums[StorageTier.LOCAL], sums[StorageTier.STORE], sums[StorageTier.EXTERNAL])


def find_failed_reads(reads: Iterable[Read]) -> list[FailedRead]:
    """Returns the failed tries."""
    return [FailedRead(file=r.name, place=r.place, why=r.why, seconds=round(r.seconds, 3)) for r in reads if r.why]


def _find_places(tasks: Sequence[FoldTask], results: Sequence[FoldResult]) -> dict[str, str]:
    """Returns, for each file and range of changes, the place that it was read from.

    For a file that could not be read: `older:` and the snapshot that replaced it (`older:log`: the log alone).
    """
    places: dict[str, str] = {}
    for task, result in zip(tasks, results, strict=True):
        chosen = task.recipes[result.recipe]
        if result.recipe:
            stood_in = "older:log" if chosen.snapshot is None else f"older:{chosen.snapshot}"
            places |= {one.file.name: stood_in for one in task.recipes[0].base}
        places |= {read.name: read.place for read in _find_served(task, result)}
    return dict(sorted(places.items()))


def _find_served(task: FoldTask, result: FoldResult) -> Iterator[Read]:
    """Yields the reads that the rows of a bucket come from, without those of ways that failed."""
    recipe = task.recipes[result.recipe]
    wanted = {one.file.name for one in recipe.base} | {str(c.location) for c in task.change_sets(recipe)}
    last = {read.name: read for read in result.reads if not read.why and read.name in wanted}
    return iter(last.values())


def _sum(reads: Sequence[Read]) -> FilesRead:
    seconds = round(sum(read.seconds for read in reads), 3)
    return FilesRead(files=len(reads), bytes=sum(read.bytes for read in reads), seconds=seconds)
