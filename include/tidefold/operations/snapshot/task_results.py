"""What the tasks of an attempt made, and from where they read: files and bytes, and places that could not serve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from tidefold.compute.runners import Answer
from tidefold.domain.log_state import ReadFrom
from tidefold.domain.verify.expected_files import StorageTier
from tidefold.errors import CorruptError, TidefoldError
from tidefold.fold.task import FoldResult, FoldTask, Read


def decode_results(answers: Sequence[Answer]) -> list[FoldResult]:
    """What the tasks made. Raises the error of the first task that failed."""
    for answer in answers:
        if isinstance(answer, TidefoldError):
            raise answer
    return [msgspec.json.decode(answer, type=FoldResult) for answer in answers if isinstance(answer, str)]


def require_rows(log: str, recorded: int | None, results: Sequence[FoldResult]) -> None:
    """Raises CorruptError unless the tasks made as many rows as the ledger recorded (I17).

    `recorded`: None if nobody knows, as for a tail. Rows that a task dropped for their age make the number unknown.
    """
    made = sum(file.rows for result in results for file in result.files if not file.hidden)
    if recorded is not None and made != recorded and not any(result.expired for result in results):
        raise CorruptError(
            "ROWS_DIFFER",
            f"{made:,} rows of `{log}` were made, but {recorded:,} were recorded.",
            hint=f"`tidefold verify {log}` lists what is damaged.",
        )


def sources_of(tasks: Sequence[FoldTask], results: Sequence[FoldResult], own: int | None) -> dict[str, Any]:
    """`local`, `store`, `external`: what served, in files, bytes and seconds; `failed`: each try that did not, with its
    reason; `older`: buckets that were not made from snapshot `own`, with the id of that one (None: the log alone).

    `tasks` and `results` are in the same order.
    """
    pairs = list(zip(tasks, results, strict=True))
    reads = [read for task, result in pairs for read in _find_served(task, result)]
    served: dict[str, Any] = {where: _sum(r for r in reads if r.where is where) for where in StorageTier}
    older = {
        f"{task.bucket.first}-{task.bucket.last}": task.recipes[result.recipe].snapshot
        for task, result in pairs
        if task.recipes[result.recipe].snapshot != own
    }
    failed = failures(read for result in results for read in result.reads)
    return {**served, "failed": failed, "older": older}


def read_from(results: Iterable[FoldResult]) -> ReadFrom:
    """How many bytes served, by place."""
    sums = dict.fromkeys(StorageTier, 0)
    for read in (read for result in results for read in result.reads):
        sums[read.where] += read.bytes
    return ReadFrom(sums[StorageTier.LOCAL], sums[StorageTier.STORE], sums[StorageTier.EXTERNAL])


def failures(reads: Iterable[Read]) -> list[dict[str, Any]]:
    """The tries that did not serve."""
    return [{"file": r.name, "place": r.place, "why": r.why, "seconds": round(r.seconds, 3)} for r in reads if r.why]


def places_read(tasks: Sequence[FoldTask], results: Sequence[FoldResult]) -> dict[str, str]:
    """Of each file and run of changes that the rows were made from, the place that served it; of a file that could not
    be had, `older:` and the snapshot that stood in for it (`older:log`: the change sets alone).
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
    """The reads that the rows of a bucket really come from: not those for a recipe that could not be followed."""
    recipe = task.recipes[result.recipe]
    wanted = {one.file.name for one in recipe.base} | {str(c.location) for c in recipe.change_sets}
    last = {read.name: read for read in result.reads if not read.why and read.name in wanted}
    return iter(last.values())


def _sum(reads: Iterable[Read]) -> dict[str, Any]:
    listed = list(reads)
    seconds = round(sum(read.seconds for read in listed), 3)
    return {"files": len(listed), "bytes": sum(read.bytes for read in listed), "seconds": seconds}
